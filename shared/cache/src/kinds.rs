//! From a kind to the type that follows it.

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
pub(super) use of_kind;
