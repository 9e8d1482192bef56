//! Evidence permits one act: it cannot be cloned.

use pod_safety_proof::{Evidence, PodVersion};

fn twice(evidence: &Evidence<PodVersion>) -> Evidence<PodVersion> {
    //~v E0277 the trait bound `pod_safety_proof::Evidence<_>: std::clone::Clone` is not satisfied
    Evidence::clone(evidence)
}

fn main() {
    let _ = twice;
}
