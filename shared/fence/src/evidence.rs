//! Live reads for evidence of fencing: a FenceEvidence is read again, and its devices are checked again.

use std::sync::Arc;

use pod_safety_proof::{self as proof, DeviceCheck, EvidenceDefect, EvidenceRead, MINIMUM_BOOT, NodeEvidence, Refusal};

use crate::api::{
    Corroborated, FenceEvidenceKind, FenceEvidenceSpec, FenceEvidenceStatus, Grade, Incarnation, Sample, group_path,
};
use crate::cache::Lookup;
use crate::client::Call;
use crate::outcome::VerifyError;
use crate::quorum_read::read_node_and_lease;
use crate::status_checker::StatusChecker;
use crate::wire;

/// Verifies that evidence holds now: for a force delete, for a volume, and for the taint, on which other controllers
/// act.
#[derive(Clone, Copy)]
pub struct EvidenceReader<'a> {
    checker: StatusChecker<'a>,
}

/// A FenceEvidence as a quorum read returned it, with the status checks and second facts that it names.
pub struct StoredEvidence {
    /// The part that the kernel verifies.
    pub read: EvidenceRead,
    pub(crate) samples: Vec<Sample>,
    pub(crate) corroborated: Vec<Corroborated>,
}

impl<'a> EvidenceReader<'a> {
    /// A reader that checks devices by `checker`, and reads by its connection.
    #[must_use]
    pub const fn new(checker: StatusChecker<'a>) -> Self {
        Self { checker }
    }
}

impl EvidenceReader<'_> {
    /// Verifies evidence of fencing. First the confirmations of operators, which need no device: a device that hangs
    /// takes its whole timeout. Then the evidence that is named, and last any other about this incarnation.
    pub async fn verify_fenced_node(&self, node: &Arc<str>, evidence: &Arc<str>) -> Result<NodeEvidence, VerifyError> {
        let (confirmed, others): (Vec<_>, Vec<_>) =
            self.list_candidates(node).into_iter().partition(|(_, confirmed)| *confirmed);
        for (confirmation, _) in confirmed {
            if let Ok(proved) = self.verify_evidence(node, &confirmation).await {
                return Ok(proved);
            }
        }
        let error = match self.verify_evidence(node, evidence).await {
            Err(
                error @ (VerifyError::Read(_)
                | VerifyError::Refused(Refusal::EvidenceInvalid(_) | Refusal::PowerStateUnconfirmed(_))),
            ) => error,
            result => return result,
        };
        for (other, _) in others.iter().filter(|(other, _)| other != evidence) {
            if let Ok(proved) = self.verify_evidence(node, other).await {
                return Ok(proved);
            }
        }
        Err(error)
    }

    /// The evidence about this incarnation that holds by the cache, and whether it is an operator's confirmation.
    fn list_candidates(&self, node: &str) -> Vec<(Arc<str>, bool)> {
        let (guard, now) = (self.checker.reader.cache.read(), self.checker.env.now());
        let view = guard.view();
        let Lookup::Known(node) = view.node(node) else { return Vec::new() };
        let all = view.valid_evidence(node, now);
        all.map(|proof| (Arc::clone(&proof.name), proof.spec.kind == FenceEvidenceKind::OperatorConfirmed)).collect()
    }

    /// Checks the devices first, and then reads the node: a report of the kubelet while they reported off contradicts
    /// them.
    async fn verify_evidence(&self, node: &Arc<str>, evidence: &Arc<str>) -> Result<NodeEvidence, VerifyError> {
        let stored = self.read_evidence(evidence).await?;
        let read = &stored.read;
        read.fields().check_ends_incarnation().map_err(Refusal::from)?;
        if read.node().name != **node {
            return Err(Refusal::from(EvidenceDefect::OtherNode).into());
        }
        let checked = if read.kind() == FenceEvidenceKind::OperatorConfirmed || stored.samples.is_empty() {
            None
        } else {
            Some(self.confirm_devices_off(&stored).await?)
        };
        let current = read_node_and_lease(self.checker.reader.connection, self.checker.env, node)
            .await
            .map_err(VerifyError::Read)?;
        let guard = self.checker.reader.cache.read();
        let view = guard.view();
        let minimum = current.node.as_ref().map_or(Grade::Verified, |node| view.minimum_evidence(node.labels()));
        Ok(proof::verify_fenced(read, checked, &current, minimum, &view)?)
    }

    /// Checks the devices of the evidence now, and its second facts.
    pub async fn confirm_devices_off(&self, stored: &StoredEvidence) -> Result<DeviceCheck, VerifyError> {
        let StoredEvidence { read, samples, corroborated } = stored;
        let checked = self.checker.confirm_all_off(read.node(), samples, corroborated).await;
        let (kind, requested_at) = checked.map_err(Refusal::PowerStateUnconfirmed)?;
        let age = self.checker.env.now().since(requested_at);
        if age >= MINIMUM_BOOT {
            // Otherwise the evidence would expire before each force delete, and no Event would give the reason.
            let (age, boot) = (age.as_secs(), MINIMUM_BOOT.as_secs());
            let late =
                format!("the answer to the status check was {age} s old, and a machine can boot within {boot} s");
            return Err(Refusal::PowerStateUnconfirmed(late).into());
        }
        Ok(DeviceCheck { kind, requested_at })
    }

    /// Whether this evidence is about this incarnation, and neither its own fields nor the minimum grade of the
    /// node's policy exclude it. Whether the node reports is not read.
    pub async fn is_not_withdrawn(&self, evidence: &str, node: &Incarnation) -> Result<bool, VerifyError> {
        let StoredEvidence { read, .. } = self.read_evidence(evidence).await?;
        let enough =
            read.kind().grade() >= self.checker.reader.cache.read().view().minimum_evidence_of_node(&node.name);
        Ok(enough && read.fields().check_ends_incarnation().is_ok() && read.node() == node)
    }

    /// Reads evidence by a quorum read.
    pub async fn read_evidence(&self, evidence: &str) -> Result<StoredEvidence, VerifyError> {
        let path = group_path(&format!("fenceevidences/{evidence}"));
        let raw = self.checker.reader.connection.send(Call::get(path)).await.map_err(VerifyError::Read)?;
        let read =
            EvidenceRead::decode(evidence, &raw, self.checker.env.clock.wall()).map_err(VerifyError::undecodable)?;
        let whole: wire::Custom<FenceEvidenceSpec, FenceEvidenceStatus> =
            raw.decode().map_err(VerifyError::undecodable)?;
        Ok(StoredEvidence { read, samples: whole.spec.samples, corroborated: whole.spec.corroborated })
    }
}
