//! From a kind to the type that follows it. What is done by kind is dispatched here, once: a feed of a type of its own for
//! each kind took minutes to compile.

use super::Cache;
use crate::clock::Mono;
use crate::model::{Kind, Uid};
use crate::wire::Raw;

/// Evaluates `$body` with `$t` as the type that follows `$kind`.
macro_rules! of_kind {
    ($kind:expr, $t:ident => $body:expr) => {
        match $kind {
            $crate::model::Kind::Pods => {
                type $t = $crate::model::Pod;
                $body
            }
            $crate::model::Kind::Nodes => {
                type $t = $crate::model::Node;
                $body
            }
            $crate::model::Kind::NodeLeases => {
                type $t = $crate::model::NodeLease;
                $body
            }
            $crate::model::Kind::Budgets => {
                type $t = $crate::model::Budget;
                $body
            }
            $crate::model::Kind::Deployments => {
                type $t = super::workloads::Followed<super::workloads::Deployments>;
                $body
            }
            $crate::model::Kind::ReplicaSets => {
                type $t = super::workloads::Followed<super::workloads::ReplicaSets>;
                $body
            }
            $crate::model::Kind::StatefulSets => {
                type $t = super::workloads::Followed<super::workloads::StatefulSets>;
                $body
            }
            $crate::model::Kind::ReplicationControllers => {
                type $t = super::workloads::Followed<super::workloads::ReplicationControllers>;
                $body
            }
            $crate::model::Kind::FenceDevices => {
                type $t = $crate::model::Device;
                $body
            }
            $crate::model::Kind::FencePolicies => {
                type $t = $crate::model::Policy;
                $body
            }
            $crate::model::Kind::NodeFences => {
                type $t = $crate::model::Fence;
                $body
            }
            $crate::model::Kind::FenceEvidences => {
                type $t = $crate::model::Proof;
                $body
            }
            $crate::model::Kind::Remediations => {
                type $t = $crate::model::Remediation;
                $body
            }
            $crate::model::Kind::Volumes => {
                type $t = $crate::model::Volume;
                $body
            }
            $crate::model::Kind::Claims => {
                type $t = $crate::model::VolumeClaim;
                $body
            }
            $crate::model::Kind::Attachments => {
                type $t = $crate::model::Attachment;
                $body
            }
            $crate::model::Kind::VolumeLeases => {
                type $t = $crate::model::VolumeLease;
                $body
            }
        }
    };
}
#[cfg(any(test, feature = "testing"))]
pub(super) use of_kind;

impl Cache {
    /// A list of this kind begins: what it does not name is gone at its end.
    pub(super) fn begin_list_of(&self, kind: Kind) {
        of_kind!(kind, T => self.begin_list::<T>());
    }

    /// It ended: what it did not name is removed, and the kind counts as synced.
    pub(super) fn end_list_of(&self, kind: Kind, now: Mono) {
        of_kind!(kind, T => self.end_list::<T>(now));
    }

    /// An object as it came over the wire, with its version; one that cannot be read stays as unknown.
    pub(super) fn receive(&self, kind: Kind, raw: &Raw, now: Mono) -> Option<String> {
        of_kind!(kind, T => self.put_raw::<T>(raw, now))
    }

    /// A new version of an object that is known, if a glance at it is enough: gives back the version.
    pub(super) fn glance_of<'a>(&self, kind: Kind, raw: &'a Raw, now: Mono) -> Option<&'a str> {
        of_kind!(kind, T => self.glance::<T>(raw, now))
    }

    /// The object of this kind with this UID went.
    pub(super) fn remove_of(&self, kind: Kind, uid: &Uid, now: Mono) {
        of_kind!(kind, T => self.remove::<T>(uid, now));
    }
}
