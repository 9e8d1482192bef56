//! Deletes old incidents and old evidence about former incarnations of nodes, once nothing depends on them. Otherwise
//! they would accumulate, and every start would read them all.
//!
//! Kept, however old: objects about the present incarnation of the node, or about a node that cannot be read; of a
//! deleted node, as long as a pod is bound to its name; of any node, as long as it holds a volume; evidence of an
//! incident that is not over; and everything while the node has the out-of-service taint, which names its incident.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::Decision;
use pod_safety_shared::api::{Incarnation, NodeFenceStatus};
use pod_safety_shared::authority::{FinishedObject, Intent, Update};
use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Kind, Node, NodeFenceObject};

use super::incident::check_readable;

/// When expired objects are looked for again, if nothing else enqueues the node.
const RECHECK_AFTER: Duration = Duration::from_hours(1);

/// Deletes what has expired for the node of this name; `node`: its Node, if it exists.
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
        decision.intents.push(Intent::Update(Update::DeleteFinished(FinishedObject { kind, node, name, uid, rv })));
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

/// Whether something may still depend on objects about the node's former incarnations.
fn is_referenced(name: &str, node: Option<&Node>, view: &View<'_>) -> bool {
    let unread = check_readable(view, &[Kind::NodeFences, Kind::FenceEvidences]).is_some();
    let tainted = node.is_some_and(|node| node.out_of_service);
    let bound = node.is_none() && view.pods_on(name).next().is_some();
    unread || tainted || bound || view.holds_volumes(name)
}

/// Whether it is the present incarnation of the node. A node that reports no boot ID may be in any.
fn is_current(incarnation: &Incarnation, node: Option<&Node>) -> bool {
    node.is_some_and(|node| node.incarnation().is_none_or(|now| now == *incarnation))
}

/// When an incident changed last, in seconds.
fn last_change(created: i64, status: &NodeFenceStatus) -> i64 {
    status.last_change().map_or(created, |at| at.as_second().max(created))
}
