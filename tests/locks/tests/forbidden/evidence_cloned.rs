//! Evidence permits one act: it cannot be copied.

use pod_safety_shared::authority::Evidence;

fn twice(evidence: &Evidence) -> Evidence {
    Evidence::clone(evidence)
}

fn main() {
    let _ = twice;
}
