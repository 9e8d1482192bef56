//! Looks at all nodes of a device while nothing is wrong, so that what is wrong with the device shows before the night
//! when it is needed.

use serde_json::json;

use super::Acting;
use super::identity;
use super::looks::{Known, Looked};
use super::objects::Clients;
use super::orders::{Ready, Way, path_of};
use crate::Monitor;
use crate::api::{
    Condition, DeviceDriver, FenceDeviceSpec, FenceDeviceStatus, IdentityCheck, IdentityMatch, Incarnation,
    Power, Sample, TargetStatus,
};
use crate::client::{ApiError, Call, Method, WriteCall as _};
use crate::outcome::Outcome;
use crate::transport::Act;
use crate::wire;

/// So many nodes are looked at in one turn, one after another: a management network is no place for a crowd.
const NODES_MOST: usize = 500;

/// Looks, and writes down what was seen.
pub async fn monitor(acting: &Acting<'_>, wish: &Monitor) -> Outcome {
    match look_through(acting, wish).await {
        Ok(()) => Outcome::Written,
        Err(outcome) => outcome,
    }
}

async fn look_through(acting: &Acting<'_>, wish: &Monitor) -> Result<(), Outcome> {
    let raw = acting.send(Call::get(path_of(&wish.device))).await?;
    let read: wire::Custom<FenceDeviceSpec, FenceDeviceStatus> =
        raw.decode().map_err(|error| Outcome::Failed(ApiError::Undecodable(error)))?;
    if read.metadata.uid.as_deref() != Some(&wish.uid.to_string()) {
        return Err(Outcome::Gone);
    }
    if read.spec.driver == DeviceDriver::Manual {
        let answers = Ok("waiting for a person to run pod-safety confirm-down".to_owned());
        return write(acting, wish, &read, Vec::new(), answers).await;
    }
    let mut targets = Vec::new();
    for node in wish.nodes.iter().take(NODES_MOST) {
        targets.push(acting.while_leading(look_at(acting, wish, node, &read)).await??);
    }
    if !wish.whole {
        let known = read.status.iter().flat_map(|status| &status.targets);
        let others = known.filter(|known| wish.nodes.iter().all(|node| **node != *known.node));
        targets.extend(others.cloned());
        targets.sort_by(|one, other| one.node.cmp(&other.node));
    }
    let answers = conclude(&targets);
    write(acting, wish, &read, targets, answers).await
}

/// What the looks come to; `Err`: what is wrong first, in a word and in words.
fn conclude(targets: &[TargetStatus]) -> Result<String, (String, String)> {
    let wrong = targets.iter().find(|target| !target.message.is_empty());
    match wrong {
        Some(TargetStatus { node, problem, message, .. }) => {
            // Who wrote it may have had no words yet.
            let problem = if problem.is_empty() { "LookFailed" } else { problem };
            Err((problem.to_owned(), format!("node {node}: {message}")))
        }
        None if targets.is_empty() => {
            Err(("NoNodes".to_owned(), "its nodeSelector selects no node".to_owned()))
        }
        None if targets.len() == 1 => Ok("1 node was checked".to_owned()),
        None => Ok(format!("{} nodes were checked", targets.len())),
    }
}

async fn look_at(
    acting: &Acting<'_>,
    wish: &Monitor,
    node: &str,
    read: &wire::Custom<FenceDeviceSpec, FenceDeviceStatus>,
) -> Result<TargetStatus, Outcome> {
    let device = &wish.device;
    let node = Incarnation { name: node.to_owned(), ..Incarnation::default() };
    let facts = acting.looker.reader.facts(&node).await.map_err(Outcome::Failed)?;
    let order = acting.looker.reader.order(device, &facts, Act::Look).await;
    let known = read.status.iter().flat_map(|status| &status.targets).find(|known| known.node == node.name);
    let asked = identity::Asked::by(&read.spec);
    let kept = identity::kept(asked, &facts, known, order.is_ok());
    let checked = match &order {
        Ok(Ready { way: Way::Order(order), .. }) => {
            acting.looker.transport.check(&order.driver, &order.parameters).await.err()
        }
        // The answer says it.
        Ok(Ready { way: Way::Object(_), .. }) | Err(_) => None,
    };
    let clients = match &order {
        Ok(Ready { way: Way::Object(order), .. }) => {
            super::objects::clients(acting.means.connection, order).await
        }
        Ok(Ready { way: Way::Order(_), .. }) | Err(_) => Clients::default(),
    };
    let Looked { check, problem, sample, .. } = acting.looker.answer(device, order, Known::Nothing).await;
    let Sample { at, power, identity, said, .. } = sample;
    let (problem, message) = match (checked, problem) {
        (Some(error), _) => (error.category(), error.to_string()),
        (None, _) if identity == IdentityMatch::Mismatch => {
            ("AnotherMachine", format!("it is another machine: {said}"))
        }
        // First why it did not answer: who did not answer did not say who it is either.
        (None, Some(problem)) => (problem, said),
        (None, None) if power == Power::Unknown => {
            ("PowerUnknown", if said.is_empty() { "it reports neither on nor off".to_owned() } else { said })
        }
        (None, None) if identity != IdentityMatch::Match && check == IdentityCheck::Required => {
            let words = "it does not report which machine it is, and identityCheck is Required";
            ("IdentityUnknown", words.to_owned())
        }
        (None, None) => ("", String::new()),
    };
    let problem = problem.to_owned();
    let Clients { cidrs: clients, boot_id } = clients;
    Ok(TargetStatus {
        node: node.name,
        power,
        identity,
        looked: at,
        clients,
        boot_id,
        problem,
        message,
        ..kept
    })
}

async fn write(
    acting: &Acting<'_>,
    wish: &Monitor,
    read: &wire::Custom<FenceDeviceSpec, FenceDeviceStatus>,
    targets: Vec<TargetStatus>,
    answers: Result<String, (String, String)>,
) -> Result<(), Outcome> {
    let known = read.status.clone().unwrap_or_default();
    let before = known.conditions;
    let at = format!("{:.0}", acting.env.clock.wall());
    let (word, reason, message) = match answers {
        Ok(message) => ("True", "AllTargetsReachable".to_owned(), message),
        Err((problem, message)) => ("False", problem, message),
    };
    let ready = Condition::after(&before, "Ready", word, &reason, &message, &at);
    let trusted = before.iter().find(|one| one.r#type == "Trusted").cloned();
    let trusted = trusted.unwrap_or_else(|| {
        Condition::after(
            &[],
            "Trusted",
            "True",
            "NeverContradicted",
            "no evidence from it was contradicted",
            &at,
        )
    });
    let status = FenceDeviceStatus {
        observed_generation: match wish.whole {
            true => read.metadata.generation.unwrap_or(0),
            false => known.observed_generation,
        },
        conditions: vec![ready, trusted],
        targets,
        tested: wish.test.clone().or(known.tested),
    };
    let meta = json!({ "uid": read.metadata.uid, "resourceVersion": read.metadata.resource_version });
    let body = json!({ "metadata": meta, "status": status });
    acting.send(Call::write(Method::Merge, format!("{}/status", path_of(&wish.device)), &body)).await?;
    acting.tell(&wish.device, read.metadata.uid.as_deref(), &before, &status.conditions);
    Ok(())
}
