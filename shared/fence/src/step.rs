//! The steps of fencing. Each is decided from one resourceVersion of the NodeFence by `controllers/fencing` (`progress`, `recover`
//! and `contradiction` there), and writes its status at that version: a status from an outdated version is refused (409), and the
//! watch delivers the status from which the next step is decided. `attempt` and the first `drain` write it before they act, too.
//! `open` creates the NodeFence.
//!
//! | step | read again before it | requests | status that is written | next phase or step |
//! |---|---|---|---|---|
//! | `open` | Node and its Lease: same incarnation, still lost, the Node exists | POST the NodeFence | none | phase `Pending` |
//! | `write` | – | if the phase is over: as `untaint`, without the taint | `phase`, `message`, `gates`, `evidence` | the phase that it writes: `Pending`, `Fenced` (other evidence), `AwaitingOperator`, `Cancelled`, `Superseded` or `Done` |
//! | `drain` | Node and its Lease: as for `open`; in the first round whether the Node is cordoned | PATCH the Node (cordon), POST up to 128 Evictions | `drain`: before the cordon `began` and `cordoned`, after the evictions `rounds` and `message` | phase `Pending`: `drain`, or `attempt` off |
//! | `attempt` | FenceDevices, Secrets and the Node; for `off` also Node and Lease (same incarnation, still lost), the medik8s Lease, and the state of devices whose off is ambiguous | for `off` the medik8s Lease; the order to each device, or a write of the object that is the device | before the orders `attempts[last]` with `at`, `by`, `objects` and `met`, and `met` of earlier attempts; after them `outcome` and `met`. Not started: `verified`, or the gate `LeaseHeld` | phase `Fencing` or `Recovering`: `look` |
//! | `look` | FenceDevices, Secrets and the Node; for `off` Node and Lease before and after the interval | a status check of each device, for `off` two with an interval between them; a probe of the kubelet's port, if required | `attempts[last].verified` | `Off`: `prove`, or `prove-storage`; `On` after `on`: `untaint` when the node is Ready; else `attempt`, or `write` with `AwaitingOperator` |
//! | `prove` | Node and its Lease: same incarnation, not renewed since the status checks | POST the FenceEvidence | `phase`, `evidence`, `gates`; if the Lease was renewed, `verified` becomes `Unknown` | phase `Fenced`: `taint`; else `attempt` off |
//! | `prove-storage` | Node and its Lease: same incarnation, still lost | POST the FenceEvidence of kind `StorageFenced` | `attempts[last].evidence` | phase `Fencing`: `attempt` off at the next level, or `write` with `AwaitingOperator` |
//! | `taint` | the FenceEvidence, a status check of its devices, Node and its Lease, then the whole Node | PATCH the Node's taints | `tainted: true` | phase `Fenced`; when all pods are gone: `attempt` on, or it waits |
//! | `untaint` | the whole Node: another boot, and Ready | PATCH the Node's taints; if the phase is over, before that: PATCH the Node (uncordon), invalidate the storage's evidence, lift the objects of the devices, DELETE the medik8s Lease | `tainted: false`, `phase` | phase `Done`; while pods of the earlier boot remain, the same phase |
//! | `withdraw` | the FenceEvidence: invalid, expired or missing | PATCH the Node's taints | `tainted: false`, `phase` | phase `AwaitingOperator` |
//! | `contradict` | the FenceEvidence, the FenceDevices that reported off, the whole Node | PATCH `status.invalidated` of the evidence, the condition `Trusted` of the devices, and the Node's taints unless the status keeps the taint | `phase`, `message`, `tainted`, `gates` | phase `AwaitingOperator`; if other evidence holds, `write` with `Fenced` |

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
    DeviceRef, FenceEvidenceSpec, Gate, NodeFenceSpec, NodeFenceStatus, Phase, Power, Verified, evidence_kind_of,
    group_path, new_object,
};
use crate::client::{Call, Method, WriteCall as _};
use crate::outcome::Outcome;
use crate::quorum_read::read_node_and_lease;
use crate::record::error_chain;
use crate::transport::Act;

/// Executes a step.
pub async fn execute_step(context: &StepContext<'_>, request: &FenceStepRequest) -> Outcome {
    let done = match &request.step {
        Step::Open(spec) => open_incident(context, spec).await,
        Step::Write(target) => {
            let cleaned_up = clean_up_if_over(context, target).await;
            write_status_after(context, target, cleaned_up).await
        }
        // Boxed: otherwise the future of each step would be as large as this one.
        Step::Drain(target, pods) => Box::pin(drain::drain(context, target, pods)).await,
        Step::Attempt(target) => start_attempt(context, target).await,
        Step::Look(target) => confirm::confirm_power_state(context, target).await,
        Step::Prove(target) => prove(context, target).await,
        Step::ProveStorage(target) => storage::prove(context, target).await,
        Step::Taint(target) => {
            let evidence = target.status.evidence.as_deref().unwrap_or_default();
            let added = Box::pin(taint::add(context, &target.spec.node, &target.fence.name, evidence)).await;
            write_status_after(context, target, added).await
        }
        Step::Untaint(target) => {
            let removed = untaint(context, target).await;
            write_status_after(context, target, removed).await
        }
        Step::Withdraw(target) => {
            let removed = withdraw(context, target).await;
            write_status_after(context, target, removed).await
        }
        Step::Contradict(target) => contradict::contradict(context, target).await,
    };
    done.into()
}

/// Removes our taint from a node that is Ready with another boot.
async fn untaint(context: &StepContext<'_>, target: &Target) -> Result<(), Outcome> {
    clean_up_if_over(context, target).await?;
    taint::remove(context, &target.spec.node, &target.fence.name, RemovalReason::NewIncarnation).await
}

/// Removes our taint only if a quorum read finds the evidence invalid or missing; adding it requires the opposite.
async fn withdraw(context: &StepContext<'_>, target: &Target) -> Result<(), Outcome> {
    let evidence = target.status.evidence.as_deref().unwrap_or_default();
    if taint::is_evidence_current(context, evidence, &target.spec.node).await? {
        return Err(Outcome::Changed);
    }
    taint::remove(context, &target.spec.node, &target.fence.name, RemovalReason::EvidenceInvalid).await
}

/// When the incident is over: removes what was made for it, and releases the node for other operators. Until then
/// a lifted fence would let two nodes write to one volume.
async fn clean_up_if_over(context: &StepContext<'_>, target: &Target) -> Result<(), Outcome> {
    if !target.status.phase.is_over() {
        return Ok(());
    }
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
            // No order is sent when only some of the machine's supplies can be switched.
            Err(error) => return record_not_started(context, target, desired, &error_chain(&error)).await,
        }
    }
    if let Some(why) = storage::why_uncovered(act, &orders) {
        return record_not_started(context, target, desired, why).await;
    }
    let objects: Vec<_> = orders.iter().filter_map(|(_, order)| order.object().cloned()).collect();
    let mut met = Vec::new();
    if !in_doubt.is_empty() {
        order_effect::forget_earlier(&mut desired.attempts, &orders);
        met = order_effect::find_powered_on(context, target, &in_doubt, &facts, &objects).await?;
    }
    if let Some(last) = desired.attempts.last_mut() {
        (last.met, last.objects) = (met, objects);
    }
    send_orders(context, target, desired, orders).await
}

/// Writes the intent before the orders are sent, so that the next leader finds it, and then what the devices
/// answered.
async fn send_orders(
    context: &StepContext<'_>,
    target: &Target,
    mut desired: NodeFenceStatus,
    orders: Vec<(DeviceRef, PreparedCall)>,
) -> Result<(), Outcome> {
    stamp(context, &mut desired);
    let rv = write_fence_status(context, target, target.fence.rv, &desired).await?;
    let calls = orders.into_iter().map(|(device, order)| async move {
        let receiver = order.receiver();
        let answer = order.send(context, target).await;
        let summary = describe_answer(&device, &answer);
        ((device, receiver.effect(&answer)), summary)
    });
    let answers = context.while_leading(futures::future::join_all(calls)).await?;
    let (effects, outcomes): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
    let mut outcome = outcomes.join("; ");
    truncate(&mut outcome, MAX_OUTCOME_BYTES);
    if let Some(last) = desired.attempts.last_mut() {
        if act_of(last) == Act::Off {
            order_effect::record_effects(&mut last.met, effects);
        }
        last.outcome = Some(outcome);
    }
    write_fence_status(context, target, rv, &desired).await.map(drop)
}

/// Records when the attempt began, and which process makes it.
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

/// Another operator holds the node's medik8s Lease: that is recorded as a gate, and the step is repeated.
async fn record_lease_holder(context: &StepContext<'_>, target: &Target, holder: &str) -> Result<(), Outcome> {
    let mut desired = (*target.status).clone();
    desired.attempts.pop();
    desired.phase = if desired.attempts.is_empty() { Phase::Pending } else { Phase::Fencing };
    desired.message = format!("{holder} has the node: {}", medik8s_lease::lease_path(&target.spec.node.name));
    desired.gates.push(Gate { name: "LeaseHeld".to_owned(), holds: true, message: desired.message.clone() });
    write_fence_status(context, target, target.fence.rv, &desired).await?;
    Err(Outcome::Changed)
}

/// Records an attempt that could not start as one that showed nothing.
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

/// Creates evidence, if the kubelet has not renewed its Lease since the status checks and the node's incarnation is
/// the same.
async fn prove(context: &StepContext<'_>, target: &Target) -> Result<(), Outcome> {
    let last = target.status.attempts.last().ok_or(Outcome::Changed)?;
    let verified = last.verified.as_ref().filter(|verified| verified.power == Power::Off && act_of(last) == Act::Off);
    let Some(verified) = verified else { return Err(Outcome::Changed) };
    let node = &target.spec.node;
    let QuorumRead { node: read, lease, .. } =
        read_node_and_lease(context.writer.connection, context.env, &node.name).await.map_err(Outcome::Failed)?;
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

/// The kubelet renewed its Lease after two status checks that reported off.
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
