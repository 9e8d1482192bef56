//! What happens to a pod, by the decisions of the controllers.

use std::sync::Arc;

use pod_safety_shared::authority::{Claim, DeleteCause, Intent};
use pod_safety_shared::controller_loop::{Decision, HoldReason as _, Subject};
use pod_safety_shared::model::Pod;

use super::context::ExplainContext;

/// Why pod-gc or taint-eviction does nothing about a pod.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Hold {
    #[error(transparent)]
    PodGc(#[from] pod_safety_pod_gc::Hold),
    #[error(transparent)]
    Taint(#[from] pod_safety_taint_eviction::Hold),
}

impl Hold {
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::PodGc(hold) => hold.reason(),
            Self::Taint(hold) => hold.reason(),
        }
    }
}

/// What happens to a pod.
pub(super) enum Disposition {
    /// It is held, for this reason.
    Held(Hold),
    /// A controller claims that its processes ended; the evidence is checked at once.
    Claimed(Claim),
    /// The first quorum read of its missing node is made.
    AbsenceRead,
    /// It is deleted gracefully now, for this cause.
    DeletedGracefully(DeleteCause),
    /// Not enough was read to decide.
    Undecided(Hold),
    /// No controller acts on it.
    NoAction,
}

/// What pod-gc and taint-eviction decide about the pod now.
pub(super) fn decide_disposition(pod: &Pod, ctx: &ExplainContext<'_>) -> Disposition {
    let ExplainContext { view, now, settings, .. } = ctx;
    let mut keys = Vec::new();
    match &pod.node {
        Some(node) => keys.push(pod_safety_pod_gc::Key::Node(Arc::clone(node))),
        None => keys.push(pod_safety_pod_gc::Key::Unscheduled(pod.uid().clone())),
    }
    if pod.phase.counts_as_terminated() {
        keys.push(pod_safety_pod_gc::Key::Terminated);
    }
    let mut decisions: Vec<Decision<Hold>> =
        keys.iter().map(|key| pod_safety_pod_gc::decide(key, view, *now, &settings.pod_gc).map(Hold::from)).collect();
    if let Some(node) = &pod.node {
        decisions.push(
            pod_safety_taint_eviction::decide(&pod_safety_taint_eviction::Key(Arc::clone(node)), view, *now)
                .map(Hold::from),
        );
    }
    let mut unread = None;
    for decision in decisions {
        for intent in decision.intents {
            match intent {
                Intent::Force(force) if force.pod == pod.key => return Disposition::Claimed(force.claim),
                Intent::Delete(delete) if delete.pod == pod.key => {
                    return Disposition::DeletedGracefully(delete.cause);
                }
                Intent::ReadMissingNode { .. } if unread.is_none() => unread = Some(Disposition::AbsenceRead),
                _ => {}
            }
        }
        for (subject, hold) in decision.holds {
            match subject {
                Subject::Pod(key) if key == pod.key => return Disposition::Held(hold),
                Subject::Node(_) => return Disposition::Held(hold),
                Subject::Everything => unread = Some(Disposition::Undecided(hold)),
                Subject::Pod(_) | Subject::Budget(_) | Subject::Fencing { .. } | Subject::Volume(_) => {}
            }
        }
    }
    unread.unwrap_or(Disposition::NoAction)
}
