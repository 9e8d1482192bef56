//! Evidence is consumed by the act that it permits.

use pod_safety_proof::{Evidence, PodVersion};

fn act(_: Evidence<PodVersion>) {}

fn twice(evidence: Evidence<PodVersion>) {
    act(evidence);
    //~v E0382 use of moved value: `evidence`
    act(evidence);
}

fn main() {
    let _ = twice;
}
