//! One loss of the node `n`, from its last report at second 10 to its return.

mod incident_spans;
mod running;

use std::sync::Arc;

use jiff::Timestamp;
use pod_safety_otlp::Span;
use pod_safety_shared::model::{Kind, PodKey};
use pod_safety_shared::testing::objects::{self, BOOT, NEXT_BOOT, START_SECONDS, named, timestamp, uid};
use pod_safety_shared::testing::{World, at};
use serde_json::{Value, json};

use super::*;

/// The time so many milliseconds after the start.
fn moment(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(START_SECONDS * 1_000 + milliseconds).unwrap()
}

fn precise(milliseconds: i64) -> String {
    format!("{:.3}", moment(milliseconds))
}

/// The node `n` of this boot, with this status of its condition `Ready` since that second.
fn node(boot: &str, ready: &str, since: i64) -> objects::Obj {
    let ready = json!([{ "type": "Ready", "status": ready, "lastTransitionTime": timestamp(since) }]);
    objects::node("n").boot(boot).set("/status/conditions", ready)
}

fn sample(milliseconds: i64, power: &str) -> Value {
    json!({ "device": { "namespace": "rack", "name": "bmc" }, "driver": "Redfish", "at": precise(milliseconds),
        "power": power, "identity": "Match", "said": "" })
}

/// An attempt whose devices were checked twice, with this result.
fn attempt(id: u32, act: &str, begun: i64, power: &str) -> Value {
    json!({ "id": id, "act": act, "level": 0, "devices": [{ "namespace": "rack", "name": "bmc" }], "at": precise(begun),
        "withinSeconds": 20, "by": "pod-safety-0_1", "outcome": "accepted",
        "verified": { "power": power, "message": if power == "Unknown" { "bmc does not answer" } else { "" },
            "samples": [sample(begun + 2_000, power), sample(begun + 7_250, power)], "leaseRenewed": timestamp(10) } })
}

fn incarnation() -> Value {
    json!({ "name": "n", "uid": "uid-n", "bootID": BOOT })
}

/// The NodeFence `n-1`, created at second 70, in this phase.
fn fence(phase: &str, attempts: &[Value], conditions: &Value) -> objects::Obj {
    let trigger = json!({ "kind": "Detected", "reason": "no report for 60s" });
    named("n-1")
        .set("/metadata/creationTimestamp", json!(timestamp(70)))
        .set("/spec", json!({ "node": incarnation(), "policy": "p", "trigger": trigger }))
        .set(
            "/status",
            json!({ "phase": phase, "message": "m", "attempts": attempts, "conditions": conditions,
            "gates": [{ "name": "LargeOutage", "holds": false, "message": "" }] }),
        )
}

fn proof(name: &str, kind: &str, created: i64) -> objects::Obj {
    let samples = if kind == "Asserted" { json!([]) } else { json!([sample(77_000, "Off"), sample(82_250, "Off")]) };
    objects::evidence(name, "n", BOOT, kind)
        .set("/metadata/creationTimestamp", json!(timestamp(created)))
        .set("/spec/samples", samples)
        .set("/spec/leaseRenewed", json!(timestamp(10)))
}

fn pod_key() -> PodKey {
    PodKey { namespace: "shop".into(), name: "db-0".into(), uid: uid("uid-of-the-first") }
}

fn release() -> Release {
    let node: Arc<str> = "n".into();
    Release { at: moment(84_500), pod: pod_key(), node, message: "node n was switched off".to_owned() }
}

fn successor() -> Successor {
    let (uid, node) = ("uid-of-the-second".to_owned(), "m".to_owned());
    Successor { predecessor: pod_key(), uid, node, created: moment(85_000), ready: moment(99_000) }
}

/// While `n` is lost: proved off, and tainted.
fn lost() -> World {
    let world = World::listed();
    world.put(Kind::NodeLeases, objects::lease("n", 10), at(10));
    let taint = json!([{ "key": "node.kubernetes.io/out-of-service", "value": "n-1", "effect": "NoExecute",
        "timeAdded": timestamp(86) }]);
    world.put(Kind::Nodes, node(BOOT, "Unknown", 60).set("/spec/taints", taint), at(60));
    world.put(Kind::NodeFences, fence("Fenced", &[attempt(1, "off", 75_000, "Off")], &json!([])), at(90));
    world.put(Kind::FenceEvidences, proof("e", "PowerOff", 83), at(90));
    world
}

/// When `n` has returned.
fn back(world: &World) {
    world.put(Kind::Nodes, node(NEXT_BOOT, "True", 200), at(200));
    let done = json!([{ "type": "Recovered", "status": "True", "reason": "NodeReturned", "message": "",
        "lastTransitionTime": timestamp(205) }]);
    let attempts = [attempt(1, "off", 75_000, "Off"), attempt(2, "on", 110_000, "On")];
    world.put(Kind::NodeFences, fence("Done", &attempts, &done), at(205));
}

/// The spans of the only incident.
fn spans_of(world: &World, releases: &[Release], successors: &[Successor]) -> Vec<Span> {
    let guard = world.read();
    let incidents = Incident::collect(&guard.view(), releases, successors);
    assert_eq!(incidents.len(), 1, "{incidents:#?}");
    spans(&incidents[0])
}
