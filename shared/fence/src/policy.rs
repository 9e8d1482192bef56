//! The status of a FencePolicy, written at the resourceVersion from which it was decided.

use super::StepContext;
use crate::PolicyStatusUpdate;
use crate::api::{Condition, group_path};
use crate::outcome::Outcome;

/// Writes the status. A condition without a time gets the current one.
pub async fn write_policy_status(context: &StepContext<'_>, request: &PolicyStatusUpdate) -> Outcome {
    let mut status = request.status.clone();
    Condition::set_transition_time(&mut status.conditions, &format!("{:.0}", context.env.clock.wall()));
    let path = group_path(&format!("fencepolicies/{}", request.name));
    context.write_status(&path, (&request.uid, request.rv), &status).await.into()
}
