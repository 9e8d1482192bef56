//! Quorum reads for reports of node agents: the agent's Lease, read at two times.

use std::sync::Arc;

use pod_safety_fence::watchdog;
use pod_safety_proof::{self as proof, AgentRead, Evidence, ForceDeleteRequest, Mark, PodVersion, Refusal};

use super::{Verifier, VerifyError};
use crate::cache::CacheWriter as _;
use crate::client::Call;

impl Verifier<'_> {
    /// Evidence from the agent on the pod's node. The first read only marks the agent's round: the agent's report may be
    /// older than the kubelet's observation of the deletion.
    pub(super) async fn verify_pods_ended(
        &self,
        force: &ForceDeleteRequest,
        node: &Arc<str>,
    ) -> Result<Evidence<PodVersion>, VerifyError> {
        let namespace = self.config.agent_reports.as_deref();
        let namespace = namespace.ok_or_else(|| not_ended("--agent-reports-from is not set"))?;
        let version = self.check_claim(force)?;
        let read = self.read_agent(namespace, node).await?;
        let (marks, uid) = (self.cache.watchdogs(), &force.pod.uid);
        let mark = marks.mark(uid);
        let judged = {
            let guard = self.cache.read();
            proof::verify_pods_ended(force, guard.view().pod(uid), mark.as_ref(), &read)
        };
        // A mark that matches stays, because only a mark that gets older makes the agent's next check later than it.
        if matches!(judged, Err(Refusal::AgentMustLookAgain)) && !mark.is_some_and(|mark| mark.matches(&version, &read))
        {
            marks.set_mark(uid, Mark::new(version, &read));
        }
        Ok(judged?)
    }

    async fn read_agent(&self, namespace: &str, node: &str) -> Result<AgentRead, VerifyError> {
        let sent_at = self.env.now();
        let raw = match self.connection.send(Call::get(watchdog::lease_path(namespace, node)).all_fields()).await {
            Ok(raw) => raw,
            Err(error) if error.is_not_found() => return Err(not_ended("it has no Lease").into()),
            Err(error) => return Err(VerifyError::Read(error)),
        };
        let read = AgentRead::decode(sent_at, &raw).map_err(VerifyError::undecodable)?;
        Ok(read.ok_or_else(|| not_ended("it has not looked at its pods"))?)
    }
}

fn not_ended(why: &str) -> Refusal {
    Refusal::PodsNotEnded(why.to_owned())
}
