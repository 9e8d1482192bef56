//! Whose mark of a node that is off was forgotten on one that is not. Pure.
//!
//! Whoever adds the out-of-service taint takes it away again. If he forgets, all is well until the node is not Ready for
//! a moment: then kube-controller-manager detaches its volumes and force deletes its pods, though they run. It is said,
//! and never corrected: nobody but its owner knows what it still stands for.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Kind, Node, Readiness};

use super::incident::incident_subject;

/// Others take their taint away within a minute after the node is Ready: SelfNodeRemediation does so last.
const REMOVAL_GRACE: Duration = Duration::from_mins(2);

/// Whether a node of this name carries such a taint at all.
pub(super) fn has_taint(name: &str, view: &View<'_>) -> bool {
    matches!(view.node(name), Lookup::Known(node) if node.out_of_service)
}

/// What is said of a taint on a node that is Ready.
pub(super) fn check_stale_taint(node: &Node, view: &View<'_>, now: Mono) -> Decision {
    let value = node.details.as_ref().and_then(|life| life.out_of_service.as_deref());
    let Some(value) = value.filter(|_| node.readiness == Readiness::Ready) else {
        return Decision::default();
    };
    // One that cannot be read might be its owner.
    if view.count(Kind::NodeFences).1 > 0 {
        return Decision::default();
    }
    let owner = view.node_fences_of(&node.name).find(|fence| *fence.name == *value);
    let whose = match owner {
        Some(fence) if !fence.status.phase.is_over() && !fence.deleting => return Decision::default(),
        Some(_) => "belongs to an incident that is over",
        None => "does not belong to an incident of pod-safety",
    };
    let due = node.readiness_since + REMOVAL_GRACE;
    if now < due {
        return Decision::default().and_requeue_at(due);
    }
    let hold = Hold::StaleTaint { node: Arc::clone(&node.name), value: value.to_owned(), whose };
    Decision::hold(incident_subject(node), hold)
}
