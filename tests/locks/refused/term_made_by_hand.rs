//! Only leader election grants the right to write.

use pod_safety_shared::clock::Mono;
use pod_safety_shared::lease::Term;

fn main() {
    //~v cannot construct `pod_safety_shared::lease::Term` with struct literal syntax due to private fields
    let _ = Term { ends: Mono::default() };
}
