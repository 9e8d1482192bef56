//! Live reads for the judge: what a claim says is looked up again, in the cache by UID and at the API server by quorum read. The
//! claim only says where to look. The kernel ([`pod_safety_proof`]) judges; what cannot be read is no evidence.

mod ended;
mod volumes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pod_safety_fence::Judge;
use pod_safety_fence::witness::look;
use pod_safety_leader::outcome::Unproved;
use pod_safety_proof::{self as proof, Claim, Evidence, Force, NodeEvidence, PodVersion, Refusal};

use crate::cache::{Cache, Learns as _};
use crate::client::Connection;
use crate::clock::Env;

/// The reason of Events about force deletions that were refused; their messages begin with [`Unproved::reason`].
pub const FORCE_DELETE_REFUSED: &str = "ForceDeleteRefused";

/// What an operator decided for this process.
#[derive(Clone, Debug)]
pub struct Policy {
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
    pub(super) policy: &'a Policy,
    pub(super) judge: Judge<'a>,
    /// What an earlier claim of this turn found about its node: it serves others about that node until it expires.
    pub(super) found: Option<NodeEvidence>,
    /// What the devices of this evidence did not confirm: they are not looked at again for each claim of a turn, for one that does
    /// not answer takes its whole timeout.
    pub(super) unconfirmed: Option<(Arc<str>, Refusal)>,
}

impl Verifier<'_> {
    /// Evidence for one claim, which is not over yet.
    pub(super) async fn verify(&mut self, force: &Force) -> Result<Evidence<PodVersion>, Unproved> {
        let judged = self.judge_claim(force).await?;
        Unproved::unless_late(judged, self.env.now())
    }

    async fn judge_claim(&mut self, force: &Force) -> Result<Evidence<PodVersion>, Unproved> {
        if let Claim::PodsEnded { node } = &force.claim {
            return self.pods_ended(force, node).await;
        }
        self.fits(force)?;
        let (cache, env) = (self.cache, self.env);
        let judged = |found: Option<&NodeEvidence>| {
            let guard = cache.read();
            let view = guard.view();
            proof::pod(force, view.pod(&force.pod.uid), found, &view, env.now())
        };
        match force.claim.node() {
            Some(node) => {
                let judged = judged(Some(self.of_node(node, &force.claim).await?));
                self.unless_refuted(node, judged.map_err(Unproved::from))
            }
            None => Ok(judged(None)?),
        }
    }

    /// Before anything is read: whether the claim fits the pod.
    fn fits(&self, force: &Force) -> Result<PodVersion, Refusal> {
        let guard = self.cache.read();
        proof::fits(force, guard.view().pod(&force.pod.uid))
    }

    /// Evidence about a node: what an earlier claim of this turn found, while it serves, or what is read now.
    async fn of_node(&mut self, node: &Arc<str>, claim: &Claim) -> Result<&NodeEvidence, Unproved> {
        let now = self.env.now();
        let found = match self.found.take().filter(|found| proof::serves(found, claim, now)) {
            Some(found) => found,
            None => {
                let found = match claim {
                    Claim::NodeGone { .. } => self.node_gone(node).await,
                    Claim::OutOfService { .. } => self.out_of_service(node).await,
                    Claim::Fenced { proof, .. } => self.fenced(node, proof).await,
                    Claim::NeverScheduled | Claim::KubeletTerminated | Claim::PodsEnded { .. } => {
                        Err(Refusal::ClaimMismatch("it is not about a node").into())
                    }
                };
                self.unless_refuted(node, found)?
            }
        };
        Ok(self.found.insert(found))
    }

    async fn fenced(&mut self, node: &Arc<str>, proof: &Arc<str>) -> Result<NodeEvidence, Unproved> {
        if let Some((_, refusal)) = self.unconfirmed.as_ref().filter(|(of, _)| of == proof) {
            return Err(refusal.clone().into());
        }
        let found = self.judge.fenced(node, proof).await;
        if let Err(Unproved::Refused(refusal @ Refusal::PowerStateUnconfirmed(_))) = &found {
            self.unconfirmed = Some((Arc::clone(proof), refusal.clone()));
        }
        found
    }

    /// A sign that the kubelet runs refutes the first read: the quarantine starts anew.
    fn unless_refuted<T>(&self, node: &str, judged: Result<T, Unproved>) -> Result<T, Unproved> {
        if judged.as_ref().is_err_and(Unproved::refutes_witness) {
            self.cache.refuted(node);
        }
        judged
    }

    async fn node_gone(&self, node: &Arc<str>) -> Result<NodeEvidence, Unproved> {
        let quarantine = self.policy.quarantine;
        let first = {
            let guard = self.cache.read();
            proof::first_read(node, quarantine, &guard.view(), self.env.now())?
        };
        let look = look(self.connection, self.env, node).await.map_err(Unproved::Read)?;
        let guard = self.cache.read();
        Ok(proof::node_gone(node, &first, &look, quarantine, &guard.view(), self.env.now())?)
    }

    async fn out_of_service(&self, node: &Arc<str>) -> Result<NodeEvidence, Unproved> {
        let trusted = self.policy.trust_out_of_service_taint;
        if !trusted {
            return Err(Refusal::TaintNotTrusted.into());
        }
        let look = look(self.connection, self.env, node).await.map_err(Unproved::Read)?;
        let guard = self.cache.read();
        let view = guard.view();
        let ours = |value: &str| view.fences_of(node).any(|fence| *fence.name == *value);
        Ok(proof::asserted(node, &look, trusted, ours)?)
    }
}

#[cfg(test)]
mod tests;
