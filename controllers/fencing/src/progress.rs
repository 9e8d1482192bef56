//! From the first suspicion to evidence. Pure.
//!
//! The intent is recorded before each act and the outcome after it; further decisions use status checks only. So the
//! status shows, after any crash, what may still take effect, and for how long.

use std::sync::Arc;

use crate::holds::{Decision, Hold};
use pod_safety_shared::api::{Attempt, DesiredPower, NodeFenceStatus, Phase, Power};
use pod_safety_shared::authority::{Step, incident_name};
use pod_safety_shared::model::FencePolicyObject;

use super::gates::{self, Purpose};
use super::incident::{Incident, NodeMatch, RECHECK_AFTER, is_dry_run};
use super::levels::{self, NextLevel};
use super::remedy::Remedy;
use super::{drain, recover, remediate};

/// Decides about a live incident.
pub(super) fn progress(incident: &Incident<'_>) -> Decision {
    if let NodeMatch::UnknownBoot(node) = incident.node_match {
        return Decision::unreadable_node(&node.name, "it has no UUID in status.nodeInfo.bootID");
    }
    match incident.status().phase {
        Phase::Pending => decide_pending(incident),
        Phase::Fencing => decide_fencing(incident),
        Phase::Fenced => recover::decide_fenced(incident),
        Phase::Recovering => recover::decide_recovering(incident),
        Phase::AwaitingOperator => decide_awaiting(incident),
        Phase::Done | Phase::Cancelled | Phase::Superseded => Decision::default(),
    }
}

/// The node is in another incarnation before anything was proved. An attempt that was begun may still take effect: on
/// that incarnation.
fn check_superseded(incident: &Incident<'_>) -> Option<Decision> {
    let why = match incident.node_match {
        NodeMatch::NewIncarnation(_) => "the machine rebooted by itself",
        NodeMatch::SameBoot => "the Node was recreated by a running kubelet",
        NodeMatch::Gone | NodeMatch::UnknownBoot(_) | NodeMatch::SameIncarnation(_) => return None,
    };
    Some(incident.wait_for_attempt().unwrap_or_else(|| incident.finish(Phase::Superseded, why)))
}

fn check_cancelled(incident: &Incident<'_>) -> Option<Decision> {
    if let Some(message) = incident.recovery_message() {
        return Some(incident.finish(Phase::Cancelled, message));
    }
    if remediate::is_withdrawn(incident) {
        return Some(incident.finish(Phase::Cancelled, "the request was withdrawn"));
    }
    incident.fence.spec.cancelled.then(|| incident.finish(Phase::Cancelled, "it was cancelled"))
}

fn hold_without_policy(incident: &Incident<'_>) -> Decision {
    let policy = incident.fence.spec.policy.clone();
    incident.hold(Hold::NoPolicy { node: Arc::clone(&incident.name), policy })
}

fn decide_pending(incident: &Incident<'_>) -> Decision {
    // A reopened incident may have an attempt in flight from before.
    if let Some(decision) = incident.wait_for_attempt() {
        return decision;
    }
    if let Some(decision) = check_superseded(incident).or_else(|| check_cancelled(incident)) {
        return decision;
    }
    let Some(policy) = incident.policy() else { return hold_without_policy(incident) };
    let dry = is_dry_run(incident.fence, policy);
    if let Some(decision) = incident.adopt_evidence().filter(|_| !dry) {
        return decision;
    }
    let closed = gates::closed_gates(incident, policy, Purpose::Begin);
    let level = levels::first_usable(policy, 0, incident);
    match level.filter(|_| closed.is_empty()) {
        Some(level) if dry => {
            let plan = policy.spec.levels.get(level).map(levels::describe).unwrap_or_default();
            let hold = Hold::DryRun { node: Arc::clone(&incident.name), plan };
            let message = hold.to_string();
            let mut decision = incident.hold_and_recheck(hold);
            if message != incident.status().message || gates::have_changed(&incident.status().gates, &[]) {
                decision.intents = write_gates(incident, policy, &[], message).intents;
            }
            decision
        }
        Some(level) => switch_off(incident, policy, level, incident.status().rounds),
        None => hold_closed(incident, policy, closed),
    }
}

/// Writes which gates are closed.
fn write_gates(incident: &Incident<'_>, policy: &FencePolicyObject, closed: &[Hold], message: String) -> Decision {
    let gates = gates::gate_records(incident, policy, closed);
    let status = NodeFenceStatus { gates, ..incident.status_with(incident.status().phase, message) };
    incident.step(Step::Write, status)
}

/// Gates are closed: the status shows them, and they are evaluated again later.
fn hold_closed(incident: &Incident<'_>, policy: &FencePolicyObject, closed: Vec<Hold>) -> Decision {
    let mut decision = Decision::default().and_requeue_at(incident.now + RECHECK_AFTER);
    if let Some(round) = drain::plan_round(incident, &closed, || gates::gate_records(incident, policy, &closed)) {
        decision.intents = round.intents;
    } else if gates::have_changed(&incident.status().gates, &closed) {
        let message = closed.first().map(ToString::to_string).unwrap_or_default();
        decision.intents = write_gates(incident, policy, &closed, message).intents;
    }
    decision.holds = closed.into_iter().map(|hold| (incident.subject(), hold)).collect();
    decision
}

fn switch_off(incident: &Incident<'_>, policy: &FencePolicyObject, index: usize, rounds: u32) -> Decision {
    let Some(level) = policy.spec.levels.get(index) else { return Decision::default() };
    let Ok(within) = levels::check_level(level, policy, incident) else {
        return Decision::default();
    };
    let number = u32::try_from(index).unwrap_or(u32::MAX);
    if levels::is_manual(level, &incident.view) {
        let message = levels::describe_manual(level, &incident.name);
        let status = NodeFenceStatus {
            level: number,
            rounds,
            gates: gates::gate_records(incident, policy, &[]),
            ..incident.status_with(Phase::AwaitingOperator, message)
        };
        return incident.step(Step::Write, status);
    }
    let attempt = Attempt {
        act: DesiredPower::Off,
        level: number,
        devices: level.devices.clone(),
        corroborate: level.corroborate.clone(),
        within_seconds: within.off,
        ..Attempt::default()
    };
    let message = format!("switching it off {}", levels::describe(level));
    let gates = gates::gate_records(incident, policy, &[]);
    let status = NodeFenceStatus { level: number, rounds, gates, ..incident.status_with(Phase::Fencing, message) };
    incident.begin_attempt(status, attempt)
}

fn decide_fencing(incident: &Incident<'_>) -> Decision {
    if let Some(decision) = check_superseded(incident).or_else(|| incident.adopt_evidence()) {
        return decision;
    }
    let last = incident.status().attempts.last().filter(|last| last.act == DesiredPower::Off);
    match last.map(|last| (last, &last.verified)) {
        None => {
            let first = incident.wait_for_attempt().or_else(|| check_cancelled(incident));
            first.unwrap_or_else(|| try_next(incident, None))
        }
        Some((last, Some(_))) if last.has_fenced_storage() => prove_storage(incident, last),
        Some((_, Some(verified))) if verified.power == Power::Off => prove(incident),
        Some((last, Some(_))) => after_failure(incident, last),
        // The attempt has an outcome, or can take effect no more: a status check shows its result.
        Some((attempt, None)) => incident
            .wait_for_attempt()
            .or_else(|| wait_for_provider(incident, attempt))
            .unwrap_or_else(|| incident.step(Step::Look, incident.status().clone())),
    }
}

/// A provider's answer may be as old as its replicas may be behind: while this boot has been observed for less, a
/// stop that it reports may be the stop before this boot. A stop that it reports later is a stop of this boot.
fn wait_for_provider(incident: &Incident<'_>, attempt: &Attempt) -> Option<Decision> {
    let details = incident.node().and_then(|node| node.details.as_ref());
    let opened = incident.fence.first_seen;
    let seen_at = details.map_or(opened, |details| details.boot_first_seen.min(opened));
    let due = seen_at + incident.config.provider_lag;
    let asks = incident.now < due && levels::use_provider(&attempt.devices, &incident.view);
    let (node, left) = (Arc::clone(&incident.name), due.since(incident.now));
    asks.then(|| incident.hold(Hold::ProviderBehind { node, left }).and_requeue_at(due))
}

/// All its devices reported off, twice. A live read checks that its kubelet has not reported since, before the
/// evidence is written.
fn prove(incident: &Incident<'_>) -> Decision {
    let evidence = incident_name(&incident.fence.spec.node);
    let existing = incident.view.fence_evidence_of(&incident.name).find(|proof| *proof.name == *evidence);
    if let Some(invalidated) = existing.and_then(|proof| proof.status.invalidated.as_ref()) {
        // There is one FenceEvidence of ours for one incarnation, and an invalidated one stays invalid.
        let message = format!("it is off, but the evidence {evidence} was invalidated: {}", invalidated.reason);
        return incident.change_phase(Phase::AwaitingOperator, message);
    }
    let status = NodeFenceStatus {
        evidence: Some(evidence),
        gates: Vec::new(),
        ..incident.status_with(Phase::Fenced, "all its devices reported off, twice")
    };
    incident.step(Step::Prove, status)
}

/// Its storage accepts no writes from it any more. That is evidence about volumes; its processes are left to the next
/// level.
fn prove_storage(incident: &Incident<'_>, last: &Attempt) -> Decision {
    if let Some(decision) = check_cancelled(incident) {
        return decision;
    }
    if last.evidence.is_some() {
        return try_next(incident, None);
    }
    let mut status = incident.status_with(Phase::Fencing, "its storage is fenced, but its processes may still run");
    let evidence = incident.evidence_name_for_storage(last);
    if let Some(last) = status.attempts.last_mut() {
        last.evidence = Some(evidence);
    }
    incident.step(Step::ProveStorage, status)
}

/// The node is not off. If it is healthy again, it is left on: no attempt is in flight.
fn after_failure(incident: &Incident<'_>, last: &Attempt) -> Decision {
    check_cancelled(incident).unwrap_or_else(|| try_next(incident, Some(last)))
}

/// A further attempt, through all gates again: there may be a large outage by now.
fn try_next(incident: &Incident<'_>, last: Option<&Attempt>) -> Decision {
    let Some(policy) = incident.policy() else { return hold_without_policy(incident) };
    if is_dry_run(incident.fence, policy) {
        let plan = "(its policy became a dry run meanwhile)".to_owned();
        return incident.hold_and_recheck(Hold::DryRun { node: Arc::clone(&incident.name), plan });
    }
    if let Some(message) = levels::only_storage_fenced(policy, incident) {
        return incident.change_phase(Phase::AwaitingOperator, message);
    }
    let closed = gates::closed_gates(incident, policy, Purpose::Continue);
    if !closed.is_empty() {
        return hold_closed(incident, policy, closed);
    }
    if let (Some(last), (_, next)) = (last, incident.backoff(DesiredPower::Off))
        && incident.now < next
    {
        let (node, left) = (Arc::clone(&incident.name), next.since(incident.now));
        let hold = Hold::RetryBackoff { node, act: DesiredPower::Off, why: levels::describe_failure(last), left };
        return incident.hold(hold).and_requeue_at(next);
    }
    match levels::next_level(policy, incident) {
        Some(NextLevel::Try { level, rounds }) => switch_off(incident, policy, level, rounds),
        Some(NextLevel::GiveUp(problems)) => {
            let failed = match policy.spec.rounds {
                1 => "all levels failed".to_owned(),
                rounds => format!("all levels failed {rounds} times"),
            };
            incident.change_phase(Phase::AwaitingOperator, format!("{failed}: {problems}"))
        }
        None => incident.hold_and_recheck(Hold::NoDevices {
            policy: Arc::clone(&policy.name),
            why: "there is none left to try".to_owned(),
        }),
    }
}

/// No further attempt. A sign of life may still contradict the evidence.
fn decide_awaiting(incident: &Incident<'_>) -> Decision {
    let proved = incident.status().evidence.is_some();
    if proved && let NodeMatch::NewIncarnation(node) = incident.node_match {
        return recover::finish_recovery(incident, node);
    }
    if let Some(decision) = recover::check_withdrawn(incident).or_else(|| recover::check_doubted(incident)) {
        return decision;
    }
    let on_its_own = if proved { None } else { check_superseded(incident).or_else(|| check_cancelled_late(incident)) };
    if let Some(decision) = on_its_own.or_else(|| incident.adopt_evidence()) {
        return decision;
    }
    let (node, why) = (Arc::clone(&incident.name), incident.status().message.clone());
    incident.hold_and_recheck(Hold::AwaitingOperator { node, why, remedy: remedy(incident) })
}

/// As [`check_cancelled`], after all attempts: the last one may still take effect.
fn check_cancelled_late(incident: &Incident<'_>) -> Option<Decision> {
    let decision = check_cancelled(incident)?;
    Some(incident.wait_for_attempt().unwrap_or(decision))
}

/// The command that a person types. A message that contains it states the condition.
const CONFIRM: &str = "pod-safety confirm-down";

fn remedy(incident: &Incident<'_>) -> Remedy {
    match recover::is_proved_off(incident) {
        Some(true) => Remedy::PowerOn,
        Some(false) => Remedy::Investigate,
        None if incident.status().message.contains(CONFIRM) => Remedy::FollowMessage,
        None => Remedy::ConfirmOff,
    }
}
