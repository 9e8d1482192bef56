//! Grace, preconditions and finalizers.

use super::*;

fn grace(object: &Value) -> i64 {
    object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap()
}

fn path(name: &str) -> String {
    format!("{PODS}/{name}")
}

#[tokio::test(start_paused = true)]
async fn without_options_a_pod_gets_the_grace_of_its_spec() {
    let cluster = Cluster::new();
    let pod = cluster.pod("a");
    let (code, after) = cluster.delete(&path("a"), &json!({}));
    assert_eq!((code, grace(&after), &after["metadata"]["generation"]), (200, 30, &json!(2)));
    assert_eq!(after["metadata"]["deletionTimestamp"], "2027-01-01T00:00:30Z");
    assert_eq!(rv(&after), rv(&pod) + 1);
}

#[tokio::test(start_paused = true)]
async fn an_unscheduled_or_ended_pod_goes_at_once() {
    let cluster = Cluster::new();
    let pod = json!({ "metadata": { "name": "u" }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    cluster.send(Method::POST, PODS, &pod);
    cluster.pod("f");
    cluster.phase("f", "Failed");
    for name in ["u", "f"] {
        assert_eq!(grace(&cluster.delete(&path(name), &json!({})).1), 0);
        assert_eq!(cluster.get(&path(name)).0, 404);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_phase_during_deletion_does_not_remove_the_pod() {
    let cluster = Cluster::with_pod();
    cluster.delete(&path("a"), &json!({}));
    cluster.phase("a", "Failed");
    cluster.delete(&path("a"), &json!({}));
    assert_eq!(cluster.get(&path("a")).0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_negative_grace_is_one_second() {
    let cluster = Cluster::with_pod();
    assert_eq!(grace(&cluster.delete(&path("a"), &json!({ "gracePeriodSeconds": -1 })).1), 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_deletion_may_lengthen_and_later_ones_only_shorten() {
    let cluster = Cluster::with_pod();
    assert_eq!(grace(&cluster.delete(&path("a"), &json!({ "gracePeriodSeconds": 60 })).1), 60);
    let (code, longer) = cluster.delete(&path("a"), &json!({ "gracePeriodSeconds": 90 }));
    assert_eq!((code, grace(&longer)), (200, 60));
    let (_, shorter) = cluster.delete(&path("a"), &json!({ "gracePeriodSeconds": 5 }));
    assert_eq!((grace(&shorter), &shorter["metadata"]["deletionTimestamp"]), (5, &json!("2027-01-01T00:00:05Z")));
    assert_eq!(shorter["metadata"]["generation"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_grace_that_would_end_in_the_past_ends_now_and_is_still_graceful() {
    let cluster = Cluster::with_pod();
    cluster.delete(&path("a"), &json!({ "gracePeriodSeconds": 60 }));
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    let (_, after) = cluster.delete(&path("a"), &json!({ "gracePeriodSeconds": 5 }));
    assert_eq!((grace(&after), &after["metadata"]["deletionTimestamp"]), (1, &json!("2027-01-01T00:00:20Z")));
    assert_eq!(cluster.get(&path("a")).0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_forced_deletion_is_two_writes() {
    let cluster = Cluster::new();
    let pod = cluster.pod("a");
    cluster.delete(&path("a"), &json!({ "gracePeriodSeconds": 0 }));
    let changes = cluster.etcd.changes_after(rv(&pod));
    assert_eq!(changes.len(), 2);
    assert_eq!(grace(changes[0].after.as_ref().unwrap()), 0);
    assert!(changes[1].after.is_none());
}

#[tokio::test(start_paused = true)]
async fn finalizers_keep_a_pod_until_the_last_is_removed() {
    let cluster = Cluster::with_pod();
    let finalizers = |list: Value| json!({ "metadata": { "finalizers": list } });
    cluster.patch(&path("a"), MERGE, &finalizers(json!(["example.com/a", "example.com/b"])));
    let (_, after) = cluster.delete(&path("a"), &json!({ "gracePeriodSeconds": 0 }));
    assert_eq!(grace(&after), 0);
    let answer = cluster.patch(&path("a"), MERGE, &finalizers(json!(["example.com/a", "example.com/c"])));
    assert_eq!((reason(&answer), fields(&answer)[0]), ((422, "Invalid"), "metadata.finalizers"));
    assert_eq!(cluster.patch(&path("a"), MERGE, &finalizers(json!(["example.com/b"]))).0, 200);
    assert_eq!(cluster.get(&path("a")).0, 200);
    assert_eq!(cluster.patch(&path("a"), MERGE, &finalizers(Value::Null)).0, 200);
    assert_eq!(cluster.get(&path("a")).0, 404);
}

#[tokio::test(start_paused = true)]
async fn preconditions_that_do_not_hold_are_conflicts() {
    let cluster = Cluster::new();
    let pod = cluster.pod("a");
    let version = rv(&pod).to_string();
    for preconditions in [
        json!({ "uid": "other" }),
        json!({ "resourceVersion": "1" }),
        json!({ "uid": "other", "resourceVersion": version }),
    ] {
        let options = json!({ "gracePeriodSeconds": 0, "preconditions": preconditions });
        assert_eq!(reason(&cluster.delete(&path("a"), &options)), (409, "Conflict"));
    }
    let right = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": pod["metadata"]["uid"], "resourceVersion": version } });
    assert_eq!(cluster.delete(&path("a"), &right).0, 200);
    assert_eq!(cluster.get(&path("a")).0, 404);
}
