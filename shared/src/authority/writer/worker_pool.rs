//! Which worker pool executes a request.

use pod_safety_proof::{Claim, ForceDeleteRequest};

use super::super::claim::Intent;
use super::super::priority::WorkerPool;

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
