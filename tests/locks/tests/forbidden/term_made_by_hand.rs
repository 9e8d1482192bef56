//! The right to write comes from an election.

use pod_safety_shared::clock::Mono;
use pod_safety_shared::lease::Term;

fn main() {
    let _ = Term { ends: Mono::default() };
}
