//! From the first suspicion to evidence. Pure.
//!
//! Intent is written before the act and outcome after it; what follows rests on looks alone. So whoever reads a status,
//! after whatever crash, finds there what may still happen, and for how long.

use std::sync::Arc;

use crate::holds::{Decision, Hold};
use pod_safety_shared::api::{Attempt, NodeFenceStatus, Phase, Power, SwitchTo};
use pod_safety_shared::authority::{Step, incident_name};
use pod_safety_shared::drive::{NodeUnreadable, Subject};
use pod_safety_shared::model::Policy;

use super::gates::{self, For};
use super::incident::{Incident, LOOK_AGAIN, Machine, is_dry};
use super::levels::{self, Next};
use super::way_out::WayOut;
use super::{drain, recover, remediate};

/// Decides about a live incident.
pub(super) fn progress(incident: &Incident<'_>) -> Decision {
    if let Machine::Unsaid(node) = incident.machine {
        let why = "it has no UUID in status.nodeInfo.bootID".to_owned();
        let hold = Hold::from(NodeUnreadable { node: Arc::clone(&node.name), why });
        return Decision::hold(Subject::Node(Arc::clone(&node.name)), hold);
    }
    match incident.status().phase {
        Phase::Pending => pending(incident),
        Phase::Fencing => fencing(incident),
        Phase::Fenced => recover::fenced(incident),
        Phase::Recovering => recover::recovering(incident),
        Phase::AwaitingOperator => awaiting(incident),
        Phase::Done | Phase::Cancelled | Phase::Superseded => Decision::default(),
    }
}

/// The node began another life before anything was proved. What was begun may still land: then on that life.
fn superseded(incident: &Incident<'_>) -> Option<Decision> {
    let why = match incident.machine {
        Machine::OtherLife(_) => "the machine rebooted by itself",
        Machine::SameBoot => "the Node was recreated by a running kubelet",
        Machine::Gone | Machine::Unsaid(_) | Machine::SameLife(_) => return None,
    };
    Some(incident.waits_for_attempt().unwrap_or_else(|| incident.ends(Phase::Superseded, why)))
}

fn called_off(incident: &Incident<'_>) -> Option<Decision> {
    if let Some(words) = incident.is_well_again() {
        return Some(incident.ends(Phase::Cancelled, words));
    }
    if remediate::is_taken_back(incident) {
        return Some(incident.ends(Phase::Cancelled, "the request was withdrawn"));
    }
    incident.fence.spec.cancelled.then(|| incident.ends(Phase::Cancelled, "it was cancelled"))
}

fn without_policy(incident: &Incident<'_>) -> Decision {
    let policy = incident.fence.spec.policy.clone();
    incident.hold(Hold::NoPolicy { node: Arc::clone(&incident.name), policy })
}

fn pending(incident: &Incident<'_>) -> Decision {
    // One that began anew may have something under way from before.
    if let Some(decision) = incident.waits_for_attempt() {
        return decision;
    }
    if let Some(decision) = superseded(incident).or_else(|| called_off(incident)) {
        return decision;
    }
    let Some(policy) = incident.policy() else { return without_policy(incident) };
    let dry = is_dry(incident.fence, policy);
    if let Some(decision) = incident.adopted().filter(|_| !dry) {
        return decision;
    }
    let closed = gates::closed(incident, policy, For::Begin);
    let level = levels::first(policy, 0, incident);
    match level.filter(|_| closed.is_empty()) {
        Some(level) if dry => {
            let plan = policy.spec.levels.get(level).map(levels::words).unwrap_or_default();
            let hold = Hold::DryRun { node: Arc::clone(&incident.name), plan };
            let message = hold.to_string();
            let mut decision = incident.hold_for_now(hold);
            if message != incident.status().message || gates::differ(&incident.status().gates, &[]) {
                decision.intents = shown(incident, policy, &[], message).intents;
            }
            decision
        }
        Some(level) => switch_off(incident, policy, level, incident.status().rounds),
        None => held(incident, policy, closed),
    }
}

/// Writes which gates are closed.
fn shown(incident: &Incident<'_>, policy: &Policy, closed: &[Hold], message: String) -> Decision {
    let gates = gates::record(incident, policy, closed);
    let status = NodeFenceStatus { gates, ..incident.with(incident.status().phase, message) };
    incident.step(Step::Write, status)
}

/// Gates are closed: it is shown, and asked again.
fn held(incident: &Incident<'_>, policy: &Policy, closed: Vec<Hold>) -> Decision {
    let mut decision = Decision::default().and_recheck_at(incident.now + LOOK_AGAIN);
    if let Some(round) = drain::round(incident, &closed, || gates::record(incident, policy, &closed)) {
        decision.intents = round.intents;
    } else if gates::differ(&incident.status().gates, &closed) {
        let message = closed.first().map(ToString::to_string).unwrap_or_default();
        decision.intents = shown(incident, policy, &closed, message).intents;
    }
    decision.holds = closed.into_iter().map(|hold| (incident.subject(), hold)).collect();
    decision
}

fn switch_off(incident: &Incident<'_>, policy: &Policy, index: usize, rounds: u32) -> Decision {
    let Some(level) = policy.spec.levels.get(index) else { return Decision::default() };
    let Ok(within) = levels::fits(level, policy, incident) else {
        return Decision::default();
    };
    let number = u32::try_from(index).unwrap_or(u32::MAX);
    if levels::asks_a_person(level, &incident.view) {
        let message = levels::words_for_a_person(level, &incident.name);
        let status = NodeFenceStatus {
            level: number,
            rounds,
            gates: gates::record(incident, policy, &[]),
            ..incident.with(Phase::AwaitingOperator, message)
        };
        return incident.step(Step::Write, status);
    }
    let attempt = Attempt {
        act: SwitchTo::Off,
        level: number,
        devices: level.devices.clone(),
        corroborate: level.corroborate.clone(),
        within_seconds: within.off,
        ..Attempt::default()
    };
    let message = format!("switching it off {}", levels::words(level));
    let gates = gates::record(incident, policy, &[]);
    let status = NodeFenceStatus { level: number, rounds, gates, ..incident.with(Phase::Fencing, message) };
    incident.begin(status, attempt)
}

fn fencing(incident: &Incident<'_>) -> Decision {
    if let Some(decision) = superseded(incident).or_else(|| incident.adopted()) {
        return decision;
    }
    let last = incident.status().attempts.last().filter(|last| last.act == SwitchTo::Off);
    match last.map(|last| (last, &last.verified)) {
        None => {
            let first = incident.waits_for_attempt().or_else(|| called_off(incident));
            first.unwrap_or_else(|| go_on(incident, None))
        }
        Some((last, Some(_))) if last.fenced_storage() => storage(incident, last),
        Some((_, Some(verified))) if verified.power == Power::Off => prove(incident),
        Some((last, Some(_))) => failed(incident, last),
        // With an outcome, or when nothing of it can land any more: what it came to is seen by looking.
        Some((last, None)) => incident
            .waits_for_attempt()
            .or_else(|| provider_is_behind(incident, last))
            .unwrap_or_else(|| incident.step(Step::Look, incident.status().clone())),
    }
}

/// What a provider shows of an instance may be as old as its copies may be behind: while this boot has been known for less,
/// it may be the stop before this boot. What it shows later of a stop is a stop of this boot.
fn provider_is_behind(incident: &Incident<'_>, attempt: &Attempt) -> Option<Decision> {
    let life = incident.node().and_then(|node| node.life.as_ref());
    let opened = incident.fence.first_seen;
    let known = life.map_or(opened, |life| life.boot_seen.min(opened));
    let due = known + incident.config.provider_behind;
    let asks = incident.now < due && levels::ask_a_provider(&attempt.devices, &incident.view);
    let (node, left) = (Arc::clone(&incident.name), due.since(incident.now));
    asks.then(|| incident.hold(Hold::ProviderBehind { node, left }).and_recheck_at(due))
}

/// All its devices said off, twice. Whether its kubelet was silent since is read live before it becomes evidence.
fn prove(incident: &Incident<'_>) -> Decision {
    let evidence = incident_name(&incident.fence.spec.node);
    let known = incident.view.proofs_of(&incident.name).find(|proof| *proof.name == *evidence);
    if let Some(invalidated) = known.and_then(|proof| proof.status.invalidated.as_ref()) {
        // Of one life there is one piece of evidence of ours, and what is invalid stays so.
        let message =
            format!("it is off, but the evidence {evidence} was invalidated: {}", invalidated.reason);
        return incident.turn(Phase::AwaitingOperator, message);
    }
    let status = NodeFenceStatus {
        evidence: Some(evidence),
        gates: Vec::new(),
        ..incident.with(Phase::Fenced, "all its devices reported off, twice")
    };
    incident.step(Step::Prove, status)
}

/// Its storage takes nothing from it any more. That is evidence about volumes; what runs there is for the next level.
fn storage(incident: &Incident<'_>, last: &Attempt) -> Decision {
    if let Some(decision) = called_off(incident) {
        return decision;
    }
    if last.evidence.is_some() {
        return go_on(incident, None);
    }
    let mut status = incident.with(Phase::Fencing, "its storage is fenced, but its processes may still run");
    let evidence = incident.storage_evidence(last);
    if let Some(last) = status.attempts.last_mut() {
        last.evidence = Some(evidence);
    }
    incident.step(Step::ProveStorage, status)
}

/// It is not off. A node that is well again is left so: nothing is under way.
fn failed(incident: &Incident<'_>, last: &Attempt) -> Decision {
    called_off(incident).unwrap_or_else(|| go_on(incident, Some(last)))
}

/// A further attempt, through all gates once more: a storm may have come up meanwhile.
fn go_on(incident: &Incident<'_>, last: Option<&Attempt>) -> Decision {
    let Some(policy) = incident.policy() else { return without_policy(incident) };
    if is_dry(incident.fence, policy) {
        let plan = "(its policy became a dry run meanwhile)".to_owned();
        return incident.hold_for_now(Hold::DryRun { node: Arc::clone(&incident.name), plan });
    }
    if let Some(words) = levels::storage_alone(policy, incident) {
        return incident.turn(Phase::AwaitingOperator, words);
    }
    let closed = gates::closed(incident, policy, For::GoOn);
    if !closed.is_empty() {
        return held(incident, policy, closed);
    }
    if let (Some(last), (_, next)) = (last, incident.pause(SwitchTo::Off))
        && incident.now < next
    {
        let (node, left) = (Arc::clone(&incident.name), next.since(incident.now));
        let hold = Hold::RetryBackoff { node, act: SwitchTo::Off, why: levels::problem(last), left };
        return incident.hold(hold).and_recheck_at(next);
    }
    match levels::next(policy, incident) {
        Some(Next::Try { level, rounds }) => switch_off(incident, policy, level, rounds),
        Some(Next::GiveUp(problems)) => {
            let failed = match policy.spec.rounds {
                1 => "all levels failed".to_owned(),
                rounds => format!("all levels failed {rounds} times"),
            };
            incident.turn(Phase::AwaitingOperator, format!("{failed}: {problems}"))
        }
        None => incident.hold_for_now(Hold::NoDevices {
            policy: Arc::clone(&policy.name),
            why: "there is none left to try".to_owned(),
        }),
    }
}

/// Nothing more is tried. What was proved may still show itself to be untrue.
fn awaiting(incident: &Incident<'_>) -> Decision {
    let proved = incident.status().evidence.is_some();
    if proved && let Machine::OtherLife(node) = incident.machine {
        return recover::back(incident, node);
    }
    if let Some(decision) = recover::withdrawn(incident).or_else(|| recover::doubted(incident)) {
        return decision;
    }
    let on_its_own = if proved { None } else { superseded(incident).or_else(|| called_off_late(incident)) };
    if let Some(decision) = on_its_own.or_else(|| incident.adopted()) {
        return decision;
    }
    let (node, why) = (Arc::clone(&incident.name), incident.status().message.clone());
    incident.hold_for_now(Hold::AwaitingOperator { node, why, way_out: way_out(incident) })
}

/// As [`called_off`], when all was tried: what was begun last may still land.
fn called_off_late(incident: &Incident<'_>) -> Option<Decision> {
    let decision = called_off(incident)?;
    Some(incident.waits_for_attempt().unwrap_or(decision))
}

/// What a person types. A message that names it says in which case.
const CONFIRM: &str = "pod-safety confirm-down";

fn way_out(incident: &Incident<'_>) -> WayOut {
    match recover::is_proved(incident) {
        Some(true) => WayOut::SwitchOn,
        Some(false) => WayOut::FindOut,
        None if incident.status().message.contains(CONFIRM) => WayOut::AsAsked,
        None => WayOut::Prove,
    }
}
