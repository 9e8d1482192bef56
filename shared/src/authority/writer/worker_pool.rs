//! Which priority level a request has, and which worker pool executes it.

use pod_safety_proof::{Claim, ClaimKind, ForceDeleteRequest};

use super::super::claim::Intent;

/// The priority level of a request in the fair queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::authority) enum PriorityLevel {
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
pub(in crate::authority) enum WorkerPool {
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

impl WorkerPool {
    pub(super) fn for_intent(intent: &Intent) -> Self {
        match intent {
            Intent::Update(update) => update.as_write().pool(),
            Intent::Force(force) => Self::for_force_delete(force),
            Intent::Fence(request) if request.step.switches_power() => Self::PowerSwitches,
            Intent::Fence(_) | Intent::Remediate(_) | Intent::Review(_) => Self::FenceSteps,
            Intent::Monitor(_) => Self::StatusChecks,
            Intent::ReadMissingNode { .. } | Intent::Delete(_) | Intent::Scale { .. } => Self::Default,
        }
    }

    pub(super) const fn for_force_delete(force: &ForceDeleteRequest) -> Self {
        if matches!(force.claim, Claim::Fenced { .. }) { Self::EvidenceChecks } else { Self::Default }
    }
}
