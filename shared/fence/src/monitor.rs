//! Checks all nodes of a device while none is lost, so that a fault of the device is found before it is needed.

use std::time::Duration;

use pod_safety_proof::{NodeRead, QuorumRead, lease_age};
use serde_json::json;

use super::StepContext;
use super::identity;
use super::objects::ClientAddresses;
use super::orders::{ReadyDevice, Transport, device_path};
use super::status_check::{ObjectSource, StatusCheck};
use crate::MonitorRequest;
use crate::api::{
    Condition, FenceDeviceSpec, FenceDeviceStatus, IdentityCheck, IdentityMatch, Incarnation, OFF_WHILE_REPORTING,
    Power, Sample, TargetStatus,
};
use crate::client::{ApiError, Call, Method, WriteCall as _};
use crate::outcome::Outcome;
use crate::quorum_read::read_node_and_lease;
use crate::transport::Act;
use crate::wire;

/// How many nodes are checked in one round, one after another, so that the management network is not overloaded.
const NODES_MOST: usize = 500;

/// Checks the nodes of a device, and writes the samples into its status.
pub async fn monitor(context: &StepContext<'_>, request: &MonitorRequest) -> Outcome {
    check_nodes(context, request).await.into()
}

async fn check_nodes(context: &StepContext<'_>, request: &MonitorRequest) -> Result<(), Outcome> {
    let raw = context.send(Call::get(device_path(&request.device))).await?;
    let read: wire::Custom<FenceDeviceSpec, FenceDeviceStatus> =
        raw.decode().map_err(|error| Outcome::Failed(ApiError::Undecodable(error)))?;
    if read.metadata.uid.as_deref() != Some(&request.uid.to_string()) {
        return Err(Outcome::Gone);
    }
    if read.spec.driver.is_operator() {
        let answers = Ok("waiting for a person to run pod-safety confirm-down".to_owned());
        return write_status(context, request, &read, Vec::new(), answers).await;
    }
    let mut checked = Vec::new();
    for node in request.nodes.iter().take(NODES_MOST) {
        let target = context.while_leading(check_node(context, request, node, &read)).await??;
        let ready = read_ready_node(context, &target).await?;
        checked.push((target, ready));
    }
    let mut targets = context.while_leading(contradict_off(context, checked)).await??;
    if !request.is_complete {
        let previous = read.status.iter().flat_map(|status| &status.targets);
        let others = previous.filter(|target| request.nodes.iter().all(|node| **node != *target.node));
        targets.extend(others.cloned());
        targets.sort_by(|one, other| one.node.cmp(&other.node));
    }
    let answers = summarize(&targets);
    write_status(context, request, &read, targets, answers).await
}

/// The summary of the checks; `Err`: the category and the message of the first problem.
fn summarize(targets: &[TargetStatus]) -> Result<String, (String, String)> {
    let wrong = targets.iter().find(|target| !target.message.is_empty());
    match wrong {
        Some(TargetStatus { node, problem, message, .. }) => {
            // An older version may have written no category.
            let problem = if problem.is_empty() { "LookFailed" } else { problem };
            Err((problem.to_owned(), format!("node {node}: {message}")))
        }
        None if targets.is_empty() => Err(("NoNodes".to_owned(), "its nodeSelector selects no node".to_owned())),
        None if targets.len() == 1 => Ok("1 node was checked".to_owned()),
        None => Ok(format!("{} nodes were checked", targets.len())),
    }
}

async fn check_node(
    context: &StepContext<'_>,
    request: &MonitorRequest,
    node: &str,
    read: &wire::Custom<FenceDeviceSpec, FenceDeviceStatus>,
) -> Result<TargetStatus, Outcome> {
    let device = &request.device;
    let node = Incarnation { name: node.to_owned(), ..Incarnation::default() };
    let facts = context.checker.reader.read_facts(&node).await.map_err(Outcome::Failed)?;
    let order = context.checker.reader.prepare_order(device, &facts, Act::Look).await;
    let previous = read.status.iter().flat_map(|status| &status.targets).find(|target| target.node == node.name);
    let sources = identity::IdentitySources::from_spec(&read.spec);
    let recorded = identity::recorded_identity(sources, &facts, previous, order.is_ok());
    let parameter_error = match &order {
        Ok(ReadyDevice { transport: Transport::Order(order), .. }) => {
            context.checker.transport.check(&order.driver, &order.parameters).await.err()
        }
        // The answer contains the error.
        Ok(ReadyDevice { transport: Transport::Object(_), .. }) | Err(_) => None,
    };
    let clients = match &order {
        Ok(ReadyDevice { transport: Transport::Object(order), .. }) => {
            super::objects::read_clients(&context.checker, order).await
        }
        Ok(ReadyDevice { transport: Transport::Order(_), .. }) | Err(_) => ClientAddresses::default(),
    };
    let StatusCheck { check, problem, sample, .. } =
        context.checker.check_device(device, order, ObjectSource::MonitorOnly).await;
    let Sample { at, power, identity, said, .. } = sample;
    let (problem, message) = match (parameter_error, problem) {
        (Some(error), _) => (error.category(), error.to_string()),
        (None, _) if identity == IdentityMatch::Mismatch => {
            ("AnotherMachine", format!("it is another machine: {said}"))
        }
        // The missing answer takes precedence: without an answer there is no identity either.
        (None, Some(problem)) => (problem, said),
        (None, None) if power == Power::Unknown => {
            ("PowerUnknown", if said.is_empty() { "it reports neither on nor off".to_owned() } else { said })
        }
        (None, None) if identity != IdentityMatch::Match && check == IdentityCheck::Required => {
            let message = "it does not report which machine it is, and identityCheck is Required";
            ("IdentityUnknown", message.to_owned())
        }
        (None, None) => ("", String::new()),
    };
    let problem = problem.to_owned();
    let ClientAddresses { cidrs: clients, boot_id } = clients;
    Ok(TargetStatus { node: node.name, power, identity, looked: at, clients, boot_id, problem, message, ..recorded })
}

/// The Node and its Lease, read after the device reported the node off. `None`: it did not, or the Node is not Ready.
async fn read_ready_node(context: &StepContext<'_>, target: &TargetStatus) -> Result<Option<QuorumRead>, Outcome> {
    if !(target.problem.is_empty() && target.power.is_off()) {
        return Ok(None);
    }
    let read = read_node(context, &target.node).await?;
    Ok(Some(read).filter(|read| read.node.as_ref().is_some_and(NodeRead::is_ready)))
}

async fn read_node(context: &StepContext<'_>, node: &str) -> Result<QuorumRead, Outcome> {
    read_node_and_lease(context.writer.connection, context.env, node).await.map_err(Outcome::Failed)
}

/// Adds the problem to each target that was reported off while its node was Ready, if the kubelet renews the Lease
/// within the time in which a running kubelet does. A renewal from before the answer shows nothing: the machine may
/// have been powered off since.
async fn contradict_off(
    context: &StepContext<'_>,
    checked: Vec<(TargetStatus, Option<QuorumRead>)>,
) -> Result<Vec<TargetStatus>, Outcome> {
    // One wait for all of them.
    if let Some(time) = time_to_observe(context, &checked) {
        context.env.sleep(time).await;
    }
    let mut targets = Vec::new();
    for (mut target, ready) in checked {
        if let Some(before) = ready
            && has_renewed(context, &target.node, &before).await?
        {
            let message =
                "it says off, but the kubelet reports: it switches another machine or one of two supplies, or lags";
            (target.problem, target.message) = (OFF_WHILE_REPORTING.to_owned(), message.to_owned());
        }
        targets.push(target);
    }
    Ok(targets)
}

fn time_to_observe(context: &StepContext<'_>, checked: &[(TargetStatus, Option<QuorumRead>)]) -> Option<Duration> {
    let (guard, now) = (context.writer.cache.read(), context.env.now());
    let view = guard.view();
    let ready = checked.iter().filter_map(|(target, ready)| Some((target, ready.as_ref()?)));
    ready.map(|(target, read)| lease_age::time_to_observe(&target.node, &read.lease, &view, now)).max()
}

/// Whether the kubelet has renewed its Lease since this read, in the same boot.
async fn has_renewed(context: &StepContext<'_>, node: &str, before: &QuorumRead) -> Result<bool, Outcome> {
    let after = read_node(context, node).await?;
    let renewed = |read: &QuorumRead| read.lease.renewed().ok().flatten();
    let is_same_boot =
        after.node.as_ref().map(NodeRead::incarnation) == before.node.as_ref().map(NodeRead::incarnation);
    Ok(is_same_boot && renewed(&after) > renewed(before))
}

async fn write_status(
    context: &StepContext<'_>,
    request: &MonitorRequest,
    read: &wire::Custom<FenceDeviceSpec, FenceDeviceStatus>,
    targets: Vec<TargetStatus>,
    answers: Result<String, (String, String)>,
) -> Result<(), Outcome> {
    let previous = read.status.clone().unwrap_or_default();
    let before = previous.conditions;
    let at = format!("{:.0}", context.env.clock.wall());
    let (condition_status, reason, message) = match answers {
        Ok(message) => ("True", "AllTargetsReachable".to_owned(), message),
        Err((problem, message)) => ("False", problem, message),
    };
    let ready = Condition::transition(&before, "Ready", condition_status, &reason, &message, &at);
    let trusted = before.iter().find(|one| one.r#type == "Trusted").cloned();
    let trusted = trusted.unwrap_or_else(|| {
        Condition::transition(&[], "Trusted", "True", "NeverContradicted", "no evidence from it was contradicted", &at)
    });
    let status = FenceDeviceStatus {
        observed_generation: match request.is_complete {
            true => read.metadata.generation.unwrap_or(0),
            false => previous.observed_generation,
        },
        conditions: vec![ready, trusted],
        targets,
        tested: request.test.clone().or(previous.tested),
    };
    let meta = json!({ "uid": read.metadata.uid, "resourceVersion": read.metadata.resource_version });
    let body = json!({ "metadata": meta, "status": status });
    context.send(Call::write(Method::Merge, format!("{}/status", device_path(&request.device)), &body)).await?;
    context.record_changes(&request.device, read.metadata.uid.as_deref(), &before, &status.conditions);
    Ok(())
}
