//! What the comparison with the real server (`differential`) does not send: it lasts too long, or sends no such object.

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
async fn nothing_is_created_in_a_missing_or_terminating_namespace() {
    let cluster = Cluster::new();
    let pod = json!({ "metadata": { "name": "a" }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let answer = cluster.send(Method::POST, "/api/v1/namespaces/none/pods", &pod);
    assert_eq!((reason(&answer), &answer.1["details"]["kind"]), ((404, "NotFound"), &json!("namespaces")));
    cluster.delete("/api/v1/namespaces/default", &json!({}));
    assert_eq!(reason(&cluster.send(Method::POST, PODS, &pod)), (403, "Forbidden"));
}

#[tokio::test(start_paused = true)]
async fn a_grace_that_would_end_in_the_past_ends_now_and_is_still_graceful() {
    let cluster = Cluster::with_pod();
    let path = format!("{PODS}/a");
    cluster.delete(&path, &json!({ "gracePeriodSeconds": 60 }));
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    let after = cluster.delete(&path, &json!({ "gracePeriodSeconds": 5 })).1["metadata"].take();
    assert_eq!(after["deletionGracePeriodSeconds"], 1);
    assert_eq!(after["deletionTimestamp"], "2027-01-01T00:00:20Z");
    assert_eq!(cluster.get(&path).0, 200);
}
