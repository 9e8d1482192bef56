//! From evidence to a node that is back. Pure.
//!
//! Off, then released, then on: a machine that boots while its pods are still bound to it starts them again.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::api::{
    Attempt, DeviceRef, KindOfEvidence, NodeFenceStatus, Phase, Power, Recovery, SwitchTo,
};
use pod_safety_shared::authority::{Lack, Step, incident_name};
use pod_safety_shared::model::{Node, Policy, Proof, Readiness};

use super::doubt::{BOOT_TAKES, doubt};
use super::gates;
use super::incident::{Incident, LOOK_AGAIN, Machine, is_dry};
use super::levels;

/// How often a machine is switched on before a person is waited for.
const TRIES_TO_SWITCH_ON: usize = 3;

/// So long after the last change the machine stays off at least: who is to end by the taint that was just added is
/// asked to within.
const SETTLE: Duration = Duration::from_secs(10);

/// The evidence that the incident names.
fn evidence<'a>(incident: &Incident<'a>) -> Option<&'a Proof> {
    let named = incident.status().evidence.as_deref()?;
    let found = incident.view.proofs_of(&incident.name).find(|proof| *proof.name == *named);
    found.filter(|proof| proof.spec.node == incident.fence.spec.node)
}

/// Whether what it rests on holds still; `None`: nothing was proved.
pub(super) fn is_proved(incident: &Incident<'_>) -> Option<bool> {
    let invalid = |proof: &Proof| proof.status.invalidated.is_some();
    if incident.status().evidence.is_some() {
        return match evidence(incident).filter(|proof| !invalid(proof)) {
            None => Some(false),
            // A confirmation that expired can be given again.
            Some(proof) => incident.view.said(proof, incident.now).holds().is_ok().then_some(true),
        };
    }
    // It was found off, and what said so had been withdrawn before.
    let name = incident_name(&incident.fence.spec.node);
    let ours = incident.view.proofs_of(&incident.name).find(|proof| *proof.name == *name);
    ours.filter(|proof| invalid(proof)).map(|_| false)
}

/// What is said against evidence that holds, while a person is waited for.
pub(super) fn doubted(incident: &Incident<'_>) -> Option<Decision> {
    let proof = evidence(incident).filter(|proof| proof.status.invalidated.is_none())?;
    doubt(incident, proof)
}

/// What follows when somebody declared the evidence invalid; `None`: nobody did, or all is done. Our taint says what
/// nobody says any more, and kube-controller-manager acts on it: it goes, unless other evidence about this life holds.
pub(super) fn withdrawn(incident: &Incident<'_>) -> Option<Decision> {
    let proof = evidence(incident)?;
    let Incident { view, now, .. } = incident;
    let holds = match incident.node() {
        Some(node) => view.holds_now(proof, node, *now),
        None => view.said(proof, *now).holds(),
    };
    let message = match (&proof.status.invalidated, holds) {
        (Some(invalid), _) => format!("the evidence {} was invalidated: {}", proof.name, invalid.reason),
        // It releases no pod that is deleted from now on.
        (None, Err(lack @ (Lack::Expired | Lack::TooWeak))) => {
            format!("the evidence {} is not valid: {}", proof.name, lack.words())
        }
        (None, _) => return None,
    };
    if let Some(decision) = incident.renewed() {
        return Some(decision);
    }
    if incident.status().tainted && incident.proof().is_none() {
        let status = NodeFenceStatus {
            tainted: false,
            gates: Vec::new(),
            ..incident.with(Phase::AwaitingOperator, message)
        };
        return Some(incident.step(Step::Withdraw, status));
    }
    let is_new = incident.status().phase != Phase::AwaitingOperator;
    is_new.then(|| incident.turn(Phase::AwaitingOperator, message))
}

/// The evidence on which all rests, unless something is said against it.
fn proved<'a>(incident: &Incident<'a>) -> Result<&'a Proof, Decision> {
    let named = incident.status().evidence.as_deref().unwrap_or_default();
    let Some(proof) = evidence(incident) else {
        let (node, evidence) = (Arc::clone(&incident.name), named.to_owned());
        return Err(incident.hold_for_now(Hold::EvidenceMissing { node, evidence }));
    };
    if let Some(decision) = withdrawn(incident) {
        return Err(decision);
    }
    doubt(incident, proof).map_or(Ok(proof), Err)
}

/// The node is back with another boot.
pub(super) fn back(incident: &Incident<'_>, node: &Node) -> Decision {
    let name = Arc::clone(&incident.name);
    if node.readiness != Readiness::Ready {
        return incident.hold(Hold::AwaitingNodeReady { node: name });
    }
    if let Some(waits) = incident.waits_for_attempt() {
        return waits;
    }
    let tainted = incident.status().tainted;
    let pods = incident.pods_of_former_boot(node);
    if pods > 0 && tainted {
        // There is no evidence about this boot: kube-controller-manager must not take the taint for proof.
        let message = "the node is back with a new boot; its kubelet ends the pods of the former one";
        let status = NodeFenceStatus { tainted: false, ..incident.with(incident.status().phase, message) };
        return incident.step(Step::Untaint, status);
    }
    if pods > 0 {
        return incident.hold(Hold::WaitsForPods { node: name, pods });
    }
    if let Some(decision) = incident.keeps_fenced() {
        return decision;
    }
    let status = NodeFenceStatus {
        tainted: false,
        gates: Vec::new(),
        ..incident.with(Phase::Done, "the node is back with a new boot")
    };
    incident.step(if tainted { Step::Untaint } else { Step::Write }, status)
}

/// There is evidence: the taint, then the release by others, then recovery.
pub(super) fn fenced(incident: &Incident<'_>) -> Decision {
    if let Machine::OtherLife(node) = incident.machine {
        return back(incident, node);
    }
    let proof = match proved(incident) {
        Ok(proof) => proof,
        Err(decision) => return decision,
    };
    let name = || Arc::clone(&incident.name);
    if let Some(node) = incident.node().filter(|_| !incident.status().tainted) {
        if node.readiness == Readiness::Ready {
            return incident.hold_for_now(Hold::NodeStillReady { node: name() });
        }
        let message = "proved off; its pods are being released".to_owned();
        let status = NodeFenceStatus { tainted: true, ..incident.with(Phase::Fenced, message) };
        return incident.step(Step::Taint, status);
    }
    match released(incident) {
        Err(decision) => decision,
        Ok(()) if proof.spec.kind.ends_machine() && matches!(incident.machine, Machine::Gone) => {
            incident.turn(Phase::Done, "its machine and its Node do not exist any more")
        }
        // Its own watchdog resets it, when its agent finds the grant revoked, or has already.
        Ok(()) if proof.spec.kind == KindOfEvidence::WatchdogLease => {
            incident.hold(Hold::AwaitingNodeReady { node: name() })
        }
        Ok(()) => match incident.policy().filter(|policy| may_switch_on(incident, policy)) {
            Some(policy) => paused(incident, policy)
                .map_or_else(|| switch_on(incident, policy), |hold| incident.hold_for_now(hold)),
            None => incident.hold(Hold::MachinePoweredOff { node: name() }),
        },
    }
}

/// Who took the Node away does not want the machine back, and a machine that does not exist any more cannot be switched on.
fn may_switch_on(incident: &Incident<'_>, policy: &Policy) -> bool {
    policy.spec.recovery == Recovery::PowerOn
        && !incident.fence.spec.cancelled
        && !incident.fence.spec.keep_off
        && !is_dry(incident.fence, policy)
        && incident.node().is_some()
        && !evidence(incident).is_some_and(|proof| proof.spec.kind.ends_machine())
        && !is_kept_off(incident)
}

/// Whether the last person who confirmed that the machine is off did not say that it may be switched on: somebody may be
/// working on it. That the word expired, or that a device said off too, changes nothing about that. Of two words of the
/// same second the one that keeps it off counts.
fn is_kept_off(incident: &Incident<'_>) -> bool {
    let words = || {
        incident.view.proofs_of(&incident.name).filter(|proof| {
            proof.spec.kind == KindOfEvidence::Asserted
                && proof.spec.node == incident.fence.spec.node
                && proof.status.invalidated.is_none()
        })
    };
    let last = words().map(|word| word.created).max();
    words().any(|word| Some(word.created) == last && !word.spec.power_on)
}

/// Why nothing is switched on now: somebody asked for a pause.
fn paused(incident: &Incident<'_>, policy: &Policy) -> Option<Hold> {
    gates::paused(policy).or_else(|| incident.node().and_then(gates::left_alone))
}

/// Whether none of its pods waits, and nothing that was begun before can land any more.
fn released(incident: &Incident<'_>) -> Result<(), Decision> {
    let pods = incident.pods_waiting();
    if pods > 0 {
        let hold = Hold::WaitsForPods { node: Arc::clone(&incident.name), pods };
        return Err(incident.hold(hold));
    }
    if let Some(waits) = incident.waits_for_attempt() {
        return Err(waits);
    }
    let settled = incident.fence.status_seen + SETTLE;
    if incident.now < settled {
        let hold = Hold::WaitsForPods { node: Arc::clone(&incident.name), pods };
        return Err(incident.hold(hold).and_recheck_at(settled));
    }
    Ok(())
}

/// The devices by which it was switched off, or those of the first level that can be used.
fn way_on(incident: &Incident<'_>, policy: &Policy) -> Option<(u32, Vec<DeviceRef>)> {
    let is_off = |attempt: &&Attempt| attempt.act == SwitchTo::Off && attempt.ended_what_ran();
    if let Some(attempt) = incident.status().attempts.iter().rev().find(is_off) {
        return Some((attempt.level, attempt.devices.clone()));
    }
    let index = levels::first_that_switches(policy, incident)?;
    let level = policy.spec.levels.get(index)?;
    Some((u32::try_from(index).unwrap_or(u32::MAX), level.devices.clone()))
}

fn switch_on(incident: &Incident<'_>, policy: &Policy) -> Decision {
    let no_devices = |why| Hold::NoDevices { policy: Arc::clone(&policy.name), why };
    let Some((level, devices)) = way_on(incident, policy) else {
        let why =
            levels::none_usable(policy, incident).unwrap_or_else(|| "a person switches it on".to_owned());
        return incident.hold_for_now(no_devices(why));
    };
    let devices = levels::that_switch_on(&devices, &incident.view);
    if devices.is_empty() {
        return incident.hold(Hold::MachinePoweredOff { node: Arc::clone(&incident.name) });
    }
    match levels::usable(&devices, incident.node(), &incident.view) {
        Err(why) => incident.hold_for_now(no_devices(why)),
        Ok(within) => {
            let within_seconds = within.on;
            let attempt = Attempt { act: SwitchTo::On, level, devices, within_seconds, ..Attempt::default() };
            incident.begin(incident.with(Phase::Recovering, "released; switching it on"), attempt)
        }
    }
}

/// It is being switched on.
pub(super) fn recovering(incident: &Incident<'_>) -> Decision {
    if let Machine::OtherLife(node) = incident.machine {
        return back(incident, node);
    }
    if let Err(decision) = proved(incident) {
        return decision;
    }
    let last = incident.status().attempts.last().filter(|last| last.act == SwitchTo::On);
    match last.map(|last| (last, &last.verified)) {
        None => switch_on_again(incident),
        Some((_, Some(verified))) if verified.power == Power::On => not_back(incident),
        Some((last, Some(_))) => {
            let (tried, next) = incident.pause(SwitchTo::On);
            if tried >= TRIES_TO_SWITCH_ON {
                let problem = levels::problem(last);
                let message = format!("it could not be switched on in {tried} attempts: {problem}");
                return incident.turn(Phase::AwaitingOperator, message);
            }
            if incident.now < next {
                let (node, left) = (Arc::clone(&incident.name), next.since(incident.now));
                let hold = Hold::RetryBackoff { node, act: SwitchTo::On, why: levels::problem(last), left };
                return incident.hold(hold).and_recheck_at(next);
            }
            switch_on_again(incident)
        }
        Some((_, None)) => incident
            .waits_for_attempt()
            .unwrap_or_else(|| incident.step(Step::Look, incident.status().clone())),
    }
}

/// It was seen on. What switched it off since, a late order for instance, nobody tells: it is told once more.
fn not_back(incident: &Incident<'_>) -> Decision {
    let due = incident.fence.status_seen + BOOT_TAKES;
    if incident.now < due {
        return incident
            .hold(Hold::AwaitingNodeReady { node: Arc::clone(&incident.name) })
            .and_recheck_at(due);
    }
    let (tried, _) = incident.pause(SwitchTo::On);
    if tried >= TRIES_TO_SWITCH_ON {
        let message = format!("it was switched on {tried} times, but is not back");
        return incident.turn(Phase::AwaitingOperator, message);
    }
    switch_on_again(incident)
}

fn switch_on_again(incident: &Incident<'_>) -> Decision {
    if let Err(decision) = released(incident) {
        return decision.and_recheck_at(incident.now + LOOK_AGAIN);
    }
    match incident.policy().filter(|policy| may_switch_on(incident, policy)) {
        Some(policy) => paused(incident, policy)
            .map_or_else(|| switch_on(incident, policy), |hold| incident.hold_for_now(hold)),
        None => incident.hold(Hold::MachinePoweredOff { node: Arc::clone(&incident.name) }),
    }
}
