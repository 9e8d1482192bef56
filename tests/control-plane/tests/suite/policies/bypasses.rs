//! Ways round the policies on nodes, pods and attachments: first the field goes that a policy reads, and then the object.

use serde_json::{Value, json};

use super::admission::{
    ATTACH_DETACH, DEV, EXEMPT, KUBELET, OPERATOR, OTHER_KUBELET, OURS, REASON, Scene, WILD,
};
use super::volumes::attachment;

/// The review's ways round: a node that somebody else calls Ready can be cordoned and deleted while its pods run, and one that
/// is created with the taint is off for kube-controller-manager.
pub(super) async fn attack_a_node_is_called_ready_or_comes_with_the_taint(scene: &Scene) {
    let refused = Some("node");
    for (name, who, reason, refusal) in [
        ("called-by-dev", DEV, None, refused),
        ("called-by-wild", WILD, Some("."), refused),
        ("called-by-another-kubelet", OTHER_KUBELET, None, refused),
        ("called-by-an-agent", EXEMPT, None, None),
        ("called-by-an-operator", OPERATOR, Some("its kubelet is mended by hand"), None),
        ("w1", KUBELET, None, None),
    ] {
        scene.node(name, Some("Unknown"), reason).await;
        let output = scene.calls(DEV, name, "False").await;
        Scene::judge(&format!("{name}: another condition"), &output, None);
        Scene::judge(name, &scene.calls(who, name, "True").await, refusal);
        let output = scene.calls(who, name, "Unknown").await;
        Scene::judge(&format!("{name}: less than Ready"), &output, None);
    }
    for (name, who, reason, refusal) in [
        ("made-by-dev", DEV, None, refused),
        ("made-by-wild", WILD, Some("."), refused),
        ("made-by-an-operator", OPERATOR, Some("its rack burnt down"), None),
        ("made-by-pod-safety", OURS, None, Some("own-account")),
    ] {
        let annotations = reason.map_or_else(|| json!({}), |reason| json!({ REASON: reason }));
        let taints =
            json!([{ "key": "node.kubernetes.io/out-of-service", "value": "x", "effect": "NoExecute" }]);
        let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "annotations": annotations },
            "spec": { "taints": taints } });
        Scene::judge(name, &scene.run(who, &["create", "-f", "-"], &object).await, refusal);
    }
}

/// First the mark or the report goes by which a deletion is refused, and then the object.
pub(super) async fn attack_what_a_refusal_rests_on_is_taken_away(scene: &Scene) {
    for (number, (who, change, reason, refusal)) in [
        (DEV, "pod-safety.dev/hold-", None, Some("attachment-hold")),
        (DEV, "pod-safety.dev/hold=", None, Some("attachment-hold")),
        (WILD, "pod-safety.dev/hold-", Some("."), Some("attachment-hold")),
        (ATTACH_DETACH, "pod-safety.dev/hold-", None, Some("attachment-hold")),
        (DEV, "another=mark", None, None),
        (OPERATOR, "pod-safety.dev/hold-", Some("the rack burnt down"), None),
        (EXEMPT, "pod-safety.dev/hold-", None, None),
        (OURS, "pod-safety.dev/hold-", None, Some("own-account")),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("marked-{number}");
        let mut annotations = json!({ "pod-safety.dev/hold": "w1 may still write" });
        if let Some(reason) = reason {
            annotations[REASON] = json!(reason);
        }
        scene.make(&attachment(&name, &annotations, "w1", "data")).await;
        let annotate = ["annotate", "--overwrite", "volumeattachment", &name, change];
        let output = scene.run(who, &annotate, &Value::Null).await;
        Scene::judge(&format!("mark {number}: {who} {change} {reason:?}"), &output, refusal);
    }
    let runs = json!({ "phase": "Failed", "containerStatuses": [{ "name": "main", "image": "i", "imageID": "i", "ready": true,
        "restartCount": 0, "state": { "running": {} } }] });
    let nothing = json!({ "containerStatuses": null });
    for (name, who, reason, refusal) in [
        ("report-of-dev", DEV, None, Some("terminal-phase")),
        ("report-of-wild", WILD, Some("."), Some("terminal-phase")),
        ("report-of-its-kubelet", KUBELET, None, None),
        ("report-of-an-operator", OPERATOR, Some("the rack burnt down"), None),
    ] {
        scene.pod(name, true, 30, reason).await;
        scene.status(KUBELET, &["pod", name], &runs).await.text().unwrap();
        let output = scene.status(who, &["pod", name], &nothing).await;
        Scene::judge(name, &output, refusal);
    }
}

/// A hostile node must not decide that it is not fenced.
pub(super) async fn attack_a_kubelet_pauses_the_fencing_of_its_own_node(scene: &Scene) {
    scene.node("w2", Some("True"), None).await;
    let pause =
        json!({ "metadata": { "annotations": { "pod-safety.dev/pause-fencing": "mine" } } }).to_string();
    let exclude =
        json!({ "metadata": { "labels": { "remediation.medik8s.io/exclude-from-remediation": "true" } } })
            .to_string();
    let other = json!({ "metadata": { "annotations": { "volumes.kubernetes.io/controller-managed-attach-detach": "true" } } }).to_string();
    for (who, patch, refusal) in [
        (OTHER_KUBELET, &other, None),
        (OTHER_KUBELET, &pause, Some("pause")),
        (OTHER_KUBELET, &exclude, Some("pause")),
        (DEV, &pause, None),
        (OTHER_KUBELET, &other, None),
    ] {
        for subresource in ["", "--subresource=status"] {
            let mut args = vec!["patch", "node", "w2", "--type=merge", "-p", patch];
            args.extend(Some(subresource).filter(|it| !it.is_empty()));
            let output = scene.run(who, &args, &Value::Null).await;
            Scene::judge(&format!("{who} patches w2 with {patch} {subresource}"), &output, refusal);
        }
    }
}
