//! The judge of holders of volumes: whether one incarnation of a node has ended, or writes to one volume no more. Pure.
//!
//! Danger note: that a volume is detached is proof only where it was attached before, and where the storage really takes the
//! node's access away. The first stands in the Lease itself ([`pod_safety_model::DETACH_LABEL`]), which only a compare-and-swap at
//! this version changes; an operator vouches for the second by naming the driver.

use std::sync::Arc;

use pod_safety_model::{FenceEvidenceKind, Grade, Holder, Incarnation, Mono};

use crate::Refusal;
use crate::claim::ReleaseBasis;
use crate::evidence::{Barrier, Evidence, EvidenceKind, LeaseVersion, VALID_FOR};
use crate::facts::{DeviceCheck, EvidenceRead, NodeRead, QuorumRead};
use crate::holds::EvidenceDefect;
use crate::judge::{NodeEvidence, fencing_kind};

/// What was read about the holder of a volume, by the way in which it was fenced.
#[derive(Debug)]
pub enum HolderFacts<'a> {
    /// For [`ReleaseBasis::Evidence`]: what was found about the node.
    Fenced(&'a NodeEvidence),
    /// For [`ReleaseBasis::NodeGone`]: what was found, and whether a pod that its kubelet may run can still use the volume.
    Gone(&'a NodeEvidence, /* is_used */ bool),
    /// For [`ReleaseBasis::Rebooted`].
    Rebooted(&'a QuorumRead),
    /// For [`ReleaseBasis::Replaced`]: the evidence, the node, and which evidence its FencePolicy takes.
    Replaced(&'a EvidenceRead, &'a QuorumRead, Grade),
    /// For [`ReleaseBasis::Detached`].
    Detached(&'a Detachment),
    /// For [`ReleaseBasis::Storage`]: the evidence, what its devices report now, the CSI driver of the volume, and the node.
    Storage(&'a EvidenceRead, DeviceCheck, Option<&'a str>, &'a QuorumRead),
}

/// What was read about the attachment of a volume. External-attacher's finalizer keeps a VolumeAttachment until the driver has
/// revoked the access: one that is being deleted counts as there.
#[derive(Clone, Debug, Default)]
pub struct Detachment {
    /// The Lease, at the version that will be written, says that it was attached to the node when the doubt began.
    pub was_attached: bool,
    /// Its CSI driver, if an operator vouches that its storage takes no writes from a node without an attachment.
    pub exclusive_driver: Option<Arc<str>>,
    /// Its driver attaches at all; `None`: there is no CSIDriver of the name.
    pub attaches: Option<bool>,
    /// A VolumeAttachment of it names the node.
    pub is_attached: bool,
    /// When the attachments were read.
    pub requested_at: Mono,
}

/// Evidence that the holder of a volume writes to it no more, for the break of this version of its Lease.
///
/// # Errors
/// What contradicts it.
pub fn verify_volume(
    lease: LeaseVersion,
    holder: &Holder,
    basis: &ReleaseBasis,
    facts: &HolderFacts<'_>,
) -> Result<Evidence<LeaseVersion>, Refusal> {
    let taken_in = taken_in(holder);
    let of_holder = |evidence: &NodeEvidence| *evidence.subject().name == *holder.node;
    let (kind, expires) = match (basis, facts) {
        (ReleaseBasis::Evidence { .. }, HolderFacts::Fenced(found))
            if of_holder(found) && found.kind().is_fencing() =>
        {
            if *found.subject() != taken_in || holder.boot_id.is_unknown() {
                return Err(Refusal::EvidenceInvalid(
                    "the volume was taken in another incarnation of the node",
                ));
            }
            (found.kind().clone(), found.expires())
        }
        (ReleaseBasis::NodeGone, HolderFacts::Gone(_, true)) => return Err(Refusal::KubeletNotAsked),
        (ReleaseBasis::NodeGone, HolderFacts::Gone(found, false))
            if of_holder(found) && matches!(found.kind(), EvidenceKind::NodeGone { .. }) =>
        {
            (found.kind().clone(), found.expires())
        }
        (ReleaseBasis::Rebooted, HolderFacts::Rebooted(look)) => rebooted(holder, look)?,
        (ReleaseBasis::Replaced(_), HolderFacts::Replaced(evidence, look, wanted)) => {
            replaced(holder, evidence, look, *wanted)?
        }
        (ReleaseBasis::Detached, HolderFacts::Detached(read)) => detached(&lease, holder, read)?,
        (ReleaseBasis::Storage(_), HolderFacts::Storage(evidence, shown, driver, look)) => {
            storage_fenced(&lease, holder, evidence, *shown, *driver, look)?
        }
        _ => return Err(Refusal::EvidenceInvalid("what was read answers another claim")),
    };
    Ok(Evidence::new(kind, lease, expires))
}

/// The incarnation in which a volume was taken.
fn taken_in(holder: &Holder) -> Incarnation {
    let (name, uid, boot_id) =
        (holder.node.to_string(), holder.node_uid.to_string(), holder.boot_id.to_string());
    Incarnation { name, uid, boot_id }
}

/// The same Node reports that its machine has booted since.
fn rebooted(holder: &Holder, live: &QuorumRead) -> Result<(EvidenceKind, Mono), Refusal> {
    let read = live.node.as_ref().map(NodeRead::incarnation);
    let now = read.ok_or(Refusal::EvidenceInvalid("the Node object is gone"))?;
    if now.uid != holder.node_uid.to_string() {
        return Err(Refusal::EvidenceInvalid("another Node has that name"));
    }
    if !holder.boot_id.is_known_different(now.boot()) {
        return Err(Refusal::EvidenceInvalid("the node has not booted since"));
    }
    Ok((EvidenceKind::BootChanged { node: Arc::clone(&holder.node) }, live.answered_at + VALID_FOR))
}

/// Another life of that name runs, so the boot that took the volume cannot come back: what ended it stays true, and no device is
/// asked again. Who owned the name before is not who has it now, so the Lease of the kubelet says nothing.
fn replaced(
    holder: &Holder,
    evidence: &EvidenceRead,
    live: &QuorumRead,
    minimum: Grade,
) -> Result<(EvidenceKind, Mono), Refusal> {
    let invalid = |why| Err(Refusal::EvidenceInvalid(why));
    evidence.fields().check_ends_incarnation()?;
    if *evidence.node() != taken_in(holder) {
        return invalid("the volume was taken in another incarnation of the node");
    }
    if evidence.kind().grade() < minimum {
        return Err(EvidenceDefect::TooWeak.into());
    }
    let now = live.node.as_ref().map(NodeRead::incarnation);
    if now.is_none_or(|now| {
        now.uid == holder.node_uid.to_string() || !holder.boot_id.is_known_different(now.boot())
    }) {
        return invalid("no other Node with another boot ID has that name");
    }
    Ok((fencing_kind(evidence)?, live.answered_at + VALID_FOR))
}

/// No VolumeAttachment is left, of a volume that had one when the doubt began.
fn detached(
    lease: &LeaseVersion,
    holder: &Holder,
    read: &Detachment,
) -> Result<(EvidenceKind, Mono), Refusal> {
    let invalid = |why| Err(Refusal::EvidenceInvalid(why));
    if !read.was_attached {
        return invalid("its Lease does not say that it was attached to the node");
    }
    let Some(driver) = &read.exclusive_driver else {
        return invalid("its driver is not among --exclusive-backends: a detached node may still write");
    };
    match read.attaches {
        None => return invalid("there is no CSIDriver of its driver's name"),
        Some(false) => {
            return invalid(
                "its driver attaches nothing (attachRequired: false), so nothing can be detached",
            );
        }
        Some(true) => {}
    }
    if read.is_attached {
        return invalid("a VolumeAttachment of it still names the node");
    }
    let how = Barrier::Detached { driver: Arc::clone(driver) };
    let (volume, node) = (Arc::clone(&lease.volume), Arc::clone(&holder.node));
    Ok((EvidenceKind::StorageFenced { volume, node, how }, read.requested_at + VALID_FOR))
}

/// Whether evidence about storage covers this volume, besides what its devices report: it must be in force, about the incarnation
/// in which the volume was taken, and about its driver. A node that is Ready uses its volumes.
///
/// # Errors
/// What contradicts it.
pub fn check_storage_evidence(
    evidence: &EvidenceRead,
    holder: &Holder,
    driver: Option<&str>,
    live: &QuorumRead,
) -> Result<(), Refusal> {
    let invalid = |why| Err(Refusal::EvidenceInvalid(why));
    evidence.fields().check_valid()?;
    if evidence.kind() != FenceEvidenceKind::StorageFenced {
        return invalid("it is not about storage");
    }
    if *evidence.node() != taken_in(holder) || holder.boot_id.is_unknown() {
        return invalid("the volume was taken in another incarnation of the node");
    }
    if !evidence.spec.storage.iter().any(|storage| Some(&*storage.driver) == driver) {
        return invalid("it covers no volumes of this driver");
    }
    if live.node.as_ref().is_some_and(NodeRead::is_ready) {
        return Err(Refusal::NodeInService);
    }
    Ok(())
}

fn storage_fenced(
    lease: &LeaseVersion,
    holder: &Holder,
    evidence: &EvidenceRead,
    check: DeviceCheck,
    driver: Option<&str>,
    live: &QuorumRead,
) -> Result<(EvidenceKind, Mono), Refusal> {
    check_storage_evidence(evidence, holder, driver, live)?;
    if check.kind != FenceEvidenceKind::StorageFenced {
        return Err(Refusal::EvidenceInvalid("its devices show something other than it says"));
    }
    let how = Barrier::Network { proof: evidence.name.as_str().into() };
    let (volume, node) = (Arc::clone(&lease.volume), Arc::clone(&holder.node));
    Ok((EvidenceKind::StorageFenced { volume, node, how }, check.requested_at + VALID_FOR))
}
