//! Looks at devices: what they answer, as samples.

use std::time::Duration;

use super::judge::Seen;
use super::looker::Looker;
use super::objects::{self, ObjectOrder};
use super::orders::{OrderError, Ready, Way};
use super::render::Facts;
use crate::api::{
    ActedOn, Corroborated, DeviceRef, IdentityCheck, Incarnation, KindOfEvidence, Sample, proved_by,
};
use crate::clock::Mono;
use crate::transport::{Act, Answer, DeviceError, Identity, Order, Power};

impl Looker<'_> {
    /// One look at each device, all at once. `objects`: those that were written down for them.
    pub(super) async fn look(
        &self,
        devices: &[DeviceRef],
        facts: &Facts,
        objects: &[ActedOn],
    ) -> Vec<Looked> {
        let looks = devices.iter().map(|device| async move {
            let object = objects.iter().find(|object| object.device == *device);
            self.answer(device, self.reader.order(device, facts, Act::Look).await, Known::Written(object))
                .await
        });
        futures::future::join_all(looks).await
    }

    /// What a device answers to an order, or why there is none.
    pub(super) async fn answer(
        &self,
        device: &DeviceRef,
        ready: Result<Ready, OrderError>,
        known: Known<'_>,
    ) -> Looked {
        let began = self.env.now();
        let doubt = ready.as_ref().ok().and_then(Ready::doubt);
        let (check, driver, instance, answer) = match ready {
            Ok(Ready { driver, check, instance, way }) => {
                let answer = match way {
                    Way::Order(order) => self.ask(order).await,
                    Way::Object(order) => self.look_at_object(&order, known).await,
                };
                let answer = answer.map(|answer| of_this_instance(answer, instance.as_deref()));
                let answer = answer.map_err(|error| (error.category(), error.to_string()));
                (check, Some(driver), instance.unwrap_or_default(), answer)
            }
            Err(error) => {
                let said = (error.category(), crate::record::error_chain(&error));
                (IdentityCheck::Required, None, String::new(), Err(said))
            }
        };
        let waited = answer.as_ref().map_or(Duration::ZERO, |answer| answer.asked_after);
        // It was not asked later than now, whatever the answer says.
        let asked_at = began + waited.min(self.env.now().since(began));
        let problem = answer.as_ref().err().map(|(problem, _)| *problem);
        let answer = answer.map_err(|(_, said)| said);
        let at = format!("{:.3}", self.env.clock.wall());
        let object = match known {
            Known::Written(object) => object.cloned(),
            Known::Nothing => None,
        };
        let sample = Sample { driver, object, instance, ..sample(device, at, answer) };
        Looked { check, doubt, problem, sample, asked_at }
    }

    async fn look_at_object(&self, order: &ObjectOrder, known: Known<'_>) -> Result<Answer, DeviceError> {
        let object = match known {
            Known::Written(Some(object)) => Some(object),
            Known::Nothing => None,
            Known::Written(None) => {
                let said = "no object was recorded when it was asked".to_owned();
                return Err(DeviceError::Failed { said });
            }
        };
        let looked = objects::look(self, order, object);
        let ends = self.env.now() + order.within + LATE;
        self.env.until(ends, looked).await.unwrap_or(Err(DeviceError::TimedOut { after: order.within }))
    }

    /// The transport keeps to the time of an order; if it does not, it is left.
    pub(super) async fn ask(&self, order: Order) -> Result<Answer, DeviceError> {
        let within = order.within;
        let asked = self.transport.carry_out(order);
        let ends = self.env.now() + within + LATE;
        self.env.until(ends, asked).await.unwrap_or(Err(DeviceError::TimedOut { after: within }))
    }

    /// What the devices of these samples show now, if every one says off: for the moment of a release. With the time that this is
    /// not older than.
    pub(crate) async fn all_off(
        &self,
        node: &Incarnation,
        samples: &[Sample],
        corroborated: &[Corroborated],
    ) -> Result<(KindOfEvidence, Mono), String> {
        let began = self.env.now();
        let facts = self.reader.facts(node).await.map_err(|error| crate::record::error_chain(&error))?;
        let devices: std::collections::BTreeSet<_> =
            samples.iter().map(|sample| sample.device.clone()).collect();
        let devices: Vec<_> = devices.into_iter().collect();
        let objects: Vec<_> = samples.iter().filter_map(|sample| sample.object.clone()).collect();
        let looks = self.look(&devices, &facts, &objects);
        let (looks, borne_out) =
            futures::future::join(looks, Box::pin(self.still_corroborated(corroborated, &node.name))).await;
        let asked_at = looks.iter().map(|looked| looked.asked_at).min();
        // Second facts are as old as all of this.
        let asked_at = asked_at.filter(|_| corroborated.is_empty()).unwrap_or(began);
        let seen: Vec<_> = looks
            .into_iter()
            .map(|Looked { check, sample, .. }| Seen { check, samples: vec![sample.clone(), sample] })
            .collect();
        let verified = super::judge::judge(Act::Off, &seen, None);
        if verified.power != Power::Off {
            return Err(verified.message);
        }
        borne_out.map(|()| (proved_by(&verified.samples), asked_at))
    }
}

/// That an instance is terminated says something of the node's machine only where its providerID alone named the instance: a name
/// that a person wrote may be that of the machine which had the node's name before.
fn of_this_instance(answer: Answer, instance: Option<&str>) -> Answer {
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

/// What is known of the object by which a device acts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known<'a> {
    /// What was written down when it was asked.
    Written(Option<&'a ActedOn>),
    /// Nobody asked it for anything: it is only looked through.
    Nothing,
}

/// One look.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) check: IdentityCheck,
    /// What else the device calls off.
    pub(super) doubt: Option<&'static str>,
    /// Why there is no answer, in one word.
    pub(super) problem: Option<&'static str>,
    /// What it shows is not older.
    pub(super) asked_at: Mono,
    pub(super) sample: Sample,
}

/// What a transport is given beyond its time to say that it is over.
pub(super) const LATE: Duration = Duration::from_secs(1);

fn sample(device: &DeviceRef, at: String, answer: Result<Answer, String>) -> Sample {
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
