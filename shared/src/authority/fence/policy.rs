//! The status of a FencePolicy, written at the version from which it was decided.

use serde_json::json;

use super::step::Acting;
use crate::api::group_path;
use crate::authority::act::Outcome;
use crate::authority::claim::PolicyReview;
use crate::client::{Call, Method};

/// Writes it. Conditions without a time began now.
pub(in crate::authority) async fn review(acting: &Acting<'_>, wish: &PolicyReview) -> Outcome {
    let mut status = wish.status.clone();
    let now = format!("{:.0}", acting.env.clock.wall());
    for condition in status.conditions.iter_mut().filter(|one| one.last_transition_time.is_empty()) {
        condition.last_transition_time.clone_from(&now);
    }
    let meta = json!({ "uid": wish.uid, "resourceVersion": wish.rv });
    let body = json!({ "metadata": meta, "status": status });
    let path = group_path(&format!("fencepolicies/{}/status", wish.name));
    match acting.send(Call::write(Method::Merge, path, &body)).await {
        Ok(_) => Outcome::Written,
        Err(outcome) => outcome,
    }
}
