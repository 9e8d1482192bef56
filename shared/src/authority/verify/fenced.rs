//! The judge of fencing: what a FenceEvidence says, looked up again.

use std::sync::Arc;
use std::time::Duration;

use super::super::evidence::{EvidenceKind, VALID_FOR};
use super::super::fence::Looker;
use super::super::holds::{Lack, Now, Said};
use super::super::silence;
use super::super::witness::{LeaseSample, Look, incarnation, look};
use super::{NodeProof, Refusal, Verifier, is_ready};
use crate::api::{FenceEvidenceSpec, FenceEvidenceStatus, Incarnation, KindOfEvidence, group_path};
use crate::cache::{Cache, Lookup, Sign};
use crate::client::{ApiError, Call, Connection};
use crate::clock::Env;
use crate::wire;

/// No machine boots faster: so long after a look that said off nothing can run on it.
pub(super) const MINIMUM_BOOT: Duration = Duration::from_secs(10);

/// Asks whether evidence holds now: for a release, for a volume, and for the taint by which others release.
#[derive(Clone, Copy)]
pub(in crate::authority) struct Judge<'a> {
    pub(in crate::authority) connection: &'a Connection,
    pub(in crate::authority) cache: &'a Cache,
    pub(in crate::authority) env: &'a Env,
    pub(in crate::authority) looker: Looker<'a>,
}

/// A FenceEvidence as a quorum read found it.
pub(super) struct Found {
    pub(super) spec: FenceEvidenceSpec,
    invalidated: bool,
    deleting: bool,
    age: Option<Duration>,
}

impl Found {
    pub(super) fn said(&self) -> Said<'_> {
        let Self { spec, invalidated, deleting, age } = self;
        Said { spec, invalidated: *invalidated, deleting: *deleting, age: *age }
    }
}

impl Verifier<'_> {
    pub(super) const fn judge(&self) -> Judge<'_> {
        let Self { connection, cache, env, looker, .. } = self;
        Judge { connection, cache, env, looker: *looker }
    }
}

impl Judge<'_> {
    /// Evidence of fencing: what an object says, looked up again. First the words of people, which need no device: one that
    /// hangs takes its whole time. Then the evidence that is named, and last any other about this life of the node.
    pub(in crate::authority) async fn fenced(
        &self,
        node: &Arc<str>,
        proof: &Arc<str>,
    ) -> Result<NodeProof, Refusal> {
        let (words, others): (Vec<_>, Vec<_>) =
            self.known(node).into_iter().partition(|(_, is_word)| *is_word);
        for (word, _) in words {
            if let Ok(proved) = self.fenced_by(node, &word).await {
                return Ok(proved);
            }
        }
        let refusal = match self.fenced_by(node, proof).await {
            Err(
                refusal
                @ (Refusal::EvidenceInvalid(_) | Refusal::PowerStateUnconfirmed(_) | Refusal::Read(_)),
            ) => refusal,
            judged => return judged,
        };
        for (other, _) in others.iter().filter(|(other, _)| other != proof) {
            if let Ok(proved) = self.fenced_by(node, other).await {
                return Ok(proved);
            }
        }
        Err(refusal)
    }

    /// The evidence about this life of the node that holds by the cache, and whether it is a person's word.
    fn known(&self, node: &str) -> Vec<(Arc<str>, bool)> {
        let (guard, now) = (self.cache.read(), self.env.now());
        let view = guard.view();
        let Lookup::Known(node) = view.node(node) else { return Vec::new() };
        let all = view.proofs_that_hold(node, now);
        all.map(|proof| (Arc::clone(&proof.name), proof.spec.kind == KindOfEvidence::Asserted)).collect()
    }

    /// The object alone proves nothing: the devices that it names must say off now, the node must be the same and not
    /// Ready, and its Lease unmoved.
    async fn fenced_by(&self, node: &Arc<str>, proof: &Arc<str>) -> Result<NodeProof, Refusal> {
        let found = self.evidence(proof).await?;
        found.said().holds().map_err(lacks)?;
        let spec = &found.spec;
        if spec.node.name != **node {
            return Err(lacks(Lack::OtherNode));
        }
        let looked_at = self.env.now();
        if spec.kind != KindOfEvidence::Asserted {
            if spec.samples.is_empty() {
                return Err(Refusal::EvidenceInvalid("it names no device"));
            }
            let shown = self
                .looker
                .all_off(&spec.node, &spec.samples)
                .await
                .map_err(Refusal::PowerStateUnconfirmed)?;
            if shown != spec.kind {
                return Err(Refusal::EvidenceInvalid(
                    "its devices show less than it says, or something else",
                ));
            }
        }
        // After the devices: a kubelet that was heard while they said off convicts them.
        let look = look(self.connection, self.env, node).await.map_err(Refusal::Read)?;
        self.of_this_life(&found, &look)?;
        let left = silence::left(node, &look.lease, &self.cache.read().view(), look.answered_at);
        if !left.is_zero() {
            return Err(Refusal::HeardLately { left });
        }
        let expires = (looked_at + MINIMUM_BOOT).min(look.answered_at + VALID_FOR);
        let (about, node, proof) = (Arc::clone(node), Arc::clone(node), Arc::clone(proof));
        let kind = match spec.kind {
            KindOfEvidence::PowerOff => EvidenceKind::PowerOff { node, proof },
            KindOfEvidence::Decommissioned => EvidenceKind::Decommissioned { node, proof },
            KindOfEvidence::Remediated => EvidenceKind::Remediated { node, proof },
            KindOfEvidence::Asserted => EvidenceKind::Confirmed { node, proof, by: spec.by.as_str().into() },
            KindOfEvidence::StorageFenced => return Err(lacks(Lack::OfStorage)),
        };
        Ok(NodeProof { node: about, kind, expires })
    }

    /// Whether the node is in the life that the evidence is about, was not heard since, and its policy takes such evidence.
    fn of_this_life(&self, found: &Found, look: &Look) -> Result<(), Refusal> {
        let Some(read) = &look.node else {
            return Err(Refusal::EvidenceInvalid(
                "the Node object is gone: its absence needs other evidence",
            ));
        };
        if is_ready(read) && found.spec.node == incarnation(&found.spec.node.name, read) {
            return Err(Refusal::NodeInService);
        }
        let renewed = match &look.lease {
            LeaseSample::Absent => None,
            // What is no time is not the one that the evidence names.
            lease @ LeaseSample::Present { .. } => {
                Some(lease.renewed().map_err(|_nonsense| Refusal::KubeletAlive(Sign::LeaseRenewed))?)
            }
        };
        let none = Default::default();
        let labels = read.metadata.as_ref().map_or(&none, |meta| &meta.labels);
        let wanted = self.cache.read().view().minimum_evidence(labels);
        let now = Now { life: incarnation(&found.spec.node.name, read), renewed, wanted };
        found.said().holds_now(&now).map_err(lacks)
    }

    /// Whether this evidence is about this incarnation, and neither anything in it nor the node's policy speaks against it,
    /// whatever the node does.
    pub(in crate::authority) async fn still_holds(
        &self,
        proof: &str,
        node: &Incarnation,
    ) -> Result<bool, Refusal> {
        let found = self.evidence(proof).await?;
        let enough = found.spec.kind.grade() >= self.cache.read().view().minimum_evidence_of(&node.name);
        Ok(enough && found.said().holds().is_ok() && found.spec.node == *node)
    }

    /// Evidence by quorum read.
    pub(super) async fn evidence(&self, proof: &str) -> Result<Found, Refusal> {
        let path = group_path(&format!("fenceevidences/{proof}"));
        let raw = self.connection.send(Call::get(path)).await.map_err(Refusal::Read)?;
        let object: wire::Custom<FenceEvidenceSpec, FenceEvidenceStatus> =
            raw.decode().map_err(|error| Refusal::Read(ApiError::Undecodable(error)))?;
        let wire::Custom { metadata, spec, status } = object;
        // By our wall clock: one that is wrong makes a person's word last too short or too long, never true of another life.
        let written = metadata.creation_timestamp.and_then(wire::Time::timestamp);
        let wall = self.env.clock.wall();
        // One from the future is new.
        let age = written.map(|written| Duration::try_from(wall.duration_since(written)).unwrap_or_default());
        let invalidated = status.unwrap_or_default().invalidated.is_some();
        Ok(Found { spec, invalidated, deleting: metadata.deletion_timestamp.is_some(), age })
    }
}

pub(super) fn lacks(lack: Lack) -> Refusal {
    match lack {
        Lack::Heard => Refusal::KubeletAlive(Sign::LeaseRenewed),
        lack => Refusal::EvidenceInvalid(lack.words()),
    }
}
