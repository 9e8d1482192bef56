//! The judge: facts become evidence, or a refusal. Pure. What is not known is a refusal.
//!
//! Danger note: whatever this file lets pass is force deleted. About a pod itself no extra read is needed: its evidence is bound
//! to the resourceVersion at which the cache saw it, and every write that follows carries that version. So the compare-and-swap
//! of the API server is the quorum read, at the moment of the act.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_model::{Grade, Incarnation, KindOfEvidence, Mono, Phase, Pod};

use crate::claim::{Claim, Force};
use crate::evidence::{Evidence, EvidenceKind, MINIMUM_BOOT, PodVersion, VALID_FOR};
use crate::facts::{AgentRead, EvidenceRead, Liveness, Look, Shown, Sign, Witness};
use crate::holds::{Lack, Now};
use crate::{Refusal, silence};

/// What was found about an incarnation of a node. Of a Node that is gone only the name is known.
pub type NodeEvidence = Evidence<Incarnation>;

/// Whether the pod, as the cache has it now, can be what the claim says.
///
/// # Errors
/// It changed, or the claim does not fit it.
pub fn fits(force: &Force, pod: Option<&Pod>) -> Result<PodVersion, Refusal> {
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
            if pod.observed < pod.generation.max(1) || pod.phase == Phase::Failed && pod.running > 0 =>
        {
            Some("its kubelet has not reported that it saw the deletion")
        }
        Claim::KubeletTerminated if !pod.phase.is_terminal() => Some("its phase is not terminal"),
        Claim::KubeletTerminated if pod.running > 0 => Some("one of its containers runs"),
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
pub fn pod(
    force: &Force,
    pod: Option<&Pod>,
    node: Option<&NodeEvidence>,
    cache: &dyn Liveness,
    now: Mono,
) -> Result<Evidence<PodVersion>, Refusal> {
    let version = fits(force, pod)?;
    let own = now + VALID_FOR;
    match &force.claim {
        Claim::NeverScheduled => Ok(Evidence::new(EvidenceKind::NeverScheduled, version, own)),
        Claim::KubeletTerminated => Ok(Evidence::new(EvidenceKind::KubeletTerminated, version, own)),
        Claim::PodsEnded { .. } => Err(Refusal::EvidenceInvalid("the agent of its node was not read")),
        claim @ (Claim::NodeGone { node: name }
        | Claim::OutOfService { node: name }
        | Claim::Fenced { node: name, .. }) => {
            // Evidence that has expired is given out, too: no request of its act is sent.
            let found = node.filter(|found| is_about(found, claim));
            let found =
                found.ok_or(Refusal::EvidenceInvalid("what was read of the node answers another claim"))?;
            if let (Claim::NodeGone { .. }, Some(pod)) = (claim, pod) {
                had_time_to_end(pod, name, found, cache, now)?;
            }
            Ok(Evidence::new(found.kind().clone(), version, found.expires()))
        }
    }
}

/// Whether what was found about a node serves another pod of it, by this claim.
#[must_use]
pub fn serves(found: &NodeEvidence, claim: &Claim, now: Mono) -> bool {
    is_about(found, claim) && now < found.expires()
}

fn is_about(found: &NodeEvidence, claim: &Claim) -> bool {
    claim.node().is_some_and(|node| *found.subject().name == **node) && answers(found.kind(), claim)
}

const fn answers(kind: &EvidenceKind, claim: &Claim) -> bool {
    match claim {
        Claim::NodeGone { .. } => matches!(kind, EvidenceKind::NodeGone { .. }),
        Claim::OutOfService { .. } => matches!(kind, EvidenceKind::Asserted { .. }),
        Claim::Fenced { .. } => kind.is_of_fencing(),
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
    /// `version`: what [`fits`] found before `read` was sent.
    #[must_use]
    pub fn of(version: PodVersion, read: &AgentRead) -> Self {
        Self { pod: version, epoch: read.epoch.clone(), round: read.round }
    }

    /// Whether rounds of `read` count from this mark: it is of the same deletion and of the same epoch.
    #[must_use]
    pub fn serves(&self, version: &PodVersion, read: &AgentRead) -> bool {
        (&self.pod.pod, self.pod.generation, &self.epoch) == (&version.pod, version.generation, &read.epoch)
    }
}

/// Evidence `PodsEnded`. The API server confirmed the round after `mark` later than that, so the agent looked still later when two
/// rounds lie between: after the kubelet had seen the deletion, and starts nothing more.
///
/// # Errors
/// The claim does not fit the pod, something is left, or the agent has not looked since.
pub fn pods_ended(
    force: &Force,
    pod: Option<&Pod>,
    mark: Option<&Mark>,
    read: &AgentRead,
) -> Result<Evidence<PodVersion>, Refusal> {
    let version = fits(force, pod)?;
    let Claim::PodsEnded { node } = &force.claim else {
        return Err(Refusal::ClaimMismatch("its node was not named"));
    };
    read.ended(&version.pod.uid.to_string()).map_err(Refusal::PodsNotEnded)?;
    let later = |mark: &&Mark| mark.serves(&version, read) && mark.round.saturating_add(2) <= read.looked;
    mark.filter(later).ok_or(Refusal::AgentMustLookAgain)?;
    Ok(Evidence::new(EvidenceKind::PodsEnded { node: Arc::clone(node) }, version, read.asked_at + VALID_FOR))
}

/// A kubelet that was active until its Node was deleted may run the pod, unless it had the time to terminate it. That counts from
/// the first read on which `found` rests: a later one has no quarantine behind it. Reads of the node serve many pods; what the
/// watch brings is asked again for each.
fn had_time_to_end(
    pod: &Pod,
    node: &str,
    found: &NodeEvidence,
    cache: &dyn Liveness,
    now: Mono,
) -> Result<(), Refusal> {
    let witness = unrefuted(node, cache, now)?;
    silent_since(witness, node, cache)?;
    let rests_on_it = matches!(found.kind(), EvidenceKind::NodeGone { apart, .. }
        if witness.answered_at() + *apart + VALID_FOR == found.expires());
    if !rests_on_it {
        return Err(Refusal::NoWitness);
    }
    if silence_is_proof(pod, node, witness, cache) { Ok(()) } else { Err(Refusal::KubeletNotAsked) }
}

fn unrefuted<'a>(node: &str, cache: &'a dyn Liveness, now: Mono) -> Result<&'a Witness, Refusal> {
    if !cache.is_current(now) {
        return Err(Refusal::HeartbeatsUnseen);
    }
    cache.first_read(node).ok_or(Refusal::NoWitness)
}

fn silent_since(witness: &Witness, node: &str, cache: &dyn Liveness) -> Result<(), Refusal> {
    let sign = cache.last_sign_of_life(node).filter(|sign| sign.at >= witness.asked_at());
    sign.map_or(Ok(()), |sign| Err(Refusal::KubeletAlive(sign.sign)))
}

/// Whether the silence of a missing node's kubelet since this first read is proof for this pod: the kubelet fell silent before
/// its Node was deleted; or it reported the end of the pod; or the pod was deleted gracefully before the read, the kubelet had the time
/// to respond, and its worker for this pod cannot be busy.
#[must_use]
pub fn silence_is_proof(pod: &Pod, node: &str, witness: &Witness, cache: &dyn Liveness) -> bool {
    let from = pod.unanswered_from(cache.reports_deletions(node));
    pod.is_over()
        || from.is_some_and(|from| from <= witness.asked_at()) && !worker_may_be_busy(pod, node, cache)
        || cache.fell_silent_before_its_node_went(node)
}

/// A kubelet sends a status at once, and tries again after this time what it could not send (`syncPeriod`,
/// `pkg/kubelet/status/status_manager.go`). If it reports anything that long after a report on a pod was due, its worker for that pod is busy.
const REPORTS_EACH: Duration = Duration::from_secs(10);

/// Whether the kubelet of a missing node may be silent about this pod because its worker for it is busy: by the pod's last report,
/// or because the kubelet reported something since its report on the deletion was due. A static pod has no replacement on another node.
#[must_use]
pub fn worker_may_be_busy(pod: &Pod, node: &str, cache: &dyn Liveness) -> bool {
    let owed = pod.unanswered_from(cache.reports_deletions(node));
    let owed = owed.filter(|_| pod.observed > 0 && pod.observed < pod.generation);
    let heard = cache.last_sign_of_life(node).map(|sign| sign.at);
    let heard_since = owed.zip(heard).is_some_and(|(owed, heard)| heard >= owed + REPORTS_EACH);
    !pod.mirror && (pod.worker_may_be_busy || heard_since)
}

/// The first read of a node that is missing still, if nothing refutes it.
///
/// # Errors
/// There is none, it is too young, or the kubelet showed a sign of life since.
pub fn first_read(
    node: &str,
    quarantine: Duration,
    cache: &dyn Liveness,
    now: Mono,
) -> Result<Witness, Refusal> {
    let witness = unrefuted(node, cache, now)?;
    let left = quarantine.saturating_sub(now.since(witness.answered_at()));
    if !left.is_zero() {
        return Err(Refusal::QuarantineNotOver { left });
    }
    silent_since(witness, node, cache)?;
    Ok(witness.clone())
}

/// Evidence `NodeGone`: a second quorum read a quarantine after `first`, and no sign of life in between, neither on the watch
/// nor in the Lease itself. `first` was taken from [`first_read`] before the second read was sent.
///
/// # Errors
/// The node is there, its kubelet gave a sign of life, or one may have been missed.
pub fn node_gone(
    node: &Arc<str>,
    first: &Witness,
    look: &Look,
    quarantine: Duration,
    cache: &dyn Liveness,
    now: Mono,
) -> Result<NodeEvidence, Refusal> {
    if look.node.is_some() {
        return Err(Refusal::NodeExists);
    }
    // A Lease that went meanwhile was collected with its Node. One that came, or moved, was written by a kubelet.
    if !look.lease.is_absent() && look.lease != first.lease {
        return Err(Refusal::KubeletAlive(Sign::LeaseRenewed));
    }
    // What went may have been renewed first, and what is there before the first read. Only the watch can tell, and it has once it
    // has brought the deletion, or this renewal.
    let unseen = match look.lease.is_absent() {
        true => !first.lease.is_absent() && !cache.lease_is_gone(node),
        false => look.lease.renewed().ok() != cache.lease(node),
    };
    if unseen {
        return Err(Refusal::HeartbeatsUnseen);
    }
    // Again, for what the watch brought during the reads. The first read of a later absence is another one.
    if first_read(node, quarantine, cache, now)?.asked_at() != first.asked_at() {
        return Err(Refusal::NoWitness);
    }
    let apart = look.asked_at.since(first.answered_at());
    if apart < quarantine {
        return Err(Refusal::QuarantineNotOver { left: quarantine.saturating_sub(apart) });
    }
    let gone = Incarnation { name: node.to_string(), ..Incarnation::default() };
    let kind = EvidenceKind::NodeGone { node: Arc::clone(node), apart };
    Ok(Evidence::new(kind, gone, look.asked_at + VALID_FOR))
}

/// Evidence `Asserted`: a taint by others, checked for what can be checked. `ours`: whether a taint with this value was added
/// by pod-safety; that one rests on its evidence, which may have been withdrawn since.
///
/// # Errors
/// The settings do not trust it, the node is Ready or has no such taint, or it is ours.
pub fn asserted(
    node: &Arc<str>,
    look: &Look,
    trusted: bool,
    ours: impl Fn(&str) -> bool,
) -> Result<NodeEvidence, Refusal> {
    if !trusted {
        return Err(Refusal::TaintNotTrusted);
    }
    let read = look.node.as_ref().filter(|read| !read.is_ready() && !read.out_of_service().is_empty());
    let read = read.ok_or(Refusal::NodeInService)?;
    if read.out_of_service().iter().any(|value| ours(value)) {
        return Err(Refusal::TaintNotTrusted);
    }
    let kind = EvidenceKind::Asserted { node: Arc::clone(node) };
    Ok(Evidence::new(kind, read.incarnation().clone(), look.asked_at + VALID_FOR))
}

/// Evidence of fencing. The object alone proves nothing: its devices must report off now (`shown`; a person's confirmation has
/// none), the node must be in the same incarnation and not Ready, and its Lease unmoved.
///
/// # Errors
/// What contradicts it.
pub fn fenced(
    evidence: &EvidenceRead,
    shown: Option<Shown>,
    look: &Look,
    wanted: Grade,
    cache: &dyn Liveness,
) -> Result<NodeEvidence, Refusal> {
    let (said, about) = (evidence.said(), evidence.node());
    said.holds()?;
    let asked_at = checked(evidence, shown)?.map(|shown| shown.asked_at);
    // After the devices: a report of the kubelet while they reported off contradicts them.
    if asked_at > Some(look.asked_at) {
        return Err(Refusal::EvidenceInvalid("its devices were checked after the node was read"));
    }
    let read = look.node.as_ref();
    let read =
        read.ok_or(Refusal::EvidenceInvalid("the Node object is gone: its absence needs other evidence"))?;
    if read.is_ready() && read.incarnation() == about {
        return Err(Refusal::NodeInService);
    }
    // What is no time is not the one that the evidence names.
    let renewed = look.lease.renewed().map_err(|_invalid| Refusal::KubeletAlive(Sign::LeaseRenewed))?;
    let renewed = (!look.lease.is_absent()).then_some(renewed);
    said.holds_now(&Now { life: read.incarnation().clone(), renewed, wanted })?;
    let left = silence::left(&about.name, &look.lease, cache, look.answered_at);
    if !left.is_zero() {
        return Err(Refusal::HeardLately { left });
    }
    // A machine that its devices showed off cannot be Ready before it has booted.
    let booted = asked_at.map(|asked_at| (asked_at + MINIMUM_BOOT).min(look.answered_at + VALID_FOR));
    let expires = booted.unwrap_or(look.asked_at + VALID_FOR);
    Ok(Evidence::new(fencing_kind(evidence)?, about.clone(), expires))
}

/// What evidence that a life has ended is evidence of.
pub(crate) fn fencing_kind(evidence: &EvidenceRead) -> Result<EvidenceKind, Refusal> {
    let (node, proof) = (evidence.node().name.as_str().into(), evidence.name.as_str().into());
    Ok(match evidence.kind() {
        kind @ (KindOfEvidence::PowerOff
        | KindOfEvidence::Decommissioned
        | KindOfEvidence::InstanceStopped
        | KindOfEvidence::InstanceGone
        | KindOfEvidence::WatchdogLease
        | KindOfEvidence::Remediated) => EvidenceKind::Fenced { node, proof, kind },
        KindOfEvidence::Asserted => {
            EvidenceKind::Confirmed { node, proof, by: evidence.spec.by.as_str().into() }
        }
        KindOfEvidence::StorageFenced => return Err(Lack::OfStorage.into()),
    })
}

/// That the devices of the evidence showed what it says. A person's confirmation names none.
fn checked(evidence: &EvidenceRead, shown: Option<Shown>) -> Result<Option<Shown>, Refusal> {
    if evidence.kind() == KindOfEvidence::Asserted {
        return Ok(None);
    }
    if evidence.spec.samples.is_empty() {
        return Err(Refusal::EvidenceInvalid("it names no device"));
    }
    let shown = shown.filter(|shown| shown.kind.confirms(evidence.kind()));
    shown.map(Some).ok_or(Refusal::EvidenceInvalid("its devices show less than it says, or something else"))
}
