//! What the pods of a node that is not ready say. Pure.

use std::sync::Arc;

use pod_safety_shared::authority::{Hold, Intent, Update};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::drive::{Decision, Mode, Subject};
use pod_safety_shared::model::{Node, Pod, Readiness, Says};

/// Decides about the pods bound to the node of this name.
pub(super) fn decide(name: &Arc<str>, view: &View<'_>, mode: Mode) -> Decision {
    match view.node(name) {
        Lookup::Known(node) => {
            let updates = view.pods_on(name).filter_map(|pod| update(pod, node, mode));
            Decision { intents: updates.map(Intent::Update).collect(), ..Decision::default() }
        }
        Lookup::Unknown(why) if view.pods_on(name).next().is_some() => {
            let hold = Hold::NodeUnreadable { node: Arc::clone(name), why: why.to_owned() };
            Decision::hold(Subject::Node(Arc::clone(name)), hold)
        }
        // The pods of a node that is gone are the collector's.
        Lookup::Unknown(_) | Lookup::Absent => Decision::default(),
    }
}

fn update(pod: &Pod, node: &Node, mode: Mode) -> Option<Update> {
    let not_ready = match mode {
        // A kubelet that says that its node is not ready lives, and speaks for its pods.
        Mode::Replace => pod.ready && node.readiness == Readiness::Unknown,
        Mode::Guard | Mode::Observe => false,
    };
    let unreachable = unreachable(pod, node);
    (not_ready || unreachable.is_some()).then(|| Update::PodOfLostNode {
        pod: pod.key.clone(),
        rv: pod.rv,
        generation: pod.generation,
        not_ready,
        unreachable,
    })
}

/// What our condition should say, if it should say something else.
fn unreachable(pod: &Pod, node: &Node) -> Option<bool> {
    match (node.readiness, pod.unreachable) {
        (Readiness::Unknown, Says::True) | (Readiness::Missing, _) => None,
        (Readiness::Unknown, Says::False | Says::Unknown | Says::Missing) => {
            let waits_for_its_kubelet =
                pod.deletion.is_some() && !pod.phase.is_terminal() && !pod.waits_for_finalizers();
            waits_for_its_kubelet.then_some(true)
        }
        (Readiness::Ready | Readiness::NotReady, Says::True | Says::Unknown) => Some(false),
        (Readiness::Ready | Readiness::NotReady, Says::False | Says::Missing) => None,
    }
}
