//! Which pods of a node are evicted because of its taints, and when. Pure.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::{DeleteCause, GracefulDeleteRequest, Intent};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Subject;
use pod_safety_shared::model::{Kind, Node, Pod, Taint, TolerationPeriod};

/// A node with pods whose tolerations run out is checked this often, so that the numbers shown are current; and
/// everything, while the API server does not answer.
const RECHECK_AFTER: Duration = Duration::from_secs(10);

/// The kinds whose caches must be synced and fresh to decide.
pub(super) const REQUIRED_KINDS: &[Kind] = &[Kind::Pods, Kind::Nodes];

/// The key of a decision: the pods bound to the node of this name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub Arc<str>);

/// Decides about the pods of one node.
#[must_use]
pub fn decide(Key(name): &Key, view: &View<'_>, now: Mono) -> Decision {
    for kind in REQUIRED_KINDS {
        if let Err(unfresh) = view.check_fresh(*kind, now) {
            return Decision::hold(Subject::Everything, unfresh).and_requeue_at(now + RECHECK_AFTER);
        }
    }
    match view.node(name) {
        Lookup::Known(node) if node.no_execute.is_empty() => Decision::default(),
        Lookup::Known(node) => decide_tainted(node, view, now),
        Lookup::Unknown(why) if view.pods_on(name).next().is_some() => Decision::unreadable_node(name, why),
        // Taints do not matter for the pods of a deleted node.
        Lookup::Unknown(_) | Lookup::Absent => Decision::default(),
    }
}

fn decide_tainted(node: &Node, view: &View<'_>, now: Mono) -> Decision {
    let (mut decision, mut due) = (Decision::default(), Vec::new());
    // A pod that is being deleted needs no second request, which could only shorten its grace period; a pod that has
    // terminated would be removed at once.
    for pod in view.pods_on(&node.name).filter(|pod| pod.deletion.is_none() && !pod.phase.is_terminal()) {
        let EvictionTime { evict_at: ends, unreadable } = eviction_time(pod, node);
        match ends {
            Some((at, taint)) if at <= now => {
                due.push((at, pod, taint));
                continue;
            }
            Some((at, taint)) => {
                let (node, left) = (Arc::clone(&node.name), at.since(now));
                let hold = Hold::Tolerated { node, taint: taint.to_string(), left };
                decision.holds.push((Subject::Pod(pod.key.clone()), hold));
                decision = decision.and_requeue_at(at.min(now + RECHECK_AFTER));
            }
            None => {}
        }
        if let Some((taint, operator)) = unreadable {
            let (node, operator) = (Arc::clone(&node.name), operator.to_owned());
            let hold = Hold::TolerationUnreadable { node, taint: taint.to_string(), operator };
            decision.holds.push((Subject::Pod(pod.key.clone()), hold));
        }
    }
    due.sort_by(|(at, pod, _), (other_at, other_pod, _)| (at, &pod.key).cmp(&(other_at, &other_pod.key)));
    decision.intents = due.into_iter().map(|(at, pod, taint)| delete(node, pod, taint, at)).collect();
    decision
}

fn delete(node: &Node, pod: &Pod, taint: &Taint, due: Mono) -> Intent {
    let cause = DeleteCause::Taint { node: Arc::clone(&node.name), taint: taint.to_string().into() };
    Intent::Delete(GracefulDeleteRequest::new(pod, cause, due))
}

/// What the taints of its node mean for a pod.
struct EvictionTime<'a> {
    /// When it is evicted, and because of which taint: the first that it no longer tolerates.
    evict_at: Option<(Mono, &'a Taint)>,
    /// A taint whose toleration cannot be parsed.
    unreadable: Option<(&'a Taint, &'a str)>,
}

fn eviction_time<'a>(pod: &'a Pod, node: &'a Node) -> EvictionTime<'a> {
    let mut result = EvictionTime { evict_at: None, unreadable: None };
    for taint in &node.no_execute {
        let until = match pod.tolerations.period_for(taint) {
            TolerationPeriod::Forever => continue,
            TolerationPeriod::For(span) => tolerated_until(pod, taint, span),
            TolerationPeriod::NotTolerated => tolerated_until(pod, taint, Duration::ZERO),
            TolerationPeriod::Unreadable(operator) => {
                result.unreadable.get_or_insert((taint, operator));
                continue;
            }
        };
        if result.evict_at.is_none_or(|(ends, _)| until < ends) {
            result.evict_at = Some((until, taint));
        }
    }
    result
}

/// The toleration period begins when taint and pod have met: when the taint was added, or when the pod was bound to
/// the tainted node, if that was later. The difference of the two timestamps in the API shows which, and by how much,
/// and is the same for every process. They had certainly met when this process first saw both: so the period ends no
/// later than counted from there. If the taint has no `timeAdded`, only that is known; and a clock that is an hour
/// behind, which stamps taints an hour early, makes each pod of that hour look as if it had been bound to a tainted
/// node.
fn tolerated_until(pod: &Pod, taint: &Taint, span: Duration) -> Mono {
    let at_the_latest = taint.first_seen.max(pod.placed_at) + span;
    let by_stamps = taint.time_added.map(|added| {
        let later = u64::try_from(pod.bound_at.saturating_sub(added)).unwrap_or(0);
        taint.tolerated_until(span.saturating_add(Duration::from_secs(later)))
    });
    by_stamps.map_or(at_the_latest, |by_stamps| by_stamps.min(at_the_latest))
}
