//! Requests of other remediators, and their status.

use pod_safety_shared::api::NODE_NAME_ANNOTATION;

use super::*;

/// Five nodes of which `n` is lost; the policy fences on request only, and there is one request.
fn requested() -> Fixture {
    let mut fixture = Fixture::lost();
    fixture.policy(|policy| policy.when = When::Manual);
    fixture.remediation("n", |_| ());
    fixture
}

/// Its incident is open.
fn opened() -> Fixture {
    let mut fixture = requested();
    assert_eq!(fixture.act("n"), ["keep"]);
    assert_eq!(fixture.act("n"), ["say True/Unknown Fencing"]);
    assert_eq!(fixture.act("n"), ["open by p"]);
    assert_eq!(fixture.only().0.trigger.kind, Trigger::External);
    fixture
}

fn deleted(object: &mut Value) {
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:30Z");
}

fn over(object: &mut Value) {
    object["metadata"]["annotations"] = json!({ TIMED_OUT_ANNOTATION: "2026-01-01T00:01:30Z" });
}

#[test]
fn a_requested_incident_is_named_in_the_remediation_before_it_is_opened() {
    let mut fixture = opened();
    let name = fixture.fences.keys().next().cloned();
    assert_eq!(fixture.remediations["n"]["status"]["fence"].as_str(), name.as_deref());
    assert!(fixture.act("n")[0].starts_with("off 1 by bmc"));
    fixture.set_outcome("done");
    fixture.set_power("Off");
    assert_eq!(fixture.act("n")[0], "prove");
    assert_eq!(fixture.act("n"), ["taint", "say False/True Fenced"]);
    fixture.advance(20);
    fixture.act("n");
    assert_eq!(fixture.describe("n"), ["?MachinePoweredOff"], "once: {:?}", fixture.remediations["n"]["status"]);
}

#[test]
fn bug_a_node_that_came_back_was_fenced_again_while_the_request_existed() {
    let mut fixture = opened();
    fixture.edit(|_, status| status.phase = Phase::Done);
    fixture.reboot("n", "b0000000-0000-4000-8000-000000000002");
    fixture.advance(5);
    assert_eq!(fixture.act("n"), ["say False/True Fenced"]);
    assert_eq!(fixture.describe("n"), [""; 0]);
    fixture.lose_node("n");
    fixture.advance(100);
    assert_eq!(fixture.describe("n"), [""; 0], "the request was about the former incarnation");
}

#[test]
fn a_healthy_node_is_fenced_on_request_and_not_after_the_request_is_withdrawn() {
    let mut fixture = opened();
    fixture.reboot("n", "b0000000-0000-4000-8000-00000000000a");
    fixture.advance(5);
    assert!(fixture.describe("n")[0].starts_with("off 1 by bmc"), "the requester decides");
    // Its answered request about an earlier incarnation still exists.
    fixture.remediation("n-answered", |object| {
        object["metadata"]["annotations"] = json!({ NODE_NAME_ANNOTATION: "n" });
        object["metadata"]["finalizers"] = json!([REMEDIATION_FINALIZER]);
        let done = json!([{ "type": "Processing", "status": "False", "reason": "r", "message": "m",
            "lastTransitionTime": "t" }]);
        object["status"] = json!({ "fence": "n-before", "conditions": done });
    });
    fixture.remediation("n", deleted);
    assert_eq!(fixture.act("n"), ["write Cancelled"], "the finalizer stays until that is so");
    assert_eq!(fixture.act("n"), ["let go"]);
    assert_eq!(fixture.describe("n"), [""; 0]);
}

#[test]
fn no_incident_is_opened_for_a_boot_after_the_request() {
    let mut fixture = requested();
    assert_eq!(fixture.act("n"), ["keep"]);
    assert_eq!(fixture.act("n"), ["say True/Unknown Fencing"]);
    let boot = "b0000000-0000-4000-8000-000000000002";
    fixture.change("n", |node| node["status"]["nodeInfo"]["bootID"] = json!(boot));
    assert_eq!(fixture.act("n"), ["say False/True Superseded"]);
}

#[test]
fn a_remediation_is_released_only_after_attempts_in_flight() {
    let mut fixture = opened();
    assert!(fixture.act("n")[0].starts_with("off 1"));
    fixture.remediation("n", deleted);
    assert_eq!(fixture.describe("n"), ["?AttemptUnderWay"]);
    fixture.set_outcome("no");
    fixture.set_power("On");
    assert_eq!(fixture.act("n"), ["write Cancelled"]);
    assert_eq!(fixture.describe("n"), ["let go"]);
}

#[test]
fn a_second_request_in_the_same_incarnation_reopens_the_incident() {
    let mut fixture = opened();
    fixture.remediation("n", deleted);
    assert_eq!(fixture.act("n"), ["write Cancelled"]);
    assert_eq!(fixture.act("n"), ["let go"]);
    fixture.delete(Kind::Remediations, "n");
    fixture.remediations.clear();
    fixture.remediation("n-7xk2p", |object| {
        object["metadata"]["annotations"] = json!({ NODE_NAME_ANNOTATION: "n" });
    });
    assert_eq!(fixture.act("n"), ["keep"]);
    assert_eq!(fixture.act("n"), ["say True/Unknown Fencing"]);
    assert_eq!(fixture.act("n"), ["write Pending"]);
    assert!(fixture.describe("n")[0].starts_with("off 1 by bmc"), "{:?}", fixture.describe("n"));
}

#[test]
fn a_remediation_is_released_even_if_its_node_is_deleted() {
    let mut fixture = opened();
    fixture.delete(Kind::Nodes, "n");
    fixture.remediation("n", deleted);
    assert_eq!(fixture.act("n"), ["write Cancelled"]);
    assert_eq!(fixture.act("n"), ["let go"]);
    let mut never = requested();
    assert_eq!(never.act("n"), ["keep"]);
    never.delete(Kind::Nodes, "n");
    assert_eq!(never.act("n"), ["say False/False NodeNotFound"]);
    never.remediation("n", deleted);
    assert_eq!(never.act("n"), ["let go"]);
}

#[test]
fn a_timed_out_remediation_begins_no_attempt_and_keeps_evidence() {
    let mut fixture = opened();
    fixture.remediation("n", over);
    assert_eq!(
        fixture.act("n"),
        ["write Pending", "say False/False TimedOut", "?RemediationTimedOut"],
        "the gate is closed"
    );
    let mut two = requested();
    two.remediation("n-7xk2p", |object| {
        object["metadata"]["annotations"] = json!({ NODE_NAME_ANNOTATION: "n" });
    });
    while two.fences.is_empty() {
        two.act("n");
    }
    two.remediation("n", over);
    let words = two.describe("n");
    assert!(words[0].starts_with("off 1 by bmc"), "one still waits for it: {words:?}");
    let mut shot = opened();
    assert!(shot.act("n")[0].starts_with("off 1"));
    shot.set_outcome("done");
    shot.remediation("n", over);
    assert_eq!(shot.describe("n"), ["look", "say False/False TimedOut"]);
    shot.set_power("Off");
    assert_eq!(shot.act("n")[0], "prove", "what was found stays found");
    assert_eq!(shot.act("n"), ["taint", "say False/True Fenced"]);
}

#[test]
fn a_request_that_cannot_begin_fails_at_once_with_its_reason() {
    let mut fixture = requested();
    fixture.act("n");
    fixture.policy(|policy| {
        policy.node_selector.match_labels.insert("rack".to_owned(), "none".to_owned());
    });
    assert_eq!(fixture.act("n"), ["say False/False NoPolicy"]);
    let mut unsaid = requested();
    unsaid.act("n");
    unsaid.change("n", |node| node["status"]["nodeInfo"]["bootID"] = json!(""));
    assert_eq!(unsaid.act("n"), ["say False/False NoBootId"]);
    unsaid.config.mode = Mode::Observe;
    unsaid.remediation("n", deleted);
    assert_eq!(unsaid.describe("n"), [""; 0], "observe mode writes no status");
}

#[test]
fn an_existing_incident_is_followed_and_not_cancelled_with_the_request() {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.remediation("n", |_| ());
    assert!(fixture.act("n").contains(&"keep".to_owned()));
    assert!(fixture.act("n").contains(&"say True/Unknown Fencing".to_owned()));
    fixture.remediation("n", deleted);
    assert_eq!(fixture.act("n").last().map(String::as_str), Some("?AttemptUnderWay"));
    assert!(!fixture.only().1.phase.is_over(), "the policy wants it, too");
    assert_eq!(fixture.remediations["n"]["metadata"]["finalizers"], json!([]));
}
