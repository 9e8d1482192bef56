//! The cache is filled from the API server alone: no other code can write to it.

use pod_safety_shared::authority::AbsenceRead;
use pod_safety_shared::cache::Cache;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::Pod;

fn teach(cache: &Cache, witness: AbsenceRead) {
    //~v E0599 no method named `record_absence_read` found for reference `&pod_safety_shared::cache::Cache` in the current scope
    cache.record_absence_read("node", witness);
    //~v E0624 method `begin_list` is private
    cache.begin_list::<Pod>();
    //~v E0624 method `end_list` is private
    cache.end_list::<Pod>(Mono::default());
}

fn main() {
    let _ = teach;
}
