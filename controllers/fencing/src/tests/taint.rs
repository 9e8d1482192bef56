//! Out-of-service taints that were left on Ready nodes.

use pod_safety_shared::events::EventType;

use super::*;

fn tainted(value: &str) -> Fixture {
    let mut fixture = Fixture::new(&["n", "m", "k"]);
    let taint = json!([{ "key": "node.kubernetes.io/out-of-service", "value": value, "effect": "NoExecute" }]);
    fixture.change("n", |node| node["spec"]["taints"] = taint);
    fixture
}

#[test]
fn a_foreign_taint_on_a_ready_node_is_reported_after_a_while_and_not_removed() {
    let mut fixture = tainted("nodeshutdown");
    fixture.advance_to(119);
    assert_eq!(fixture.describe("n"), [""; 0], "its owner may take it away yet");
    assert!(fixture.decide("n").requeue_at.is_some());
    fixture.advance_to(120);
    assert_eq!(fixture.describe("n"), ["?StaleTaint"], "and nothing is done");
    let words = fixture.hold_message("n");
    assert!(words.contains("=nodeshutdown, which does not belong to an incident of pod-safety"), "{words}");
    let event = fixture.decide("n").holds[0].1.event();
    assert_eq!(event, Some((EventType::Warning, "StaleOutOfServiceTaint")));
    fixture.delete(Kind::FencePolicies, "p");
    assert_eq!(fixture.describe("n"), ["?StaleTaint"], "also without a policy");
    fixture.lose_node("n");
    assert_eq!(fixture.describe("n"), [""; 0], "the taint names it");
}

#[test]
fn our_own_taint_is_reported_only_if_no_incident_will_remove_it() {
    let name = incident_name(&Fixture::new(&["n"]).incarnation("n"));
    let mut fixture = tainted(&name);
    fixture.advance_to(200);
    let tainted = NodeFenceStatus { phase: Phase::Recovering, tainted: true, ..NodeFenceStatus::default() };
    fixture.fence("n", Trigger::Detected, tainted);
    assert!(!fixture.describe("n").contains(&"?StaleTaint".to_owned()));
    fixture.edit(|_, status| status.phase = Phase::Done);
    assert_eq!(fixture.describe("n"), ["?StaleTaint"]);
    assert!(fixture.hold_message("n").contains("belongs to an incident that is over"));
    fixture.delete(Kind::NodeFences, &name);
    assert!(fixture.hold_message("n").contains("does not belong to an incident"));
}
