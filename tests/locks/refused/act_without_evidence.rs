//! The act is not reachable without the checks of the kernel.

//~v E0603 module `act` is private
use pod_safety_shared::authority::act;

fn main() {
    let _ = act::force;
}
