//! Evidence comes from live reads only: it has no constructor, and its fields are private.

use pod_safety_shared::authority::{Evidence, EvidenceKind};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{PodKey, Rv};

fn forge(pod: PodKey, rv: Rv) -> Evidence {
    Evidence { kind: EvidenceKind::NeverScheduled, pod, rv, terminal: true, generation: 1, expires: Mono::default() }
}

fn main() {
    let _ = forge;
}
