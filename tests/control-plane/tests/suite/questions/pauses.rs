//! `pause`, `resume`, `timeline` of the whole cluster, and `report`.

use pod_safety_control_plane::ControlPlane;
use serde_json::{Value, json};

use super::apply;
use crate::commands::{ends_with, json_of, run};
use crate::fencing::device;

/// Expects this exit code and this text, on stderr for an error.
async fn expect(plane: &ControlPlane, code: i32, args: &[&str], words: &str) {
    let output = run(plane, &plane.admin_kubeconfig(), args).await;
    assert_eq!(output.status.code(), Some(code), "{args:?} {output:?}");
    let output_text = if code == 0 { &output.stdout } else { &output.stderr };
    assert!(output_text.contains(words), "{args:?}: {words}: not in {output:?}");
}

pub(super) async fn a_pause_records_user_and_reason_and_ends_by_command(plane: &ControlPlane) {
    let policy = json!({ "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FencePolicy", "metadata": { "name": "rack" },
        "spec": { "levels": [{ "name": "bmc", "devices": [{ "namespace": "pod-safety", "name": "nosuch" }] }] } });
    apply(plane, &policy).await;
    let admin = plane.kubectl(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]).await;
    let admin = admin.unwrap().text().unwrap();
    expect(plane, 0, &["pause", "well", "--reason=hands in it"], "node/well is paused").await;
    expect(plane, 0, &["pause", "--policy=rack", "--reason=rack moves"], "pod-safety resume --policy rack").await;
    expect(plane, 1, &["pause", "well", "--reason=mine"], "node/well is already paused: hands in it (by ").await;
    expect(plane, 1, &["pause", "nosuch", "--reason=x"], "there is no node").await;
    expect(plane, 1, &["pause", "--policy=nosuch", "--reason=x"], "there is no FencePolicy nosuch").await;
    expect(plane, 2, &["pause", "well"], "--reason").await;
    expect(plane, 2, &["resume", "well", "--policy=rack", "--reason=x"], "cannot be used with").await;
    let status = json_of(plane, 3, &["status"]).await;
    let paused: Vec<Value> = status["paused"].as_array().unwrap().clone();
    let fields = |one: &Value| [&one["object"], &one["reason"], &one["by"]].map(|one| one.as_str().unwrap().to_owned());
    assert_eq!(
        paused.iter().map(fields).collect::<Vec<_>>(),
        [["fencepolicy/rack", "rack moves", &admin], ["node/well", "hands in it", &admin]]
    );
    let text = ends_with(plane, 3, &["status"]).await;
    assert!(text.contains("PAUSED") && text.contains(&format!("hands in it, by {admin} ")), "{text}");
    let node = ends_with(plane, 0, &["explain", "node", "well"]).await;
    assert!(node.contains("fencepolicy/rack is paused, so this node is not fenced: rack moves"), "{node}");
    let diagnosis = json_of(plane, 3, &["doctor"]).await.to_string();
    assert!(diagnosis.contains("node/well is paused: hands in it"), "{diagnosis}");
    let story = json_of(plane, 0, &["timeline"]).await;
    let is_listed = |object: &str, what: &str| {
        let all = story["moments"].as_array().unwrap();
        all.iter().any(|one| one["object"] == object && one["what"] == what)
    };
    assert!(
        is_listed("node/well", "node/well is paused") && is_listed("pod/shop/orders-1", "deletion requested"),
        "{story:#}"
    );
    expect(plane, 0, &["resume", "well", "--reason=done"], "It was paused because: hands in it").await;
    expect(plane, 0, &["resume", "--policy=rack", "--reason=rack is there"], "fencepolicy/rack is resumed").await;
    expect(plane, 1, &["resume", "well", "--reason=done"], "node/well is not paused").await;
    let kept = "jsonpath={.metadata.annotations.pod-safety\\.dev/resumed-fencing}";
    let kept = plane.kubectl(&["get", "fencepolicy", "rack", "-o", kept]).await.unwrap().text().unwrap();
    assert!(kept.starts_with(&format!("rack is there (by {admin} since ")), "{kept}");
    assert!(json_of(plane, 3, &["status"]).await.get("paused").is_none());
    plane.kubectl(&["delete", "fencepolicy", "rack"]).await.unwrap().text().unwrap();
}

pub(super) async fn a_support_report_has_readable_objects_and_no_credentials(plane: &ControlPlane) {
    let spec = json!({ "driver": "Agent", "agent": "fence_ipmilan", "parameters": { "ip": "10.0.0.1" },
        "secretParameters": [{ "parameter": "password", "secret": "bmc", "key": "password" }] });
    apply(plane, &device("bmc", spec)).await;
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "pod-safety", "name": "bmc" },
        "stringData": { "password": "hunter2" } });
    apply(plane, &secret).await;
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("report");
    let into = format!("--into={}", folder.display());
    expect(plane, 0, &["report", &into], "Review them, then pack them:").await;
    expect(plane, 1, &["report", &into], "the folder cannot be made").await;
    for (file, words) in [
        ("README.md", "- status.txt\n"),
        ("status.txt", "NEEDS A PERSON"),
        ("doctor.json", "\"kind\": \"Diagnosis\""),
        ("timeline.txt", "deletion requested"),
        ("explain/pod-shop-orders-1.txt", "Blocked (NoEvidence)"),
        ("explain/node-lost.json", "NodeExplanation"),
        ("objects/nodes.yaml", "volumesInUse"),
        ("objects/fencedevices.yaml", "ip: REDACTED"),
        ("objects/terminating-pods.yaml", "orders-1"),
    ] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        assert!(text.contains(words), "{file}: {words}: not in\n{text}");
    }
    let mut folders = vec![folder.clone()];
    while let Some(one) = folders.pop() {
        for entry in std::fs::read_dir(one).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(!text.contains("hunter2") && !text.contains("managedFields"), "{}", path.display());
        }
    }
    plane.kubectl(&["delete", "fencedevice", "-n", "pod-safety", "bmc"]).await.unwrap().text().unwrap();
}

/// With limited rights the report has the readable objects, and a list of the others.
pub(super) async fn limited_rights_give_a_partial_support_report(plane: &ControlPlane) {
    let reader = plane.user_kubeconfig("reader", &[]).unwrap();
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("report");
    let output = run(plane, &reader, &["report", &format!("--into={}", folder.display())]).await;
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
    assert!(readme.contains("- objects/nodes: ") && readme.contains("- status.txt"), "{readme}");
    let status = std::fs::read_to_string(folder.join("status.txt")).unwrap();
    assert!(status.contains("You may list pods only in namespace") || status.contains("You may not list"), "{status}");
    assert!(!folder.join("objects/nodes.yaml").exists());
}
