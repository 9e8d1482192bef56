//! Live reads that turn a claim into evidence, or refuse.
//!
//! Danger note: this is the judge. Everything that a claim says is looked up
//! again, in the cache by UID and at the API server by quorum read; the claim
//! only says where to look. What cannot be read is a refusal.
//!
//! About a pod itself no extra read is needed: its evidence is bound to the
//! resourceVersion at which the cache saw it, and every write that follows
//! carries that version, so the API server's compare-and-swap *is* the quorum
//! read, at the moment of the act.

mod fenced;
mod volumes;

pub(in crate::authority) use fenced::Judge;

use std::sync::Arc;
use std::time::Duration;

use super::claim::{Claim, Force};
use super::evidence::{Evidence, EvidenceKind, VALID_FOR};
use super::fence::Looker;
use super::witness::{LeaseSample, Witness, look};
use super::writer::Policy;
use crate::cache::{Cache, Sign};
use crate::client::{ApiError, Connection};
use crate::clock::{Env, Mono};
use crate::model::{Kind, OUT_OF_SERVICE_TAINT, Pod, Uid};
use crate::wire;

/// The reason of Events about force deletions that were refused; their messages begin with [`Refusal::reason`].
pub const FORCE_DELETE_REFUSED: &str = "ForceDeleteRefused";

/// Why there is no evidence.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The pod is not as the claim saw it.
    #[error("the pod changed since the decision")]
    PodChanged,
    /// The claim does not fit the pod.
    #[error("the pod does not match the claim: {0}")]
    ClaimMismatch(&'static str),
    /// Nobody took the first read, or it was refuted.
    #[error("there is no first quorum read of the missing node yet")]
    NoWitness,
    /// The first read is too young.
    #[error("the quarantine lasts another {}s", left.as_secs())]
    QuarantineNotOver {
        /// How long.
        left: Duration,
    },
    /// The node is there.
    #[error("a quorum read found the node")]
    NodeExists,
    /// The kubelet lives.
    #[error("the kubelet showed a sign of life after the first read ({0:?})")]
    KubeletAlive(Sign),
    /// The kubelet was active until its Node was deleted: it gets the time to end the pod itself.
    #[error(
        "the kubelet was active until its Node was deleted, and has not had the time to terminate the pod itself"
    )]
    KubeletNotAsked,
    /// Its Lease was renewed so lately that a kubelet that lives need not have renewed it again.
    #[error("the kubelet reported recently: it must stay silent for another {}s", left.as_secs())]
    HeardLately {
        /// How long.
        left: Duration,
    },
    /// Heartbeats cannot be seen, so none can be said to be missing.
    #[error("the Leases of nodes, or the pods that kubelets create, cannot be watched")]
    HeartbeatsUnseen,
    /// Policy does not take a taint for proof, or it is ours, of which the evidence is asked.
    #[error(
        "--trust-out-of-service-taint is off, or pod-safety added the taint itself and relies on its evidence instead"
    )]
    TaintNotTrusted,
    /// The node does not carry the taint, or is Ready.
    #[error("a quorum read found the node Ready, or without the taint")]
    NodeInService,
    /// The FenceEvidence is not there, not valid, or not about this life of the node.
    #[error("the FenceEvidence does not hold: {0}")]
    EvidenceInvalid(&'static str),
    /// A device says now that it is not off.
    #[error("the machine may be on again: {0}")]
    PowerStateUnconfirmed(String),
    /// A live read failed.
    #[error("a live read failed")]
    Read(#[source] ApiError),
}

impl Refusal {
    /// The reason in one CamelCase word.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::PodChanged => "PodChanged",
            Self::ClaimMismatch(_) => "ClaimMismatch",
            Self::NoWitness => "NoWitness",
            Self::QuarantineNotOver { .. } => "QuarantineNotOver",
            Self::NodeExists => "NodeExists",
            Self::KubeletAlive(_) => "KubeletAlive",
            Self::KubeletNotAsked => "KubeletNotAsked",
            Self::HeardLately { .. } => "HeardLately",
            Self::HeartbeatsUnseen => "HeartbeatsUnseen",
            Self::TaintNotTrusted => "TaintNotTrusted",
            Self::NodeInService => "NodeInService",
            Self::EvidenceInvalid(_) => "EvidenceInvalid",
            Self::PowerStateUnconfirmed(_) => "PowerStateUnconfirmed",
            Self::Read(_) => "ReadFailed",
        }
    }

    /// Every reason, for metrics that must exist before they count.
    pub const REASONS: [&'static str; 14] = [
        "PodChanged",
        "ClaimMismatch",
        "NoWitness",
        "QuarantineNotOver",
        "NodeExists",
        "KubeletAlive",
        "KubeletNotAsked",
        "HeardLately",
        "HeartbeatsUnseen",
        "TaintNotTrusted",
        "NodeInService",
        "EvidenceInvalid",
        "PowerStateUnconfirmed",
        "ReadFailed",
    ];

    /// Whether it refutes the first read: the quarantine starts anew.
    const fn refutes_witness(&self) -> bool {
        matches!(self, Self::NodeExists | Self::KubeletAlive(_))
    }
}

/// What live reads showed of a node, good for every pod of it until it expires.
pub(super) struct NodeProof {
    /// The node that it is about: of no other it says anything.
    node: Arc<str>,
    kind: EvidenceKind,
    expires: Mono,
}

impl NodeProof {
    /// Until when it is good.
    pub(super) const fn expires(&self) -> Mono {
        self.expires
    }
}

/// A proof that an earlier claim of the same turn earned.
pub(super) struct Earned {
    by: NodeClaim,
    proof: NodeProof,
}

impl Earned {
    /// The proof, if it answers this claim about this node still.
    fn answers(&self, node: &str, claim: &NodeClaim, now: Mono) -> Option<&NodeProof> {
        let Self { by, proof } = self;
        (*proof.node == *node && by == claim && proof.expires > now).then_some(proof)
    }
}

/// The judge, for one batch of claims about one node.
pub(super) struct Verifier<'a> {
    pub(super) connection: &'a Connection,
    pub(super) cache: &'a Cache,
    pub(super) env: &'a Env,
    pub(super) policy: &'a Policy,
    pub(super) looker: Looker<'a>,
    /// What the claims of this turn earned last. The queue gives one turn to one node and one kind of claim; that a
    /// proof is used for nothing else does not rest on it.
    pub(super) proof: Option<Earned>,
}

impl Verifier<'_> {
    /// Judges one claim.
    pub(super) async fn verify(&mut self, force: &Force) -> Result<Evidence, Refusal> {
        let facts = self.pod_facts(force)?;
        let (kind, expires) = match &force.claim {
            Claim::NeverScheduled => (EvidenceKind::NeverScheduled, facts.seen + VALID_FOR),
            Claim::KubeletTerminated => (EvidenceKind::KubeletTerminated, facts.seen + VALID_FOR),
            Claim::NodeGone { node } => {
                let proof = self.node_proof(node, NodeClaim::Gone).await?;
                self.had_time_to_end(&force.pod.uid, node)?;
                proof
            }
            Claim::OutOfService { node } => self.node_proof(node, NodeClaim::OutOfService).await?,
            Claim::Fenced { node, proof, newest: _ } => {
                self.node_proof(node, NodeClaim::Fenced(Arc::clone(proof))).await?
            }
        };
        let Facts { terminal, generation, seen: _ } = facts;
        Ok(Evidence { kind, pod: force.pod.clone(), rv: force.rv, terminal, generation, expires })
    }

    /// Looks the pod up by UID and checks that the claim fits it.
    fn pod_facts(&self, force: &Force) -> Result<Facts, Refusal> {
        let guard = self.cache.read();
        let pod = guard.view().pod(&force.pod.uid).filter(|pod| pod.rv == force.rv && pod.key == force.pod);
        let pod = pod.ok_or(Refusal::PodChanged)?;
        fits(&force.claim, pod).map_err(Refusal::ClaimMismatch)?;
        Ok(Facts { terminal: pod.phase.is_terminal(), generation: pod.generation, seen: self.env.now() })
    }

    async fn node_proof(
        &mut self,
        node: &Arc<str>,
        claim: NodeClaim,
    ) -> Result<(EvidenceKind, Mono), Refusal> {
        let now = self.env.now();
        if let Some(proof) = self.proof.as_ref().and_then(|earned| earned.answers(node, &claim, now)) {
            if claim == NodeClaim::Gone {
                // Reads are shared by a batch; what the watch brings is asked for each pod.
                self.unless_refuted(node, self.witness(node))?;
            }
            return Ok((proof.kind.clone(), proof.expires));
        }
        self.proof = None;
        let proof = match &claim {
            NodeClaim::Gone => self.node_gone(node).await,
            NodeClaim::OutOfService => self.out_of_service(node).await,
            NodeClaim::Fenced(proof) => self.judge().fenced(node, proof).await,
        };
        let proof = self.unless_refuted(node, proof)?;
        let found = (proof.kind.clone(), proof.expires);
        self.proof = Some(Earned { by: claim, proof });
        Ok(found)
    }

    /// What shows a living kubelet refutes the first read: the quarantine starts anew.
    fn unless_refuted<T>(&self, node: &str, judged: Result<T, Refusal>) -> Result<T, Refusal> {
        if judged.as_ref().is_err_and(Refusal::refutes_witness) {
            self.cache.refuted(node);
        }
        judged
    }

    /// Evidence NodeGone: a second quorum read a quarantine after the first, and
    /// no sign of life in between, neither on the watch nor in the Lease itself.
    async fn node_gone(&self, node: &Arc<str>) -> Result<NodeProof, Refusal> {
        let witness = self.witness(node)?;
        let look = look(self.connection, self.env, node).await.map_err(Refusal::Read)?;
        if look.node.is_some() {
            return Err(Refusal::NodeExists);
        }
        // A Lease that went meanwhile was collected with its Node. One that came,
        // or moved, was written by a kubelet.
        let unmoved = look.lease == LeaseSample::Absent || look.lease == *witness.lease();
        if !unmoved {
            return Err(Refusal::KubeletAlive(Sign::LeaseRenewed));
        }
        // What went may have been renewed first, and what is there before the first read: only the watch can tell, and it
        // has once it has brought the end, or this renewal.
        let unseen = match &look.lease {
            LeaseSample::Absent => {
                *witness.lease() != LeaseSample::Absent && !self.cache.read().view().lease_is_gone(node)
            }
            LeaseSample::Present { .. } => look.lease.renewed().ok() != self.cache.read().view().lease(node),
        };
        if unseen {
            return Err(Refusal::HeartbeatsUnseen);
        }
        // Once more, for what the watch brought while we read. The first read of a
        // later absence is another one.
        if self.witness(node)?.asked_at() != witness.asked_at() {
            return Err(Refusal::NoWitness);
        }
        let apart = look.asked_at.since(witness.answered_at());
        let kind = EvidenceKind::NodeGone { node: Arc::clone(node), apart };
        Ok(NodeProof { node: Arc::clone(node), kind, expires: look.asked_at + VALID_FOR })
    }

    /// A kubelet that was active until its Node was deleted may run the pod: it had the time to end it.
    fn had_time_to_end(&self, pod: &Uid, node: &str) -> Result<(), Refusal> {
        let guard = self.cache.read();
        let view = guard.view();
        let pod = view.pod(pod).ok_or(Refusal::PodChanged)?;
        let witness = view.absence(node).and_then(|absence| absence.witness.as_ref());
        let witness = witness.ok_or(Refusal::NoWitness)?;
        if view.silence_is_proof(pod, node, witness) { Ok(()) } else { Err(Refusal::KubeletNotAsked) }
    }

    /// The first read of a node that is missing still, old enough and unrefuted.
    fn witness(&self, node: &str) -> Result<Witness, Refusal> {
        let now = self.env.now();
        let guard = self.cache.read();
        let view = guard.view();
        for kind in [Kind::NodeLeases, Kind::Pods] {
            view.fresh(kind, now).map_err(|_hold| Refusal::HeartbeatsUnseen)?;
        }
        let witness =
            view.absence(node).and_then(|absence| absence.witness.as_ref()).ok_or(Refusal::NoWitness)?;
        let age = now.since(witness.answered_at());
        if age < self.policy.quarantine {
            return Err(Refusal::QuarantineNotOver { left: self.policy.quarantine.saturating_sub(age) });
        }
        match view.last_sign_of_life(node) {
            Some(sign) if sign.at >= witness.asked_at() => Err(Refusal::KubeletAlive(sign.sign)),
            _ => Ok(witness.clone()),
        }
    }

    /// Evidence Asserted: somebody's word, checked for what can be checked.
    async fn out_of_service(&self, node: &Arc<str>) -> Result<NodeProof, Refusal> {
        if !self.policy.trust_out_of_service_taint {
            return Err(Refusal::TaintNotTrusted);
        }
        let look = look(self.connection, self.env, node).await.map_err(Refusal::Read)?;
        let Some(read) = look.node else { return Err(Refusal::NodeInService) };
        if out_of_service_taints(&read).next().is_none() || is_ready(&read) {
            return Err(Refusal::NodeInService);
        }
        // Ours is worth what its evidence is, which may have been withdrawn since: that is asked for by another claim.
        let guard = self.cache.read();
        let ours = |value: &str| guard.view().fences_of(node).any(|fence| *fence.name == *value);
        if out_of_service_taints(&read).filter_map(|taint| taint.value.as_deref()).any(ours) {
            return Err(Refusal::TaintNotTrusted);
        }
        let kind = EvidenceKind::Asserted { node: Arc::clone(node) };
        Ok(NodeProof { node: Arc::clone(node), kind, expires: look.answered_at + VALID_FOR })
    }
}

/// What is claimed of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NodeClaim {
    Gone,
    OutOfService,
    /// By the FenceEvidence of this name.
    Fenced(Arc<str>),
}

struct Facts {
    terminal: bool,
    generation: i64,
    seen: Mono,
}

/// Whether the pod, as the cache has it at the claimed version, can be what the
/// claim says.
fn fits(claim: &Claim, pod: &Pod) -> Result<(), &'static str> {
    match claim {
        Claim::NeverScheduled if pod.node.is_some() => Err("it is bound to a node"),
        Claim::NeverScheduled | Claim::OutOfService { .. } | Claim::Fenced { .. }
            if pod.deletion.is_none() =>
        {
            Err("it is not terminating")
        }
        Claim::KubeletTerminated if !pod.phase.is_terminal() => Err("its phase is not terminal"),
        Claim::KubeletTerminated if pod.running > 0 => Err("one of its containers runs"),
        Claim::NodeGone { node } | Claim::OutOfService { node } | Claim::Fenced { node, .. }
            if pod.node.as_ref() != Some(node) =>
        {
            Err("it is bound to another node")
        }
        Claim::NeverScheduled
        | Claim::KubeletTerminated
        | Claim::NodeGone { .. }
        | Claim::OutOfService { .. }
        | Claim::Fenced { .. } => Ok(()),
    }
}

fn out_of_service_taints(node: &wire::Node) -> impl Iterator<Item = &wire::Taint> {
    let taints = node.spec.iter().flat_map(|spec| &spec.taints);
    taints.filter(|taint| taint.key.as_deref() == Some(OUT_OF_SERVICE_TAINT))
}

pub(super) fn is_ready(node: &wire::Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| {
        condition.r#type.as_deref() == Some("Ready") && condition.status.as_deref() == Some("True")
    })
}

#[cfg(test)]
mod tests;
