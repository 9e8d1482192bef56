//! The Lease that records the holder of an exclusive volume, written by compare-and-swap.
//!
//! Danger note: if the Lease is released too early, a second node may write to the disk. So the Lease is acquired before
//! any node attaches the volume, and released only after the kubelet's report. It is revoked only after the judge that also
//! decides about pods has found that the holder's incarnation has ended, and before this evidence expires. Each write
//! carries the version on which the decision rests, and is sent within the leader's term.

mod gate;
mod record;

use std::sync::Arc;

use jiff::Timestamp;
use pod_safety_leader::send::WriteContext;
use pod_safety_proof::{EvidenceKind, RevocationBasis, revoke_holder};
use serde_json::{Value, json};

use super::outcome::UpdateOutcome;
pub use gate::UngateUpdate;

use super::verify::Verifier;
use crate::client::{Call, Method, WriteCall as _};
use crate::model::{DETACH_LABEL, HELD_LABEL, Holder, NodeKey, Rv, Uid, VOLUME_UID_LABEL, VolumeLease};

/// The label of all volume Leases.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "pod-safety");
/// The annotation with the reason of the hold. Admission shows it to clients that it denies.
const HOLD_ANNOTATION: &str = "pod-safety.dev/hold";

/// A change of a volume's Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeUpdate {
    /// The name of the volume and of its Lease.
    pub volume: Arc<str>,
    /// The UID of the PersistentVolume, or of the Lease if the volume does not exist.
    pub uid: Uid,
    /// The version on which the decision rests: that of the Lease, or of the volume if there is no Lease.
    pub rv: Rv,
    /// The Lease as the controller saw it; `None`: there was none.
    pub lease: Option<VolumeLeaseRef>,
    /// The change.
    pub change: VolumeChange,
}

/// A Lease as the controller saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeLeaseRef {
    /// Its UID.
    pub uid: Uid,
    /// How often it was revoked.
    pub generation: i32,
}

impl VolumeLeaseRef {
    /// The reference to this Lease.
    #[must_use]
    pub fn from_lease(lease: &VolumeLease) -> Self {
        Self { uid: lease.uid.clone(), generation: lease.generation }
    }
}

/// What admission denies for a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachDenial {
    /// The reason, which clients see that are denied.
    pub why: String,
    /// The node from which the volume may be detached, and to which it may not be attached again. `None`: it may not be
    /// detached.
    pub detach_from: Option<NodeKey>,
}

/// The change of a volume's Lease.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
pub enum VolumeChange {
    /// The volume gets a holder.
    #[strum(serialize = "VolumeLeaseAcquired")]
    Acquire {
        /// The holder.
        holder: Holder,
        /// What admission denies.
        denial: Option<AttachDenial>,
    },
    /// Admission denies to attach the volume to another node.
    #[strum(serialize = "VolumeAttachDenied")]
    DenyAttach(AttachDenial),
    /// The holder's node is healthy: admission denies nothing.
    #[strum(serialize = "VolumeAllowed")]
    Allow,
    /// The holder has ended its use, as its kubelet reported.
    #[strum(serialize = "VolumeReleased")]
    Release {
        /// What admission still denies.
        denial: Option<AttachDenial>,
    },
    /// The holder no longer writes to the volume, if the judge confirms it.
    #[strum(serialize = "VolumeLeaseRevoked")]
    Revoke {
        /// The holder until now.
        holder: Holder,
        /// Why it no longer writes.
        basis: RevocationBasis,
        /// The next holder, if the same node uses the volume in its next boot. The Lease has a holder at every moment.
        next: Option<Holder>,
        /// What admission still denies.
        denial: Option<AttachDenial>,
    },
    /// The volume does not exist and the Lease has no holder: delete the Lease.
    #[strum(serialize = "VolumeLeaseDeleted")]
    DeleteLease,
}

impl VolumeChange {
    /// The name in metrics and Events.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Every name, for metrics that must exist before they count.
    pub const NAMES: &'static [&'static str] = <Self as strum::VariantNames>::VARIANTS;
}

/// The path of a Lease, or of the collection.
fn path(volume: Option<&str>) -> String {
    let all = crate::model::Kind::VolumeLeases.path();
    volume.map_or_else(|| all.to_owned(), |volume| format!("{all}/{volume}"))
}

/// Executes the change. A revocation needs evidence of the judge.
async fn write(
    writer: &WriteContext<'_>,
    verifier: &mut Verifier<'_>,
    update: &VolumeUpdate,
) -> (UpdateOutcome, Option<EvidenceKind>) {
    let wall = writer.env.clock.wall();
    let (call, expires, evidence) = match (&update.change, &update.lease) {
        (VolumeChange::Revoke { holder, basis: by, next, .. }, Some(lease)) => {
            let evidence = match verifier.verify_holder(update, holder, by).await {
                Ok(evidence) => evidence,
                Err(unproved) => return (UpdateOutcome::Refused(unproved), None),
            };
            let kind = evidence.kind().clone();
            let generation = lease.generation.saturating_add(1);
            let body = revoked(update, next.is_some(), wall);
            let (request, expires) = revoke_holder(evidence, generation, next.as_ref(), body);
            (Call::permitted(request), Some(expires), Some(kind))
        }
        _ => (call(update, wall), None, None),
    };
    let sent = writer.send(call, expires).await;
    (sent.map_or_else(UpdateOutcome::from, |_answer| UpdateOutcome::Written), evidence)
}

/// The fields that a revocation writes besides those that the kernel sets.
fn revoked(update: &VolumeUpdate, is_taken: bool, wall: Timestamp) -> Value {
    let metadata = HoldMetadata::from_change(&update.change).metadata();
    let mut body = json!({ "metadata": metadata, "spec": { "renewTime": micros(wall) } });
    if is_taken {
        body["metadata"]["labels"][VOLUME_UID_LABEL] = json!(update.uid);
        body["spec"]["acquireTime"] = json!(micros(wall));
    }
    body
}

fn call(update: &VolumeUpdate, wall: Timestamp) -> Call {
    let VolumeUpdate { volume, uid, rv, lease, change } = update;
    let Some(lease) = lease else { return Call::write(Method::Post, path(None), &create_body(update, wall)) };
    if matches!(change, VolumeChange::DeleteLease) {
        let body = json!({ "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": { "uid": lease.uid, "resourceVersion": rv } });
        return Call::write(Method::Delete, path(Some(volume)), &body);
    }
    let mut body = json!({ "metadata": HoldMetadata::from_change(change).metadata() });
    body["metadata"]["uid"] = json!(lease.uid);
    body["metadata"]["resourceVersion"] = json!(rv);
    match change {
        VolumeChange::Acquire { holder, .. } => {
            body["metadata"]["labels"][VOLUME_UID_LABEL] = json!(uid);
            body["spec"] = holder_spec(holder, wall);
        }
        VolumeChange::Release { .. } => body["spec"] = json!({ "holderIdentity": null, "renewTime": micros(wall) }),
        VolumeChange::DenyAttach(_) | VolumeChange::Allow | VolumeChange::Revoke { .. } | VolumeChange::DeleteLease => {
        }
    }
    Call::write(Method::Merge, path(Some(volume)), &body)
}

fn create_body(update: &VolumeUpdate, wall: Timestamp) -> Value {
    let VolumeUpdate { volume, uid, change, .. } = update;
    let refused = HoldMetadata::from_change(change);
    let mut labels = json!({ MANAGED_BY.0: MANAGED_BY.1, VOLUME_UID_LABEL: uid });
    let mut annotations = json!({});
    let set = |marks: &mut Value, key: &str, value: Value| {
        if !value.is_null() {
            marks[key] = value;
        }
    };
    set(&mut labels, HELD_LABEL, refused.held);
    set(&mut labels, DETACH_LABEL, refused.uid);
    set(&mut annotations, HOLD_ANNOTATION, refused.why);
    set(&mut annotations, DETACH_LABEL, refused.node);
    let mut spec = json!({});
    if let VolumeChange::Acquire { holder, .. } = change {
        spec = holder_spec(holder, wall);
        spec["leaseTransitions"] = json!(0);
    }
    json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": volume, "labels": labels, "annotations": annotations }, "spec": spec })
}

/// The labels and annotations that admission and the cache read; null removes them.
#[derive(Debug, Default)]
struct HoldMetadata {
    held: Value,
    why: Value,
    uid: Value,
    node: Value,
}

impl HoldMetadata {
    fn from_change(change: &VolumeChange) -> Self {
        let refused = match change {
            VolumeChange::DenyAttach(refused) => Some(refused),
            VolumeChange::Acquire { denial: refused, .. }
            | VolumeChange::Release { denial: refused }
            | VolumeChange::Revoke { denial: refused, .. } => refused.as_ref(),
            VolumeChange::Allow | VolumeChange::DeleteLease => None,
        };
        let Some(AttachDenial { why, detach_from }) = refused else { return Self::default() };
        let (uid, node) = detach_from.as_ref().map(|node| (&node.uid, &node.name)).unzip();
        Self { held: json!("true"), why: json!(why), uid: json!(uid), node: json!(node) }
    }

    /// The metadata of a merge patch.
    fn metadata(self) -> Value {
        json!({ "labels": { HELD_LABEL: self.held, DETACH_LABEL: self.uid },
            "annotations": { HOLD_ANNOTATION: self.why, DETACH_LABEL: self.node } })
    }
}

fn holder_spec(holder: &Holder, wall: Timestamp) -> Value {
    json!({ "holderIdentity": holder.to_string(), "acquireTime": micros(wall), "renewTime": micros(wall) })
}

fn micros(wall: Timestamp) -> String {
    format!("{wall:.6}")
}
