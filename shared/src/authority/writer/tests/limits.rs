//! The limits on which graceful deletions rest, with their reasons.

use std::time::Duration;

use pod_safety_fence::evict::MIN_GRACE_SECONDS;

use super::super::deletions::NODE_CHECK_VALID_FOR;
use crate::model::DEFAULT_GRACE;

#[test]
fn the_limits_of_graceful_deletions_are_as_argued() {
    // With zero the API server would remove the pod while its processes run.
    assert_eq!(MIN_GRACE_SECONDS, 1);
    // The API server's own default (`corev1.DefaultTerminationGracePeriodSeconds`).
    assert_eq!(DEFAULT_GRACE, 30);
    // One read of a node is valid for the pods of one turn, which take some milliseconds each. A taint that was removed
    // longer ago than this deletes no pod.
    assert_eq!(NODE_CHECK_VALID_FOR, Duration::from_secs(2));
}
