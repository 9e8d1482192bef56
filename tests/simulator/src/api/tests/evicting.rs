//! Evictions, and what they cost.

use super::*;

fn ready(cluster: &Cluster, name: &str) {
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    cluster.patch(&format!("{PODS}/{name}/status"), STRATEGIC, &status);
}

fn budget(cluster: &Cluster, name: &str, allowed: i64) {
    let budget = json!({ "metadata": { "name": name }, "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "x" } } } });
    assert_eq!(cluster.send(Method::POST, BUDGETS, &budget).0, 201);
    let status = json!({ "status": { "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2 } });
    assert_eq!(cluster.patch(&format!("{BUDGETS}/{name}/status"), MERGE, &status).0, 200);
}

/// The pod `a` is ready, and its budget `b` allows so many disruptions.
fn guarded(allowed: i64) -> Cluster {
    let cluster = Cluster::with_pod();
    ready(&cluster, "a");
    budget(&cluster, "b", allowed);
    cluster
}

fn evict(cluster: &Cluster, name: &str, options: &Value) -> (u16, Value) {
    let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name }, "deleteOptions": options });
    cluster.send(Method::POST, &format!("{PODS}/{name}/eviction"), &body)
}

fn allowed(cluster: &Cluster, name: &str) -> i64 {
    cluster.get(&format!("{BUDGETS}/{name}")).1["status"]["disruptionsAllowed"].as_i64().unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_eviction_decrements_the_budget_and_sets_the_pods_condition() {
    let cluster = guarded(1);
    assert_eq!(evict(&cluster, "a", &json!({})).0, 201);
    let (_, pod) = cluster.get(&format!("{PODS}/a"));
    assert_eq!(pod["status"]["conditions"][1]["reason"], "EvictionByEvictionAPI");
    let (_, after) = cluster.get(&format!("{BUDGETS}/b"));
    assert_eq!((allowed(&cluster, "b"), &after["status"]["disruptedPods"]["a"]), (0, &json!("2027-01-01T00:00:00Z")));
    assert_eq!(after["status"]["conditions"][0]["reason"], "InsufficientPods");
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_pdb_refuses_and_an_unobserved_one_has_retry_after() {
    let cluster = guarded(0);
    let answer = evict(&cluster, "a", &json!({}));
    assert_eq!((reason(&answer), &answer.1["details"]["retryAfterSeconds"]), ((429, "TooManyRequests"), &Value::Null));
    cluster.patch(&format!("{BUDGETS}/b"), MERGE, &json!({ "spec": { "minAvailable": 2 } }));
    assert_eq!(evict(&cluster, "a", &json!({})).1["details"]["retryAfterSeconds"], 10);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_with_a_wrong_uid_is_denied_after_the_budget_is_decremented() {
    let cluster = Cluster::new();
    let pod = cluster.pod("a");
    ready(&cluster, "a");
    budget(&cluster, "b", 1);
    let answer = evict(&cluster, "a", &json!({ "preconditions": { "uid": "other" } }));
    assert_eq!((reason(&answer), allowed(&cluster, "b")), ((409, "Conflict"), 0));
    let (_, after) = cluster.get(&format!("{PODS}/a"));
    assert_eq!(after["metadata"]["uid"], pod["metadata"]["uid"]);
    assert!(after["metadata"].get("deletionTimestamp").is_none());
}

#[tokio::test(start_paused = true)]
async fn two_budgets_are_an_error_of_the_server() {
    let cluster = guarded(1);
    budget(&cluster, "c", 1);
    assert_eq!(evict(&cluster, "a", &json!({})).0, 500);
}

#[tokio::test(start_paused = true)]
async fn evictions_of_pending_ended_or_terminating_pods_leave_the_budget() {
    for phase in ["Pending", "Failed", "Succeeded"] {
        let cluster = Cluster::with_pod();
        budget(&cluster, "b", 0);
        cluster.phase("a", phase);
        assert_eq!(evict(&cluster, "a", &json!({})).0, 201, "{phase}");
    }
    let cluster = Cluster::with_pod();
    budget(&cluster, "b", 0);
    cluster.delete(&format!("{PODS}/a"), &json!({}));
    assert_eq!(evict(&cluster, "a", &json!({})).0, 201);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_may_lengthen_the_grace_of_the_spec() {
    let cluster = Cluster::with_pod();
    evict(&cluster, "a", &json!({ "gracePeriodSeconds": 60 }));
    assert_eq!(cluster.get(&format!("{PODS}/a")).1["metadata"]["deletionGracePeriodSeconds"], 60);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_leaves_the_budget() {
    let cluster = guarded(1);
    assert_eq!(evict(&cluster, "a", &json!({ "dryRun": ["All"] })).0, 201);
    assert_eq!(allowed(&cluster, "b"), 1);
}
