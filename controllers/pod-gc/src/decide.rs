//! Which pods to force delete. Pure.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::{Claim, DeleteCause, ForceDeleteRequest, GracefulDeleteRequest, Intent};
use pod_safety_shared::cache::{LastHeartbeat, Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Subject;
use pod_safety_shared::model::{FenceEvidenceObject, Kind, Node, Phase, Pod, Readiness, Uid};

use super::config::Config;

/// How many terminated pods are requested at once. A few hundred are deleted per second, so the next decision comes
/// long before these are done.
const MAX_TERMINATED: usize = 2_000;

/// How many held pods of one rule are shown. A person reads the first few.
const MAX_HOLDS: usize = 100;

/// A healthy kubelet reports the end of a pod within seconds after its grace period. Until then no agent's report is
/// read.
/// docs/assumptions.md: reports-ends-soon
const REPORT_GRACE: Duration = Duration::from_secs(30);

/// A missing node is checked this often, so that a sign of life is noticed soon.
const RECHECK_AFTER: Duration = Duration::from_secs(10);

/// The key of a decision.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The pods bound to the node of this name.
    Node(Arc<str>),
    /// A pod that was never scheduled.
    Unscheduled(Uid),
    /// The terminated pods of the whole cluster.
    Terminated,
}

impl Key {
    /// The kinds whose caches must be synced and fresh to decide about the key.
    pub(super) const fn required_kinds(&self) -> &'static [Kind] {
        match self {
            Self::Node(_) => &[Kind::Pods, Kind::Nodes, Kind::NodeLeases],
            Self::Terminated => &[Kind::Pods, Kind::Nodes],
            Self::Unscheduled(_) => &[Kind::Pods],
        }
    }
}

/// A kubelet that renews its Lease and has no Node registers again only when it is restarted. It has as long for that
/// as pods tolerate an unreachable node by default: then its pods are deleted gracefully.
/// docs/assumptions.md: registers-when-it-starts
pub(super) const REGISTRATION_GRACE: Duration = Duration::from_secs(300);

/// Decides about one key.
#[must_use]
pub fn decide(key: &Key, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    for kind in key.required_kinds() {
        if let Err(unfresh) = view.check_fresh(*kind, now) {
            return Decision::hold(Subject::Everything, unfresh).and_requeue_at(now + RECHECK_AFTER);
        }
    }
    match key {
        Key::Node(name) => match view.node(name) {
            Lookup::Known(node) => match valid_evidence(node, view, now) {
                Some(proof) => decide_fenced(node, proof, view),
                None if node.out_of_service => decide_out_of_service(node, view, config),
                None => decide_without_evidence(node, view, now, config),
            },
            Lookup::Unknown(why) if view.pods_on(name).next().is_some() => Decision::unreadable_node(name, why),
            Lookup::Unknown(_) => Decision::default(),
            Lookup::Absent => decide_orphaned(name, view, now, config),
        },
        Key::Unscheduled(uid) => view.pod(uid).map_or_else(Decision::default, decide_unscheduled),
        Key::Terminated => config
            .terminated_threshold
            .map_or_else(Decision::default, |threshold| decide_terminated(view, now, threshold)),
    }
}

/// The pods of a node that does not exist.
fn decide_orphaned(name: &Arc<str>, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    let Some(absence) = view.absence(name) else { return Decision::default() };
    let first_read = || Intent::ReadMissingNode { node: Arc::clone(name) };
    let mut decision = Decision::default();
    let Some(absence_read) = &absence.first_read else {
        decision.intents.push(first_read());
        return decision;
    };
    if let Some(LastHeartbeat { kind: sign, at }) = view.last_heartbeat(name)
        && at >= absence_read.requested_at()
    {
        // Only a read taken after the kubelet stopped reporting can start a quarantine.
        let quarantine_end = at + config.quarantine;
        if now >= quarantine_end {
            decision.intents.push(first_read());
        }
        let hold = Hold::KubeletAlive { node: Arc::clone(name), sign, ago: now.since(at) };
        decision.holds =
            view.pods_on(name).take(MAX_HOLDS).map(|pod| (Subject::Pod(pod.key.clone()), hold.clone())).collect();
        // A kubelet that renews no Lease, but reports about its pods, does not register again by itself.
        let renews = view.renewal(name).is_some_and(|renewal| renewal.at >= absence.since);
        let due = absence.since + if renews { REGISTRATION_GRACE } else { config.quarantine };
        if now >= due {
            let living = view.pods_on(name).filter(|pod| pod.deletion.is_none() && !pod.phase.is_terminal());
            decision.intents.extend(living.map(|pod| graceful_delete(pod, name, due)));
        }
        return decision
            .and_requeue_at(quarantine_end.max(now).min(now + RECHECK_AFTER).max(now + Duration::from_secs(1)));
    }
    let quarantine_end = absence_read.answered_at() + config.quarantine;
    if now < quarantine_end {
        let hold = Hold::Quarantine { node: Arc::clone(name), left: quarantine_end.since(now) };
        return Decision::hold(Subject::Node(Arc::clone(name)), hold)
            .and_requeue_at(quarantine_end.min(now + RECHECK_AFTER));
    }
    let (mut waiting, mut unable) = (Vec::new(), Vec::new());
    for pod in view.pods_on(name) {
        if view.unreachable_is_proof(pod, name, absence_read) {
            push_force(&mut decision, pod, Claim::NodeGone { node: Arc::clone(name) });
        } else if let Some(from) = pod.report_due_at(view.reports_deletions(name)) {
            if let Some(why) = view.why_unable_to_report(pod, name) {
                let hold = Hold::KubeletMayNotReport { node: Arc::clone(name), why };
                unable.push((Subject::Pod(pod.key.clone()), hold));
            } else {
                waiting.push((from, pod));
            }
        } else {
            decision.intents.push(graceful_delete(pod, name, quarantine_end));
        }
    }
    unable.truncate(MAX_HOLDS);
    decision.holds.extend(unable);
    await_report(decision, name, &waiting, quarantine_end, now, config)
}

fn graceful_delete(pod: &Pod, node: &Arc<str>, due: Mono) -> Intent {
    Intent::Delete(GracefulDeleteRequest::new(pod, DeleteCause::NodeGone { node: Arc::clone(node) }, due))
}

/// The hold of pods that were deleted gracefully. When their kubelet has had the time to respond, a new first read
/// begins another quarantine.
fn await_report(
    mut decision: Decision,
    node: &Arc<str>,
    waiting: &[(Mono, &Pod)],
    quarantine_end: Mono,
    now: Mono,
    config: &Config,
) -> Decision {
    let Some(next) = waiting.iter().map(|(from, _)| *from).min() else { return decision };
    let next = next.max(quarantine_end);
    // Requests that can be sent now are sent first: a new first read delays the pods that the last one releases, and
    // a pod that is not deleted yet would wait for one more read. But a request that cannot succeed delays the read
    // only this long.
    let delay = if decision.intents.is_empty() { Duration::ZERO } else { RECHECK_AFTER };
    if next + delay <= now {
        decision.intents.push(Intent::ReadMissingNode { node: Arc::clone(node) });
    }
    decision.holds.extend(waiting.iter().take(MAX_HOLDS).map(|(from, pod)| {
        let left = (*from).max(now) + config.quarantine;
        let hold = Hold::AwaitsKubelet { node: Arc::clone(node), left: left.since(now) };
        (Subject::Pod(pod.key.clone()), hold)
    }));
    decision.and_requeue_at((next + delay).min(now + RECHECK_AFTER).max(now + Duration::from_secs(1)))
}

/// Valid evidence about this incarnation of the node. Where our own kinds are not installed, there is none: that must
/// not hold up the other rules.
fn valid_evidence<'a>(node: &Node, view: &View<'a>, now: Mono) -> Option<&'a FenceEvidenceObject> {
    let fresh = |kind: &Kind| view.check_fresh(*kind, now).is_ok();
    let fresh = [Kind::FenceEvidences, Kind::FencePolicies].iter().all(fresh);
    if fresh { view.evidence_for(node, now) } else { None }
}

/// The terminating pods of a node that was fenced.
fn decide_fenced(node: &Node, evidence: &FenceEvidenceObject, view: &View<'_>) -> Decision {
    let mut decision = Decision::default();
    let newest = view.newest_evidence(evidence);
    let (name, proof) = (|| Arc::clone(&node.name), || Arc::clone(&evidence.name));
    for pod in view.pods_on(&node.name).filter(|pod| pod.deletion.is_some()) {
        if node.readiness == Readiness::Ready {
            let hold = Hold::EvidenceConflictsWithReady { node: name(), proof: proof() };
            decision.holds.push((Subject::Pod(pod.key.clone()), hold));
        } else {
            push_force(&mut decision, pod, Claim::Fenced { node: name(), proof: proof(), newest });
        }
    }
    decision
}

/// Whether an incident of ours added the taint: then its evidence is checked, which may have been withdrawn since.
fn is_managed_taint(node: &Node, view: &View<'_>) -> bool {
    let value = node.details.as_ref().and_then(|details| details.out_of_service.as_deref());
    view.node_fences_of(&node.name).any(|fence| Some(&*fence.name) == value)
}

/// The terminating pods of a node that has the out-of-service taint.
fn decide_out_of_service(node: &Node, view: &View<'_>, config: &Config) -> Decision {
    let mut decision = Decision::default();
    let is_managed = is_managed_taint(node, view);
    for pod in view.pods_on(&node.name).filter(|pod| pod.deletion.is_some()) {
        let name = Arc::clone(&node.name);
        if node.readiness == Readiness::Ready {
            decision.holds.push((Subject::Pod(pod.key.clone()), Hold::OutOfServiceButReady { node: name }));
        } else if is_managed {
            decision.holds.push((Subject::Pod(pod.key.clone()), Hold::NoEvidence { node: name }));
        } else if config.trust_out_of_service_taint {
            push_force(&mut decision, pod, Claim::OutOfService { node: name });
        } else {
            decision.holds.push((Subject::Pod(pod.key.clone()), Hold::OutOfServiceWithoutEvidence { node: name }));
        }
    }
    decision
}

/// The terminating pods of a node without evidence. If its kubelet does not report, they wait with a hold. If it
/// reports, ready or not, it may still terminate them, or the node's agent reports that they have terminated.
fn decide_without_evidence(node: &Node, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    let mut decision = Decision::default();
    let waiting = view.pods_on(&node.name).filter(|pod| pod.deletion.is_some() && !pod.waits_for_finalizers());
    match node.readiness {
        Readiness::Unknown => {
            let hold = || Hold::NoEvidence { node: Arc::clone(&node.name) };
            decision.holds.extend(waiting.map(|pod| (Subject::Pod(pod.key.clone()), hold())));
        }
        Readiness::Ready | Readiness::NotReady if config.agent_reports.is_some() => {
            return waiting.fold(decision, |decision, pod| decide_overdue(decision, pod, &node.name, now));
        }
        Readiness::Ready | Readiness::NotReady | Readiness::Missing => {}
    }
    decision
}

/// A pod that its kubelet does not terminate, though it reports: the node's agent may report that nothing of the pod
/// remains.
fn decide_overdue(mut decision: Decision, pod: &Pod, node: &Arc<str>, now: Mono) -> Decision {
    let due = pod.grace_ends_at().map(|ends| ends + REPORT_GRACE);
    // A kubelet that has not seen the deletion may still start the pod.
    let Some(due) = due.filter(|_| pod.observed_generation >= pod.generation.max(1)) else { return decision };
    if now < due {
        return decision.and_requeue_at(due);
    }
    push_force(&mut decision, pod, Claim::PodsEnded { node: Arc::clone(node) });
    decision.and_requeue_at(now + RECHECK_AFTER)
}

/// A pod that was deleted before it was scheduled.
fn decide_unscheduled(pod: &Pod) -> Decision {
    let mut decision = Decision::default();
    if pod.node.is_none() && pod.deletion.is_some() {
        push_force(&mut decision, pod, Claim::NeverScheduled);
    }
    decision
}

/// The oldest terminated pods above the threshold, as KCM's `gcTerminated` takes them. A pod without proof that it has
/// terminated counts, but does not hold up the others.
fn decide_terminated(view: &View<'_>, now: Mono, threshold: usize) -> Decision {
    let mut decision = Decision::default();
    let excess = view.terminated_count().saturating_sub(threshold);
    if excess == 0 {
        return decision;
    }
    // Orphaned pods are being deleted, marked Failed by this controller: they must not push another pod over the
    // threshold.
    let orphans = view.absences().flat_map(|(node, _)| view.pods_on(node));
    let leaving = orphans.filter(|pod| pod.phase.counts_as_terminated()).count();
    let mut left = excess.saturating_sub(leaving);
    for pod in view.terminated().filter(|pod| !belongs_to_its_node(pod, view, now)) {
        if left == 0 || decision.intents.len() == MAX_TERMINATED {
            break;
        }
        // Its kubelet removes the pod after unmounting its volumes: the volume guard relies on that.
        if pod.deletion.is_some() && !pod.claims.is_empty() {
            left -= 1;
            continue;
        }
        let hold = if pod.phase == Phase::Other {
            Hold::PhaseUnreadable
        } else if pod.running_containers > 0 {
            Hold::TerminalButRunning
        } else {
            push_force(&mut decision, pod, Claim::KubeletTerminated);
            left -= 1;
            continue;
        };
        if decision.holds.len() < MAX_HOLDS {
            decision.holds.push((Subject::Pod(pod.key.clone()), hold));
        }
    }
    decision
}

/// Whether the rules about nodes decide on this pod: its node is missing, cannot be read, is out of service, or was
/// fenced.
fn belongs_to_its_node(pod: &Pod, view: &View<'_>, now: Mono) -> bool {
    pod.node.as_ref().is_some_and(|name| match view.node(name) {
        Lookup::Known(node) => {
            pod.deletion.is_some() && (node.out_of_service || valid_evidence(node, view, now).is_some())
        }
        Lookup::Unknown(_) | Lookup::Absent => true,
    })
}

/// Requests the force delete, unless only finalizers keep the pod. If its phase is not terminal yet, it is requested
/// all the same: the owners of finalizers wait for the phase (a Job replaces its pod only after it has Failed).
fn push_force(decision: &mut Decision, pod: &Pod, claim: Claim) {
    if pod.waits_for_finalizers() {
        if decision.holds.len() < MAX_HOLDS {
            let finalizers = pod.finalizers.iter().map(|name| name.to_string()).collect();
            decision.holds.push((Subject::Pod(pod.key.clone()), Hold::Finalizers { finalizers }));
        }
    } else {
        decision.intents.push(Intent::Force(ForceDeleteRequest::new(pod, claim)));
    }
}
