//! What fencing would do about a node if an operator requested it: its plan, and every gate with its numbers.

use std::sync::Arc;

use pod_safety_fencing::{Config, Key, PROVIDER_LAG, decide};
use pod_safety_shared::api::NodeFenceStatus;
use pod_safety_shared::authority::{Intent, Step};

use super::ExplainContext;

/// The status that the controller would write into the NodeFence of this name, which the context must contain.
///
/// # Errors
/// The holds of the decision, verbatim, if nothing can be planned.
pub fn plan_fencing(fence: &str, node: &Arc<str>, ctx: &ExplainContext<'_>) -> Result<NodeFenceStatus, String> {
    let config = Config {
        mode: ctx.settings.mode,
        own_node: ctx.running.leader_node.as_deref().map(Arc::from),
        guards_volumes: true,
        include_dry_runs: true,
        history: None,
        provider_lag: PROVIDER_LAG,
    };
    let decision = decide(&Key::Node(Arc::clone(node)), &ctx.view, ctx.now, &config);
    let written = decision.intents.into_iter().find_map(|intent| match intent {
        Intent::Fence(fencing) => match fencing.step {
            Step::Write(target) if *target.fence.name == *fence => Some(*target.status),
            _ => None,
        },
        _ => None,
    });
    let held = || {
        let why: Vec<String> = decision.holds.iter().map(|(_, hold)| hold.to_string()).collect();
        if why.is_empty() { "another step about this node comes first".to_owned() } else { why.join("; ") }
    };
    written.ok_or_else(held)
}
