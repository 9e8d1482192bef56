//! A device that is about to be asked: by a transport, or by an object of the cluster.

use std::time::Duration;

use super::objects::{self, ObjectOrder};
use super::orders::{OrderError, Way};
use super::{Acting, Target};
use crate::api::{ActedOn, DeviceRef};
use crate::transport::{Answer, DeviceError, Order};

/// A device that is about to be asked.
pub(super) enum Asked {
    Order(Order),
    Object(Box<(ObjectOrder, ActedOn)>),
}

impl Asked {
    pub(super) fn object(&self) -> Option<&ActedOn> {
        match self {
            Self::Order(_) => None,
            Self::Object(object) => Some(&object.1),
        }
    }

    pub(super) async fn ask(self, acting: &Acting<'_>, target: &Target) -> Result<Answer, DeviceError> {
        match self {
            Self::Order(order) => acting.looker.ask(order).await,
            Self::Object(object) => objects::carry_out(acting, target, &object.0, &object.1).await,
        }
    }
}

/// Which object it is, if it is one; and for no longer than the attempt says.
pub(super) async fn asked(
    acting: &Acting<'_>,
    target: &Target,
    device: &DeviceRef,
    way: Way,
    within: Duration,
) -> Result<Asked, OrderError> {
    match way {
        Way::Order(order) => {
            let within = order.within.min(within);
            Ok(Asked::Order(Order { within, ..order }))
        }
        Way::Object(order) => {
            let within = order.within.min(within);
            let order = ObjectOrder { within, ..*order };
            let mut written = target.status.attempts.iter().rev().flat_map(|attempt| &attempt.objects);
            // What was asked before is what is asked again: a Machine may be gone by now.
            let object = match written.find(|object| object.device == *device) {
                Some(object) => object.clone(),
                None => objects::resolve(&acting.looker, &order, target).await.map_err(|source| {
                    OrderError::Object { device: device.clone(), source: Box::new(source) }
                })?,
            };
            Ok(Asked::Object(Box::new((order, object))))
        }
    }
}
