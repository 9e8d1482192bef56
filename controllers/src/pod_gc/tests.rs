//! Tables for `decide`: each row is a sentence.

use std::time::Duration;

use pod_safety_shared::authority::{Claim, Hold, Intent};
use pod_safety_shared::cache::{STALE_AFTER, Sign};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::{Controller, Decision, Subject};
use pod_safety_shared::model::Kind;
use pod_safety_shared::testing::{World, at};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Config, Key, PodGc, decide};

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
    for (ready, taint) in [
        ("True", None),
        ("False", None),
        ("Unknown", None),
        ("Unknown", Some("node.kubernetes.io/unreachable")),
    ] {
        let world = World::listed();
        world.apply(Kind::Nodes, &node("n", ready, taint), at(0));
        world.apply(Kind::Pods, &pod("web-0", "n", terminating), at(0));
        assert_eq!(
            decided(&world, &on("n"), at(1), &config()),
            Decision::default(),
            "Ready={ready} taint={taint:?}"
        );
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
fn what_only_finalizers_keep_is_held_and_not_asked_for_again() {
    let world = World::listed();
    let kept = pod("web-0", "gone", |pod| {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        pod["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    });
    world.apply(Kind::Pods, &kept, at(0));
    world.witness("gone", at(1));
    world.hear(at(50));
    let decision = decided(&world, &on("gone"), at(50), &config());
    assert_eq!(
        decision.holds[0].1.to_string(),
        "the pod is deleted and waits for its finalizers: example.com/a, example.com/b"
    );
    assert!(decision.intents.is_empty());
}

#[test]
fn the_out_of_service_taint() {
    let trusted = Config { trust_out_of_service_taint: true, ..config() };
    let taint = Some("node.kubernetes.io/out-of-service");
    let graceful: fn(&mut Value) = terminating;
    let untouched: fn(&mut Value) = |_| {};
    for (says, ready, taint, change, config, intents, holds) in [
        (
            "is somebody's word, which nobody has proved",
            "Unknown",
            taint,
            graceful,
            config(),
            vec![],
            vec!["OutOfServiceUnproved"],
        ),
        (
            "is taken for proof where the operator says so",
            "Unknown",
            taint,
            graceful,
            trusted.clone(),
            vec!["remove web-0 because OutOfService"],
            vec![],
        ),
        (
            "counts for a node that says itself not ready",
            "False",
            taint,
            graceful,
            trusted.clone(),
            vec!["remove web-0 because OutOfService"],
            vec![],
        ),
        (
            "is refuted by a node that is ready",
            "True",
            taint,
            graceful,
            trusted.clone(),
            vec![],
            vec!["OutOfServiceButReady"],
        ),
        (
            "does not touch pods that nobody asked to end",
            "Unknown",
            taint,
            untouched,
            trusted.clone(),
            vec![],
            vec![],
        ),
        (
            "is another taint than unreachable",
            "Unknown",
            Some("node.kubernetes.io/unreachable"),
            graceful,
            trusted,
            vec![],
            vec![],
        ),
    ] {
        let world = World::listed();
        world.apply(Kind::Nodes, &node("n", ready, taint), at(0));
        world.apply(Kind::Pods, &pod("web-0", "n", change), at(0));
        let decision = decided(&world, &on("n"), at(1), &config);
        assert_eq!(asked(&decision), intents, "the taint {says}");
        assert_eq!(reasons(&decision), holds, "the taint {says}");
    }
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

fn terminated_world() -> World {
    let world = World::listed();
    world.apply(Kind::Nodes, &node("n", "True", None), at(0));
    for (name, second) in [("young", 9), ("old", 1), ("b", 5), ("a", 5)] {
        let made = format!("2026-01-01T00:00:0{second}Z");
        world.apply(
            Kind::Pods,
            &pod(name, "n", |pod| {
                ended(pod);
                pod["metadata"]["creationTimestamp"] = json!(made);
            }),
            at(0),
        );
    }
    let evicted = pod("evicted", "n", |pod| {
        ended(pod);
        pod["status"]["phase"] = json!("Failed");
        pod["status"]["reason"] = json!("Evicted");
        pod["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
    });
    world.apply(Kind::Pods, &evicted, at(0));
    world
}

#[test]
fn terminated_pods_above_the_threshold_go_evicted_first_then_oldest_then_by_name() {
    let with = |threshold| Config { terminated_threshold: threshold, ..config() };
    let world = terminated_world();
    let order = ["evicted", "old", "a", "b", "young"];
    for threshold in 1..=6_usize {
        let expected: Vec<_> = order
            .iter()
            .take(5_usize.saturating_sub(threshold))
            .map(|name| format!("remove {name} because KubeletTerminated"))
            .collect();
        assert_eq!(
            asked(&decided(&world, &Key::Terminated, at(1), &with(Some(threshold)))),
            expected,
            "threshold {threshold}"
        );
    }
    assert_eq!(
        decided(&world, &Key::Terminated, at(1), &with(None)),
        Decision::default(),
        "0 or less switches it off"
    );
}

#[test]
fn a_phase_without_proof_is_held_and_lets_the_others_pass() {
    let world = terminated_world();
    let lying = pod("lying", "n", |pod| {
        pod["status"]["phase"] = json!("Failed");
        pod["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
    });
    let odd = pod("odd", "n", |pod| {
        pod["status"] = json!({});
        pod["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
    });
    world.apply(Kind::Pods, &lying, at(0));
    world.apply(Kind::Pods, &odd, at(0));
    let decision =
        decided(&world, &Key::Terminated, at(1), &Config { terminated_threshold: Some(5), ..config() });
    assert_eq!(
        asked(&decision),
        ["remove evicted because KubeletTerminated", "remove old because KubeletTerminated"]
    );
    assert_eq!(reasons(&decision), ["TerminalButRunning", "PhaseUnreadable"]);
}

#[test]
fn a_pod_that_is_being_removed_as_an_orphan_is_not_held_as_terminated() {
    // Between our PATCH and our DELETE it is Failed, with containers reported running.
    let world = orphan();
    for name in ["web-0", "web-1", "web-2"] {
        world.apply(Kind::Pods, &pod(name, "gone", |pod| pod["status"]["phase"] = json!("Failed")), at(41));
    }
    assert_eq!(decided(&world, &Key::Terminated, at(42), &config()), Decision::default());
}

proptest! {
    /// Whatever the cluster looks like, the collector asks for nothing that its
    /// own rules do not cover.
    #[test]
    fn every_claim_fits_its_pod(
        phases in prop::collection::vec((0_usize..6, any::<bool>(), any::<bool>(), 0_usize..3), 0..12),
        witnessed in any::<bool>(), now in 0_u64..120, trust in any::<bool>(),
    ) {
        let world = World::listed();
        world.apply(Kind::Nodes, &node("there", "Unknown", Some("node.kubernetes.io/out-of-service")), at(0));
        for (at_index, (phase, deleted, running, place)) in phases.iter().enumerate() {
            let word = ["Pending", "Running", "Succeeded", "Failed", "Unknown", ""][*phase];
            let made = pod(&format!("p{at_index}"), ["", "there", "gone"][*place], |pod| {
                pod["status"]["phase"] = json!(word);
                if !running { pod["status"]["containerStatuses"] = json!([]); }
                if *deleted { terminating(pod); }
            });
            world.apply(Kind::Pods, &made, at(0));
        }
        if witnessed { world.witness("gone", at(1)); }
        world.hear(at(now));
        let config = Config { trust_out_of_service_taint: trust, ..config() };
        let guard = world.read();
        let view = guard.view();
        let mut keys = Vec::new();
        let collector = PodGc::new(config.clone(), &prometheus::Registry::new()).unwrap();
        collector.all(&view, &mut |key| keys.push(key));
        for key in keys {
            let decision = decide(&key, &view, at(now), &config);
            prop_assert_eq!(&decision, &decide(&key, &view, at(now), &config), "pure");
            for intent in &decision.intents {
                let Intent::Force(force) = intent else { continue };
                let pod = view.pod(&force.pod.uid).unwrap();
                prop_assert_eq!(force.rv, pod.rv);
                match &force.claim {
                    Claim::NodeGone { node } => {
                        prop_assert!(pod.node.as_ref() == Some(node) && &**node == "gone");
                        prop_assert!(witnessed && now > QUARANTINE);
                    }
                    Claim::OutOfService { node } => prop_assert!(trust && pod.deletion.is_some() && &**node == "there"),
                    Claim::NeverScheduled => prop_assert!(pod.node.is_none() && pod.deletion.is_some()),
                    Claim::KubeletTerminated => prop_assert!(pod.phase.is_terminal() && !pod.running),
                }
            }
        }
    }
}
