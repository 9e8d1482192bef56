//! The effect of planted bugs on evictions by taint: timers by name, times that begin when the taint is first seen, no
//! check when a timer fires.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tower::BoxError;

use super::planted::request;
use super::seam::{Answer, Parts, Seam, refused, whole};
use super::{number_at, str_at};
use crate::campaign::Plant;

fn no_execute(node: &Value) -> Vec<&Value> {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
    taints.filter(|taint| str_at(taint, "/effect") == "NoExecute").collect()
}

fn is_alive(pod: &Value) -> bool {
    pod.pointer("/metadata/deletionTimestamp").is_none()
        && !matches!(str_at(pod, "/status/phase"), "Failed" | "Succeeded")
}

/// For how long upstream's timer for this pod runs; `None`: there is none.
fn timer(pod: &Value, taints: &[&Value]) -> Option<Duration> {
    let tolerations = pod.pointer("/spec/tolerations").and_then(Value::as_array);
    let of = |taint: &&Value| {
        let matches = |one: &&Value| str_at(one, "/key").is_empty() || str_at(one, "/key") == str_at(taint, "/key");
        tolerations.into_iter().flatten().find(matches).map_or(Some(0), |one| number_at(one, "/tolerationSeconds"))
    };
    let seconds = taints.iter().filter_map(of).min()?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Removes the times of taints from a node, or from a list of nodes.
fn forget_times(object: &mut Value) {
    for taint in object.pointer_mut("/spec/taints").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(taint) = taint.as_object_mut() {
            taint.remove("timeAdded");
        }
    }
    object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(forget_times);
}

impl Parts {
    fn is_about(&self, resource: &str) -> bool {
        self.path().starts_with("/api/v1/") && self.path().split('/').any(|part| part == resource)
    }

    /// The read of one node.
    pub(super) fn reads_a_node(&self) -> bool {
        self.method == Method::GET && self.is_evidence() && self.is_about("nodes")
    }

    /// A request that evicts a pod because of a taint: its condition, or its deletion.
    fn ends_for_a_taint(&self) -> bool {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        match self.method {
            Method::PATCH => {
                self.path().ends_with("/status") && body.to_string().contains("\"reason\":\"DeletionByTaintManager\"")
            }
            Method::DELETE => number_at(&body, "/gracePeriodSeconds").is_some_and(|grace| grace > 0),
            _ => false,
        }
    }
}

impl Seam {
    /// The answer of a planted bug in place of the API server.
    pub(super) fn answered_by_plant(&self, parts: &Parts) -> Option<Result<Answer, BoxError>> {
        match self.plant {
            Some(Plant::NoSecondLook) if parts.reads_a_node() => {
                let name = parts.path().rsplit('/').next().unwrap_or_default();
                let replica = self.world.replicas.get(self.index)?;
                let server = self.world.servers.get(replica.server())?;
                let cached = server.cached_that("Node", |node| str_at(node, "/metadata/name") == name);
                // A missing node is left to the rules of other evidence.
                cached.first().map(|node| whole(200, node.to_string().into()))
            }
            Some(Plant::GivesUp) if parts.ends_for_a_taint() => {
                self.memory.lock().contains_key(parts.path().trim_end_matches("/status")).then(|| refused(404))
            }
            Some(Plant::RememberedReads) if parts.reads_a_node() => {
                let remembered = self.memory.lock().get(&parts.target).cloned();
                remembered.map(|(code, body)| whole(code, body))
            }
            Some(Plant::HeldKeepPlaces) if self.begins_beside_another(parts) => {
                self.hold_for_concurrency(parts.clone());
                Some(refused(409))
            }
            Some(Plant::UntaintsLast) if self.untaints_before_pods_end(parts) => Some(refused(409)),
            Some(Plant::NeverForgets) if parts.forgets_a_volume() => Some(refused(404)),
            _ => None,
        }
    }

    /// The effect of a planted bug on an answer about nodes, or on one that failed.
    pub(super) async fn after_taints(
        &self,
        parts: &Parts,
        answer: Result<Answer, BoxError>,
    ) -> Result<Answer, BoxError> {
        match self.plant {
            Some(Plant::CountsFromFirstSight) if parts.is_about("nodes") && !parts.is_watch() => {
                use http_body_util::BodyExt;
                let answer = answer?;
                let code = answer.status().as_u16();
                let body = answer.into_body().collect().await?.to_bytes();
                let Ok(mut object) = serde_json::from_slice::<Value>(&body) else { return whole(code, body) };
                forget_times(&mut object);
                whole(code, object.to_string().into())
            }
            Some(Plant::GivesUp) if parts.ends_for_a_taint() => {
                let failed = answer.as_ref().map_or(true, |answer| !answer.status().is_success());
                if failed {
                    let path = parts.path().trim_end_matches("/status").to_owned();
                    self.memory.lock().insert(path, (404, Bytes::new()));
                }
                answer
            }
            _ => answer,
        }
    }

    /// The effect of a planted bug on an event of a watch.
    pub(super) fn changed_taints(&self, event: Bytes) -> Bytes {
        let Ok(mut told) = serde_json::from_slice::<Value>(&event) else { return event };
        match self.plant {
            Some(Plant::CountsFromFirstSight) => {
                told.get_mut("object").into_iter().for_each(forget_times);
                Bytes::from(told.to_string() + "\n")
            }
            Some(Plant::TimersStay) => {
                self.remember_tolerations(&mut told);
                Bytes::from(told.to_string() + "\n")
            }
            Some(plant @ (Plant::TimersByName | Plant::SeveralTaintsEndAll)) => {
                if str_at(&told, "/object/kind") == "Node" && self.leads() {
                    self.act_on_node(plant, &told["object"]);
                }
                event
            }
            _ => event,
        }
    }

    pub(super) fn leads(&self) -> bool {
        self.world.replicas.get(self.index).is_some_and(super::replica::Replica::leads)
    }

    /// Gives a pod the tolerations that it had when it was first seen on its node.
    fn remember_tolerations(&self, pod: &mut Value) {
        let Some(spec) = pod.pointer_mut("/object/spec").and_then(Value::as_object_mut) else { return };
        let bound = spec.get("nodeName").and_then(Value::as_str).is_some_and(|node| !node.is_empty());
        let Some(tolerations) = spec.get("tolerations").map(|all| Bytes::from(all.to_string())) else {
            return;
        };
        if !bound {
            return;
        }
        let uid = str_at(pod, "/object/metadata/uid").to_owned();
        let remembered = self.memory.lock().entry(uid).or_insert((0, tolerations)).1.clone();
        if let Some(place) = pod.pointer_mut("/object/spec/tolerations") {
            *place = serde_json::from_slice(&remembered).unwrap_or_default();
        }
    }

    fn act_on_node(&self, plant: Plant, node: &Value) {
        let (taints, name) = (no_execute(node), str_at(node, "/metadata/name").to_owned());
        if taints.is_empty() || (plant == Plant::SeveralTaintsEndAll && taints.len() < 2) {
            return;
        }
        let on = self.world.etcd.objects_that("Pod", |pod| str_at(pod, "/spec/nodeName") == name && is_alive(pod));
        for pod in on {
            let span = if plant == Plant::TimersByName { timer(&pod, &taints) } else { Some(Duration::ZERO) };
            let Some(span) = span.filter(|span| plant != Plant::TimersByName || !span.is_zero()) else {
                continue;
            };
            let (seam, node) = (self.clone(), name.clone());
            self.aside(Box::pin(async move { seam.fires(&pod, &node, span).await }));
        }
    }

    /// The timer of a pod fires: any pod with its name is deleted, unless the taint was removed.
    async fn fires(&self, pod: &Arc<Value>, node: &str, after: Duration) {
        tokio::time::sleep(after).await;
        let name = str_at(pod, "/metadata/name");
        let tainted = self.world.etcd.object("Node", node).is_some_and(|node| !no_execute(&node).is_empty());
        let there = self.world.etcd.object("Pod", &format!("default/{name}"));
        let Some(there) = there.filter(|there| tainted && is_alive(there) && self.leads()) else { return };
        let read = request(Method::GET, format!("/api/v1/nodes/{node}"), &Value::Null);
        drop(self.send(read).await);
        let meta = |field: &str| str_at(&there, &format!("/metadata/{field}")).to_owned();
        let condition = json!({ "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager" });
        let mark = json!({ "metadata": { "uid": meta("uid"), "resourceVersion": meta("resourceVersion") },
            "status": { "conditions": [condition] } });
        self.write_to(pod, Method::PATCH, "/status", &mark).await;
        let Some(there) = self.world.etcd.object("Pod", &format!("default/{name}")) else { return };
        let meta = |field: &str| str_at(&there, &format!("/metadata/{field}")).to_owned();
        let grace = number_at(&there, "/spec/terminationGracePeriodSeconds").unwrap_or(30);
        let end = json!({ "gracePeriodSeconds": grace,
            "preconditions": { "uid": meta("uid"), "resourceVersion": meta("resourceVersion") } });
        self.write_to(pod, Method::DELETE, "", &end).await;
    }
}
