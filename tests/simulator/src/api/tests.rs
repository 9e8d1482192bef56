//! The rules of the API as sentences, one for each row of what was measured.

#![expect(clippy::disallowed_methods, reason = "clients of the simulated server are asked directly")]

use std::sync::Arc;

use futures::StreamExt;
use http::Method;
use serde_json::{Value, json};

use super::reply::Reply;
use super::{
    ApiRequest, ApiServer, Conduct, Course, Etcd, Fate, Following, Kind, Prompt, Reach, Transport, parse_event,
};
use crate::chance::Chance;
use crate::paused;

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";

/// A cluster of one server.
struct Cluster {
    etcd: Arc<Etcd>,
    server: Arc<ApiServer>,
}

impl Cluster {
    fn new() -> Self {
        Self::with(Arc::new(Prompt))
    }

    /// With the running pod `a`.
    fn with_pod() -> Self {
        let cluster = Self::new();
        cluster.pod("a");
        cluster
    }

    fn with(conduct: Arc<dyn Conduct>) -> Self {
        let env = paused::env(1);
        let custom = [Kind::custom("nodefences", "NodeFence", false)];
        let etcd = Etcd::new(Chance::new(7), &custom, env.clock.wall());
        let server = ApiServer::start("api", &etcd, env, conduct);
        Self { etcd, server }
    }

    fn handle(&self, asked: &ApiRequest) -> (u16, Value) {
        match self.server.handle(asked) {
            Reply::Whole { code, body, .. } => (code, serde_json::from_slice(&body).unwrap_or(Value::Null)),
            Reply::Stream { .. } => panic!("{asked:?} opens a watch"),
        }
    }

    fn get(&self, target: &str) -> (u16, Value) {
        self.handle(&ApiRequest::new("t", Method::GET, target))
    }

    fn send(&self, method: Method, target: &str, body: &Value) -> (u16, Value) {
        self.handle(&ApiRequest::new("t", method, target).with_body("application/json", body.to_string()))
    }

    fn patch(&self, target: &str, media: &str, body: &Value) -> (u16, Value) {
        self.handle(&ApiRequest::new("t", Method::PATCH, target).with_body(media, body.to_string()))
    }

    fn delete(&self, target: &str, options: &Value) -> (u16, Value) {
        self.send(Method::DELETE, target, options)
    }

    /// A running pod bound to a node.
    fn pod(&self, name: &str) -> Value {
        let pod = json!({ "metadata": { "name": name, "labels": { "app": "x" } },
            "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "i" }] } });
        assert_eq!(self.send(Method::POST, PODS, &pod).0, 201);
        self.phase(name, "Running").1
    }

    fn phase(&self, name: &str, phase: &str) -> (u16, Value) {
        self.patch(&format!("{PODS}/{name}/status"), MERGE, &json!({ "status": { "phase": phase } }))
    }

    /// What a watch brings before it would wait.
    fn watch(&self, target: &str) -> Vec<(String, Value)> {
        match self.server.handle(&ApiRequest::new("t", Method::GET, target)) {
            Reply::Whole { code, body, .. } => panic!("{target} is answered {code} {body:?}"),
            reply @ Reply::Stream { .. } => {
                let (_, mut stream) = reply.into_parts();
                let mut events = Vec::new();
                while let Some(Some(part)) = futures::FutureExt::now_or_never(stream.next()) {
                    events.extend(parse_event(&part.unwrap()));
                }
                events
            }
        }
    }
}

fn rv(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn reason(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["reason"].as_str().unwrap_or_default())
}

mod lifecycle;
mod restricting;
mod serving;
mod watching;
mod writing;
