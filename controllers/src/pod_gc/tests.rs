//! Tables for `decide`: each row is a sentence.

use std::time::Duration;

use pod_safety_shared::authority::{Hold, Intent};
use pod_safety_shared::cache::{STALE_AFTER, Sign};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::{Decision, Subject};
use pod_safety_shared::model::Kind;
use pod_safety_shared::testing::{World, at};
use serde_json::{Value, json};

use super::{Config, Key, decide};

mod containers;
mod edges;
mod fenced;
mod limits;
mod properties;
mod terminated;

const QUARANTINE: u64 = 40;

fn config() -> Config {
    Config {
        terminated_threshold: Some(2),
        quarantine: Duration::from_secs(QUARANTINE),
        trust_out_of_service_taint: false,
    }
}

fn pod(name: &str, node: &str, change: impl Fn(&mut Value)) -> Value {
    let mut pod = json!({
        "metadata": { "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "7", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "nodeName": node },
        "status": { "phase": "Running", "containerStatuses": [{ "state": { "running": {} } }] },
    });
    change(&mut pod);
    pod
}

fn terminating(pod: &mut Value) {
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
}

fn ended(pod: &mut Value) {
    pod["status"] = json!({ "phase": "Succeeded", "containerStatuses": [{ "state": { "terminated": {} } }] });
}

fn node(name: &str, ready: &str, taint: Option<&str>) -> Value {
    json!({
        "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "5" },
        "spec": { "taints": taint.map(|key| vec![json!({ "key": key, "effect": "NoExecute" })]) },
        "status": { "conditions": [{ "type": "Ready", "status": ready }] },
    })
}

fn lease(name: &str, renewed: &str) -> Value {
    json!({ "metadata": { "name": name, "namespace": "kube-node-lease", "uid": format!("lease-{name}"), "resourceVersion": "3" },
        "spec": { "holderIdentity": name, "renewTime": renewed } })
}

fn decided(world: &World, key: &Key, now: Mono, config: &Config) -> Decision {
    let guard = world.read();
    decide(key, &guard.view(), now, config)
}

/// What a decision asks for, in words.
fn asked(decision: &Decision) -> Vec<String> {
    let word = |intent: &Intent| match intent {
        Intent::Witness { node } => format!("ask for {node}"),
        Intent::Force(force) => format!("remove {} because {:?}", force.pod.name, force.claim.kind()),
        Intent::Delete(_)
        | Intent::Update(_)
        | Intent::Scale { .. }
        | Intent::Fence(_)
        | Intent::Monitor(_)
        | Intent::Remediate(_) => "not the collector's".to_owned(),
    };
    decision.intents.iter().map(word).collect()
}

fn reasons(decision: &Decision) -> Vec<&'static str> {
    decision.holds.iter().map(|(_, hold)| hold.reason()).collect()
}

/// A pod of a node that is missing since second 0 and was not found at second 1.
fn orphan() -> World {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("web-0", "gone", |_| {}), at(0));
    world.witness("gone", at(1));
    world.hear(at(100));
    world
}

fn on(name: &str) -> Key {
    Key::Node(name.into())
}

#[test]
fn a_node_that_is_there_keeps_its_pods() {
    let unproved: &[&str] = &["Unproved"];
    for (ready, taint, held) in [
        ("True", None, &[][..]),
        ("False", None, &[]),
        ("Unknown", None, unproved),
        ("Unknown", Some("node.kubernetes.io/unreachable"), unproved),
    ] {
        let world = World::listed();
        world.apply(Kind::Nodes, &node("n", ready, taint), at(0));
        world.apply(Kind::Pods, &pod("web-0", "n", terminating), at(0));
        let decision = decided(&world, &on("n"), at(1), &config());
        assert!(decision.intents.is_empty(), "Ready={ready} taint={taint:?}: {decision:?}");
        assert_eq!(reasons(&decision), held, "Ready={ready} taint={taint:?}");
    }
}

#[test]
fn a_missing_node_is_asked_for_before_anything_else() {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("web-0", "gone", |_| {}), at(0));
    world.hear(at(100));
    assert_eq!(asked(&decided(&world, &on("gone"), at(100), &config())), ["ask for gone"]);
}

#[test]
fn the_quarantine_counts_from_the_first_read_and_ends_to_the_second() {
    let world = orphan();
    let early = decided(&world, &on("gone"), at(QUARANTINE), &config());
    assert_eq!(reasons(&early), ["Quarantine"]);
    assert_eq!(early.recheck_at, Some(at(1 + QUARANTINE)), "no tick: the exact moment");
    let due = decided(&world, &on("gone"), at(1 + QUARANTINE), &config());
    assert_eq!(asked(&due), ["remove web-0 because NodeGone"]);
}

#[test]
fn a_node_that_came_back_within_the_quarantine_keeps_its_pods_and_its_next_absence_starts_anew() {
    let world = orphan();
    world.apply(Kind::Nodes, &node("gone", "True", None), at(20));
    assert_eq!(decided(&world, &on("gone"), at(60), &config()), Decision::default());
    world.remove(Kind::Nodes, "uid-gone", at(70));
    assert_eq!(asked(&decided(&world, &on("gone"), at(71), &config())), ["ask for gone"]);
}

#[test]
fn a_renewed_lease_holds_and_the_next_first_read_waits_for_silence() {
    let world = orphan();
    world.apply(Kind::NodeLeases, &lease("gone", "2026-01-01T00:00:00Z"), at(30));
    let held = decided(&world, &on("gone"), at(60), &config());
    let alive =
        Hold::KubeletAlive { node: "gone".into(), sign: Sign::LeaseRenewed, ago: Duration::from_secs(30) };
    assert_eq!(held.holds.iter().map(|(_, hold)| hold.clone()).collect::<Vec<_>>(), [alive]);
    assert!(
        matches!(&held.holds[0].0, Subject::Pod(key) if &*key.name == "web-0"),
        "the pod's owner is told"
    );
    assert!(held.intents.is_empty());
    let silent = decided(&world, &on("gone"), at(30 + QUARANTINE), &config());
    assert_eq!(asked(&silent), ["ask for gone"]);
    world.witness("gone", at(75));
    world.hear(at(120));
    assert_eq!(reasons(&decided(&world, &on("gone"), at(80), &config())), ["Quarantine"]);
    assert_eq!(
        asked(&decided(&world, &on("gone"), at(75 + QUARANTINE), &config())),
        ["remove web-0 because NodeGone"]
    );
}

#[test]
fn a_mirror_pod_that_appears_on_a_missing_node_shows_that_its_kubelet_lives() {
    let world = orphan();
    let mirror = pod("static", "gone", |pod| {
        pod["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "x" })
    });
    world.apply(Kind::Pods, &mirror, at(20));
    assert_eq!(reasons(&decided(&world, &on("gone"), at(50), &config())), ["KubeletAlive", "KubeletAlive"]);
}

#[test]
fn a_mirror_pod_that_was_there_before_goes_with_its_node() {
    let world = World::listed();
    let mirror = pod("static", "gone", |pod| {
        pod["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "x" })
    });
    world.apply(Kind::Pods, &mirror, at(0));
    world.witness("gone", at(1));
    world.hear(at(41));
    assert_eq!(asked(&decided(&world, &on("gone"), at(41), &config())), ["remove static because NodeGone"]);
}

#[test]
fn unknown_is_not_absent() {
    let world = orphan();
    // Somebody of this name is there, but its resourceVersion is no number.
    world.apply(
        Kind::Nodes,
        &json!({ "metadata": { "name": "gone", "uid": "u", "resourceVersion": "x" } }),
        at(2),
    );
    let decision = decided(&world, &on("gone"), at(90), &config());
    assert_eq!((asked(&decision), reasons(&decision)), (vec![], vec!["NodeUnreadable"]));
}

#[test]
fn nothing_is_decided_from_what_may_be_old() {
    let world = orphan();
    let late = at(100) + STALE_AFTER + Duration::from_secs(1);
    assert_eq!(reasons(&decided(&world, &on("gone"), late, &config())), ["Stale"]);
}

#[test]
fn nothing_is_decided_before_everything_was_listed() {
    let world = World::default();
    world.list(Kind::Pods, at(0));
    world.list(Kind::Nodes, at(0));
    world.apply(Kind::Pods, &pod("web-0", "gone", |_| {}), at(0));
    assert_eq!(reasons(&decided(&world, &on("gone"), at(1), &config())), ["NotSynced"]);
}

#[test]
fn what_only_finalizers_keep_is_called_failed_once_and_then_held() {
    let world = World::listed();
    let kept = |pod: &mut Value| {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        pod["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    };
    world.apply(Kind::Pods, &pod("web-0", "gone", kept), at(0));
    world.witness("gone", at(1));
    world.hear(at(50));
    assert_eq!(asked(&decided(&world, &on("gone"), at(50), &config())).len(), 1, "a Job waits for the phase");

    let world = World::listed();
    let failed = pod("web-0", "gone", |pod| {
        kept(pod);
        ended(pod);
    });
    world.apply(Kind::Pods, &failed, at(0));
    world.witness("gone", at(1));
    world.hear(at(50));
    let decision = decided(&world, &on("gone"), at(50), &config());
    assert_eq!(
        decision.holds[0].1.to_string(),
        "the pod is deleted and waits for its finalizers: example.com/a, example.com/b"
    );
    assert!(decision.intents.is_empty());
}

/// What is asked for and held about a pod of a node with this Ready condition
/// and this taint.
fn about_taint(
    ready: &str,
    taint: &str,
    change: fn(&mut Value),
    trust: bool,
) -> (Vec<String>, Vec<&'static str>) {
    let world = World::listed();
    world.apply(Kind::Nodes, &node("n", ready, Some(taint)), at(0));
    world.apply(Kind::Pods, &pod("web-0", "n", change), at(0));
    let config = Config { trust_out_of_service_taint: trust, ..config() };
    let decision = decided(&world, &on("n"), at(1), &config);
    (asked(&decision), reasons(&decision))
}

#[test]
fn the_out_of_service_taint() {
    const TAINT: &str = "node.kubernetes.io/out-of-service";
    let removed = || (vec!["remove web-0 because OutOfService".to_owned()], vec![]);
    let held = |reason| (vec![], vec![reason]);
    let nothing = (vec![], vec![]);
    let untouched: fn(&mut Value) = |_| {};

    let says = "is somebody's word, which nobody has proved";
    assert_eq!(about_taint("Unknown", TAINT, terminating, false), held("OutOfServiceUnproved"), "it {says}");
    let says = "is taken for proof where the operator says so";
    assert_eq!(about_taint("Unknown", TAINT, terminating, true), removed(), "it {says}");
    let says = "counts for a node that says itself not ready";
    assert_eq!(about_taint("False", TAINT, terminating, true), removed(), "it {says}");
    let says = "is refuted by a node that is ready";
    assert_eq!(about_taint("True", TAINT, terminating, true), held("OutOfServiceButReady"), "it {says}");
    let says = "does not touch pods that nobody asked to end";
    assert_eq!(about_taint("Unknown", TAINT, untouched, true), nothing, "it {says}");
    let says = "is another taint than unreachable";
    assert_eq!(
        about_taint("Unknown", "node.kubernetes.io/unreachable", terminating, true),
        held("Unproved"),
        "it {says}"
    );
}

#[test]
fn a_pod_that_was_asked_to_end_on_a_node_that_is_not_heard_is_held_aloud() {
    const OTHER: &str = "example.com/other";
    let (nothing, untouched): (_, fn(&mut Value)) = ((vec![], vec![]), |_| {});
    assert_eq!(about_taint("Unknown", OTHER, terminating, false), (vec![], vec!["Unproved"]));
    assert_eq!(about_taint("Unknown", OTHER, untouched, false), nothing, "nobody asked it to end");
    assert_eq!(
        about_taint("False", OTHER, terminating, false),
        nothing,
        "its kubelet speaks, and may end it"
    );
    assert_eq!(about_taint("True", OTHER, terminating, false), nothing, "it ends");
}

#[test]
fn a_terminating_pod_that_no_node_took_is_asked_for() {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("web-0", "", terminating), at(0));
    world.apply(Kind::Pods, &pod("web-1", "", |_| {}), at(0));
    let key =
        |name: &str| Key::Unscheduled(pod_safety_shared::model::Uid::new(&format!("uid-{name}")).unwrap());
    assert_eq!(
        asked(&decided(&world, &key("web-0"), at(1), &config())),
        ["remove web-0 because NeverScheduled"]
    );
    assert_eq!(
        decided(&world, &key("web-1"), at(1), &config()),
        Decision::default(),
        "nobody asked it to end"
    );
    assert_eq!(decided(&world, &key("nobody"), at(1), &config()), Decision::default());
}
