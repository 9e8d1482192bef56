//! What is no proof, and what is not touched: reads that fail, objects of others, conditions of a failure.

use super::*;
use crate::api::IdentityMatch;

fn refused(code: u16, reason: &str) -> Value {
    json!({ "kind": "Status", "code": code, "reason": reason, "message": "no" })
}

/// A mutant took each failed read for the word of the registry that there is no such object, which is evidence about a machine.
#[tokio::test(start_paused = true)]
async fn a_machine_that_cannot_be_read_is_not_gone() {
    let (store, spec) = machine_of("cloud:///n");
    let scene = with(&store, spec);
    scene.tries().await;
    let attempt = attempted(&scene);
    let not_served = "does not serve /apis/cluster.x-k8s.io";
    for (code, reason, power, said) in [
        (404, "NotFound", "Off", "is gone"),
        (404, "", "Unknown", not_served),
        (403, "Forbidden", "Unknown", "403 Forbidden"),
        (500, "InternalError", "Unknown", "500 InternalError"),
    ] {
        store.put(MACHINE, refused(code, reason));
        let verified = check_power(&scene, attempt.clone()).await;
        assert_eq!(verified.power.name(), power, "{code} {reason}");
        for sample in &verified.samples {
            assert!(sample.said.contains(said), "{code} {reason}: {sample:?}");
            assert_eq!(sample.said.contains(not_served), said == not_served, "{code} {reason}: {sample:?}");
            assert!(!sample.at.is_empty() && sample.identity != IdentityMatch::Mismatch, "{sample:?}");
        }
    }
}

/// A NetworkFence of the name that an incident uses may exist already, with another owner.
#[tokio::test(start_paused = true)]
async fn the_network_fence_of_another_owner_proves_nothing_and_is_not_lifted() {
    let (store, spec) = network(&["10.0.0.1/32"]);
    let (scene, attempt) = fenced(&store, spec).await;
    let path = attempt.objects[0].path.clone();
    let said = async || {
        let verified = check_power(&scene, attempt.clone()).await;
        (verified.power, verified.samples[0].said.clone())
    };
    assert_eq!(said().await.0, Power::Off);
    for (status, words) in [
        (json!({ "result": "Failed", "message": "quota" }), "failed: quota"),
        (json!({}), "is not in force yet"),
    ] {
        store.change(&path, |fence| fence["status"] = status);
        let (power, said) = said().await;
        assert!(power == Power::Unknown && said.contains(words), "{power}: {said}");
    }
    store.change(&path, |fence| fence["metadata"]["annotations"]["pod-safety.dev/fence"] = json!("other"));
    let (power, said) = said().await;
    assert!(power == Power::Unknown && said.contains("belongs to another owner"), "{power}: {said}");
    let done = NodeFenceStatus { phase: Phase::Done, ..again(attempt.clone()) };
    scene.run_step(Step::Write(target(done))).await;
    assert_eq!(store.get(&path).unwrap()["spec"]["fenceState"], "Fenced");
}

/// medik8s' remediators say with `Succeeded` that they gave up. What they made stays, and cannot begin again.
#[tokio::test(start_paused = true)]
async fn a_remediator_that_failed_has_another_object_made() {
    let (store, spec) = external();
    let scene = with(&store, spec);
    scene.tries().await;
    let attempt = attempted(&scene);
    store.change(MADE, |far| {
        far["metadata"]["annotations"] = json!({});
        far["status"] = json!({ "conditions": [{ "type": "Succeeded", "status": "False" }] });
    });
    let verified = check_power(&scene, attempt).await;
    assert!(verified.samples[0].said.contains("says that it failed"), "{verified:?}");
    scene.tries().await;
    let outcome = attempted(&scene).outcome.unwrap();
    assert!(outcome.contains("failed before and is being deleted") && store.get(MADE).is_none(), "{outcome}");
    scene.tries().await;
    store.change(MADE, |far| far["metadata"]["annotations"] = json!({}));
    scene.tries().await;
    assert!(store.get(MADE).is_some(), "one that has not failed is not made anew");
}

/// The agent of one provider does not get the instance of another one.
#[tokio::test(start_paused = true)]
async fn attack_the_instance_of_another_provider_is_not_switched() {
    for (agent, plug, is_asked) in [
        ("fence_aws", "{{.Instance.ID}}", true),
        ("fence_gce", "{{.Instance.ID}}", false),
        ("fence_gce", "{{.Node.Name}}", true),
    ] {
        let mut there = There::default();
        there.node["spec"]["providerID"] = json!("aws:///eu-central-1a/i-0123456789abcdef0");
        there.device =
            Some(json!({ "spec": { "driver": "Agent", "agent": agent, "parameters": { "plug": plug } } }));
        let scene = super::super::scene(there, |_, _| answer_with(Power::Off));
        scene.tries().await;
        assert_eq!(scene.devices.asked.lock().len(), usize::from(is_asked), "{agent} {plug}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_condition_fenced_tells_contradicted_evidence_from_a_node_that_waits_for_a_person() {
    for (tainted, fenced) in [(true, ("Unknown", "AwaitingOperator")), (false, ("False", "EvidenceInvalid"))]
    {
        let scene = scene(There::default(), |_, _| None);
        let evidence = Some("n-1".to_owned());
        let status = NodeFenceStatus {
            phase: Phase::AwaitingOperator,
            tainted,
            evidence,
            ..NodeFenceStatus::default()
        };
        scene.ends(Step::Write(target(status)), "written").await;
        let conditions = scene.written("nodefences")["status"]["conditions"].clone();
        let one = conditions.as_array().unwrap().iter().find(|one| one["type"] == "Fenced").unwrap().clone();
        assert_eq!((one["status"].as_str(), one["reason"].as_str()), (Some(fenced.0), Some(fenced.1)));
    }
}
