//! The judge of holders of volumes: whether one life of a node is over, or writes to one volume no more.
//!
//! Danger note: that a volume is detached is proof only where it was attached before, and where the storage really takes
//! the node's access away. The first stands in the Lease itself ([`crate::model::DETACH_LABEL`]), which only a compare-and-swap at
//! this version changes; the second an operator vouches for by naming the driver. External-attacher's finalizer keeps a
//! VolumeAttachment until the driver has revoked the access: so one that is being deleted counts as there.

use std::sync::Arc;

use super::super::evidence::{Barrier, EvidenceKind, VALID_FOR};
use super::super::volume::{Judged, Over, VolumeUpdate};
use super::super::witness::{incarnation, look};
use super::fenced::lacks;
use super::{NodeProof, Refusal, Verifier, is_ready};
use crate::api::{Incarnation, KindOfEvidence};
use crate::cache::page;
use crate::client::{ApiError, Call};
use crate::model::{Holder, Kind};
use crate::wire::{self, Decode, WireError};

impl Verifier<'_> {
    /// Whether a node writes no more to a volume that it took, and until when that is good.
    pub(in crate::authority) async fn writes_no_more(
        &self,
        update: &VolumeUpdate,
        holder: &Holder,
        by: &Over,
    ) -> Judged {
        let NodeProof { node: _, kind, expires } = match by {
            Over::NodeGone => {
                let gone = self.node_gone(&holder.node).await?;
                self.is_used_no_more(update, holder)?;
                gone
            }
            Over::Rebooted => self.rebooted(holder).await?,
            Over::Fenced { proof, newest: _ } => {
                // The proof is about the life that the node is in; so must the Lease be. Once that is read, a reboot
                // between cannot make it untrue: what was in that life has ended with it.
                let proved = self.judge().fenced(&holder.node, proof).await?;
                self.in_that_life(holder).await?;
                proved
            }
            Over::Detached => self.detached(update, holder).await?,
            Over::StorageFenced(proof) => self.storage_fenced(update, holder, proof).await?,
        };
        Ok((kind, expires))
    }

    /// Evidence StorageFenced: what an object says, looked up again. The fence must be in force now, cover the volume's
    /// driver, and be about the life in which it was taken. A node that is Ready is called off, not relieved.
    async fn storage_fenced(
        &self,
        update: &VolumeUpdate,
        holder: &Holder,
        proof: &Arc<str>,
    ) -> Result<NodeProof, Refusal> {
        let found = self.judge().evidence(proof).await?;
        found.said().stands().map_err(lacks)?;
        let spec = &found.spec;
        if spec.kind != KindOfEvidence::StorageFenced {
            return Err(Refusal::EvidenceInvalid("it is not about storage"));
        }
        if spec.node != taken_in(holder) || holder.boot_id.is_empty() {
            return Err(Refusal::EvidenceInvalid("the volume was taken in another incarnation of the node"));
        }
        let driver = self.driver_of(update).await?;
        if !spec.storage.iter().any(|storage| Some(&storage.driver) == driver.as_ref()) {
            return Err(Refusal::EvidenceInvalid("it covers no volumes of this driver"));
        }
        let read = look(self.connection, self.env, &holder.node).await.map_err(Refusal::Read)?.node;
        if read.is_some_and(|read| is_ready(&read)) {
            return Err(Refusal::NodeInService);
        }
        let asked_at = self.env.now();
        let shown =
            self.looker.all_off(&spec.node, &spec.samples).await.map_err(Refusal::PowerStateUnconfirmed)?;
        if shown != KindOfEvidence::StorageFenced {
            return Err(Refusal::EvidenceInvalid("its devices show something other than it says"));
        }
        let (volume, node) = (Arc::clone(&update.volume), Arc::clone(&holder.node));
        let how = Barrier::Network { proof: Arc::clone(proof) };
        let kind = EvidenceKind::StorageFenced { volume, node, how };
        Ok(NodeProof { node: Arc::clone(&holder.node), kind, expires: asked_at + VALID_FOR })
    }

    /// A kubelet that was heard until its Node went may run the pods that are bound to it.
    fn is_used_no_more(&self, update: &VolumeUpdate, holder: &Holder) -> Result<(), Refusal> {
        let guard = self.cache.read();
        let used = guard.view().is_used_on_missing(&update.volume, holder);
        if used { Err(Refusal::KubeletNotAsked) } else { Ok(()) }
    }

    async fn in_that_life(&self, holder: &Holder) -> Result<(), Refusal> {
        let look = look(self.connection, self.env, &holder.node).await.map_err(Refusal::Read)?;
        let read = look.node.ok_or(Refusal::EvidenceInvalid("the Node object is gone"))?;
        let taken_in = taken_in(holder);
        if incarnation(&holder.node, &read) == taken_in && !taken_in.boot_id.is_empty() {
            Ok(())
        } else {
            Err(Refusal::EvidenceInvalid("the volume was taken in another incarnation of the node"))
        }
    }

    /// Evidence StorageFenced: no VolumeAttachment is left, of a volume that had one when the doubt began.
    async fn detached(&self, update: &VolumeUpdate, holder: &Holder) -> Result<NodeProof, Refusal> {
        if !self.was_attached(update, holder) {
            return Err(Refusal::EvidenceInvalid("its Lease does not say that it was attached to the node"));
        }
        let driver =
            self.driver_of(update).await?.filter(|driver| self.policy.exclusive_backends.contains(driver));
        let driver = driver.ok_or(Refusal::EvidenceInvalid(
            "its driver is not among --exclusive-backends: a detached node may still write",
        ))?;
        let object: wire::CsiDriver = self
            .read(format!("/apis/storage.k8s.io/v1/csidrivers/{driver}"))
            .await?
            .ok_or(Refusal::EvidenceInvalid("there is no CSIDriver of its driver's name"))?;
        if object.spec.and_then(|spec| spec.attach_required) == Some(false) {
            return Err(Refusal::EvidenceInvalid(
                "its driver attaches nothing (attachRequired: false), so nothing can be detached",
            ));
        }
        let asked_at = self.env.now();
        if self.is_attached(update, holder).await? {
            return Err(Refusal::EvidenceInvalid("a VolumeAttachment of it still names the node"));
        }
        let (volume, node) = (Arc::clone(&update.volume), Arc::clone(&holder.node));
        let kind =
            EvidenceKind::StorageFenced { volume, node, how: Barrier::Detached { driver: driver.into() } };
        Ok(NodeProof { node: Arc::clone(&holder.node), kind, expires: asked_at + VALID_FOR })
    }

    /// As the Lease says at the version at which it will be written, or not at all.
    fn was_attached(&self, update: &VolumeUpdate, holder: &Holder) -> bool {
        let guard = self.cache.read();
        let lease = guard.view().volume_lease(&update.volume);
        lease.is_some_and(|lease| lease.rv == update.rv && lease.was_attached_to(holder))
    }

    /// The CSI driver of the volume, by quorum read; `None`: it has none.
    async fn driver_of(&self, update: &VolumeUpdate) -> Result<Option<String>, Refusal> {
        let path = format!("{}/{}", Kind::Volumes.path(), update.volume);
        let read: Option<wire::PersistentVolume> = self.read(path).await?;
        let read = read.ok_or(Refusal::EvidenceInvalid("there is no PersistentVolume of its name"))?;
        let uid = read.metadata.and_then(|meta| meta.uid);
        if uid.as_deref() != Some(&*update.uid.to_string()) {
            return Err(Refusal::EvidenceInvalid("another PersistentVolume has its name"));
        }
        let csi = read.spec.and_then(|spec| spec.source).and_then(|source| source.csi);
        Ok(csi.and_then(|csi| csi.driver))
    }

    /// Whether there is a VolumeAttachment of it for the node, in whatever state. One that cannot be read may be it.
    async fn is_attached(&self, update: &VolumeUpdate, holder: &Holder) -> Result<bool, Refusal> {
        let mut found = Ok(false);
        let mut each = |raw: wire::Raw| {
            let is_it = raw.decode::<wire::VolumeAttachment>().map(|read| {
                let spec = read.spec.unwrap_or_default();
                let source = spec.source.unwrap_or_default();
                let of_it = source.persistent_volume_name.as_deref() == Some(&*update.volume);
                of_it && spec.node_name.as_deref() == Some(&*holder.node)
            });
            match (&found, is_it) {
                (Ok(false), Ok(true)) => found = Ok(true),
                (Ok(_), Err(error)) => found = Err(error),
                (Ok(_), Ok(_)) | (Err(_), _) => {}
            }
        };
        let page = page(self.connection, self.env, Kind::Attachments.path().to_owned(), &mut each);
        let page = page.await.map_err(Refusal::Read)?;
        if page.resource_version().is_empty() || !page.continue_token().is_empty() {
            // Some other JSON, or not all of them.
            return Err(Refusal::Read(ApiError::Undecodable(WireError::BrokenOff)));
        }
        found.map_err(|error| Refusal::Read(ApiError::Undecodable(error)))
    }

    /// One object by quorum read; `None`: there is none.
    async fn read<T: Decode>(&self, path: String) -> Result<Option<T>, Refusal> {
        match self.connection.send(Call::get(path)).await {
            Ok(raw) => raw.decode().map(Some).map_err(|error| Refusal::Read(ApiError::Undecodable(error))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(Refusal::Read(error)),
        }
    }

    /// Evidence BootChanged: the same Node says that its machine has booted since.
    async fn rebooted(&self, holder: &Holder) -> Result<NodeProof, Refusal> {
        let look = look(self.connection, self.env, &holder.node).await.map_err(Refusal::Read)?;
        let read = look.node.ok_or(Refusal::EvidenceInvalid("the Node object is gone"))?;
        let now = incarnation(&holder.node, &read);
        if now.uid != holder.node_uid.to_string() {
            return Err(Refusal::EvidenceInvalid("another Node has that name"));
        }
        if now.boot_id.is_empty() || holder.boot_id.is_empty() || now.boot_id == *holder.boot_id {
            return Err(Refusal::EvidenceInvalid("the node has not booted since"));
        }
        let kind = EvidenceKind::BootChanged { node: Arc::clone(&holder.node) };
        Ok(NodeProof { node: Arc::clone(&holder.node), kind, expires: look.answered_at + VALID_FOR })
    }
}

/// The life in which a volume was taken.
fn taken_in(holder: &Holder) -> Incarnation {
    Incarnation {
        name: holder.node.to_string(),
        uid: holder.node_uid.to_string(),
        boot_id: holder.boot_id.to_string(),
    }
}
