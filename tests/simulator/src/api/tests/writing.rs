//! Versions, compare-and-swap, and what may not change.

use super::*;

/// `node-role.kubernetes.io/worker` has one, and kubectl showed no role.
#[tokio::test(start_paused = true)]
async fn a_label_with_an_empty_value_is_kept() {
    let cluster = Cluster::new();
    let node = json!({ "metadata": { "name": "n", "labels": { "a": "" }, "annotations": {} } });
    let (code, stored) = cluster.send(Method::POST, NODES, &node);
    assert_eq!((code, &stored["metadata"]["labels"]), (201, &json!({ "a": "" })));
    assert!(stored["metadata"]["annotations"].is_null(), "an empty map is none");
}

#[tokio::test(start_paused = true)]
async fn all_kinds_share_one_revision_counter_and_a_no_op_write_has_none() {
    let cluster = Cluster::new();
    let pod = cluster.pod("a");
    let (_, node) = cluster.send(Method::POST, NODES, &json!({ "metadata": { "name": "n" } }));
    assert_eq!(rv(&node), rv(&pod) + 1);
    let (_, same) = cluster.phase("a", "Running");
    assert_eq!(rv(&same), rv(&pod));
    assert_eq!(cluster.etcd.revision(), rv(&node));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_used_again_gets_another_uid() {
    let cluster = Cluster::new();
    let first = cluster.pod("a");
    cluster.delete(&format!("{PODS}/a"), &json!({ "gracePeriodSeconds": 0 }));
    let second = cluster.pod("a");
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn a_put_of_an_old_version_is_a_conflict() {
    let cluster = Cluster::new();
    let old = cluster.pod("a");
    cluster.patch(&format!("{PODS}/a"), MERGE, &json!({ "metadata": { "labels": { "l": "1" } } }));
    let answer = cluster.send(Method::PUT, &format!("{PODS}/a"), &old);
    assert_eq!(reason(&answer), (409, "Conflict"));
}

#[tokio::test(start_paused = true)]
async fn a_put_without_a_version_replaces_a_pod_but_not_a_lease() {
    let cluster = Cluster::new();
    let mut pod = cluster.pod("a");
    pod["metadata"]["resourceVersion"] = Value::Null;
    pod["metadata"]["labels"] = json!({ "l": "1" });
    assert_eq!(cluster.send(Method::PUT, &format!("{PODS}/a"), &pod).0, 200);
    let lease = json!({ "metadata": { "name": "l" }, "spec": {} });
    assert_eq!(cluster.send(Method::POST, LEASES, &lease).0, 201);
    let answer = cluster.send(Method::PUT, &format!("{LEASES}/l"), &lease);
    assert_eq!((reason(&answer), fields(&answer)), ((422, "Invalid"), vec!["metadata.resourceVersion"]));
}

#[tokio::test(start_paused = true)]
async fn a_put_to_a_free_name_creates_leases_only() {
    let cluster = Cluster::new();
    let lease = json!({ "metadata": { "name": "l" }, "spec": {} });
    assert_eq!(cluster.send(Method::PUT, &format!("{LEASES}/l"), &lease).0, 201);
    let answer = cluster.send(Method::PUT, &format!("{NODES}/n"), &json!({ "metadata": { "name": "n" } }));
    assert_eq!(reason(&answer), (404, "NotFound"));
}

#[tokio::test(start_paused = true)]
async fn another_uid_in_a_patch_is_invalid_and_in_a_put_a_conflict() {
    let cluster = Cluster::new();
    let mut pod = cluster.pod("a");
    let answer = cluster.patch(&format!("{PODS}/a"), STRATEGIC, &json!({ "metadata": { "uid": "other" } }));
    assert_eq!((reason(&answer), fields(&answer)[0]), ((422, "Invalid"), "metadata.uid"));
    pod["metadata"]["uid"] = "other".into();
    assert_eq!(reason(&cluster.send(Method::PUT, &format!("{PODS}/a"), &pod)), (409, "Conflict"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_test_of_a_json_patch_is_unprocessable() {
    let cluster = Cluster::with_pod();
    let patch = json!([{ "op": "test", "path": "/metadata/uid", "value": "other" }]);
    assert_eq!(reason(&cluster.patch(&format!("{PODS}/a"), JSON, &patch)), (422, "Invalid"));
}

#[tokio::test(start_paused = true)]
async fn node_and_grace_period_of_a_pod_cannot_be_changed() {
    let cluster = Cluster::with_pod();
    for spec in [json!({ "nodeName": "m" }), json!({ "terminationGracePeriodSeconds": 1 })] {
        let answer = cluster.patch(&format!("{PODS}/a"), STRATEGIC, &json!({ "spec": spec }));
        assert_eq!((reason(&answer), fields(&answer)), ((422, "Invalid"), vec!["spec"]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_pod_may_become_running_again() {
    let cluster = Cluster::with_pod();
    cluster.phase("a", "Failed");
    assert_eq!(cluster.phase("a", "Running").1["status"]["phase"], "Running");
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_separately() {
    let cluster = Cluster::new();
    let pod = cluster.pod("a");
    let (_, after) = cluster.patch(&format!("{PODS}/a"), MERGE, &json!({ "status": { "phase": "Failed" } }));
    assert_eq!(rv(&after), rv(&pod));
    let fence = json!({ "metadata": { "name": "f" }, "spec": { "a": 1 }, "status": { "phase": "Done" } });
    let path = "/apis/pod-safety.dev/v1alpha1/nodefences";
    let (_, fence) = cluster.send(Method::POST, path, &fence);
    assert!(fence.get("status").is_none());
    let patch = json!({ "spec": { "a": 2 }, "status": { "phase": "Done" } });
    let (_, fence) = cluster.patch(&format!("{path}/f/status"), MERGE, &patch);
    assert_eq!((&fence["spec"]["a"], &fence["status"]["phase"]), (&json!(1), &json!("Done")));
    assert_eq!(fence["metadata"]["generation"], 1);
    let (_, fence) = cluster.patch(&format!("{path}/f"), MERGE, &patch);
    assert_eq!((&fence["spec"]["a"], &fence["metadata"]["generation"]), (&json!(2), &json!(2)));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_created_in_a_missing_or_terminating_namespace() {
    let cluster = Cluster::new();
    let pod = json!({ "metadata": { "name": "a" }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let answer = cluster.send(Method::POST, "/api/v1/namespaces/none/pods", &pod);
    assert_eq!((reason(&answer), &answer.1["details"]["kind"]), ((404, "NotFound"), &json!("namespaces")));
    cluster.delete("/api/v1/namespaces/default", &json!({}));
    assert_eq!(reason(&cluster.send(Method::POST, PODS, &pod)), (403, "Forbidden"));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_changes_nothing() {
    let cluster = Cluster::with_pod();
    let before = cluster.etcd.revision();
    let (code, pod) =
        cluster.patch(&format!("{PODS}/a?dryRun=All"), MERGE, &json!({ "metadata": { "labels": { "l": "1" } } }));
    assert_eq!((code, &pod["metadata"]["labels"]["l"]), (200, &json!("1")));
    cluster.delete(&format!("{PODS}/a"), &json!({ "gracePeriodSeconds": 0, "dryRun": ["All"] }));
    assert_eq!(cluster.etcd.revision(), before);
}
