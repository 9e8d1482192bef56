//! What one change did to a pod, whichever client made it.

use serde_json::Value;

use super::taints::NODE_GONE;
use crate::world::{number_at, str_at};

/// Grace of a pod that names none.
const DEFAULT_GRACE: i64 = 30;

/// An effect of a change on a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The pod was removed.
    Removed,
    /// Its phase became terminal.
    Ended,
    /// Its phase was terminal, and became another one.
    Revived,
    /// Its grace period became shorter than promised.
    Shortened,
    /// Its grace period became longer, though it already ran.
    Lengthened,
    /// Finalizers were removed.
    Released,
    /// A condition states that its node is gone.
    CalledOrphan,
}

pub(super) fn is_terminal(pod: &Value) -> bool {
    matches!(str_at(pod, "/status/phase"), "Failed" | "Succeeded")
}

fn is_deleted(pod: &Value) -> bool {
    pod.pointer("/metadata/deletionTimestamp").is_some()
}

fn grace(pod: &Value) -> i64 {
    let given = is_deleted(pod).then(|| number_at(pod, "/metadata/deletionGracePeriodSeconds")).flatten();
    given.or_else(|| number_at(pod, "/spec/terminationGracePeriodSeconds")).unwrap_or(DEFAULT_GRACE)
}

fn finalizers(pod: &Value) -> usize {
    pod.pointer("/metadata/finalizers").and_then(Value::as_array).map_or(0, Vec::len)
}

fn has_orphan_condition(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().any(|condition| {
        str_at(condition, "/type") == "DisruptionTarget"
            && str_at(condition, "/status") == "True"
            && str_at(condition, "/reason") == NODE_GONE
    })
}

/// All effects of a change.
pub(super) fn effects(before: &Value, after: Option<&Value>) -> Vec<Effect> {
    let Some(after) = after else { return vec![Effect::Removed] };
    let mut effects = Vec::new();
    let mut add = |happened: bool, effect: Effect| effects.extend(happened.then_some(effect));
    let changed = str_at(before, "/status/phase") != str_at(after, "/status/phase");
    add(is_terminal(after) && !is_terminal(before), Effect::Ended);
    add(is_terminal(before) && changed, Effect::Revived);
    add(is_deleted(after) && grace(after) < grace(before), Effect::Shortened);
    add(is_deleted(before) && grace(after) > grace(before), Effect::Lengthened);
    add(finalizers(after) < finalizers(before), Effect::Released);
    add(has_orphan_condition(after) && !has_orphan_condition(before), Effect::CalledOrphan);
    effects
}
