//! The log line of a record.

use super::*;
use crate::testing::CapturedLogs;

fn record(action: Action) -> Record {
    let pod = PodKey { namespace: "ns".into(), name: "a".into(), uid: Uid::new("uid-a").unwrap() };
    let at = Timestamp::UNIX_EPOCH;
    let (controller, reason, message) = ("pod-gc", "NodeGone", "it is gone".to_owned());
    let (node, budget, node_uid) = (Some("n".into()), None, None);
    Record { at, controller, action, pod: Some(pod), budget, node, node_uid, reason, message }
}

#[test]
fn refusals_and_failures_are_warnings_and_dropped_requests_are_debug() {
    for (action, level, event) in [
        (Action::Held, "INFO", "held"),
        (Action::WouldForceDelete, "INFO", "would_force_delete"),
        (Action::WouldDelete, "INFO", "would_delete"),
        (Action::Refused, "WARN", "refused"),
        (Action::ForceDeleted, "INFO", "pod_force_deleted"),
        (Action::Deleted, "INFO", "pod_deleted"),
        (Action::Marked, "INFO", "node_marked"),
        (Action::Fenced, "INFO", "fence_updated"),
        (Action::Guarded, "INFO", "volume_lease_written"),
        (Action::Evicted, "INFO", "eviction_written"),
        (Action::Failed, "WARN", "failed"),
        (Action::Dropped, "DEBUG", "dropped"),
    ] {
        let logged = CapturedLogs::capture();
        Journal::default().write(record(action));
        let expected = format!(
            r#"{level} it is gone event="{event}" controller="pod-gc" action={action:?} pod="ns/a" uid="uid-a" node="n" reason="NodeGone""#
        );
        assert_eq!(logged.take_lines(), [expected]);
    }
}

/// For an object other than a pod, the line has its own UID.
#[test]
fn the_uid_of_a_line_is_that_of_the_pod_or_of_the_node() {
    let logged = CapturedLogs::capture();
    let node_uid = Uid::new("uid-n");
    Journal::default().write(Record { pod: None, node_uid, ..record(Action::Marked) });
    let lines = logged.take_lines();
    assert!(lines[0].contains(r#" uid="uid-n" node="n" "#), "{lines:?}");
}
