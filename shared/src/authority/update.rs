//! Status updates: what a controller calculated, written by compare-and-swap.
//!
//! Only `Revoke`, which takes a volume from its holder, needs evidence. No process terminates through the others: for
//! instance the numbers of a budget, or a condition that no longer holds. They need the leader's term and the version on which the calculation rests, so they never
//! overwrite the API server's own writes (an eviction that it allowed). Updates of nodes take more than one request: see
//! [`super::node`].

use jiff::Timestamp;
use pod_safety_leader::outcome::version_of;
use pod_safety_leader::send::WriteContext;
use pod_safety_proof::RevocationBasis;
use serde_json::{Map, Value, json};

use super::eviction::{self, EvictionUpdate};
use super::node::{self, NodeChanges, NodeUpdate};
use super::outcome::UpdateOutcome;
use super::verify::Verifier;
use super::volume::{self, VolumeChange, VolumeUpdate};
use crate::client::{Call, Method, WriteCall as _};
use crate::model::{BudgetKey, BudgetStatus, Kind, NODE_UNREACHABLE_CONDITION, PodKey, Rv, Uid};

/// A status that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// The status of a budget.
    Budget {
        /// The budget.
        budget: BudgetKey,
        /// The version on which the calculation rests.
        rv: Rv,
        /// The new status.
        status: Box<BudgetStatus>,
        /// The entries to remove from `disruptedPods`.
        over: Vec<Box<str>>,
        /// Whether the condition changes its status, and so its transition time.
        transition: bool,
    },
    /// Conditions, taints and labels of a node.
    Node(Box<NodeUpdate>),
    /// Conditions of a pod whose node is not ready.
    PodOfLostNode {
        /// The pod.
        pod: PodKey,
        /// The version that the controller saw.
        rv: Rv,
        /// Its generation, which the conditions name.
        generation: i64,
        /// Set the Ready condition to False.
        not_ready: bool,
        /// The status of the condition `pod-safety.dev/NodeUnreachable`; `None`: it stays.
        unreachable: Option<bool>,
    },
    /// Delete a NodeFence or FenceEvidence that is over and old.
    DeleteFinished(FinishedObject),
    /// Change the Lease of an exclusive volume.
    Volume(Box<VolumeUpdate>),
    /// Write an EvictionRequest or an Eviction.
    Eviction(Box<EvictionUpdate>),
    /// Remove pod-safety's scheduling gate from a pod whose exclusive volumes are free.
    Ungate {
        /// The pod.
        pod: PodKey,
        /// The version that the controller saw.
        rv: Rv,
        /// The host name of the node to which the pod is pinned, because its volume is there.
        pin: Option<std::sync::Arc<str>>,
    },
    /// Set the condition `DisruptionTarget` of a pod to False, because the pod is not deleted after all.
    NotDisrupted {
        /// The pod.
        pod: PodKey,
        /// The version that the controller saw.
        rv: Rv,
        /// Its generation, which the condition names.
        generation: i64,
    },
}

/// What an update rests on: a version, and for a revoked volume Lease the basis.
pub(super) type Basis = (Rv, Option<RevocationBasis>);

/// A NodeFence or FenceEvidence about an incarnation of a node, on which nothing rests any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedObject {
    /// [`Kind::NodeFences`] or [`Kind::FenceEvidences`].
    pub kind: Kind,
    /// The name of the node that it is about.
    pub node: std::sync::Arc<str>,
    /// Its name.
    pub name: std::sync::Arc<str>,
    /// Its UID.
    pub uid: Uid,
    /// The version that the controller saw. An object that changed since is not over.
    pub rv: Rv,
}

/// The kind of an update. Updates of one object are serialized, whichever controller requests them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UpdateKind {
    Budget,
    Node,
    PodOfLostNode,
    NotDisrupted,
    Volume,
    Eviction,
    Ungate,
    DeleteFinished,
}

impl Update {
    /// The UID of the object that is written.
    #[must_use]
    pub const fn uid(&self) -> &Uid {
        match self {
            Self::Budget { budget, .. } => &budget.uid,
            Self::Node(update) => &update.node.uid,
            Self::Volume(update) => &update.uid,
            Self::Eviction(update) => &update.uid,
            Self::DeleteFinished(object) => &object.uid,
            Self::PodOfLostNode { pod, .. } | Self::NotDisrupted { pod, .. } | Self::Ungate { pod, .. } => &pod.uid,
        }
    }

    /// The flow in the fair queue: there is one for each namespace, each node and each volume.
    pub(super) const fn flow(&self) -> &std::sync::Arc<str> {
        match self {
            Self::Budget { budget, .. } => &budget.namespace,
            Self::Node(update) => &update.node.name,
            Self::Volume(update) => update.flow(),
            Self::Eviction(update) => &update.pod.namespace,
            Self::DeleteFinished(object) => &object.node,
            Self::PodOfLostNode { pod, .. } | Self::NotDisrupted { pod, .. } | Self::Ungate { pod, .. } => {
                &pod.namespace
            }
        }
    }

    /// The version on which the update rests.
    #[must_use]
    pub const fn rv(&self) -> Rv {
        match self {
            Self::Node(update) => update.rv,
            Self::Volume(update) => update.rv,
            Self::Eviction(update) => update.rv,
            Self::DeleteFinished(object) => object.rv,
            Self::Budget { rv, .. }
            | Self::PodOfLostNode { rv, .. }
            | Self::NotDisrupted { rv, .. }
            | Self::Ungate { rv, .. } => *rv,
        }
    }

    /// What the update rests on.
    pub(super) fn basis(&self) -> Basis {
        let release_basis = match self {
            Self::Volume(update) => match &update.change {
                VolumeChange::Revoke { basis: by, .. } => Some(by.clone()),
                VolumeChange::Acquire { .. }
                | VolumeChange::DenyAttach(_)
                | VolumeChange::Allow
                | VolumeChange::Release { .. }
                | VolumeChange::DeleteLease => None,
            },
            _ => None,
        };
        (self.rv(), release_basis)
    }

    pub(super) const fn kind(&self) -> UpdateKind {
        match self {
            Self::Budget { .. } => UpdateKind::Budget,
            Self::Node(_) => UpdateKind::Node,
            Self::PodOfLostNode { .. } => UpdateKind::PodOfLostNode,
            Self::NotDisrupted { .. } => UpdateKind::NotDisrupted,
            Self::Volume(_) => UpdateKind::Volume,
            Self::Eviction(_) => UpdateKind::Eviction,
            Self::Ungate { .. } => UpdateKind::Ungate,
            Self::DeleteFinished(_) => UpdateKind::DeleteFinished,
        }
    }
}

fn budget_call(budget: &BudgetKey, rv: Rv, status: Value) -> Call {
    let path = format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets/{}/status", budget.namespace, budget.name);
    patch(path, &budget.uid, rv, status)
}

fn forget_call(object: &FinishedObject) -> Call {
    let options = json!({ "preconditions": { "uid": object.uid, "resourceVersion": object.rv } });
    Call::write(Method::Delete, format!("{}/{}", object.kind.path(), object.name), &options)
}

/// A strategic merge patch: other conditions stay, and so do fields of these conditions that it does not name.
fn pod_call(pod: &PodKey, rv: Rv, conditions: &[Value]) -> Call {
    let path = format!("/api/v1/namespaces/{}/pods/{}/status", pod.namespace, pod.name);
    patch(path, &pod.uid, rv, json!({ "conditions": conditions }))
}

fn patch(path: String, uid: &Uid, rv: Rv, status: Value) -> Call {
    let body = json!({ "metadata": { "uid": uid, "resourceVersion": rv }, "status": status });
    Call::write(Method::Patch, path, &body)
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

/// A strategic merge patch: other conditions stay, and so do the entries of `disruptedPods` that it does not name.
fn budget_status(status: &BudgetStatus, expired: &[Box<str>], transition: Option<Timestamp>) -> Value {
    let removed: Map<String, Value> = expired.iter().map(|name| (name.to_string(), Value::Null)).collect();
    let mut body = json!({
        "observedGeneration": status.observed_generation,
        "disruptionsAllowed": status.disruptions_allowed,
        "currentHealthy": status.current_healthy,
        "desiredHealthy": status.desired_healthy,
        "expectedPods": status.expected_pods,
    });
    if !removed.is_empty() {
        body["disruptedPods"] = Value::Object(removed);
    }
    if let Some(allowed) = &status.allowed_condition {
        let mut condition = json!({
            "type": "DisruptionAllowed",
            "status": allowed.status,
            "reason": allowed.reason,
            "message": allowed.message,
            "observedGeneration": allowed.observed_generation,
        });
        if let Some(wall) = transition {
            condition["lastTransitionTime"] = json!(format!("{wall:.0}"));
        }
        body["conditions"] = json!([condition]);
    }
    body
}

/// Executes the update within the leader's term. Returns the outcome, and the changes to a node.
pub(super) async fn write(
    writer: &WriteContext<'_>,
    verifier: &mut Verifier<'_>,
    evictions: &eviction::EvictionShared,
    update: &Update,
) -> (UpdateOutcome, NodeChanges) {
    let wall = writer.env.clock.wall();
    let call = match update {
        Update::Node(update) => return node::write(writer, update).await,
        Update::Budget { budget, rv, status, over, transition } => {
            budget_call(budget, *rv, budget_status(status, over, transition.then_some(wall)))
        }
        Update::PodOfLostNode { pod, rv, generation, not_ready: marked, unreachable } => {
            let ready = marked.then(|| not_ready(*generation, wall));
            let node_condition = unreachable.map(|unreachable| node_unreachable(unreachable, *generation, wall));
            pod_call(pod, *rv, &ready.into_iter().chain(node_condition).collect::<Vec<_>>())
        }
        Update::Ungate { pod, rv, pin } => volume::ungate(pod, *rv, pin.as_deref()),
        Update::Volume(update) => {
            let (outcome, evidence) = volume::write(writer, verifier, update).await;
            return (outcome, NodeChanges { evidence, ..NodeChanges::default() });
        }
        Update::Eviction(update) => {
            let (outcome, message) = eviction::write(writer, evictions, update).await;
            return (outcome, NodeChanges { message, ..NodeChanges::default() });
        }
        Update::DeleteFinished(object) => forget_call(object),
        Update::NotDisrupted { pod, rv, generation } => pod_call(pod, *rv, &[not_disrupted(*generation, wall)]),
    };
    (send(writer, update.rv(), call).await, NodeChanges::default())
}

async fn send(writer: &WriteContext<'_>, rv: Rv, call: Call) -> UpdateOutcome {
    match writer.send(call, None).await {
        Ok(answer) if version_of(&answer) == Some(rv) => UpdateOutcome::NoEffect,
        Ok(_) => UpdateOutcome::Written,
        Err(error) => error.into(),
    }
}
