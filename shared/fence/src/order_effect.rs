//! The second fact about devices that call more than one state off: that the order met a machine that was on, or that the device took
//! the order, whatever it had reported.
//!
//! Without it two looks that say off show only what was so before anything was ordered: a machine that is suspended and continues
//! later, or a management controller that was reset and does not know yet.

use super::incident::still_lost;
use super::prepare::PreparedCall;
use super::render::NodeFacts;
use super::status_check::StatusCheck;
use super::{StepContext, Target};
use crate::api::{Attempt, DeviceRef, IdentityMatch, Power};
use crate::outcome::Outcome;
use crate::transport::{Answer, DeviceError, Identity};

/// Which of these devices, all of them in doubt, report the machine on. One that does not answer is ordered all the same. The node
/// must be lost afterwards as before.
pub(super) async fn find_powered_on(
    context: &StepContext<'_>,
    target: &Target,
    in_doubt: &[DeviceRef],
    facts: &NodeFacts,
) -> Result<Vec<DeviceRef>, Outcome> {
    let checks = context.while_leading(context.checker.check_devices(in_doubt, facts, &[])).await?;
    still_lost(context, &target.spec).await?;
    let on = checks.into_iter().map(|looked| looked.sample);
    Ok(on
        .filter(|sample| sample.power == Power::On && sample.identity != IdentityMatch::Mismatch)
        .map(|on| on.device)
        .collect())
}

/// Whether a device that was ordered off took the order. Agents say that they did of a machine that they take for off, and order
/// nothing.
pub(super) fn is_order_accepted(is_order_sent_always: bool, answer: &Result<Answer, DeviceError>) -> bool {
    let right = |answer: &Answer| !matches!(answer.identity, Identity::Mismatch { .. });
    is_order_sent_always && answer.as_ref().is_ok_and(right)
}

/// Takes back what a device in doubt says of a machine that none of these attempts met.
pub(super) fn discount_unconfirmed_off(mut check: StatusCheck, attempts: &[Attempt]) -> StatusCheck {
    let is_met = attempts.iter().any(|attempt| attempt.met.contains(&check.sample.device));
    if let Some(what) = check.off_ambiguity.filter(|_| check.sample.power == Power::Off && !is_met) {
        check.sample.power = Power::Unknown;
        check.sample.said = format!(
            "it says off, but was not seen on before, and it calls {what}. Check the machine: {}",
            check.sample.said
        );
    }
    check
}

impl PreparedCall {
    /// Whether its driver sends the order whatever the device reports.
    pub(super) fn is_order_sent_always(&self) -> bool {
        matches!(self, Self::Order(order) if order.driver == crate::transport::Driver::Redfish)
    }
}
