//! The time limits on which the judge rests, with their reasons. A change of one of them must be made here, too, with its
//! reason.

use pod_safety_proof::MINIMUM_BOOT;

use super::*;

#[test]
fn the_validity_of_evidence_is_shorter_than_a_boot() {
    let seconds = Duration::from_secs;
    // A machine that is switched on after the reads needs longer than this until its kubelet registers and runs anything; a
    // batch of writes to a healthy API server needs less.
    assert_eq!(VALID_FOR, seconds(2));
    // No machine is faster from power on to a system that runs anything. This limits how long the status checks may take:
    // the first device may have reported off before the last device answers.
    assert_eq!(MINIMUM_BOOT, seconds(10));
    assert!(VALID_FOR < MINIMUM_BOOT);
}
