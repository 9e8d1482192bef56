//! Only live reads make evidence: it has no public constructor, and its fields are private.

use pod_safety_proof::{Evidence, EvidenceKind, PodVersion};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{PodKey, Rv};

fn forge(pod: PodKey, rv: Rv) -> Evidence<PodVersion> {
    let subject = PodVersion { pod, rv, terminal: true, generation: 1 };
    //~v E0451 fields `kind`, `subject` and `expires` of struct `pod_safety_proof::Evidence` are private
    Evidence { kind: EvidenceKind::NeverScheduled, subject, expires: Mono::default() }
}

fn main() {
    let _ = forge;
}
