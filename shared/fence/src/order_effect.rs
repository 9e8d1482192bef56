//! What shows that an order had an effect, for devices that call more than one state off: that the machine was on when the order was sent,
//! or that the device accepted the order, whatever state it had reported.
//!
//! Without it two status checks that report off may show only the state before the order: a machine that is suspended
//! and continues later, a management controller that was reset and does not know the state yet, or the status of an
//! object whose operator is down. That a machine was on at an earlier attempt excludes the first and the last of them.
//! A controller may have been reset since, or by what lost its answer: of its attempts only the last one counts, and
//! only if the order did not fail.

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
        orders.iter().filter(|(_, order)| order.receiver().may_be_reset()).map(|(device, _)| device).collect();
    for attempt in attempts {
        attempt.met.retain(|device| !reset.contains(&device));
    }
}

/// What an order reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiver {
    /// A management controller, by our own client, which sends the order whatever state the controller reports.
    Controller,
    /// A management controller, by its agent.
    ControllerByAgent,
    /// Another agent.
    Agent,
    /// An object of the cluster.
    Object,
}

/// What the answer to an `off` order shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderEffect {
    /// The device accepted the order, whatever state it had reported.
    Accepted,
    /// No order reached this machine, or a device that may have been reset failed: an off that it reports is no effect
    /// of the order.
    Denied,
    /// Nothing.
    Unclear,
}

impl Receiver {
    /// Whether the device may report off after it was reset.
    const fn may_be_reset(self) -> bool {
        matches!(self, Self::Controller | Self::ControllerByAgent)
    }

    pub(super) fn effect(self, answer: &Result<Answer, DeviceError>) -> OrderEffect {
        match (self, answer) {
            (_, Ok(Answer { identity: Identity::Mismatch { .. }, .. })) => OrderEffect::Denied,
            (Self::Controller, Ok(_)) => OrderEffect::Accepted,
            // The agent found the machine off, and sent nothing.
            (Self::ControllerByAgent | Self::Agent, Ok(Answer { power: Power::Off, .. })) => OrderEffect::Denied,
            (receiver, Err(_)) if receiver.may_be_reset() => OrderEffect::Denied,
            (_, Ok(_) | Err(_)) => OrderEffect::Unclear,
        }
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
            "it says off, which no order explains: it was not seen on before, or did not confirm the order. It calls {what}. Check the machine: {}",
            check.sample.said
        );
    }
    check
}

impl PreparedCall {
    pub(super) fn receiver(&self) -> Receiver {
        match self {
            Self::Order(order) => match &order.driver {
                Driver::Redfish => Receiver::Controller,
                Driver::Agent(agent) if **agent == *FENCE_REDFISH => Receiver::ControllerByAgent,
                Driver::Agent(_) => Receiver::Agent,
            },
            Self::Object(_) => Receiver::Object,
        }
    }
}
