//! EvictionRequests and Evictions: which users may write which fields.

use serde_json::{Value, json};

use crate::engine::{Request, patched};
use crate::{Expect, OURS, Row};
use Expect::{Allowed, NotAsked, Refused};

const DEV: &str = "dev";
const RESPONDER: &str = "system:serviceaccount:shop:mover";
const STATUS: &str = "lifecycle.k8s.io/evictions/status";
const REQUEST_STATUS: &str = "lifecycle.k8s.io/evictionrequests/status";

pub(crate) fn rows() -> Vec<Row> {
    [states(), requesters(), own_account(), own_account_ends()].into_iter().flatten().collect()
}

/// An Eviction whose responder `example.com/move` is active.
fn eviction() -> Value {
    json!({
        "metadata": { "namespace": "shop", "name": "pod-1-db-0", "uid": "u",
            "labels": { "example.com/move": "responder", "team": "a" },
            "ownerReferences": [{ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest", "name": "r", "uid": "r" }] },
        "spec": { "target": { "pod": { "name": "db-0", "uid": "p" } } },
        "status": {
            "requesters": [{ "name": "example.com/tool", "intent": "Eviction" }],
            "targetResponders": [{ "name": "example.com/move", "priority": 10000, "state": "Active" }],
            "responders": [{ "name": "example.com/move", "startTime": "2026-11-21T10:00:00Z" }],
            "conditions": [{ "type": "Failed", "status": "False", "reason": "AwaitingEviction" },
                { "type": "TargetEvicted", "status": "False", "reason": "AwaitingEviction" }],
        },
    })
}

fn states() -> Vec<Row> {
    const TURNS: Expect = Refused("whose turn it is");
    let by = |user: &str, old: Value, status: Value| {
        let new = patched(old.clone(), json!({ "status": status }));
        Request::new(user, &format!("UPDATE {STATUS}")).old(old).object(new)
    };
    let changed = |status: Value| by(RESPONDER, eviction(), status);
    let row = |name, request, expect| Row { policy: "eviction-states", name, request, expect };
    let bare = || patched(eviction(), json!({ "status": null }));
    let begun = eviction()["status"].clone();
    let state = |state: &str| json!({ "targetResponders": [{ "name": "example.com/move", "priority": 10000, "state": state }] });
    let report = json!({ "responders": [{ "name": "example.com/move", "startTime": "2026-11-21T10:00:00Z",
        "heartbeatTime": "2026-11-21T10:03:00Z", "message": "moves" }] });
    let condition = |kind: &str, status: &str| {
        let mut all = eviction()["status"]["conditions"].as_array().cloned().unwrap();
        all.retain(|one| one["type"] != kind);
        all.push(json!({ "type": kind, "status": status, "reason": "R" }));
        json!({ "conditions": all })
    };
    let kcm = "system:serviceaccount:kube-system:evictionrequest-controller";
    let judged = |user: &str| {
        let request =
            json!({ "metadata": { "namespace": "shop", "name": "r" }, "status": { "observedGeneration": 1 } });
        let invalid = json!({ "conditions": [{ "type": "Failed", "status": "True", "reason": "EvictionInvalid" }] });
        let new = patched(request.clone(), json!({ "status": invalid }));
        Request::new(user, &format!("UPDATE {REQUEST_STATUS}")).old(request).object(new)
    };
    vec![
        row("a responder reports", changed(report), Allowed),
        row("a condition of one's own", changed(condition("example.com/Moved", "True")), Allowed),
        row("bypass: its turn ends", changed(state("Completed")), TURNS),
        row("bypass: no responder is active any more", changed(json!({ "targetResponders": null })), TURNS),
        row("bypass: the first status of all", by(RESPONDER, bare(), begun.clone()), Refused("It is not begun yet")),
        row(
            "bypass: another requester",
            changed(json!({ "requesters": [{ "name": "evil.example/x", "intent": "Eviction" }] })),
            Refused("create an EvictionRequest"),
        ),
        row("bypass: it failed", changed(condition("Failed", "True")), Refused("Failed and TargetEvicted")),
        row("bypass: it is evicted", changed(condition("TargetEvicted", "True")), Refused("Failed and TargetEvicted")),
        row("bypass: without conditions", changed(json!({ "conditions": null })), Refused("Failed and TargetEvicted")),
        row("pod-safety", by(OURS, bare(), begun.clone()), NotAsked),
        row("the controller of Kubernetes", by(kcm, bare(), begun.clone()), NotAsked),
        row("it has no account of its own", by("system:kube-controller-manager", bare(), begun), NotAsked),
        row("bypass: a request is invalid", judged(RESPONDER), Refused("of evictionrequests shop/r")),
        row("pod-safety finds a request invalid", judged(OURS), NotAsked),
    ]
}

fn requesters() -> Vec<Row> {
    const CORDON: &str = "/nodes patch";
    const WHO: Expect = Refused("users who may cordon nodes");
    let object = |requester: &str| json!({ "metadata": { "namespace": "shop", "name": "r" }, "spec": { "requester": requester, "intent": "Eviction" } });
    let ask = |user: &str, act: &str, requester: &str| {
        let request = Request::new(user, &format!("{act} lifecycle.k8s.io/evictionrequests"));
        match act {
            "DELETE" => request.old(object(requester)),
            "UPDATE" => request.old(object(requester)).object(object(requester)),
            _ => request.object(object(requester)),
        }
    };
    let row = |name, request, expect| Row { policy: "eviction-requesters", name, request, expect };
    let (drain, namespaces) = ("pod-safety.dev/drain", "system:serviceaccount:kube-system:namespace-controller");
    vec![
        row("one's own name", ask(DEV, "CREATE", "example.com/tool"), NotAsked),
        row("a drain", ask(DEV, "CREATE", drain).may(CORDON), Allowed),
        row("a drain is withdrawn", ask(DEV, "UPDATE", "pod-safety.dev/maintain").may(CORDON), Allowed),
        row("bypass: the name of a drain", ask(DEV, "CREATE", drain), WHO),
        row("bypass: the request of a drain is withdrawn", ask(DEV, "UPDATE", drain), WHO),
        row("bypass: the request of a drain is deleted", ask(DEV, "DELETE", drain), WHO),
        row(
            "bypass: a name that is reserved",
            ask(DEV, "CREATE", "pod-safety.dev/taint-eviction").may(CORDON),
            Refused("reserved for pod-safety"),
        ),
        row("the end of the namespace", ask(namespaces, "DELETE", drain), NotAsked),
        row("bypass: in the name of the namespace controller", ask(namespaces, "CREATE", drain), WHO),
        row("pod-safety", ask(OURS, "CREATE", "pod-safety.dev/any"), NotAsked),
    ]
}

const KIND: &str = "lifecycle.k8s.io/evictions";

fn row(name: &'static str, request: Request, expect: Expect) -> Row {
    Row { policy: "own-account", name, request, expect }
}

fn own_account() -> Vec<Row> {
    const LABELS: Expect = Refused("of the labels of an Eviction");
    const OWNERS: Expect = Refused("the owners of an Eviction");
    let new = |object: Value| Request::new(OURS, &format!("CREATE {KIND}")).object(object);
    let labels = |labels: Value| patched(eviction(), json!({ "metadata": { "labels": labels } }));
    let managed = |by: &str| labels(json!({ "team": null, "app.kubernetes.io/managed-by": by }));
    let fresh = || patched(managed("pod-safety"), json!({ "status": null }));
    let owners = |owners: Value| patched(eviction(), json!({ "metadata": { "ownerReferences": owners } }));
    let update =
        |kind: &str, object: Value| Request::new(OURS, &format!("UPDATE {kind}")).old(eviction()).object(object);
    let first = eviction()["metadata"]["ownerReferences"][0].clone();
    let other =
        || json!({ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest", "name": "s", "uid": "s" });
    let (controller, blocking) =
        (patched(other(), json!({ "controller": true })), patched(other(), json!({ "blockOwnerDeletion": true })));
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "name": "db-0", "uid": "p" });
    let failed = patched(eviction(), json!({ "status": { "conditions": [] } }));
    vec![
        row("an Eviction begins", new(fresh()), Allowed),
        row("bypass: with a label of others", new(eviction()), LABELS),
        row("bypass: in the name of another manager", new(managed("helm")), LABELS),
        row("bypass: as ours, later", update(KIND, managed("pod-safety")), LABELS),
        row("it is requested by another", update(KIND, labels(json!({ "foo/bar": "requester" }))), Allowed),
        row("a requester is gone", update(KIND, labels(json!({ "example.com/move": null }))), Allowed),
        row("bypass: a label of others changes", update(KIND, labels(json!({ "team": "b" }))), LABELS),
        row("bypass: a label of others goes", update(KIND, labels(json!({ "team": null }))), LABELS),
        row("another request owns it", update(KIND, owners(json!([first, other()]))), Allowed),
        row("bypass: an owner goes", update(KIND, owners(json!([other()]))), OWNERS),
        row("bypass: it is controlled", update(KIND, owners(json!([first, controller]))), OWNERS),
        row("bypass: an owner is held back", update(KIND, owners(json!([first, blocking]))), OWNERS),
        row("bypass: a pod owns it", update(KIND, owners(json!([first, pod]))), OWNERS),
        row(
            "bypass: it is for another pod",
            update(KIND, patched(eviction(), json!({ "spec": { "target": { "pod": { "uid": "q" } } } }))),
            Refused("the spec of lifecycle.k8s.io/evictions"),
        ),
        row("its status", update(STATUS, failed), Allowed),
    ]
}

fn own_account_ends() -> Vec<Row> {
    let delete = |status: &str, options: Value| {
        let old = patched(
            eviction(),
            json!({ "status": { "conditions": [{ "type": "Failed", "status": status, "reason": "R" }] } }),
        );
        Request::new(OURS, &format!("DELETE {KIND}")).old(old).options(json!({ "preconditions": options }))
    };
    let pending = json!({ "metadata": { "namespace": "shop", "name": "r" }, "spec": { "intent": "Eviction" } });
    let observed = patched(pending.clone(), json!({ "status": { "observedGeneration": 1 } }));
    let withdrawn = patched(pending.clone(), json!({ "spec": { "intent": "Withdrawn" } }));
    let of_request = |new: Value| {
        Request::new(OURS, "UPDATE lifecycle.k8s.io/evictionrequests/status").old(pending.clone()).object(new)
    };
    vec![
        row("a failed one goes", delete("True", json!({ "uid": "u" })), Allowed),
        row("bypass: one that goes on", delete("False", json!({ "uid": "u" })), Refused("only Evictions that failed")),
        row("bypass: by its name alone", delete("True", json!({})), Refused("only by UID")),
        row("a request is looked at", of_request(observed), Allowed),
        row(
            "bypass: a request is withdrawn",
            of_request(withdrawn),
            Refused("the spec of lifecycle.k8s.io/evictionrequests/status"),
        ),
    ]
}
