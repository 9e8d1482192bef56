//! The status of a FencePolicy, written at the version from which it was decided.

use super::Acting;
use crate::PolicyReview;
use crate::api::{Condition, group_path};
use crate::outcome::Outcome;

/// Writes it. Conditions without a time began now.
pub async fn review(acting: &Acting<'_>, wish: &PolicyReview) -> Outcome {
    let mut status = wish.status.clone();
    Condition::begin(&mut status.conditions, &format!("{:.0}", acting.env.clock.wall()));
    let path = group_path(&format!("fencepolicies/{}", wish.name));
    match acting.write_status(&path, (&wish.uid, wish.rv), &status).await {
        Ok(()) => Outcome::Written,
        Err(outcome) => outcome,
    }
}
