//! Two status checks of each device, with an interval between them, and the second facts that must agree.

use pod_safety_proof::{LeaseRead, lease_age};

use super::aggregate::{DeviceSamples, aggregate_samples};
use super::incident::{act_of, write_fence_status};
use super::order_effect;
use super::render::NodeFacts;
use super::status_check::StatusCheck;
use super::{StepContext, Target};
use crate::api::{Attempt, IdentityMatch, Incarnation, Power, Sample, Verified};
use crate::outcome::Outcome;
use crate::quorum_read::{invalid_renew_time, read_node_and_lease};
use crate::transport::Act;

/// Checks each device twice, and reads the Lease before and after the interval: it is so long that a running kubelet
/// renews its Lease within it.
pub(super) async fn confirm_power_state(context: &StepContext<'_>, target: &Target) -> Result<(), Outcome> {
    let mut desired = (*target.status).clone();
    let last = desired.attempts.last_mut().ok_or(Outcome::Changed)?;
    let (act, attempt) = (act_of(last), last.clone());
    let facts = context.checker.reader.read_facts(&target.spec.node).await.map_err(Outcome::Failed)?;
    let attempts = &target.status.attempts;
    let sampling = sample_twice(context, &target.spec.node, &attempt, &facts, attempts);
    let (device_samples, lease) = context.while_leading(sampling).await??;
    let mut verified = aggregate_samples(act, &device_samples, lease);
    if act == Act::Off && verified.power == Power::Off {
        // Boxed: few policies require a second fact.
        let corroboration = Box::pin(context.checker.corroborate(&attempt.corroborate, &target.spec.node.name));
        match context.while_leading(corroboration).await? {
            Ok(facts) => verified.corroborated = facts,
            Err(message) => verified = Verified { power: Power::Unknown, message, ..verified },
        }
    }
    last.verified = Some(verified);
    write_fence_status(context, target, target.fence.rv, &desired).await.map(drop)
}

async fn sample_twice(
    context: &StepContext<'_>,
    node: &Incarnation,
    attempt: &Attempt,
    facts: &NodeFacts,
    attempts: &[Attempt],
) -> Result<(Vec<DeviceSamples>, Option<String>), Outcome> {
    let Attempt { devices, objects, .. } = attempt;
    let began = context.env.now();
    let first = context.checker.check_devices(devices, facts, objects).await;
    if act_of(attempt) != Act::Off {
        let once = |StatusCheck { check, sample, .. }| DeviceSamples { check, samples: vec![sample] };
        return Ok((first.into_iter().map(once).collect(), None));
    }
    let lease = read_lease(context, node).await?;
    let observe_for =
        lease_age::time_to_observe(&node.name, &lease, &context.writer.cache.read().view(), context.env.now());
    let is_instance = first.iter().any(|check| !check.sample.instance.is_empty());
    let min_interval = if is_instance { Verified::MIN_INSTANCE_INTERVAL } else { Verified::MIN_INTERVAL };
    context.env.sleep(observe_for.max(min_interval)).await;
    let second = context.checker.check_devices(devices, facts, objects).await;
    let discount = |check| order_effect::discount_unconfirmed_off(check, attempts);
    let mut device_samples: Vec<_> = first
        .into_iter()
        .map(discount)
        .zip(second.into_iter().map(discount))
        .map(|(first, second)| DeviceSamples { check: first.check, samples: vec![first.sample, second.sample] })
        .collect();
    // The kubelet renewed its Lease while its machine was reported off: the device switches another machine.
    let (before, after) = (renew_time(&lease)?, read_lease(context, node).await?);
    let is_unchanged = is_lease_unchanged(context, node, &after, before.as_ref())?;
    let heartbeat = context.writer.cache.read().view().last_heartbeat(&node.name);
    let has_reported = after.is_absent() && heartbeat.is_some_and(|heartbeat| heartbeat.at > began);
    if has_reported || !is_unchanged {
        let samples = device_samples.iter_mut().flat_map(|one| &mut one.samples);
        samples.filter(|sample| sample.power.is_off()).for_each(mark_contradicted);
    }
    Ok((device_samples, before))
}

pub(super) fn mark_contradicted(sample: &mut Sample) {
    sample.power = Power::Unknown;
    sample.identity = IdentityMatch::Mismatch;
    sample.said = "reported off while the node's kubelet renewed its Lease: it switches another machine".to_owned();
}

async fn read_lease(context: &StepContext<'_>, node: &Incarnation) -> Result<LeaseRead, Outcome> {
    let read =
        read_node_and_lease(context.writer.connection, context.env, &node.name).await.map_err(Outcome::Failed)?;
    Ok(read.lease)
}

/// Whether the Lease still has this renewTime, or is gone without another renewal: it was garbage collected with its
/// Node, or deleted by another client. The watch delivered any such renewal once it has delivered the deletion.
pub(super) fn is_lease_unchanged(
    context: &StepContext<'_>,
    node: &Incarnation,
    lease: &LeaseRead,
    before: Option<&String>,
) -> Result<bool, Outcome> {
    if !lease.is_absent() {
        return Ok(renew_time(lease)?.as_ref() == before);
    }
    let is_seen = context.writer.cache.read().view().lease_is_gone(&node.name);
    if is_seen { Ok(true) } else { Err(Outcome::Changed) }
}

fn renew_time(lease: &LeaseRead) -> Result<Option<String>, Outcome> {
    let renewed = lease.renewed().map_err(|error| Outcome::Failed(invalid_renew_time(error)))?;
    Ok(renewed.map(|time| time.to_string()))
}
