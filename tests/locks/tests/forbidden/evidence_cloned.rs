//! Evidence permits one act: it cannot be copied.

use pod_safety_proof::{Evidence, PodVersion};

fn twice(evidence: &Evidence<PodVersion>) -> Evidence<PodVersion> {
    Evidence::clone(evidence)
}

fn main() {
    let _ = twice;
}
