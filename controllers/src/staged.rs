//! A small cluster on stage: the applications and budgets that the tests of
//! explanations and plans speak about.

use pod_safety_shared::model::{Budget, Kind, Uid};
use pod_safety_shared::testing::{World, at};
use serde_json::{Value, json};

/// A ready pod `ns/NAME` of application `app` on node `n`, with the UID `uid-NAME`.
pub(crate) fn pod(app: &str, name: &str) -> Value {
    json!({
        "metadata": { "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "10",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": { "app": app } },
        "spec": { "nodeName": "n", "containers": [{ "name": "main" }] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }],
            "containerStatuses": [{ "state": { "running": {} } }] },
    })
}

/// With an owner that manages it.
pub(crate) fn owned(mut pod: Value, api_version: &str, kind: &str, name: &str) -> Value {
    pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": api_version, "kind": kind, "name": name,
        "uid": format!("uid-{name}"), "controller": true }]);
    pod
}

/// With what the JSON pointer names set.
pub(crate) fn with(mut object: Value, pointer: &str, to: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = to;
    object
}

/// A pod that does not answer.
pub(crate) fn not_ready(pod: Value) -> Value {
    with(pod, "/status/conditions", json!([]))
}

/// The budget `ns/NAME` on application `app`, of generation 2, with such a status:
/// observed generation, healthy, needed, expected, allowed.
pub(crate) fn budget(name: &str, app: &str, spec: &Value, status: [i64; 5]) -> Value {
    let [observed, healthy, needed, expected, allowed] = status;
    let mut object = json!({
        "metadata": { "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "7", "generation": 2 },
        "spec": { "selector": { "matchLabels": { "app": app } } },
        "status": { "observedGeneration": observed, "currentHealthy": healthy, "desiredHealthy": needed,
            "expectedPods": expected, "disruptionsAllowed": allowed,
            "conditions": [{ "type": "DisruptionAllowed", "status": if allowed > 0 { "True" } else { "False" },
                "reason": if allowed > 0 { "SufficientPods" } else { "InsufficientPods" }, "observedGeneration": observed }] },
    });
    spec.as_object().unwrap().iter().for_each(|(key, value)| object["spec"][key] = value.clone());
    object
}

/// A node `NAME` that is Ready.
pub(crate) fn node(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "5", "labels": {} },
        "spec": {},
        "status": { "conditions": [{ "type": "Ready", "status": "True" }],
            "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "10" } },
    })
}

/// A StatefulSet `NAME` that wants so many pods.
pub(crate) fn stateful_set(world: &World, name: &str, replicas: i32) {
    let set = json!({
        "metadata": { "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "3" },
        "spec": { "replicas": replicas },
    });
    world.apply(Kind::StatefulSets, &set, at(0));
}

/// A StatefulSet `app` of so many pods `app-N`, all ready on node `n`.
pub(crate) fn application(world: &World, app: &str, replicas: i32) {
    stateful_set(world, app, replicas);
    for number in 0..replicas {
        let pod = owned(pod(app, &format!("{app}-{number}")), "apps/v1", "StatefulSet", app);
        world.apply(Kind::Pods, &pod, at(0));
    }
}

/// The budget of this name in a view.
pub(crate) fn budget_of<'a>(view: &pod_safety_shared::cache::View<'a>, name: &str) -> &'a Budget {
    view.budget(&Uid::new(&format!("uid-{name}")).unwrap()).unwrap()
}
