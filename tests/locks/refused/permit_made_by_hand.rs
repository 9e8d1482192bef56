//! The pass through the guard is made by an act alone.

use pod_safety_proof::Permit;

fn main() {
    //~v E0451 fields `path`, `uid` and `version` of struct `pod_safety_proof::Permit` are private
    let _ = Permit { path: String::new(), uid: String::new(), version: String::new() };
}
