//! Pods, by pod-safety's own account: each write of the code, and what a stolen token would write.

use pod_safety_shared::model::{NODE_UNREACHABLE_CONDITION, VOLUME_GATE};
use pod_safety_shared::testing::objects::{Obj, pod};
use serde_json::{Value, json};

use crate::engine::{Request, patched};
use crate::{Expect, OURS, Row};
use Expect::{Allowed, NotAsked, Refused};

pub(crate) fn rows() -> Vec<Row> {
    [status(), forged_status(), deletions(), evictions(), gates(), stolen()].into_iter().flatten().collect()
}

fn row(name: &'static str, request: Request, expect: Expect) -> Row {
    Row { policy: "own-account", name, request, expect }
}

fn db() -> Obj {
    pod("db-0")
        .on("w1")
        .running()
        .set("/status/conditions", json!([ready("True"), { "type": "PodScheduled", "status": "True" }]))
}

fn ready(status: &str) -> Value {
    json!({ "type": "Ready", "status": status, "lastTransitionTime": status })
}

fn disrupted(reason: &str) -> Value {
    json!({ "type": "DisruptionTarget", "status": "True", "reason": reason })
}

/// The pod with its conditions, in this order.
fn with_conditions(of: Obj, conditions: &[Value]) -> Value {
    of.set("/status/conditions", json!(conditions)).into()
}

fn writes(act: &str, old: impl Into<Value>, new: impl Into<Value>) -> Request {
    Request::new(OURS, act).old(old).object(new)
}

fn scheduled() -> Value {
    json!({ "type": "PodScheduled", "status": "True" })
}

fn says(old: impl Into<Value>, new: impl Into<Value>) -> Request {
    writes("UPDATE pods/status", old, new)
}

fn failed(of: impl Into<Value>) -> Value {
    patched(of.into(), json!({ "status": { "phase": "Failed", "observedGeneration": 3 } }))
}

fn gone() -> Value {
    with_conditions(db(), &[ready("True"), scheduled(), disrupted("DeletionByPodGC")])
}

fn status() -> Vec<Row> {
    let ends = || with_conditions(db(), &[ready("True"), scheduled(), disrupted("DeletionByTaintManager")]);
    let over = json!({ "type": "DisruptionTarget", "status": "False" });
    let stays = with_conditions(db(), &[ready("True"), scheduled(), over]);
    let unreachable = json!({ "type": NODE_UNREACHABLE_CONDITION, "status": "True" });
    let lost = with_conditions(db(), &[ready("False"), scheduled(), unreachable]);
    let free = || pod("free").terminating();
    let others = Request::new("dev", "UPDATE pods/status").old(db()).object(failed(db()));
    vec![
        row("its node is gone", says(db(), failed(gone())), Allowed),
        row("it terminates on a fenced node", says(db().terminating(), failed(db().terminating())), Allowed),
        row("it terminates, and no node took it", says(free(), failed(free())), Allowed),
        row("its node is lost", says(db(), lost), Allowed),
        row("it is to end for a taint", says(db(), ends()), Allowed),
        row("it does not end after all", says(gone(), stays), Allowed),
        row("another account", others, NotAsked),
    ]
}

fn forged_status() -> Vec<Row> {
    const PHASE: Expect = Refused("sets the phase Failed only when");
    let why = with_conditions(db(), &[ready("True"), scheduled(), disrupted("x")]);
    let succeeded = db().terminating().phase("Succeeded");
    let (up, down) = (
        || with_conditions(db(), &[ready("True"), scheduled()]),
        || with_conditions(db(), &[ready("False"), scheduled()]),
    );
    let unscheduled = with_conditions(db(), &[ready("True"), json!({ "type": "PodScheduled", "status": "False" })]);
    let with = |change: Value| says(db(), patched(db().into(), change));
    let status = |fields: Value| with(json!({ "status": fields }));
    let metadata = |fields: Value| with(json!({ "metadata": fields }));
    vec![
        row("bypass: a running pod is called Failed", says(db(), failed(db())), PHASE),
        row("bypass: with a reason of its own", says(db(), failed(why)), PHASE),
        row("bypass: Succeeded", says(db().terminating(), succeeded), PHASE),
        row("bypass: it runs again", says(failed(db().terminating()), db().terminating()), PHASE),
        row("bypass: it is marked Ready", says(down(), up()), Refused("Ready=False")),
        row("bypass: a condition of others", says(db(), unscheduled), Refused("of the conditions of a pod")),
        row("bypass: a container ends on paper", status(json!({ "containerStatuses": null })), Refused("alone")),
        row("bypass: another address", status(json!({ "podIP": "10.0.0.1" })), Refused("alone")),
        row(
            "bypass: a label",
            metadata(json!({ "labels": { "app": "shop" } })),
            Refused("the metadata of pods/status"),
        ),
        row(
            "bypass: an annotation",
            metadata(json!({ "annotations": { "a": "b" } })),
            Refused("the metadata of pods/status"),
        ),
    ]
}

fn evictions() -> Vec<Row> {
    let evicted = |options: Value| {
        let eviction = json!({ "metadata": { "name": "db-0", "namespace": "ns" }, "deleteOptions": options });
        Request::new(OURS, "CREATE pods/eviction").object(patched(json!({}), eviction))
    };
    let (uid, version) = ("uid-db-0", "10");
    let refused = Refused("evicts a pod by UID and resourceVersion");
    let of = |grace: i64, preconditions: Value| {
        evicted(json!({ "gracePeriodSeconds": grace, "preconditions": preconditions }))
    };
    let both = || json!({ "uid": uid, "resourceVersion": version });
    vec![
        row("its node is unhealthy", of(30, both()), Allowed),
        row("bypass: evicted at once", of(0, both()), refused),
        row("bypass: evicted by name", of(30, Value::Null), refused),
        row("bypass: evicted by UID alone", of(30, json!({ "uid": uid })), refused),
        row("bypass: evicted by version alone", of(30, json!({ "resourceVersion": version })), refused),
        row("bypass: evicted by its own grace", evicted(json!({ "preconditions": both() })), refused),
        row("bypass: evicted without options", evicted(Value::Null), refused),
    ]
}

fn deletions() -> Vec<Row> {
    let deleted = |old: Value, grace: Option<i64>, version: Option<&str>| {
        let options =
            json!({ "gracePeriodSeconds": grace, "preconditions": { "uid": "uid-db-0", "resourceVersion": version } });
        Request::new(OURS, "DELETE pods").old(old).options(patched(json!({}), options))
    };
    let marked = || with_conditions(db(), &[disrupted("DeletionByTaintManager")]);
    let failed = || Value::from(db().phase("Failed"));
    let by_name = |options: Value| Request::new(OURS, "DELETE pods").old(failed()).options(options);
    vec![
        row("with its grace period and the condition", deleted(marked(), Some(30), Some("10")), Allowed),
        row("by force, called Failed", deleted(failed(), Some(0), Some("10")), Allowed),
        row("by force, as it ended", deleted(pod("db-0").terminated().into(), Some(0), Some("10")), Allowed),
        row("bypass: --force", deleted(db().into(), Some(0), Some("10")), Refused("without one when its phase is")),
        row(
            "bypass: --force of one that terminates",
            deleted(db().terminating().into(), Some(0), Some("10")),
            Refused("without one when its phase is"),
        ),
        row(
            "bypass: with its grace period, without the condition",
            deleted(db().into(), Some(30), Some("10")),
            Refused("when it carries DisruptionTarget=True"),
        ),
        row("bypass: no grace is named", deleted(marked(), None, Some("10")), Refused("with a grace when")),
        row("bypass: any version", deleted(failed(), Some(0), None), Refused("by UID and resourceVersion")),
        row("bypass: by name", by_name(json!({ "gracePeriodSeconds": 0 })), Refused("only by UID")),
        row("bypass: by name, without options", by_name(Value::Null), Refused("only by UID")),
        row("bypass: by an empty UID", by_name(json!({ "preconditions": { "uid": "" } })), Refused("only by UID")),
    ]
}

fn gated(gates: &[&str], selector: Value) -> Obj {
    let gates: Vec<Value> = gates.iter().map(|name| json!({ "name": name })).collect();
    pod("new").set("/spec/schedulingGates", json!(gates)).set("/spec/nodeSelector", selector)
}

fn gates() -> Vec<Row> {
    let (ssd, hdd) = (|| json!({ "disk": "ssd" }), json!({ "disk": "hdd" }));
    let becomes = |new: Obj| writes("UPDATE pods", gated(&[VOLUME_GATE, "queue"], ssd()), new);
    let pinned = json!({ "disk": "ssd", "kubernetes.io/hostname": "w1" });
    let bare = json!({ "spec": { "schedulingGates": null, "nodeSelector": null } });
    let alone = patched(gated(&[], json!({})).into(), bare);
    vec![
        row("its gate goes", becomes(gated(&["queue"], ssd())), Allowed),
        row("its gate goes, and its host is known", becomes(gated(&["queue"], pinned)), Allowed),
        row("the only gate goes", writes("UPDATE pods", gated(&[VOLUME_GATE], json!({})), alone), Allowed),
        row(
            "bypass: the gate of others",
            becomes(gated(&[VOLUME_GATE], ssd())),
            Refused("no scheduling gate but its own"),
        ),
        row("bypass: another selector", becomes(gated(&["queue"], hdd)), Refused("by kubernetes.io/hostname")),
    ]
}

fn stolen() -> Vec<Row> {
    let with = |change: Value| writes("UPDATE pods", db(), patched(db().into(), change));
    let spec = |fields: Value| with(json!({ "spec": fields }));
    let metadata = |fields: Value| with(json!({ "metadata": fields }));
    let never = |name, act: &str| row(name, writes(act, db(), db()), Refused("never does this"));
    let owner = json!({ "ownerReferences": [{ "kind": "Node", "name": "x" }] });
    vec![
        row("bypass: another image", spec(json!({ "containers": [{ "image": "evil" }] })), Refused("the spec of pods")),
        row("bypass: a deadline", spec(json!({ "activeDeadlineSeconds": 1 })), Refused("the spec of pods")),
        row("bypass: a label", metadata(json!({ "labels": { "app": "shop" } })), Refused("the metadata of pods")),
        row("bypass: a finalizer", metadata(json!({ "finalizers": ["a/b"] })), Refused("the metadata of pods")),
        row("bypass: an owner", metadata(owner), Refused("the metadata of pods")),
        never("bypass: a pod of its own", "CREATE pods"),
        never("bypass: a shell", "CONNECT pods/exec"),
        never("bypass: another container in it", "UPDATE pods/ephemeralcontainers"),
        never("bypass: to a node", "CREATE pods/binding"),
    ]
}
