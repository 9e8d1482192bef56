//! The numbers on which the judge rests, with their arguments. Who changes one changes it here, too, and says why.

use pod_safety_proof::MINIMUM_BOOT;

use super::*;

#[test]
fn evidence_is_used_up_before_a_machine_could_have_booted() {
    let seconds = Duration::from_secs;
    // A machine that is switched on after the reads needs longer than this until its kubelet registers and runs
    // anything; a batch of writes to a healthy API server needs less.
    assert_eq!(VALID_FOR, seconds(2));
    // From power on to a system that runs anything, no machine is faster. It bounds what the looks may take: the
    // device that answers first has said off before the one that answers last.
    assert_eq!(MINIMUM_BOOT, seconds(10));
    assert!(VALID_FOR < MINIMUM_BOOT);
}
