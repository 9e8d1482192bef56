//! Orders that are ready to be sent: through a transport, or through an object of the cluster.

use std::time::Duration;

use super::objects::{self, ObjectOrder};
use super::orders::{OrderError, Transport};
use super::{StepContext, Target};
use crate::api::{DeviceRef, TargetObject};
use crate::transport::{Answer, DeviceError, Order};

/// An order that is ready to be sent.
pub(super) enum PreparedCall {
    Order(Order),
    Object(Box<(ObjectOrder, TargetObject)>),
}

impl PreparedCall {
    pub(super) fn object(&self) -> Option<&TargetObject> {
        match self {
            Self::Order(_) => None,
            Self::Object(object) => Some(&object.1),
        }
    }

    pub(super) async fn send(self, context: &StepContext<'_>, target: &Target) -> Result<Answer, DeviceError> {
        match self {
            Self::Order(order) => context.checker.send_order(order).await,
            Self::Object(object) => objects::carry_out(context, target, &object.0, &object.1).await,
        }
    }
}

/// Finds the object of the device, if it is one, and limits the timeout to that of the attempt.
pub(super) async fn prepare(
    context: &StepContext<'_>,
    target: &Target,
    device: &DeviceRef,
    transport: Transport,
    within: Duration,
) -> Result<PreparedCall, OrderError> {
    match transport {
        Transport::Order(order) => {
            let within = order.within.min(within);
            Ok(PreparedCall::Order(Order { within, ..order }))
        }
        Transport::Object(order) => {
            let within = order.within.min(within);
            let order = ObjectOrder { within, ..*order };
            let mut recorded = target.status.attempts.iter().rev().flat_map(|attempt| &attempt.objects);
            // An object that an earlier attempt recorded is used again: its Machine may be gone by now.
            let object = match recorded.find(|object| object.device == *device) {
                Some(object) => object.clone(),
                None => objects::resolve(&context.checker, &order, target)
                    .await
                    .map_err(|source| OrderError::Object { device: device.clone(), source: Box::new(source) })?,
            };
            Ok(PreparedCall::Object(Box::new((order, object))))
        }
    }
}
