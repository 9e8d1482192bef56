//! Without a first read there is no evidence of absence: its type has no constructor outside of tests.

use pod_safety_shared::authority::AbsenceRead;
use pod_safety_shared::clock::Mono;

fn main() {
    //~v E0599 no function or associated item named `for_decide_tests` found for struct `pod_safety_shared::authority::AbsenceRead` in the current scope
    let _ = AbsenceRead::for_decide_tests(Mono::default());
    //~v cannot construct `pod_safety_shared::authority::AbsenceRead` with struct literal syntax due to private fields
    let _ = AbsenceRead { requested_at: Mono::default() };
}
