//! Which level of a policy is tried next. Pure.

use pod_safety_shared::api::{
    Attempt, DesiredPower, DeviceDriver, DeviceRef, FenceEvidenceKind, Level, NodeFenceStatus, Timeouts,
};
use pod_safety_shared::authority::is_provider_agent;
use pod_safety_shared::cache::View;
use pod_safety_shared::model::{FencePolicyObject, Node};

use super::incident::Incident;

/// At most so many characters of a device's output are repeated in a message.
const MAX_PROBLEM_CHARS: usize = 256;

/// How long the devices of a level may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SwitchSeconds {
    pub(super) off: u32,
    pub(super) on: u32,
}

/// What is tried next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NextLevel {
    /// This level, in this round.
    Try { level: usize, rounds: u32 },
    /// All levels were tried as often as the policy allows; the last problem of each level.
    GiveUp(String),
}

/// Whether all of these devices can be used for a node, and how long they may take; `Err`: the obstacle. `node`: none
/// if its Node was deleted, so that its labels are unknown. A device that did not answer its last status check is
/// tried all the same: the check may have been for another node, or minutes old.
pub(super) fn check_usable(
    devices: &[DeviceRef],
    node: Option<&Node>,
    view: &View<'_>,
) -> Result<SwitchSeconds, String> {
    let labels = node.map(Node::labels);
    let mut within = SwitchSeconds { off: 0, on: 0 };
    for named in devices {
        if !view.is_fencing_namespace(&named.namespace) {
            return Err(format!("device {named} is in a namespace that is not in --fencing-namespaces"));
        }
        let existing = view.device(&named.namespace, &named.name).filter(|device| !device.deleting);
        let device = existing.ok_or_else(|| format!("device {named} does not exist"))?;
        if device.status.condition_status("Trusted") == Some("False") {
            return Err(format!("device {named} is not trusted: evidence from it was contradicted"));
        }
        if labels.is_some_and(|labels| !device.spec.node_selector.matches(labels)) {
            return Err(format!("device {named} is not for this node (nodeSelector)"));
        }
        let key = node.and_then(|node| device.spec.kubelet_settable_label(&node.name));
        if let Some(key) = key.filter(|_| !device.spec.requires_machine_identity()) {
            return Err(format!(
                "device {named} has the same parameters for every node, and its nodeSelector has {key}, which a kubelet may set"
            ));
        }
        let Timeouts { power_off, power_on, status: _ } = device.spec.timeouts;
        within = SwitchSeconds { off: within.off.max(power_off.0), on: within.on.max(power_on.0) };
    }
    if devices.is_empty() { Err("it names no device".to_owned()) } else { Ok(within) }
}

fn driver(named: &DeviceRef, view: &View<'_>) -> Option<DeviceDriver> {
    view.device(&named.namespace, &named.name).map(|device| device.spec.driver)
}

/// Whether a level can prove what its policy requires, and how long it may take.
pub(super) fn check_level(
    level: &Level,
    policy: &FencePolicyObject,
    incident: &Incident<'_>,
) -> Result<SwitchSeconds, String> {
    let within = check_usable(&level.devices, incident.node(), &incident.view)?;
    let gives =
        |named: &DeviceRef, evidence| driver(named, &incident.view).is_some_and(|driver| driver.gives(evidence));
    let storage = |named: &DeviceRef| gives(named, FenceEvidenceKind::StorageFenced);
    if level.devices.iter().all(storage) {
        if !incident.config.guards_volumes {
            return Err("it fences storage only: add a device that switches the machine off, or run the volume guard"
                .to_owned());
        }
        if let Some(proof) = storage_evidence(level, incident) {
            return Err(format!("its storage is fenced ({proof}), but its processes may still run"));
        }
    }
    let external = |named: &&DeviceRef| gives(named, FenceEvidenceKind::Remediated);
    match level.devices.iter().find(external) {
        Some(named) if policy.spec.minimum_evidence > FenceEvidenceKind::Remediated.grade() => {
            Err(format!("device {named} relies on another remediator, and the policy's minimumEvidence is Verified"))
        }
        Some(_) | None => Ok(within),
    }
}

/// The evidence that only the storage of this level is fenced, if there is any.
fn storage_evidence<'a>(level: &Level, incident: &Incident<'a>) -> Option<&'a str> {
    let is_this_level = |attempt: &&Attempt| attempt.devices == level.devices && incident.is_storage_fenced_by(attempt);
    incident.status().attempts.iter().rev().find(is_this_level)?.evidence.as_deref()
}

/// The message when storage is fenced and no remaining level can end the processes; `None`: there is such a level, or
/// no storage is fenced.
pub(super) fn only_storage_fenced(policy: &FencePolicyObject, incident: &Incident<'_>) -> Option<String> {
    policy.spec.levels.iter().find_map(|level| storage_evidence(level, incident))?;
    let why = why_none_usable(policy, incident)?;
    let node = &incident.name;
    Some(format!(
        "{why}. Its volumes are free. Its pods wait until it reports again, or until a person saw the machine powered off: pod-safety confirm-down {node} --reason TEXT"
    ))
}

/// The devices of an attempt that can switch a machine on: a machine that was deleted cannot be.
pub(super) fn devices_that_switch_on(devices: &[DeviceRef], view: &View<'_>) -> Vec<DeviceRef> {
    let can = |named: &&DeviceRef| driver(named, view).is_none_or(|driver| driver.properties().can_power_on);
    devices.iter().filter(can).cloned().collect()
}

/// The first level from this one on that can be used.
pub(super) fn first_usable(policy: &FencePolicyObject, from: usize, incident: &Incident<'_>) -> Option<usize> {
    let can = |level: &Level| check_level(level, policy, incident).is_ok();
    (from..).zip(policy.spec.levels.iter().skip(from)).find(|(_, level)| can(level)).map(|(index, _)| index)
}

/// What each level lacks; `None`: one of them can be used.
pub(super) fn why_none_usable(policy: &FencePolicyObject, incident: &Incident<'_>) -> Option<String> {
    let mut lacks = Vec::new();
    for level in &policy.spec.levels {
        let why = check_level(level, policy, incident).err()?;
        lacks.push(format!("level {}: {why}", level.name));
    }
    Some(lacks.join("; "))
}

/// Whether the level is manual: it asks a person, and no device.
pub(super) fn is_manual(level: &Level, view: &View<'_>) -> bool {
    level.devices.iter().any(|named| driver(named, view).is_some_and(DeviceDriver::is_operator))
}

/// The first level by which a machine can be switched on.
pub(super) fn first_with_power_on(policy: &FencePolicyObject, incident: &Incident<'_>) -> Option<usize> {
    let can = |level: &&Level| {
        check_usable(&level.devices, incident.node(), &incident.view).is_ok()
            && !is_manual(level, &incident.view)
            && !devices_that_switch_on(&level.devices, &incident.view).is_empty()
    };
    policy.spec.levels.iter().position(|level| can(&level))
}

/// The description of a level in messages.
pub(super) fn describe(level: &Level) -> String {
    let devices: Vec<_> = level.devices.iter().map(ToString::to_string).collect();
    format!("by the level {} with {}", level.name, devices.join(" and "))
}

/// What a person is asked to do.
pub(super) fn describe_manual(level: &Level, node: &str) -> String {
    let name = &level.name;
    format!(
        "the level {name} asks a person to switch {node} off. Only when you saw that the machine is powered off: pod-safety confirm-down {node} --reason TEXT"
    )
}

/// Whether one of the devices is a cloud provider, whose answers may be minutes old.
pub(super) fn use_provider(devices: &[DeviceRef], view: &View<'_>) -> bool {
    let agent = |named: &DeviceRef| view.device(&named.namespace, &named.name)?.spec.agent.as_deref();
    devices.iter().filter_map(agent).any(is_provider_agent)
}

/// The level to try next. `None`: none can be used.
pub(super) fn next_level(policy: &FencePolicyObject, incident: &Incident<'_>) -> Option<NextLevel> {
    let status = incident.status();
    let current = usize::try_from(status.level).unwrap_or(usize::MAX);
    let current_level = policy
        .spec
        .levels
        .get(current)
        .filter(|level| !is_exhausted(level, status) && check_level(level, policy, incident).is_ok());
    if current_level.is_some() {
        return Some(NextLevel::Try { level: current, rounds: status.rounds });
    }
    if let Some(level) = first_usable(policy, current.saturating_add(1), incident) {
        return Some(NextLevel::Try { level, rounds: status.rounds });
    }
    let rounds = status.rounds.saturating_add(1);
    if rounds >= policy.spec.rounds {
        return Some(NextLevel::GiveUp(describe_failures(policy, status)));
    }
    first_usable(policy, 0, incident).map(|level| NextLevel::Try { level, rounds })
}

/// Whether the current level was tried as often as it allows. Attempts of an earlier round may stand right before
/// those of this one, so they are counted in whole rounds; at the maximum of attempts that are kept, each counts as
/// the last.
fn is_exhausted(level: &Level, status: &NodeFenceStatus) -> bool {
    let is_off_attempt = |attempt: &&Attempt| attempt.act == DesiredPower::Off && attempt.level == status.level;
    let tried = status.attempts.iter().rev().take_while(is_off_attempt).count();
    let limit = usize::try_from(level.attempts.max(1)).unwrap_or(usize::MAX);
    tried >= Attempt::MAX_ATTEMPTS || (tried > 0 && tried.is_multiple_of(limit))
}

/// The last problem of each level.
fn describe_failures(policy: &FencePolicyObject, status: &NodeFenceStatus) -> String {
    let describe_level = |(index, level): (u32, &Level)| {
        let last =
            status.attempts.iter().rev().find(|attempt| attempt.act == DesiredPower::Off && attempt.level == index);
        format!("level {}: {}", level.name, last.map_or_else(|| "not tried".to_owned(), describe_failure))
    };
    (0..).zip(&policy.spec.levels).map(describe_level).collect::<Vec<_>>().join("; ")
}

/// The problem of an attempt, in few words.
pub(super) fn describe_failure(attempt: &Attempt) -> String {
    let seen = attempt.verified.as_ref().map(|verified| (&*verified.message, verified.power));
    let message = match seen {
        Some(_) if attempt.has_fenced_storage() => "its storage is fenced, but its processes may still run".to_owned(),
        Some(("", power)) => format!("power is {power}"),
        Some((message, _)) => message.to_owned(),
        None => attempt.outcome.clone().unwrap_or_else(|| "there was no answer".to_owned()),
    };
    message.chars().take(MAX_PROBLEM_CHARS).collect()
}
