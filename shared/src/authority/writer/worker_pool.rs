//! Whose turn it is, and which writers take it.

use pod_safety_proof::{Claim, ForceDeleteRequest, ReleaseBasis};

use super::super::claim::{ClaimKind, Intent};
use super::super::update::Update;
use super::super::volume::VolumeChange;

/// A queue turn's class: first reads, then each kind of claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PriorityLevel {
    ReadMissingNode,
    Force(ClaimKind),
    /// Of pods that keep an identity: their successors wait for them, and there may be a hundred times as many others.
    ForceOfIdentity(ClaimKind),
    Delete,
    Update,
    /// In a queue of its own.
    Eviction,
    /// Apart from the statuses of budgets, which are few, and for which evictions wait. It waits itself while nodes do:
    /// of a zone that is lost there are thirty times as many pods as nodes, and the API server can take only so much.
    PodOfLostNode,
    /// In a queue of its own.
    Node,
    /// In a queue of its own.
    Fence,
    /// With those.
    Remediate,
    /// In a queue of its own.
    Switch,
    /// In a queue of its own.
    Monitor,
}

/// Who carries it out, out of a queue of its own.
#[derive(Clone, Copy, strum::EnumCount)]
pub(super) enum WorkerPool {
    Default,
    /// Force deletions and breaks of Leases that check devices first. A device that does not answer takes its whole timeout; other
    /// writes do not wait for it.
    EvidenceChecks,
    Nodes,
    /// Evictions that are asked for: an eviction may wait for an admission webhook, and a tenant may ask for thousands.
    Evictions,
    FenceSteps,
    PowerSwitches,
    StatusChecks,
}

impl WorkerPool {
    pub(super) const fn for_intent(intent: &Intent) -> Self {
        match intent {
            Intent::Update(update) => Self::for_update(update),
            Intent::Force(force) => Self::for_force_delete(force),
            Intent::Fence(fencing) if fencing.step.switches_power() => Self::PowerSwitches,
            Intent::Fence(_) | Intent::Remediate(_) | Intent::Review(_) => Self::FenceSteps,
            Intent::Monitor(_) => Self::StatusChecks,
            Intent::ReadMissingNode { .. } | Intent::Delete(_) | Intent::Scale { .. } => Self::Default,
        }
    }

    pub(super) const fn for_force_delete(force: &ForceDeleteRequest) -> Self {
        match force.claim {
            Claim::Fenced { .. } => Self::EvidenceChecks,
            Claim::NodeGone { .. }
            | Claim::NeverScheduled
            | Claim::KubeletTerminated
            | Claim::PodsEnded { .. }
            | Claim::OutOfService { .. } => Self::Default,
        }
    }

    pub(super) const fn for_update(update: &Update) -> Self {
        match update {
            Update::Node(_) => Self::Nodes,
            Update::Eviction(_) => Self::Evictions,
            Update::Volume(volume) => match volume.change {
                VolumeChange::Revoke {
                    basis: ReleaseBasis::Evidence { .. } | ReleaseBasis::Storage(_),
                    ..
                } => Self::EvidenceChecks,
                VolumeChange::Revoke {
                    basis:
                        ReleaseBasis::NodeGone
                        | ReleaseBasis::Rebooted
                        | ReleaseBasis::Replaced(_)
                        | ReleaseBasis::Detached,
                    ..
                }
                | VolumeChange::Acquire { .. }
                | VolumeChange::DenyAttach(_)
                | VolumeChange::Allow
                | VolumeChange::Release { .. }
                | VolumeChange::DeleteLease => Self::Default,
            },
            Update::Budget { .. }
            | Update::PodOfLostNode { .. }
            | Update::NotDisrupted { .. }
            | Update::DeleteFinished(_)
            | Update::Ungate { .. } => Self::Default,
        }
    }
}
