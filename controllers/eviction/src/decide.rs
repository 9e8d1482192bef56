//! Decides about one pod with a requested eviction. Pure.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::authority::EvictionChange;
use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Subject;
use pod_safety_shared::model::{Eviction, EvictionPhase, EvictionTarget, Kind};

use super::context::EvictionContext;
use super::holds::{Decision, Hold};
use super::{evictions, evictor, lost_node, progress, requests};

/// While the API server does not answer, everything is checked this often.
const RECHECK_AFTER: Duration = Duration::from_secs(10);

/// The key of a decision.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A pod, whether it exists or not.
    Target(EvictionTarget),
    /// The pods of a node for which our lost-node responder waits.
    Node(Arc<str>),
}

/// All kinds that the controller watches. The last is only reported: a failed watch of it does not hold up the
/// decisions.
pub(super) const WATCHED_KINDS: &[Kind] = &[
    Kind::Pods,
    Kind::EvictionRequests,
    Kind::Evictions,
    Kind::Budgets,
    Kind::Nodes,
    Kind::NodeFences,
    Kind::FencePolicies,
];

/// The kinds whose caches must be synced and fresh to decide.
pub(super) const REQUIRED_KINDS: &[Kind] = match WATCHED_KINDS {
    [needs @ .., Kind::NodeFences, Kind::FencePolicies] => needs,
    _ => panic!("what fences is followed last"),
};

/// Decides about one key.
#[must_use]
pub fn decide(key: &Key, view: &View<'_>, now: Mono) -> Decision {
    match key {
        Key::Target(target) if view.is_eviction_target(target) => decide_target(target, view, now),
        Key::Target(_) => Decision::default(),
        Key::Node(name) => decide_node(name, view, now),
    }
}

fn decide_target(target: &EvictionTarget, view: &View<'_>, now: Mono) -> Decision {
    for kind in REQUIRED_KINDS {
        if let Err(unfresh) = view.check_fresh(*kind, now) {
            return Decision::hold(Subject::Everything, unfresh).and_requeue_at(now + RECHECK_AFTER);
        }
    }
    let ctx = EvictionContext::new(target, view, now);
    if view.has_foreign_evictions(&target.namespace) {
        return stand_down(&ctx);
    }
    let mut decision = Decision::default();
    requests::decide(&ctx, &mut decision);
    evictions::create(&ctx, &mut decision);
    evictions::fail_duplicates(&ctx, &mut decision);
    evictions::delete_old_failures(&ctx, &mut decision);
    act(&ctx, &mut decision);
    decision
}

/// Where another controller gives the turns. The responders of pod-safety still serve theirs: Kubernetes may have the
/// controller and no evictor, and it has no responder for lost nodes.
fn stand_down(ctx: &EvictionContext<'_>) -> Decision {
    let Some(key) = ctx.key() else { return Decision::default() };
    let mut decision = Decision::hold(Subject::Pod(key), Hold::AnotherController);
    let action = evictor::complete_if_gone(ctx).or_else(|| respond(ctx, &mut decision));
    decision.intents.extend(action.map(|(eviction, change)| evictions::eviction_write(eviction, change)));
    decision
}

/// What the responder of pod-safety does that has its turn.
fn respond<'a>(ctx: &EvictionContext<'a>, decision: &mut Decision) -> Option<(&'a Eviction, EvictionChange)> {
    let action = evictor::act(ctx, decision).or_else(|| lost_node::act(ctx, decision));
    action.or_else(|| evictor::report_missing_evidence(ctx))
}

/// One write to the active Eviction: the controller's part comes first, because responders depend on it.
fn act(ctx: &EvictionContext<'_>, decision: &mut Decision) {
    let relevant = ctx.relevant().filter(|eviction| eviction.phase() != EvictionPhase::Failed);
    let Some(eviction) = ctx.active().or(relevant) else { return };
    // A responder of a duplicate may be active until the duplicate has failed: two are never active.
    let uninitialized = eviction.responders.is_empty();
    if uninitialized && ctx.evictions.iter().any(|other| other.active().is_some()) {
        return;
    }
    if let Some((eviction, change)) = evictor::complete_if_gone(ctx) {
        decision.intents.push(evictions::eviction_write(eviction, change));
        return;
    }
    let change = match eviction.phase() {
        EvictionPhase::Active => progress::progress(eviction, ctx, decision),
        EvictionPhase::Succeeded | EvictionPhase::Failed => None,
    };
    if let Some(change) = change.or_else(|| evictions::update_metadata(eviction, ctx)) {
        decision.intents.push(evictions::eviction_write(eviction, change));
        return;
    }
    let action = respond(ctx, decision);
    decision.intents.extend(action.map(|(eviction, change)| evictions::eviction_write(eviction, change)));
}

/// A change of a node concerns our lost-node responder only: holds and times belong to the keys of the pods.
fn decide_node(name: &str, view: &View<'_>, now: Mono) -> Decision {
    let targets = view.pods_on(name).map(|pod| EvictionTarget::from_pod(&pod.key));
    let targets = targets.filter(|target| view.is_eviction_target(target));
    let intents = targets.flat_map(|target| decide_target(&target, view, now).intents).collect();
    Decision { intents, ..Decision::default() }
}
