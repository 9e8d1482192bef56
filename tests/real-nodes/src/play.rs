//! One incident, from calm to calm: what happens is made to happen at its time, and who is served is looked at all along.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::fault::Fault;
use crate::oracle::{self, Violation};
use crate::scenario::Outcome;
use crate::watch;

const LOOK: Duration = Duration::from_millis(200);
/// An API server that does not answer is a fault like others, and must not keep us from the next.
const ANSWER: Duration = Duration::from_secs(2);
/// Who is served for so long is served.
const STAYS: Duration = Duration::from_secs(6);
/// A kubelet comes back, an incident comes to its end, a node loses its taints.
pub(crate) const CALM: Duration = Duration::from_secs(100);

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Finding {
    pub(crate) outcome: Outcome,
    /// From the first fault until every identity was served again, if that was before the repair.
    pub(crate) recovered: Option<Duration>,
    pub(crate) violations: Vec<Violation>,
    /// What was refused, and what ours said when nothing had come of it.
    pub(crate) said: Vec<String>,
    /// From the repair until all was calm; `None`: it never was, and began anew.
    pub(crate) calm: Option<Duration>,
}

/// The first identity is the one whose machine has the fault.
pub(crate) async fn play(
    cluster: &mut Cluster,
    identity: &str,
    faults: &[(u64, Fault)],
    lasts: Duration,
) -> Result<Finding> {
    let victim = cluster.machine_of(identity)?;
    let since = watch::uptime()?;
    cluster.watch.sightings();
    let (start, mut left, mut said) = (Instant::now(), faults, Vec::new());
    // Since when it is as it is; and whether it ever was otherwise.
    let (mut served_since, mut disturbed) = (Some(start), false);
    loop {
        while let [(at, fault), rest @ ..] = left
            && start.elapsed() >= Duration::from_secs(*at)
        {
            said.extend(cluster.strike(*fault, victim, identity).await?);
            left = rest;
        }
        match tokio::time::timeout(ANSWER, cluster.served()).await {
            Ok(Ok(Ok(()))) => served_since = served_since.or_else(|| Some(Instant::now())),
            Ok(Ok(Err(_))) => (served_since, disturbed) = (None, true),
            // Nobody answers: that is known later.
            Ok(Err(_)) | Err(_) => {}
        }
        let stays = disturbed && served_since.is_some_and(|since| since.elapsed() > STAYS);
        if left.is_empty() && (stays || start.elapsed() > lasts) {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    let recovered = served_since.filter(|_| disturbed).map(|since| since - start);
    if served_since.is_none() {
        said.extend(cluster.said(identity).await?);
    }
    let repaired = Instant::now();
    cluster.repair().await?;
    let calm = cluster.until_calm(CALM).await;
    let calm = match calm {
        Ok(()) => Some(repaired.elapsed()),
        Err(error) => {
            said.push(format!("after the repair: {error}"));
            None
        }
    };
    let violations = oracle::judge(&watch::lines(since)?, &cluster.watch.sightings());
    if calm.is_none() {
        cluster.begin_anew().await?;
    }
    cluster.tidy().await?;
    cluster.until_calm(CALM).await?;
    let outcome = match (violations.is_empty(), disturbed, recovered) {
        (false, ..) => Outcome::Unsafe,
        (true, false, _) => Outcome::Undisturbed,
        (true, true, Some(_)) => Outcome::Recovers,
        (true, true, None) => Outcome::Waits,
    };
    Ok(Finding { outcome, recovered, violations, said, calm })
}
