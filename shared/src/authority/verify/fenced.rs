//! The judge of fencing: what a FenceEvidence says, looked up again.

use std::sync::Arc;
use std::time::Duration;

use super::super::evidence::{EvidenceKind, VALID_FOR};
use super::super::witness::{LeaseSample, incarnation, look};
use super::{NodeProof, Refusal, Verifier, is_ready};
use crate::api::{FenceEvidenceSpec, FenceEvidenceStatus, Grade, KindOfEvidence, group_path};
use crate::cache::Sign;
use crate::client::{ApiError, Call};
use crate::wire;

/// No machine boots faster: so long after a look that said off nothing can run on it.
pub(super) const MINIMUM_BOOT: Duration = Duration::from_secs(10);

impl Verifier<'_> {
    /// Evidence of fencing: what an object says, looked up again. The object alone proves nothing: the
    /// devices that it names must say off now, the node must be the same and not Ready, and its Lease unmoved.
    pub(super) async fn fenced(&self, node: &Arc<str>, proof: &Arc<str>) -> Result<NodeProof, Refusal> {
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
        let expires = (looked_at + MINIMUM_BOOT).min(look.answered_at + VALID_FOR);
        let (about, node, proof) = (Arc::clone(node), Arc::clone(node), Arc::clone(proof));
        let kind = match spec.kind {
            KindOfEvidence::PowerOff => EvidenceKind::PowerOff { node, proof },
            KindOfEvidence::Decommissioned => EvidenceKind::Decommissioned { node, proof },
            KindOfEvidence::Remediated => EvidenceKind::Remediated { node, proof },
            KindOfEvidence::Asserted => EvidenceKind::Confirmed { node, proof, by: spec.by.into() },
            KindOfEvidence::StorageFenced => return Err(OF_STORAGE_ALONE),
        };
        Ok(NodeProof { node: about, kind, expires })
    }

    /// Evidence that nobody declared invalid, by quorum read.
    pub(super) async fn evidence(
        &self,
        proof: &str,
    ) -> Result<(FenceEvidenceSpec, wire::CustomMeta), Refusal> {
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
