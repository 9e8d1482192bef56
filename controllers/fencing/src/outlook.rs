//! What becomes of a lost node if nothing changes. For `explain` only; no decision uses it. Pure.

use std::sync::Arc;

use pod_safety_shared::api::{DeviceRef, DeviceState, NodeFenceSpec, NodeFenceStatus, PolicyMode, Power};
use pod_safety_shared::authority::{Intent, Step, incident_name};
use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{FencePolicyObject, Node, NodeFenceObject, Rv, Uid};

use super::config::Config;
use super::detect::{NodeHealth, detect, node_health};
use super::gates::{self, Purpose};
use super::holds::Hold;
use super::incident::{Incident, is_about, is_dry_run, is_dry_run_incident};
use super::levels;

/// How many nodes are named that a policy could not fence.
const NODES_SHOWN: usize = 3;

/// What becomes of a node that has no open incident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// Its machine will be switched off at this moment.
    SwitchesOff {
        /// When.
        at: Mono,
        /// The FencePolicy.
        policy: Arc<str>,
    },
    /// It would be switched off, but this hold prevents it.
    Held(Hold),
}

/// What fencing will do about the node; `None`: nothing, or an open incident shows it.
#[must_use]
pub fn outlook(node: &Node, view: &View<'_>, now: Mono, config: &Config) -> Option<Outlook> {
    let policy = view.policy_of(node.labels())?;
    let at = match node_health(node, view, now, &policy.spec.unhealthy) {
        NodeHealth::Healthy => return None,
        NodeHealth::Suspected(due) => due,
        NodeHealth::Lost(_) | NodeHealth::Unhealthy(..) => now,
    };
    let mut of_incarnation =
        view.node_fences_of(&node.name).filter(|fence| is_about(fence, node) && !is_dry_run_incident(fence));
    let over = match of_incarnation.next() {
        Some(fence) if !fence.status.phase.is_over() => return None,
        over => over,
    };
    let detected = detect(node, over, view, at, config);
    if let Some((_, hold)) = detected.holds.into_iter().next() {
        return Some(Outlook::Held(hold));
    }
    let fence = draft_incident(detected.intents.into_iter().find_map(opened_spec)?, now)?;
    // Other lost nodes are counted as of now: they may report again until then.
    let incident = Incident::new(&fence, Some(node), view, now, config);
    if is_dry_run(&fence, policy) {
        return None;
    }
    if let Some(hold) = gates::closed_gates(&incident, policy, Purpose::Begin).into_iter().next() {
        return Some(Outlook::Held(hold));
    }
    let level = policy.spec.levels.get(levels::first_usable(policy, 0, &incident)?)?;
    let by_itself = !levels::is_manual(level, view);
    by_itself.then(|| Outlook::SwitchesOff { at, policy: Arc::clone(&policy.name) })
}

/// Whether each level of the policy asks a person, and no device.
#[must_use]
pub fn asks_only_a_person(policy: &FencePolicyObject, view: &View<'_>) -> bool {
    policy.spec.levels.iter().all(|level| levels::is_manual(level, view))
}

fn opened_spec(intent: Intent) -> Option<NodeFenceSpec> {
    let Intent::Fence(fencing) = intent else { return None };
    match fencing.step {
        Step::Open(spec) => Some(*spec),
        Step::Write(target) => Some(*target.spec),
        _ => None,
    }
}

/// The incident as it would be opened.
fn draft_incident(spec: NodeFenceSpec, now: Mono) -> Option<NodeFenceObject> {
    let name: Arc<str> = incident_name(&spec.node).into();
    Some(NodeFenceObject {
        uid: Uid::new(&name)?,
        name,
        namespace: "".into(),
        rv: Rv::default(),
        generation: 1,
        created: 0,
        deleting: false,
        annotations: Default::default(),
        finalizers: Vec::new(),
        spec,
        status: NodeFenceStatus::default(),
        first_seen: now,
        status_seen: now,
    })
}

/// Why no level of a policy can switch this node off, as far as its devices reported at their last check; `None`: one
/// can, or it is unknown.
#[must_use]
pub fn why_unfenceable(policy: &FencePolicyObject, node: &Node, view: &View<'_>) -> Option<String> {
    let mut lacks: Vec<String> = Vec::new();
    for level in &policy.spec.levels {
        let unusable = levels::check_usable(&level.devices, Some(node), view).err();
        let lack = unusable.or_else(|| level.devices.iter().find_map(|named| device_problem(named, node, view)))?;
        if !lacks.contains(&lack) {
            lacks.push(lack);
        }
    }
    Some(lacks.join("; "))
}

/// The nodes of a policy that could not be fenced if they were lost now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unfenceable {
    /// How many nodes the policy fences.
    selected: usize,
    /// Those that it could not fence, by name, each with the reason.
    nodes: Vec<(Arc<str>, String)>,
}

impl Unfenceable {
    /// The nodes of this policy; none if it fences nothing.
    #[must_use]
    pub fn find(policy: &FencePolicyObject, view: &View<'_>) -> Self {
        let mut found = Self::default();
        if policy.deleting || policy.spec.paused.is_some() || policy.spec.mode == PolicyMode::DryRun {
            return found;
        }
        let is_selected = |node: &&Node| view.policy_of(node.labels()).is_some_and(|chosen| chosen.uid == policy.uid);
        for node in view.nodes().filter(is_selected) {
            found.selected += 1;
            found.nodes.extend(why_unfenceable(policy, node, view).map(|why| (Arc::clone(&node.name), why)));
        }
        found.nodes.sort();
        found
    }

    /// Which nodes the policy could not fence, and why, as a sentence; `None`: it could fence each of them.
    #[must_use]
    pub fn describe(&self) -> Option<String> {
        let Self { selected, nodes } = self;
        let (_, first) = nodes.first()?;
        if nodes.len() == *selected {
            return Some(format!("It can fence no node: {first}"));
        }
        let named: Vec<String> = nodes.iter().take(NODES_SHOWN).map(|(node, why)| format!("{node} ({why})")).collect();
        let more = match nodes.len().saturating_sub(NODES_SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!("It can fence {} of {selected} nodes, and not {}{more}", selected - nodes.len(), named.join(", ")))
    }
}

/// What a device lacks for a node, as its status states it.
fn device_problem(named: &DeviceRef, node: &Node, view: &View<'_>) -> Option<String> {
    let device = view.device(&named.namespace, &named.name)?;
    if device.state() != DeviceState::NotReady {
        return None;
    }
    let checked = device.status.targets.iter().find(|target| target.node == *node.name);
    let why = match checked {
        Some(target) if !target.message.is_empty() => &target.message,
        Some(target) if target.power.is_off() || target.power == Power::On => return None,
        Some(_) | None => device.not_ready_reason(),
    };
    Some(format!("device {named}: {why}"))
}
