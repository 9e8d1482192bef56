//! What is over and old goes: incidents, and evidence about lives of nodes, that nothing rests on any more. Without this
//! they would never be deleted, and read whole at each start.
//!
//! Kept, however old: what is about the life that the node has now, or about a node that cannot be read; of a node that is
//! gone as long as a pod is bound to that name, and of any as long as a volume is held by that name; evidence of an incident that is not over;
//! and everything while the node carries the taint out-of-service, which names its incident.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::Decision;
use pod_safety_shared::api::{Incarnation, NodeFenceStatus};
use pod_safety_shared::authority::{FinishedObject, Intent, Update};
use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Kind, Node, NodeFenceObject};

use super::incident::check_readable;

/// The next one is looked for after this, where nothing else wakes the node.
const RECHECK_AFTER: Duration = Duration::from_hours(1);

/// What goes of the node of this name; `node`: as it is, if it is there.
pub(super) fn prune_history(
    name: &Arc<str>,
    node: Option<&Node>,
    fences: &[&NodeFenceObject],
    view: &View<'_>,
    now: Mono,
    keep: Duration,
) -> Decision {
    let mut decision = Decision::default();
    if fences.is_empty() && view.fence_evidence_of(name).next().is_none() || is_referenced(name, node, view) {
        return decision;
    }
    let is_old = |since: i64| view.age(since, now) > keep;
    let past = |incarnation: &Incarnation| !is_current(incarnation, node);
    let mut forget = |kind: Kind, object: &Arc<str>, uid, rv| {
        let (node, name) = (Arc::clone(name), Arc::clone(object));
        decision.intents.push(Intent::Update(Update::DeleteFinished(FinishedObject {
            kind,
            node,
            name,
            uid,
            rv,
        })));
    };
    let is_expired = |fence: &NodeFenceObject| {
        fence.status.phase.is_over()
            && !fence.deleting
            && past(&fence.spec.node)
            && is_old(last_change(fence.created, &fence.status))
    };
    for fence in fences.iter().filter(|fence| is_expired(fence)) {
        forget(Kind::NodeFences, &fence.name, fence.uid.clone(), fence.rv);
    }
    for proof in view.fence_evidence_of(name) {
        let incarnation = &proof.spec.node;
        let is_needed = fences.iter().any(|fence| fence.spec.node == *incarnation && !is_expired(fence));
        if !proof.deleting && past(incarnation) && !is_needed && is_old(proof.created) {
            forget(Kind::FenceEvidences, &proof.name, proof.uid.clone(), proof.rv);
        }
    }
    decision.and_requeue_at(now + RECHECK_AFTER)
}

/// Whether something may still rest on what is known of the node's former lives.
fn is_referenced(name: &str, node: Option<&Node>, view: &View<'_>) -> bool {
    let unread = check_readable(view, &[Kind::NodeFences, Kind::FenceEvidences]).is_some();
    let tainted = node.is_some_and(|node| node.out_of_service);
    let bound = node.is_none() && view.pods_on(name).next().is_some();
    unread || tainted || bound || view.holds_volumes(name)
}

/// Whether it is about the life that the node has now. One that does not say its boot may have any.
fn is_current(incarnation: &Incarnation, node: Option<&Node>) -> bool {
    node.is_some_and(|node| node.incarnation().is_none_or(|now| now == *incarnation))
}

/// When an incident changed last, in seconds.
fn last_change(created: i64, status: &NodeFenceStatus) -> i64 {
    status.last_change().map_or(created, |at| at.as_second().max(created))
}
