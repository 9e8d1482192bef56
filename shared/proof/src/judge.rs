//! The judge: it turns facts into evidence, or into a refusal. It is pure. An unknown fact results in a refusal.
//!
//! Danger note: a pod for which this file returns evidence is force deleted. The judge needs no quorum read of the pod
//! itself: the evidence is bound to the resourceVersion at which the cache saw the pod, and each write that follows carries
//! this version. The API server compares it with the stored version at the moment of the write.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_model::{FenceEvidenceKind, Grade, Incarnation, Mono, Phase, Pod};

use crate::claim::{Claim, ForceDeleteRequest};
use crate::evidence::{Evidence, EvidenceKind, MINIMUM_BOOT, PodVersion, VALID_FOR};
use crate::facts::{AbsenceRead, AgentRead, DeviceCheck, EvidenceRead, Liveness, QuorumRead, ReportKind};
use crate::holds::{EvidenceDefect, NodeState};
use crate::{Refusal, lease_age};

/// Evidence about an incarnation of a node. If the Node does not exist, only the name is set.
pub type NodeEvidence = Evidence<Incarnation>;

/// Checks the claim against the pod as the cache has it now.
///
/// # Errors
/// The pod changed, or the claim does not match it.
pub fn check_claim(force: &ForceDeleteRequest, pod: Option<&Pod>) -> Result<PodVersion, Refusal> {
    let pod = pod.filter(|pod| pod.rv == force.rv && pod.key == force.pod).ok_or(Refusal::PodChanged)?;
    let unbound = pod.node.as_ref() != force.claim.node();
    let mismatch = match &force.claim {
        Claim::NeverScheduled if pod.node.is_some() => Some("it is bound to a node"),
        Claim::NeverScheduled | Claim::OutOfService { .. } | Claim::PodsEnded { .. } | Claim::Fenced { .. }
            if pod.deletion.is_none() =>
        {
            Some("it is not terminating")
        }
        // A kubelet that has observed the deletion starts no more containers of the pod. The phase Failed does not show
        // that the kubelet observed it: other clients write this phase, and observedGeneration with it.
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

/// Evidence for one pod. `node` is the evidence about its node, for claims that name one.
///
/// # Errors
/// The claim does not match the pod, or the evidence about the node does not match the claim.
pub fn verify_pod(
    force: &ForceDeleteRequest,
    pod: Option<&Pod>,
    node: Option<&NodeEvidence>,
    cache: &dyn Liveness,
    now: Mono,
) -> Result<Evidence<PodVersion>, Refusal> {
    let version = check_claim(force, pod)?;
    let expires = now + VALID_FOR;
    match &force.claim {
        Claim::NeverScheduled => Ok(Evidence::new(EvidenceKind::NeverScheduled, version, expires)),
        Claim::KubeletTerminated => Ok(Evidence::new(EvidenceKind::KubeletTerminated, version, expires)),
        Claim::PodsEnded { .. } => Err(Refusal::EvidenceInvalid("the agent of its node was not read")),
        claim @ (Claim::NodeGone { node: name }
        | Claim::OutOfService { node: name }
        | Claim::Fenced { node: name, .. }) => {
            // Expired evidence is returned as well: no request of its act is sent.
            let about = node.filter(|evidence| is_about(evidence, claim));
            let evidence = about.ok_or(Refusal::EvidenceInvalid("what was read of the node answers another claim"))?;
            if let (Claim::NodeGone { .. }, Some(pod)) = (claim, pod) {
                had_time_to_end(pod, name, evidence, cache, now)?;
            }
            Ok(Evidence::new(evidence.kind().clone(), version, evidence.expires()))
        }
    }
}

/// Whether evidence about a node can be used for another pod of the node with this claim.
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

/// The round of a node's agent at a time when the kubelet had already observed the deletion of a pod.
#[derive(Clone, Debug)]
pub struct Mark {
    pod: PodVersion,
    epoch: String,
    round: u64,
}

impl Mark {
    /// `version` is the result of [`check_claim`] before `read` was sent.
    #[must_use]
    pub fn new(version: PodVersion, read: &AgentRead) -> Self {
        Self { pod: version, epoch: read.epoch.clone(), round: read.round }
    }

    /// Whether the rounds of `read` can be compared with this mark: it is for the same deletion and the same epoch of the
    /// agent.
    #[must_use]
    pub fn matches(&self, version: &PodVersion, read: &AgentRead) -> bool {
        (&self.pod.pod, self.pod.generation, &self.epoch) == (&version.pod, version.generation, &read.epoch)
    }
}

/// Evidence `PodsEnded`. Let `mark` have round k: the API server confirmed round k+1 after the mark was set, and a check of the
/// pods that the agent reports with round k+2 or later came after that confirmation. So the check is later than the kubelet's
/// observation of the deletion, after which the kubelet starts no more containers of the pod.
///
/// # Errors
/// The claim does not match the pod, something of the pod remains, or the agent has not checked its pods since.
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

/// A kubelet that was active until its Node was deleted may still run the pod, unless it had the time to terminate it.
/// The kubelet's report must have been due before the first read on which the evidence rests, because a later first read has
/// no quarantine behind it. One evidence about a node serves many pods; what the watches showed is checked again for each pod.
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
    let report = cache.last_heartbeat(node).filter(|report| report.at >= first.requested_at());
    report.map_or(Ok(()), |report| Err(Refusal::KubeletAlive(report.kind)))
}

/// Whether it is proof for this pod that the kubelet of a missing node has not reported since the first read `first`. This
/// holds in three cases: the kubelet was unreachable before its Node was deleted; or it reported that the pod terminated;
/// or the pod was deleted gracefully before `first`, the kubelet had the time to respond, and nothing prevented it.
#[must_use]
pub fn unreachable_is_proof(pod: &Pod, node: &str, first: &AbsenceRead, cache: &dyn Liveness) -> bool {
    let due = pod.report_due_at(cache.reports_deletions(node));
    pod.has_terminated()
        || due.is_some_and(|due| due <= first.requested_at()) && why_unable_to_report(pod, node, cache).is_none()
        || cache.unreachable_before_node_deleted(node)
}

/// A kubelet sends a status at once, and sends again after this time what failed (`syncPeriod`,
/// `pkg/kubelet/status/status_manager.go`). If it reports anything this long after a report on a pod was due, its worker
/// for the pod is busy.
const STATUS_SYNC_PERIOD: Duration = Duration::from_secs(10);

/// Why the kubelet of a missing node may be unable to report that it saw the deletion of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Inability {
    /// Its worker for the pod may be busy: the pod's last report shows it, or the kubelet reported something else after its
    /// report on the deletion was due.
    #[error(
        "By its last report it may be starting or changing a container of this pod, and reports nothing until that is done"
    )]
    Busy,
    /// It may watch no pods yet.
    /// docs/assumptions.md: watches-once-registered
    #[error("It may have started just before, and watches no pods until it has a Node")]
    JustStarted,
}

/// Why the kubelet of a missing node may be unable to report on this pod. Static pods are excluded: they have no replacement
/// on another node.
#[must_use]
pub fn why_unable_to_report(pod: &Pod, node: &str, cache: &dyn Liveness) -> Option<Inability> {
    let due = pod.report_due_at(cache.reports_deletions(node));
    let due = due.filter(|_| pod.observed_generation > 0 && pod.observed_generation < pod.generation);
    let reported = cache.last_heartbeat(node).map(|sign| sign.at);
    let reported_since = due.zip(reported).is_some_and(|(due, at)| at >= due + STATUS_SYNC_PERIOD);
    if pod.mirror {
        None
    } else if pod.worker_may_be_busy || reported_since {
        Some(Inability::Busy)
    } else {
        (!pod.has_answered() && cache.may_have_just_started(pod, node)).then_some(Inability::JustStarted)
    }
}

/// The first read of a node that is still missing, if nothing refutes it and the quarantine is over.
///
/// # Errors
/// There is no first read, the quarantine is not over, or the kubelet has reported since.
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

/// Evidence `NodeGone`: a second quorum read a quarantine after `first`, and no report of the kubelet in between, neither
/// on the watch nor in the Lease itself. The caller took `first` from [`check_quarantine`] before it sent the second read.
///
/// # Errors
/// The Node exists, its kubelet reported, or this process may have missed a report.
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
    // A Lease that disappeared in between was garbage collected with its Node. A Lease that appeared, or changed, was
    // written by a kubelet.
    if !live.lease.is_absent() && live.lease != first.lease {
        return Err(Refusal::KubeletAlive(ReportKind::LeaseRenewed));
    }
    // A Lease that disappeared may have been renewed first. A Lease that exists may have been renewed before the first
    // read. Only the watch shows it, once it has delivered the deletion, or this renewal.
    let unseen = match live.lease.is_absent() {
        true => !first.lease.is_absent() && !cache.lease_is_gone(node),
        false => live.lease.renewed().ok() != cache.lease(node),
    };
    if unseen {
        return Err(Refusal::HeartbeatsUnseen);
    }
    // The check is repeated for what the watch delivered during the reads. A later absence of the Node has another first read.
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

/// Evidence `TrustedTaint`: an out-of-service taint that others added, as far as it can be checked. `is_managed` returns
/// whether pod-safety added the taint with this value. Such a taint rests on evidence of pod-safety, which may have been
/// withdrawn since.
///
/// # Errors
/// The settings do not trust the taint, the node is Ready or has no such taint, or pod-safety added it.
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

/// Evidence of fencing. The FenceEvidence object alone proves nothing. Its devices must report off now (`check`; a person's
/// confirmation has no devices), the node must be in the same incarnation and not Ready, and its Lease must not have been
/// renewed.
///
/// # Errors
/// What contradicts the evidence.
pub fn verify_fenced(
    evidence: &EvidenceRead,
    check: Option<DeviceCheck>,
    live: &QuorumRead,
    minimum: Grade,
    cache: &dyn Liveness,
) -> Result<NodeEvidence, Refusal> {
    let (fields, subject) = (evidence.fields(), evidence.node());
    fields.check_ends_incarnation()?;
    let requested_at = check_devices(evidence, check)?.map(|check| check.requested_at);
    // The node must be read after the devices: a report of the kubelet while the devices report off contradicts them.
    if requested_at > Some(live.requested_at) {
        return Err(Refusal::EvidenceInvalid("its devices were checked after the node was read"));
    }
    let read = live.node.as_ref();
    let read = read.ok_or(Refusal::EvidenceInvalid("the Node object is gone: its absence needs other evidence"))?;
    if read.is_ready() && read.incarnation() == subject {
        return Err(Refusal::NodeInService);
    }
    // An invalid renewTime differs from the renewTime that the evidence names.
    let renewed = live.lease.renewed().map_err(|_invalid| Refusal::KubeletAlive(ReportKind::LeaseRenewed))?;
    let renewed = (!live.lease.is_absent()).then_some(renewed);
    fields.check_node(&NodeState { incarnation: read.incarnation().clone(), renewed, minimum })?;
    let left = lease_age::remaining(&subject.name, &live.lease, cache, live.answered_at);
    if !left.is_zero() {
        return Err(Refusal::HeardLately { left });
    }
    // A machine that its devices reported off cannot be Ready before it has booted.
    let booted = requested_at.map(|at| (at + MINIMUM_BOOT).min(live.answered_at + VALID_FOR));
    let expires = booted.unwrap_or(live.requested_at + VALID_FOR);
    Ok(Evidence::new(fencing_kind(evidence)?, subject.clone(), expires))
}

/// The kind of evidence that follows from a FenceEvidence that an incarnation has ended.
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

/// Checks that the devices report what the evidence states. A person's confirmation names no devices.
fn check_devices(evidence: &EvidenceRead, check: Option<DeviceCheck>) -> Result<Option<DeviceCheck>, Refusal> {
    if evidence.kind() == FenceEvidenceKind::OperatorConfirmed {
        return Ok(None);
    }
    if evidence.spec.samples.is_empty() {
        return Err(Refusal::EvidenceInvalid("it names no device"));
    }
    let check = check.filter(|check| check.kind.confirms(evidence.kind()));
    check.map(Some).ok_or(Refusal::EvidenceInvalid("its devices show less than it says, or something else"))
}
