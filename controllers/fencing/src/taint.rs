//! Out-of-service taints that were left on a Ready node. Pure.
//!
//! The out-of-service taint is removed by whoever added it: a controller or a person. If that is forgotten, nothing
//! happens until the node is not Ready for a moment: then kube-controller-manager detaches its volumes and force
//! deletes its pods, though they run. The taint is reported, and never removed: only its owner knows what it is still
//! for.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Kind, Node, Readiness};

use super::incident::incident_subject;

/// Other controllers remove their taint within a minute after the node is Ready: SelfNodeRemediation takes longest.
const REMOVAL_GRACE: Duration = Duration::from_mins(2);

/// Whether a node of this name has the taint at all.
pub(super) fn has_taint(name: &str, view: &View<'_>) -> bool {
    matches!(view.node(name), Lookup::Known(node) if node.out_of_service)
}

/// Reports the taint on a node that is Ready.
pub(super) fn check_stale_taint(node: &Node, view: &View<'_>, now: Mono) -> Decision {
    let value = node.details.as_ref().and_then(|details| details.out_of_service.as_deref());
    let Some(value) = value.filter(|_| node.readiness == Readiness::Ready) else {
        return Decision::default();
    };
    // An object that cannot be decoded might be the owner of the taint.
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
