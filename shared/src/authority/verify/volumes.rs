//! The judge of holders of volumes: whether one life of a node is over.

use std::sync::Arc;

use super::super::evidence::{EvidenceKind, VALID_FOR};
use super::super::volume::{Judged, Over};
use super::super::witness::{incarnation, look};
use super::{NodeProof, Refusal, Verifier};
use crate::api::Incarnation;
use crate::model::Holder;

impl Verifier<'_> {
    /// Whether the life in which a node took a volume is over, and until when that is good.
    pub(in crate::authority) async fn life_is_over(&self, holder: &Holder, by: &Over) -> Judged {
        let NodeProof { kind, expires } = match by {
            Over::NodeGone => self.node_gone(&holder.node).await?,
            Over::Rebooted => self.rebooted(holder).await?,
            Over::Fenced(proof) => {
                // The proof is about the life that the node is in; so must the Lease be. Once that is read, a reboot
                // between cannot make it untrue: what was in that life has ended with it.
                let proved = self.fenced(&holder.node, proof).await?;
                self.in_that_life(holder).await?;
                proved
            }
        };
        Ok((kind, expires))
    }

    async fn in_that_life(&self, holder: &Holder) -> Result<(), Refusal> {
        let look = look(self.connection, self.env, &holder.node).await.map_err(Refusal::Read)?;
        let read = look.node.ok_or(Refusal::ProofDoesNotHold("the Node object is gone"))?;
        let taken_in = Incarnation {
            name: holder.node.to_string(),
            uid: holder.node_uid.to_string(),
            boot_id: holder.boot_id.to_string(),
        };
        if incarnation(&holder.node, &read) == taken_in && !taken_in.boot_id.is_empty() {
            Ok(())
        } else {
            Err(Refusal::ProofDoesNotHold("the volume was taken in another life of the node"))
        }
    }

    /// Evidence BootChanged: the same Node says that its machine has booted since.
    async fn rebooted(&self, holder: &Holder) -> Result<NodeProof, Refusal> {
        let look = look(self.connection, self.env, &holder.node).await.map_err(Refusal::Read)?;
        let read = look.node.ok_or(Refusal::ProofDoesNotHold("the Node object is gone"))?;
        let now = incarnation(&holder.node, &read);
        if now.uid != holder.node_uid.to_string() {
            return Err(Refusal::ProofDoesNotHold("another Node has that name"));
        }
        if now.boot_id.is_empty() || holder.boot_id.is_empty() || now.boot_id == *holder.boot_id {
            return Err(Refusal::ProofDoesNotHold("the node has not booted since"));
        }
        let kind = EvidenceKind::BootChanged { node: Arc::clone(&holder.node) };
        Ok(NodeProof { kind, expires: look.answered_at + VALID_FOR })
    }
}
