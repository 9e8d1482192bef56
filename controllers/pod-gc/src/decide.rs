//! What to collect. Pure.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::{Cause, Claim, Delete, Force, Intent};
use pod_safety_shared::cache::{Lookup, SignOfLife, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::{NodeUnreadable, Subject};
use pod_safety_shared::model::{Kind, Node, Phase, Pod, Proof, Readiness, Uid};

use super::config::Config;

/// How many terminated pods are asked for at once. They leave at a few hundred a
/// second, so the next look comes long before these are done.
const TERMINATED_AT_ONCE: usize = 2_000;

/// How many held pods of one rule are shown. A person reads the first few.
const HOLDS_SHOWN: usize = 100;

/// A kubelet that is well reports the end of a pod within seconds after its grace period. Before this the report of an agent is not read.
/// docs/assumptions.md: reports-ends-soon
const REPORTS_WITHIN: Duration = Duration::from_secs(30);

/// A missing node is looked at this often, so that a sign of life shows up soon.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// What is decided about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The pods bound to the node of this name.
    Node(Arc<str>),
    /// A pod that no node took.
    Unscheduled(Uid),
    /// The terminated pods of the whole cluster.
    Terminated,
}

impl Key {
    /// What must be known to decide about it.
    pub(super) const fn needs(&self) -> &'static [Kind] {
        match self {
            Self::Node(_) => &[Kind::Pods, Kind::Nodes, Kind::NodeLeases],
            Self::Terminated => &[Kind::Pods, Kind::Nodes],
            Self::Unscheduled(_) => &[Kind::Pods],
        }
    }
}

/// A kubelet that renews its Lease and has no Node registers again only when it is restarted. It has as long for that as
/// pods tolerate a node that is not heard, unless they say otherwise: then its pods are deleted gracefully.
/// docs/assumptions.md: registers-when-it-starts
pub(super) const REGISTERS_WITHIN: Duration = Duration::from_secs(300);

/// Decides about one key.
#[must_use]
pub fn decide(key: &Key, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    for kind in key.needs() {
        if let Err(unfresh) = view.fresh(*kind, now) {
            return Decision::hold(Subject::Everything, unfresh).and_recheck_at(now + LOOK_AGAIN);
        }
    }
    match key {
        Key::Node(name) => match view.node(name) {
            Lookup::Known(node) => match proved(node, view, now) {
                Some(proof) => fenced(node, proof, view),
                None if node.out_of_service => out_of_service(node, view, config),
                None => unproved(node, view, now, config),
            },
            Lookup::Unknown(why) if view.pods_on(name).next().is_some() => {
                let hold = Hold::from(NodeUnreadable { node: Arc::clone(name), why: why.to_owned() });
                Decision::hold(Subject::Node(Arc::clone(name)), hold)
            }
            Lookup::Unknown(_) => Decision::default(),
            Lookup::Absent => orphaned(name, view, now, config),
        },
        Key::Unscheduled(uid) => view.pod(uid).map_or_else(Decision::default, unscheduled),
        Key::Terminated => config
            .terminated_threshold
            .map_or_else(Decision::default, |threshold| terminated(view, now, threshold)),
    }
}

/// The pods of a node that does not exist.
fn orphaned(name: &Arc<str>, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    let Some(absence) = view.absence(name) else { return Decision::default() };
    let first_read = || Intent::Witness { node: Arc::clone(name) };
    let mut decision = Decision::default();
    let Some(witness) = &absence.witness else {
        decision.intents.push(first_read());
        return decision;
    };
    if let Some(SignOfLife { sign, at }) = view.last_sign_of_life(name)
        && at >= witness.asked_at()
    {
        // Only a read taken after the kubelet fell silent can start a quarantine.
        let quiet = at + config.quarantine;
        if now >= quiet {
            decision.intents.push(first_read());
        }
        let hold = Hold::KubeletAlive { node: Arc::clone(name), sign, ago: now.since(at) };
        decision.holds = view
            .pods_on(name)
            .take(HOLDS_SHOWN)
            .map(|pod| (Subject::Pod(pod.key.clone()), hold.clone()))
            .collect();
        // A kubelet that renews no Lease, and reports on its pods, does not register again by itself.
        let renews = view.renewal(name).is_some_and(|renewal| renewal.at >= absence.since);
        let due = absence.since + if renews { REGISTERS_WITHIN } else { config.quarantine };
        if now >= due {
            let living = view.pods_on(name).filter(|pod| pod.deletion.is_none() && !pod.phase.is_terminal());
            decision.intents.extend(living.map(|pod| end(pod, name, due)));
        }
        return decision
            .and_recheck_at(quiet.max(now).min(now + LOOK_AGAIN).max(now + Duration::from_secs(1)));
    }
    let ends = witness.answered_at() + config.quarantine;
    if now < ends {
        let hold = Hold::Quarantine { node: Arc::clone(name), left: ends.since(now) };
        return Decision::hold(Subject::Node(Arc::clone(name)), hold)
            .and_recheck_at(ends.min(now + LOOK_AGAIN));
    }
    let (mut waiting, mut busy) = (Vec::new(), Vec::new());
    for pod in view.pods_on(name) {
        if view.silence_is_proof(pod, name, witness) {
            force(&mut decision, pod, Claim::NodeGone { node: Arc::clone(name) });
        } else if let Some(from) = pod.unanswered_from(view.reports_deletions(name)) {
            if view.worker_may_be_busy(pod, name) {
                let hold = Hold::WorkerMayBeBusy { node: Arc::clone(name) };
                busy.push((Subject::Pod(pod.key.clone()), hold));
            } else {
                waiting.push((from, pod));
            }
        } else {
            decision.intents.push(end(pod, name, ends));
        }
    }
    busy.truncate(HOLDS_SHOWN);
    decision.holds.extend(busy);
    await_answer(decision, name, &waiting, ends, now, config)
}

fn end(pod: &Pod, node: &Arc<str>, due: Mono) -> Intent {
    Intent::Delete(Delete::new(pod, Cause::NodeGone { node: Arc::clone(node) }, due))
}

/// These pods were deleted gracefully. When their kubelet has had the time to respond, a new first read begins another
/// quarantine.
fn await_answer(
    mut decision: Decision,
    node: &Arc<str>,
    waiting: &[(Mono, &Pod)],
    quarantine_ended: Mono,
    now: Mono,
    config: &Config,
) -> Decision {
    let Some(next) = waiting.iter().map(|(from, _)| *from).min() else { return decision };
    let next = next.max(quarantine_ended);
    // What can be done now is done before: a new first read holds up what the last one lets go, and what is not asked yet
    // would wait for one more. But not for what cannot be done.
    let done = if decision.intents.is_empty() { Duration::ZERO } else { LOOK_AGAIN };
    if next + done <= now {
        decision.intents.push(Intent::Witness { node: Arc::clone(node) });
    }
    decision.holds.extend(waiting.iter().take(HOLDS_SHOWN).map(|(from, pod)| {
        let left = (*from).max(now) + config.quarantine;
        let hold = Hold::AwaitsKubelet { node: Arc::clone(node), left: left.since(now) };
        (Subject::Pod(pod.key.clone()), hold)
    }));
    decision.and_recheck_at((next + done).min(now + LOOK_AGAIN).max(now + Duration::from_secs(1)))
}

/// The evidence about the life that this node is in. Where our own kinds are not to be had, there is none: that must
/// not hold up the other rules.
fn proved<'a>(node: &Node, view: &View<'a>, now: Mono) -> Option<&'a Proof> {
    let fresh = |kind: &Kind| view.fresh(*kind, now).is_ok();
    let fresh = [Kind::FenceEvidences, Kind::FencePolicies].iter().all(fresh);
    if fresh { view.proof_of(node, now) } else { None }
}

/// The terminating pods of a node that was fenced.
fn fenced(node: &Node, proof: &Proof, view: &View<'_>) -> Decision {
    let mut decision = Decision::default();
    let newest = view.newest_evidence(proof);
    let (name, proof) = (|| Arc::clone(&node.name), || Arc::clone(&proof.name));
    for pod in view.pods_on(&node.name).filter(|pod| pod.deletion.is_some()) {
        if node.readiness == Readiness::Ready {
            let hold = Hold::EvidenceConflictsWithReady { node: name(), proof: proof() };
            decision.holds.push((Subject::Pod(pod.key.clone()), hold));
        } else {
            force(&mut decision, pod, Claim::Fenced { node: name(), proof: proof(), newest });
        }
    }
    decision
}

/// Whether an incident of ours put the taint there: then its evidence is asked, which may have been withdrawn since.
fn is_ours(node: &Node, view: &View<'_>) -> bool {
    let value = node.life.as_ref().and_then(|life| life.out_of_service.as_deref());
    view.fences_of(&node.name).any(|fence| Some(&*fence.name) == value)
}

/// The terminating pods of a node that somebody declared out of service.
fn out_of_service(node: &Node, view: &View<'_>, config: &Config) -> Decision {
    let mut decision = Decision::default();
    for pod in view.pods_on(&node.name).filter(|pod| pod.deletion.is_some()) {
        let name = Arc::clone(&node.name);
        if node.readiness == Readiness::Ready {
            decision.holds.push((Subject::Pod(pod.key.clone()), Hold::OutOfServiceButReady { node: name }));
        } else if config.trust_out_of_service_taint && !is_ours(node, view) {
            force(&mut decision, pod, Claim::OutOfService { node: name });
        } else {
            decision
                .holds
                .push((Subject::Pod(pod.key.clone()), Hold::OutOfServiceWithoutEvidence { node: name }));
        }
    }
    decision
}

/// The terminating pods of a node without evidence. Where its kubelet does not report, they wait, and a hold says so. Where it reports,
/// ready or not, it may still end them, or the node's agent reports that they have ended.
fn unproved(node: &Node, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    let mut decision = Decision::default();
    let waiting =
        view.pods_on(&node.name).filter(|pod| pod.deletion.is_some() && !pod.waits_for_finalizers());
    match node.readiness {
        Readiness::Unknown => {
            let hold = || Hold::NoEvidence { node: Arc::clone(&node.name) };
            decision.holds.extend(waiting.map(|pod| (Subject::Pod(pod.key.clone()), hold())));
        }
        Readiness::Ready | Readiness::NotReady if config.agent_reports.is_some() => {
            return waiting.fold(decision, |decision, pod| overdue(decision, pod, &node.name, now));
        }
        Readiness::Ready | Readiness::NotReady | Readiness::Missing => {}
    }
    decision
}

/// A pod that its kubelet does not end, though it reports: the agent of the node may say that nothing of the pod is left.
fn overdue(mut decision: Decision, pod: &Pod, node: &Arc<str>, now: Mono) -> Decision {
    let due = pod.grace_ends().map(|ends| ends + REPORTS_WITHIN);
    // What its kubelet does not know of may start still.
    let Some(due) = due.filter(|_| pod.observed >= pod.generation.max(1)) else { return decision };
    if now < due {
        return decision.and_recheck_at(due);
    }
    force(&mut decision, pod, Claim::PodsEnded { node: Arc::clone(node) });
    decision.and_recheck_at(now + LOOK_AGAIN)
}

/// A pod that was asked to end before any node took it.
fn unscheduled(pod: &Pod) -> Decision {
    let mut decision = Decision::default();
    if pod.node.is_none() && pod.deletion.is_some() {
        force(&mut decision, pod, Claim::NeverScheduled);
    }
    decision
}

/// The oldest terminated pods above the threshold. One that cannot be proved
/// ended keeps counting, but does not keep the others waiting.
fn terminated(view: &View<'_>, now: Mono, threshold: usize) -> Decision {
    let mut decision = Decision::default();
    let excess = view.terminated_count().saturating_sub(threshold);
    if excess == 0 {
        return decision;
    }
    // Orphans are on their way out, called Failed by ourselves: they must not
    // push another pod over the threshold.
    let orphans = view.absences().flat_map(|(node, _)| view.pods_on(node));
    let leaving = orphans.filter(|pod| pod.phase.counts_as_terminated()).count();
    let wanted = excess.saturating_sub(leaving).min(TERMINATED_AT_ONCE);
    for pod in view.terminated().filter(|pod| !belongs_to_its_node(pod, view, now)) {
        if decision.intents.len() == wanted {
            break;
        }
        // Its kubelet removes it when it has unmounted its volumes: that is how the volume guard knows.
        if pod.deletion.is_some() && !pod.claims.is_empty() {
            continue;
        }
        let hold = if pod.phase == Phase::Other {
            Hold::PhaseUnreadable
        } else if pod.running > 0 {
            Hold::TerminalButRunning
        } else {
            force(&mut decision, pod, Claim::KubeletTerminated);
            continue;
        };
        if decision.holds.len() < HOLDS_SHOWN {
            decision.holds.push((Subject::Pod(pod.key.clone()), hold));
        }
    }
    decision
}

/// Whether the rules about nodes decide on this pod: its node is missing, cannot
/// be read, was declared out of service, or was fenced.
fn belongs_to_its_node(pod: &Pod, view: &View<'_>, now: Mono) -> bool {
    pod.node.as_ref().is_some_and(|name| match view.node(name) {
        Lookup::Known(node) => {
            pod.deletion.is_some() && (node.out_of_service || proved(node, view, now).is_some())
        }
        Lookup::Unknown(_) | Lookup::Absent => true,
    })
}

/// Asks for the pod, unless only its finalizers keep it. One that was not called
/// ended yet is asked for even then: the owners of finalizers wait for the phase
/// (a Job replaces its pod only when that has Failed).
fn force(decision: &mut Decision, pod: &Pod, claim: Claim) {
    if pod.waits_for_finalizers() && pod.phase.is_terminal() {
        if decision.holds.len() < HOLDS_SHOWN {
            let finalizers = pod.finalizers.iter().map(|name| name.to_string()).collect();
            decision.holds.push((Subject::Pod(pod.key.clone()), Hold::Finalizers { finalizers }));
        }
    } else {
        decision.intents.push(Intent::Force(Force::new(pod, claim)));
    }
}
