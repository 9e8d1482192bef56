//! Sentences about decisions: the objects in the API, and what is written.

use pod_safety_shared::authority::{
    ConditionChange, ConditionChanges, EvictionChange, EvictionUpdate, Intent, StatusChange, Update,
};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{EvictionTarget, Kind, LOST_NODE_RESPONDER};
use pod_safety_shared::testing::objects::{
    BOOT, Obj, START_SECONDS, budget, eviction, eviction_request, named, node, pod, timestamp, uid,
};
use pod_safety_shared::testing::{World, at, hold_reasons as held};
use serde_json::{Value, json};

use super::*;

mod clocks;
mod events;
mod evictor;
mod lost_node;
mod model;
#[path = "../../../tests/simulator/src/api/kinds/eviction_status.rs"]
mod port;
mod progress;
mod requests;
mod validation;

const EVICTOR: &str = "imperative-eviction.k8s.io/evictor";
const APP: &str = "example.com/app";

/// The pod of all these tests.
pub(super) fn target() -> EvictionTarget {
    EvictionTarget { namespace: "ns".into(), uid: uid("uid-p") }
}

/// A cluster with these objects, whose wall clock is right. The process begins when the last heartbeat is written.
fn world(objects: &[(Kind, Obj)]) -> World {
    let world = World::listed();
    world.set_wall_time(START_SECONDS, at(0));
    for (kind, object) in objects {
        world.apply(*kind, object, at(last_heartbeat(object)));
    }
    world
}

/// The second of the last heartbeat in an Eviction; zero: there is none.
fn last_heartbeat(object: &Obj) -> u64 {
    let reports = object.0["status"]["responders"].as_array();
    let heartbeats = reports.into_iter().flatten().filter_map(|report| report["heartbeatTime"].as_str());
    let second = |heartbeat: &str| heartbeat.parse::<jiff::Timestamp>().unwrap().as_second() - START_SECONDS;
    heartbeats.map(|heartbeat| second(heartbeat).try_into().unwrap()).max().unwrap_or(0)
}

/// Objects of a cluster.
type Objects = Vec<(Kind, Obj)>;

fn request_object() -> (Kind, Obj) {
    (Kind::EvictionRequests, eviction_request("r", "p", "example.com/asks"))
}

fn running_pod() -> (Kind, Obj) {
    (Kind::Pods, pod("p"))
}

/// An active Eviction of the pod, whose first responder is active since the test began; its metadata and requesters
/// are as they should be.
fn active_eviction(responders: &[(&str, i32, &str)]) -> Obj {
    let mut labels = json!({ "app.kubernetes.io/managed-by": "pod-safety", "example.com/asks": "requester" });
    for (name, ..) in responders {
        labels[*name] = json!("responder");
    }
    let owner =
        json!([{ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest", "name": "r", "uid": "uid-r" }]);
    let requesters = json!([{ "name": "example.com/asks", "intent": "Eviction" }]);
    eviction("pod-1-p", "p")
        .responders(responders)
        .labels(labels)
        .set("/metadata/ownerReferences", owner)
        .set("/status/observedGeneration", json!(1))
        .set("/status/requesters", requesters)
        .modify(|object| {
            object["status"]["conditions"] = json!([]);
        })
        .verdict("Failed", "False", "AwaitingEviction")
        .verdict("TargetEvicted", "False", "AwaitingEviction")
}

/// Sets this field in the entry of a responder.
fn reports(eviction: Obj, number: usize, field: &str, value: &Value) -> Obj {
    eviction.set(&format!("/status/responders/{number}/{field}"), value.clone())
}

fn decide_at(world: &World, seconds: u64) -> Decision {
    decide_by_clock(world, seconds, 0)
}

/// The clock of this process is `ahead` seconds ahead.
fn decide_by_clock(world: &World, seconds: u64, ahead: i64) -> Decision {
    world.confirm_all(at(seconds));
    world.set_wall_time(START_SECONDS + i64::try_from(seconds).unwrap() + ahead, at(seconds));
    decide(&Key::Target(target()), &world.read().view(), at(seconds))
}

fn describe_stated(stated: &ConditionChange) -> String {
    let message = if stated.message.is_empty() { String::new() } else { format!(" ({})", stated.message) };
    format!("{}/{}{message}", if stated.is_true { "True" } else { "False" }, stated.reason)
}

fn describe_outcome(stand: &ConditionChanges) -> String {
    format!("Failed={} TargetEvicted={}", describe_stated(&stand.failed), describe_stated(&stand.evicted))
}

fn status(change: &StatusChange) -> String {
    let StatusChange { responders, states, starts, requesters, dropped, conditions: stand, check, observed: _ } =
        change;
    let mut parts = Vec::new();
    if !responders.is_empty() {
        let names: Vec<String> = responders.iter().map(|(name, priority)| format!("{name} {priority}")).collect();
        parts.push(format!("responders {}", names.join(", ")));
    }
    parts.extend(states.iter().map(|(name, state)| format!("{name} {}", state.name())));
    parts.extend(starts.iter().map(|name| format!("{name} starts")));
    parts.extend(requesters.iter().map(|one| format!("{} asks for {}", one.name, one.intent.name())));
    parts.extend(dropped.iter().map(|name| format!("without {name}")));
    parts.extend(stand.iter().map(describe_outcome));
    if *check != Default::default() {
        parts.push(format!("if {check:?}"));
    }
    parts.join("; ")
}

/// The writes of a decision, in one line each.
fn describe(decision: &Decision) -> Vec<String> {
    let word = |intent: &Intent| {
        let Intent::Update(Update::Eviction(update)) = intent else { return "another's".to_owned() };
        let EvictionUpdate { name, change, .. } = &**update;
        match change {
            EvictionChange::Request { observed, conditions: stand } => {
                format!("{name} at {observed}: {}", stand.as_deref().map_or("as before".to_owned(), describe_outcome))
            }
            EvictionChange::Refuse { observed, .. } => format!("{name} at {observed}: refused"),
            EvictionChange::Create { number, owners, labels } => {
                let labels: Vec<String> = labels.iter().map(|(key, role)| format!("{key}={}", role.name())).collect();
                let owners: Vec<&str> = owners.iter().map(|owner| &*owner.name).collect();
                format!("create {number} of {} with {}", owners.join(", "), labels.join(", "))
            }
            EvictionChange::Mark { owners, labels } => {
                let label = |(key, role): &(Box<str>, Option<_>)| {
                    let role: Option<pod_safety_shared::model::EvictionRole> = *role;
                    format!("{key}={}", role.map_or("-", |role| role.name()))
                };
                let labels: Vec<String> = labels.iter().map(label).collect();
                let owners: Vec<&str> = owners.iter().map(|owner| &*owner.name).collect();
                format!("mark {name}: {} {}", owners.join(", "), labels.join(", ")).trim_end().to_owned()
            }
            EvictionChange::Status(change) => format!("{name}: {}", status(change)),
            EvictionChange::Report(made) => {
                let done = if made.complete { " and is done" } else { "" };
                format!("{name}: {} says {:?}{done}", made.responder, made.message)
            }
            EvictionChange::Evict { attempt, .. } => format!("evict, attempt {attempt}"),
            EvictionChange::Collect => format!("collect {name}"),
        }
    };
    decision.intents.iter().map(word).collect()
}
