//! Evidence is consumed by the act that it permits.

use pod_safety_shared::authority::Evidence;

fn act(_: Evidence) {}

fn twice(evidence: Evidence) {
    act(evidence);
    act(evidence);
}

fn main() {
    let _ = twice;
}
