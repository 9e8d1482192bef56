//! The pass through the guard is made by an act alone.

use pod_safety_proof::Permit;

fn main() {
    let _ = Permit { path: String::new(), uid: String::new(), version: String::new() };
}
