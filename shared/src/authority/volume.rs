//! Whose an exclusive volume is: its Lease, written by compare-and-swap.
//!
//! Danger note: a Lease that says less than what is true gives a disk to a second writer. So it is taken before
//! anybody asks, released only by a kubelet's word, and broken only after the same judge that removes pods has found
//! that the holder's life is over, within the time for which that is good. Each write carries the version on which the
//! decision rests, and falls into the leader's term.

use std::sync::Arc;

use jiff::Timestamp;
use pod_safety_leader::outcome::Outcome;
use pod_safety_leader::send::WriteContext;
use pod_safety_proof::{EvidenceKind, ReleaseBasis, break_volume};
use serde_json::{Value, json};

use super::verify::Verifier;
use crate::client::{Call, Method, WriteCall as _};
use crate::model::{
    DETACH_LABEL, HELD_LABEL, Holder, NodeKey, PodKey, Rv, Uid, VOLUME_GATE, VOLUME_UID_LABEL, VolumeLease,
};

/// The label of all our volume Leases.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "pod-safety");
/// Why nobody else may have it: admission repeats it to whoever is refused.
const HOLD_ANNOTATION: &str = "pod-safety.dev/hold";

/// A Lease that should be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeUpdate {
    /// The volume's name, which is the Lease's.
    pub volume: Arc<str>,
    /// Which PersistentVolume of that name, or which Lease if that is gone.
    pub uid: Uid,
    /// The version on which the decision rests: the Lease's, or where there is none the volume's.
    pub rv: Rv,
    /// The Lease as the decision saw it; `None`: there was none.
    pub lease: Option<VolumeLeaseRef>,
    /// What should become of it.
    pub change: VolumeChange,
}

/// A Lease as a decision saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeLeaseRef {
    /// Its identity.
    pub uid: Uid,
    /// How often it was broken.
    pub generation: i32,
}

impl VolumeLeaseRef {
    /// What a decision saw of it.
    #[must_use]
    pub fn from_lease(lease: &VolumeLease) -> Self {
        Self { uid: lease.uid.clone(), generation: lease.generation }
    }
}

/// What admission refuses about a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachDenial {
    /// Why: it is repeated to whoever is refused.
    pub why: String,
    /// From this node it may be detached, and it is not attached there again. `None`: it may not be detached either.
    pub detach_from: Option<NodeKey>,
}

/// What should become of a volume's Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeChange {
    /// It is this node's.
    Acquire {
        /// Whose.
        holder: Holder,
        /// What of that admission refuses.
        denial: Option<AttachDenial>,
    },
    /// Nobody else may attach it.
    DenyAttach(AttachDenial),
    /// Its holder is well: attaching and detaching are nobody's business but Kubernetes'.
    Allow,
    /// Its holder has ended its use, by its kubelet's word.
    Release {
        /// What admission refuses still.
        denial: Option<AttachDenial>,
    },
    /// Its holder writes to it no more, if the judge says so too.
    Revoke {
        /// Whose it was.
        holder: Holder,
        /// How it is known.
        basis: ReleaseBasis,
        /// Whose it is then: of the node in its next boot, if that uses it. There is no moment in which nobody has it.
        next: Option<Holder>,
        /// What admission refuses still.
        denial: Option<AttachDenial>,
    },
    /// The volume is gone, and nobody holds it: so goes the Lease.
    DeleteLease,
}

impl VolumeUpdate {
    /// In whose lane it waits. Breaks are about nodes: those of one node rest on the same evidence, so they share what is read for
    /// it, and a device that does not answer is waited for once.
    pub(super) const fn flow(&self) -> &Arc<str> {
        match &self.change {
            VolumeChange::Revoke { holder, .. } => &holder.node,
            VolumeChange::Acquire { .. }
            | VolumeChange::DenyAttach(_)
            | VolumeChange::Allow
            | VolumeChange::Release { .. }
            | VolumeChange::DeleteLease => &self.volume,
        }
    }
}

impl VolumeChange {
    /// Its name in metrics and Events.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Acquire { .. } => "VolumeLeaseAcquired",
            Self::DenyAttach(_) => "VolumeAttachDenied",
            Self::Allow => "VolumeAllowed",
            Self::Release { .. } => "VolumeReleased",
            Self::Revoke { .. } => "VolumeLeaseRevoked",
            Self::DeleteLease => "VolumeLeaseDeleted",
        }
    }

    /// Every name, for metrics that must exist before they count.
    pub const NAMES: [&'static str; 6] = [
        "VolumeLeaseAcquired",
        "VolumeAttachDenied",
        "VolumeAllowed",
        "VolumeReleased",
        "VolumeLeaseRevoked",
        "VolumeLeaseDeleted",
    ];
}

/// The way of a Lease.
fn path(volume: Option<&str>) -> String {
    let all = crate::model::Kind::VolumeLeases.path();
    volume.map_or_else(|| all.to_owned(), |volume| format!("{all}/{volume}"))
}

/// Carries it out; a break with what the judge found.
pub(super) async fn write(
    writer: &WriteContext<'_>,
    verifier: &mut Verifier<'_>,
    update: &VolumeUpdate,
) -> (Outcome, Option<EvidenceKind>) {
    let wall = writer.env.clock.wall();
    let (call, expires, evidence) = match (&update.change, &update.lease) {
        (VolumeChange::Revoke { holder, basis: by, next, .. }, Some(lease)) => {
            let evidence = match verifier.verify_holder(update, holder, by).await {
                Ok(evidence) => evidence,
                Err(unproved) => return (Outcome::Refused(unproved), None),
            };
            let kind = evidence.kind().clone();
            let generation = lease.generation.saturating_add(1);
            let body = revoked(update, next.is_some(), wall);
            let (request, expires) = break_volume(evidence, generation, next.as_ref(), body);
            (Call::permitted(request), Some(expires), Some(kind))
        }
        _ => (call(update, wall), None, None),
    };
    let sent = writer.send(call, expires).await;
    (sent.map_or_else(|outcome| outcome, |_answer| Outcome::Written), evidence)
}

/// What a break writes besides the end of the hold.
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
        VolumeChange::Release { .. } => {
            body["spec"] = json!({ "holderIdentity": null, "renewTime": micros(wall) })
        }
        VolumeChange::DenyAttach(_)
        | VolumeChange::Allow
        | VolumeChange::Revoke { .. }
        | VolumeChange::DeleteLease => {}
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

/// The labels and annotations by which admission refuses, and our cache knows it; null: they go.
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

    /// For a merge patch.
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

/// Takes our gate from a pod, and, where its volume is on a node already, sends it there.
pub(super) fn ungate(pod: &PodKey, rv: Rv, pin: Option<&str>) -> Call {
    let mut spec = json!({ "schedulingGates": [{ "$patch": "delete", "name": VOLUME_GATE }] });
    if let Some(host) = pin {
        spec["nodeSelector"] = json!({ "kubernetes.io/hostname": host });
    }
    let body = json!({ "metadata": { "uid": pod.uid, "resourceVersion": rv }, "spec": spec });
    Call::write(Method::Patch, format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name), &body)
}
