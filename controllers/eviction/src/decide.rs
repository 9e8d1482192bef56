//! What should happen about one pod whose eviction is asked for. Pure.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::Subject;
use pod_safety_shared::model::{EvictionPhase, EvictionTarget, Kind};

use super::holds::{Decision, Hold};
use super::scene::Scene;
use super::{evictions, evictor, lost_node, progress, requests};

/// While the API server is silent, everything is looked at this often.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// What is decided about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A pod, whether it is there or not.
    Target(EvictionTarget),
    /// The pods of a node for which our responder waits.
    Node(Arc<str>),
}

/// All that it hears of. The last is only told: whether it can be heard of does not hold up the others.
pub(super) const FOLLOWED: &[Kind] = &[
    Kind::Pods,
    Kind::EvictionRequests,
    Kind::Evictions,
    Kind::Budgets,
    Kind::Nodes,
    Kind::NodeFences,
    Kind::FencePolicies,
];

/// What must be known to decide.
pub(super) const NEEDS: &[Kind] = match FOLLOWED {
    [needs @ .., Kind::NodeFences, Kind::FencePolicies] => needs,
    _ => panic!("what fences is followed last"),
};

/// Decides about one key.
#[must_use]
pub fn decide(key: &Key, view: &View<'_>, now: Mono) -> Decision {
    match key {
        Key::Target(target) if view.is_eviction_target(target) => about(target, view, now),
        Key::Target(_) => Decision::default(),
        Key::Node(name) => on_node(name, view, now),
    }
}

fn about(target: &EvictionTarget, view: &View<'_>, now: Mono) -> Decision {
    for kind in NEEDS {
        if let Err(unfresh) = view.fresh(*kind, now) {
            return Decision::hold(Subject::Everything, unfresh).and_recheck_at(now + LOOK_AGAIN);
        }
    }
    let scene = Scene::new(target, view, now);
    if view.has_foreign_evictions(&target.namespace) {
        let key = scene.key();
        let held = key.map(|key| Decision::hold(Subject::Pod(key), Hold::AnotherController));
        return held.unwrap_or_default();
    }
    let mut decision = Decision::default();
    requests::decide(&scene, &mut decision);
    evictions::create(&scene, &mut decision);
    evictions::duplicates(&scene, &mut decision);
    evictions::collect(&scene, &mut decision);
    act(&scene, &mut decision);
    decision
}

/// One write to the Eviction that goes on: what its controller must say first, for what responders do rests on it.
fn act(scene: &Scene<'_>, decision: &mut Decision) {
    let relevant = scene.relevant().filter(|eviction| eviction.phase() != EvictionPhase::Failed);
    let Some(eviction) = scene.active().or(relevant) else { return };
    // Of a duplicate a responder may be active until that has failed: two never are.
    let uninitialized = eviction.responders.is_empty();
    if uninitialized && scene.evictions.iter().any(|other| other.active().is_some()) {
        return;
    }
    if let Some((eviction, change)) = evictor::ends(scene) {
        decision.intents.push(evictions::write(eviction, change));
        return;
    }
    let change = match eviction.phase() {
        EvictionPhase::Active => progress::progress(eviction, scene, decision),
        EvictionPhase::Succeeded | EvictionPhase::Failed => None,
    };
    if let Some(change) = change.or_else(|| evictions::mark(eviction, scene)) {
        decision.intents.push(evictions::write(eviction, change));
        return;
    }
    let acts = evictor::act(scene, decision).or_else(|| lost_node::act(scene, decision));
    decision.intents.extend(acts.map(|(eviction, change)| evictions::write(eviction, change)));
}

/// What changed about a node is news to our responder alone: holds and times are those of the pods' own keys.
fn on_node(name: &str, view: &View<'_>, now: Mono) -> Decision {
    let targets = view.pods_on(name).map(|pod| EvictionTarget::of(&pod.key));
    let targets = targets.filter(|target| view.is_eviction_target(target));
    let intents = targets.flat_map(|target| about(&target, view, now).intents).collect();
    Decision { intents, ..Decision::default() }
}
