//! Whose turn it is, and which writers take it.

use super::super::claim::{ClaimKind, Intent};
use super::super::update::Update;

/// A queue turn's class: first reads, then each kind of claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    Witness,
    Force(ClaimKind),
    /// Of pods that keep an identity: their successors wait for them, and there may be a hundred times as many others.
    ForceOfIdentity(ClaimKind),
    Delete,
    Update,
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
    Nodes,
    Fencers,
    Switchers,
    Lookers,
}

impl Staff {
    pub(super) const fn of(intent: &Intent) -> Self {
        match intent {
            Intent::Update(Update::Node(_)) => Self::Nodes,
            Intent::Fence(fencing) if fencing.step.switches() => Self::Switchers,
            Intent::Fence(_) | Intent::Remediate(_) | Intent::Review(_) => Self::Fencers,
            Intent::Monitor(_) => Self::Lookers,
            Intent::Update(
                Update::Budget { .. }
                | Update::PodOfLostNode { .. }
                | Update::NotDisrupted { .. }
                | Update::Volume(_)
                | Update::Forget(_)
                | Update::Ungate { .. },
            )
            | Intent::Witness { .. }
            | Intent::Force(_)
            | Intent::Delete(_)
            | Intent::Scale { .. } => Self::Others,
        }
    }
}
