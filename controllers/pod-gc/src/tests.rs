//! Tables for `decide`: each row is a sentence.

use pod_safety_shared::testing::objects::{BOOT, NEXT_BOOT};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::{ClaimKind, Intent};
use pod_safety_shared::cache::{Inability, ReportKind, STALE_AFTER};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Subject;
use pod_safety_shared::model::Kind;
use pod_safety_shared::testing::objects::{Obj, evidence, lease, node, pod, uid};
use pod_safety_shared::testing::{World, at, hold_reasons};
use serde_json::json;

use super::{Config, Key, decide};

mod connected;
mod containers;
mod edges;
mod events;
mod fenced;
mod limits;
mod overdue;
mod properties;
mod terminated;
mod wiring;

const QUARANTINE: u64 = 40;

fn config() -> Config {
    Config {
        terminated_threshold: Some(2),
        quarantine: Duration::from_secs(QUARANTINE),
        trust_out_of_service_taint: false,
        agent_reports: None,
    }
}

fn decide_at(world: &World, key: &Key, now: Mono, config: &Config) -> Decision {
    let guard = world.read();
    decide(key, &guard.view(), now, config)
}

fn describe(decision: &Decision) -> Vec<String> {
    let word = |intent: &Intent| match intent {
        Intent::ReadMissingNode { node } => format!("ask for {node}"),
        Intent::Force(force) => {
            format!("remove {} because {:?}", force.pod.name, ClaimKind::from(&force.claim))
        }
        Intent::Delete(delete) => format!("end {} because: {}", delete.pod.name, delete.cause),
        _ => "not the collector's".to_owned(),
    };
    decision.intents.iter().map(word).collect()
}

/// The decision about this node with the usual settings.
fn describe_node(world: &World, node: &str, second: u64) -> Decision {
    decide_at(world, &node_key(node), at(second), &config())
}

/// A pod of a node that stopped reporting, is missing since second 0 and was not found at second 1.
fn orphan() -> World {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("web-0").on("gone").running(), at(0));
    world.set_unreachable_before_node_deleted("gone");
    world.record_absence_read("gone", at(1));
    world.confirm_all(at(100));
    world
}

fn node_key(name: &str) -> Key {
    Key::Node(name.into())
}

#[test]
fn a_node_that_exists_keeps_its_pods() {
    let unproved: &[&str] = &["NoEvidence"];
    for (ready, taint, held) in [
        ("True", None, &[][..]),
        ("False", None, &[]),
        ("Unknown", None, unproved),
        ("Unknown", Some("node.kubernetes.io/unreachable"), unproved),
    ] {
        let world = World::listed();
        let machine = node("n").ready(ready);
        let machine = taint.map_or(machine.clone(), |taint| machine.tainted_with(taint));
        world.apply(Kind::Nodes, &machine, at(0));
        world.apply(Kind::Pods, &pod("web-0").on("n").running().terminating(), at(0));
        let decision = describe_node(&world, "n", 1);
        assert!(decision.intents.is_empty(), "Ready={ready} taint={taint:?}: {decision:?}");
        assert_eq!(hold_reasons(&decision), held, "Ready={ready} taint={taint:?}");
    }
}

#[test]
fn a_missing_node_is_read_before_anything_else() {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("web-0").on("gone").running(), at(0));
    world.confirm_all(at(100));
    assert_eq!(describe(&describe_node(&world, "gone", 100)), ["ask for gone"]);
}

#[test]
fn the_quarantine_counts_exactly_from_the_first_read() {
    let world = orphan();
    let early = describe_node(&world, "gone", QUARANTINE);
    assert_eq!(hold_reasons(&early), ["Quarantine"]);
    assert_eq!(early.requeue_at, Some(at(1 + QUARANTINE)), "no tick: the exact moment");
    let due = describe_node(&world, "gone", 1 + QUARANTINE);
    assert_eq!(describe(&due), ["remove web-0 because NodeGone"]);
}

/// A late answer is about any moment since the request.
#[test]
fn a_first_read_counts_from_its_request_for_signs_of_life_and_from_its_answer_for_the_quarantine() {
    for (renewed, before, expected) in
        [(None, "Quarantine", vec!["remove web-0 because NodeGone"]), (Some(3), "KubeletAlive", vec![])]
    {
        let world = World::listed();
        world.apply(Kind::Pods, &pod("web-0").on("gone").running(), at(0));
        world.apply(Kind::NodeLeases, &lease("gone", 1), at(0));
        world.set_unreachable_before_node_deleted("gone");
        if let Some(second) = renewed {
            world.apply(Kind::NodeLeases, &lease("gone", 2), at(second));
        }
        world.record_absence_read_at("gone", at(1), at(5));
        world.confirm_all(at(100));
        assert_eq!(hold_reasons(&describe_node(&world, "gone", 4 + QUARANTINE)), [before], "renewed at {renewed:?}");
        let due = describe(&describe_node(&world, "gone", 5 + QUARANTINE));
        assert_eq!(due.iter().filter(|word| word.starts_with("remove")).collect::<Vec<_>>(), expected, "{renewed:?}");
    }
}

#[test]
fn a_node_that_returns_within_the_quarantine_keeps_its_pods_and_its_next_absence_starts_again() {
    let world = orphan();
    world.apply(Kind::Nodes, &node("gone").ready("True"), at(20));
    assert_eq!(describe_node(&world, "gone", 60), Decision::default());
    world.remove(Kind::Nodes, "uid-gone", at(70));
    assert_eq!(describe(&describe_node(&world, "gone", 71)), ["ask for gone"]);
}

#[test]
fn a_renewed_lease_holds_and_the_next_first_read_waits_until_the_kubelet_stops_reporting() {
    let world = orphan();
    world.apply(Kind::NodeLeases, &lease("gone", 0), at(30));
    let held = describe_node(&world, "gone", 60);
    let alive =
        Hold::KubeletAlive { node: "gone".into(), sign: ReportKind::LeaseRenewed, ago: Duration::from_secs(30) };
    assert_eq!(held.holds.iter().map(|(_, hold)| hold.clone()).collect::<Vec<_>>(), [alive]);
    assert!(matches!(&held.holds[0].0, Subject::Pod(key) if &*key.name == "web-0"), "the pod's owner gets an Event");
    assert!(held.intents.is_empty());
    let silent = describe_node(&world, "gone", 30 + QUARANTINE);
    assert_eq!(describe(&silent), ["ask for gone"]);
    world.record_absence_read("gone", at(75));
    world.confirm_all(at(120));
    assert_eq!(hold_reasons(&describe_node(&world, "gone", 80)), ["Quarantine"]);
    assert_eq!(describe(&describe_node(&world, "gone", 75 + QUARANTINE)), ["remove web-0 because NodeGone"]);
}

#[test]
fn an_unreadable_node_is_not_absent() {
    let world = orphan();
    // A Node of this name exists, but its resourceVersion is no number.
    world.apply(Kind::Nodes, &node("gone").set("/metadata/resourceVersion", json!("x")), at(2));
    let decision = describe_node(&world, "gone", 90);
    assert_eq!((describe(&decision), hold_reasons(&decision)), (vec![], vec!["NodeUnreadable"]));
}

#[test]
fn a_stale_cache_holds_every_decision() {
    let world = orphan();
    let late = at(100) + STALE_AFTER + Duration::from_secs(1);
    assert_eq!(hold_reasons(&decide_at(&world, &node_key("gone"), late, &config())), ["Stale"]);
}

#[test]
fn an_unsynced_cache_holds_every_decision() {
    let world = World::default();
    world.mark_listed(Kind::Pods, at(0));
    world.mark_listed(Kind::Nodes, at(0));
    world.apply(Kind::Pods, &pod("web-0").on("gone").running(), at(0));
    assert_eq!(hold_reasons(&describe_node(&world, "gone", 1)), ["NotSynced"]);
}

#[test]
fn a_pod_kept_only_by_finalizers_is_marked_failed_once_and_then_held() {
    let world = World::listed();
    let kept = pod("web-0")
        .on("gone")
        .running()
        .terminating()
        .set("/metadata/deletionGracePeriodSeconds", json!(0))
        .set("/metadata/finalizers", json!(["example.com/a", "example.com/b"]));
    world.apply(Kind::Pods, &kept, at(0));
    world.record_absence_read("gone", at(1));
    world.confirm_all(at(50));
    assert_eq!(describe(&describe_node(&world, "gone", 50)).len(), 1, "a Job waits for the phase");

    let world = World::listed();
    world.apply(Kind::Pods, &kept.terminated(), at(0));
    world.record_absence_read("gone", at(1));
    world.confirm_all(at(50));
    let decision = describe_node(&world, "gone", 50);
    let why = "the pod is deleted and waits for its finalizers: example.com/a, example.com/b";
    assert_eq!(decision.holds[0].1.to_string(), why);
    assert!(decision.intents.is_empty());
}

/// The requests and holds about a pod of a node with this Ready condition and this taint.
fn decide_taint(ready: &str, taint: &str, change: fn(Obj) -> Obj, trust: bool) -> (Vec<String>, Vec<&'static str>) {
    let world = World::listed();
    world.apply(Kind::Nodes, &node("n").ready(ready).tainted_with(taint), at(0));
    world.apply(Kind::Pods, &change(pod("web-0").on("n").running()), at(0));
    let config = Config { trust_out_of_service_taint: trust, ..config() };
    let decision = decide_at(&world, &node_key("n"), at(1), &config);
    (describe(&decision), hold_reasons(&decision))
}

#[test]
fn the_out_of_service_taint_is_accepted_only_if_trusted_and_the_node_is_not_ready() {
    const TAINT: &str = "node.kubernetes.io/out-of-service";
    const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
    let removed = || (vec!["remove web-0 because OutOfService".to_owned()], vec![]);
    let held = |reason| (vec![], vec![reason]);
    let ends: fn(Obj) -> Obj = Obj::terminating;
    for (sentence, ready, taint, change, trust, expected) in [
        ("is a claim without evidence", "Unknown", TAINT, ends, false, held("OutOfServiceWithoutEvidence")),
        ("is accepted as proof if the operator trusts it", "Unknown", TAINT, ends, true, removed()),
        ("counts for a node that reports NotReady", "False", TAINT, ends, true, removed()),
        ("is refuted by a node that is ready", "True", TAINT, ends, true, held("OutOfServiceButReady")),
        ("does not affect pods that are not deleted", "Unknown", TAINT, |pod| pod, true, (vec![], vec![])),
        ("is another taint than unreachable", "Unknown", UNREACHABLE, ends, true, held("NoEvidence")),
    ] {
        assert_eq!(decide_taint(ready, taint, change, trust), expected, "it {sentence}");
    }
}

#[test]
fn a_deleted_pod_on_an_unreachable_node_is_held_with_an_event() {
    const OTHER: &str = "example.com/other";
    let (nothing, untouched): (_, fn(Obj) -> Obj) = ((vec![], vec![]), |pod| pod);
    assert_eq!(decide_taint("Unknown", OTHER, Obj::terminating, false), (vec![], vec!["NoEvidence"]));
    assert_eq!(decide_taint("Unknown", OTHER, untouched, false), nothing, "nobody asked it to end");
    assert_eq!(decide_taint("False", OTHER, Obj::terminating, false), nothing, "its kubelet speaks, and may end it");
    assert_eq!(decide_taint("True", OTHER, Obj::terminating, false), nothing, "it ends");
}

#[test]
fn a_terminating_unscheduled_pod_is_force_deleted() {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("web-0").on("").running().terminating(), at(0));
    world.apply(Kind::Pods, &pod("web-1").on("").running(), at(0));
    let of = |name: &str| decide_at(&world, &Key::Unscheduled(uid(&format!("uid-{name}"))), at(1), &config());
    assert_eq!(describe(&of("web-0")), ["remove web-0 because NeverScheduled"]);
    assert_eq!(of("web-1"), Decision::default(), "nobody asked it to end");
    world.apply(Kind::Pods, &pod("web-0").on("n").running().terminating().rv(11), at(1));
    assert_eq!(of("web-0"), Decision::default(), "a node has taken it");
    assert_eq!(of("nobody"), Decision::default());
}

#[test]
fn a_hold_names_the_kind_of_the_last_report() {
    let alive = |sign| Hold::KubeletAlive { node: "n".into(), sign, ago: Duration::ZERO };
    for (hold, words) in [
        (alive(ReportKind::LeaseRenewed), "its kubelet still runs: its Lease was renewed 0s ago"),
        (alive(ReportKind::PodReported), "its kubelet still runs: it reported on a pod 0s ago"),
    ] {
        assert!(hold.to_string().contains(words), "{hold}");
    }
}
