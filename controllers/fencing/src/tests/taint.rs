//! Out-of-service taints that were left on Ready nodes.

use pod_safety_shared::authority::incident_name;
use pod_safety_shared::events::EventType;

use super::*;

fn tainted(value: &str) -> Fixture {
    let mut stage = Fixture::new(&["n", "m", "k"]);
    let taint =
        json!([{ "key": "node.kubernetes.io/out-of-service", "value": value, "effect": "NoExecute" }]);
    stage.change("n", |node| node["spec"]["taints"] = taint);
    stage
}

#[test]
fn a_foreign_taint_on_a_ready_node_is_reported_after_a_while_and_not_removed() {
    let mut stage = tainted("nodeshutdown");
    stage.advance_to(119);
    assert_eq!(stage.describe("n"), [""; 0], "its owner may take it away yet");
    assert!(stage.decide("n").requeue_at.is_some());
    stage.advance_to(120);
    assert_eq!(stage.describe("n"), ["?StaleTaint"], "and nothing is done");
    let words = stage.hold_message("n");
    assert!(words.contains("=nodeshutdown, which does not belong to an incident of pod-safety"), "{words}");
    let event = stage.decide("n").holds[0].1.event();
    assert_eq!(event, Some((EventType::Warning, "StaleOutOfServiceTaint")));
    stage.delete(Kind::FencePolicies, "p");
    assert_eq!(stage.describe("n"), ["?StaleTaint"], "also where nobody fences");
    stage.lose_node("n");
    assert_eq!(stage.describe("n"), [""; 0], "it is what the taint says");
}

#[test]
fn our_own_taint_is_reported_only_if_no_incident_will_remove_it() {
    let name = incident_name(&Fixture::new(&["n"]).incarnation("n"));
    let mut stage = tainted(&name);
    stage.advance_to(200);
    let tainted = NodeFenceStatus { phase: Phase::Recovering, tainted: true, ..NodeFenceStatus::default() };
    stage.fence("n", Trigger::Detected, tainted);
    assert!(!stage.describe("n").contains(&"?StaleTaint".to_owned()));
    stage.edit(|_, status| status.phase = Phase::Done);
    assert_eq!(stage.describe("n"), ["?StaleTaint"]);
    assert!(stage.hold_message("n").contains("belongs to an incident that is over"));
    stage.delete(Kind::NodeFences, &name);
    assert!(stage.hold_message("n").contains("does not belong to an incident"));
}
