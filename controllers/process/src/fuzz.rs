//! Fuzz target: objects of every kind with any content, and the decisions and explanations about them.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use jiff::Timestamp;
use pod_safety_explain::{ExplainContext, Overview, Policies, Running, Settings};
use pod_safety_fuzz::{Draw, fuzz, json as vary_json, protobuf};
use pod_safety_shared::authority::Intent;
use pod_safety_shared::cache::{Change, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::{Decision, Mode};
use pod_safety_shared::lease::Leadership;
use pod_safety_shared::metrics::Metrics;
use pod_safety_shared::model::Kind;
use pod_safety_shared::testing::objects::{self, Obj, START_SECONDS, named, timestamp};
use pod_safety_shared::testing::{World, at};
use pod_safety_shared::wire::{Encoding, Raw};
use serde_json::{Value, json};

use crate::registry::Name;
use crate::run::parse_config;
use crate::start::Start;

/// Keys and values that have a meaning in these objects.
const WORDS: &[&str] = &[
    "n",
    "m",
    "uid-n",
    "uid-p",
    "ns",
    "fencing",
    "bmc",
    "p",
    "v",
    "c",
    "True",
    "False",
    "Unknown",
    "Ready",
    "Off",
    "On",
    "off",
    "look",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
    "annotations",
    "labels",
    "pod-safety.dev/pause-fencing",
    "pod-safety.dev/volume-guard",
    "node.kubernetes.io/out-of-service",
    "NoExecute",
    "tolerationSeconds",
    "Failed",
    "Succeeded",
    "DisruptionTarget",
    "PodScheduled",
    "100%",
    "-1%",
    "In",
    "ReadWriteOncePod",
    "Active",
    "Completed",
    "Withdrawn",
    "TargetEvicted",
    "completionTime",
    "imperative-eviction.k8s.io/evictor",
    "pod-safety.dev/lost-node",
    "topology.kubernetes.io/zone",
    "PowerOff",
    "Done",
    "node-role.kubernetes.io/control-plane",
    "holderIdentity",
    "renewTime",
];

const MODES: &[Mode] = &[Mode::Guard, Mode::Replace, Mode::Observe];

/// The maximum number of changes in one case.
const CHANGES: usize = 14;

/// The cache entry of an object, and the decisions about all objects, are at most this many times as long as the
/// input, in Debug format with field names.
const GROWTH: usize = 64;

/// The length allowed for a small cluster.
const LEAST: usize = 64 << 10;

fn incarnation() -> Value {
    json!({ "name": "n", "uid": "uid-n", "bootID": "b0000000-0000-4000-8000-00000000000a" })
}

fn sample() -> Value {
    json!({ "device": { "namespace": "fencing", "name": "bmc" }, "at": timestamp(70), "power": "Off", "identity": "Match" })
}

fn fence_device() -> Obj {
    let target = json!({ "node": "n", "power": "On", "identity": "Match", "looked": timestamp(5), "bootID": "b0000000-0000-4000-8000-00000000000a", "nodeUID": "uid-n" });
    let status = json!({ "observedGeneration": 1, "conditions": [], "targets": [target] });
    let spec = json!({ "driver": "Redfish", "monitorSeconds": 300, "parameters": { "address": "https://bmc-{{.Node.Name}}" },
        "nodeSelector": { "matchLabels": {} }, "timeouts": { "powerOff": "60s" }, "identityCheck": "Required" });
    named("bmc").in_namespace("fencing").set("/spec", spec).set("/status", status)
}

fn fence_policy() -> Obj {
    let level = json!({ "name": "bmc", "attempts": 2, "devices": [{ "namespace": "fencing", "name": "bmc" }] });
    let brakes = json!({ "cooldownSeconds": 0, "maxConcurrent": 10, "maxUnhealthyZonePercent": 100 });
    let spec = json!({ "levels": [level], "when": "Always", "brakes": brakes, "rounds": 2, "priority": 1 });
    named("p").set("/spec", spec)
}

fn node_fence() -> Obj {
    let verified = json!({ "power": "Off", "samples": [sample(), sample()], "leaseRenewed": timestamp(1) });
    let attempt = json!({ "id": 1, "act": "off", "level": 0, "devices": [{ "namespace": "fencing", "name": "bmc" }], "at": timestamp(60),
        "withinSeconds": 60, "by": "me", "outcome": "Done", "verified": verified });
    let status = json!({ "phase": "Fencing", "attempts": [attempt], "gates": [{ "name": "Quorum", "holds": true, "message": "" }],
        "evidence": "e", "conditions": [] });
    let trigger = json!({ "kind": "Detected", "reason": "silent" });
    named("f").set("/spec", json!({ "node": incarnation(), "policy": "p", "trigger": trigger })).set("/status", status)
}

fn evidence() -> Obj {
    let spec = json!({ "node": incarnation(), "kind": "PowerOff", "by": "me", "fence": "f", "samples": [sample()], "validSeconds": 600 });
    named("e").set("/spec", spec).set("/metadata/creationTimestamp", json!(timestamp(71)))
}

/// A small cluster in which each object refers to the others.
fn seed(kind: Kind) -> Obj {
    let selector = json!({ "maxUnavailable": 1 });
    match kind {
        Kind::Pods => objects::pod("p")
            .on("n")
            .labels(json!({ "app": "db" }))
            .owned_by("apps/v1", "StatefulSet", "db")
            .using_claim("c")
            .ready("True"),
        Kind::Nodes => objects::node("n")
            .boot("b0000000-0000-4000-8000-00000000000a")
            .set("/metadata/creationTimestamp", json!(timestamp(-9)))
            .tainted(),
        Kind::NodeLeases => objects::lease("n", 1),
        Kind::Budgets => objects::budget("b", "db", &selector),
        Kind::Deployments | Kind::ReplicaSets | Kind::StatefulSets | Kind::ReplicationControllers => {
            objects::workload("db", 3)
        }
        Kind::FenceDevices => fence_device(),
        Kind::FencePolicies => fence_policy(),
        Kind::NodeFences => node_fence(),
        Kind::FenceEvidences => evidence(),
        Kind::Remediations => named("n").in_namespace("ns"),
        Kind::Volumes => objects::volume("v", &["ReadWriteOnce"]),
        Kind::Claims => objects::claim("c", Some("v")),
        Kind::Attachments => {
            named("va").set("/spec", json!({ "nodeName": "n", "source": { "persistentVolumeName": "v" } }))
        }
        Kind::VolumeLeases => objects::volume_lease("v", Some("n/uid-n/b0000000-0000-4000-8000-00000000000a")),
        Kind::EvictionRequests => objects::eviction_request("r", "p", "example.com/r"),
        Kind::Evictions => objects::eviction("pod-1-p", "p").responders(&[
            ("example.com/a", 10_000, "Active"),
            ("imperative-eviction.k8s.io/evictor", 100, "Inactive"),
        ]),
    }
}

macro_rules! recorded {
    ($name:literal) => {
        include_bytes!(concat!("../../../shared/testdata/wire/", $name, ".pb"))
    };
}

/// Recorded objects of a real API server, for the kinds with a protobuf form.
fn recorded(kind: Kind) -> Option<&'static [u8]> {
    Some(match kind {
        Kind::Pods => recorded!("pod"),
        Kind::Nodes => recorded!("node"),
        Kind::NodeLeases | Kind::VolumeLeases => recorded!("lease"),
        Kind::Budgets => recorded!("budget"),
        Kind::Deployments => recorded!("deployment"),
        Kind::ReplicaSets => recorded!("replicaset"),
        Kind::StatefulSets => recorded!("statefulset"),
        Kind::ReplicationControllers => recorded!("replicationcontroller"),
        Kind::Volumes => recorded!("volume"),
        Kind::Claims => recorded!("claim"),
        Kind::Attachments => recorded!("attachment"),
        Kind::EvictionRequests => recorded!("evictionrequest"),
        Kind::Evictions => recorded!("eviction"),
        Kind::FenceDevices | Kind::FencePolicies | Kind::NodeFences | Kind::FenceEvidences | Kind::Remediations => {
            return None;
        }
    })
}

/// An object in the API server's encoding, and its length.
fn sent(draw: &mut Draw<'_>, kind: Kind) -> Option<(Raw, usize)> {
    let (encoding, body) = match recorded(kind).filter(|_| draw.once_in(4)) {
        Some(body) => {
            let (magic, envelope) = body.split_at(4);
            (Encoding::Protobuf, [magic, &protobuf::vary(draw, envelope)].concat())
        }
        None => {
            let Obj(mut object) = seed(kind);
            if draw.once_in(3) {
                object["metadata"]["uid"] = json!(draw.word(WORDS));
                object["metadata"]["name"] = json!(draw.word(WORDS));
            }
            // Half of the objects stay valid, so that the cluster around a changed object often is.
            if draw.once_in(2) {
                vary_json::vary(draw, &mut object, WORDS);
            }
            (Encoding::Json, object.to_string().into_bytes())
        }
    };
    let length = body.len();
    Some((Raw::from_body(encoding, body.into()).ok()?, length))
}

/// Every controller, with settings by which all rules apply.
fn controllers(mode: Mode) -> Vec<Box<dyn Start>> {
    let mode_flag = format!("--mode={}", mode.name());
    let mut flags = vec![
        &*mode_flag,
        "--terminated-pod-gc-threshold=1",
        "--node-name=m",
        "--fencing-history=600s",
        "--controllers=*,volume-guard,eviction",
    ];
    match mode {
        Mode::Observe => {}
        Mode::Guard => flags.push("--agent-reports-from=pod-safety"),
        Mode::Replace => flags.push("--trust-out-of-service-taint"),
    }
    let settings = parse_config(&flags.iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>()).unwrap().settings;
    let (leadership, metrics) = (Leadership::always(), Metrics::new().unwrap());
    Name::ALL.iter().map(|name| name.create(&settings, &leadership, &metrics).unwrap()).collect()
}

/// The decisions about all objects, and about the node `n` whether it exists or not.
fn decisions(controllers: &[Box<dyn Start>], view: &View<'_>, now: Mono) -> Vec<Decision<String>> {
    let absent = view.absences().map(|(name, _)| name);
    let named = view.nodes().map(|node| &node.name).chain(view.nodes_named_by_pods()).chain(absent);
    let nodes: BTreeSet<Arc<str>> = named.cloned().chain(["n".into()]).collect();
    let pods = view.all_pods().map(|pod| Change::Pod { before: None, after: Some(pod) });
    let of_node = |name| {
        let node = Change::Node { name, readiness: true, taints: true };
        [node, Change::Heartbeat { name, relevant: true }, Change::Fencing { node: Some(name) }]
    };
    let changes: Vec<_> = pods.chain(nodes.iter().flat_map(of_node)).collect();
    controllers.iter().flat_map(|one| one.decide_all(view, now, &changes)).collect()
}

fn overview(view: &View<'_>, now: Mono, wall: Timestamp) -> Overview {
    let (settings, running) = (Settings::default(), Running::default());
    let scene = ExplainContext {
        view: *view,
        now,
        wall,
        settings: &settings,
        running: &running,
        policies: Policies::Deny,
        events: &[],
        attachments: &[],
        successors: &[],
        pauses: &[],
        unread: &[],
    };
    Overview::from_context(&scene)
}

fn length(value: &impl Debug) -> usize {
    format!("{value:?}").len()
}

/// Every pod to be force deleted exists in the cache, at the resourceVersion of the decision.
fn assert_known(view: &View<'_>, decision: &Decision<String>) {
    for intent in &decision.intents {
        if let Intent::Force(force) = intent {
            assert_eq!(view.pod(&force.pod.uid).map(|pod| pod.rv), Some(force.rv), "{force:?}");
        }
    }
}

/// No object panics a decision, makes two decisions differ, or makes one grow without bound.
#[test]
fn every_controller_decides_about_any_objects() {
    fuzz!(700, |draw| {
        let world = World::listed();
        world.set_wall_time(START_SECONDS, at(0));
        for &kind in Kind::ALL.iter().filter(|_| !draw.once_in(4)) {
            world.apply(kind, &seed(kind), at(0));
        }
        let (mut second, mut received) = (0, 0);
        let mode = *draw.one_of(MODES).unwrap();
        for _ in 0..=draw.below(CHANGES) {
            let kind = *draw.one_of(Kind::ALL).unwrap();
            match draw.below(12) {
                0 => world.remove(kind, draw.one_of(&["uid-n", "uid-p", "uid-bmc", "uid-f"]).unwrap(), at(second)),
                1 => world.record_absence_read("n", at(second)),
                2 => second += draw.below(400) as u64,
                3 => world.set_unreachable_before_node_deleted("n"),
                _ => {
                    let Some((raw, length)) = sent(draw, kind) else { continue };
                    world.apply_wire(kind, &raw, at(second));
                    received += length;
                }
            }
        }
        world.confirm_all(at(second));
        let guard = world.read();
        let (view, now) = (guard.view(), at(second));
        let most = LEAST + GROWTH * received;
        let kept: usize = view.all_pods().map(length).chain(view.nodes().map(length)).sum();
        assert!(kept <= most, "{kept} bytes are kept of {received}");
        let controllers = controllers(mode);
        let decided = decisions(&controllers, &view, now);
        assert_eq!(decisions(&controllers, &view, now), decided);
        for decision in &decided {
            assert_known(&view, decision);
            assert!(length(decision) <= most, "of {received} bytes came {decision:?}");
        }
        let wall = Timestamp::from_second(START_SECONDS).unwrap();
        assert!(length(&overview(&view, now, wall)) <= most);
    });
}
