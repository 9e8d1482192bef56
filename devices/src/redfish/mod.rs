//! # Redfish
//!
//! **Duty.** Switch a machine by its management controller, and say with every look which machine that is.
//!
//! **Inputs.** An [`Order`] with the parameters of [`parameters`].
//!
//! | file | subject |
//! |---|---|
//! | [`parameters`] | what may be said about a service, checked before anything is sent |
//! | [`trust`] | whose certificate is believed |
//! | [`link`] | one connection: requests, answers, limits |
//! | [`service`] | requests with a login, and refusals as errors |
//! | [`system`] | what a service says of one machine |
//! | [`identity`] | whether that is the machine that it is taken for |
//!
//! **Invariants.** Only `ForceOff` and `On` are ever asked for. It is read before it is switched: who is off already
//! is left alone, and so is a machine that is found to be another. Where a service has several systems, nobody
//! guesses which. Redirections to other places are not followed: they would carry the login away.

mod identity;
mod link;
mod parameters;
mod service;
mod system;
mod trust;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use pod_safety_clock::Env;
use pod_safety_transport::{Act, Answer, DeviceError, Identity, Order, Power, Value};

use crate::said::Redactor;
use parameters::Parameters;
use service::Service;
use system::System;

/// Between two looks at a machine on its way.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a machine is watched on its way to what it was told. Then whoever asked looks on for himself.
const SETTLES_WITHIN: Duration = Duration::from_secs(15);

/// See [`FenceTransport::check`](pod_safety_transport::FenceTransport::check).
pub(crate) fn check(parameters: &BTreeMap<String, Value>) -> Result<(), DeviceError> {
    parameters::check(parameters)
}

/// See [`FenceTransport::carry_out`](pod_safety_transport::FenceTransport::carry_out).
pub(crate) async fn carry_out(env: &Env, order: &Order) -> Result<Answer, DeviceError> {
    let deadline = env.now() + order.within;
    let parameters = Parameters::read(&order.parameters)?;
    let redactor = Redactor::new(&order.parameters);
    let work = async {
        let mut service = Service::open(env, &parameters).await?;
        let answer = act(env, &mut service, &parameters, order).await;
        // Services have room for few sessions; one that is not ended lives for half an hour.
        service.close().await;
        answer
    };
    let answer =
        env.until(deadline, work).await.unwrap_or(Err(DeviceError::TimedOut { after: order.within }));
    redactor.answer(answer)
}

async fn act(
    env: &Env,
    service: &mut Service<'_>,
    parameters: &Parameters,
    order: &Order,
) -> Result<Answer, DeviceError> {
    let path = system::path(service, parameters).await?;
    let system = System::read(service, &path).await?;
    let identity = system.identity(&order.machine);
    let goal = match order.act {
        Act::Look => return Ok(answer(&system, identity)),
        Act::Off => Power::Off,
        Act::On => Power::On,
    };
    match identity {
        // Danger note: a stranger's machine. Whoever gave the order finds out by the answer.
        Identity::Mismatch { .. } => return Ok(answer(&system, identity)),
        Identity::Match | Identity::Unknown => {}
    }
    if system.power() == goal {
        return Ok(answer(&system, identity));
    }
    system.reset(service, goal).await?;
    let watched_until = env.now() + SETTLES_WITHIN;
    loop {
        let system = System::read(service, &path).await?;
        if system.power() == goal || env.now() >= watched_until {
            let identity = system.identity(&order.machine);
            return Ok(answer(&system, identity));
        }
        env.sleep(PAUSE).await;
    }
}

fn answer(system: &System, identity: Identity) -> Answer {
    Answer::new(system.power(), identity, system.said())
}
