//! What shows that an order had an effect, for devices that call more than one state off: that the machine was on when the order was sent,
//! or that the device accepted the order, whatever state it had reported.
//!
//! Without it two status checks that report off may show only the state before the order: a machine that is suspended
//! and continues later, a management controller that was reset and does not know the state yet, or the status of an
//! object whose operator is down. That a machine was on at an earlier attempt excludes the first and the last of them. A
//! controller may have been reset since, so of its attempts only the last one counts, and that one only unless the
//! controller refused the order or failed.

use super::incident::still_lost;
use super::prepare::PreparedCall;
use super::render::NodeFacts;
use super::status_check::StatusCheck;
use super::{StepContext, Target};
use crate::api::{Attempt, DeviceRef, IdentityMatch, Power, TargetObject};
use crate::outcome::Outcome;
use crate::transport::{Answer, DeviceError, Driver, Identity};

/// The agent that is a client of management controllers, as the driver `Redfish` is.
const FENCE_REDFISH: &str = "fence_redfish";

/// Which of these devices, whose off is ambiguous, report the machine on. `objects`: the objects that some of them act
/// through. A device that does not answer gets its order all the same. The node must still be lost afterwards.
pub(super) async fn find_powered_on(
    context: &StepContext<'_>,
    target: &Target,
    in_doubt: &[DeviceRef],
    facts: &NodeFacts,
    objects: &[TargetObject],
) -> Result<Vec<DeviceRef>, Outcome> {
    let checks = context.while_leading(context.checker.check_devices(in_doubt, facts, objects)).await?;
    still_lost(context, &target.spec).await?;
    let on = checks.into_iter().map(|check| check.sample);
    Ok(on
        .filter(|sample| sample.power == Power::On && sample.identity != IdentityMatch::Mismatch)
        .map(|on| on.device)
        .collect())
}

/// Removes from these attempts the devices that may have been reset since.
pub(super) fn forget_earlier(attempts: &mut [Attempt], orders: &[(DeviceRef, PreparedCall)]) {
    let reset: Vec<_> =
        orders.iter().filter(|(_, order)| order.traits().may_be_reset).map(|(device, _)| device).collect();
    for attempt in attempts {
        attempt.met.retain(|device| !reset.contains(&device));
    }
}

/// What decides whether an order to a device had an effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceTraits {
    /// The driver sends the order whatever state the device reports. Fence agents report success for a machine that
    /// they consider off, and send nothing.
    sends_always: bool,
    /// The device is a management controller, which may report off after it was reset.
    may_be_reset: bool,
}

/// What the answer to an `off` order shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderEffect {
    /// The device accepted the order, whatever state it had reported.
    Accepted,
    /// A device that may have been reset refused the order, or failed: an off that it reports is no effect of it.
    Denied,
    /// Nothing.
    Unclear,
}

impl DeviceTraits {
    pub(super) fn effect(self, answer: &Result<Answer, DeviceError>) -> OrderEffect {
        match answer {
            Ok(answer) if self.sends_always && !matches!(answer.identity, Identity::Mismatch { .. }) => {
                OrderEffect::Accepted
            }
            Err(error) if self.may_be_reset && !is_answer_lost(error) => OrderEffect::Denied,
            Ok(_) | Err(_) => OrderEffect::Unclear,
        }
    }
}

/// Whether the device may have carried out the order, although its answer is missing or unintelligible.
const fn is_answer_lost(error: &DeviceError) -> bool {
    match error {
        DeviceError::AgentsUnavailable { .. }
        | DeviceError::Unreachable { .. }
        | DeviceError::TimedOut { .. }
        | DeviceError::Garbage { .. } => true,
        DeviceError::NoAgent { .. }
        | DeviceError::Metadata { .. }
        | DeviceError::Parameter { .. }
        | DeviceError::Login { .. }
        | DeviceError::Expired { .. }
        | DeviceError::Throttled { .. }
        | DeviceError::Refused { .. }
        | DeviceError::Tls { .. }
        | DeviceError::Failed { .. } => false,
    }
}

/// Adds the effects of an `off` order to the devices that met the machine on.
pub(super) fn record_effects(met: &mut Vec<DeviceRef>, effects: Vec<(DeviceRef, OrderEffect)>) {
    for (device, effect) in effects {
        match effect {
            OrderEffect::Accepted if !met.contains(&device) => met.push(device),
            OrderEffect::Denied => met.retain(|one| *one != device),
            OrderEffect::Accepted | OrderEffect::Unclear => {}
        }
    }
}

/// Discounts an ambiguous off of a device for which none of these attempts recorded an effect.
pub(super) fn discount_unconfirmed_off(mut check: StatusCheck, attempts: &[Attempt]) -> StatusCheck {
    let is_met = attempts.iter().any(|attempt| attempt.met.contains(&check.sample.device));
    if let Some(what) = check.off_ambiguity.filter(|_| check.sample.power == Power::Off && !is_met) {
        check.sample.power = Power::Unknown;
        check.sample.said = format!(
            "it says off, which no order explains: it was not seen on before, or refused the order. It calls {what}. Check the machine: {}",
            check.sample.said
        );
    }
    check
}

impl PreparedCall {
    pub(super) fn traits(&self) -> DeviceTraits {
        match self {
            Self::Order(order) => match &order.driver {
                Driver::Redfish => DeviceTraits { sends_always: true, may_be_reset: true },
                Driver::Agent(agent) => DeviceTraits { sends_always: false, may_be_reset: **agent == *FENCE_REDFISH },
            },
            Self::Object(_) => DeviceTraits { sends_always: false, may_be_reset: false },
        }
    }
}
