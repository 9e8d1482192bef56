//! The steps.

use std::time::Duration;

use pod_safety_proof::QuorumRead;
use serde_json::json;

use super::confirm::{self, is_lease_unchanged, mark_contradicted};
use super::contradict;
use super::drain;
use super::incident::{act_of, create_evidence, still_lost, write_fence_status};
use super::medik8s_lease;
use super::objects::lift;
use super::order_effect;
use super::orders::{MAX_OUTCOME_BYTES, describe_answer};
use super::prepare::{PreparedCall, prepare};
use super::storage;
use super::taint::{self, RemovalReason};
use super::{FenceStepRequest, Step, StepContext, Target, incident_name};
use crate::api::{
    DeviceRef, FenceEvidenceSpec, Gate, NodeFenceSpec, NodeFenceStatus, Phase, Power, Verified,
    evidence_kind_of, group_path, new_object,
};
use crate::client::{Call, Method, WriteCall as _};
use crate::outcome::Outcome;
use crate::quorum_read::read_node_and_lease;
use crate::record::error_chain;
use crate::transport::Act;

/// Carries a step out.
pub async fn execute_step(context: &StepContext<'_>, request: &FenceStepRequest) -> Outcome {
    let done = match &request.step {
        Step::Open(spec) => open_incident(context, spec).await,
        Step::Write(target) => {
            let lifted = if target.status.phase.is_over() { clean_up(context, target).await } else { Ok(()) };
            write_status_after(context, target, lifted).await
        }
        // Boxed, as it would make every step as large as itself.
        Step::Drain(target, pods) => Box::pin(drain::drain(context, target, pods)).await,
        Step::Attempt(target) => start_attempt(context, target).await,
        Step::Look(target) => confirm::confirm_power_state(context, target).await,
        Step::Prove(target) => prove(context, target).await,
        Step::ProveStorage(target) => storage::prove(context, target).await,
        Step::Taint(target) => {
            let proof = target.status.evidence.as_deref().unwrap_or_default();
            let added = Box::pin(taint::add(context, &target.spec.node, &target.fence.name, proof)).await;
            write_status_after(context, target, added).await
        }
        Step::Untaint(target) => {
            let removed = match clean_up(context, target).await {
                Ok(()) => {
                    taint::remove(
                        context,
                        &target.spec.node,
                        &target.fence.name,
                        RemovalReason::NewIncarnation,
                    )
                    .await
                }
                error => error,
            };
            write_status_after(context, target, removed).await
        }
        Step::Withdraw(target) => {
            let removed = withdraw(context, target).await;
            write_status_after(context, target, removed).await
        }
        Step::Contradict(target) => contradict::contradict(context, target).await,
    };
    match done {
        Ok(()) => Outcome::Written,
        Err(outcome) => outcome,
    }
}

/// Our taint goes only if a quorum read finds the evidence invalid, or gone: whoever adds it asks for the same.
async fn withdraw(context: &StepContext<'_>, target: &Target) -> Result<(), Outcome> {
    let proof = target.status.evidence.as_deref().unwrap_or_default();
    if taint::evidence_holds(context, proof, &target.spec.node).await? {
        return Err(Outcome::Changed);
    }
    taint::remove(context, &target.spec.node, &target.fence.name, RemovalReason::EvidenceInvalid).await
}

/// The incident is over: what was made for it goes, and others may have the node.
async fn clean_up(context: &StepContext<'_>, target: &Target) -> Result<(), Outcome> {
    Box::pin(drain::uncordon(context, target)).await?;
    if target.status.attempts.is_empty() {
        return Ok(());
    }
    storage::withdraw(context, target).await?;
    lift(context, target).await?;
    medik8s_lease::release(context, &target.spec.node.name).await
}

async fn write_status_after(
    context: &StepContext<'_>,
    target: &Target,
    done: Result<(), Outcome>,
) -> Result<(), Outcome> {
    done?;
    write_fence_status(context, target, target.fence.rv, &target.status).await.map(drop)
}

async fn open_incident(context: &StepContext<'_>, spec: &NodeFenceSpec) -> Result<(), Outcome> {
    if !still_lost(context, spec).await? {
        return Err(Outcome::Changed);
    }
    let body = new_object("NodeFence", json!({ "name": incident_name(&spec.node) }), spec);
    context.send(Call::write(Method::Post, group_path("nodefences"), &body)).await.map(drop)
}

async fn start_attempt(context: &StepContext<'_>, target: &Target) -> Result<(), Outcome> {
    let mut desired = (*target.status).clone();
    let last = desired.attempts.last_mut().ok_or(Outcome::Changed)?;
    let act = act_of(last);
    if act == Act::Off {
        still_lost(context, &target.spec).await?;
        if let Some(holder) = medik8s_lease::acquire(context, target).await? {
            return record_lease_holder(context, target, &holder).await;
        }
    }
    let (devices, within) = (last.devices.clone(), Duration::from_secs(last.within_seconds.into()));
    let facts = context.checker.reader.read_facts(&target.spec.node).await.map_err(Outcome::Failed)?;
    let (mut orders, mut in_doubt) = (Vec::new(), Vec::new());
    for device in &devices {
        let ready = match context.checker.reader.prepare_order(device, &facts, act).await {
            Ok(ready) => {
                in_doubt.extend(ready.off_ambiguity().filter(|_| act == Act::Off).map(|_| device.clone()));
                prepare(context, target, device, ready.transport, within).await
            }
            Err(error) => Err(error),
        };
        match ready {
            Ok(ready) => orders.push((device.clone(), ready)),
            // Nothing is begun with half of a machine's supplies.
            Err(error) => return record_not_started(context, target, desired, &error_chain(&error)).await,
        }
    }
    if let Some(why) = storage::why_uncovered(act, &orders) {
        return record_not_started(context, target, desired, why).await;
    }
    if let Some(last) = desired.attempts.last_mut() {
        if !in_doubt.is_empty() {
            last.met = order_effect::find_powered_on(context, target, &in_doubt, &facts).await?;
        }
        last.objects = orders.iter().filter_map(|(_, asked)| asked.object().cloned()).collect();
    }
    send_orders(context, target, desired, orders).await
}

/// The intent, before the act: whoever leads next finds it. Then what the devices answer.
async fn send_orders(
    context: &StepContext<'_>,
    target: &Target,
    mut desired: NodeFenceStatus,
    orders: Vec<(DeviceRef, PreparedCall)>,
) -> Result<(), Outcome> {
    stamp(context, &mut desired);
    let rv = write_fence_status(context, target, target.fence.rv, &desired).await?;
    let calls = orders.into_iter().map(|(device, order)| async move {
        let is_order_sent_always = order.is_order_sent_always();
        let answer = order.send(context, target).await;
        let summary = describe_answer(&device, &answer);
        (order_effect::is_order_accepted(is_order_sent_always, &answer).then_some(device), summary)
    });
    let answers = context.while_leading(futures::future::join_all(calls)).await?;
    let (accepted, outcomes): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
    let mut outcome = outcomes.join("; ");
    truncate(&mut outcome, MAX_OUTCOME_BYTES);
    if let Some(last) = desired.attempts.last_mut() {
        let off = act_of(last) == Act::Off;
        let accepted: Vec<_> =
            accepted.into_iter().flatten().filter(|device| off && !last.met.contains(device)).collect();
        last.met.extend(accepted);
        last.outcome = Some(outcome);
    }
    write_fence_status(context, target, rv, &desired).await.map(drop)
}

/// When the attempt began, and who makes it.
fn stamp(context: &StepContext<'_>, desired: &mut NodeFenceStatus) {
    if let Some(last) = desired.attempts.last_mut() {
        last.at = format!("{:.3}", context.env.clock.wall());
        last.by = context.identity.to_owned();
    }
}

fn truncate(text: &mut String, most: usize) {
    if text.len() > most {
        let at = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(at);
    }
}

/// Another operator has the node: that is shown as a gate is, and it is tried again.
async fn record_lease_holder(
    context: &StepContext<'_>,
    target: &Target,
    holder: &str,
) -> Result<(), Outcome> {
    let mut desired = (*target.status).clone();
    desired.attempts.pop();
    desired.phase = if desired.attempts.is_empty() { Phase::Pending } else { Phase::Fencing };
    desired.message = format!("{holder} has the node: {}", medik8s_lease::lease_path(&target.spec.node.name));
    desired.gates.push(Gate { name: "LeaseHeld".to_owned(), holds: true, message: desired.message.clone() });
    write_fence_status(context, target, target.fence.rv, &desired).await?;
    Err(Outcome::Changed)
}

/// An attempt that could not begin is written down as one that showed nothing.
async fn record_not_started(
    context: &StepContext<'_>,
    target: &Target,
    mut desired: NodeFenceStatus,
    why: &str,
) -> Result<(), Outcome> {
    stamp(context, &mut desired);
    if let Some(last) = desired.attempts.last_mut() {
        last.outcome = Some(format!("not begun: {why}"));
        last.verified = Some(Verified { message: why.to_owned(), ..Verified::default() });
    }
    write_fence_status(context, target, target.fence.rv, &desired).await.map(drop)
}

/// Evidence, if the kubelet was silent since the looks and the node is the same.
async fn prove(context: &StepContext<'_>, target: &Target) -> Result<(), Outcome> {
    let last = target.status.attempts.last().ok_or(Outcome::Changed)?;
    let verified =
        last.verified.as_ref().filter(|verified| verified.power == Power::Off && act_of(last) == Act::Off);
    let Some(verified) = verified else { return Err(Outcome::Changed) };
    let node = &target.spec.node;
    let QuorumRead { node: read, lease, .. } =
        read_node_and_lease(context.writer.connection, context.env, &node.name)
            .await
            .map_err(Outcome::Failed)?;
    if read.is_some_and(|read| *read.incarnation() != *node) {
        return Err(Outcome::Changed);
    }
    if !is_lease_unchanged(context, node, &lease, verified.lease_renewed.as_ref())? {
        return record_contradiction(context, target).await;
    }
    let kind = evidence_kind_of(&verified.samples);
    if !kind.ends_incarnation() {
        return Err(Outcome::Changed);
    }
    let spec = FenceEvidenceSpec {
        node: node.clone(),
        kind,
        fence: Some(target.fence.name.to_string()),
        samples: verified.samples.clone(),
        corroborated: verified.corroborated.clone(),
        storage: Vec::new(),
        lease_renewed: verified.lease_renewed.clone(),
        by: context.identity.to_owned(),
        reason: None,
        valid_seconds: None,
        power_on: false,
    };
    create_evidence(context, &incident_name(node), &spec).await?;
    write_fence_status(context, target, target.fence.rv, &target.status).await.map(drop)
}

/// The kubelet spoke after two looks that said off.
async fn record_contradiction(context: &StepContext<'_>, target: &Target) -> Result<(), Outcome> {
    let mut desired = (*target.status).clone();
    (desired.phase, desired.evidence) = (Phase::Fencing, None);
    if let Some(verified) = desired.attempts.last_mut().and_then(|last| last.verified.as_mut()) {
        verified.samples.iter_mut().for_each(mark_contradicted);
        *verified = Verified {
            power: Power::Unknown,
            message: "the devices reported off while the node's kubelet renewed its Lease".to_owned(),
            ..verified.clone()
        };
    }
    write_fence_status(context, target, target.fence.rv, &desired).await.map(drop)
}
