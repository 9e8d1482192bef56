//! Only an act makes the permit that passes the guard.

use pod_safety_proof::Permit;

fn main() {
    //~v E0451 fields `path`, `uid` and `version` of struct `pod_safety_proof::Permit` are private
    let _ = Permit { path: String::new(), uid: String::new(), version: String::new() };
}
