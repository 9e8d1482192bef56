//! Requested evictions: who may write the responders' turns, and request in another's name, on the real API server with its feature gate.

use pod_safety_control_plane::{Options, check_that, wait_until};
use serde_json::{Value, json};

use super::admission::{ADMIN, DEV, Fixture, POD_SAFETY, fixture_on};

const EVICTOR: &str = "imperative-eviction.k8s.io/evictor";
const UID: &str = "11111111-2222-4333-8444-555555555555";
const KINDS: &str = ",evictionrequests.lifecycle.k8s.io,evictionrequests.lifecycle.k8s.io/status,evictions.lifecycle.k8s.io,evictions.lifecycle.k8s.io/status";

/// May write EvictionRequests, like every editor of a namespace, and no nodes.
const TENANT: &str = "tenant";

#[tokio::test]
async fn only_pod_safety_and_responders_may_write_eviction_status() {
    if !crate::versions::can_serve_evictions() {
        return;
    }
    let args = ["--feature-gates=EvictionRequestAPI=true", "--runtime-config=lifecycle.k8s.io/v1alpha1=true"];
    let options = Options { apiserver_args: args.map(str::to_owned).into(), ..Options::default() };
    let fixture =
        fixture_on(options, KINDS, "controllers.eviction.enabled=auto,controllers.eviction.lostNode.enabled=true")
            .await;
    let tenant = ["create", "clusterrole", "tenant", "--verb=*", "--resource=evictionrequests.lifecycle.k8s.io"];
    fixture.expect(&tenant).await;
    fixture.expect(&["create", "clusterrolebinding", "tenant", "--clusterrole=tenant", "--user", TENANT]).await;
    wait_until("the policies hold", async || {
        let denied = fixture
            .run(TENANT, &["create", "--dry-run=server", "-f", "-"], &request("probe", "pod-safety.dev/drain"))
            .await;
        check_that(!denied.status.success(), format!("{denied:?}"))
    })
    .await;
    attack_a_tenant_requests_eviction_in_the_name_of_a_drain(&fixture).await;
    attack_an_account_with_status_rights_ends_an_eviction(&fixture).await;
    pod_safety_writes_what_its_controller_writes(&fixture).await;
    new_pods_name_the_responder_for_lost_nodes(&fixture).await;
}

/// It comes after the responders that the pods name themselves, by its priority.
async fn new_pods_name_the_responder_for_lost_nodes(fixture: &Fixture) {
    let pod = |name: &str, responders: Value, owner: Value| {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name,
        "ownerReferences": owner }, "spec": { "evictionResponders": responders, "containers": [{ "name": "main", "image": "main" }] } })
    };
    let own = json!([{ "name": "example.com/move", "priority": 10000 }]);
    let daemon = json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": UID, "controller": true }]);
    for (name, responders, owner, named) in [
        ("bare", json!(null), json!([]), "pod-safety.dev/lost-node"),
        ("own", own, json!([]), "example.com/move pod-safety.dev/lost-node"),
        ("daemon", json!(null), daemon, ""),
    ] {
        fixture.make(&pod(name, responders, owner)).await;
        let get = ["get", "pod", name, "-o", "jsonpath={.spec.evictionResponders[*].name}"];
        let text = fixture.run(ADMIN, &get, &Value::Null).await.text().unwrap();
        let mut names: Vec<&str> = text.split_whitespace().collect();
        names.sort_unstable();
        assert_eq!(names.join(" "), named, "{name}");
    }
}

fn target() -> Value {
    json!({ "pod": { "name": "db-0", "uid": UID } })
}

fn request(name: &str, requester: &str) -> Value {
    json!({ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest", "metadata": { "name": name },
        "spec": { "target": target(), "requester": requester, "intent": "Eviction" } })
}

async fn attack_a_tenant_requests_eviction_in_the_name_of_a_drain(fixture: &Fixture) {
    let refused = Some("eviction-requesters");
    for (user, name, requester, refusal) in [
        (TENANT, "own", "example.com/tool", None),
        (TENANT, "drain", "pod-safety.dev/drain", refused),
        (TENANT, "reserved", "pod-safety.dev/any", refused),
        (DEV, "reserved", "pod-safety.dev/any", refused),
        (DEV, "drain", "pod-safety.dev/drain", None),
    ] {
        let output = fixture.run(user, &["create", "-f", "-"], &request(name, requester)).await;
        Fixture::check_answer(&format!("{user}: {requester}"), &output, refusal);
    }
    let withdraw = ["patch", "evictionrequest", "drain", "--type=merge", "-p", r#"{"spec":{"intent":"Withdrawn"}}"#];
    for (user, args, refusal) in [
        (TENANT, &withdraw[..], refused),
        (TENANT, &["delete", "evictionrequest", "drain"], refused),
        (TENANT, &["delete", "evictionrequest", "own"], None),
        (DEV, &withdraw, None),
    ] {
        Fixture::check_answer(&format!("{user}: {args:?}"), &fixture.run(user, args, &Value::Null).await, refusal);
    }
}

/// An Eviction whose responder has its turn, as initialized by pod-safety.
async fn begin(fixture: &Fixture, name: &str) {
    let object = json!({ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "Eviction", "metadata": { "name": name }, "spec": { "target": target() } });
    fixture.make(&object).await;
}

fn turns(state: &str, now: &str) -> Value {
    json!({ "observedGeneration": 1, "targetResponders": [{ "name": "example.com/move", "priority": 10000, "state": state },
            { "name": EVICTOR, "priority": 100, "state": "Inactive" }],
        "responders": [{ "name": "example.com/move", "startTime": now }, { "name": EVICTOR }],
        "requesters": [{ "name": "example.com/tool", "intent": "Eviction" }],
        "conditions": [false_condition("Failed"), false_condition("TargetEvicted")] })
}

fn false_condition(kind: &str) -> Value {
    json!({ "type": kind, "status": "False", "reason": "AwaitingEviction", "message": "", "lastTransitionTime": "2026-11-21T10:00:00Z" })
}

#[expect(clippy::disallowed_methods, reason = "the API server compares it with its own clock")]
fn now() -> String {
    format!("{:.0}", k8s_openapi::jiff::Timestamp::now())
}

/// kubernetes#140804: the client that writes the first status may prefill it, and the chain of responders ends in seconds.
async fn attack_an_account_with_status_rights_ends_an_eviction(fixture: &Fixture) {
    let (what, refused) = (["eviction.lifecycle.k8s.io", "e"], Some("eviction-states"));
    begin(fixture, "e").await;
    let status = async |user: &str, status: Value, refusal: Option<&str>, row: &str| {
        Fixture::check_answer(row, &fixture.run(user, &patch(&what, &status), &Value::Null).await, refusal);
    };
    status(DEV, turns("Active", &now()), refused, "the first status of all").await;
    status(POD_SAFETY, turns("Active", &now()), None, "pod-safety begins it").await;
    let condition = |reason: &str, kind: &str| {
        json!({ "conditions": [{ "type": kind, "status": "False", "reason": reason, "message": "",
        "lastTransitionTime": "2026-11-21T10:00:00Z" }] })
    };
    let asks = json!({ "requesters": [{ "name": "evil.example/x", "intent": "Eviction" }] });
    status(DEV, asks, refused, "another requester").await;
    status(DEV, condition("Forged", "Failed"), refused, "a condition of the controller").await;
    let beats = json!({ "responders": [{ "name": "example.com/move", "heartbeatTime": now(), "message": "moves" }] });
    status(DEV, beats, None, "a responder reports").await;
    status(DEV, condition("Moves", "example.com/Moved"), None, "a condition of one's own").await;
    let done = json!({ "responders": [{ "name": "example.com/move", "completionTime": now() }] });
    status(DEV, done, None, "a responder is done").await;
    let next = |now: &str| {
        json!({ "responders": [{ "name": EVICTOR, "startTime": now }],
        "targetResponders": [{ "name": "example.com/move", "state": "Completed" }, { "name": EVICTOR, "state": "Active" }] })
    };
    status(DEV, next(&now()), refused, "the next turn begins").await;
    let invalid = json!({ "conditions": [{ "type": "Failed", "status": "True", "reason": "EvictionInvalid", "message": "",
        "lastTransitionTime": "2026-11-21T10:00:00Z" }] });
    let marks = fixture.run(DEV, &patch(&["evictionrequest", "drain"], &invalid), &Value::Null).await;
    Fixture::check_answer("a request is marked invalid", &marks, refused);
    status(POD_SAFETY, next(&now()), None, "pod-safety begins the next turn").await;
}

/// `kubectl patch` of a status; a strategic merge finds entries by their names.
fn patch(what: &[&str; 2], status: &Value) -> Vec<&'static str> {
    let text: &'static str = json!({ "status": status }).to_string().leak();
    let what: [&'static str; 2] = what.map(|one| &*one.to_owned().leak());
    [&["patch"][..], &what, &["--subresource=status", "-p", text]].concat()
}

/// With all RBAC rights: the policy leaves only the writes of the controller.
async fn pod_safety_writes_what_its_controller_writes(fixture: &Fixture) {
    let all = ["create", "clusterrolebinding", "stolen", "--clusterrole=cluster-admin", "--user", POD_SAFETY];
    fixture.expect(&all).await;
    let owner = async |name: &str| {
        let uid =
            fixture.run(ADMIN, &["get", "evictionrequest", name, "-o", "jsonpath={.metadata.uid}"], &Value::Null).await;
        json!({ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest", "name": name, "uid": uid.text().unwrap() })
    };
    let (refused, owner) = (Some("own-account"), owner("drain").await);
    let labels = |labels: Value| json!({ "metadata": { "labels": labels } }).to_string();
    let made = json!({ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "Eviction", "metadata": { "name": "pod-1-db-0",
        "labels": { "pod-safety.dev/drain": "requester", "app.kubernetes.io/managed-by": "pod-safety" }, "ownerReferences": [owner] },
        "spec": { "target": target() } });
    let mut foreign = made.clone();
    (foreign["metadata"]["name"], foreign["metadata"]["labels"]) = (json!("x"), json!({ "team": "a" }));
    let e = ["patch", "eviction.lifecycle.k8s.io", "pod-1-db-0", "-p"];
    let role = labels(json!({ "example.com/move": "requester-responder" }));
    let team = labels(json!({ "team": "a" }));
    let spec = r#"{"spec":{"intent":"Withdrawn"}}"#;
    for (row, args, input, refusal) in [
        ("an Eviction begins", vec!["create", "-f", "-"], &made, None),
        ("with labels of others", vec!["create", "-f", "-"], &foreign, refused),
        ("a role", [&e[..], &[&role]].concat(), &Value::Null, None),
        ("a label of others", [&e[..], &[&team]].concat(), &Value::Null, refused),
        (
            "an Eviction that goes on goes",
            vec!["delete", "eviction.lifecycle.k8s.io", "pod-1-db-0"],
            &Value::Null,
            refused,
        ),
        (
            "a request is withdrawn",
            vec!["patch", "evictionrequest", "drain", "--type=merge", "-p", spec],
            &Value::Null,
            refused,
        ),
        ("a request is made", vec!["create", "-f", "-"], &request("y", "pod-safety.dev/any"), refused),
    ] {
        Fixture::check_answer(row, &fixture.run(POD_SAFETY, &args, input).await, refusal);
    }
    let looked_at = json!({ "observedGeneration": 9 });
    let output = fixture.run(POD_SAFETY, &patch(&["evictionrequest", "drain"], &looked_at), &Value::Null).await;
    Fixture::check_answer("a request is looked at", &output, None);
}
