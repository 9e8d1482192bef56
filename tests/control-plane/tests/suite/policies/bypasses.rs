//! Attempts to bypass the policies on nodes, pods and attachments: first the field that a policy reads is changed, and then the object.

use serde_json::{Value, json};

use super::admission::{
    ALL_VERBS, ATTACH_DETACH, DEV, EXEMPT, Fixture, KUBELET, NEW_KUBELET, OPERATOR, OTHER_KUBELET, POD_SAFETY, REASON,
    TAINTER,
};
use super::volumes::attachment;
use crate::versions;

/// A node that another client marks Ready could be cordoned and deleted while its pods run, and a node that is created with the taint counts
/// as off for kube-controller-manager.
pub(super) async fn attack_a_node_is_marked_ready_or_registered_with_the_taint(fixture: &Fixture) {
    let refused = Some("node");
    for (name, user, reason, refusal) in [
        ("called-by-dev", DEV, None, refused),
        ("called-by-wild", ALL_VERBS, Some("."), refused),
        ("called-by-another-kubelet", OTHER_KUBELET, None, refused),
        ("called-by-an-agent", EXEMPT, None, None),
        ("called-by-an-operator", OPERATOR, Some("its kubelet is mended by hand"), None),
        ("called-without-a-reason", OPERATOR, None, refused),
        ("w1", KUBELET, None, None),
    ] {
        fixture.node(name, Some("Unknown"), reason).await;
        let output = fixture.calls(DEV, name, "False").await;
        Fixture::check_answer(&format!("{name}: another condition"), &output, None);
        Fixture::check_answer(name, &fixture.calls(user, name, "True").await, refusal);
        if refusal.is_none() {
            Fixture::check_answer(&format!("{name}: Ready as before"), &fixture.calls(DEV, name, "True").await, None);
        }
        let output = fixture.calls(user, name, "Unknown").await;
        Fixture::check_answer(&format!("{name}: less than Ready"), &output, None);
    }
    for (name, user, reason, refusal) in [
        ("made-by-dev", DEV, None, refused),
        ("made-by-wild", ALL_VERBS, Some("."), refused),
        ("made-by-a-tainter", TAINTER, None, refused),
        ("made-by-an-operator", OPERATOR, Some("its rack burnt down"), None),
        ("made-by-pod-safety", POD_SAFETY, None, Some("own-account")),
    ] {
        let annotations = reason.map_or_else(|| json!({}), |reason| json!({ REASON: reason }));
        let taints = json!([{ "key": "node.kubernetes.io/out-of-service", "value": "x", "effect": "NoExecute" }]);
        let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "annotations": annotations },
            "spec": { "taints": taints } });
        Fixture::check_answer(name, &fixture.run(user, &["create", "-f", "-"], &object).await, refusal);
    }
    a_node_is_deleted_when_its_condition_is_gone(fixture).await;
    a_volume_is_reported_unmounted(fixture).await;
    an_unreachable_node_is_deleted_after_its_taint_is_removed(fixture).await;
}

async fn deleted(fixture: &Fixture, what: &[&str], refusal: Option<&str>) {
    let output = fixture.run(DEV, &[&["delete"][..], what, &["--wait=false"]].concat(), &Value::Null).await;
    Fixture::check_answer(&format!("{what:?} is deleted"), &output, refusal);
}

/// Without the Ready condition a node counted as one that never reported, and could be deleted.
async fn a_node_is_deleted_when_its_condition_is_gone(fixture: &Fixture) {
    for (name, user, ready) in [
        ("forgotten-by-dev", DEV, "Unknown"),
        ("forgotten-by-wild", ALL_VERBS, "True"),
        ("forgotten-by-another-kubelet", OTHER_KUBELET, "False"),
    ] {
        fixture.node(name, Some(ready), Some(".")).await;
        let node = ["node", name];
        for status in [json!({ "conditions": null }), json!({ "conditions": [] }), Value::Null] {
            let output = fixture.status(user, &node, &status).await;
            Fixture::check_answer(&format!("{name}: the status becomes {status}"), &output, Some("node"));
        }
        // A request for the Node itself does not write its status.
        let patch = r#"{"status":{"conditions":null}}"#;
        let patch = [&["patch"][..], &node, &["--type=merge", "-p", patch]].concat();
        fixture.run(user, &patch, &Value::Null).await.text().unwrap();
        deleted(fixture, &node, Some("node")).await;
    }
    fixture.node("forgotten-by-an-operator", Some("Unknown"), Some("it was never one")).await;
    let output = fixture.status(OPERATOR, &["node", "forgotten-by-an-operator"], &Value::Null).await;
    Fixture::check_answer("an operator removes the condition", &output, None);
}

/// A volume that a kubelet does not use any more is detached.
async fn a_volume_is_reported_unmounted(fixture: &Fixture) {
    let uses = |volumes: &[&str]| json!({ "volumesInUse": volumes });
    let both = uses(&["kubernetes.io/csi/d^a", "kubernetes.io/csi/d^b"]);
    fixture.node("mounts", Some("Unknown"), Some(".")).await;
    fixture.status(EXEMPT, &["node", "mounts"], &both).await.text().unwrap();
    for (user, status, refusal) in [
        (DEV, uses(&["kubernetes.io/csi/d^b"]), Some("node")),
        (ALL_VERBS, json!({ "volumesInUse": null }), Some("node")),
        (OTHER_KUBELET, uses(&[]), Some("node")),
        (ATTACH_DETACH, json!({ "volumesAttached": [] }), None),
        (EXEMPT, uses(&["kubernetes.io/csi/d^b"]), None),
    ] {
        let output = fixture.status(user, &["node", "mounts"], &status).await;
        Fixture::check_answer(&format!("{user} says that mounts uses {status}"), &output, refusal);
    }
}

/// A Ready node with the taint counts as unreachable: neither a cordon nor the removal of the taint makes it a drained one.
async fn an_unreachable_node_is_deleted_after_its_taint_is_removed(fixture: &Fixture) {
    let node = ["node", "suspected"];
    fixture.node("suspected", Some("True"), None).await;
    let taint = |change| [&["taint"][..], &node, &[change]].concat();
    let (there, gone) = (taint("pod-safety.dev/suspect=:NoSchedule"), taint("pod-safety.dev/suspect-"));
    fixture.run(POD_SAFETY, &there, &Value::Null).await.text().unwrap();
    for (user, refusal) in [(DEV, Some("node")), (ALL_VERBS, Some("node")), (OPERATOR, Some("node")), (EXEMPT, None)] {
        Fixture::check_answer(
            &format!("{user} removes the taint"),
            &fixture.run(user, &gone, &Value::Null).await,
            refusal,
        );
    }
    fixture.run(POD_SAFETY, &there, &Value::Null).await.text().unwrap();
    fixture.run(DEV, &["cordon", "suspected"], &Value::Null).await.text().unwrap();
    deleted(fixture, &node, Some("node")).await;
    // Its kubelet reports again.
    fixture.run(POD_SAFETY, &gone, &Value::Null).await.text().unwrap();
    deleted(fixture, &node, None).await;
}

/// The owner reference by which the pod would be recreated under its name is removed, and then the pod.
pub(super) async fn attack_a_pod_is_taken_from_its_controller(fixture: &Fixture) {
    let pod = ["pod", "orphan-0"];
    let refused = Some("force-delete");
    let patch = |change| [&["patch"][..], &pod, &["--type=merge", "-p", change]].concat();
    fixture.pod("orphan-0", true, 0, None).await;
    deleted(fixture, &pod, refused).await;
    let orphan = patch(r#"{"metadata":{"ownerReferences":null}}"#);
    fixture.run(DEV, &orphan, &Value::Null).await.text().unwrap();
    deleted(fixture, &pod, refused).await;
    let renamed = fixture.run(DEV, &patch(r#"{"spec":{"hostname":"other"}}"#), &Value::Null).await;
    assert!(!renamed.status.success(), "the hostname was changed: {renamed:?}");
    // Changes of other fields do not remove the report either.
    let mut ended: Value = serde_json::from_str(
        &fixture.run(DEV, &["get", "pod", "orphan-0", "-o", "json"], &Value::Null).await.text().unwrap(),
    )
    .unwrap();
    ended["status"] = json!({ "phase": "Failed" });
    ended["metadata"]["resourceVersion"].take();
    let resize = versions::pods_are_resized().then_some("/resize");
    for part in ["", "/ephemeralcontainers"].into_iter().chain(resize) {
        let path = format!("/api/v1/namespaces/default/pods/orphan-0{part}");
        fixture.run(DEV, &["replace", "--raw", &path, "-f", "-"], &ended).await.text().unwrap();
        deleted(fixture, &pod, refused).await;
    }
    // An operator that sets no hostname for its pods.
    let owner = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "postgresql.cnpg.io/v1", "kind": "Cluster", "name": "db",
        "uid": "5b0a4f0e-0000-4000-8000-000000000002", "controller": true }] } })
    .to_string();
    fixture.pod("cluster-1", false, 0, None).await;
    let adopt = ["patch", "pod", "cluster-1", "--type=merge", "-p", &owner];
    fixture.run(DEV, &adopt, &Value::Null).await.text().unwrap();
    deleted(fixture, &["pod", "cluster-1"], refused).await;
}

/// First the mark or the report that makes a policy deny the deletion is removed, and then the object.
pub(super) async fn attack_what_a_denial_depends_on_is_removed(fixture: &Fixture) {
    for (number, (user, change, reason, refusal)) in (0..).zip([
        (DEV, "pod-safety.dev/hold-", None, Some("attachment-hold")),
        (DEV, "pod-safety.dev/hold=", None, Some("attachment-hold")),
        (ALL_VERBS, "pod-safety.dev/hold-", Some("."), Some("attachment-hold")),
        (ATTACH_DETACH, "pod-safety.dev/hold-", None, Some("attachment-hold")),
        (DEV, "another=mark", None, None),
        (OPERATOR, "pod-safety.dev/hold-", Some("the rack burnt down"), None),
        (EXEMPT, "pod-safety.dev/hold-", None, None),
        (POD_SAFETY, "pod-safety.dev/hold-", None, Some("own-account")),
    ]) {
        let name = format!("marked-{number}");
        let mut annotations = json!({ "pod-safety.dev/hold": "w1 may still write" });
        if let Some(reason) = reason {
            annotations[REASON] = json!(reason);
        }
        fixture.make(&attachment(&name, &annotations, "w1", "data")).await;
        let annotate = ["annotate", "--overwrite", "volumeattachment", &name, change];
        let output = fixture.run(user, &annotate, &Value::Null).await;
        Fixture::check_answer(&format!("mark {number}: {user} {change} {reason:?}"), &output, refusal);
    }
    // A request for the status leaves annotations unchanged.
    fixture
        .make(&attachment("held-by-status", &json!({ "pod-safety.dev/hold": "w1 may still write" }), "w1", "data"))
        .await;
    let attachment = ["volumeattachment", "held-by-status"];
    let change = r#"{"metadata":{"annotations":{"pod-safety.dev/hold":null}},"status":{"attached":false}}"#;
    let patch = [&["patch"][..], &attachment, &["--subresource=status", "--type=merge", "-p", change]].concat();
    fixture.run(DEV, &patch, &Value::Null).await.text().unwrap();
    deleted(fixture, &attachment, Some("attachment-hold")).await;
    let runs = json!({ "phase": "Failed", "containerStatuses": [{ "name": "main", "image": "i", "imageID": "i", "ready": true,
        "restartCount": 0, "state": { "running": {} } }] });
    let nothing = json!({ "containerStatuses": null });
    for (name, user, reason, refusal) in [
        ("report-of-dev", DEV, None, Some("terminal-phase or pod-report")),
        ("report-of-wild", ALL_VERBS, Some("."), Some("terminal-phase or pod-report")),
        ("report-of-its-kubelet", KUBELET, None, None),
        ("report-of-an-operator", OPERATOR, Some("the rack burnt down"), Some("pod-report")),
    ] {
        fixture.pod(name, true, 30, reason).await;
        fixture.status(KUBELET, &["pod", name], &runs).await.text().unwrap();
        let output = fixture.status(user, &["pod", name], &nothing).await;
        Fixture::check_answer(name, &output, refusal);
    }
}

/// A tenant's pod with signs of a running kubelet blocks the release of all pods of a missing node.
pub(super) async fn attack_a_tenant_writes_as_the_kubelet_of_a_node(fixture: &Fixture) {
    let refused = Some("pod-report");
    let ready = |status: &str| json!({ "conditions": [{ "type": "Ready", "status": status }] });
    let runs = json!({ "containerStatuses": [{ "name": "main", "image": "i", "imageID": "i", "ready": true,
        "restartCount": 0, "state": { "running": {} } }] });
    fixture.pod("sign", false, 30, None).await;
    for (user, status, refusal) in [
        (ALL_VERBS, ready("True"), refused),
        (DEV, runs.clone(), refused),
        (OTHER_KUBELET, ready("True"), refused),
        (KUBELET, ready("True"), None),
        (DEV, ready("False"), None),
        (DEV, ready("True"), refused),
        (EXEMPT, ready("True"), None),
        (DEV, json!({ "conditions": [{ "type": "example.com/gate", "status": "True" }] }), None),
    ] {
        let output = fixture.status(user, &["pod", "sign"], &status).await;
        Fixture::check_answer(&format!("{user} says {status}"), &output, refusal);
    }
    if versions::generations_are_reported() {
        for (user, refusal) in [(DEV, refused), (ALL_VERBS, refused), (KUBELET, None)] {
            let status = json!({ "observedGeneration": 7 });
            let output = fixture.status(user, &["pod", "sign"], &status).await;
            Fixture::check_answer(&format!("{user} has observed it"), &output, refusal);
        }
    }
}

/// A user who may write Leases, for another leader election, can neither become leader nor release a volume.
pub(super) async fn attack_leader_election_of_another_component_takes_the_pod_safety_lease(fixture: &Fixture) {
    let lease = |namespace: &str, name: &str| {
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "namespace": namespace, "name": name }, "spec": { "holderIdentity": "x" } })
    };
    const ELECTOR: &str = "elector";
    fixture.expect(&["create", "clusterrole", ELECTOR, "--verb=*", "--resource=leases.coordination.k8s.io"]).await;
    fixture.expect(&["create", "clusterrolebinding", ELECTOR, "--clusterrole=elector", "--user=elector"]).await;
    for (user, namespace, name, refusal) in [
        (ELECTOR, "kube-system", "pod-safety", Some("leases")),
        (ELECTOR, "kube-system", "other", None),
        (ELECTOR, "pod-safety-volumes", "data", Some("leases")),
        (POD_SAFETY, "kube-system", "pod-safety", None),
        (POD_SAFETY, "pod-safety-volumes", "data", None),
    ] {
        let output = fixture.run(user, &["create", "-f", "-"], &lease(namespace, name)).await;
        Fixture::check_answer(&format!("{user} creates the Lease {namespace}/{name}"), &output, refusal);
    }
    for (namespace, name) in [("kube-system", "pod-safety"), ("pod-safety-volumes", "data")] {
        let output = fixture.run(ELECTOR, &["delete", "lease", "-n", namespace, name], &Value::Null).await;
        Fixture::check_answer(&format!("the Lease {name} is deleted"), &output, Some("leases"));
    }
}

/// A hostile node must not decide whether it is fenced.
pub(super) async fn attack_a_kubelet_pauses_the_fencing_of_its_own_node(fixture: &Fixture) {
    const EXCLUDED: &str = "remediation.medik8s.io/exclude-from-remediation";
    fixture.node("w2", Some("True"), None).await;
    let mark = |key: &str, text: Option<&str>| json!({ "metadata": { "annotations": { key: text } } }).to_string();
    let label = |value: Option<&str>| json!({ "metadata": { "labels": { EXCLUDED: value } } }).to_string();
    let pause = |text| mark("pod-safety.dev/pause-fencing", text);
    let other = mark("volumes.kubernetes.io/controller-managed-attach-detach", Some("true"));
    for (user, patch, refusal) in [
        (OTHER_KUBELET, &other, None),
        (OTHER_KUBELET, &pause(Some("mine")), Some("pause")),
        (OTHER_KUBELET, &label(Some("true")), Some("pause")),
        (DEV, &pause(Some("hands in it")), None),
        (OTHER_KUBELET, &other, None),
        (OTHER_KUBELET, &pause(Some("mine")), Some("pause")),
        (OTHER_KUBELET, &pause(None), Some("pause")),
        (DEV, &pause(None), None),
        (DEV, &label(Some("true")), None),
        (OTHER_KUBELET, &label(Some("false")), Some("pause")),
        (OTHER_KUBELET, &label(None), Some("pause")),
    ] {
        for subresource in ["", "--subresource=status"] {
            let mut args = vec!["patch", "node", "w2", "--type=merge", "-p", patch];
            args.extend(Some(subresource).filter(|it| !it.is_empty()));
            let output = fixture.run(user, &args, &Value::Null).await;
            Fixture::check_answer(&format!("{user} patches w2 with {patch} {subresource}"), &output, refusal);
        }
    }
    let new =
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "w3", "labels": { EXCLUDED: "true" } } });
    let output = fixture.run(NEW_KUBELET, &["create", "-f", "-"], &new).await;
    Fixture::check_answer("a kubelet registers with the label", &output, Some("pause"));
}
