//! Decides what to do about one node, one device or one policy. Pure.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::{Intent, incident_name};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::{Mode, Subject};
use pod_safety_shared::model::{Kind, NodeFenceObject, Uid};

use super::config::Config;
use super::detect::detect;
use super::history::prune_history;
use super::incident::{Incident, is_about, is_dry_run_incident};
use super::monitor::monitor;
use super::policy::review;
use super::progress::progress;
use super::remediate::{RemediationDecision, remediate};
use super::taint;

/// While the API server does not answer, everything is checked this often.
const RECHECK_STALE: Duration = Duration::from_secs(10);

/// The key of a decision.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The node of this name, and its incidents.
    Node(Arc<str>),
    /// The FenceDevice with this UID.
    Device(Uid),
    /// The FencePolicy with this UID.
    Policy(Uid),
}

impl Key {
    /// The kinds whose caches must be synced and fresh to decide about the key.
    pub(super) const fn required_kinds(&self) -> &'static [Kind] {
        match self {
            Self::Node(_) => NODE_KINDS,
            Self::Device(_) => &[Kind::FenceDevices, Kind::Nodes],
            Self::Policy(_) => &[Kind::FencePolicies, Kind::FenceDevices, Kind::Nodes],
        }
    }
}

/// All kinds that the controller watches. The last two are fencing requests of other remediators and
/// PodDisruptionBudgets: a failed watch of these does not hold up the decisions.
pub(super) const WATCHED_KINDS: &[Kind] = &[
    Kind::Pods,
    Kind::Nodes,
    Kind::NodeLeases,
    Kind::FenceDevices,
    Kind::FencePolicies,
    Kind::NodeFences,
    Kind::FenceEvidences,
    Kind::Remediations,
    Kind::Budgets,
];

/// The kinds whose caches must be synced and fresh to decide about a node.
const NODE_KINDS: &[Kind] = match WATCHED_KINDS {
    [needs @ .., Kind::Remediations, Kind::Budgets] => needs,
    _ => panic!("Remediations and budgets are followed last"),
};

/// Decides about one key.
#[must_use]
pub fn decide(key: &Key, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    // Without a policy, an incident, evidence, a request or a taint there is nothing to decide: no fresh cache is
    // needed.
    let (policies, _) = view.count(Kind::FencePolicies);
    if let Key::Node(name) = key
        && policies == 0
        && view.node_fences_of(name).next().is_none()
        && view.fence_evidence_of(name).next().is_none()
        && view.remediations_of(name).next().is_none()
        && !taint::has_taint(name, view)
    {
        return Decision::default();
    }
    for kind in key.required_kinds() {
        if let Err(unfresh) = view.check_fresh(*kind, now) {
            return Decision::hold(Subject::Everything, unfresh).and_requeue_at(now + RECHECK_STALE);
        }
    }
    match key {
        Key::Node(name) => decide_node(name, view, now, config),
        Key::Device(uid) => monitor(uid, view, now),
        Key::Policy(uid) => review(uid, view, now),
    }
}

fn decide_node(name: &Arc<str>, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    let node = match view.node(name) {
        Lookup::Known(node) => Some(node),
        Lookup::Absent => None,
        Lookup::Unknown(why) => return Decision::unreadable_node(name, why),
    };
    let mut fences: Vec<&NodeFenceObject> = view.node_fences_of(name).collect();
    // Of two incidents about one incarnation, the one whose name is derived from the incarnation counts: that name
    // exists at most once.
    fences.sort_by_key(|fence| (*fence.name != *incident_name(&fence.spec.node), Arc::clone(&fence.name)));
    let mut decision = Decision::default();
    let mut live: Vec<Incident<'_>> = Vec::new();
    let counts = |fence: &&NodeFenceObject| config.include_dry_runs || !is_dry_run_incident(fence);
    let open = fences.iter().copied().filter(|fence| !fence.status.phase.is_over() && !fence.deleting);
    for fence in open.filter(counts) {
        let same =
            |other: &&Incident<'_>| other.fence.spec.node == fence.spec.node && !is_dry_run_incident(other.fence);
        match live.iter().find(same).filter(|_| !is_dry_run_incident(fence)) {
            Some(first) => {
                let (fence, first) = (Arc::clone(&fence.name), Arc::clone(&first.fence.name));
                let hold = Hold::DuplicateFence { node: Arc::clone(name), fence, first };
                decision.holds.push((Subject::Node(Arc::clone(name)), hold));
            }
            None => live.push(Incident::new(fence, node, view, now, config)),
        }
    }
    // An action begun for one incarnation may take effect on the next one: off after on, or on after off.
    let wait_for_other = |except: Option<&Incident<'_>>| {
        let mut others = live.iter().filter(|live| except.is_none_or(|except| except.fence.uid != live.fence.uid));
        others.find_map(Incident::wait_for_attempt)
    };
    for incident in &live {
        merge(&mut decision, wait_for_other(Some(incident)).unwrap_or_else(|| progress(incident)));
    }
    if let Some(node) = node
        && !live.iter().any(|incident| is_about(incident.fence, node) && !is_dry_run_incident(incident.fence))
    {
        let finished = fences.iter().copied().find(|fence| is_about(fence, node) && !is_dry_run_incident(fence));
        let detected = detect(node, finished, view, now, config);
        merge(&mut decision, wait_for_other(None).filter(|_| !detected.intents.is_empty()).unwrap_or(detected));
    }
    if let Some(node) = node {
        merge(&mut decision, taint::check_stale_taint(node, view, now));
    }
    if let Some(keep) = config.history.filter(|_| config.mode != Mode::Observe) {
        let pruned = prune_history(name, node, &fences, view, now, keep);
        decision.intents.extend(pruned.intents);
        decision.requeue_at = decision.requeue_at.into_iter().chain(pruned.requeue_at).min();
    }
    for remediation in view.remediations_of(name) {
        let RemediationDecision { step, reply } = remediate(remediation, node, view, now, config);
        merge(&mut decision, wait_for_other(None).filter(|_| !step.intents.is_empty()).unwrap_or(step));
        decision.intents.extend(reply);
    }
    decision
}

/// Takes one step at a time for a node: the first one. The others are decided again after it.
fn merge(decision: &mut Decision, other: Decision) {
    let Decision { intents, holds, requeue_at: recheck_at } = other;
    if !decision.intents.iter().any(|intent| matches!(intent, Intent::Fence(_))) {
        decision.intents.extend(intents);
    }
    decision.holds.extend(holds);
    decision.requeue_at = decision.requeue_at.into_iter().chain(recheck_at).min();
}
