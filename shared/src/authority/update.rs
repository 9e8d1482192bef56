//! Updates of statuses: what a controller calculated, written by compare-and-swap.
//!
//! They need no evidence, for no process ends by them: a budget's numbers, and a
//! condition that no longer holds. They need the leader's term, and the version
//! on which the calculation rests; the API server's own writes (an eviction that
//! it let through) are never lost.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::act::{Outcome, version};
use crate::client::{Call, Connection, Method};
use crate::clock::Env;
use crate::lease::Leadership;
use crate::model::{BudgetKey, BudgetStatus, PodKey, Rv, Uid};
use crate::wire::{self, Raw};

/// A status that should be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// The status of a budget.
    Budget {
        /// Which one.
        budget: BudgetKey,
        /// The version on which the calculation rests.
        rv: Rv,
        /// As it should be.
        status: Box<BudgetStatus>,
        /// The entries of `disruptedPods` that go.
        over: Vec<Box<str>>,
        /// Whether the condition changes its status, and so the time of its last
        /// transition.
        transition: bool,
    },
    /// Conditions, taints and labels of a node.
    Node(Box<super::node::NodeUpdate>),
    /// Conditions of a pod whose node is not ready.
    PodOfLostNode {
        /// Which one.
        pod: PodKey,
        /// The version that was seen.
        rv: Rv,
        /// Its generation, which the conditions name.
        generation: i64,
        /// Its Ready condition becomes False.
        not_ready: bool,
        /// What the condition `pod-safety.dev/NodeUnreachable` should say; `None`: it stays.
        unreachable: Option<bool>,
    },
    /// Nobody ends this pod after all: its condition `DisruptionTarget` is no
    /// longer true.
    NotDisrupted {
        /// Which one.
        pod: PodKey,
        /// The version that was seen.
        rv: Rv,
        /// Its generation, which the condition names.
        generation: i64,
    },
}

impl Update {
    /// Whose status it is.
    #[must_use]
    pub const fn uid(&self) -> &Uid {
        match self {
            Self::Budget { budget, .. } => &budget.uid,
            Self::NotDisrupted { pod, .. } => &pod.uid,
        }
    }

    /// In whose namespace.
    pub(super) const fn namespace(&self) -> &std::sync::Arc<str> {
        match self {
            Self::Budget { budget, .. } => &budget.namespace,
            Self::NotDisrupted { pod, .. } => &pod.namespace,
        }
    }

    /// The version on which it rests.
    #[must_use]
    pub const fn rv(&self) -> Rv {
        match self {
            Self::Budget { rv, .. } | Self::NotDisrupted { rv, .. } => *rv,
        }
    }

    fn call(&self, wall: Timestamp) -> Call {
        match self {
            Self::Budget { budget, rv, status, over, transition } => {
                let path = format!(
                    "/apis/policy/v1/namespaces/{}/poddisruptionbudgets/{}/status",
                    budget.namespace, budget.name
                );
                let status = budget_status(status, over, transition.then_some(wall));
                patch(path, &budget.uid, *rv, status)
            }
            Self::NotDisrupted { pod, rv, generation } => {
                let path = format!("/api/v1/namespaces/{}/pods/{}/status", pod.namespace, pod.name);
                let condition = json!({
                    "type": "DisruptionTarget",
                    "status": "False",
                    "reason": null,
                    "message": null,
                    "observedGeneration": generation,
                    "lastTransitionTime": format!("{wall:.0}"),
                });
                patch(path, &pod.uid, *rv, json!({ "conditions": [condition] }))
            }
        }
    }
}

fn patch(path: String, uid: &Uid, rv: Rv, status: Value) -> Call {
    let body = json!({ "metadata": { "uid": uid, "resourceVersion": rv }, "status": status });
    Call::write(Method::Patch, path, &body)
}

/// A strategic merge patch: conditions of others stay, and so do the entries of
/// `disruptedPods` that are not named.
fn budget_status(status: &BudgetStatus, over: &[Box<str>], transition: Option<Timestamp>) -> Value {
    let over: Map<String, Value> = over.iter().map(|name| (name.to_string(), Value::Null)).collect();
    let mut body = json!({
        "observedGeneration": status.observed_generation,
        "disruptionsAllowed": status.disruptions_allowed,
        "currentHealthy": status.current_healthy,
        "desiredHealthy": status.desired_healthy,
        "expectedPods": status.expected_pods,
    });
    if !over.is_empty() {
        body["disruptedPods"] = Value::Object(over);
    }
    if let Some(allowed) = &status.allowed {
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

/// Writes it, within the leader's term.
pub(super) async fn write(
    connection: &Connection,
    env: &Env,
    leadership: &Leadership,
    update: &Update,
) -> Outcome {
    let Some(term) = leadership.term(env.now()) else { return Outcome::NotLeader };
    match connection.send(update.call(env.clock.wall()).by(term.ends())).await {
        Ok(answer) if version_of(&answer) == Some(update.rv()) => Outcome::NoEffect,
        Ok(_) => Outcome::Written,
        Err(error) => Outcome::of(error),
    }
}

/// The version that the answer has: a write that changed nothing leaves the old one.
fn version_of(answer: &Raw) -> Option<Rv> {
    version(&answer.decode::<wire::OnlyMeta>().ok()?.metadata?)
}
