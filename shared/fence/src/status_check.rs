//! Status checks of devices: what they answer, as samples.

use std::time::Duration;

use super::aggregate::DeviceSamples;
use super::objects::{self, ObjectOrder};
use super::orders::{OrderError, ReadyDevice, Transport};
use super::render::NodeFacts;
use super::status_checker::StatusChecker;
use crate::api::{
    Corroborated, DeviceRef, FenceEvidenceKind, IdentityCheck, Incarnation, Sample, TargetObject, evidence_kind_of,
};
use crate::clock::Mono;
use crate::transport::{Act, Answer, DeviceError, Identity, Order, Power};

impl StatusChecker<'_> {
    /// Checks each device once, all concurrently. `objects`: the objects that the attempt recorded for them.
    pub(super) async fn check_devices(
        &self,
        devices: &[DeviceRef],
        facts: &NodeFacts,
        objects: &[TargetObject],
    ) -> Vec<StatusCheck> {
        let checks = devices.iter().map(|device| async move {
            let object = objects.iter().find(|object| object.device == *device);
            self.check_device(
                device,
                self.reader.prepare_order(device, facts, Act::Look).await,
                ObjectSource::Recorded(object),
            )
            .await
        });
        futures::future::join_all(checks).await
    }

    /// Sends a device's order and returns its answer as a sample, or why there is no order.
    pub(super) async fn check_device(
        &self,
        device: &DeviceRef,
        ready: Result<ReadyDevice, OrderError>,
        recorded: ObjectSource<'_>,
    ) -> StatusCheck {
        let began = self.env.now();
        let off_ambiguity = ready.as_ref().ok().and_then(ReadyDevice::off_ambiguity);
        let (check, driver, instance, answer) = match ready {
            Ok(ReadyDevice { driver, check, instance, transport }) => {
                let answer = match transport {
                    Transport::Order(order) => self.send_order(order).await,
                    Transport::Object(order) => self.check_object(&order, recorded).await,
                };
                let answer = answer.map(|answer| require_instance_id(answer, instance.as_deref()));
                let answer = answer.map_err(|error| (error.category(), error.to_string()));
                (check, Some(driver), instance.unwrap_or_default(), answer)
            }
            Err(error) => {
                let failure = (error.category(), crate::record::error_chain(&error));
                (IdentityCheck::Required, None, String::new(), Err(failure))
            }
        };
        let waited = answer.as_ref().map_or(Duration::ZERO, |answer| answer.asked_after);
        // The device was not queried later than now, whatever the answer states.
        let requested_at = began + waited.min(self.env.now().since(began));
        let problem = answer.as_ref().err().map(|(problem, _)| *problem);
        let answer = answer.map_err(|(_, message)| message);
        let at = format!("{:.3}", self.env.clock.wall());
        let object = match recorded {
            ObjectSource::Recorded(object) => object.cloned(),
            ObjectSource::MonitorOnly => None,
        };
        let sample = Sample { driver, object, instance, ..to_sample(device, at, answer) };
        StatusCheck { check, off_ambiguity, problem, sample, requested_at }
    }

    async fn check_object(&self, order: &ObjectOrder, recorded: ObjectSource<'_>) -> Result<Answer, DeviceError> {
        let object = match recorded {
            ObjectSource::Recorded(Some(object)) => Some(object),
            ObjectSource::MonitorOnly => None,
            ObjectSource::Recorded(None) => {
                let said = "no object was recorded when it was asked".to_owned();
                return Err(DeviceError::Failed { said });
            }
        };
        let check = objects::check_status(self, order, object);
        let ends = self.env.now() + order.within + ORDER_GRACE;
        self.env.timeout_at(ends, check).await.unwrap_or(Err(DeviceError::TimedOut { after: order.within }))
    }

    /// Sends an order. The transport should observe its timeout; one that does not is abandoned.
    pub(super) async fn send_order(&self, order: Order) -> Result<Answer, DeviceError> {
        let within = order.within;
        let answer = self.transport.carry_out(order);
        let ends = self.env.now() + within + ORDER_GRACE;
        self.env.timeout_at(ends, answer).await.unwrap_or(Err(DeviceError::TimedOut { after: within }))
    }

    /// What the devices of these samples report now, if each reports off: for the moment of a force delete. With the
    /// time of the oldest query.
    pub(crate) async fn confirm_all_off(
        &self,
        node: &Incarnation,
        samples: &[Sample],
        corroborated: &[Corroborated],
    ) -> Result<(FenceEvidenceKind, Mono), String> {
        let began = self.env.now();
        let facts = self.reader.read_facts(node).await.map_err(|error| crate::record::error_chain(&error))?;
        let devices: std::collections::BTreeSet<_> = samples.iter().map(|sample| sample.device.clone()).collect();
        let devices: Vec<_> = devices.into_iter().collect();
        let objects: Vec<_> = samples.iter().filter_map(|sample| sample.object.clone()).collect();
        let checks = self.check_devices(&devices, &facts, &objects);
        let (checks, corroboration) =
            futures::future::join(checks, Box::pin(self.recheck_corroboration(corroborated, &node.name))).await;
        let requested_at = checks.iter().map(|check| check.requested_at).min();
        // Second facts may be as old as the whole check.
        let requested_at = requested_at.filter(|_| corroborated.is_empty()).unwrap_or(began);
        let device_samples: Vec<_> = checks
            .into_iter()
            .map(|StatusCheck { check, sample, .. }| DeviceSamples { check, samples: vec![sample.clone(), sample] })
            .collect();
        let verified = super::aggregate::aggregate_samples(Act::Off, &device_samples, None);
        if verified.power != Power::Off {
            return Err(verified.message);
        }
        corroboration.map(|()| (evidence_kind_of(&verified.samples), requested_at))
    }
}

/// A terminated instance is evidence about the node's machine only where the instance was named by its providerID
/// alone: a name that an operator wrote may be that of the machine which had the node's name before.
fn require_instance_id(answer: Answer, instance: Option<&str>) -> Answer {
    match (answer.power, instance) {
        (Power::Gone, None) => Answer {
            power: Power::Unknown,
            said: "the instance is terminated, which counts only where the parameters name it by .Instance.ID: it may be that of an earlier node"
                .to_owned(),
            ..answer
        },
        (Power::On | Power::Off | Power::Unknown | Power::Gone, _) => answer,
    }
}

/// The object through which a device acts, as far as it is recorded.
#[derive(Clone, Copy, Debug)]
pub(super) enum ObjectSource<'a> {
    /// The object that the attempt recorded when the order was sent.
    Recorded(Option<&'a TargetObject>),
    /// No order was sent: the device is only monitored.
    MonitorOnly,
}

/// One status check of one device.
#[derive(Debug)]
pub(super) struct StatusCheck {
    pub(super) check: IdentityCheck,
    /// Which other state the device reports as off.
    pub(super) off_ambiguity: Option<&'static str>,
    /// Why there is no answer, as a category.
    pub(super) problem: Option<&'static str>,
    /// The answer is not older than this.
    pub(super) requested_at: Mono,
    pub(super) sample: Sample,
}

/// The extra time in which a transport may report that its own timeout is over.
pub(super) const ORDER_GRACE: Duration = Duration::from_secs(1);

fn to_sample(device: &DeviceRef, at: String, answer: Result<Answer, String>) -> Sample {
    let device = device.clone();
    match answer {
        Ok(Answer { power, identity, said, .. }) => Sample {
            device,
            at,
            power,
            identity: (&identity).into(),
            said: match identity {
                Identity::Mismatch { found } => found,
                Identity::Match | Identity::Unknown => said,
            },
            ..Sample::default()
        },
        Err(said) => Sample { device, at, said, ..Sample::default() },
    }
}
