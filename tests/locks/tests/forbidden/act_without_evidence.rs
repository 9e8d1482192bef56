//! The act cannot be reached past the judge.

use pod_safety_shared::authority::act;

fn main() {
    let _ = act::force;
}
