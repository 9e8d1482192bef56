//! The soft remedy of a node that is unhealthy, but reports: its kubelet can still terminate pods. So it is cordoned,
//! and its pods are evicted within their PodDisruptionBudgets, before its machine is powered off.
//!
//! No evidence follows from it: pods that the evictions do not remove are fenced with the machine.

use std::time::Duration;

use futures::StreamExt;
use futures::stream;

use super::incident::{still_lost, write_fence_status};
use super::{StepContext, Target};
use crate::api::Drain;
use crate::cordon::{self, Cordoned};
use crate::evict::{Eviction, evict};
use crate::model::PodKey;
use crate::outcome::Outcome;
use crate::quorum_read::read_node_and_lease;

/// How many evictions are in progress at a time: the API server answers one in milliseconds, and other steps wait.
const MAX_CONCURRENT_EVICTIONS: usize = 8;

/// How many pods are evicted in one round, so that a step ends within seconds. A node has about a hundred pods.
const MAX_ROUND_EVICTIONS: usize = 128;

/// Evictions that have not succeeded after this time are left to the next round.
const ROUND_TIMEOUT: Duration = Duration::from_secs(10);

/// Executes one round. The intent is recorded before the node is cordoned, so that the next leader uncordons it.
pub(super) async fn drain(context: &StepContext<'_>, target: &Target, pods: &[PodKey]) -> Result<(), Outcome> {
    if !still_lost(context, &target.spec).await? {
        return Err(Outcome::Changed);
    }
    let mut desired = (*target.status).clone();
    let mut rv = target.fence.rv;
    let mut drain = match desired.drain.take() {
        Some(drain) => drain,
        None => {
            let drain = start_drain(context, target).await?;
            desired.drain = Some(drain.clone());
            rv = write_fence_status(context, target, rv, &desired).await?;
            drain
        }
    };
    let deadline = context.env.now() + ROUND_TIMEOUT;
    let node = &target.spec.node.name;
    let cordoned = cordon::cordon(context.writer.connection, node, deadline);
    if context.while_leading(cordoned).await?.map_err(Outcome::Failed)? == Cordoned::NoNode {
        return Err(Outcome::Gone);
    }
    drain.message = context.while_leading(evict_pods(context, pods)).await?;
    drain.rounds = drain.rounds.saturating_add(1);
    desired.drain = Some(drain);
    write_fence_status(context, target, rv, &desired).await.map(drop)
}

/// Reads whether the node is cordoned already: a cordon of another client stays.
async fn start_drain(context: &StepContext<'_>, target: &Target) -> Result<Drain, Outcome> {
    let node = &target.spec.node;
    let read =
        read_node_and_lease(context.writer.connection, context.env, &node.name).await.map_err(Outcome::Failed)?;
    let read = read.node.ok_or(Outcome::Gone)?;
    if read.incarnation() != node {
        return Err(Outcome::Changed);
    }
    let began = format!("{:.0}", context.env.clock.wall());
    let cordoned = !read.is_cordoned();
    Ok(Drain { began, cordoned, ..Drain::default() })
}

/// Evicts these pods; returns how many remain, and the first reason.
async fn evict_pods(context: &StepContext<'_>, pods: &[PodKey]) -> String {
    let deadline = context.env.now() + ROUND_TIMEOUT;
    let round: Vec<PodKey> = pods.iter().take(MAX_ROUND_EVICTIONS).cloned().collect();
    let answers = stream::iter(round).map(|pod| async move {
        let eviction = Eviction { pod, dry_run: false };
        let answer = evict(context.writer.connection, context.env, &eviction, deadline).await;
        answer.err().map(|why| format!("{}: {why}", eviction.pod))
    });
    let answers: Vec<Option<String>> = answers.buffer_unordered(MAX_CONCURRENT_EVICTIONS).collect().await;
    let remaining: Vec<&String> = answers.iter().flatten().collect();
    match remaining.iter().min() {
        Some(first) => format!("{} not evicted; {first}", remaining.len()),
        None => String::new(),
    }
}

/// The incident is over: uncordons the node, if this incident cordoned it and its UID is still the same.
pub(super) async fn uncordon(context: &StepContext<'_>, target: &Target) -> Result<(), Outcome> {
    if !target.status.drain.as_ref().is_some_and(|drain| drain.cordoned) {
        return Ok(());
    }
    let deadline = context.env.now() + ROUND_TIMEOUT;
    let node = &target.spec.node;
    let uncordoned = cordon::uncordon(context.writer.connection, &node.name, &node.uid, deadline);
    context.while_leading(uncordoned).await?.map_err(Outcome::Failed)
}
