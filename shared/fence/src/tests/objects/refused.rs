//! Answers that prove nothing, and objects that are not changed: failed reads, objects of other owners, failure
//! conditions.

use super::*;
use crate::api::IdentityMatch;

fn refused(code: u16, reason: &str) -> Value {
    json!({ "kind": "Status", "code": code, "reason": reason, "message": "no" })
}

/// The mutant treated each failed read as the answer that the object does not exist, which is evidence about a
/// machine.
#[tokio::test(start_paused = true)]
async fn a_machine_that_cannot_be_read_is_not_gone() {
    let (store, spec) = machine_of("cloud:///n");
    let harness = with(&store, spec);
    harness.run_off_attempt().await;
    let attempt = attempted(&harness);
    let not_served = "does not serve /apis/cluster.x-k8s.io";
    for (code, reason, power, expected) in [
        (404, "NotFound", "Off", "is gone"),
        (404, "", "Unknown", not_served),
        (403, "Forbidden", "Unknown", "403 Forbidden"),
        (500, "InternalError", "Unknown", "500 InternalError"),
    ] {
        store.put(MACHINE, refused(code, reason));
        let verified = check_power(&harness, attempt.clone()).await;
        assert_eq!(verified.power.name(), power, "{code} {reason}");
        for sample in &verified.samples {
            assert!(sample.said.contains(expected), "{code} {reason}: {sample:?}");
            assert_eq!(sample.said.contains(not_served), expected == not_served, "{code} {reason}: {sample:?}");
            assert!(!sample.at.is_empty() && sample.identity != IdentityMatch::Mismatch, "{sample:?}");
        }
    }
}

/// A NetworkFence of the name that an incident uses may exist already, with another owner.
#[tokio::test(start_paused = true)]
async fn a_network_fence_of_another_owner_proves_nothing_and_is_not_lifted() {
    let (store, spec) = network(&["10.0.0.1/32"]);
    let (harness, attempt) = fenced(&store, spec).await;
    let path = attempt.objects[0].path.clone();
    let check = async || {
        let verified = check_power(&harness, attempt.clone()).await;
        (verified.power, verified.samples[0].said.clone())
    };
    assert_eq!(check().await.0, Power::Off);
    for (status, expected) in
        [(json!({ "result": "Failed", "message": "quota" }), "failed: quota"), (json!({}), "is not in force yet")]
    {
        store.change(&path, |fence| fence["status"] = status);
        let (power, message) = check().await;
        assert!(power == Power::Unknown && message.contains(expected), "{power}: {message}");
    }
    store.change(&path, |fence| fence["metadata"]["annotations"]["pod-safety.dev/fence"] = json!("other"));
    let (power, message) = check().await;
    assert!(power == Power::Unknown && message.contains("belongs to another owner"), "{power}: {message}");
    let done = NodeFenceStatus { phase: Phase::Done, ..again(attempt.clone()) };
    harness.run_step(Step::Write(target(done))).await;
    assert_eq!(store.get(&path).unwrap()["spec"]["fenceState"], "Fenced");
}

/// medik8s' remediators report their failure by `Succeeded=False`. The failed object stays, and cannot be restarted.
#[tokio::test(start_paused = true)]
async fn a_failed_remediation_object_is_replaced() {
    let (store, spec) = external();
    let harness = with(&store, spec);
    harness.run_off_attempt().await;
    let attempt = attempted(&harness);
    store.change(MADE, |far| {
        far["metadata"]["annotations"] = json!({});
        far["status"] = json!({ "conditions": [{ "type": "Succeeded", "status": "False" }] });
    });
    let verified = check_power(&harness, attempt).await;
    assert!(verified.samples[0].said.contains("says that it failed"), "{verified:?}");
    harness.run_off_attempt().await;
    let outcome = attempted(&harness).outcome.unwrap();
    assert!(outcome.contains("failed before and is being deleted") && store.get(MADE).is_none(), "{outcome}");
    harness.run_off_attempt().await;
    store.change(MADE, |far| far["metadata"]["annotations"] = json!({}));
    harness.run_off_attempt().await;
    assert!(store.get(MADE).is_some(), "one that has not failed is not made anew");
}

/// The agent of one provider does not get the instance of another.
#[tokio::test(start_paused = true)]
async fn attack_the_instance_of_another_provider_is_not_switched() {
    for (agent, plug, is_asked) in [
        ("fence_aws", "{{.Instance.ID}}", true),
        ("fence_gce", "{{.Instance.ID}}", false),
        ("fence_gce", "{{.Node.Name}}", true),
    ] {
        let mut fixture = Fixture::default();
        fixture.node["spec"]["providerID"] = json!("aws:///eu-central-1a/i-0123456789abcdef0");
        fixture.device = Some(json!({ "spec": { "driver": "Agent", "agent": agent, "parameters": { "plug": plug } } }));
        let harness = super::super::harness(fixture, |_, _| answer_with(Power::Off));
        harness.run_off_attempt().await;
        assert_eq!(harness.devices.orders.lock().len(), usize::from(is_asked), "{agent} {plug}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_condition_fenced_distinguishes_contradicted_evidence_from_awaiting_operator() {
    for (tainted, fenced) in [(true, ("Unknown", "AwaitingOperator")), (false, ("False", "EvidenceInvalid"))] {
        let harness = harness(Fixture::default(), |_, _| None);
        let evidence = Some("n-1".to_owned());
        let status =
            NodeFenceStatus { phase: Phase::AwaitingOperator, tainted, evidence, ..NodeFenceStatus::default() };
        harness.assert_outcome(Step::Write(target(status)), "written").await;
        let conditions = harness.written("nodefences")["status"]["conditions"].clone();
        let one = conditions.as_array().unwrap().iter().find(|one| one["type"] == "Fenced").unwrap().clone();
        assert_eq!((one["status"].as_str(), one["reason"].as_str()), (Some(fenced.0), Some(fenced.1)));
    }
}
