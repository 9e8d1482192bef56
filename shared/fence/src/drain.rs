//! The soft remedy of a node that is unhealthy, but reports: its kubelet may still terminate pods. So it is cordoned, and
//! its pods are evicted within their PodDisruptionBudgets, before its machine is powered off.
//!
//! Nothing rests on it: what an eviction does not move is fenced with the machine.

use std::time::Duration;

use futures::StreamExt;
use futures::stream;

use super::incident::{status, still_lost};
use super::{Acting, Target};
use crate::api::Drain;
use crate::cordon::{self, Cordoned};
use crate::evict::{Eviction, evict};
use crate::model::PodKey;
use crate::outcome::Outcome;
use crate::witness::look;

/// So many evictions are under way at a time: an API server answers one in milliseconds, and other steps wait.
const AT_A_TIME: usize = 8;

/// So many pods are evicted in one round: a step ends within seconds. A node has about a hundred pods.
const IN_A_ROUND: usize = 128;

/// What has not succeeded after this is left to the next round.
const PATIENCE: Duration = Duration::from_secs(10);

/// One round. The intent is recorded before the node is cordoned, so that whoever leads next uncordons it.
pub(super) async fn drain(acting: &Acting<'_>, target: &Target, pods: &[PodKey]) -> Result<(), Outcome> {
    if !still_lost(acting, &target.spec).await? {
        return Err(Outcome::Changed);
    }
    let mut wanted = (*target.status).clone();
    let mut rv = target.fence.rv;
    let mut drain = match wanted.drain.take() {
        Some(drain) => drain,
        None => {
            let drain = first(acting, target).await?;
            wanted.drain = Some(drain.clone());
            rv = status(acting, target, rv, &wanted).await?;
            drain
        }
    };
    let deadline = acting.env.now() + PATIENCE;
    let node = &target.spec.node.name;
    let cordoned = cordon::cordon(acting.means.connection, node, deadline);
    if acting.while_leading(cordoned).await?.map_err(Outcome::Failed)? == Cordoned::NoNode {
        return Err(Outcome::Gone);
    }
    drain.message = acting.while_leading(evictions(acting, pods)).await?;
    drain.rounds = drain.rounds.saturating_add(1);
    wanted.drain = Some(drain);
    status(acting, target, rv, &wanted).await.map(drop)
}

/// A cordon of somebody else stays theirs.
async fn first(acting: &Acting<'_>, target: &Target) -> Result<Drain, Outcome> {
    let node = &target.spec.node;
    let read = look(acting.means.connection, acting.env, &node.name).await.map_err(Outcome::Failed)?;
    let read = read.node.ok_or(Outcome::Gone)?;
    if read.incarnation() != node {
        return Err(Outcome::Changed);
    }
    let began = format!("{:.0}", acting.env.clock.wall());
    let cordoned = !read.is_cordoned();
    Ok(Drain { began, cordoned, ..Drain::default() })
}

/// Evicts these pods; gives back what was left, and why.
async fn evictions(acting: &Acting<'_>, pods: &[PodKey]) -> String {
    let deadline = acting.env.now() + PATIENCE;
    let round: Vec<PodKey> = pods.iter().take(IN_A_ROUND).cloned().collect();
    let answers = stream::iter(round).map(|pod| async move {
        let eviction = Eviction { pod, dry_run: false };
        let answer = evict(acting.means.connection, acting.env, &eviction, deadline).await;
        answer.err().map(|why| format!("{}: {why}", eviction.pod))
    });
    let answers: Vec<Option<String>> = answers.buffer_unordered(AT_A_TIME).collect().await;
    let left: Vec<&String> = answers.iter().flatten().collect();
    match left.iter().min() {
        Some(first) => format!("{} not evicted; {first}", left.len()),
        None => String::new(),
    }
}

/// The incident is over: the node is uncordoned, if it was cordoned for this and is still the same Node.
pub(super) async fn uncordon(acting: &Acting<'_>, target: &Target) -> Result<(), Outcome> {
    if !target.status.drain.as_ref().is_some_and(|drain| drain.cordoned) {
        return Ok(());
    }
    let deadline = acting.env.now() + PATIENCE;
    let node = &target.spec.node;
    let uncordoned = cordon::uncordon(acting.means.connection, &node.name, &node.uid, deadline);
    acting.while_leading(uncordoned).await?.map_err(Outcome::Failed)
}
