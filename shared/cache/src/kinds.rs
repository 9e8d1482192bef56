//! The mapping from a kind to the type that follows it. Operations by kind are dispatched here, in one place: a
//! generic feed for each kind took minutes to compile.

use super::Cache;
use crate::clock::Mono;
use crate::model::{Kind, Uid};
use crate::wire::Raw;

/// Evaluates `$body` with `$t` as the type that follows `$kind`.
macro_rules! dispatch_kind {
    ($kind:expr, $t:ident => $body:expr) => {
        dispatch_kind!(@ $kind, $t, $body;
            Pods => $crate::model::Pod,
            Nodes => $crate::model::Node,
            NodeLeases => $crate::model::NodeLease,
            Budgets => $crate::model::Budget,
            Deployments => super::workloads::WorkloadObject<super::workloads::Deployments>,
            ReplicaSets => super::workloads::WorkloadObject<super::workloads::ReplicaSets>,
            StatefulSets => super::workloads::WorkloadObject<super::workloads::StatefulSets>,
            ReplicationControllers => super::workloads::WorkloadObject<super::workloads::ReplicationControllers>,
            FenceDevices => $crate::model::FenceDeviceObject,
            FencePolicies => $crate::model::FencePolicyObject,
            NodeFences => $crate::model::NodeFenceObject,
            FenceEvidences => $crate::model::FenceEvidenceObject,
            Remediations => $crate::model::RemediationObject,
            Volumes => $crate::model::Volume,
            Claims => $crate::model::VolumeClaim,
            Attachments => $crate::model::Attachment,
            VolumeLeases => $crate::model::VolumeLease,
            EvictionRequests => $crate::model::EvictionRequest,
            Evictions => $crate::model::Eviction,
        )
    };
    (@ $kind:expr, $t:ident, $body:expr; $($of:ident => $type:ty,)+) => {
        match $kind {
            $($crate::model::Kind::$of => {
                type $t = $type;
                $body
            })+
        }
    };
}
#[cfg(any(test, feature = "testing"))]
pub(super) use dispatch_kind;

impl Cache {
    /// Begins a list of this kind: an object that it does not contain counts as removed at its end.
    pub(super) fn begin_list_of_kind(&self, kind: Kind) {
        dispatch_kind!(kind, T => self.begin_list::<T>());
    }

    /// Ends the list: removes the objects that it did not contain and marks the kind as synced.
    pub(super) fn end_list_of_kind(&self, kind: Kind, now: Mono) {
        dispatch_kind!(kind, T => self.end_list::<T>(now));
    }

    /// Stores a wire object and returns its version; one that cannot be decoded is kept as unknown.
    pub(super) fn apply_wire(&self, kind: Kind, raw: &Raw, now: Mono) -> Option<String> {
        dispatch_kind!(kind, T => self.decode_and_apply::<T>(raw, now))
    }

    /// Stores a new version of a cached object if partial decoding is enough; returns the version.
    pub(super) fn apply_partial_of_kind<'a>(&self, kind: Kind, raw: &'a Raw, now: Mono) -> Option<&'a str> {
        dispatch_kind!(kind, T => self.apply_partial::<T>(raw, now))
    }

    /// Removes the object of this kind with this UID.
    pub(super) fn remove_of_kind(&self, kind: Kind, uid: &Uid, now: Mono) {
        dispatch_kind!(kind, T => self.remove::<T>(uid, now));
    }
}
