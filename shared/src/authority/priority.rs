//! The priority level of a request, and the worker pools that execute requests.

use pod_safety_proof::ClaimKind;

/// The priority level of a request in the fair queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PriorityLevel {
    ReadMissingNode,
    Force(ClaimKind),
    /// Force deletions of pods that keep an identity: their replacements wait for them, and there may be a hundred times as
    /// many other pods.
    ForceOfIdentity(ClaimKind),
    Delete,
    Update,
    /// In the queue of its own pool.
    Eviction,
    /// Separate from the statuses of budgets, which are few, and for which evictions wait. This level waits while nodes
    /// wait: a lost zone has thirty times as many pods as nodes, and the API server accepts only a limited rate.
    PodOfLostNode,
    /// In the queue of its own pool.
    Node,
    /// In the queue of its own pool.
    Fence,
    /// In the same queue as [`Self::Fence`].
    Remediate,
    /// In the queue of its own pool.
    Switch,
    /// In the queue of its own pool.
    Monitor,
}

/// The pools of workers. Each has its own queue.
#[derive(Clone, Copy, strum::EnumCount)]
pub(super) enum WorkerPool {
    Default,
    /// Force deletions and revocations of volume Leases that check devices first. A device that does not answer takes its
    /// whole timeout; other writes do not wait for it.
    EvidenceChecks,
    Nodes,
    /// Requested evictions: an eviction may wait for an admission webhook, and a tenant may request thousands.
    Evictions,
    FenceSteps,
    PowerSwitches,
    StatusChecks,
}
