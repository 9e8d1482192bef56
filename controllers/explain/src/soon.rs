//! What fencing does about a lost node without a person, and when.

use pod_safety_fencing::{Hold, Outlook, lacks};
use pod_safety_shared::model::{Node, Readiness};

use super::answer::span;
use super::proof;
use super::scene::Scene;
use pod_safety_shared::drive::HoldReason as _;

/// The next step of fencing.
pub(super) struct Step {
    /// The reason, in one CamelCase word.
    pub(super) reason: &'static str,
    /// What comes, for people.
    pub(super) words: String,
}

/// The step that comes by itself; `None`: pod-safety does not fence this node without a person.
pub(super) fn next_step(node: &Node, scene: &Scene<'_>) -> Option<Step> {
    if node.readiness == Readiness::Ready || !scene.is_fencing_on() || proof::dry_run(node, scene).is_some() {
        return None;
    }
    if proof::incident(node, scene).is_some_and(|fence| !fence.status.phase.is_over()) {
        return of_incident(node, scene);
    }
    match scene.outlook(node)? {
        Outlook::Held(hold) => goes_on(&hold).then(|| of_hold(&hold)),
        Outlook::SwitchesOff { .. } if lack(node, scene).is_some() => None,
        Outlook::SwitchesOff { at, policy } => {
            let left = at.since(scene.now);
            let when = if left.is_zero() { "now".to_owned() } else { format!("in {}", span(left)) };
            let words = format!("pod-safety switches it off {when} (FencePolicy {policy})");
            Some(Step { reason: "Fencing", words })
        }
    }
}

fn of_incident(node: &Node, scene: &Scene<'_>) -> Option<Step> {
    let holds = scene.fencing_holds(node);
    match holds.first() {
        Some(hold) if holds.iter().all(goes_on) => Some(of_hold(hold)),
        Some(_) => None,
        None if scene.fencing(&node.name).acts => {
            Some(Step { reason: "Fencing", words: "fencing takes its next step now".to_owned() })
        }
        None => None,
    }
}

fn of_hold(hold: &Hold) -> Step {
    Step { reason: hold.reason(), words: hold.to_string() }
}

/// Why its FencePolicy cannot switch it off; `None`: it can, or nobody knows, or it has none.
pub(super) fn lack(node: &Node, scene: &Scene<'_>) -> Option<String> {
    lacks(proof::policy(node, scene)?, node, &scene.view)
}

/// Whether so much is lost that pod-safety itself may be cut off.
pub(super) fn is_outage(node: &Node, scene: &Scene<'_>) -> bool {
    let lost = scene.lost(&node.name).holds;
    let of_fencing = scene.fencing_holds(node).into_iter();
    lost.iter().any(|(_, hold)| matches!(hold, pod_safety_node_lifecycle::Hold::LargeOutage { .. }))
        || of_fencing
            .chain(match scene.outlook(node) {
                Some(Outlook::Held(hold)) => Some(hold),
                Some(Outlook::SwitchesOff { .. }) | None => None,
            })
            .any(|hold| matches!(hold, Hold::TooManyLost { .. }))
}

/// Whether an incident goes on by itself.
pub(super) const fn goes_on(hold: &Hold) -> bool {
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
