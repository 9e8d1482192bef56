//! What shows that an order had an effect, for devices that call more than one state off: that the machine was on when the order was sent,
//! or that the device accepted the order, whatever state it had reported.
//!
//! Without it two status checks that report off may show only the state before the order: a machine that is suspended
//! and continues later, or a management controller that was reset and does not know the state yet.

use super::incident::still_lost;
use super::prepare::PreparedCall;
use super::render::NodeFacts;
use super::status_check::StatusCheck;
use super::{StepContext, Target};
use crate::api::{Attempt, DeviceRef, IdentityMatch, Power};
use crate::outcome::Outcome;
use crate::transport::{Answer, DeviceError, Identity};

/// Which of these devices, whose off is ambiguous, report the machine on. A device that does not answer gets its
/// order all the same. The node must still be lost afterwards.
pub(super) async fn find_powered_on(
    context: &StepContext<'_>,
    target: &Target,
    in_doubt: &[DeviceRef],
    facts: &NodeFacts,
) -> Result<Vec<DeviceRef>, Outcome> {
    let checks = context.while_leading(context.checker.check_devices(in_doubt, facts, &[])).await?;
    still_lost(context, &target.spec).await?;
    let on = checks.into_iter().map(|check| check.sample);
    Ok(on
        .filter(|sample| sample.power == Power::On && sample.identity != IdentityMatch::Mismatch)
        .map(|on| on.device)
        .collect())
}

/// Whether a device that got an `off` order accepted it. Fence agents report success for a machine that they consider
/// off, and send nothing.
pub(super) fn is_order_accepted(is_order_sent_always: bool, answer: &Result<Answer, DeviceError>) -> bool {
    let is_right_machine = |answer: &Answer| !matches!(answer.identity, Identity::Mismatch { .. });
    is_order_sent_always && answer.as_ref().is_ok_and(is_right_machine)
}

/// Discounts an ambiguous off of a device for which none of these attempts recorded an effect.
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
    /// Whether the driver sends the order whatever state the device reports.
    pub(super) fn is_order_sent_always(&self) -> bool {
        matches!(self, Self::Order(order) if order.driver == crate::transport::Driver::Redfish)
    }
}
