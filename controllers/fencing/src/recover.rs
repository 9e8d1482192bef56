//! From evidence to a node that is back. Pure.
//!
//! Off, then released, then on: a machine that boots while its pods are still bound to it starts them again.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::api::{
    Attempt, DesiredPower, DeviceRef, FenceEvidenceKind, NodeFenceStatus, Phase, Power, Recovery,
};
use pod_safety_shared::authority::{EvidenceDefect, Step, incident_name};
use pod_safety_shared::model::{FenceEvidenceObject, FencePolicyObject, Node, Readiness};

use super::contradiction::{MAX_BOOT_TIME, check_sign_of_life};
use super::gates;
use super::incident::{Incident, NodeMatch, RECHECK_AFTER, is_dry_run};
use super::levels;

/// How often a machine is switched on before a person is needed.
const MAX_POWER_ON_ATTEMPTS: usize = 3;

/// After the last change the machine stays off at least this long: the taint eviction that follows the taint deletes
/// its pods within this time.
const SETTLE_TIME: Duration = Duration::from_secs(10);

/// The evidence that the incident names.
fn find_evidence<'a>(incident: &Incident<'a>) -> Option<&'a FenceEvidenceObject> {
    let named = incident.status().evidence.as_deref()?;
    let existing = incident.view.fence_evidence_of(&incident.name).find(|proof| *proof.name == *named);
    existing.filter(|proof| proof.spec.node == incident.fence.spec.node)
}

/// Whether the evidence is still valid; `None`: nothing was proved.
pub(super) fn is_proved_off(incident: &Incident<'_>) -> Option<bool> {
    let invalid = |proof: &FenceEvidenceObject| proof.status.invalidated.is_some();
    if incident.status().evidence.is_some() {
        return match find_evidence(incident).filter(|proof| !invalid(proof)) {
            None => Some(false),
            // A confirmation that expired can be given again.
            Some(proof) => {
                incident.view.evidence_fields(proof, incident.now).check_ends_incarnation().is_ok().then_some(true)
            }
        };
    }
    // It was reported off, and the evidence had been invalidated before.
    let name = incident_name(&incident.fence.spec.node);
    let own = incident.view.fence_evidence_of(&incident.name).find(|proof| *proof.name == *name);
    own.filter(|proof| invalid(proof)).map(|_| false)
}

/// A sign of life against valid evidence, while the incident awaits a person.
pub(super) fn check_doubted(incident: &Incident<'_>) -> Option<Decision> {
    let proof = find_evidence(incident).filter(|proof| proof.status.invalidated.is_none())?;
    check_sign_of_life(incident, proof)
}

/// What to do when the evidence was invalidated; `None`: it was not, or all is done. Our taint then claims what is no
/// longer proved, and kube-controller-manager acts on it: it is removed, unless other evidence about this incarnation
/// is valid.
pub(super) fn check_withdrawn(incident: &Incident<'_>) -> Option<Decision> {
    let proof = find_evidence(incident)?;
    let Incident { view, now, .. } = incident;
    let holds = match incident.node() {
        Some(node) => view.check_evidence(proof, node, *now),
        None => view.evidence_fields(proof, *now).check_ends_incarnation(),
    };
    let message = match (&proof.status.invalidated, holds) {
        (Some(invalid), _) => format!("the evidence {} was invalidated: {}", proof.name, invalid.reason),
        // Such evidence releases no pod that is deleted from now on.
        (None, Err(lack @ (EvidenceDefect::Expired | EvidenceDefect::TooWeak))) => {
            format!("the evidence {} is not valid: {}", proof.name, lack.describe())
        }
        (None, _) => return None,
    };
    if let Some(decision) = incident.adopt_if_not_ready() {
        return Some(decision);
    }
    if incident.status().tainted && incident.valid_evidence().is_none() {
        let status = NodeFenceStatus {
            tainted: false,
            gates: Vec::new(),
            ..incident.status_with(Phase::AwaitingOperator, message)
        };
        return Some(incident.step(Step::Withdraw, status));
    }
    let is_new = incident.status().phase != Phase::AwaitingOperator;
    is_new.then(|| incident.change_phase(Phase::AwaitingOperator, message))
}

/// The evidence of the incident, unless it was invalidated or contradicted.
fn require_evidence<'a>(incident: &Incident<'a>) -> Result<&'a FenceEvidenceObject, Decision> {
    let named = incident.status().evidence.as_deref().unwrap_or_default();
    let Some(proof) = find_evidence(incident) else {
        let (node, evidence) = (Arc::clone(&incident.name), named.to_owned());
        return Err(incident.hold_and_recheck(Hold::EvidenceMissing { node, evidence }));
    };
    if let Some(decision) = check_withdrawn(incident) {
        return Err(decision);
    }
    check_sign_of_life(incident, proof).map_or(Ok(proof), Err)
}

/// The node is back with another boot.
pub(super) fn finish_recovery(incident: &Incident<'_>, node: &Node) -> Decision {
    let name = Arc::clone(&incident.name);
    if node.readiness != Readiness::Ready {
        return incident.hold(Hold::AwaitingNodeReady { node: name });
    }
    if let Some(waits) = incident.wait_for_attempt() {
        return waits;
    }
    let tainted = incident.status().tainted;
    let pods = incident.pods_of_previous_boot(node);
    if pods > 0 && tainted {
        // There is no evidence about this boot: kube-controller-manager must not act on the taint.
        let message = "the node is back with a new boot; its kubelet ends the pods of the former one";
        let status = NodeFenceStatus { tainted: false, ..incident.status_with(incident.status().phase, message) };
        return incident.step(Step::Untaint, status);
    }
    if pods > 0 {
        return incident.hold(Hold::WaitsForPods { node: name, pods });
    }
    if let Some(decision) = incident.keep_fenced() {
        return decision;
    }
    let status = NodeFenceStatus {
        tainted: false,
        gates: Vec::new(),
        ..incident.status_with(Phase::Done, "the node is back with a new boot")
    };
    incident.step(if tainted { Step::Untaint } else { Step::Write }, status)
}

/// There is evidence: first the taint, then the release by other controllers, then recovery.
pub(super) fn decide_fenced(incident: &Incident<'_>) -> Decision {
    if let NodeMatch::NewIncarnation(node) = incident.node_match {
        return finish_recovery(incident, node);
    }
    let proof = match require_evidence(incident) {
        Ok(proof) => proof,
        Err(decision) => return decision,
    };
    let name = || Arc::clone(&incident.name);
    if let Some(node) = incident.node().filter(|_| !incident.status().tainted) {
        if node.readiness == Readiness::Ready {
            return incident.hold_and_recheck(Hold::NodeStillReady { node: name() });
        }
        let message = "proved off; its pods are being released".to_owned();
        let status = NodeFenceStatus { tainted: true, ..incident.status_with(Phase::Fenced, message) };
        return incident.step(Step::Taint, status);
    }
    match check_released(incident) {
        Err(decision) => decision,
        Ok(()) if proof.spec.kind.ends_machine() && matches!(incident.node_match, NodeMatch::Gone) => {
            incident.change_phase(Phase::Done, "its machine and its Node do not exist any more")
        }
        // The agent's watchdog resets the machine when the agent sees that the grant was revoked, or has done so
        // already.
        Ok(()) if proof.spec.kind == FenceEvidenceKind::WatchdogLease => {
            incident.hold(Hold::AwaitingNodeReady { node: name() })
        }
        Ok(()) => match incident.policy().filter(|policy| may_switch_on(incident, policy)) {
            Some(policy) => check_paused(incident, policy)
                .map_or_else(|| switch_on(incident, policy), |hold| incident.hold_and_recheck(hold)),
            None => incident.hold(Hold::MachinePoweredOff { node: name() }),
        },
    }
}

/// Whether the machine may be switched on: not if its Node was deleted, because it is not wanted back, and not if the
/// machine does not exist any more.
fn may_switch_on(incident: &Incident<'_>, policy: &FencePolicyObject) -> bool {
    policy.spec.recovery == Recovery::PowerOn
        && !incident.fence.spec.cancelled
        && !incident.fence.spec.keep_off
        && !is_dry_run(incident.fence, policy)
        && incident.node().is_some()
        && !find_evidence(incident).is_some_and(|proof| proof.spec.kind.ends_machine())
        && !is_kept_off(incident)
}

/// Whether the last confirmation that the machine is off did not permit to switch it on: a person may be working on
/// it. It counts even if it expired, or if a device reported off too. Of two confirmations of the same second, one
/// that keeps the machine off wins.
fn is_kept_off(incident: &Incident<'_>) -> bool {
    let confirmations = || {
        incident.view.fence_evidence_of(&incident.name).filter(|proof| {
            proof.spec.kind == FenceEvidenceKind::OperatorConfirmed
                && proof.spec.node == incident.fence.spec.node
                && proof.status.invalidated.is_none()
        })
    };
    let last = confirmations().map(|confirmation| confirmation.created).max();
    confirmations().any(|confirmation| Some(confirmation.created) == last && !confirmation.spec.power_on)
}

/// The hold while power-on is paused, by the policy or on the node.
fn check_paused(incident: &Incident<'_>, policy: &FencePolicyObject) -> Option<Hold> {
    gates::check_paused(policy).or_else(|| incident.node().and_then(gates::check_suspended))
}

/// Whether no pod of the node waits, and no attempt can take effect any more.
fn check_released(incident: &Incident<'_>) -> Result<(), Decision> {
    let pods = incident.count_pods_waiting();
    if pods > 0 {
        let hold = Hold::WaitsForPods { node: Arc::clone(&incident.name), pods };
        return Err(incident.hold(hold));
    }
    if let Some(waits) = incident.wait_for_attempt() {
        return Err(waits);
    }
    let settled = incident.fence.status_seen + SETTLE_TIME;
    if incident.now < settled {
        let hold = Hold::WaitsForPods { node: Arc::clone(&incident.name), pods };
        return Err(incident.hold(hold).and_requeue_at(settled));
    }
    Ok(())
}

/// The devices that switched it off, or those of the first level that can be used.
fn power_on_devices(incident: &Incident<'_>, policy: &FencePolicyObject) -> Option<(u32, Vec<DeviceRef>)> {
    let is_off = |attempt: &&Attempt| attempt.act == DesiredPower::Off && attempt.has_ended_workloads();
    if let Some(attempt) = incident.status().attempts.iter().rev().find(is_off) {
        return Some((attempt.level, attempt.devices.clone()));
    }
    let index = levels::first_with_power_on(policy, incident)?;
    let level = policy.spec.levels.get(index)?;
    Some((u32::try_from(index).unwrap_or(u32::MAX), level.devices.clone()))
}

fn switch_on(incident: &Incident<'_>, policy: &FencePolicyObject) -> Decision {
    let no_devices = |why| Hold::NoDevices { policy: Arc::clone(&policy.name), why };
    let Some((level, devices)) = power_on_devices(incident, policy) else {
        let why = levels::why_none_usable(policy, incident).unwrap_or_else(|| "a person switches it on".to_owned());
        return incident.hold_and_recheck(no_devices(why));
    };
    let devices = levels::devices_that_switch_on(&devices, &incident.view);
    if devices.is_empty() {
        return incident.hold(Hold::MachinePoweredOff { node: Arc::clone(&incident.name) });
    }
    match levels::check_usable(&devices, incident.node(), &incident.view) {
        Err(why) => incident.hold_and_recheck(no_devices(why)),
        Ok(within) => {
            let within_seconds = within.on;
            let attempt = Attempt { act: DesiredPower::On, level, devices, within_seconds, ..Attempt::default() };
            incident.begin_attempt(incident.status_with(Phase::Recovering, "released; switching it on"), attempt)
        }
    }
}

/// It is being switched on.
pub(super) fn decide_recovering(incident: &Incident<'_>) -> Decision {
    if let NodeMatch::NewIncarnation(node) = incident.node_match {
        return finish_recovery(incident, node);
    }
    if let Err(decision) = require_evidence(incident) {
        return decision;
    }
    let last = incident.status().attempts.last().filter(|last| last.act == DesiredPower::On);
    match last.map(|last| (last, &last.verified)) {
        None => switch_on_again(incident),
        Some((_, Some(verified))) if verified.power == Power::On => wait_for_reboot(incident),
        Some((last, Some(_))) => {
            let (tried, next) = incident.backoff(DesiredPower::On);
            if tried >= MAX_POWER_ON_ATTEMPTS {
                let problem = levels::describe_failure(last);
                let message = format!("it could not be switched on in {tried} attempts: {problem}");
                return incident.change_phase(Phase::AwaitingOperator, message);
            }
            if incident.now < next {
                let (node, left) = (Arc::clone(&incident.name), next.since(incident.now));
                let hold =
                    Hold::RetryBackoff { node, act: DesiredPower::On, why: levels::describe_failure(last), left };
                return incident.hold(hold).and_requeue_at(next);
            }
            switch_on_again(incident)
        }
        Some((_, None)) => {
            incident.wait_for_attempt().unwrap_or_else(|| incident.step(Step::Look, incident.status().clone()))
        }
    }
}

/// It was reported on. If something switched it off since, a late command for instance, it is not reported: it is
/// switched on once more.
fn wait_for_reboot(incident: &Incident<'_>) -> Decision {
    let due = incident.fence.status_seen + MAX_BOOT_TIME;
    if incident.now < due {
        return incident.hold(Hold::AwaitingNodeReady { node: Arc::clone(&incident.name) }).and_requeue_at(due);
    }
    let (tried, _) = incident.backoff(DesiredPower::On);
    if tried >= MAX_POWER_ON_ATTEMPTS {
        let message = format!("it was switched on {tried} times, but is not back");
        return incident.change_phase(Phase::AwaitingOperator, message);
    }
    switch_on_again(incident)
}

fn switch_on_again(incident: &Incident<'_>) -> Decision {
    if let Err(decision) = check_released(incident) {
        return decision.and_requeue_at(incident.now + RECHECK_AFTER);
    }
    match incident.policy().filter(|policy| may_switch_on(incident, policy)) {
        Some(policy) => check_paused(incident, policy)
            .map_or_else(|| switch_on(incident, policy), |hold| incident.hold_and_recheck(hold)),
        None => incident.hold(Hold::MachinePoweredOff { node: Arc::clone(&incident.name) }),
    }
}
