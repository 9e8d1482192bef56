//! What the cache believes comes from the API server: nobody outside can tell it otherwise.

use pod_safety_shared::authority::Witness;
use pod_safety_shared::cache::Cache;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::Pod;

fn teach(cache: &Cache, witness: Witness) {
    cache.witnessed("node", witness);
    cache.begin_list::<Pod>();
    cache.end_list::<Pod>(Mono::default());
}

fn main() {
    let _ = teach;
}
