//! Lean domain types: only the fields that a decision reads.
//!
//! Duty: give identities types that cannot be swapped and keep an object of the
//! cache to some two hundred bytes. Nothing here knows kube, tokio or time.

mod ids;
mod intern;
mod lease;
mod node;
mod pod;

pub use ids::{BadRv, PodKey, Rv, Uid, is_kubernetes_name};
pub use intern::Interner;
pub use lease::NodeLease;
pub use node::{Node, OUT_OF_SERVICE_TAINT, Readiness};
pub use pod::{Deletion, MIRROR_ANNOTATION, Phase, Pod};

/// The kinds that the cache can follow. Closed: it labels metrics and sync states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Pods of all namespaces.
    Pods,
    /// Nodes.
    Nodes,
    /// The heartbeats of kubelets: Leases of the namespace `kube-node-lease`.
    NodeLeases,
}

impl Kind {
    /// Every kind, in the order of their sync states.
    pub const ALL: [Self; 3] = [Self::Pods, Self::Nodes, Self::NodeLeases];

    /// The name that logs, metrics and RBAC use.
    #[must_use]
    pub const fn resource(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Nodes => "nodes",
            Self::NodeLeases => "leases",
        }
    }

    /// The path of the collection on an API server.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Pods => "/api/v1/pods",
            Self::Nodes => "/api/v1/nodes",
            Self::NodeLeases => "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
        }
    }
}
