//! Lean domain types: only the fields that a decision reads.
//!
//! Gives identities distinct types that cannot be confused, and keeps a cached object to some two hundred bytes. The
//! crate does not depend on kube, tokio or a clock.

mod budget;
mod eviction;
mod evidence;
mod grammar;
mod ids;
mod incarnation;
mod intern;
mod labels;
mod lease;
mod mono;
mod node;
mod pod;
mod taint;
mod volume;
mod workload;

pub use budget::{
    Amount, BadAmount, Budget, BudgetKey, BudgetLimit, BudgetStatus, DisruptedPod, DisruptionAllowedCondition,
    UnhealthyPolicy,
};
pub use eviction::{
    CANCELED, EVICTION_INVALID, Eviction, EvictionCondition, EvictionConditions, EvictionIntent, EvictionPhase,
    EvictionRequest, EvictionRole, EvictionTarget, IMPERATIVE_EVICTOR, IMPERATIVE_EVICTOR_PRIORITY,
    LOST_NODE_RESPONDER, NO_FURTHER_RESPONDER, RESPONDER_HEARTBEAT_DEADLINE, Requester, Responder, ResponderSeen,
    ResponderState, compare_turns,
};
pub use evidence::{FenceEvidenceKind, Grade};
pub use grammar::is_or_are;
pub use ids::{
    BadName, BadRv, BootId, PodKey, Rv, Uid, is_kubernetes_name, parse_name, parse_names, parse_optional_name,
};
pub use incarnation::Incarnation;
pub use intern::Interner;
pub use labels::{BadSelector, Labels, Requirement, Selector};
pub use lease::{NodeLease, lease_duration};
pub use mono::Mono;
pub use node::{
    ConditionState, NODE_UNREACHABLE_CONDITION, NOT_READY_TAINT, Node, NodeDetails, NodeKey, OUT_OF_SERVICE_TAINT,
    Pressures, Readiness, ReportedCondition, SUSPECT_TAINT, UNREACHABLE_TAINT, describe_zone,
};
pub use pod::{
    Controller, DEFAULT_GRACE, DISRUPTION_REASONS, Deletion, DisruptionTarget, MIRROR_ANNOTATION, Phase, Pod, Uncommon,
};
pub use taint::{NO_EXECUTE, Operator, Taint, Toleration, TolerationPeriod, Tolerations};
pub use volume::{
    Attachment, BoundClaim, DETACH_LABEL, HELD_LABEL, Holder, LeaseHolder, Sharing, VOLUME_GATE,
    VOLUME_LEASE_NAMESPACE, VOLUME_UID_LABEL, Volume, VolumeClaim, VolumeKey, VolumeLease,
};
pub use workload::{Scale, Workload, WorkloadKind};

/// The kinds that the cache can follow. A closed enum: it labels metrics and sync states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::VariantArray)]
pub enum Kind {
    /// Pods of all namespaces.
    Pods,
    /// Nodes.
    Nodes,
    /// The heartbeats of kubelets: Leases of the namespace `kube-node-lease`.
    NodeLeases,
    /// PodDisruptionBudgets.
    Budgets,
    /// Deployments.
    Deployments,
    /// ReplicaSets.
    ReplicaSets,
    /// StatefulSets.
    StatefulSets,
    /// ReplicationControllers.
    ReplicationControllers,
    /// FenceDevices of pod-safety.
    FenceDevices,
    /// FencePolicies of pod-safety.
    FencePolicies,
    /// NodeFences of pod-safety.
    NodeFences,
    /// FenceEvidences of pod-safety.
    FenceEvidences,
    /// PodSafetyRemediations of pod-safety.
    Remediations,
    /// PersistentVolumes.
    Volumes,
    /// PersistentVolumeClaims.
    Claims,
    /// VolumeAttachments.
    Attachments,
    /// The Leases that record the holders of exclusive volumes: those of the namespace [`VOLUME_LEASE_NAMESPACE`].
    VolumeLeases,
    /// EvictionRequests of lifecycle.k8s.io.
    EvictionRequests,
    /// Evictions of lifecycle.k8s.io, not those of policy/v1.
    Evictions,
}

impl Kind {
    /// Every kind, in the order of their sync states.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The name in logs, metrics and RBAC.
    #[must_use]
    pub fn resource(self) -> &'static str {
        if self == Self::VolumeLeases {
            // Distinguishes them from the node Leases, in metrics too.
            return "volume leases";
        }
        self.path().rsplit('/').next().unwrap_or_default()
    }

    /// Whether it is one of pod-safety's own kinds, which exist once its CRDs are installed.
    #[must_use]
    pub const fn is_own_crd(self) -> bool {
        matches!(
            self,
            Self::FenceDevices | Self::FencePolicies | Self::NodeFences | Self::FenceEvidences | Self::Remediations
        )
    }

    /// Whether its API is served by few clusters: alpha, and behind a feature gate.
    #[must_use]
    pub const fn is_often_unserved(self) -> bool {
        matches!(self, Self::EvictionRequests | Self::Evictions)
    }

    /// Whether a cluster may lack it without any effect on the other kinds.
    #[must_use]
    pub const fn is_optional(self) -> bool {
        self.is_own_crd() || self.is_often_unserved()
    }

    /// Whether its objects are followed in several namespaces. Leases are not: each kind of Leases has one namespace.
    #[must_use]
    pub const fn is_namespaced(self) -> bool {
        match self {
            Self::Pods
            | Self::Budgets
            | Self::Deployments
            | Self::ReplicaSets
            | Self::StatefulSets
            | Self::ReplicationControllers
            | Self::FenceDevices
            | Self::Remediations
            | Self::Claims
            | Self::EvictionRequests
            | Self::Evictions => true,
            Self::Nodes
            | Self::NodeLeases
            | Self::FencePolicies
            | Self::NodeFences
            | Self::FenceEvidences
            | Self::Volumes
            | Self::Attachments
            | Self::VolumeLeases => false,
        }
    }

    /// The path of its objects in one namespace, or in all of them.
    #[must_use]
    pub fn path_in(self, namespace: Option<&str>) -> String {
        match (namespace, self.path().rsplit_once('/')) {
            (Some(namespace), Some((base, plural))) => format!("{base}/namespaces/{namespace}/{plural}"),
            _ => self.path().to_owned(),
        }
    }

    /// The path of the collection on an API server.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Pods => "/api/v1/pods",
            Self::Nodes => "/api/v1/nodes",
            Self::NodeLeases => "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
            Self::Budgets => "/apis/policy/v1/poddisruptionbudgets",
            Self::Deployments => "/apis/apps/v1/deployments",
            Self::ReplicaSets => "/apis/apps/v1/replicasets",
            Self::StatefulSets => "/apis/apps/v1/statefulsets",
            Self::ReplicationControllers => "/api/v1/replicationcontrollers",
            Self::FenceDevices => "/apis/pod-safety.dev/v1alpha1/fencedevices",
            Self::FencePolicies => "/apis/pod-safety.dev/v1alpha1/fencepolicies",
            Self::NodeFences => "/apis/pod-safety.dev/v1alpha1/nodefences",
            Self::FenceEvidences => "/apis/pod-safety.dev/v1alpha1/fenceevidences",
            Self::Remediations => "/apis/pod-safety.dev/v1alpha1/podsafetyremediations",
            Self::Volumes => "/api/v1/persistentvolumes",
            Self::Claims => "/api/v1/persistentvolumeclaims",
            Self::Attachments => "/apis/storage.k8s.io/v1/volumeattachments",
            Self::VolumeLeases => "/apis/coordination.k8s.io/v1/namespaces/pod-safety-volumes/leases",
            Self::EvictionRequests => "/apis/lifecycle.k8s.io/v1alpha1/evictionrequests",
            Self::Evictions => "/apis/lifecycle.k8s.io/v1alpha1/evictions",
        }
    }
}
