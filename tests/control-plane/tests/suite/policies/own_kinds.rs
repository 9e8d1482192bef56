//! Who may write the custom resources of pod-safety.

use pod_safety_shared::api::Incarnation;
use pod_safety_shared::authority::incident_name;
use serde_json::{Value, json};

use super::admission::{ADMIN, DEV, EXEMPT, Fixture, OPERATOR, POD_SAFETY};

pub(super) async fn evidence(fixture: &Fixture) {
    for (number, (user, by, kind, refusal)) in (0..).zip([
        (OPERATOR, OPERATOR, "Asserted", None),
        (OPERATOR, DEV, "Asserted", Some("evidence")),
        (OPERATOR, OPERATOR, "PowerOff", Some("evidence")),
        (DEV, DEV, "Asserted", Some("evidence")),
        (DEV, OPERATOR, "Asserted", Some("evidence")),
        (EXEMPT, EXEMPT, "Asserted", Some("evidence")),
        (ADMIN, "somebody", "Asserted", Some("evidence")),
        (ADMIN, "admin", "Asserted", None),
        (POD_SAFETY, "pod-safety_1", "PowerOff", None),
    ]) {
        let mut object = json!({ "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FenceEvidence", "metadata": { "name": format!("evidence-xxxx{number}") },
            "spec": { "node": { "name": "w1", "uid": "u", "bootID": "b" }, "kind": kind, "by": by } });
        let field = if kind == "Asserted" { "reason" } else { "fence" };
        object["spec"][field] = json!("because");
        let output = fixture.run(user, &["create", "-f", "-"], &object).await;
        Fixture::check_answer(&format!("evidence {number}: {user} says {by}, {kind}"), &output, refusal);
    }
    attack_withdrawn_evidence_comes_back(fixture).await;
    attack_a_person_creates_an_object_with_the_name_of_device_evidence(fixture).await;
}

/// Withdrawn evidence whose status was removed released pods again, in the name of its author.
async fn attack_withdrawn_evidence_comes_back(fixture: &Fixture) {
    let withdrawn = json!({ "invalidated": { "at": "2026-01-01T00:00:00Z", "reason": "it runs" } });
    let it = ["fenceevidence", "evidence-xxxx0"];
    for (user, it, refusal) in [
        (DEV, ["fenceevidence", "evidence-xxxx0"], Some("fence")),
        (OPERATOR, ["fenceevidence", "evidence-xxxx8"], None),
        (OPERATOR, it, None),
    ] {
        let output = fixture.status(user, &it, &withdrawn).await;
        Fixture::check_answer(&format!("{user} withdraws {it:?}"), &output, refusal);
    }
    for status in [json!({ "invalidated": null }), Value::Null] {
        let output = fixture.status(OPERATOR, &it, &status).await;
        let refused = !output.status.success() && output.stderr.contains("what is invalid stays so");
        assert!(refused, "the status became {status}: {output:?}");
    }
}

/// The name of device evidence is predictable: an object of a person with that name prevented the evidence for the whole incarnation of
/// the node.
async fn attack_a_person_creates_an_object_with_the_name_of_device_evidence(fixture: &Fixture) {
    let incarnation = Incarnation { name: "w1".to_owned(), uid: "u".to_owned(), boot_id: "b".to_owned() };
    let needed = incident_name(&incarnation);
    for (metadata, refusal) in [
        (json!({ "name": needed }), Some("evidence")),
        (json!({ "name": needed, "generateName": "w1-" }), Some("evidence")),
        (json!({ "generateName": format!("{needed}-") }), None),
    ] {
        let object = json!({ "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FenceEvidence", "metadata": metadata,
            "spec": { "node": incarnation, "kind": "Asserted", "by": OPERATOR, "reason": "because" } });
        let output = fixture.run(OPERATOR, &["create", "-f", "-"], &object).await;
        Fixture::check_answer(&format!("evidence called {metadata}"), &output, refusal);
    }
}

/// A user may not open an incident in the name of another, or as if a controller had opened it.
pub(super) async fn fences(fixture: &Fixture) {
    for (number, (user, by, kind, refusal)) in (0..).zip([
        (OPERATOR, Some(OPERATOR), "Person", None),
        (OPERATOR, Some("the-boss"), "Person", Some("fence")),
        (OPERATOR, None, "Person", Some("fence")),
        (OPERATOR, Some(OPERATOR), "Detected", Some("fence")),
        (OPERATOR, Some(OPERATOR), "External", Some("fence")),
        (EXEMPT, Some("the-boss"), "Person", Some("fence")),
        (ADMIN, Some("the-boss"), "Person", Some("fence")),
        (POD_SAFETY, None, "Detected", None),
    ]) {
        let mut object = json!({ "apiVersion": "pod-safety.dev/v1alpha1", "kind": "NodeFence", "metadata": { "name": format!("fence-{number}") },
            "spec": { "node": { "name": "w1", "uid": "u", "bootID": "b" }, "policy": "p", "trigger": { "kind": kind, "reason": "r" } } });
        if let Some(by) = by {
            object["spec"]["trigger"]["by"] = json!(by);
        }
        let output = fixture.run(user, &["create", "-f", "-"], &object).await;
        Fixture::check_answer(&format!("fence {number}: {user} for {by:?}, {kind}"), &output, refusal);
    }
    let cancel = ["patch", "nodefence", "fence-7", "--type=merge", "-p", r#"{"spec":{"cancelled":true}}"#];
    Fixture::check_answer("a person cancels it", &fixture.run(OPERATOR, &cancel, &Value::Null).await, None);
    attack_a_dry_run_of_another_user_is_executed(fixture).await;
}

/// A dry run became an incident in the name of the user who had opened it.
async fn attack_a_dry_run_of_another_user_is_executed(fixture: &Fixture) {
    let object = json!({ "apiVersion": "pod-safety.dev/v1alpha1", "kind": "NodeFence", "metadata": { "name": "rehearsal" },
        "spec": { "node": { "name": "w1", "uid": "u", "bootID": "b" }, "policy": "p", "dryRun": true,
            "trigger": { "kind": "Person", "by": OPERATOR, "reason": "r" } } });
    fixture.run(OPERATOR, &["create", "-f", "-"], &object).await.text().unwrap();
    for change in [r#"{"spec":{"dryRun":false}}"#, r#"{"spec":{"dryRun":null}}"#] {
        let patch = ["patch", "nodefence", "rehearsal", "--type=merge", "-p", change];
        let output = fixture.run(DEV, &patch, &Value::Null).await;
        assert!(output.stderr.contains("a dry run stays one"), "{change}: {output:?}");
    }
}

/// The rule is in the CRD, tested in controllers/tests/policies; here is what only an API server evaluates correctly.
pub(super) async fn a_login_that_begins_with_a_dash_is_no_parameter(fixture: &Fixture) {
    for parameters in [
        json!({ "parameters": { "api-key": "x" } }),
        json!({ "parameters": { "api_key": "x" } }),
        json!({ "nodeParameters": { "w1": { "private-key": "x" } } }),
        json!({ "nodeParameters": { "w1": { "private_key": "x" } } }),
    ] {
        let mut device = json!({ "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FenceDevice",
            "metadata": { "namespace": "default", "name": "careless" }, "spec": { "driver": "Redfish" } });
        device["spec"].as_object_mut().unwrap().extend(parameters.as_object().unwrap().clone());
        let output = fixture.run(ADMIN, &["create", "-f", "-"], &device).await;
        assert!(
            output.stderr.contains("into a Secret, and name that in secretParameters"),
            "{device} was taken: {output:?}"
        );
    }
}

/// Status fields of pod-safety were trusted, regardless of their writer.
pub(super) async fn attack_statuses_are_forged(fixture: &Fixture) {
    let device = json!({ "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FenceDevice", "metadata": { "namespace": "default", "name": "d" },
        "spec": { "driver": "Manual" } });
    let remediation = json!({ "apiVersion": "pod-safety.dev/v1alpha1", "kind": "PodSafetyRemediation",
        "metadata": { "namespace": "default", "name": "w1" }, "spec": {} });
    fixture.make(&device).await;
    fixture.make(&remediation).await;
    let trusted = json!({ "conditions": [{ "type": "Trusted", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": "t" }] });
    let fenced = json!({ "phase": "Fenced", "evidence": "e" });
    for (kind, name, status) in
        [("nodefence", "fence-7", &fenced), ("fencedevice", "d", &trusted), ("podsafetyremediation", "w1", &trusted)]
    {
        for (user, refusal) in
            [(OPERATOR, Some("fence")), (ADMIN, Some("fence")), (EXEMPT, Some("fence")), (POD_SAFETY, None)]
        {
            Fixture::check_answer(
                &format!("the status of {kind}, by {user}"),
                &fixture.status(user, &[kind, name], status).await,
                refusal,
            );
        }
    }
}
