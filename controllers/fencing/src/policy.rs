//! Whether a FencePolicy would work if one of its nodes were lost now. Pure.
//!
//! Ready means: it selects nodes, and every device of every level can be used and was ready at its last check.
//! Unknown counts as not ready.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::Decision;
use pod_safety_shared::api::{Condition, DeviceRef, FencePolicyStatus, Level, PolicyMode};
use pod_safety_shared::authority::{Intent, PolicyStatusUpdate};
use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{FencePolicyObject, Node, Uid};

use super::levels::check_usable;

/// A node that joins or leaves changes no device and no policy, so the nodes of each are counted again after this
/// interval: counting at each change of a node would cost nodes × policies.
pub(super) const NODE_COUNT_INTERVAL: Duration = Duration::from_secs(60);

/// Decides about one policy.
pub(super) fn review(uid: &Uid, view: &View<'_>, now: Mono) -> Decision {
    let Some(policy) = view.policies().find(|policy| policy.uid == *uid && !policy.deleting) else {
        return Decision::default();
    };
    let status = policy_status(policy, view);
    let mut intents = Vec::new();
    if status != policy.status {
        let (name, uid) = (Arc::clone(&policy.name), policy.uid.clone());
        intents.push(Intent::Review(Box::new(PolicyStatusUpdate { name, uid, rv: policy.rv, status })));
    }
    Decision { intents, ..Decision::default() }.and_requeue_at(now + NODE_COUNT_INTERVAL)
}

fn policy_status(policy: &FencePolicyObject, view: &View<'_>) -> FencePolicyStatus {
    // Most nodes have another policy: this policy's own selector is evaluated first.
    let is_in_force = |node: &&Node| {
        policy.spec.node_selector.matches(node.labels())
            && view.policy_of(node.labels()).is_some_and(|chosen| chosen.uid == policy.uid)
    };
    let nodes = view.nodes().filter(is_in_force).count();
    let (status, reason, message) = ready_condition(policy, nodes, view);
    FencePolicyStatus {
        observed_generation: policy.generation,
        nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
        conditions: vec![Condition::transition(&policy.status.conditions, "Ready", status, reason, &message, "")],
    }
}

/// Status, reason and message of the condition.
fn ready_condition(policy: &FencePolicyObject, nodes: usize, view: &View<'_>) -> (&'static str, &'static str, String) {
    let spec = &policy.spec;
    if let Some(why) = &spec.paused {
        return ("False", "Paused", format!("fencing is paused: {why}"));
    }
    let lacks = spec.levels.iter().find_map(|level| Some((level, level_problem(level, view)?)));
    if let Some((level, LevelProblem { status, reason, message })) = lacks {
        return (status, reason, format!("level {}: {message}", level.name));
    }
    match (nodes, spec.mode) {
        (0, _) => {
            let message =
                "no node has this policy: its nodeSelector chooses none, or policies of higher priority choose them";
            ("False", "NoNodes", message.to_owned())
        }
        (_, PolicyMode::DryRun) => {
            ("True", "DryRun", "every device is ready; mode DryRun switches nothing off".to_owned())
        }
        (_, PolicyMode::Enforce) => ("True", "DevicesReady", "every device of every level is ready".to_owned()),
    }
}

/// The problem of a level.
struct LevelProblem {
    status: &'static str,
    reason: &'static str,
    message: String,
}

fn level_problem(level: &Level, view: &View<'_>) -> Option<LevelProblem> {
    if let Err(message) = check_usable(&level.devices, None, view) {
        return Some(LevelProblem { status: "False", reason: "DeviceUnusable", message });
    }
    level.devices.iter().find_map(|named| device_problem(named, view))
}

fn device_problem(named: &DeviceRef, view: &View<'_>) -> Option<LevelProblem> {
    let device = view.device(&named.namespace, &named.name)?;
    let ready = device.status.conditions.iter().find(|one| one.r#type == "Ready");
    let checked = ready.filter(|_| device.status.observed_generation == device.generation);
    match checked {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => {
            let message = format!("device {named} is not ready: {}: {}", ready.reason, ready.message);
            Some(LevelProblem { status: "False", reason: "DeviceNotReady", message })
        }
        None => {
            let message = format!("device {named} was not checked yet");
            Some(LevelProblem { status: "Unknown", reason: "DeviceNotChecked", message })
        }
    }
}
