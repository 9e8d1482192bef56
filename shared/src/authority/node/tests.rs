//! A node is read, compared and written, request by request.

mod not_reporting;
mod outcomes;
mod taints;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pod_safety_leader::send::WriteContext;
use serde_json::{Value, json};

use super::*;
use crate::client::scripted::{Answer, Api, Received, advance, env};
use crate::lease::Leadership;
use crate::model::{
    Kind, NOT_READY_TAINT as NOT_READY, OUT_OF_SERVICE_TAINT as OFF, UNREACHABLE_TAINT as UNREACHABLE, Uid,
};
use crate::testing::World;
use crate::testing::objects::{Obj, lease};

const GET: &str = "GET /api/v1/nodes/n";
const LEASE: &str = "GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n";
const STATUS: &str = "PATCH /api/v1/nodes/n/status";
const REST: &str = "PATCH /api/v1/nodes/n";

fn condition(kind: &str, status: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": "Kubelet", "message": "fine",
        "lastHeartbeatTime": "2026-11-21T11:58:00Z", "lastTransitionTime": "2026-11-20T00:00:00Z",
    })
}

/// A node at version 5 whose kubelet reported that all is well.
fn well() -> Obj {
    let kinds = ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"];
    let mut conditions: Vec<_> = kinds.map(|kind| condition(kind, "False")).into();
    conditions.push(condition("Ready", "True"));
    Obj(json!({
        "metadata": { "name": "n", "uid": "uid-n", "resourceVersion": "5", "labels": { "a": "b" },
            "creationTimestamp": "2026-11-01T00:00:00Z" },
        "spec": { "providerID": "cloud://n" },
        "status": { "conditions": conditions },
    }))
}

/// A node whose conditions are Unknown.
fn unknown() -> Obj {
    well().set("/status/conditions", json!([condition("Ready", "Unknown")]))
}

fn renewed() -> Obj {
    lease("n", 7)
}

fn update() -> NodeUpdate {
    NodeUpdate {
        node: NodeKey { name: "n".into(), uid: Uid::new("uid-n").unwrap() },
        rv: "5".parse().unwrap(),
        not_reporting: None,
        unreachable: None,
        add: Vec::new(),
        remove: Vec::new(),
        labels: Vec::new(),
    }
}

fn not_reporting() -> NotReporting {
    NotReporting {
        last_report: Mono::default(),
        renewed: Some("2026-01-01T00:00:07Z".parse().unwrap()),
        heartbeat: Some("2026-11-21T11:58:00Z".parse().unwrap()),
        never_posted: false,
    }
}

/// The update that the controller requests for an unreachable node.
fn unreachable_update() -> NodeUpdate {
    NodeUpdate {
        not_reporting: Some(not_reporting()),
        unreachable: Some(true),
        add: vec![(UNREACHABLE, Effect::NoSchedule), (UNREACHABLE, Effect::NoExecute)],
        ..update()
    }
}

/// An API server that has one node and one Lease, and applies patches as the real one does.
#[derive(Clone)]
struct Server {
    node: Arc<Mutex<Value>>,
    lease: Option<Value>,
}

impl Server {
    fn with_node(node: &Obj) -> Self {
        Self { node: Arc::new(Mutex::new(node.0.clone())), lease: Some(renewed().0) }
    }

    fn answer(&self, request: &Received) -> Answer {
        let mut node = self.node.lock();
        if request.line() == LEASE {
            return self.lease.as_ref().map_or_else(Answer::not_found, Answer::json);
        }
        if request.method == "PATCH" {
            let patch = request.json();
            if patch["metadata"]["resourceVersion"] != node["metadata"]["resourceVersion"] {
                return Answer::status(409, "Conflict", "the object has been modified");
            }
            merge(&mut node, &patch);
            let version: u64 = node["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            node["metadata"]["resourceVersion"] = json!((version + 1).to_string());
        }
        Answer::json(&node)
    }
}

fn merge(node: &mut Value, patch: &Value) {
    if let Some(taints) = patch.pointer("/spec/taints") {
        node["spec"]["taints"] = taints.clone();
    }
    for (key, value) in patch["metadata"]["labels"].as_object().into_iter().flatten() {
        node["metadata"]["labels"][key] = value.clone();
    }
    for new in patch.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten() {
        let conditions = node.pointer_mut("/status/conditions").unwrap().as_array_mut().unwrap();
        match conditions.iter_mut().find(|old| old["type"] == new["type"]) {
            Some(old) => {
                for (field, value) in new.as_object().unwrap() {
                    old[field] = value.clone();
                }
            }
            None => conditions.push(new.clone()),
        }
    }
}

struct Tried {
    outcome: &'static str,
    done: NodeChanges,
    requests: Vec<Received>,
}

impl Tried {
    fn lines(&self) -> Vec<String> {
        self.requests.iter().map(Received::line).collect()
    }

    fn writes(&self) -> Vec<&Received> {
        self.requests.iter().filter(|request| request.method != "GET").collect()
    }
}

/// Executes `update` a minute after the start, at noon.
async fn tried_over(
    world: &World,
    update: &NodeUpdate,
    leads_for: f64,
    script: impl Fn(&Received) -> Answer + Send + Sync + 'static,
) -> Tried {
    let (env, _wall) = env();
    let api = Api::answering(&env, script);
    advance(60.0).await;
    let leadership = Leadership::for_tests(env.now() + Duration::from_secs_f64(leads_for));
    let (connection, cache) = (api.connection(), world.cache());
    let means = WriteContext { connection: &connection, cache, env: &env, leadership: &leadership };
    let (outcome, done) = write(&means, update).await;
    Tried { outcome: outcome.name(), done, requests: api.requests() }
}

async fn tried(update: &NodeUpdate, script: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Tried {
    tried_over(&World::listed(), update, 600.0, script).await
}

async fn served(update: &NodeUpdate, server: &Server) -> Tried {
    let server = server.clone();
    tried(update, move |request| server.answer(request)).await
}
