//! Whose turn it is, and which writers take it.

use pod_safety_proof::{Claim, FencedBy, Force};

use super::super::claim::{ClaimKind, Intent};
use super::super::update::Update;
use super::super::volume::VolumeChange;

/// A queue turn's class: first reads, then each kind of claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    Witness,
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
pub(super) enum Staff {
    Others,
    /// Force deletions and breaks of Leases that check devices first. A device that does not answer takes its whole timeout; other
    /// writes do not wait for it.
    DeviceCheckers,
    Nodes,
    /// Evictions that are asked for: an eviction may wait for an admission webhook, and a tenant may ask for thousands.
    Evictors,
    Fencers,
    Switchers,
    Lookers,
}

impl Staff {
    pub(super) const fn of(intent: &Intent) -> Self {
        match intent {
            Intent::Update(update) => Self::of_update(update),
            Intent::Force(force) => Self::of_force(force),
            Intent::Fence(fencing) if fencing.step.switches() => Self::Switchers,
            Intent::Fence(_) | Intent::Remediate(_) | Intent::Review(_) => Self::Fencers,
            Intent::Monitor(_) => Self::Lookers,
            Intent::Witness { .. } | Intent::Delete(_) | Intent::Scale { .. } => Self::Others,
        }
    }

    pub(super) const fn of_force(force: &Force) -> Self {
        match force.claim {
            Claim::Fenced { .. } => Self::DeviceCheckers,
            Claim::NodeGone { .. }
            | Claim::NeverScheduled
            | Claim::KubeletTerminated
            | Claim::PodsEnded { .. }
            | Claim::OutOfService { .. } => Self::Others,
        }
    }

    pub(super) const fn of_update(update: &Update) -> Self {
        match update {
            Update::Node(_) => Self::Nodes,
            Update::Eviction(_) => Self::Evictors,
            Update::Volume(volume) => match volume.change {
                VolumeChange::Break { by: FencedBy::Evidence { .. } | FencedBy::Storage(_), .. } => {
                    Self::DeviceCheckers
                }
                VolumeChange::Break {
                    by: FencedBy::NodeGone | FencedBy::Rebooted | FencedBy::Replaced(_) | FencedBy::Detached,
                    ..
                }
                | VolumeChange::Take { .. }
                | VolumeChange::Refuse(_)
                | VolumeChange::Allow
                | VolumeChange::Release { .. }
                | VolumeChange::Forget => Self::Others,
            },
            Update::Budget { .. }
            | Update::PodOfLostNode { .. }
            | Update::NotDisrupted { .. }
            | Update::Forget(_)
            | Update::Ungate { .. } => Self::Others,
        }
    }
}
