//! What fencing does about a lost node without an operator, and when.

use pod_safety_fencing::{Hold, Outlook, why_unfenceable};
use pod_safety_shared::model::{Node, Readiness};

use super::answer::format_duration;
use super::context::ExplainContext;
use super::evidence;
use pod_safety_shared::controller_loop::HoldReason as _;

/// The next step of fencing.
pub(super) struct Step {
    /// The reason in CamelCase.
    pub(super) reason: &'static str,
    /// The step as a sentence, for operators.
    pub(super) message: String,
}

/// The step that comes without an operator; `None`: pod-safety does not fence this node without one.
pub(super) fn next_step(node: &Node, ctx: &ExplainContext<'_>) -> Option<Step> {
    if node.readiness == Readiness::Ready || !ctx.is_fencing_on() || evidence::open_dry_run(node, ctx).is_some() {
        return None;
    }
    if evidence::current_incident(node, ctx).is_some_and(|fence| !fence.status.phase.is_over()) {
        return incident_step(node, ctx);
    }
    match ctx.fencing_outlook(node)? {
        Outlook::Held(hold) => proceeds(&hold).then(|| hold_step(&hold)),
        Outlook::SwitchesOff { .. } if find_policy_defect(node, ctx).is_some() => None,
        Outlook::SwitchesOff { at, policy } => {
            let remaining = at.since(ctx.now);
            let when =
                if remaining.is_zero() { "now".to_owned() } else { format!("in {}", format_duration(remaining)) };
            let message = format!("pod-safety switches it off {when} (FencePolicy {policy})");
            Some(Step { reason: "Fencing", message })
        }
    }
}

fn incident_step(node: &Node, ctx: &ExplainContext<'_>) -> Option<Step> {
    let holds = ctx.list_fencing_holds(node);
    match holds.first() {
        Some(hold) if holds.iter().all(proceeds) => Some(hold_step(hold)),
        Some(_) => None,
        None if ctx.decide_fencing(&node.name).acts => {
            Some(Step { reason: "Fencing", message: "fencing takes its next step now".to_owned() })
        }
        None => None,
    }
}

fn hold_step(hold: &Hold) -> Step {
    Step { reason: hold.reason(), message: hold.to_string() }
}

/// Why the FencePolicy of the node cannot switch it off; `None`: it can, or it is not known, or there is no
/// FencePolicy.
pub(super) fn find_policy_defect(node: &Node, ctx: &ExplainContext<'_>) -> Option<String> {
    why_unfenceable(evidence::policy_for(node, ctx)?, node, &ctx.view)
}

/// Whether so many nodes are lost that pod-safety itself may be cut off.
pub(super) fn is_outage(node: &Node, ctx: &ExplainContext<'_>) -> bool {
    let lost = ctx.decide_lifecycle(&node.name).holds;
    let of_fencing = ctx.list_fencing_holds(node).into_iter();
    lost.iter().any(|(_, hold)| matches!(hold, pod_safety_node_lifecycle::Hold::LargeOutage { .. }))
        || of_fencing
            .chain(match ctx.fencing_outlook(node) {
                Some(Outlook::Held(hold)) => Some(hold),
                Some(Outlook::SwitchesOff { .. }) | None => None,
            })
            .any(|hold| matches!(hold, Hold::TooManyLost { .. }))
}

/// Whether an incident with this hold proceeds without an operator.
pub(super) const fn proceeds(hold: &Hold) -> bool {
    matches!(
        hold,
        Hold::AttemptUnderWay { .. }
            | Hold::ProviderBehind { .. }
            | Hold::RetryBackoff { .. }
            | Hold::Collateral { .. }
            | Hold::BudgetsUnread { .. }
            | Hold::Drain { .. }
            | Hold::Concurrency { .. }
            | Hold::Cooldown { .. }
            | Hold::WaitsForPods { .. }
            | Hold::AwaitingNodeReady { .. }
    )
}
