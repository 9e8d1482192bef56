//! Marks of nodes that are off, on nodes that are not.

use pod_safety_shared::authority::incident_name;
use pod_safety_shared::events::EventType;

use super::*;

fn tainted(value: &str) -> Stage {
    let mut stage = Stage::new(&["n", "m", "k"]);
    let taint =
        json!([{ "key": "node.kubernetes.io/out-of-service", "value": value, "effect": "NoExecute" }]);
    stage.change("n", |node| node["spec"]["taints"] = taint);
    stage
}

#[test]
fn a_foreign_taint_on_a_node_that_is_ready_is_said_after_a_while_and_left_alone() {
    let mut stage = tainted("nodeshutdown");
    stage.until(119);
    assert_eq!(stage.words("n"), [""; 0], "its owner may take it away yet");
    assert!(stage.decided("n").recheck_at.is_some());
    stage.until(120);
    assert_eq!(stage.words("n"), ["?StaleTaint"], "and nothing is done");
    let words = stage.sentence("n");
    assert!(words.contains("=nodeshutdown, which does not belong to an incident of pod-safety"), "{words}");
    let event = stage.decided("n").holds[0].1.event();
    assert_eq!(event, Some((EventType::Warning, "StaleOutOfServiceTaint")));
    stage.gone(Kind::FencePolicies, "p");
    assert_eq!(stage.words("n"), ["?StaleTaint"], "also where nobody fences");
    stage.loses("n");
    assert_eq!(stage.words("n"), [""; 0], "it is what the taint says");
}

#[test]
fn our_own_taint_is_said_only_when_no_incident_is_left_to_take_it_away() {
    let name = incident_name(&Stage::new(&["n"]).incarnation("n"));
    let mut stage = tainted(&name);
    stage.until(200);
    let tainted = NodeFenceStatus { phase: Phase::Recovering, tainted: true, ..NodeFenceStatus::default() };
    stage.fence("n", Trigger::Detected, tainted);
    assert!(!stage.words("n").contains(&"?StaleTaint".to_owned()));
    stage.edit(|_, status| status.phase = Phase::Done);
    assert_eq!(stage.words("n"), ["?StaleTaint"]);
    assert!(stage.sentence("n").contains("belongs to an incident that is over"));
    stage.gone(Kind::NodeFences, &name);
    assert!(stage.sentence("n").contains("does not belong to an incident"));
}
