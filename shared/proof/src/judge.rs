//! The judge: facts become evidence, or a refusal. Pure. What is not known is a refusal.
//!
//! Danger note: whatever this file lets pass is force deleted. About a pod itself no extra read is needed: its evidence is bound
//! to the resourceVersion at which the cache saw it, and every write that follows carries that version. So the compare-and-swap
//! of the API server is the quorum read, at the moment of the act.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_model::{FenceEvidenceKind, Grade, Incarnation, Mono, Phase, Pod};

use crate::claim::{Claim, ForceDeleteRequest};
use crate::evidence::{Evidence, EvidenceKind, MINIMUM_BOOT, PodVersion, VALID_FOR};
use crate::facts::{AbsenceRead, AgentRead, DeviceCheck, EvidenceRead, Liveness, QuorumRead, ReportKind};
use crate::holds::{EvidenceDefect, NodeState};
use crate::{Refusal, lease_age};

/// What was found about an incarnation of a node. Of a Node that is gone only the name is known.
pub type NodeEvidence = Evidence<Incarnation>;

/// Whether the pod, as the cache has it now, can be what the claim says.
///
/// # Errors
/// It changed, or the claim does not fit it.
pub fn check_claim(force: &ForceDeleteRequest, pod: Option<&Pod>) -> Result<PodVersion, Refusal> {
    let pod = pod.filter(|pod| pod.rv == force.rv && pod.key == force.pod).ok_or(Refusal::PodChanged)?;
    let unbound = pod.node.as_ref() != force.claim.node();
    let mismatch = match &force.claim {
        Claim::NeverScheduled if pod.node.is_some() => Some("it is bound to a node"),
        Claim::NeverScheduled
        | Claim::OutOfService { .. }
        | Claim::PodsEnded { .. }
        | Claim::Fenced { .. }
            if pod.deletion.is_none() =>
        {
            Some("it is not terminating")
        }
        // Then it starts no more containers. Others write the phase Failed, too, and what was observed with it.
        Claim::PodsEnded { .. }
            if pod.observed_generation < pod.generation.max(1)
                || pod.phase == Phase::Failed && pod.running_containers > 0 =>
        {
            Some("its kubelet has not reported that it saw the deletion")
        }
        Claim::KubeletTerminated if !pod.phase.is_terminal() => Some("its phase is not terminal"),
        Claim::KubeletTerminated if pod.running_containers > 0 => Some("one of its containers runs"),
        claim if claim.node().is_some() && unbound => Some("it is bound to another node"),
        Claim::NeverScheduled
        | Claim::KubeletTerminated
        | Claim::NodeGone { .. }
        | Claim::OutOfService { .. }
        | Claim::PodsEnded { .. }
        | Claim::Fenced { .. } => None,
    };
    let (key, terminal) = (pod.key.clone(), pod.phase.is_terminal());
    let version = PodVersion { pod: key, rv: pod.rv, terminal, generation: pod.generation };
    mismatch.map_or(Ok(version), |why| Err(Refusal::ClaimMismatch(why)))
}

/// Evidence for one pod. `node`: what was found about its node, for the claims that name one.
///
/// # Errors
/// The claim does not fit the pod, or what was found does not fit the claim.
pub fn verify_pod(
    force: &ForceDeleteRequest,
    pod: Option<&Pod>,
    node: Option<&NodeEvidence>,
    cache: &dyn Liveness,
    now: Mono,
) -> Result<Evidence<PodVersion>, Refusal> {
    let version = check_claim(force, pod)?;
    let own = now + VALID_FOR;
    match &force.claim {
        Claim::NeverScheduled => Ok(Evidence::new(EvidenceKind::NeverScheduled, version, own)),
        Claim::KubeletTerminated => Ok(Evidence::new(EvidenceKind::KubeletTerminated, version, own)),
        Claim::PodsEnded { .. } => Err(Refusal::EvidenceInvalid("the agent of its node was not read")),
        claim @ (Claim::NodeGone { node: name }
        | Claim::OutOfService { node: name }
        | Claim::Fenced { node: name, .. }) => {
            // Evidence that has expired is given out, too: no request of its act is sent.
            let evidence = node.filter(|found| is_about(found, claim));
            let evidence = evidence
                .ok_or(Refusal::EvidenceInvalid("what was read of the node answers another claim"))?;
            if let (Claim::NodeGone { .. }, Some(pod)) = (claim, pod) {
                had_time_to_end(pod, name, evidence, cache, now)?;
            }
            Ok(Evidence::new(evidence.kind().clone(), version, evidence.expires()))
        }
    }
}

/// Whether what was found about a node serves another pod of it, by this claim.
#[must_use]
pub fn is_reusable(evidence: &NodeEvidence, claim: &Claim, now: Mono) -> bool {
    is_about(evidence, claim) && now < evidence.expires()
}

fn is_about(evidence: &NodeEvidence, claim: &Claim) -> bool {
    claim.node().is_some_and(|node| *evidence.subject().name == **node) && answers(evidence.kind(), claim)
}

const fn answers(kind: &EvidenceKind, claim: &Claim) -> bool {
    match claim {
        Claim::NodeGone { .. } => matches!(kind, EvidenceKind::NodeGone { .. }),
        Claim::OutOfService { .. } => matches!(kind, EvidenceKind::TrustedTaint { .. }),
        Claim::Fenced { .. } => kind.is_fencing(),
        Claim::NeverScheduled | Claim::KubeletTerminated | Claim::PodsEnded { .. } => false,
    }
}

/// The round of a node's agent at a time when a pod's kubelet had seen its deletion.
#[derive(Clone, Debug)]
pub struct Mark {
    pod: PodVersion,
    epoch: String,
    round: u64,
}

impl Mark {
    /// `version`: what [`check_claim`] found before `read` was sent.
    #[must_use]
    pub fn new(version: PodVersion, read: &AgentRead) -> Self {
        Self { pod: version, epoch: read.epoch.clone(), round: read.round }
    }

    /// Whether rounds of `read` count from this mark: it is of the same deletion and of the same epoch.
    #[must_use]
    pub fn matches(&self, version: &PodVersion, read: &AgentRead) -> bool {
        (&self.pod.pod, self.pod.generation, &self.epoch) == (&version.pod, version.generation, &read.epoch)
    }
}

/// Evidence `PodsEnded`. The API server confirmed the round after `mark` later than that, so the agent looked still later when two
/// rounds lie between: after the kubelet had seen the deletion, and starts nothing more.
///
/// # Errors
/// The claim does not fit the pod, something is left, or the agent has not looked since.
pub fn verify_pods_ended(
    force: &ForceDeleteRequest,
    pod: Option<&Pod>,
    mark: Option<&Mark>,
    read: &AgentRead,
) -> Result<Evidence<PodVersion>, Refusal> {
    let version = check_claim(force, pod)?;
    let Claim::PodsEnded { node } = &force.claim else {
        return Err(Refusal::ClaimMismatch("its node was not named"));
    };
    read.check_ended(&version.pod.uid.to_string()).map_err(Refusal::PodsNotEnded)?;
    let later = |mark: &&Mark| mark.matches(&version, read) && mark.round.saturating_add(2) <= read.looked;
    mark.filter(later).ok_or(Refusal::AgentMustLookAgain)?;
    Ok(Evidence::new(EvidenceKind::PodsEnded { node: Arc::clone(node) }, version, read.sent_at + VALID_FOR))
}

/// A kubelet that was active until its Node was deleted may run the pod, unless it had the time to terminate it. That counts from
/// the first read on which `found` rests: a later one has no quarantine behind it. Reads of the node serve many pods; what the
/// watch brings is asked again for each.
fn had_time_to_end(
    pod: &Pod,
    node: &str,
    evidence: &NodeEvidence,
    cache: &dyn Liveness,
    now: Mono,
) -> Result<(), Refusal> {
    let first = unrefuted_read(node, cache, now)?;
    no_report_since(first, node, cache)?;
    let rests_on_it = matches!(evidence.kind(), EvidenceKind::NodeGone { apart, .. }
        if first.answered_at() + *apart + VALID_FOR == evidence.expires());
    if !rests_on_it {
        return Err(Refusal::NoWitness);
    }
    if unreachable_is_proof(pod, node, first, cache) { Ok(()) } else { Err(Refusal::KubeletNotAsked) }
}

fn unrefuted_read<'a>(node: &str, cache: &'a dyn Liveness, now: Mono) -> Result<&'a AbsenceRead, Refusal> {
    if !cache.is_current(now) {
        return Err(Refusal::HeartbeatsUnseen);
    }
    cache.first_read(node).ok_or(Refusal::NoWitness)
}

fn no_report_since(first: &AbsenceRead, node: &str, cache: &dyn Liveness) -> Result<(), Refusal> {
    let sign = cache.last_heartbeat(node).filter(|sign| sign.at >= first.requested_at());
    sign.map_or(Ok(()), |sign| Err(Refusal::KubeletAlive(sign.kind)))
}

/// Whether the silence of a missing node's kubelet since this first read is proof for this pod: the kubelet fell silent before
/// its Node was deleted; or it reported the end of the pod; or the pod was deleted gracefully before the read, the kubelet had the time
/// to respond, and its worker for this pod cannot be busy.
#[must_use]
pub fn unreachable_is_proof(pod: &Pod, node: &str, first: &AbsenceRead, cache: &dyn Liveness) -> bool {
    let from = pod.report_due_at(cache.reports_deletions(node));
    pod.has_terminated()
        || from.is_some_and(|from| from <= first.requested_at()) && !worker_may_be_busy(pod, node, cache)
        || cache.unreachable_before_node_deleted(node)
}

/// A kubelet sends a status at once, and tries again after this time what it could not send (`syncPeriod`,
/// `pkg/kubelet/status/status_manager.go`). If it reports anything that long after a report on a pod was due, its worker for that pod is busy.
const REPORTS_EACH: Duration = Duration::from_secs(10);

/// Whether the kubelet of a missing node may be silent about this pod because its worker for it is busy: by the pod's last report,
/// or because the kubelet reported something since its report on the deletion was due. A static pod has no replacement on another node.
#[must_use]
pub fn worker_may_be_busy(pod: &Pod, node: &str, cache: &dyn Liveness) -> bool {
    let owed = pod.report_due_at(cache.reports_deletions(node));
    let owed = owed.filter(|_| pod.observed_generation > 0 && pod.observed_generation < pod.generation);
    let reported = cache.last_heartbeat(node).map(|sign| sign.at);
    let reported_since = owed.zip(reported).is_some_and(|(owed, heard)| heard >= owed + REPORTS_EACH);
    !pod.mirror && (pod.worker_may_be_busy || reported_since)
}

/// The first read of a node that is missing still, if nothing refutes it.
///
/// # Errors
/// There is none, it is too young, or the kubelet showed a sign of life since.
pub fn check_quarantine(
    node: &str,
    quarantine: Duration,
    cache: &dyn Liveness,
    now: Mono,
) -> Result<AbsenceRead, Refusal> {
    let first = unrefuted_read(node, cache, now)?;
    let left = quarantine.saturating_sub(now.since(first.answered_at()));
    if !left.is_zero() {
        return Err(Refusal::QuarantineNotOver { left });
    }
    no_report_since(first, node, cache)?;
    Ok(first.clone())
}

/// Evidence `NodeGone`: a second quorum read a quarantine after `first`, and no sign of life in between, neither on the watch
/// nor in the Lease itself. `first` was taken from [`check_quarantine`] before the second read was sent.
///
/// # Errors
/// The node is there, its kubelet gave a sign of life, or one may have been missed.
pub fn verify_node_gone(
    node: &Arc<str>,
    first: &AbsenceRead,
    live: &QuorumRead,
    quarantine: Duration,
    cache: &dyn Liveness,
    now: Mono,
) -> Result<NodeEvidence, Refusal> {
    if live.node.is_some() {
        return Err(Refusal::NodeExists);
    }
    // A Lease that went meanwhile was collected with its Node. One that came, or moved, was written by a kubelet.
    if !live.lease.is_absent() && live.lease != first.lease {
        return Err(Refusal::KubeletAlive(ReportKind::LeaseRenewed));
    }
    // What went may have been renewed first, and what is there before the first read. Only the watch can tell, and it has once it
    // has brought the deletion, or this renewal.
    let unseen = match live.lease.is_absent() {
        true => !first.lease.is_absent() && !cache.lease_is_gone(node),
        false => live.lease.renewed().ok() != cache.lease(node),
    };
    if unseen {
        return Err(Refusal::HeartbeatsUnseen);
    }
    // Again, for what the watch brought during the reads. The first read of a later absence is another one.
    if check_quarantine(node, quarantine, cache, now)?.requested_at() != first.requested_at() {
        return Err(Refusal::NoWitness);
    }
    let apart = live.requested_at.since(first.answered_at());
    if apart < quarantine {
        return Err(Refusal::QuarantineNotOver { left: quarantine.saturating_sub(apart) });
    }
    let gone = Incarnation { name: node.to_string(), ..Incarnation::default() };
    let kind = EvidenceKind::NodeGone { node: Arc::clone(node), apart };
    Ok(Evidence::new(kind, gone, live.requested_at + VALID_FOR))
}

/// Evidence `Asserted`: a taint by others, checked for what can be checked. `ours`: whether a taint with this value was added
/// by pod-safety; that one rests on its evidence, which may have been withdrawn since.
///
/// # Errors
/// The settings do not trust it, the node is Ready or has no such taint, or it is ours.
pub fn verify_trusted_taint(
    node: &Arc<str>,
    live: &QuorumRead,
    trusted: bool,
    is_managed: impl Fn(&str) -> bool,
) -> Result<NodeEvidence, Refusal> {
    if !trusted {
        return Err(Refusal::TaintNotTrusted);
    }
    let read = live.node.as_ref().filter(|read| !read.is_ready() && !read.out_of_service().is_empty());
    let read = read.ok_or(Refusal::NodeInService)?;
    if read.out_of_service().iter().any(|value| is_managed(value)) {
        return Err(Refusal::TaintNotTrusted);
    }
    let kind = EvidenceKind::TrustedTaint { node: Arc::clone(node) };
    Ok(Evidence::new(kind, read.incarnation().clone(), live.requested_at + VALID_FOR))
}

/// Evidence of fencing. The object alone proves nothing: its devices must report off now (`shown`; a person's confirmation has
/// none), the node must be in the same incarnation and not Ready, and its Lease unmoved.
///
/// # Errors
/// What contradicts it.
pub fn verify_fenced(
    evidence: &EvidenceRead,
    check: Option<DeviceCheck>,
    live: &QuorumRead,
    minimum: Grade,
    cache: &dyn Liveness,
) -> Result<NodeEvidence, Refusal> {
    let (fields, about) = (evidence.fields(), evidence.node());
    fields.check_ends_incarnation()?;
    let requested_at = check_devices(evidence, check)?.map(|shown| shown.requested_at);
    // After the devices: a report of the kubelet while they reported off contradicts them.
    if requested_at > Some(live.requested_at) {
        return Err(Refusal::EvidenceInvalid("its devices were checked after the node was read"));
    }
    let read = live.node.as_ref();
    let read =
        read.ok_or(Refusal::EvidenceInvalid("the Node object is gone: its absence needs other evidence"))?;
    if read.is_ready() && read.incarnation() == about {
        return Err(Refusal::NodeInService);
    }
    // What is no time is not the one that the evidence names.
    let renewed = live.lease.renewed().map_err(|_invalid| Refusal::KubeletAlive(ReportKind::LeaseRenewed))?;
    let renewed = (!live.lease.is_absent()).then_some(renewed);
    fields.check_node(&NodeState { incarnation: read.incarnation().clone(), renewed, minimum })?;
    let left = lease_age::remaining(&about.name, &live.lease, cache, live.answered_at);
    if !left.is_zero() {
        return Err(Refusal::HeardLately { left });
    }
    // A machine that its devices showed off cannot be Ready before it has booted.
    let booted = requested_at.map(|asked_at| (asked_at + MINIMUM_BOOT).min(live.answered_at + VALID_FOR));
    let expires = booted.unwrap_or(live.requested_at + VALID_FOR);
    Ok(Evidence::new(fencing_kind(evidence)?, about.clone(), expires))
}

/// What evidence that a life has ended is evidence of.
pub(crate) fn fencing_kind(evidence: &EvidenceRead) -> Result<EvidenceKind, Refusal> {
    let (node, proof) = (evidence.node().name.as_str().into(), evidence.name.as_str().into());
    Ok(match evidence.kind() {
        kind @ (FenceEvidenceKind::PowerOff
        | FenceEvidenceKind::Decommissioned
        | FenceEvidenceKind::InstanceStopped
        | FenceEvidenceKind::InstanceGone
        | FenceEvidenceKind::WatchdogLease
        | FenceEvidenceKind::Remediated) => EvidenceKind::Fenced { node, proof, kind },
        FenceEvidenceKind::OperatorConfirmed => {
            EvidenceKind::Confirmed { node, proof, by: evidence.spec.by.as_str().into() }
        }
        FenceEvidenceKind::StorageFenced => return Err(EvidenceDefect::StorageOnly.into()),
    })
}

/// That the devices of the evidence showed what it says. A person's confirmation names none.
fn check_devices(
    evidence: &EvidenceRead,
    check: Option<DeviceCheck>,
) -> Result<Option<DeviceCheck>, Refusal> {
    if evidence.kind() == FenceEvidenceKind::OperatorConfirmed {
        return Ok(None);
    }
    if evidence.spec.samples.is_empty() {
        return Err(Refusal::EvidenceInvalid("it names no device"));
    }
    let check = check.filter(|shown| shown.kind.confirms(evidence.kind()));
    check.map(Some).ok_or(Refusal::EvidenceInvalid("its devices show less than it says, or something else"))
}
