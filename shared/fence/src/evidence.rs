//! Live reads for evidence of fencing: what a FenceEvidence says, looked up again.

use std::sync::Arc;

use pod_safety_proof::{self as proof, EvidenceRead, Lack, MINIMUM_BOOT, NodeEvidence, Refusal, Shown};

use crate::api::{
    Corroborated, FenceEvidenceSpec, FenceEvidenceStatus, Grade, Incarnation, KindOfEvidence, Sample,
    group_path,
};
use crate::cache::Lookup;
use crate::client::Call;
use crate::looker::Looker;
use crate::outcome::Unproved;
use crate::wire;
use crate::witness::look;

/// Asks whether evidence holds now: for a release, for a volume, and for the taint by which others release.
#[derive(Clone, Copy)]
pub struct Judge<'a> {
    looker: Looker<'a>,
}

/// A FenceEvidence as a quorum read found it, and the status checks and second facts that it names.
pub struct Found {
    /// What the kernel judges.
    pub read: EvidenceRead,
    pub(crate) samples: Vec<Sample>,
    pub(crate) corroborated: Vec<Corroborated>,
}

impl<'a> Judge<'a> {
    /// One that looks at devices by `looker`, and reads by its connection.
    #[must_use]
    pub const fn new(looker: Looker<'a>) -> Self {
        Self { looker }
    }
}

impl Judge<'_> {
    /// Evidence of fencing. First the confirmations of people, which need no device: one that hangs takes its whole time. Then
    /// the evidence that is named, and last any other about this incarnation.
    pub async fn fenced(&self, node: &Arc<str>, proof: &Arc<str>) -> Result<NodeEvidence, Unproved> {
        let (confirmed, others): (Vec<_>, Vec<_>) =
            self.known(node).into_iter().partition(|(_, confirmed)| *confirmed);
        for (confirmation, _) in confirmed {
            if let Ok(proved) = self.fenced_by(node, &confirmation).await {
                return Ok(proved);
            }
        }
        let unproved = match self.fenced_by(node, proof).await {
            Err(
                unproved @ (Unproved::Read(_)
                | Unproved::Refused(
                    Refusal::EvidenceInvalid(_) | Refusal::PowerStateUnconfirmed(_),
                )),
            ) => unproved,
            judged => return judged,
        };
        for (other, _) in others.iter().filter(|(other, _)| other != proof) {
            if let Ok(proved) = self.fenced_by(node, other).await {
                return Ok(proved);
            }
        }
        Err(unproved)
    }

    /// The evidence about this incarnation that holds by the cache, and whether it is a person's confirmation.
    fn known(&self, node: &str) -> Vec<(Arc<str>, bool)> {
        let (guard, now) = (self.looker.reader.cache.read(), self.looker.env.now());
        let view = guard.view();
        let Lookup::Known(node) = view.node(node) else { return Vec::new() };
        let all = view.proofs_that_hold(node, now);
        all.map(|proof| (Arc::clone(&proof.name), proof.spec.kind == KindOfEvidence::Asserted)).collect()
    }

    /// The devices first, and then the node: a report of the kubelet while they reported off contradicts them.
    async fn fenced_by(&self, node: &Arc<str>, proof: &Arc<str>) -> Result<NodeEvidence, Unproved> {
        let found = self.evidence(proof).await?;
        let read = &found.read;
        read.said().holds().map_err(Refusal::from)?;
        if read.node().name != **node {
            return Err(Refusal::from(Lack::OtherNode).into());
        }
        let shown = if read.kind() == KindOfEvidence::Asserted || found.samples.is_empty() {
            None
        } else {
            Some(self.shown(&found).await?)
        };
        let look =
            look(self.looker.reader.connection, self.looker.env, node).await.map_err(Unproved::Read)?;
        let guard = self.looker.reader.cache.read();
        let view = guard.view();
        let wanted = look.node.as_ref().map_or(Grade::Verified, |node| view.minimum_evidence(node.labels()));
        Ok(proof::fenced(read, shown, &look, wanted, &view)?)
    }

    /// What the devices of the evidence report now, if its second facts bear that out.
    pub async fn shown(&self, found: &Found) -> Result<Shown, Unproved> {
        let Found { read, samples, corroborated } = found;
        let shown = self.looker.all_off(read.node(), samples, corroborated).await;
        let (kind, asked_at) = shown.map_err(Refusal::PowerStateUnconfirmed)?;
        let age = self.looker.env.now().since(asked_at);
        if age >= MINIMUM_BOOT {
            // Its evidence would expire before the act, each time, and no Event would say why.
            let (age, boot) = (age.as_secs(), MINIMUM_BOOT.as_secs());
            let late = format!(
                "the answer to the status check was {age} s old, and a machine can boot within {boot} s"
            );
            return Err(Refusal::PowerStateUnconfirmed(late).into());
        }
        Ok(Shown { kind, asked_at })
    }

    /// Whether this evidence is about this incarnation, and neither anything in it nor the node's policy contradicts it,
    /// whatever the node does.
    pub async fn still_holds(&self, proof: &str, node: &Incarnation) -> Result<bool, Unproved> {
        let Found { read, .. } = self.evidence(proof).await?;
        let enough =
            read.kind().grade() >= self.looker.reader.cache.read().view().minimum_evidence_of(&node.name);
        Ok(enough && read.said().holds().is_ok() && read.node() == node)
    }

    /// Evidence by quorum read.
    pub async fn evidence(&self, proof: &str) -> Result<Found, Unproved> {
        let path = group_path(&format!("fenceevidences/{proof}"));
        let raw = self.looker.reader.connection.send(Call::get(path)).await.map_err(Unproved::Read)?;
        let read =
            EvidenceRead::of(proof, &raw, self.looker.env.clock.wall()).map_err(Unproved::undecodable)?;
        let whole: wire::Custom<FenceEvidenceSpec, FenceEvidenceStatus> =
            raw.decode().map_err(Unproved::undecodable)?;
        Ok(Found { read, samples: whole.spec.samples, corroborated: whole.spec.corroborated })
    }
}
