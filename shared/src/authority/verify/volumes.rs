//! Quorum reads for the judge of volumes: about their holders, and about their attachments.

use std::sync::Arc;

use pod_safety_fence::quorum_read::read_node_and_lease;
use pod_safety_proof::{
    self as proof, Claim, Detachment, Evidence, HolderFacts, LeaseVersion, Refusal, RevocationBasis,
};

use super::super::volume::VolumeUpdate;
use super::{Verifier, VerifyError};
use crate::cache::read_page;
use crate::client::Call;
use crate::model::{Holder, Kind};
use crate::wire::{self, Decode, WireError};

impl Verifier<'_> {
    /// Evidence, which has not expired yet, that a node no longer writes to a volume that it acquired.
    pub(in crate::authority) async fn verify_holder(
        &mut self,
        update: &VolumeUpdate,
        holder: &Holder,
        basis: &RevocationBasis,
    ) -> Result<Evidence<LeaseVersion>, VerifyError> {
        let evidence = self.verify_holder_claim(update, holder, basis).await?;
        VerifyError::check_not_late(evidence, self.env.now())
    }

    async fn verify_holder_claim(
        &mut self,
        update: &VolumeUpdate,
        holder: &Holder,
        basis: &RevocationBasis,
    ) -> Result<Evidence<LeaseVersion>, VerifyError> {
        let lease = update.lease.as_ref().ok_or(Refusal::EvidenceInvalid("there is no Lease of the volume"))?;
        let (volume, uid) = (Arc::clone(&update.volume), lease.uid.clone());
        let lease = LeaseVersion { volume, uid, rv: update.rv };
        let judged =
            |facts: &HolderFacts<'_>| proof::verify_volume(lease, holder, basis, facts).map_err(VerifyError::from);
        match basis {
            RevocationBasis::NodeGone => {
                let (cache, env, quarantine) = (self.cache, self.env, self.config.quarantine);
                let claim = Claim::NodeGone { node: Arc::clone(&holder.node) };
                let gone = self.verify_node(&holder.node, &claim).await?;
                // A kubelet that was active until its Node was deleted may still run the pods that are bound to it.
                let is_used = {
                    let (guard, now) = (cache.read(), env.now());
                    let ends = guard.view().removed_pods_terminate_at(&update.volume, holder);
                    guard.view().is_used_on_missing_node(&update.volume, holder)
                        || ends.is_some_and(|ends| now < ends + quarantine)
                };
                judged(&HolderFacts::Gone(gone, is_used))
            }
            RevocationBasis::Rebooted => {
                let live =
                    read_node_and_lease(self.connection, self.env, &holder.node).await.map_err(VerifyError::Read)?;
                judged(&HolderFacts::Rebooted(&live))
            }
            RevocationBasis::Evidence { proof, newest } => {
                let (node, proof) = (Arc::clone(&holder.node), Arc::clone(proof));
                let claim = Claim::Fenced { node, proof, newest: *newest };
                judged(&HolderFacts::Fenced(self.verify_node(&holder.node, &claim).await?))
            }
            RevocationBasis::Replaced(proof) => {
                let evidence = self.evidence_reader.read_evidence(proof).await?;
                let live =
                    read_node_and_lease(self.connection, self.env, &holder.node).await.map_err(VerifyError::Read)?;
                let minimum = {
                    let labels = live.node.as_ref().map(pod_safety_proof::NodeRead::labels);
                    let (guard, none) = (self.cache.read(), Default::default());
                    guard.view().minimum_evidence(labels.unwrap_or(&none))
                };
                judged(&HolderFacts::Replaced(&evidence.read, &live, minimum))
            }
            RevocationBasis::Detached => judged(&HolderFacts::Detached(&self.read_detachment(update, holder).await?)),
            RevocationBasis::Storage(proof) => {
                let evidence = self.evidence_reader.read_evidence(proof).await?;
                let read = &evidence.read;
                let driver = self.read_driver(update).await?;
                let live =
                    read_node_and_lease(self.connection, self.env, &holder.node).await.map_err(VerifyError::Read)?;
                proof::check_storage_evidence(read, holder, driver.as_deref(), &live)?;
                let check = self.evidence_reader.confirm_devices_off(&evidence).await?;
                judged(&HolderFacts::Storage(read, check, driver.as_deref(), &live))
            }
        }
    }

    /// Reads the attachment of the volume. It stops at the first missing fact, at which the judge refuses.
    async fn read_detachment(&self, update: &VolumeUpdate, holder: &Holder) -> Result<Detachment, VerifyError> {
        let mut read = Detachment { was_attached: self.was_attached(update, holder), ..Detachment::default() };
        if !read.was_attached {
            return Ok(read);
        }
        let driver = self.read_driver(update).await?;
        let vouched = driver.filter(|driver| self.config.exclusive_backends.contains(driver));
        let Some(driver) = vouched else { return Ok(read) };
        let path = format!("/apis/storage.k8s.io/v1/csidrivers/{driver}");
        let object: Option<wire::CsiDriver> = self.read(path).await?;
        let required = |object: wire::CsiDriver| object.spec.and_then(|spec| spec.attach_required);
        read.attaches = object.map(|object| required(object) != Some(false));
        read.exclusive_driver = Some(driver.into());
        if read.attaches == Some(true) {
            read.requested_at = self.env.now();
            read.is_attached = self.read_is_attached(update, holder).await?;
        }
        Ok(read)
    }

    /// Whether the Lease, at the version at which it will be written, records the attachment to the holder.
    fn was_attached(&self, update: &VolumeUpdate, holder: &Holder) -> bool {
        let guard = self.cache.read();
        let lease = guard.view().volume_lease(&update.volume);
        lease.is_some_and(|lease| lease.rv == update.rv && lease.was_attached_to_holder(holder))
    }

    /// The CSI driver of the volume, by quorum read; `None`: the volume has none.
    async fn read_driver(&self, update: &VolumeUpdate) -> Result<Option<String>, VerifyError> {
        let path = format!("{}/{}", Kind::Volumes.path(), update.volume);
        let read: Option<wire::PersistentVolume> = self.read(path).await?;
        let read = read.ok_or(Refusal::EvidenceInvalid("there is no PersistentVolume of its name"))?;
        let uid = read.metadata.and_then(|meta| meta.uid);
        if uid.as_deref() != Some(&*update.uid.to_string()) {
            return Err(Refusal::EvidenceInvalid("another PersistentVolume has its name").into());
        }
        let csi = read.spec.and_then(|spec| spec.source).and_then(|source| source.csi);
        Ok(csi.and_then(|csi| csi.driver))
    }

    /// Whether a VolumeAttachment of the volume names the node, in any state. One that cannot be decoded may be such a
    /// VolumeAttachment.
    async fn read_is_attached(&self, update: &VolumeUpdate, holder: &Holder) -> Result<bool, VerifyError> {
        let mut attached = Ok(false);
        let mut each = |raw: wire::Raw| {
            let is_it = raw.decode::<wire::VolumeAttachment>().map(|read| {
                let spec = read.spec.unwrap_or_default();
                let source = spec.source.unwrap_or_default();
                let of_it = source.persistent_volume_name.as_deref() == Some(&*update.volume);
                of_it && spec.node_name.as_deref() == Some(&*holder.node)
            });
            match (&attached, is_it) {
                (Ok(false), Ok(true)) => attached = Ok(true),
                (Ok(_), Err(error)) => attached = Err(error),
                (Ok(_), Ok(_)) | (Err(_), _) => {}
            }
        };
        let page = read_page(self.connection, self.env, Kind::Attachments.path().to_owned(), &mut each);
        let page = page.await.map_err(VerifyError::Read)?;
        if page.resource_version().is_empty() || !page.continue_token().is_empty() {
            // The answer is no complete list.
            return Err(VerifyError::undecodable(WireError::Truncated));
        }
        attached.map_err(VerifyError::undecodable)
    }

    /// Reads one object by quorum; `None`: it does not exist.
    async fn read<T: Decode>(&self, path: String) -> Result<Option<T>, VerifyError> {
        match self.connection.send(Call::get(path)).await {
            Ok(raw) => raw.decode().map(Some).map_err(VerifyError::undecodable),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(VerifyError::Read(error)),
        }
    }
}
