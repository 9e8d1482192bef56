//! Live reads for the judge: what a claim says is looked up again, in the cache by UID and at the API server by quorum read. The
//! claim only says where to look. The kernel ([`pod_safety_proof`]) judges; what cannot be read is no evidence.

mod pods_ended;
mod volumes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pod_safety_fence::EvidenceReader;
use pod_safety_fence::quorum_read::read_node_and_lease;
use pod_safety_leader::outcome::VerifyError;
use pod_safety_proof::{
    self as proof, Claim, Evidence, ForceDeleteRequest, NodeEvidence, PodVersion, Refusal,
};

use crate::cache::{Cache, CacheWriter as _};
use crate::client::Connection;
use crate::clock::Env;

/// The reason of Events about force deletions that were refused; their messages begin with [`VerifyError::reason`].
pub const FORCE_DELETE_REFUSED: &str = "ForceDeleteRefused";

/// What an operator decided for this process.
#[derive(Clone, Debug)]
pub struct VerifierConfig {
    /// How far the two reads of a missing node lie apart.
    pub quarantine: Duration,
    /// Take the out-of-service taint for proof, as KCM does.
    pub trust_out_of_service_taint: bool,
    /// The namespace of the Leases of node agents, if what they report of pods is accepted.
    pub agent_reports: Option<Arc<str>>,
    /// CSI drivers whose storage lets nobody write who is not attached: what is detached there is another node's to have.
    pub exclusive_backends: BTreeSet<String>,
}

/// Reads for one turn of claims: of pods and of volumes of one node.
pub(super) struct Verifier<'a> {
    pub(super) connection: &'a Connection,
    pub(super) cache: &'a Cache,
    pub(super) env: &'a Env,
    pub(super) config: &'a VerifierConfig,
    pub(super) evidence_reader: EvidenceReader<'a>,
    /// What an earlier claim of this turn found about its node: it serves others about that node until it expires.
    pub(super) node_evidence: Option<NodeEvidence>,
    /// What the devices of this evidence did not confirm: they are not looked at again for each claim of a turn, for one that does
    /// not answer takes its whole timeout.
    pub(super) unconfirmed: Option<(Arc<str>, Refusal)>,
}

impl Verifier<'_> {
    /// Evidence for one claim, which is not over yet.
    pub(super) async fn verify(
        &mut self,
        force: &ForceDeleteRequest,
    ) -> Result<Evidence<PodVersion>, VerifyError> {
        let evidence = self.verify_claim(force).await?;
        VerifyError::check_not_late(evidence, self.env.now())
    }

    async fn verify_claim(
        &mut self,
        force: &ForceDeleteRequest,
    ) -> Result<Evidence<PodVersion>, VerifyError> {
        if let Claim::PodsEnded { node } = &force.claim {
            return self.verify_pods_ended(force, node).await;
        }
        self.check_claim(force)?;
        let (cache, env) = (self.cache, self.env);
        let judged = |found: Option<&NodeEvidence>| {
            let guard = cache.read();
            let view = guard.view();
            proof::verify_pod(force, view.pod(&force.pod.uid), found, &view, env.now())
        };
        match force.claim.node() {
            Some(node) => {
                let judged = judged(Some(self.verify_node(node, &force.claim).await?));
                self.note_refutation(node, judged.map_err(VerifyError::from))
            }
            None => Ok(judged(None)?),
        }
    }

    /// Before anything is read: whether the claim fits the pod.
    fn check_claim(&self, force: &ForceDeleteRequest) -> Result<PodVersion, Refusal> {
        let guard = self.cache.read();
        proof::check_claim(force, guard.view().pod(&force.pod.uid))
    }

    /// Evidence about a node: what an earlier claim of this turn found, while it serves, or what is read now.
    async fn verify_node(&mut self, node: &Arc<str>, claim: &Claim) -> Result<&NodeEvidence, VerifyError> {
        let now = self.env.now();
        let evidence = match self.node_evidence.take().filter(|found| proof::is_reusable(found, claim, now)) {
            Some(found) => found,
            None => {
                let result = match claim {
                    Claim::NodeGone { .. } => self.verify_node_gone(node).await,
                    Claim::OutOfService { .. } => self.verify_trusted_taint(node).await,
                    Claim::Fenced { proof, .. } => self.verify_fenced(node, proof).await,
                    Claim::NeverScheduled | Claim::KubeletTerminated | Claim::PodsEnded { .. } => {
                        Err(Refusal::ClaimMismatch("it is not about a node").into())
                    }
                };
                self.note_refutation(node, result)?
            }
        };
        Ok(self.node_evidence.insert(evidence))
    }

    async fn verify_fenced(
        &mut self,
        node: &Arc<str>,
        proof: &Arc<str>,
    ) -> Result<NodeEvidence, VerifyError> {
        if let Some((_, refusal)) = self.unconfirmed.as_ref().filter(|(of, _)| of == proof) {
            return Err(refusal.clone().into());
        }
        let result = self.evidence_reader.verify_fenced_node(node, proof).await;
        if let Err(VerifyError::Refused(refusal @ Refusal::PowerStateUnconfirmed(_))) = &result {
            self.unconfirmed = Some((Arc::clone(proof), refusal.clone()));
        }
        result
    }

    /// A sign that the kubelet runs refutes the first read: the quarantine starts anew.
    fn note_refutation<T>(&self, node: &str, judged: Result<T, VerifyError>) -> Result<T, VerifyError> {
        if judged.as_ref().is_err_and(VerifyError::refutes_absence) {
            self.cache.discard_absence_read(node);
        }
        judged
    }

    async fn verify_node_gone(&self, node: &Arc<str>) -> Result<NodeEvidence, VerifyError> {
        let quarantine = self.config.quarantine;
        let first = {
            let guard = self.cache.read();
            proof::check_quarantine(node, quarantine, &guard.view(), self.env.now())?
        };
        let read = read_node_and_lease(self.connection, self.env, node).await.map_err(VerifyError::Read)?;
        let guard = self.cache.read();
        Ok(proof::verify_node_gone(node, &first, &read, quarantine, &guard.view(), self.env.now())?)
    }

    async fn verify_trusted_taint(&self, node: &Arc<str>) -> Result<NodeEvidence, VerifyError> {
        let trusted = self.config.trust_out_of_service_taint;
        if !trusted {
            return Err(Refusal::TaintNotTrusted.into());
        }
        let read = read_node_and_lease(self.connection, self.env, node).await.map_err(VerifyError::Read)?;
        let guard = self.cache.read();
        let view = guard.view();
        let is_managed = |value: &str| view.node_fences_of(node).any(|fence| *fence.name == *value);
        Ok(proof::verify_trusted_taint(node, &read, trusted, is_managed)?)
    }
}

#[cfg(test)]
mod tests;
