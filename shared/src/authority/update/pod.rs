//! The conditions of a pod.

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::node::{NODE_NOT_READY, NodeChanges};
use super::super::outcome::UpdateOutcome;
use super::super::priority::PriorityLevel;
use super::super::status_write::{Records, StatusWrite, UpdateTurn, WriteTarget, Written, patch, send};
use crate::client::Call;
use crate::events::{Event, EventType, InvolvedObject};
use crate::model::{NODE_UNREACHABLE_CONDITION, PodKey, Rv};
use crate::record::LogEvent;

/// Conditions of a pod whose node is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostNodePodUpdate {
    /// The pod.
    pub pod: PodKey,
    /// The version that the controller saw.
    pub rv: Rv,
    /// Its generation, which the conditions name.
    pub generation: i64,
    /// Set the Ready condition to False.
    pub not_ready: bool,
    /// The status of the condition `pod-safety.dev/NodeUnreachable`; `None`: it stays.
    pub unreachable: Option<bool>,
}

impl StatusWrite for LostNodePodUpdate {
    fn target(&self) -> WriteTarget<'_> {
        WriteTarget { uid: &self.pod.uid, rv: self.rv, flow: &self.pod.namespace }
    }

    fn level(&self) -> PriorityLevel {
        PriorityLevel::PodOfLostNode
    }

    fn write<'a>(&'a self, turn: UpdateTurn<'a, '_>) -> BoxFuture<'a, Written> {
        let wall = turn.writer.env.clock.wall();
        let ready = self.not_ready.then(|| not_ready(self.generation, wall));
        let node_condition = self.unreachable.map(|unreachable| node_unreachable(unreachable, self.generation, wall));
        let conditions: Vec<Value> = ready.into_iter().chain(node_condition).collect();
        send(turn, self.rv, pod_call(&self.pod, self.target(), &conditions))
    }

    fn log_written(&self, controller: &'static str) {
        let Self { pod, not_ready, unreachable, .. } = self;
        tracing::debug!(controller, uid = %pod.uid, %pod, not_ready, unreachable, "conditions of a pod written, because its node is not ready, or is ready again");
    }

    fn record(&self, records: &Records<'_>, outcome: &UpdateOutcome, _: &NodeChanges, _: &'static str) {
        if self.not_ready && matches!(outcome, UpdateOutcome::Written) {
            let (reporter, reason) = NODE_NOT_READY;
            let (object, message) = (InvolvedObject::Pod(self.pod.clone()), "Node is not ready".to_owned());
            records.events.record(Event::new(reporter, object, EventType::Warning, reason, message));
        }
    }
}

/// The condition `DisruptionTarget` of a pod becomes False, because the pod is not deleted after all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotDisruptedUpdate {
    /// The pod.
    pub pod: PodKey,
    /// The version that the controller saw.
    pub rv: Rv,
    /// Its generation, which the condition names.
    pub generation: i64,
}

impl StatusWrite for NotDisruptedUpdate {
    fn target(&self) -> WriteTarget<'_> {
        WriteTarget { uid: &self.pod.uid, rv: self.rv, flow: &self.pod.namespace }
    }

    fn write<'a>(&'a self, turn: UpdateTurn<'a, '_>) -> BoxFuture<'a, Written> {
        let condition = not_disrupted(self.generation, turn.writer.env.clock.wall());
        send(turn, self.rv, pod_call(&self.pod, self.target(), &[condition]))
    }

    fn log_written(&self, controller: &'static str) {
        let pod = &self.pod;
        tracing::info!(event = LogEvent::DisruptionTargetCleared.name(), controller, uid = %pod.uid, %pod, "the pod was not disrupted after all: its condition DisruptionTarget is False");
    }
}

/// A strategic merge patch: other conditions stay, and so do fields of these conditions that it does not name.
fn pod_call(pod: &PodKey, target: WriteTarget<'_>, conditions: &[Value]) -> Call {
    let path = format!("/api/v1/namespaces/{}/pods/{}/status", pod.namespace, pod.name);
    patch(path, target, json!({ "conditions": conditions }))
}

fn not_disrupted(generation: i64, wall: Timestamp) -> Value {
    json!({
        "type": "DisruptionTarget",
        "status": "False",
        "reason": null,
        "message": null,
        "observedGeneration": generation,
        "lastTransitionTime": format!("{wall:.0}"),
    })
}

/// As kube-controller-manager writes it: reason and message stay, because they are the kubelet's last report.
fn not_ready(generation: i64, wall: Timestamp) -> Value {
    json!({
        "type": "Ready",
        "status": "False",
        "observedGeneration": generation,
        "lastTransitionTime": format!("{wall:.0}"),
    })
}

/// The condition [`NODE_UNREACHABLE_CONDITION`], for operators.
fn node_unreachable(unreachable: bool, generation: i64, wall: Timestamp) -> Value {
    let (status, reason, message) = if unreachable {
        let message = "the pod is terminating, but its node is unreachable, so it is not known whether the pod still runs. It is removed when the node reports again, when the node is fenced with proof, or when its Node object is deleted after someone has made sure that the machine is off";
        ("True", "KubeletNotReporting", message)
    } else {
        ("False", "KubeletReporting", "the kubelet of its node reports again")
    };
    json!({
        "type": NODE_UNREACHABLE_CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": format!("{wall:.0}"),
    })
}
