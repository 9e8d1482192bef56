//! EvictionRequests and Evictions, as their clients write and read them.

use super::*;

const GROUP: &str = "/apis/lifecycle.k8s.io/v1alpha1";
const ALL: &str = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/default";
const UID: &str = "5b0a4f0e-0000-4000-8000-000000000001";
const APP: &str = "example.com/app";
const EVICTOR: &str = "imperative-eviction.k8s.io/evictor";

/// A cluster that serves the Eviction API.
fn served() -> Cluster {
    let env = paused::env(1);
    let etcd = Etcd::new(Chance::new(7), &Kind::lifecycle(), env.clock.wall());
    let server = ApiServer::start("api", &etcd, env, Arc::new(Prompt));
    Cluster { etcd, server }
}

fn request(cluster: &Cluster, name: &str, requester: &str) -> (u16, Value) {
    let body = json!({ "metadata": { "name": name },
        "spec": { "requester": requester, "intent": "Eviction", "target": { "pod": { "name": "p", "uid": UID } } } });
    cluster.send(Method::POST, &format!("{ALL}/evictionrequests"), &body)
}

fn eviction(cluster: &Cluster) -> (u16, Value) {
    let body = json!({ "metadata": { "name": "e" }, "spec": { "target": { "pod": { "name": "p", "uid": UID } } } });
    cluster.send(Method::POST, &format!("{ALL}/evictions"), &body)
}

fn status(cluster: &Cluster, status: &Value) -> (u16, Value) {
    cluster.patch(&format!("{ALL}/evictions/e/status"), STRATEGIC, &json!({ "status": status }))
}

/// The first responder is active.
fn initialized() -> Value {
    json!({ "targetResponders": [
            { "name": APP, "priority": 10_000, "state": "Active" },
            { "name": EVICTOR, "priority": 100, "state": "Inactive" },
        ], "responders": [{ "name": APP, "startTime": "2027-01-01T00:00:00Z" }, { "name": EVICTOR }],
        "observedGeneration": 1 })
}

#[tokio::test(start_paused = true)]
async fn a_request_counts_its_intents_and_keeps_its_status_apart() {
    let cluster = served();
    let (code, made) = request(&cluster, "r", "example.com/drain");
    assert_eq!((code, &made["metadata"]["generation"], &made["status"]), (201, &json!(1), &json!({})));
    assert_eq!(reason(&request(&cluster, "q", "a.k8s.io/b")), (422, "Invalid"));
    let path = format!("{ALL}/evictionrequests/r");
    let (_, changed) = cluster.patch(&path, STRATEGIC, &json!({ "spec": { "intent": "Withdrawn" } }));
    assert_eq!(changed["metadata"]["generation"], 2);
    // Of a write of the status nothing else is taken.
    let both = json!({ "metadata": { "labels": { "a": "b" } }, "status": { "observedGeneration": 2 } });
    let (_, seen) = cluster.patch(&format!("{path}/status"), STRATEGIC, &both);
    assert_eq!((&seen["status"], seen["metadata"].get("labels")), (&json!({ "observedGeneration": 2 }), None));
    let stale = json!({ "metadata": { "resourceVersion": "1" }, "status": {} });
    assert_eq!(cluster.patch(&format!("{path}/status"), STRATEGIC, &stale).0, 409);
    let wrong = json!({ "metadata": { "uid": UID }, "status": {} });
    assert_eq!(cluster.patch(&path, STRATEGIC, &wrong).0, 422);
}

#[tokio::test(start_paused = true)]
async fn responders_are_merged_by_their_names_and_take_turns() {
    let cluster = served();
    assert_eq!(eviction(&cluster).0, 201);
    assert_eq!(status(&cluster, &initialized()).0, 200);
    let reported = json!({ "responders": [{ "name": APP, "message": "moves" }] });
    let (_, seen) = status(&cluster, &reported);
    let responders = &seen["status"]["responders"];
    assert_eq!((responders[0]["message"].as_str(), responders[1]["name"].as_str()), (Some("moves"), Some(EVICTOR)));
    for (state, accepted) in [("Completed", false), ("Interrupted", false), ("Active", true)] {
        let next = json!({ "targetResponders": [{ "name": APP, "state": state }] });
        assert_eq!(status(&cluster, &next).0 == 200, accepted, "{state}");
    }
    let late = json!({ "responders": [{ "name": APP, "completionTime": "2027-01-01T00:01:00Z" }] });
    let (code, refused) = status(&cluster, &late);
    assert!(code == 422 && refused.to_string().contains("must be set to the present time"), "{refused}");
    let done = json!({ "responders": [{ "name": APP, "completionTime": "2027-01-01T00:00:10Z" }] });
    assert_eq!(status(&cluster, &done).0, 200);
    let next = json!({ "targetResponders": [{ "name": APP, "state": "Completed" }, { "name": EVICTOR, "state": "Active" }],
        "responders": [{ "name": EVICTOR, "startTime": "2027-01-01T00:00:00Z" }] });
    assert_eq!(status(&cluster, &next).0, 200);
    let condition = |status: &str, reason: &str| {
        json!({ "conditions": [{ "type": "Failed", "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2027-01-01T00:00:00Z" }],
            "targetResponders": [{ "name": EVICTOR, "state": "Canceled" }] })
    };
    assert_eq!(status(&cluster, &condition("True", "CanceledDueToNoRequesters")).0, 200);
    assert_eq!(status(&cluster, &condition("False", "AwaitingEviction")).0, 422, "what is final stays");
}

/// With the gate off what there is stays in etcd, and new pods lose their responders without a warning.
#[tokio::test(start_paused = true)]
async fn nothing_of_the_api_is_reached_while_its_gate_is_off() {
    let cluster = served();
    let pod = |name: &str| {
        json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "c", "image": "i" }],
            "evictionResponders": [{ "name": APP, "priority": 10_000 }] } })
    };
    let responders = |name: &str| {
        let (code, made) = cluster.send(Method::POST, PODS, &pod(name));
        assert_eq!(code, 201, "{made}");
        made["spec"].get("evictionResponders").is_some()
    };
    assert_eq!((request(&cluster, "r", "example.com/drain").0, responders("a")), (201, true));
    cluster.etcd.switch_evictions(false);
    assert_eq!((cluster.get(&format!("{ALL}/evictionrequests/r")).0, cluster.get(GROUP).0), (404, 404));
    assert!(!responders("b"));
    cluster.etcd.switch_evictions(true);
    assert_eq!((cluster.get(&format!("{ALL}/evictionrequests/r")).0, cluster.get(GROUP).0), (200, 200));
    cluster.phase("a", "Running");
    assert!(cluster.get(&format!("{PODS}/a")).1["spec"].get("evictionResponders").is_some());
    assert_eq!(Cluster::new().get(&format!("{ALL}/evictionrequests")).0, 404, "nor where it never was on");
}
