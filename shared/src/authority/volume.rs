//! Whose an exclusive volume is: its Lease, written by compare-and-swap.
//!
//! Danger note: a Lease that says less than what is true gives a disk to a second writer. So it is taken before
//! anybody asks, released only by a kubelet's word, and broken only after the same judge that removes pods has found
//! that the holder's life is over, within the time for which that is good. Each write carries the version on which the
//! decision rests, and falls into the leader's term.

use std::sync::Arc;

use jiff::Timestamp;
use pod_safety_leader::outcome::Outcome;
use pod_safety_leader::send::Means;
use pod_safety_proof::{EvidenceKind, FencedBy, break_volume};
use serde_json::{Value, json};

use super::verify::Verifier;
use crate::client::{Call, Method, WriteCall as _};
use crate::model::{
    DETACH_LABEL, HELD_LABEL, Holder, NodeKey, PodKey, Rv, Uid, VOLUME_GATE, VOLUME_UID_LABEL, VolumeLease,
};

/// The label of all our volume Leases.
const OURS: (&str, &str) = ("app.kubernetes.io/managed-by", "pod-safety");
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
    pub lease: Option<Seen>,
    /// What should become of it.
    pub change: VolumeChange,
}

/// A Lease as a decision saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its identity.
    pub uid: Uid,
    /// How often it was broken.
    pub generation: i32,
}

impl Seen {
    /// What a decision saw of it.
    #[must_use]
    pub fn of(lease: &VolumeLease) -> Self {
        Self { uid: lease.uid.clone(), generation: lease.generation }
    }
}

/// What admission refuses about a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why: it is repeated to whoever is refused.
    pub why: String,
    /// From this node it may be detached, and it is not attached there again. `None`: it may not be detached either.
    pub detach_from: Option<NodeKey>,
}

/// What should become of a volume's Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeChange {
    /// It is this node's.
    Take {
        /// Whose.
        holder: Holder,
        /// What of that admission refuses.
        refused: Option<Refused>,
    },
    /// Nobody else may attach it.
    Refuse(Refused),
    /// Its holder is well: attaching and detaching are nobody's business but Kubernetes'.
    Allow,
    /// Its holder has ended its use, by its kubelet's word.
    Release {
        /// What admission refuses still.
        refused: Option<Refused>,
    },
    /// Its holder writes to it no more, if the judge says so too.
    Break {
        /// Whose it was.
        holder: Holder,
        /// How it is known.
        by: FencedBy,
        /// Whose it is then: of the node in its next boot, if that uses it. There is no moment in which nobody has it.
        next: Option<Holder>,
        /// What admission refuses still.
        refused: Option<Refused>,
    },
    /// The volume is gone, and nobody holds it: so goes the Lease.
    Forget,
}

impl VolumeUpdate {
    /// In whose lane it waits. Breaks are about nodes: those of one node rest on the same evidence, so they share what is read for
    /// it, and a device that does not answer is waited for once.
    pub(super) const fn lane(&self) -> &Arc<str> {
        match &self.change {
            VolumeChange::Break { holder, .. } => &holder.node,
            VolumeChange::Take { .. }
            | VolumeChange::Refuse(_)
            | VolumeChange::Allow
            | VolumeChange::Release { .. }
            | VolumeChange::Forget => &self.volume,
        }
    }
}

impl VolumeChange {
    /// Its name in metrics and Events.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Take { .. } => "VolumeLeaseAcquired",
            Self::Refuse(_) => "VolumeAttachDenied",
            Self::Allow => "VolumeAllowed",
            Self::Release { .. } => "VolumeReleased",
            Self::Break { .. } => "VolumeLeaseRevoked",
            Self::Forget => "VolumeLeaseDeleted",
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
    means: &Means<'_>,
    verifier: &mut Verifier<'_>,
    update: &VolumeUpdate,
) -> (Outcome, Option<EvidenceKind>) {
    let wall = means.env.clock.wall();
    let (call, expires, found) = match (&update.change, &update.lease) {
        (VolumeChange::Break { holder, by, next, .. }, Some(lease)) => {
            let evidence = match verifier.writes_no_more(update, holder, by).await {
                Ok(evidence) => evidence,
                Err(unproved) => return (Outcome::Refused(unproved), None),
            };
            let found = evidence.kind().clone();
            let generation = lease.generation.saturating_add(1);
            let body = broken(update, next.is_some(), wall);
            let (request, expires) = break_volume(evidence, generation, next.as_ref(), body);
            (Call::permitted(request), Some(expires), Some(found))
        }
        _ => (call(update, wall), None, None),
    };
    let sent = means.send(call, expires).await;
    (sent.map_or_else(|outcome| outcome, |_answer| Outcome::Written), found)
}

/// What a break writes besides the end of the hold.
fn broken(update: &VolumeUpdate, is_taken: bool, wall: Timestamp) -> Value {
    let metadata = Marks::of(&update.change).metadata();
    let mut body = json!({ "metadata": metadata, "spec": { "renewTime": micros(wall) } });
    if is_taken {
        body["metadata"]["labels"][VOLUME_UID_LABEL] = json!(update.uid);
        body["spec"]["acquireTime"] = json!(micros(wall));
    }
    body
}

fn call(update: &VolumeUpdate, wall: Timestamp) -> Call {
    let VolumeUpdate { volume, uid, rv, lease, change } = update;
    let Some(lease) = lease else { return Call::write(Method::Post, path(None), &created(update, wall)) };
    if matches!(change, VolumeChange::Forget) {
        let body = json!({ "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": { "uid": lease.uid, "resourceVersion": rv } });
        return Call::write(Method::Delete, path(Some(volume)), &body);
    }
    let mut body = json!({ "metadata": Marks::of(change).metadata() });
    body["metadata"]["uid"] = json!(lease.uid);
    body["metadata"]["resourceVersion"] = json!(rv);
    match change {
        VolumeChange::Take { holder, .. } => {
            body["metadata"]["labels"][VOLUME_UID_LABEL] = json!(uid);
            body["spec"] = taken(holder, wall);
        }
        VolumeChange::Release { .. } => {
            body["spec"] = json!({ "holderIdentity": null, "renewTime": micros(wall) })
        }
        VolumeChange::Refuse(_) | VolumeChange::Allow | VolumeChange::Break { .. } | VolumeChange::Forget => {
        }
    }
    Call::write(Method::Merge, path(Some(volume)), &body)
}

fn created(update: &VolumeUpdate, wall: Timestamp) -> Value {
    let VolumeUpdate { volume, uid, change, .. } = update;
    let refused = Marks::of(change);
    let mut labels = json!({ OURS.0: OURS.1, VOLUME_UID_LABEL: uid });
    let mut annotations = json!({});
    let said = |marks: &mut Value, key: &str, value: Value| {
        if !value.is_null() {
            marks[key] = value;
        }
    };
    said(&mut labels, HELD_LABEL, refused.held);
    said(&mut labels, DETACH_LABEL, refused.uid);
    said(&mut annotations, HOLD_ANNOTATION, refused.why);
    said(&mut annotations, DETACH_LABEL, refused.node);
    let mut spec = json!({});
    if let VolumeChange::Take { holder, .. } = change {
        spec = taken(holder, wall);
        spec["leaseTransitions"] = json!(0);
    }
    json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": volume, "labels": labels, "annotations": annotations }, "spec": spec })
}

/// The labels and annotations by which admission refuses, and our cache knows it; null: they go.
#[derive(Debug, Default)]
struct Marks {
    held: Value,
    why: Value,
    uid: Value,
    node: Value,
}

impl Marks {
    fn of(change: &VolumeChange) -> Self {
        let refused = match change {
            VolumeChange::Refuse(refused) => Some(refused),
            VolumeChange::Take { refused, .. }
            | VolumeChange::Release { refused }
            | VolumeChange::Break { refused, .. } => refused.as_ref(),
            VolumeChange::Allow | VolumeChange::Forget => None,
        };
        let Some(Refused { why, detach_from }) = refused else { return Self::default() };
        let (uid, node) = detach_from.as_ref().map(|node| (&node.uid, &node.name)).unzip();
        Self { held: json!("true"), why: json!(why), uid: json!(uid), node: json!(node) }
    }

    /// For a merge patch.
    fn metadata(self) -> Value {
        json!({ "labels": { HELD_LABEL: self.held, DETACH_LABEL: self.uid },
            "annotations": { HOLD_ANNOTATION: self.why, DETACH_LABEL: self.node } })
    }
}

fn taken(holder: &Holder, wall: Timestamp) -> Value {
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
