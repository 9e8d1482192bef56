//! The incident of one node at the API server: whether it still stands, its status, and the evidence that follows
//! from it.

use pod_safety_proof::{NodeRead, QuorumRead};
use serde_json::json;

use super::{StepContext, Target};
use crate::api::{
    Attempt, Condition, DesiredPower, FenceEvidenceSpec, FenceEvidenceStatus, NodeFenceSpec, NodeFenceStatus, Phase,
    Trigger, TriggerCondition, group_path, new_object,
};
use crate::client::{ApiError, Call, Method, WriteCall as _};
use crate::model::{ConditionState, Rv};
use crate::outcome::{Outcome, resource_version};
use crate::quorum_read::{invalid_renew_time, read_node_and_lease};
use crate::transport::Act;
use crate::wire;

/// Confirms by a quorum read what the cache suggested: the Node has the same incarnation, and either its kubelet has
/// not reported since the cache's last report, or the Node still has the condition for which it is fenced. How often
/// a condition flapped is history, which only the cache has. A node that an operator or another remediator requested
/// may be healthy.
///
/// Returns whether the Node exists: without it no incident is opened, and one that is open goes on.
pub(super) async fn still_lost(context: &StepContext<'_>, spec: &NodeFenceSpec) -> Result<bool, Outcome> {
    let QuorumRead { node, lease, .. } =
        read_node_and_lease(context.writer.connection, context.env, &spec.node.name).await.map_err(Outcome::Failed)?;
    if node.as_ref().is_some_and(|read| *read.incarnation() != spec.node) {
        return Err(Outcome::Changed);
    }
    match spec.trigger.kind {
        Trigger::Person | Trigger::External => return Ok(node.is_some()),
        Trigger::Unhealthy => {
            let cleared = |trigger: &TriggerCondition| node.as_ref().is_some_and(|read| !has_condition(read, trigger));
            return if spec.trigger.condition.as_ref().is_some_and(cleared) {
                Err(Outcome::Heard)
            } else {
                Ok(node.is_some())
            };
        }
        Trigger::Detected => {}
    }
    let cached = context.writer.cache.read().view().lease(&spec.node.name).flatten();
    let renewed = lease.renewed().map_err(|error| Outcome::Failed(invalid_renew_time(error)))?;
    if node.as_ref().is_some_and(NodeRead::is_ready) || renewed != cached {
        return Err(Outcome::Heard);
    }
    Ok(node.is_some())
}

/// Whether the node still has the condition for which it is fenced.
fn has_condition(node: &NodeRead, condition: &TriggerCondition) -> bool {
    node.condition_statuses(&condition.r#type)
        .any(|status| condition.status.matches(ConditionState::parse(Some(status))))
}

/// Writes a status at this resourceVersion; returns the next one.
pub(super) async fn write_fence_status(
    context: &StepContext<'_>,
    target: &Target,
    rv: Rv,
    status: &NodeFenceStatus,
) -> Result<Rv, Outcome> {
    let mut status = status.clone();
    let at = format!("{:.0}", context.env.clock.wall());
    set_conditions(&mut status, &at);
    let body = json!({ "metadata": { "uid": target.fence.uid, "resourceVersion": rv }, "status": status });
    let path = group_path(&format!("nodefences/{}/status", target.fence.name));
    let answer = context.send(Call::write(Method::Merge, path, &body)).await?;
    let only: wire::OnlyMeta = answer.decode().map_err(|error| Outcome::Failed(ApiError::Undecodable(error)))?;
    let next = only.metadata.as_ref().and_then(resource_version);
    next.ok_or_else(|| Outcome::Failed(ApiError::Malformed("a NodeFence without a resourceVersion".to_owned())))
}

/// Sets the conditions that follow from the phase.
fn set_conditions(status: &mut NodeFenceStatus, at: &str) {
    let fenced = match (&status.evidence, status.phase) {
        // Contradicted or withdrawn evidence lost its taint in that step.
        (Some(_), Phase::AwaitingOperator) if !status.tainted => ("False", "EvidenceInvalid"),
        (Some(_), Phase::AwaitingOperator) => ("Unknown", "AwaitingOperator"),
        (Some(_), _) => ("True", "EvidenceFound"),
        (None, phase) => ("False", phase.name()),
    };
    let recovered = match status.phase {
        Phase::Done => ("True", "NodeReturned"),
        phase => ("False", phase.name()),
    };
    let stuck = match status.phase {
        Phase::AwaitingOperator => ("True", "AwaitingOperator"),
        phase => ("False", phase.name()),
    };
    let before = std::mem::take(&mut status.conditions);
    for (kind, (state, reason)) in [("Fenced", fenced), ("Recovered", recovered), ("Stalled", stuck)] {
        status.conditions.push(Condition::transition(&before, kind, state, reason, &status.message, at));
    }
}

pub(super) const fn act_of(attempt: &Attempt) -> Act {
    // An unknown action counts as `off`, which needs more proof.
    match attempt.act {
        DesiredPower::On => Act::On,
        DesiredPower::Off | DesiredPower::Unknown => Act::Off,
    }
}

/// Creates evidence, whose name contains the incarnation.
pub(super) async fn create_evidence(
    context: &StepContext<'_>,
    name: &str,
    spec: &FenceEvidenceSpec,
) -> Result<(), Outcome> {
    let body = new_object("FenceEvidence", json!({ "name": name }), spec);
    match context.send(Call::write(Method::Post, group_path("fenceevidences"), &body)).await {
        Ok(_) => Ok(()),
        // It was written before a crash: its name identifies the incarnation, and its spec cannot have been changed
        // since.
        Err(Outcome::Changed) => {
            let raw = context.send(Call::get(group_path(&format!("fenceevidences/{name}")))).await?;
            let existing: wire::Custom<FenceEvidenceSpec, FenceEvidenceStatus> =
                raw.decode().map_err(|error| Outcome::Failed(ApiError::Undecodable(error)))?;
            let holds = (&existing.spec.node, existing.spec.kind.ends_incarnation())
                == (&spec.node, spec.kind.ends_incarnation())
                && existing.status.unwrap_or_default().invalidated.is_none();
            if holds { Ok(()) } else { Err(Outcome::Changed) }
        }
        Err(outcome) => Err(outcome),
    }
}
