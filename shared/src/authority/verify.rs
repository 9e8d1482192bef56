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

mod volumes;

use std::sync::Arc;
use std::time::Duration;

use super::claim::{Claim, Force};
use super::evidence::{Evidence, EvidenceKind, VALID_FOR};
use super::fence::Looker;
use super::witness::{LeaseSample, Witness, incarnation, look};
use super::writer::Policy;
use crate::api::{FenceEvidenceSpec, FenceEvidenceStatus, Grade, KindOfEvidence, group_path};
use crate::cache::{Cache, Sign};
use crate::client::{ApiError, Call, Connection};
use crate::clock::{Env, Mono};
use crate::model::{Kind, OUT_OF_SERVICE_TAINT, Pod};
use crate::wire;

/// Why there is no evidence.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The pod is not as the claim saw it.
    #[error("the pod changed since the decision")]
    PodChanged,
    /// The claim does not fit the pod.
    #[error("the pod does not fit the claim: {0}")]
    DoesNotFit(&'static str),
    /// Nobody took the first read, or it was refuted.
    #[error("there is no first quorum read of the missing node yet")]
    NoWitness,
    /// The first read is too young.
    #[error("the quarantine has {}s to go", left.as_secs())]
    QuarantineNotOver {
        /// How long.
        left: Duration,
    },
    /// The node is there.
    #[error("a quorum read found the node")]
    NodeExists,
    /// The kubelet lives.
    #[error("the kubelet gave a sign of life after the first read ({0:?})")]
    KubeletAlive(Sign),
    /// Heartbeats cannot be seen, so none can be said to be missing.
    #[error("the Leases of nodes, or the pods that kubelets create, cannot be followed")]
    HeartbeatsUnseen,
    /// Policy does not take a taint for proof, or it is ours, of which the evidence is asked.
    #[error(
        "--trust-out-of-service-taint is off, or the taint is pod-safety's own, of which the evidence is asked"
    )]
    TaintNotTrusted,
    /// The node does not carry the taint, or is Ready.
    #[error("a quorum read found the node Ready, or without the taint")]
    InService,
    /// The FenceEvidence is not there, not valid, or not about this life of the node.
    #[error("the FenceEvidence does not hold: {0}")]
    ProofDoesNotHold(&'static str),
    /// A device says now that it is not off.
    #[error("the machine may be on again: {0}")]
    MayBeOn(String),
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
            Self::DoesNotFit(_) => "DoesNotFit",
            Self::NoWitness => "NoWitness",
            Self::QuarantineNotOver { .. } => "QuarantineNotOver",
            Self::NodeExists => "NodeExists",
            Self::KubeletAlive(_) => "KubeletAlive",
            Self::HeartbeatsUnseen => "HeartbeatsUnseen",
            Self::TaintNotTrusted => "TaintNotTrusted",
            Self::InService => "InService",
            Self::ProofDoesNotHold(_) => "ProofDoesNotHold",
            Self::MayBeOn(_) => "MayBeOn",
            Self::Read(_) => "ReadFailed",
        }
    }

    /// Every reason, for metrics that must exist before they count.
    pub const REASONS: [&'static str; 12] = [
        "PodChanged",
        "DoesNotFit",
        "NoWitness",
        "QuarantineNotOver",
        "NodeExists",
        "KubeletAlive",
        "HeartbeatsUnseen",
        "TaintNotTrusted",
        "InService",
        "ProofDoesNotHold",
        "MayBeOn",
        "ReadFailed",
    ];

    /// Whether it refutes the first read: the quarantine starts anew.
    const fn refutes_witness(&self) -> bool {
        matches!(self, Self::NodeExists | Self::KubeletAlive(_))
    }
}

/// What live reads showed of a node, good for every pod of it until it expires.
pub(super) struct NodeProof {
    kind: EvidenceKind,
    expires: Mono,
}

/// The judge, for one batch of claims about one node.
pub(super) struct Verifier<'a> {
    pub(super) connection: &'a Connection,
    pub(super) cache: &'a Cache,
    pub(super) env: &'a Env,
    pub(super) policy: &'a Policy,
    pub(super) looker: Looker<'a>,
    /// The proof that the previous claim of this batch earned.
    pub(super) proof: Option<NodeProof>,
}

impl Verifier<'_> {
    /// Judges one claim.
    pub(super) async fn verify(&mut self, force: &Force) -> Result<Evidence, Refusal> {
        let facts = self.pod_facts(force)?;
        let (kind, expires) = match &force.claim {
            Claim::NeverScheduled => (EvidenceKind::NeverScheduled, facts.seen + VALID_FOR),
            Claim::KubeletTerminated => (EvidenceKind::KubeletTerminated, facts.seen + VALID_FOR),
            Claim::NodeGone { node } => self.node_proof(node, NodeClaim::Gone).await?,
            Claim::OutOfService { node } => self.node_proof(node, NodeClaim::OutOfService).await?,
            Claim::Fenced { node, proof } => self.node_proof(node, NodeClaim::Fenced(proof)).await?,
        };
        let Facts { terminal, generation, seen: _ } = facts;
        Ok(Evidence { kind, pod: force.pod.clone(), rv: force.rv, terminal, generation, expires })
    }

    /// Looks the pod up by UID and checks that the claim fits it.
    fn pod_facts(&self, force: &Force) -> Result<Facts, Refusal> {
        let guard = self.cache.read();
        let pod = guard.view().pod(&force.pod.uid).filter(|pod| pod.rv == force.rv && pod.key == force.pod);
        let pod = pod.ok_or(Refusal::PodChanged)?;
        fits(&force.claim, pod).map_err(Refusal::DoesNotFit)?;
        Ok(Facts { terminal: pod.phase.is_terminal(), generation: pod.generation, seen: self.env.now() })
    }

    async fn node_proof(
        &mut self,
        node: &Arc<str>,
        claim: NodeClaim<'_>,
    ) -> Result<(EvidenceKind, Mono), Refusal> {
        let fresh = |proof: &NodeProof| proof.expires > self.env.now();
        if !self.proof.as_ref().is_some_and(fresh) {
            self.proof = None;
            let proof = match claim {
                NodeClaim::Gone => self.node_gone(node).await,
                NodeClaim::OutOfService => self.out_of_service(node).await,
                NodeClaim::Fenced(proof) => self.fenced(node, proof).await,
            };
            if proof.as_ref().is_err_and(Refusal::refutes_witness) {
                self.cache.refuted(node);
            }
            self.proof = Some(proof?);
        } else if matches!(claim, NodeClaim::Gone) {
            // Reads are shared by a batch; what the watch brings is asked for each pod.
            let still = self.witness(node);
            if still.as_ref().is_err_and(Refusal::refutes_witness) {
                self.cache.refuted(node);
            }
            still?;
        }
        self.proof.as_ref().map(|proof| (proof.kind.clone(), proof.expires)).ok_or(Refusal::NoWitness)
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
        // What went may have been renewed first: only the watch can tell, and it
        // has once it has brought the end.
        let went = look.lease == LeaseSample::Absent && *witness.lease() != LeaseSample::Absent;
        if went && !self.cache.read().view().lease_is_gone(node) {
            return Err(Refusal::HeartbeatsUnseen);
        }
        // Once more, for what the watch brought while we read. The first read of a
        // later absence is another one.
        if self.witness(node)?.asked_at() != witness.asked_at() {
            return Err(Refusal::NoWitness);
        }
        let apart = look.asked_at.since(witness.answered_at());
        let kind = EvidenceKind::NodeGone { node: Arc::clone(node), apart };
        Ok(NodeProof { kind, expires: look.asked_at + VALID_FOR })
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
        let Some(read) = look.node else { return Err(Refusal::InService) };
        if out_of_service_taints(&read).next().is_none() || is_ready(&read) {
            return Err(Refusal::InService);
        }
        // Ours is worth what its evidence is, which may have been withdrawn since: that is asked for by another claim.
        let guard = self.cache.read();
        let ours = |value: &str| guard.view().fences_of(node).any(|fence| *fence.name == *value);
        if out_of_service_taints(&read).filter_map(|taint| taint.value.as_deref()).any(ours) {
            return Err(Refusal::TaintNotTrusted);
        }
        Ok(NodeProof {
            kind: EvidenceKind::Asserted { node: Arc::clone(node) },
            expires: look.answered_at + VALID_FOR,
        })
    }

    /// Evidence of fencing: what an object says, looked up again. The object alone proves nothing: the
    /// devices that it names must say off now, the node must be the same and not Ready, and its Lease unmoved.
    async fn fenced(&self, node: &Arc<str>, proof: &Arc<str>) -> Result<NodeProof, Refusal> {
        let (spec, metadata) = self.evidence(proof).await?;
        if !spec.kind.ends_life() {
            return Err(OF_STORAGE_ALONE);
        }
        if spec.node.name != **node {
            return Err(Refusal::ProofDoesNotHold("it is about another node"));
        }
        if self.is_over(&spec, &metadata) {
            return Err(Refusal::ProofDoesNotHold(
                "the person's word has expired; confirm anew if it is still true",
            ));
        }
        let looked_at = self.env.now();
        if spec.kind != KindOfEvidence::Asserted {
            if spec.samples.is_empty() {
                return Err(Refusal::ProofDoesNotHold("it names no device"));
            }
            let shown = self.looker.all_off(&spec.node, &spec.samples).await.map_err(Refusal::MayBeOn)?;
            if shown != spec.kind {
                return Err(Refusal::ProofDoesNotHold(
                    "its devices show less, or other things, than it says",
                ));
            }
        }
        let look = look(self.connection, self.env, node).await.map_err(Refusal::Read)?;
        let Some(read) = look.node else {
            return Err(Refusal::ProofDoesNotHold(
                "the Node object is gone: its absence is proved otherwise",
            ));
        };
        self.same_life(&spec, &read)?;
        let unmoved = match (&look.lease, look.lease.renewed()) {
            (LeaseSample::Absent, _) => true,
            (LeaseSample::Present { .. }, Ok(now)) => now.map(|now| now.to_string()) == spec.lease_renewed,
            (LeaseSample::Present { .. }, Err(_)) => false,
        };
        if !unmoved {
            return Err(Refusal::KubeletAlive(Sign::LeaseRenewed));
        }
        let (node, proof) = (Arc::clone(node), Arc::clone(proof));
        let kind = match spec.kind {
            KindOfEvidence::PowerOff => EvidenceKind::PowerOff { node, proof },
            KindOfEvidence::Decommissioned => EvidenceKind::Decommissioned { node, proof },
            KindOfEvidence::Remediated => EvidenceKind::Remediated { node, proof },
            KindOfEvidence::Asserted => EvidenceKind::Confirmed { node, proof, by: spec.by.into() },
            KindOfEvidence::StorageFenced => return Err(OF_STORAGE_ALONE),
        };
        Ok(NodeProof { kind, expires: (looked_at + MINIMUM_BOOT).min(look.answered_at + VALID_FOR) })
    }

    /// Evidence that nobody declared invalid, by quorum read.
    async fn evidence(&self, proof: &str) -> Result<(FenceEvidenceSpec, wire::CustomMeta), Refusal> {
        let path = group_path(&format!("fenceevidences/{proof}"));
        let raw = self.connection.send(Call::get(path)).await.map_err(Refusal::Read)?;
        let object: wire::Custom<FenceEvidenceSpec, FenceEvidenceStatus> =
            raw.decode().map_err(|error| Refusal::Read(ApiError::Undecodable(error)))?;
        if object.status.unwrap_or_default().invalidated.is_some() {
            return Err(Refusal::ProofDoesNotHold("it was invalidated"));
        }
        if object.metadata.deletion_timestamp.is_some() {
            return Err(Refusal::ProofDoesNotHold("it is being deleted"));
        }
        Ok((object.spec, object.metadata))
    }

    /// Whether a person's word has had its time. By our wall clock: one that is wrong makes it too short or too long,
    /// never true of another life. What does not say when it was written is over.
    fn is_over(&self, spec: &FenceEvidenceSpec, metadata: &wire::ObjectMeta) -> bool {
        let Some(valid_for) = spec.valid_for() else { return false };
        let written = metadata.creation_timestamp.and_then(wire::Time::timestamp);
        written.is_none_or(|written| self.env.clock.wall().duration_since(written) > signed(valid_for))
    }

    /// Whether the node is in the life that the evidence is about, and its policy takes such evidence.
    fn same_life(&self, spec: &FenceEvidenceSpec, read: &wire::Node) -> Result<(), Refusal> {
        let life = incarnation(&spec.node.name, read);
        if life != spec.node || life.boot_id.is_empty() {
            return Err(Refusal::ProofDoesNotHold("the node has another UID or another boot id"));
        }
        if is_ready(read) {
            return Err(Refusal::InService);
        }
        let none = Default::default();
        let labels = read.metadata.as_ref().map_or(&none, |meta| &meta.labels);
        let wanted = self.cache.read().view().policy_of(labels).map(|policy| policy.spec.minimum_evidence);
        if spec.kind.grade() < wanted.unwrap_or(Grade::Asserted) {
            return Err(Refusal::ProofDoesNotHold("the node's FencePolicy asks for verified evidence"));
        }
        Ok(())
    }
}

fn signed(duration: Duration) -> jiff::SignedDuration {
    jiff::SignedDuration::try_from(duration).unwrap_or(jiff::SignedDuration::MAX)
}

/// Evidence StorageFenced releases no pod.
const OF_STORAGE_ALONE: Refusal =
    Refusal::ProofDoesNotHold("it is about storage, and says nothing of what runs");

#[derive(Clone, Copy)]
enum NodeClaim<'a> {
    Gone,
    OutOfService,
    Fenced(&'a Arc<str>),
}

/// No machine boots faster: so long after a look that said off nothing can run on it.
const MINIMUM_BOOT: Duration = Duration::from_secs(10);

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
        Claim::KubeletTerminated if pod.running => Err("a container of it runs"),
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
