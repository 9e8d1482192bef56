//! A small cluster: the applications and budgets of the tests of explanations and plans.

use pod_safety_shared::model::Kind;
use pod_safety_shared::testing::objects::{self, Obj, workload};
use pod_safety_shared::testing::{World, at};
use serde_json::{Value, json};

/// A ready pod `ns/NAME` of application `app` on node `n`, with the UID `uid-NAME`.
pub fn pod(app: &str, name: &str) -> Obj {
    let pod = objects::pod(name).labels(json!({ "app": app })).on("n").ready("True").running();
    pod.set("/spec/containers", json!([{ "name": "main" }]))
}

/// A pod of the StatefulSet of its application.
pub fn replica(app: &str, name: &str) -> Obj {
    pod(app, name).owned_by("apps/v1", "StatefulSet", app)
}

/// The pod without conditions.
pub fn not_ready(pod: Obj) -> Obj {
    pod.set("/status/conditions", json!([]))
}

/// The budget `ns/NAME` on application `app`, of generation 2, with this status: observed generation, healthy, needed,
/// expected, allowed.
pub fn budget(name: &str, app: &str, spec: &Value, status: [i64; 5]) -> Obj {
    let [observed, healthy, needed, expected, allowed] = status;
    let (status, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let condition =
        json!({ "type": "DisruptionAllowed", "status": status, "reason": reason, "observedGeneration": observed });
    let status = json!({ "observedGeneration": observed, "currentHealthy": healthy, "desiredHealthy": needed,
        "expectedPods": expected, "disruptionsAllowed": allowed, "conditions": [condition] });
    objects::budget(name, app, spec).set("/status", status)
}

/// A budget whose expected pods could not be calculated.
pub fn failed(budget: Obj) -> Obj {
    let why = json!({ "type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no scale" });
    budget.set("/status/conditions", json!([why]))
}

/// A ready node with room for ten pods, 4 CPUs and 8 GiB.
pub fn node(name: &str) -> Obj {
    let room = json!({ "cpu": "4", "memory": "8Gi", "pods": "10" });
    objects::node(name).ready("True").set("/status/allocatable", room)
}

/// A StatefulSet `NAME` with this many replicas.
pub fn stateful_set(world: &World, name: &str, replicas: i32) {
    world.apply(Kind::StatefulSets, &workload(name, replicas), at(0));
}

/// A StatefulSet `app` with this many pods `app-N`, all ready on node `n`.
pub fn application(world: &World, app: &str, replicas: i32) {
    stateful_set(world, app, replicas);
    for number in 0..replicas {
        world.apply(Kind::Pods, &replica(app, &format!("{app}-{number}")), at(0));
    }
}
