//! The conditions of pods of a node that is not ready. Pure.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::Decision;
use pod_safety_shared::authority::{Intent, LostNodePodUpdate, Update};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Mode;
use pod_safety_shared::model::{ConditionState, Node, Pod, Readiness};

use super::config::Config;

/// Decides about the pods bound to the node of this name.
pub(super) fn decide(name: &Arc<str>, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    match view.node(name) {
        Lookup::Known(node) => {
            let mut decision = Decision::default();
            for pod in view.pods_on(name) {
                let trusted_until = reported_ready_until(pod, node, config.monitor_grace).filter(|until| now < *until);
                decision
                    .intents
                    .extend(pod_update(pod, node, config.mode, trusted_until.is_some()).map(Intent::Update));
                if let Some(until) = trusted_until {
                    decision = decision.and_requeue_at(until);
                }
            }
            decision
        }
        Lookup::Unknown(why) if view.pods_on(name).next().is_some() => Decision::unreadable_node(name, why),
        // The pods of a deleted node are the pod garbage collector's.
        Lookup::Unknown(_) | Lookup::Absent => Decision::default(),
    }
}

/// A pod that turned ready since its node stopped reporting has a running kubelet, which will report within the grace
/// period. Until then the kubelet's status of the pod stays: otherwise two writers would contradict each other
/// without end.
fn reported_ready_until(pod: &Pod, node: &Node, unreachable_after: Duration) -> Option<Mono> {
    let ready_since = pod.became_ready.filter(|turned| *turned > node.readiness_since)?;
    (node.readiness == Readiness::Unknown).then(|| ready_since + unreachable_after)
}

fn pod_update(pod: &Pod, node: &Node, mode: Mode, reported_ready: bool) -> Option<Update> {
    let not_ready = match mode {
        // A kubelet that reports that its node is not ready runs, and reports its pods itself.
        Mode::Replace => pod.ready && node.readiness == Readiness::Unknown && !reported_ready,
        Mode::Guard | Mode::Observe => false,
    };
    let unreachable = unreachable_change(pod, node);
    (not_ready || unreachable.is_some()).then(|| {
        Update::PodOfLostNode(LostNodePodUpdate {
            pod: pod.key.clone(),
            rv: pod.rv,
            generation: pod.generation,
            not_ready,
            unreachable,
        })
    })
}

/// The status that our condition should have, if it is another one.
fn unreachable_change(pod: &Pod, node: &Node) -> Option<bool> {
    match (node.readiness, pod.unreachable) {
        (Readiness::Unknown, ConditionState::True) | (Readiness::Missing, _) => None,
        (Readiness::Unknown, ConditionState::False | ConditionState::Unknown | ConditionState::Missing) => {
            let waits_for_kubelet = pod.deletion.is_some() && !pod.phase.is_terminal();
            waits_for_kubelet.then_some(true)
        }
        (Readiness::Ready | Readiness::NotReady, ConditionState::True | ConditionState::Unknown) => Some(false),
        (Readiness::Ready | Readiness::NotReady, ConditionState::False | ConditionState::Missing) => None,
    }
}
