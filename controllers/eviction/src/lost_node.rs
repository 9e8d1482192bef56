//! The responder for pods of lost nodes: `pod-safety.dev/lost-node`. It deletes nothing. While the node of a pod is
//! being fenced it reports the fencing step, so that Evictions do not wait for each responder of the application,
//! twenty minutes each, on a dead node; and it is completed as soon as the node reports, the pod is gone, or a person
//! is needed.

use std::time::Duration;

use pod_safety_shared::api::{Phase, PolicyMode};
use pod_safety_shared::authority::EvictionChange;
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::model::{Eviction, Kind, LOST_NODE_RESPONDER, Node, NodeFenceObject, Readiness};

use super::context::{EvictionContext, Turn};
use super::evictor::{completed_report, report, send_report};
use super::holds::Decision;

/// Fencing that has not begun within this time needs a person: the other responders get their turns.
const BEGIN_GRACE: Duration = Duration::from_secs(600);

/// The progress of fencing as this responder reports it.
enum FencingProgress {
    /// Waiting, with the message.
    Waiting(String),
    /// Completed, for this reason.
    Done(String),
}

/// The responder's action, if it is active.
pub(super) fn act<'a>(ctx: &EvictionContext<'a>, decision: &mut Decision) -> Option<(&'a Eviction, EvictionChange)> {
    let turn = ctx.turn_of(LOST_NODE_RESPONDER)?;
    let report = match fencing_progress(turn, ctx) {
        FencingProgress::Waiting(message) => report(turn.responder, LOST_NODE_RESPONDER, message),
        FencingProgress::Done(message) => completed_report(turn.responder, LOST_NODE_RESPONDER, &message),
    };
    Some((turn.eviction, send_report(turn, report, ctx, decision)?))
}

fn fencing_progress(turn: Turn<'_>, ctx: &EvictionContext<'_>) -> FencingProgress {
    let Some(name) = &turn.pod.node else { return FencingProgress::Done("the pod is on no node".to_owned()) };
    let node = match ctx.view.node(name) {
        Lookup::Known(node) => node,
        Lookup::Unknown(why) => return FencingProgress::Done(format!("node {name} cannot be read: {why}")),
        Lookup::Absent => {
            let gone = format!("node {name} does not exist any more");
            return wait_within_grace(
                turn,
                ctx,
                format!("{gone}: its pods are removed when it is proved that they ended"),
                gone,
            );
        }
    };
    // A NotReady node reports, too.
    if node.readiness == Readiness::Ready || node.readiness == Readiness::NotReady {
        return FencingProgress::Done(format!("node {name} reports"));
    }
    if ctx.view.check_fresh(Kind::NodeFences, ctx.now).is_err() {
        return FencingProgress::Done(format!("node {name} does not report, and the state of fencing is not known"));
    }
    let mut fences = ctx.view.node_fences_of(name);
    match fences.find(|fence| is_open_incident(fence, node)) {
        Some(fence) => progress_of_incident(fence, node, ctx),
        None => progress_without_incident(turn, node, ctx),
    }
}

/// Whether it is an open incident of this Node in this boot.
fn is_open_incident(fence: &NodeFenceObject, node: &Node) -> bool {
    node.matches_incarnation(&fence.spec.node) && !fence.spec.dry_run && !fence.status.phase.is_over()
}

/// Waits until the grace time since the responder became active is over.
fn wait_within_grace(turn: Turn<'_>, ctx: &EvictionContext<'_>, waits: String, done: String) -> FencingProgress {
    let since = ctx.age(turn.eviction, turn.responder.started.unwrap_or(0), turn.responder.seen.start);
    if since < BEGIN_GRACE { FencingProgress::Waiting(waits) } else { FencingProgress::Done(done) }
}

fn progress_of_incident(fence: &NodeFenceObject, node: &Node, ctx: &EvictionContext<'_>) -> FencingProgress {
    let (phase, message) = (fence.status.phase, &fence.status.message);
    let step = format!("node {} does not report; NodeFence {} is {}: {message}", node.name, fence.name, phase.name());
    let is_overdue = ctx.now.since(fence.status_seen) >= BEGIN_GRACE;
    match phase {
        // The message of the incident states what holds it back.
        Phase::Pending if is_overdue => FencingProgress::Done(step),
        Phase::AwaitingOperator => FencingProgress::Done(step),
        Phase::Pending | Phase::Fencing | Phase::Fenced | Phase::Recovering => FencingProgress::Waiting(step),
        Phase::Done | Phase::Cancelled | Phase::Superseded => FencingProgress::Done(step),
    }
}

fn progress_without_incident(turn: Turn<'_>, node: &Node, ctx: &EvictionContext<'_>) -> FencingProgress {
    let name = &node.name;
    let done = |why: String| format!("node {name} does not report, and {why}: a person is needed");
    let Some(policy) = ctx.view.policy_of(node.labels()) else {
        return FencingProgress::Done(done("no FencePolicy selects it".to_owned()));
    };
    // With `when: Manual` a remediator may still ask for it.
    let dry_run = (policy.spec.mode == PolicyMode::DryRun).then_some("mode: DryRun");
    if let Some(why) = dry_run.or_else(|| node.boot().is_unknown().then_some("its boot ID is unknown")) {
        return FencingProgress::Done(done(format!("FencePolicy {} does not fence it ({why})", policy.name)));
    }
    let waits = format!("node {name} does not report: FencePolicy {} fences it", policy.name);
    wait_within_grace(turn, ctx, waits, done(format!("its fencing by FencePolicy {} has not begun", policy.name)))
}
