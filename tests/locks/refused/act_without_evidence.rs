//! The act cannot be reached past the judge.

//~v E0603 module `act` is private
use pod_safety_shared::authority::act;

fn main() {
    let _ = act::force;
}
