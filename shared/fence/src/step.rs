//! The steps.

use std::time::Duration;

use pod_safety_proof::Look;
use serde_json::json;

use super::asking::{Asked, asked};
use super::contradict;
use super::courtesy;
use super::drain;
use super::incident::{act_of, create_evidence, status, still_lost};
use super::mark::{self, When};
use super::met;
use super::objects::lift;
use super::orders::{OUTCOME_MOST, answered};
use super::storage;
use super::twice::{self, contradicted, is_unmoved};
use super::{Acting, Fencing, Step, Target, incident_name};
use crate::api::{
    DeviceRef, FenceEvidenceSpec, Gate, NodeFenceSpec, NodeFenceStatus, Phase, Power, Verified, group_path,
    object, proved_by,
};
use crate::client::{Call, Method, WriteCall as _};
use crate::outcome::Outcome;
use crate::record::error_chain;
use crate::transport::Act;
use crate::witness::look;

/// Carries a step out.
pub async fn carry_out(acting: &Acting<'_>, fencing: &Fencing) -> Outcome {
    let done = match &fencing.step {
        Step::Open(spec) => open(acting, spec).await,
        Step::Write(target) => {
            let lifted = if target.status.phase.is_over() { leave(acting, target).await } else { Ok(()) };
            then_status(acting, target, lifted).await
        }
        // Boxed, as it would make every step as large as itself.
        Step::Drain(target, pods) => Box::pin(drain::drain(acting, target, pods)).await,
        Step::Attempt(target) => attempt(acting, target).await,
        Step::Look(target) => twice::look_twice(acting, target).await,
        Step::Prove(target) => prove(acting, target).await,
        Step::ProveStorage(target) => storage::prove(acting, target).await,
        Step::Taint(target) => {
            let proof = target.status.evidence.as_deref().unwrap_or_default();
            let added = Box::pin(mark::add(acting, &target.spec.node, &target.fence.name, proof)).await;
            then_status(acting, target, added).await
        }
        Step::Untaint(target) => {
            let removed = match leave(acting, target).await {
                Ok(()) => {
                    mark::remove(acting, &target.spec.node, &target.fence.name, When::AnotherLife).await
                }
                error => error,
            };
            then_status(acting, target, removed).await
        }
        Step::Withdraw(target) => {
            let removed = withdraw(acting, target).await;
            then_status(acting, target, removed).await
        }
        Step::Contradict(target) => contradict::contradict(acting, target).await,
    };
    match done {
        Ok(()) => Outcome::Written,
        Err(outcome) => outcome,
    }
}

/// Our taint goes only if a quorum read finds the evidence invalid, or gone: whoever adds it asks for the same.
async fn withdraw(acting: &Acting<'_>, target: &Target) -> Result<(), Outcome> {
    let proof = target.status.evidence.as_deref().unwrap_or_default();
    if mark::holds(acting, proof, &target.spec.node).await? {
        return Err(Outcome::Changed);
    }
    mark::remove(acting, &target.spec.node, &target.fence.name, When::Untrue).await
}

/// The incident is over: what was made for it goes, and others may have the node.
async fn leave(acting: &Acting<'_>, target: &Target) -> Result<(), Outcome> {
    Box::pin(drain::uncordon(acting, target)).await?;
    if target.status.attempts.is_empty() {
        return Ok(());
    }
    storage::withdraw(acting, target).await?;
    lift(acting, target).await?;
    courtesy::give_back(acting, &target.spec.node.name).await
}

async fn then_status(acting: &Acting<'_>, target: &Target, done: Result<(), Outcome>) -> Result<(), Outcome> {
    done?;
    status(acting, target, target.fence.rv, &target.status).await.map(drop)
}

async fn open(acting: &Acting<'_>, spec: &NodeFenceSpec) -> Result<(), Outcome> {
    if !still_lost(acting, spec).await? {
        return Err(Outcome::Changed);
    }
    let body = object("NodeFence", json!({ "name": incident_name(&spec.node) }), spec);
    acting.send(Call::write(Method::Post, group_path("nodefences"), &body)).await.map(drop)
}

async fn attempt(acting: &Acting<'_>, target: &Target) -> Result<(), Outcome> {
    let mut wanted = (*target.status).clone();
    let last = wanted.attempts.last_mut().ok_or(Outcome::Changed)?;
    let act = act_of(last);
    if act == Act::Off {
        still_lost(acting, &target.spec).await?;
        if let Some(holder) = courtesy::take(acting, target).await? {
            return held_by(acting, target, &holder).await;
        }
    }
    let (devices, within) = (last.devices.clone(), Duration::from_secs(last.within_seconds.into()));
    let facts = acting.looker.reader.facts(&target.spec.node).await.map_err(Outcome::Failed)?;
    let (mut orders, mut in_doubt) = (Vec::new(), Vec::new());
    for device in &devices {
        let ready = match acting.looker.reader.order(device, &facts, act).await {
            Ok(ready) => {
                in_doubt.extend(ready.doubt().filter(|_| act == Act::Off).map(|_| device.clone()));
                asked(acting, target, device, ready.way, within).await
            }
            Err(error) => Err(error),
        };
        match ready {
            Ok(ready) => orders.push((device.clone(), ready)),
            // Nothing is begun with half of a machine's supplies.
            Err(error) => return not_begun(acting, target, wanted, &error_chain(&error)).await,
        }
    }
    if let Some(why) = storage::uncovered(act, &orders) {
        return not_begun(acting, target, wanted, why).await;
    }
    if let Some(last) = wanted.attempts.last_mut() {
        if !in_doubt.is_empty() {
            last.met = met::on(acting, target, &in_doubt, &facts).await?;
        }
        last.objects = orders.iter().filter_map(|(_, asked)| asked.object().cloned()).collect();
    }
    begin(acting, target, wanted, orders).await
}

/// The intent, before the act: whoever leads next finds it. Then what the devices answer.
async fn begin(
    acting: &Acting<'_>,
    target: &Target,
    mut wanted: NodeFenceStatus,
    orders: Vec<(DeviceRef, Asked)>,
) -> Result<(), Outcome> {
    stamp(acting, &mut wanted);
    let rv = status(acting, target, target.fence.rv, &wanted).await?;
    let asked = orders.into_iter().map(|(device, order)| async move {
        let is_order_sent_always = order.is_order_sent_always();
        let answer = order.ask(acting, target).await;
        let said = answered(&device, &answer);
        (met::took(is_order_sent_always, &answer).then_some(device), said)
    });
    let answers = acting.while_leading(futures::future::join_all(asked)).await?;
    let (took, said): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
    let mut said = said.join("; ");
    cut(&mut said, OUTCOME_MOST);
    if let Some(last) = wanted.attempts.last_mut() {
        let off = act_of(last) == Act::Off;
        let took: Vec<_> =
            took.into_iter().flatten().filter(|device| off && !last.met.contains(device)).collect();
        last.met.extend(took);
        last.outcome = Some(said);
    }
    status(acting, target, rv, &wanted).await.map(drop)
}

/// When the attempt began, and who makes it.
fn stamp(acting: &Acting<'_>, wanted: &mut NodeFenceStatus) {
    if let Some(last) = wanted.attempts.last_mut() {
        last.at = format!("{:.3}", acting.env.clock.wall());
        last.by = acting.identity.to_owned();
    }
}

fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        let at = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(at);
    }
}

/// Another operator has the node: that is shown as a gate is, and it is tried again.
async fn held_by(acting: &Acting<'_>, target: &Target, holder: &str) -> Result<(), Outcome> {
    let mut wanted = (*target.status).clone();
    wanted.attempts.pop();
    wanted.phase = if wanted.attempts.is_empty() { Phase::Pending } else { Phase::Fencing };
    wanted.message = format!("{holder} has the node: {}", courtesy::path(&target.spec.node.name));
    wanted.gates.push(Gate { name: "LeaseHeld".to_owned(), holds: true, message: wanted.message.clone() });
    status(acting, target, target.fence.rv, &wanted).await?;
    Err(Outcome::Changed)
}

/// An attempt that could not begin is written down as one that showed nothing.
async fn not_begun(
    acting: &Acting<'_>,
    target: &Target,
    mut wanted: NodeFenceStatus,
    why: &str,
) -> Result<(), Outcome> {
    stamp(acting, &mut wanted);
    if let Some(last) = wanted.attempts.last_mut() {
        last.outcome = Some(format!("not begun: {why}"));
        last.verified = Some(Verified { message: why.to_owned(), ..Verified::default() });
    }
    status(acting, target, target.fence.rv, &wanted).await.map(drop)
}

/// Evidence, if the kubelet was silent since the looks and the node is the same.
async fn prove(acting: &Acting<'_>, target: &Target) -> Result<(), Outcome> {
    let last = target.status.attempts.last().ok_or(Outcome::Changed)?;
    let verified =
        last.verified.as_ref().filter(|verified| verified.power == Power::Off && act_of(last) == Act::Off);
    let Some(verified) = verified else { return Err(Outcome::Changed) };
    let node = &target.spec.node;
    let Look { node: read, lease, .. } =
        look(acting.means.connection, acting.env, &node.name).await.map_err(Outcome::Failed)?;
    if read.is_some_and(|read| *read.incarnation() != *node) {
        return Err(Outcome::Changed);
    }
    if !is_unmoved(acting, node, &lease, verified.lease_renewed.as_ref())? {
        return unproved(acting, target).await;
    }
    let kind = proved_by(&verified.samples);
    if !kind.ends_life() {
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
        by: acting.identity.to_owned(),
        reason: None,
        valid_seconds: None,
        power_on: false,
    };
    create_evidence(acting, &incident_name(node), &spec).await?;
    status(acting, target, target.fence.rv, &target.status).await.map(drop)
}

/// The kubelet spoke after two looks that said off.
async fn unproved(acting: &Acting<'_>, target: &Target) -> Result<(), Outcome> {
    let mut wanted = (*target.status).clone();
    (wanted.phase, wanted.evidence) = (Phase::Fencing, None);
    if let Some(verified) = wanted.attempts.last_mut().and_then(|last| last.verified.as_mut()) {
        verified.samples.iter_mut().for_each(contradicted);
        *verified = Verified {
            power: Power::Unknown,
            message: "the devices reported off while the node's kubelet renewed its Lease".to_owned(),
            ..verified.clone()
        };
    }
    status(acting, target, target.fence.rv, &wanted).await.map(drop)
}
