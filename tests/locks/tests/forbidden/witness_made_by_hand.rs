//! A first read that nobody made proves nothing: a witness has no constructor outside of tests.

use pod_safety_shared::authority::Witness;
use pod_safety_shared::clock::Mono;

fn main() {
    let _ = Witness::for_decide_tests(Mono::default());
    let _ = Witness { asked_at: Mono::default() };
}
