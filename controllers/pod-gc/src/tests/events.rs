//! Which holds have an Event.

use pod_safety_shared::controller_loop::{FORCE_DELETE_HELD, NodeUnreadable};
use pod_safety_shared::events::EventType::Warning;
use pod_safety_shared::testing::assert_events;

use super::*;

#[test]
fn holds_that_do_not_pass_by_themselves_have_an_event() {
    let node = || Arc::from("n");
    let left = Duration::from_secs(40);
    let with_event = [
        Hold::NodeUnreadable(NodeUnreadable { node: node(), why: "no version".to_owned() }),
        Hold::KubeletAlive { node: node(), sign: ReportKind::LeaseRenewed, ago: left },
        Hold::KubeletMayNotReport { node: node(), why: Inability::Busy },
        Hold::OutOfServiceWithoutEvidence { node: node() },
        Hold::NoEvidence { node: node() },
        Hold::OutOfServiceButReady { node: node() },
        Hold::TerminalButRunning,
        Hold::PhaseUnreadable,
        Hold::EvidenceConflictsWithReady { node: node(), proof: "e".into() },
    ];
    let passing = [
        Hold::Quarantine { node: node(), left },
        Hold::AwaitsKubelet { node: node(), left },
        Hold::Finalizers { finalizers: vec!["example.com/a".to_owned()] },
    ];
    let with_event = with_event.map(|hold| (hold, Some((Warning, FORCE_DELETE_HELD))));
    assert_events(with_event.into_iter().chain(passing.map(|hold| (hold, None))).collect(), &[]);
}
