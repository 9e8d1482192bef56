//! Live reads for the judge of volumes: about their holders, and about what attaches them.

use std::sync::Arc;

use pod_safety_fence::witness::look;
use pod_safety_proof::{
    self as proof, Claim, Detachment, Evidence, FencedBy, HolderFacts, LeaseVersion, Refusal,
};

use super::super::volume::VolumeUpdate;
use super::{Unproved, Verifier};
use crate::cache::page;
use crate::client::Call;
use crate::model::{Holder, Kind};
use crate::wire::{self, Decode, WireError};

impl Verifier<'_> {
    /// Evidence that a node writes no more to a volume that it took, which is not over yet.
    pub(in crate::authority) async fn writes_no_more(
        &mut self,
        update: &VolumeUpdate,
        holder: &Holder,
        by: &FencedBy,
    ) -> Result<Evidence<LeaseVersion>, Unproved> {
        let judged = self.judge_holder(update, holder, by).await?;
        Unproved::unless_late(judged, self.env.now())
    }

    async fn judge_holder(
        &mut self,
        update: &VolumeUpdate,
        holder: &Holder,
        by: &FencedBy,
    ) -> Result<Evidence<LeaseVersion>, Unproved> {
        let lease =
            update.lease.as_ref().ok_or(Refusal::EvidenceInvalid("there is no Lease of the volume"))?;
        let (volume, uid) = (Arc::clone(&update.volume), lease.uid.clone());
        let lease = LeaseVersion { volume, uid, rv: update.rv };
        let judged =
            |facts: &HolderFacts<'_>| proof::volume(lease, holder, by, facts).map_err(Unproved::from);
        match by {
            FencedBy::NodeGone => {
                let (cache, env, quarantine) = (self.cache, self.env, self.policy.quarantine);
                let claim = Claim::NodeGone { node: Arc::clone(&holder.node) };
                let gone = self.of_node(&holder.node, &claim).await?;
                // A kubelet that was active until its Node went may run the pods that are bound to it.
                let is_used = {
                    let (guard, now) = (cache.read(), env.now());
                    let ends = guard.view().removed_pods_end_on_missing(&update.volume, holder);
                    guard.view().is_used_on_missing(&update.volume, holder)
                        || ends.is_some_and(|ends| now < ends + quarantine)
                };
                judged(&HolderFacts::Gone(gone, is_used))
            }
            FencedBy::Rebooted => {
                let look = look(self.connection, self.env, &holder.node).await.map_err(Unproved::Read)?;
                judged(&HolderFacts::Rebooted(&look))
            }
            FencedBy::Evidence { proof, newest } => {
                let (node, proof) = (Arc::clone(&holder.node), Arc::clone(proof));
                let claim = Claim::Fenced { node, proof, newest: *newest };
                judged(&HolderFacts::Fenced(self.of_node(&holder.node, &claim).await?))
            }
            FencedBy::Replaced(proof) => {
                let found = self.judge.evidence(proof).await?;
                let look = look(self.connection, self.env, &holder.node).await.map_err(Unproved::Read)?;
                let wanted = {
                    let labels = look.node.as_ref().map(pod_safety_proof::NodeRead::labels);
                    let (guard, none) = (self.cache.read(), Default::default());
                    guard.view().minimum_evidence(labels.unwrap_or(&none))
                };
                judged(&HolderFacts::Replaced(&found.read, &look, wanted))
            }
            FencedBy::Detached => judged(&HolderFacts::Detached(&self.detachment(update, holder).await?)),
            FencedBy::Storage(proof) => {
                let found = self.judge.evidence(proof).await?;
                let read = &found.read;
                let driver = self.driver_of(update).await?;
                let look = look(self.connection, self.env, &holder.node).await.map_err(Unproved::Read)?;
                proof::covers(read, holder, driver.as_deref(), &look)?;
                let shown = self.judge.shown(&found).await?;
                judged(&HolderFacts::Storage(read, shown, driver.as_deref(), &look))
            }
        }
    }

    /// What attaches the volume, as far as it must be known: the judge refuses at the first thing that is missing.
    async fn detachment(&self, update: &VolumeUpdate, holder: &Holder) -> Result<Detachment, Unproved> {
        let mut read =
            Detachment { was_attached: self.was_attached(update, holder), ..Detachment::default() };
        if !read.was_attached {
            return Ok(read);
        }
        let driver = self.driver_of(update).await?;
        let vouched = driver.filter(|driver| self.policy.exclusive_backends.contains(driver));
        let Some(driver) = vouched else { return Ok(read) };
        let path = format!("/apis/storage.k8s.io/v1/csidrivers/{driver}");
        let object: Option<wire::CsiDriver> = self.read(path).await?;
        let required = |object: wire::CsiDriver| object.spec.and_then(|spec| spec.attach_required);
        read.attaches = object.map(|object| required(object) != Some(false));
        read.exclusive_driver = Some(driver.into());
        if read.attaches == Some(true) {
            read.asked_at = self.env.now();
            read.is_attached = self.is_attached(update, holder).await?;
        }
        Ok(read)
    }

    /// As the Lease says at the version at which it will be written, or not at all.
    fn was_attached(&self, update: &VolumeUpdate, holder: &Holder) -> bool {
        let guard = self.cache.read();
        let lease = guard.view().volume_lease(&update.volume);
        lease.is_some_and(|lease| lease.rv == update.rv && lease.was_attached_to(holder))
    }

    /// The CSI driver of the volume, by quorum read; `None`: it has none.
    async fn driver_of(&self, update: &VolumeUpdate) -> Result<Option<String>, Unproved> {
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

    /// Whether there is a VolumeAttachment of it for the node, in whatever state. One that cannot be read may be it.
    async fn is_attached(&self, update: &VolumeUpdate, holder: &Holder) -> Result<bool, Unproved> {
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
        let page = page.await.map_err(Unproved::Read)?;
        if page.resource_version().is_empty() || !page.continue_token().is_empty() {
            // Some other JSON, or not all of them.
            return Err(Unproved::undecodable(WireError::BrokenOff));
        }
        found.map_err(Unproved::undecodable)
    }

    /// One object by quorum read; `None`: there is none.
    async fn read<T: Decode>(&self, path: String) -> Result<Option<T>, Unproved> {
        match self.connection.send(Call::get(path)).await {
            Ok(raw) => raw.decode().map(Some).map_err(Unproved::undecodable),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(Unproved::Read(error)),
        }
    }
}
