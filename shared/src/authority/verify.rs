//! Quorum reads for the judge. What a claim states is read again, from the cache by UID and from the API server by quorum.
//! A claim only selects what is read. The kernel ([`pod_safety_proof`]) judges the facts; what cannot be read is no
//! evidence.

mod pods_ended;
mod volumes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pod_safety_fence::EvidenceReader;
use pod_safety_fence::quorum_read::read_node_and_lease;
use pod_safety_leader::outcome::VerifyError;
use pod_safety_proof::{self as proof, Claim, Evidence, ForceDeleteRequest, NodeEvidence, PodVersion, Refusal};

use crate::cache::{Cache, CacheWriter as _};
use crate::client::Connection;
use crate::clock::Env;

/// The reason of Events about refused force deletions. Their messages begin with [`VerifyError::reason`].
pub const FORCE_DELETE_REFUSED: &str = "ForceDeleteRefused";

/// The operator's settings.
#[derive(Clone, Debug)]
pub struct VerifierConfig {
    /// The time between the two reads of a missing node.
    pub quarantine: Duration,
    /// Whether the out-of-service taint counts as evidence, as in kube-controller-manager.
    pub trust_out_of_service_taint: bool,
    /// The namespace of the Leases of node agents; `None`: their reports about pods are not accepted.
    pub agent_reports: Option<Arc<str>>,
    /// CSI drivers whose storage accepts no writes from a node without an attachment: a detached volume of theirs may go to
    /// another node.
    pub exclusive_backends: BTreeSet<String>,
}

/// The reads for one turn of claims, about pods and volumes of one node.
pub(super) struct Verifier<'a> {
    pub(super) connection: &'a Connection,
    pub(super) cache: &'a Cache,
    pub(super) env: &'a Env,
    pub(super) config: &'a VerifierConfig,
    pub(super) evidence_reader: EvidenceReader<'a>,
    /// The evidence about a node that an earlier claim of this turn produced. Other claims about the node use it until it
    /// expires.
    pub(super) node_evidence: Option<NodeEvidence>,
    /// The FenceEvidence that its devices did not confirm, and the refusal. The devices are not checked again for each
    /// claim of the turn, because a device that does not answer takes its whole timeout.
    pub(super) unconfirmed: Option<(Arc<str>, Refusal)>,
}

impl Verifier<'_> {
    /// Evidence for one claim that has not expired yet.
    pub(super) async fn verify(&mut self, force: &ForceDeleteRequest) -> Result<Evidence<PodVersion>, VerifyError> {
        let evidence = self.verify_claim(force).await?;
        VerifyError::check_not_late(evidence, self.env.now())
    }

    async fn verify_claim(&mut self, force: &ForceDeleteRequest) -> Result<Evidence<PodVersion>, VerifyError> {
        if let Claim::PodsEnded { node } = &force.claim {
            return self.verify_pods_ended(force, node).await;
        }
        self.check_claim(force)?;
        let (cache, env) = (self.cache, self.env);
        let judged = |evidence: Option<&NodeEvidence>| {
            let guard = cache.read();
            let view = guard.view();
            proof::verify_pod(force, view.pod(&force.pod.uid), evidence, &view, env.now())
        };
        match force.claim.node() {
            Some(node) => {
                let judged = judged(Some(self.verify_node(node, &force.claim).await?));
                self.note_refutation(node, judged.map_err(VerifyError::from))
            }
            None => Ok(judged(None)?),
        }
    }

    /// Checks that the claim matches the pod, before anything is read.
    fn check_claim(&self, force: &ForceDeleteRequest) -> Result<PodVersion, Refusal> {
        let guard = self.cache.read();
        proof::check_claim(force, guard.view().pod(&force.pod.uid))
    }

    /// Evidence about a node: that of an earlier claim of this turn while it is valid, or new evidence.
    async fn verify_node(&mut self, node: &Arc<str>, claim: &Claim) -> Result<&NodeEvidence, VerifyError> {
        let now = self.env.now();
        let evidence = match self.node_evidence.take().filter(|evidence| proof::is_reusable(evidence, claim, now)) {
            Some(evidence) => evidence,
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

    async fn verify_fenced(&mut self, node: &Arc<str>, proof: &Arc<str>) -> Result<NodeEvidence, VerifyError> {
        if let Some((_, refusal)) = self.unconfirmed.as_ref().filter(|(of, _)| of == proof) {
            return Err(refusal.clone().into());
        }
        let result = self.evidence_reader.verify_fenced_node(node, proof).await;
        if let Err(VerifyError::Refused(refusal @ Refusal::PowerStateUnconfirmed(_))) = &result {
            self.unconfirmed = Some((Arc::clone(proof), refusal.clone()));
        }
        result
    }

    /// A report of the kubelet refutes the first read: the quarantine starts again.
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
