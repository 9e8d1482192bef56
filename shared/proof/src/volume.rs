//! The judge of holders of volumes: whether one incarnation of a node has ended, or no longer writes to one volume. It is pure.
//!
//! Danger note: a missing VolumeAttachment is proof only if the volume was attached before, and if detaching really revokes
//! the node's access to the storage. The Lease itself records the first ([`pod_safety_model::DETACH_LABEL`]), and only a
//! compare-and-swap at this version changes it. An operator vouches for the second by naming the driver.

use std::sync::Arc;

use pod_safety_model::{FenceEvidenceKind, Grade, Holder, Incarnation, Mono};

use crate::Refusal;
use crate::claim::RevocationBasis;
use crate::evidence::{Barrier, Evidence, EvidenceKind, LeaseVersion, VALID_FOR};
use crate::facts::{DeviceCheck, EvidenceRead, NodeRead, QuorumRead};
use crate::holds::EvidenceDefect;
use crate::judge::{NodeEvidence, fencing_kind};

/// What was read about the holder of a volume, for each [`RevocationBasis`].
#[derive(Debug)]
pub enum HolderFacts<'a> {
    /// For [`RevocationBasis::Evidence`]: the evidence about the node.
    Fenced(&'a NodeEvidence),
    /// For [`RevocationBasis::NodeGone`]: the evidence about the node, and whether a pod that its kubelet may run can still
    /// use the volume.
    Gone(&'a NodeEvidence, /* is_used */ bool),
    /// For [`RevocationBasis::Rebooted`]: the node.
    Rebooted(&'a QuorumRead),
    /// For [`RevocationBasis::Replaced`]: the FenceEvidence, the node, and the weakest grade that its FencePolicy accepts.
    Replaced(&'a EvidenceRead, &'a QuorumRead, Grade),
    /// For [`RevocationBasis::Detached`]: the attachments.
    Detached(&'a Detachment),
    /// For [`RevocationBasis::Storage`]: the FenceEvidence, what its devices report now, the CSI driver of the volume, and the
    /// node.
    Storage(&'a EvidenceRead, DeviceCheck, Option<&'a str>, &'a QuorumRead),
}

/// What was read about the attachment of a volume. The finalizer of external-attacher keeps a VolumeAttachment until the
/// driver has revoked the access, so a VolumeAttachment that is being deleted counts as present.
#[derive(Clone, Debug, Default)]
pub struct Detachment {
    /// The Lease, at the version that will be written, records that the volume was attached to the node when the node
    /// became suspect.
    pub was_attached: bool,
    /// The volume's CSI driver, if an operator vouches that its storage accepts no writes from a node without an attachment.
    pub exclusive_driver: Option<Arc<str>>,
    /// Whether the driver attaches volumes (`attachRequired`); `None`: no CSIDriver of the name exists.
    pub attaches: Option<bool>,
    /// A VolumeAttachment of the volume names the node.
    pub is_attached: bool,
    /// When the read of the attachments was sent.
    pub requested_at: Mono,
}

/// Evidence that the holder of a volume no longer writes to it. It permits to revoke the holder at this version of the Lease.
///
/// # Errors
/// What contradicts it.
pub fn verify_volume(
    lease: LeaseVersion,
    holder: &Holder,
    basis: &RevocationBasis,
    facts: &HolderFacts<'_>,
) -> Result<Evidence<LeaseVersion>, Refusal> {
    let acquired_in = acquired_in(holder);
    let of_holder = |evidence: &NodeEvidence| *evidence.subject().name == *holder.node;
    let (kind, expires) = match (basis, facts) {
        (RevocationBasis::Evidence { .. }, HolderFacts::Fenced(evidence))
            if of_holder(evidence) && evidence.kind().is_fencing() =>
        {
            if *evidence.subject() != acquired_in || holder.boot_id.is_unknown() {
                return Err(Refusal::EvidenceInvalid("the volume was taken in another boot of the node"));
            }
            (evidence.kind().clone(), evidence.expires())
        }
        (RevocationBasis::NodeGone, HolderFacts::Gone(_, true)) => return Err(Refusal::KubeletNotAsked),
        (RevocationBasis::NodeGone, HolderFacts::Gone(evidence, false))
            if of_holder(evidence) && matches!(evidence.kind(), EvidenceKind::NodeGone { .. }) =>
        {
            (evidence.kind().clone(), evidence.expires())
        }
        (RevocationBasis::Rebooted, HolderFacts::Rebooted(live)) => rebooted(holder, live)?,
        (RevocationBasis::Replaced(_), HolderFacts::Replaced(evidence, live, minimum)) => {
            replaced(holder, evidence, live, *minimum)?
        }
        (RevocationBasis::Detached, HolderFacts::Detached(read)) => detached(&lease, holder, read)?,
        (RevocationBasis::Storage(_), HolderFacts::Storage(evidence, check, driver, live)) => {
            storage_fenced(&lease, holder, evidence, *check, *driver, live)?
        }
        _ => return Err(Refusal::EvidenceInvalid("what was read answers another claim")),
    };
    Ok(Evidence::new(kind, lease, expires))
}

/// The incarnation that the holder had when it acquired the volume.
fn acquired_in(holder: &Holder) -> Incarnation {
    let (name, uid, boot_id) = (holder.node.to_string(), holder.node_uid.to_string(), holder.boot_id.to_string());
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

/// Another incarnation of the same name runs, so the boot that acquired the volume cannot come back. What ended it stays
/// true, and no device is checked again. The present owner of the name may be another machine, so the kubelet's Lease shows
/// nothing.
fn replaced(
    holder: &Holder,
    evidence: &EvidenceRead,
    live: &QuorumRead,
    minimum: Grade,
) -> Result<(EvidenceKind, Mono), Refusal> {
    let invalid = |why| Err(Refusal::EvidenceInvalid(why));
    evidence.fields().check_ends_incarnation()?;
    if *evidence.node() != acquired_in(holder) {
        return invalid("the volume was taken in another boot of the node");
    }
    if evidence.kind().grade() < minimum {
        return Err(EvidenceDefect::TooWeak.into());
    }
    let now = live.node.as_ref().map(NodeRead::incarnation);
    if now.is_none_or(|now| now.uid == holder.node_uid.to_string() || !holder.boot_id.is_known_different(now.boot())) {
        return invalid("no other Node with another boot ID has that name");
    }
    Ok((fencing_kind(evidence)?, live.answered_at + VALID_FOR))
}

/// No VolumeAttachment of the volume names the node, and the volume was attached when the node became suspect.
fn detached(lease: &LeaseVersion, holder: &Holder, read: &Detachment) -> Result<(EvidenceKind, Mono), Refusal> {
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
            return invalid("its driver attaches nothing (attachRequired: false), so nothing can be detached");
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

/// Checks that evidence about storage covers this volume: it must be valid, about the incarnation in which the volume was
/// acquired, and about the volume's driver. The node must not be Ready, because a Ready node uses its volumes. The devices
/// are not checked here.
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
    if *evidence.node() != acquired_in(holder) || holder.boot_id.is_unknown() {
        return invalid("the volume was taken in another boot of the node");
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
