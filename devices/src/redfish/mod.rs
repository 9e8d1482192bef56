//! # Redfish
//!
//! **Duty.** Switch a machine through its management controller, and report with every status check which machine it
//! is.
//!
//! **Inputs.** An [`Order`] with the parameters of [`parameters`].
//!
//! | file | subject |
//! |---|---|
//! | | [`parameters`] | the parameters of a service, checked before anything is sent |
//! | | [`trust`] | which certificates are trusted |
//! | [`connection`] | one connection: requests, answers, limits |
//! | | [`handshake`] | why a TLS handshake failed |
//! | [`service`] | requests with a login, and refusals as errors |
//! | | [`resource_path`] | the targets of links and redirections |
//! | | [`refusal`] | the messages of a refusal |
//! | | [`lenient`] | members of a wrong type count as missing |
//! | | [`system`] | the state of one machine |
//! | | [`identity`] | whether it is the node's machine |
//!
//! **Invariants.** Only `ForceOff` and `On` are ever sent. The machine is read before it is switched: a machine with
//! another identity is not switched. `ForceOff` is sent whatever power the service reports: a controller that was
//! reset reports `Off` for a host that runs. If a service has several systems, none is chosen. Redirections to other
//! hosts are not followed: they would get the login. A session ends within the timeout of its order.

mod connection;
mod handshake;
mod identity;
mod lenient;
mod parameters;
mod refusal;
mod resource_path;
mod service;
mod system;
mod trust;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use pod_safety_clock::{Env, Mono};
use pod_safety_transport::{Act, Answer, DeviceError, Identity, Order, Power, Value};

use crate::redact::Redactor;
use parameters::{Auth, Parameters};
use service::Service;
use system::System;

/// Between two reads of a machine that changes its state.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a machine is read until it has reached the requested state. Later status checks are up to the caller.
const SETTLES_WITHIN: Duration = Duration::from_secs(15);

/// How long the end of a session may take, and how much of an order's timeout is reserved for it; at most a quarter of
/// the timeout. A small controller needs a second for a handshake and another one for the request. Some controllers do
/// not answer the request. The answer to the order ages meanwhile, and a release needs one younger than ten seconds.
/// docs/assumptions.md: no-boot-in-ten-seconds
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// See [`FenceTransport::check`](pod_safety_transport::FenceTransport::check).
pub(crate) fn check(parameters: &BTreeMap<String, Value>) -> Result<(), DeviceError> {
    parameters::check(parameters)
}

/// See [`FenceTransport::carry_out`](pod_safety_transport::FenceTransport::carry_out).
pub(crate) async fn carry_out(env: &Env, order: &Order) -> Result<Answer, DeviceError> {
    let began = env.now();
    let deadline = began + order.within;
    let parameters = Parameters::read(&order.parameters)?;
    let redactor = Redactor::new(&order.parameters);
    let has_session = parameters.login.as_ref().is_some_and(|login| login.auth == Auth::Session);
    let kept = if has_session { ENDS_WITHIN.min(order.within / 4) } else { Duration::ZERO };
    let mut service = match Service::new(env, &parameters) {
        Ok(service) => service,
        Err(error) => return redactor.redact_answer(Err(error)),
    };
    let work = async {
        service.open().await?;
        execute(env, &mut service, &parameters, order, began).await
    };
    let answer = env.timeout_at(env.now() + order.within.saturating_sub(kept), work).await;
    // Services have room for few sessions; one that is not ended lasts for half an hour.
    env.timeout_at(deadline.min(env.now() + kept), service.close()).await;
    redactor.redact_answer(answer.unwrap_or(Err(DeviceError::TimedOut { after: order.within })))
}

/// `began`: when the order was given.
async fn execute(
    env: &Env,
    service: &mut Service<'_>,
    parameters: &Parameters,
    order: &Order,
    began: Mono,
) -> Result<Answer, DeviceError> {
    let path = system::resolve_path(service, parameters).await?;
    // Neither the login nor the list of the systems makes the state older.
    let asked_after = env.now().since(began);
    let system = System::read(service, &path).await?;
    let answer = to_answer(&system, order, asked_after);
    let goal = match order.act {
        Act::Look => return Ok(answer),
        Act::Off => Power::Off,
        Act::On => Power::On,
    };
    match answer.identity {
        // Danger note: another machine. The caller is informed by the answer.
        Identity::Mismatch { .. } => return Ok(answer),
        Identity::Match | Identity::Unknown => {}
    }
    if goal == Power::On && system.power() == goal {
        return Ok(answer);
    }
    match system.reset(service, goal).await {
        Err(DeviceError::Failed { said }) if system.power() == goal => {
            system.confirm_off_by_chassis(service, &said).await?;
            return Ok(answer);
        }
        result => result?,
    }
    let watched_until = env.now() + SETTLES_WITHIN;
    loop {
        let asked_after = env.now().since(began);
        let system = System::read(service, &path).await?;
        if system.power() == goal || env.now() >= watched_until {
            return Ok(to_answer(&system, order, asked_after));
        }
        env.sleep(PAUSE).await;
    }
}

fn to_answer(system: &System, order: &Order, asked_after: Duration) -> Answer {
    let identity = system.identity(&order.machine);
    Answer { asked_after, ..Answer::new(system.power(), identity, system.describe()) }
}
