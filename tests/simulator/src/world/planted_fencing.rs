//! The effect of planted bugs on fencing: timers or missing reports that count as evidence, power pulses instead of a
//! desired state, one status check instead of two, acts before they are recorded, deletions by name.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Method;
use pod_safety_shared::transport::{Act, Answer, DeviceError, Identity, Order, Power};
use serde_json::{Value, json};

use super::devices::{Device, Wire};
use super::kcm_nodes::ready;
use super::planted::{edit, request};
use super::provider::is_not_found;
use super::seam::{Parts, Seam};
use super::str_at;
use crate::campaign::Plant;

/// How long after an order to switch off a bug assumes that the machine is off.
const ASSUMED_AFTER: Duration = Duration::from_secs(20);
/// How long a bug reuses a status check: longer than the time between two of them.
const REMEMBERED: Duration = Duration::from_secs(8);
/// The time limit of an order by a bug that does not record the attempt first.
const WITHIN: Duration = Duration::from_secs(20);

/// The taint on which kube-controller-manager ends pods.
const TAINT: &str = "node.kubernetes.io/out-of-service";

type DeviceCall = BoxFuture<'static, Result<Answer, DeviceError>>;

/// The answer that the bug needs.
fn is_off() -> Answer {
    Answer::new(Power::Off, Identity::Match, String::new())
}

impl Wire {
    /// Whether a planted bug ignores an answer at the port of a node that is not Ready.
    pub(super) fn is_deaf_to(&self, node: &str) -> bool {
        let lost = || self.world.etcd.object("Node", node).is_some_and(|object| ready(&object) != "True");
        self.plant == Some(Plant::DeafToKubelets) && lost()
    }

    /// The effect of a planted bug on an order.
    pub(super) fn execute_order(&self, device: Arc<Device>, order: Order) -> DeviceCall {
        let Some(plant) = self.plant else { return self.asks_as_meant(device, order) };
        let (now, node) = (self.world.checker.now(), order.machine.node.to_string());
        let remembered = self.memory.lock().get(&node).cloned();
        match (plant, order.act) {
            (Plant::TimerIsProof, Act::Off) => {
                self.memory.lock().entry(node).or_insert((now, is_off()));
                self.asks_as_meant(device, order)
            }
            (Plant::TimerIsProof, Act::Look)
                if remembered.as_ref().is_some_and(|(told, _)| *told + ASSUMED_AFTER < now) =>
            {
                Box::pin(async { Ok(is_off()) })
            }
            (Plant::SilenceIsProof, Act::Look) => {
                let object = self.world.etcd.object("Node", &node);
                if object.is_some_and(|object| ready(&object) != "True") {
                    return Box::pin(async { Ok(is_off()) });
                }
                self.asks_as_meant(device, order)
            }
            (Plant::OneLook, Act::Look) => {
                if let Some((_, answer)) = remembered.filter(|(at, _)| now < *at + REMEMBERED) {
                    return Box::pin(async { Ok(answer) });
                }
                let (asked, memory) = (self.asks_as_meant(device, order), Arc::clone(&self.memory));
                Box::pin(async move {
                    let answer = asked.await?;
                    memory.lock().insert(node, (now, answer.clone()));
                    Ok(answer)
                })
            }
            (Plant::StoppingIsStopped | Plant::NotFoundIsGone, Act::Look) => {
                let asked = self.asks_as_meant(device, order);
                Box::pin(async move {
                    match (plant, asked.await) {
                        (Plant::StoppingIsStopped, Ok(answer)) if answer.power == Power::Unknown => {
                            Ok(Answer { power: Power::Off, ..answer })
                        }
                        (Plant::NotFoundIsGone, Err(error)) if is_not_found(&error) => {
                            Ok(Answer::new(Power::Gone, Identity::Unknown, String::new()))
                        }
                        (_, answer) => answer,
                    }
                })
            }
            (Plant::Reboots, Act::Off) => {
                let on = Order { act: Act::On, ..order.clone() };
                let (off, on) = (self.asks_as_meant(Arc::clone(&device), order), self.asks_as_meant(device, on));
                Box::pin(async move {
                    let answer = off.await;
                    drop(on.await);
                    answer
                })
            }
            _ => self.asks_as_meant(device, order),
        }
    }
}

impl Seam {
    /// The effect of a planted bug when an event of an incident arrives.
    pub(super) fn on_fence_event(&self, event: &Bytes) {
        let Some(plant @ (Plant::ActsFirst | Plant::ReleasesByName)) = self.plant else { return };
        let incident: Value = serde_json::from_slice(event).unwrap_or_default();
        if str_at(&incident, "/object/kind") != "NodeFence" || !self.leads() {
            return;
        }
        let node = str_at(&incident, "/object/spec/node/name").to_owned();
        match (plant, str_at(&incident, "/object/status/phase")) {
            (Plant::ActsFirst, "" | "Pending") => {
                let seam = self.clone();
                self.aside(Box::pin(async move { seam.send_off_order(&node).await }));
            }
            (Plant::ReleasesByName, "Fenced") => {
                let seam = self.clone();
                self.aside(Box::pin(async move { seam.removes_all_of(&node).await }));
            }
            _ => {}
        }
    }

    /// Whether a write begins an incident while another one is in `Fencing`.
    pub(super) fn begins_beside_another(&self, parts: &Parts) -> bool {
        let body: Value = serde_json::from_slice(&parts.body).unwrap_or_default();
        let Some(name) = parts.path().trim_end_matches("/status").split("/nodefences/").nth(1) else { return false };
        let phase = |fence: &Value| str_at(fence, "/status/phase").to_owned();
        let pending = self.world.etcd.object("NodeFence", name).is_some_and(|own| phase(&own) != "Fencing");
        let others = |other: &Value| str_at(other, "/metadata/name") != name && phase(other) == "Fencing";
        phase(&body) == "Fencing" && pending && !self.world.etcd.objects_that("NodeFence", others).is_empty()
    }

    /// Shows the hold in place of the attempt.
    pub(super) fn hold_for_concurrency(&self, mut attempt: Parts) {
        let message = "nodes being fenced: 1";
        let gates = json!([{ "name": "Concurrency", "holds": true, "message": message }]);
        edit(&mut attempt, |body| body["status"] = json!({ "phase": "Pending", "gates": gates, "message": message }));
        let seam = self.clone();
        self.aside(Box::pin(async move { seam.send_as_meant(attempt).await }));
    }

    /// Whether a write removes the out-of-service taint from a node on which a pod terminates.
    pub(super) fn untaints_before_pods_end(&self, parts: &Parts) -> bool {
        let Some(name) = parts.path().strip_prefix("/api/v1/nodes/").filter(|_| parts.method == Method::PATCH) else {
            return false;
        };
        let body: Value = serde_json::from_slice(&parts.body).unwrap_or_default();
        let tainted = |node: &Value| node.pointer("/spec/taints").is_some_and(|all| all.to_string().contains(TAINT));
        let removes = body.pointer("/spec/taints").is_some() && !tainted(&body);
        let waits =
            |pod: &Value| str_at(pod, "/spec/nodeName") == name && pod.pointer("/metadata/deletionTimestamp").is_some();
        removes
            && self.world.etcd.object("Node", name).is_some_and(|node| tainted(&node))
            && !self.world.etcd.objects_that("Pod", waits).is_empty()
    }

    async fn send_off_order(&self, node: &str) {
        let device = self.world.devices.lock().iter().find(|device| self.world.node(device.node()) == node).cloned();
        let Some(device) = device else { return };
        let machine = pod_safety_shared::transport::Machine { node: node.into(), ..Default::default() };
        let order = Order {
            driver: pod_safety_shared::transport::Driver::Redfish,
            parameters: std::collections::BTreeMap::new(),
            machine,
            act: Act::Off,
            within: WITHIN,
        };
        drop(device.carry_out(Arc::clone(&self.world), self.caller.clone(), order).await);
    }

    /// Deletes the pods by name, whichever pods have the names now.
    async fn removes_all_of(&self, node: &str) {
        for pod in self.world.etcd.objects_that("Pod", |pod| str_at(pod, "/spec/nodeName") == node) {
            let name = str_at(&pod, "/metadata/name");
            let target = format!("/api/v1/namespaces/default/pods/{name}");
            self.send_as_meant(request(Method::DELETE, target, &json!({ "gracePeriodSeconds": 0 }))).await;
        }
    }
}
