//! The history: each chapter in its own namespace, independent of the others.

use std::time::Duration;

use pod_safety_control_plane::workloads::{
    DAEMON_SET, DEPLOYMENT, FLEET, HERD, JOB, Kind, PHANTOM, REPLICA_SET, REPLICATION_CONTROLLER, STATEFUL_SET,
};
use serde_json::{Value, json};

use super::budgets::{Act, Pods};
use crate::beside_kcm::Step;

/// All steps.
pub(crate) fn steps() -> Vec<Step<Act>> {
    let chapters =
        [shapes(), rollout(), stateful(), successor(), other_controllers(), unscaled(), overlapping(), unguarded()];
    chapters.into_iter().flatten().collect()
}

/// The name is prefixed with its namespace.
fn step(namespace: &str, name: &str, acts: Vec<Act>) -> Step<Act> {
    Step { name: format!("{namespace}: {name}"), acts, expected: &[] }
}

fn matching_app(app: &str) -> Value {
    json!({ "matchLabels": { "app": app } })
}

fn at_least(app: &str, amount: impl Into<Value>) -> Value {
    json!({ "minAvailable": amount.into(), "selector": matching_app(app) })
}

fn at_most(app: &str, amount: impl Into<Value>) -> Value {
    json!({ "maxUnavailable": amount.into(), "selector": matching_app(app) })
}

/// Running pods of a workload, whose name is also their label.
fn run(workload: &'static str, names: &'static [&'static str]) -> Act {
    Act::Pods(Pods { names, app: workload, owner: Some(workload), phase: "Running" })
}

fn phase(names: &'static [&'static str], app: &'static str, phase: &'static str) -> Act {
    Act::Pods(Pods { names, app, owner: None, phase })
}

/// The StatefulSet `db` with three pods.
fn stateful_set(namespace: &str) -> Step<Act> {
    let acts = vec![Act::Workload(STATEFUL_SET, "db", 3), run("db", &["db-0", "db-1", "db-2"])];
    step(namespace, "a StatefulSet and its pods", acts)
}

/// The ReplicaSet `set` with three pods.
fn replica_set(namespace: &str) -> Step<Act> {
    let acts = vec![Act::Workload(REPLICA_SET, "set", 3), run("set", &["s-0", "s-1", "s-2"])];
    step(namespace, "a ReplicaSet and its pods", acts)
}

/// Every form of a PDB, over the same five pods.
fn shapes() -> Vec<Step<Act>> {
    let chosen = |operator: &str, key: &str, values: Value| {
        json!({ "minAvailable": 1, "selector": { "matchExpressions": [
            { "key": key, "operator": operator, "values": values },
        ] } })
    };
    let every = vec![
        Act::Budget("min", at_least("web", 3)),
        Act::Budget("min-none", at_least("web", 0)),
        Act::Budget("min-too-many", at_least("web", 7)),
        Act::Budget("min-percent", at_least("web", "50%")),
        Act::Budget("min-percent-just-above", at_least("web", "41%")),
        Act::Budget("min-percent-all", at_least("web", "100%")),
        Act::Budget("max", at_most("web", 1)),
        Act::Budget("max-none", at_most("web", 0)),
        Act::Budget("max-too-many", at_most("web", 9)),
        Act::Budget("max-percent", at_most("web", "30%")),
        Act::Budget("max-percent-none", at_most("web", "0%")),
        Act::Budget("max-percent-all", at_most("web", "100%")),
        Act::Budget("neither", json!({ "selector": matching_app("web") })),
        Act::Budget("empty-selector", json!({ "minAvailable": 1, "selector": {} })),
        Act::Budget("no-selector", json!({ "minAvailable": 1 })),
        Act::Budget("in", chosen("In", "app", json!(["web", "other"]))),
        Act::Budget("not-in", chosen("NotIn", "app", json!(["other"]))),
        Act::Budget("exists", chosen("Exists", "app", Value::Null)),
        Act::Budget("does-not-exist", chosen("DoesNotExist", "app", Value::Null)),
        Act::Budget("no-pods", at_most("nobody", 1)),
        Act::Budget("no-pods-percent", at_least("nobody", "50%")),
    ];
    let others = vec![
        Act::Budget("min", at_least("web", 5)),
        Act::Budget("min-percent", at_most("web", "50%")),
        Act::Budget("max", at_least("web", "20%")),
        Act::Budget("neither", at_most("web", 2)),
        Act::Budget("max-none", json!({ "selector": matching_app("web") })),
        Act::Budget("no-pods", at_most("web", 1)),
        Act::Budget("empty-selector", json!({ "minAvailable": 1 })),
        Act::Budget("in", at_least("nobody", 1)),
    ];
    let but_one = every.iter().filter_map(|act| match act {
        Act::Budget(name, _) if *name != "max-percent" => Some(Act::NoBudget(name)),
        _ => None,
    });
    let but_one = but_one.collect();
    let pods = run("web", &["web-0", "web-1", "web-2", "web-3", "web-4"]);
    vec![
        step("shapes", "a ReplicaSet and its pods", vec![Act::Workload(REPLICA_SET, "web", 5), pods]),
        step("shapes", "a budget of every form", every),
        step("shapes", "other specs", others),
        step("shapes", "all budgets but one are deleted", but_one),
        step("shapes", "two pods crash", vec![Act::Ready("web-0", false), Act::Ready("web-1", false)]),
        step("shapes", "they recover", vec![Act::Ready("web-0", true), Act::Ready("web-1", true)]),
    ]
}

/// A Deployment is scaled, rolled and drained.
fn rollout() -> Vec<Step<Act>> {
    let (scale, ns) = (|replicas| Act::Scale(DEPLOYMENT, "shop", replicas), "rollout");
    let second = Pods { names: &["new-a", "new-b"], app: "first", owner: Some("second"), phase: "Running" };
    vec![
        step(
            ns,
            "a Deployment, its ReplicaSet, their pods",
            vec![
                Act::Workload(DEPLOYMENT, "shop", 4),
                Act::Managed(REPLICA_SET, "first", 4, "shop"),
                run("first", &["a", "b", "c", "d"]),
            ],
        ),
        step(ns, "a budget of a quarter", vec![Act::Budget("shop", at_most("first", "25%"))]),
        step(ns, "scaled up", vec![scale(8), Act::Scale(REPLICA_SET, "first", 8)]),
        step(ns, "the new pods run", vec![run("first", &["e", "f", "g", "h"])]),
        step(
            ns,
            "rolled halfway",
            vec![
                Act::Scale(REPLICA_SET, "first", 6),
                Act::Managed(REPLICA_SET, "second", 2, "shop"),
                // First the old pods are removed, so that there are never more than before or after.
                Act::End("g"),
                Act::Gone("h"),
                Act::Pods(second),
            ],
        ),
        step(ns, "a first eviction", vec![Act::Evict("a")]),
        step(ns, "a second", vec![Act::Evict("b")]),
        step(ns, "one too many", vec![Act::Evict("c")]),
        step(ns, "the evicted end", vec![Act::Gone("a"), Act::Gone("b"), Act::Gone("g")]),
        step(ns, "and are replaced", vec![run("first", &["i", "j"])]),
        step(ns, "scaled down", vec![scale(2), Act::Scale(REPLICA_SET, "first", 0)]),
        step(ns, "an eviction right after it", vec![Act::Evict("c")]),
        step(ns, "the old pods end", ["c", "d", "e", "f", "i", "j"].map(Act::Gone).into()),
        step(ns, "scaled to nothing", vec![scale(0), Act::Gone("new-a"), Act::Gone("new-b")]),
    ]
}

/// Crashes and the two unhealthyPodEvictionPolicies.
fn stateful() -> Vec<Step<Act>> {
    let ns = "stateful";
    let mut generous = at_least("db", 3);
    generous["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
    vec![
        stateful_set(ns),
        step(ns, "a budget of two", vec![Act::Budget("db", at_least("db", 2))]),
        step(ns, "one crashes", vec![Act::Ready("db-1", false)]),
        step(ns, "a healthy one may not go", vec![Act::Evict("db-0")]),
        step(ns, "the broken one may", vec![Act::Evict("db-1")]),
        step(ns, "it ends", vec![Act::Gone("db-1")]),
        step(ns, "it is replaced under its name", vec![run("db", &["db-1"])]),
        step(ns, "all are wanted", vec![Act::Budget("db", at_least("db", 3))]),
        step(ns, "another crashes", vec![Act::Ready("db-2", false)]),
        step(ns, "it may not go", vec![Act::Evict("db-2")]),
        step(ns, "unhealthy ones may always go", vec![Act::Budget("db", generous)]),
        step(ns, "it may go now", vec![Act::Evict("db-2")]),
        step(ns, "a healthy one still may not", vec![Act::Evict("db-0")]),
        step(ns, "the budget is deleted", vec![Act::NoBudget("db")]),
        step(ns, "everyone may go", vec![Act::Evict("db-0"), Act::Evict("db-1")]),
    ]
}

/// A pod is evicted and replaced under its name before the controller observes it.
fn successor() -> Vec<Step<Act>> {
    let ns = "successor";
    let replaced = vec![
        Act::Down,
        Act::EvictAtOnce("db-0"),
        // Times in the API have no fractions of a second.
        Act::Wait(Duration::from_millis(2100)),
        run("db", &["db-0"]),
        Act::Up,
    ];
    vec![
        stateful_set(ns),
        step(ns, "a budget of two", vec![Act::Budget("db", at_least("db", 2))]),
        step(ns, "one is replaced while no controller runs", replaced),
        step(ns, "another may not go, or may", vec![Act::Evict("db-1")]),
        step(ns, "both go", vec![Act::Gone("db-0"), Act::Gone("db-1")]),
        step(ns, "both are there again", vec![run("db", &["db-0", "db-1"])]),
    ]
}

/// Other controllers of pods, and pods without a controller.
fn other_controllers() -> Vec<Step<Act>> {
    let naked = |names| phase(names, "naked", "Running");
    vec![
        step(
            "others",
            "pods of a ReplicationController and of a custom kind",
            vec![
                Act::Workload(REPLICATION_CONTROLLER, "old", 5),
                run("old", &["old-0", "old-1", "old-2", "old-3", "old-4"]),
                Act::Workload(FLEET, "ships", 4),
                run("ships", &["ship-0", "ship-1", "ship-2", "ship-3"]),
            ],
        ),
        step(
            "others",
            "their budgets",
            vec![Act::Budget("old", at_least("old", "50%")), Act::Budget("ships", at_most("ships", "50%"))],
        ),
        step("others", "one of each is evicted", vec![Act::Evict("old-0"), Act::Evict("ship-0")]),
        step("others", "the ReplicationController is scaled", vec![Act::Scale(REPLICATION_CONTROLLER, "old", 3)]),
        step("others", "its pods follow", vec![Act::Gone("old-0"), Act::Gone("old-1")]),
        // No watch shows the scaling itself: kube-controller-manager reads the scale when a pod changes, pod-safety also periodically. So the
        // intermediate state depends on the time of the observation.
        step(
            "others",
            "the custom one is scaled, and its pods follow",
            vec![Act::Scale(FLEET, "ships", 2), Act::Gone("ship-0"), Act::Gone("ship-1")],
        ),
        step("naked", "pods without a controller", vec![naked(&["n-0", "n-1", "n-2"])]),
        step("naked", "a budget in pods", vec![Act::Budget("naked", at_least("naked", 2))]),
        step("naked", "one is evicted", vec![Act::Evict("n-0")]),
        step("naked", "it ends", vec![Act::Gone("n-0")]),
        step("naked", "a budget that asks for their controllers", vec![Act::Budget("naked", at_most("naked", 1))]),
        step("naked", "it lets nobody go", vec![Act::Evict("n-1")]),
        step(
            "naked",
            "pods with one come beside them",
            vec![
                Act::Workload(REPLICA_SET, "set", 3),
                Act::Pods(Pods { names: &["s-0", "s-1"], app: "naked", owner: Some("set"), phase: "Running" }),
            ],
        ),
    ]
}

/// Pods whose controller has no scale, or does not exist.
fn unscaled() -> Vec<Step<Act>> {
    let beside = |kind: Kind, namespace: &'static str| {
        let odd = Pods { names: &["odd"], app: "set", owner: Some("odd"), phase: "Running" };
        vec![
            replica_set(namespace),
            step(namespace, "a budget", vec![Act::Budget("set", at_most("set", 1))]),
            step(namespace, "an odd pod beside them", vec![Act::Workload(kind, "odd", 1), Act::Pods(odd)]),
            step(namespace, "an eviction", vec![Act::Evict("s-0")]),
            step(namespace, "the odd pod goes", vec![Act::Gone("odd"), Act::Gone("s-0")]),
        ]
    };
    let mut all: Vec<Step<Act>> = [(DAEMON_SET, "daemon"), (JOB, "job"), (HERD, "herd")]
        .into_iter()
        .flat_map(|(kind, ns)| beside(kind, ns))
        .collect();
    all.extend([
        step("vanished", "a pod of a ReplicaSet", vec![Act::Workload(REPLICA_SET, "set", 1), run("set", &["s-0"])]),
        // pod-safety waits ten seconds for the controller of a new pod, in case it is observed later.
        step("vanished", "a budget", vec![Act::Budget("set", at_most("set", 1)), Act::Wait(Duration::from_secs(11))]),
        step("vanished", "the ReplicaSet is deleted", vec![Act::NoWorkload(REPLICA_SET, "set")]),
        step("vanished", "then its pod changes", vec![Act::Ready("s-0", false)]),
        step("vanished", "an eviction", vec![Act::Evict("s-0")]),
        step(
            "vanished",
            "another ReplicaSet of that name",
            vec![Act::Workload(REPLICA_SET, "set", 1), Act::Ready("s-0", true)],
        ),
        step("vanished", "and a pod of its own", vec![Act::Gone("s-0"), run("set", &["t-0"])]),
        step(
            "phantom",
            "a pod of a kind that nobody defined",
            vec![Act::Unknown(PHANTOM, "ghost"), run("ghost", &["g-0"])],
        ),
        step("phantom", "a budget in pods", vec![Act::Budget("ghost", at_least("ghost", 0))]),
        step("phantom", "a budget that asks for it", vec![Act::Budget("ghost", at_most("ghost", 1))]),
        step("phantom", "an eviction", vec![Act::Evict("g-0")]),
        step("phantom", "a budget in pods again", vec![Act::Budget("ghost", at_least("ghost", 1))]),
    ]);
    all
}

/// Two PDBs over the same pods.
fn overlapping() -> Vec<Step<Act>> {
    let ns = "overlapping";
    let twins = || vec![Act::Touch("twin-1"), Act::Touch("twin-2")];
    vec![
        replica_set(ns),
        step(
            ns,
            "two budgets of one kind",
            vec![Act::Budget("twin-1", at_most("set", 1)), Act::Budget("twin-2", at_most("set", 1))],
        ),
        step(ns, "nobody may be evicted", vec![Act::Evict("s-1")]),
        step(ns, "a pod crashes", vec![Act::Ready("s-0", false)]),
        step(ns, "both are touched", twins()),
        step(ns, "it recovers", vec![Act::Ready("s-0", true)]),
        step(ns, "both are touched again", twins()),
        step(ns, "a pod is relabelled", vec![Act::Relabel("s-2", "nothing")]),
        step(ns, "both are touched a third time", twins()),
        step(ns, "one is deleted", vec![Act::NoBudget("twin-1")]),
        step(ns, "the other counts alone", vec![Act::Ready("s-0", false)]),
    ]
}

/// Evictions for which no PDB is checked.
fn unguarded() -> Vec<Step<Act>> {
    let ns = "unguarded";
    vec![
        step(
            ns,
            "pods in every phase under a budget that allows nothing",
            vec![
                Act::Budget("all", at_least("any", 9)),
                phase(&["pending"], "any", "Pending"),
                phase(&["running", "ending"], "any", "Running"),
                phase(&["succeeded"], "any", "Succeeded"),
                phase(&["failed"], "any", "Failed"),
                phase(&["free"], "none", "Running"),
                Act::End("ending"),
            ],
        ),
        step(
            ns,
            "all are evicted",
            ["pending", "running", "ending", "succeeded", "failed", "free", "nobody"].map(Act::Evict).into(),
        ),
    ]
}
