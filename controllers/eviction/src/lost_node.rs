//! The responder for pods of lost nodes: `pod-safety.dev/lost-node`. It deletes nothing. While the node of a pod is fenced it
//! reports the step, so that responders of the application are not waited for, twenty minutes each, on a dead node; and it
//! is done as soon as the node reports, the pod is gone, or a person is needed.

use std::time::Duration;

use pod_safety_shared::api::Phase;
use pod_safety_shared::authority::EvictionChange;
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::model::{Eviction, Fence, Kind, LOST_NODE_RESPONDER, Node, Pod, Readiness, Responder};

use super::evictor::{complete, report, say};
use super::holds::Decision;
use super::scene::Scene;

/// What has not begun within this time needs a person: the others have their turns.
const BEGINS_WITHIN: Duration = Duration::from_secs(600);

/// What it says.
enum Says {
    /// It is waited for this.
    Waits(String),
    /// It is done, for this reason.
    Done(String),
}

/// What it does, if it is its turn.
pub(super) fn act<'a>(scene: &Scene<'a>, decision: &mut Decision) -> Option<(&'a Eviction, EvictionChange)> {
    let (eviction, own, pod) = scene.turn_of(LOST_NODE_RESPONDER)?;
    let made = match says(own, pod, scene) {
        Says::Waits(message) => report(own, LOST_NODE_RESPONDER, message),
        Says::Done(message) => complete(own, LOST_NODE_RESPONDER, &message),
    };
    Some((eviction, say(own, made, scene, decision)?))
}

fn says(own: &Responder, pod: &Pod, scene: &Scene<'_>) -> Says {
    let Some(name) = &pod.node else { return Says::Done("the pod is on no node".to_owned()) };
    let node = match scene.view.node(name) {
        Lookup::Known(node) => node,
        Lookup::Unknown(why) => return Says::Done(format!("node {name} cannot be read: {why}")),
        Lookup::Absent => {
            let gone = format!("node {name} does not exist any more");
            return within(
                own,
                scene,
                format!("{gone}: its pods are removed when it is proved that they ended"),
                gone,
            );
        }
    };
    // Whoever says NotReady reports.
    if node.readiness == Readiness::Ready || node.readiness == Readiness::NotReady {
        return Says::Done(format!("node {name} reports"));
    }
    if scene.view.fresh(Kind::NodeFences, scene.now).is_err() {
        return Says::Done(format!("node {name} does not report, and the state of fencing is not known"));
    }
    let mut fences = scene.view.fences_of(name);
    match fences.find(|fence| is_open(fence, node)) {
        Some(fence) => fenced(fence, node, scene),
        None => unfenced(own, node, scene),
    }
}

/// Whether it is an incident of this Node in this boot, of which something is still to come.
fn is_open(fence: &Fence, node: &Node) -> bool {
    node.is_in(&fence.spec.node) && !fence.spec.dry_run && !fence.status.phase.is_over()
}

/// Until the time for it is over since its turn began.
fn within(own: &Responder, scene: &Scene<'_>, waits: String, done: String) -> Says {
    let since = scene.age(own.started.unwrap_or(0));
    if since < BEGINS_WITHIN { Says::Waits(waits) } else { Says::Done(done) }
}

fn fenced(fence: &Fence, node: &Node, scene: &Scene<'_>) -> Says {
    let (phase, message) = (fence.status.phase, &fence.status.message);
    let step = format!(
        "node {} does not report; NodeFence {} is {}: {message}",
        node.name,
        fence.name,
        phase.name()
    );
    let long = scene.now.since(fence.status_seen) >= BEGINS_WITHIN;
    match phase {
        // What holds it back is in its message.
        Phase::Pending if long => Says::Done(step),
        Phase::AwaitingOperator => Says::Done(step),
        Phase::Pending | Phase::Fencing | Phase::Fenced | Phase::Recovering => Says::Waits(step),
        Phase::Done | Phase::Cancelled | Phase::Superseded => Says::Done(step),
    }
}

fn unfenced(own: &Responder, node: &Node, scene: &Scene<'_>) -> Says {
    let name = &node.name;
    match scene.view.policy_of(node.labels()) {
        None => Says::Done(format!(
            "node {name} does not report, and no FencePolicy selects it: a person is needed"
        )),
        Some(policy) => {
            let done = format!(
                "node {name} does not report, and its fencing by FencePolicy {} has not begun: a person is needed",
                policy.name
            );
            let waits = format!("node {name} does not report: FencePolicy {} fences it", policy.name);
            within(own, scene, waits, done)
        }
    }
}
