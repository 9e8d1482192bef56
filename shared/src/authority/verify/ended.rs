//! Live reads for what node agents report: the Lease of the agent, at two times.

use std::sync::Arc;

use pod_safety_fence::watchdog;
use pod_safety_proof::{self as proof, AgentRead, Evidence, Force, Mark, PodVersion, Refusal};

use super::{Unproved, Verifier};
use crate::cache::Learns as _;
use crate::client::Call;

impl Verifier<'_> {
    /// Evidence from the agent of the pod's node. The first read only marks its round: what the agent reports there may be older
    /// than the kubelet's answer to the deletion.
    pub(super) async fn pods_ended(
        &self,
        force: &Force,
        node: &Arc<str>,
    ) -> Result<Evidence<PodVersion>, Unproved> {
        let namespace = self.policy.agent_reports.as_deref();
        let namespace = namespace.ok_or_else(|| nothing("--agent-reports-from is not set"))?;
        let version = self.fits(force)?;
        let read = self.read_agent(namespace, node).await?;
        let (marks, uid) = (self.cache.watchdogs(), &force.pod.uid);
        let mark = marks.mark(uid);
        let judged = {
            let guard = self.cache.read();
            proof::pods_ended(force, guard.view().pod(uid), mark.as_ref(), &read)
        };
        // A mark that serves stays: it becomes older, and so the agent's next look is later than it.
        if matches!(judged, Err(Refusal::AgentMustLookAgain))
            && !mark.is_some_and(|mark| mark.serves(&version, &read))
        {
            marks.set_mark(uid, Mark::of(version, &read));
        }
        Ok(judged?)
    }

    async fn read_agent(&self, namespace: &str, node: &str) -> Result<AgentRead, Unproved> {
        let asked_at = self.env.now();
        let raw = match self.connection.send(Call::get(watchdog::path(namespace, node)).whole()).await {
            Ok(raw) => raw,
            Err(error) if error.is_not_found() => return Err(nothing("it has no Lease").into()),
            Err(error) => return Err(Unproved::Read(error)),
        };
        let read = AgentRead::of(asked_at, &raw).map_err(Unproved::undecodable)?;
        Ok(read.ok_or_else(|| nothing("it has not looked at its pods"))?)
    }
}

fn nothing(why: &str) -> Refusal {
    Refusal::PodsNotEnded(why.to_owned())
}
