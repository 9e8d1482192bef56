//! How an operator checks that a machine is off, and when to confirm it.
//!
//! One rule: only a machine that a person saw powered off is confirmed. A machine that is only cut off looks the same
//! from outside, and still writes.

use pod_safety_fencing::{Hold, Remedy, asks_only_a_person};
use pod_safety_shared::api::{Grade, Phase};
use pod_safety_shared::authority::device_address;
use pod_safety_shared::model::Node;

use super::answer::Answer;
use super::context::ExplainContext;
use super::evidence::{current_incident, policy_for};

/// The URL of the runbooks.
pub(super) const RUNBOOKS: &str = "https://github.com/pod-safety/pod-safety/blob/main/docs/runbooks";

/// The page about fencing.
pub(super) const FENCING_PAGE: &str = "https://github.com/pod-safety/pod-safety/blob/main/docs/fencing.md";

/// The condition for a confirmation.
pub const ONLY_IF_SEEN: &str = "Only if you or a person you spoke to saw that the machine is powered off";

/// Where an operator sees whether this machine has power: by its Node and its devices.
#[must_use]
pub(super) fn where_to_check(node: &Node, ctx: &ExplainContext<'_>) -> String {
    let mut places: Vec<String> = Vec::new();
    let provider = node.details.as_ref().map_or("", |details| &*details.provider_id);
    if !provider.is_empty() {
        places.push(format!("at its provider (spec.providerID {provider})"));
    }
    places.extend(list_devices(node, ctx).into_iter().map(|device| format!("at {device}")));
    places.push("on its serial console".to_owned());
    places.push("or beside it".to_owned());
    places.join(", ")
}

/// The devices of its FencePolicy, each with its address for the node.
fn list_devices(node: &Node, ctx: &ExplainContext<'_>) -> Vec<String> {
    let levels = policy_for(node, ctx).map_or(&[][..], |policy| policy.spec.levels.as_slice());
    let mut all: Vec<String> = Vec::new();
    for named in levels.iter().flat_map(|level| &level.devices) {
        let Some(device) = ctx.view.device(&named.namespace, &named.name) else { continue };
        let Some(address) = device_address(&device.spec, node) else { continue };
        let device = format!("FenceDevice {named} ({address})");
        if !all.contains(&device) {
            all.push(device);
        }
    }
    all
}

/// The text for the operator who checks the power.
#[must_use]
pub fn how_to_check_power(node: &Node, ctx: &ExplainContext<'_>) -> String {
    format!(
        "Look whether the machine is powered off: {}. An unanswered ping proves nothing: a machine that is cut off still writes. {RUNBOOKS}/PodSafetyPodsHeld.md",
        where_to_check(node, ctx)
    )
}

/// Adds how to check that the machine is off, and the command to confirm it, where a confirmation is accepted. It is
/// not offered where the node is proved off, nor where a confirmation was withdrawn.
pub(super) fn offer_confirmation(answer: &mut Answer, node: &Node, ctx: &ExplainContext<'_>) {
    let name = &node.name;
    if let Some(policy) = policy_for(node, ctx)
        && policy.spec.minimum_evidence == Grade::Verified
    {
        let needs = "requires verified evidence (minimumEvidence). A fence device must report that the machine is off.";
        answer.add_next_step(format!("A confirmation is not accepted: the FencePolicy {} {needs}", policy.name), "");
        return;
    }
    if matches!(incident_remedy(node, ctx), Some(Remedy::Investigate | Remedy::PowerOn)) {
        return;
    }
    answer.add_next_step(how_to_check_power(node, ctx), "");
    answer
        .add_next_step(format!("{ONLY_IF_SEEN}, confirm it"), format!("pod-safety confirm-down {name} --reason TEXT"));
}

/// The remedy of its incident, if the incident waits for an operator.
pub(super) fn incident_remedy(node: &Node, ctx: &ExplainContext<'_>) -> Option<Remedy> {
    ctx.list_fencing_holds(node).into_iter().find_map(|hold| match hold {
        Hold::AwaitingOperator { remedy, .. } => Some(remedy),
        _ => None,
    })
}

/// Whether the FencePolicy of this node names no device, but a person.
#[must_use]
pub fn asks_a_person(node: &Node, ctx: &ExplainContext<'_>) -> bool {
    policy_for(node, ctx).is_some_and(|policy| asks_only_a_person(policy, &ctx.view))
}

/// Adds what an operator can do about an incident that waits for one.
pub(super) fn add_operator_steps(answer: &mut Answer, node: &Node, ctx: &ExplainContext<'_>) {
    let Some(fence) = current_incident(node, ctx).filter(|one| one.status.phase == Phase::AwaitingOperator) else {
        return;
    };
    let name = &node.name;
    let test = format!("pod-safety devices test --target {name}");
    match incident_remedy(node, ctx) {
        Some(Remedy::PowerOn) => {
            answer.add_next_step(format!("Start the machine by hand: {}", where_to_check(node, ctx)), "");
            answer.add_next_step("Repair what its fence devices lack, then test them", test);
        }
        Some(Remedy::Investigate) => {
            let places = where_to_check(node, ctx);
            answer.add_next_step(format!("Find out whether the machine runs: {places}"), "");
            answer.add_next_step("If it is off: start it.", "");
        }
        Some(Remedy::ConfirmOff | Remedy::FollowMessage) | None if asks_a_person(node, ctx) => {}
        Some(Remedy::ConfirmOff | Remedy::FollowMessage) | None => {
            answer.add_next_step("Check the login, Secret and address of its fence devices", test);
            let again = format!("kubectl delete nodefence {}", fence.name);
            answer.add_next_step("When they answer: delete its NodeFence, so that it is fenced again", again);
        }
    }
}
