//! Looks at all nodes of a device while nothing is wrong, so that what is wrong with the device shows before the night
//! when it is needed.

use serde_json::json;

use super::orders::{Known, Looked, Ready, Way, path_of};
use super::step::{Acting, condition};
use crate::api::{
    DeviceDriver, DeviceRef, FenceDeviceSpec, FenceDeviceStatus, IdentityCheck, Incarnation, Sample,
    TargetStatus,
};
use crate::authority::act::Outcome;
use crate::authority::claim::Monitor;
use crate::client::{ApiError, Call, Method};
use crate::transport::Act;
use crate::wire;

/// So many nodes are looked at in one turn, one after another: a management network is no place for a crowd.
const NODES_MOST: usize = 500;

/// Looks, and writes down what was seen.
pub(in crate::authority) async fn monitor(acting: &Acting<'_>, wish: &Monitor) -> Outcome {
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
        let answers = Ok("a person is waited for, by pod-safety confirm-down".to_owned());
        return write(acting, &wish.device, &read, Vec::new(), answers).await;
    }
    let mut targets = Vec::new();
    let mut wrong = None;
    for node in wish.nodes.iter().take(NODES_MOST) {
        let target = acting.while_leading(look_at(acting, &wish.device, node)).await??;
        if !target.message.is_empty() {
            wrong.get_or_insert_with(|| format!("node {}: {}", target.node, target.message));
        }
        targets.push(target);
    }
    if targets.is_empty() {
        wrong = Some("its nodeSelector chooses no node".to_owned());
    }
    let answers = wrong.map_or_else(|| Ok(format!("{} nodes were looked at", targets.len())), Err);
    write(acting, &wish.device, &read, targets, answers).await
}

async fn look_at(acting: &Acting<'_>, device: &DeviceRef, node: &str) -> Result<TargetStatus, Outcome> {
    let node = Incarnation { name: node.to_owned(), ..Incarnation::default() };
    let facts = acting.looker.reader.facts(&node).await.map_err(Outcome::Failed)?;
    let order = acting.looker.reader.order(device, &facts, Act::Look).await;
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
        Ok(Ready { way: Way::Order(_), .. }) | Err(_) => Vec::new(),
    };
    let Looked { check, sample } = acting.looker.answer(device, order, Known::Nothing).await;
    let Sample { at, power, identity, said, .. } = sample;
    let message = match checked {
        Some(error) => error.to_string(),
        None if identity == "Mismatch" => format!("it is another machine: {said}"),
        // First why it did not answer: who did not answer did not say who it is either.
        None if power == "Unknown" => said,
        None if identity != "Match" && check == IdentityCheck::Required => {
            "it does not say which machine it is, and identityCheck is Required".to_owned()
        }
        None => String::new(),
    };
    Ok(TargetStatus { node: node.name, power, identity, looked: at, clients, message })
}

async fn write(
    acting: &Acting<'_>,
    device: &DeviceRef,
    read: &wire::Custom<FenceDeviceSpec, FenceDeviceStatus>,
    targets: Vec<TargetStatus>,
    answers: Result<String, String>,
) -> Result<(), Outcome> {
    let before = read.status.clone().unwrap_or_default().conditions;
    let at = format!("{:.0}", acting.env.clock.wall());
    let (word, reason, message) = match answers {
        Ok(message) => ("True", "EveryNodeAnswers", message),
        Err(message) => ("False", "LookFailed", message),
    };
    let ready = condition(&before, "Ready", word, reason, &message, &at);
    let trusted = before.iter().find(|one| one.r#type == "Trusted").cloned();
    let trusted = trusted.unwrap_or_else(|| {
        condition(&[], "Trusted", "True", "NeverContradicted", "no evidence from it was contradicted", &at)
    });
    let status = FenceDeviceStatus {
        observed_generation: read.metadata.generation.unwrap_or(0),
        conditions: vec![ready, trusted],
        targets,
    };
    let meta = json!({ "uid": read.metadata.uid, "resourceVersion": read.metadata.resource_version });
    let body = json!({ "metadata": meta, "status": status });
    acting.send(Call::write(Method::Merge, format!("{}/status", path_of(device)), &body)).await.map(drop)
}
