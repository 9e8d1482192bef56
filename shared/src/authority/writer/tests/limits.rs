//! The numbers on which graceful deletions rest, with their arguments.

use std::time::Duration;

use pod_safety_fence::evict::MIN_GRACE_SECONDS;

use super::super::deletions::NODE_CHECK_VALID_FOR;
use crate::model::DEFAULT_GRACE;

#[test]
fn a_pod_is_never_asked_to_end_at_once_nor_for_a_taint_that_may_be_gone() {
    // Zero would have the API server remove the pod while its processes run.
    assert_eq!(MIN_GRACE_SECONDS, 1);
    // What the API server itself sets where nobody says (`corev1.DefaultTerminationGracePeriodSeconds`).
    assert_eq!(DEFAULT_GRACE, 30);
    // One read of a node speaks for the pods of one turn, which need some milliseconds each. A taint that was lifted
    // longer ago than this ends no pod.
    assert_eq!(NODE_CHECK_VALID_FOR, Duration::from_secs(2));
}
