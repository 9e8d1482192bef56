//! One incident, from calm to calm: faults are injected at their times, and the serving copies are sampled throughout.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::fault::Fault;
use crate::oracle::{self, Handover, Sighting, Violation};
use crate::promise_check::Outlived;
use crate::scenario::Outcome;
use crate::watch;

const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// An API server that does not answer is one of the faults, and must not keep the test from the next one.
const ANSWER: Duration = Duration::from_secs(2);
/// An identity that was served for so long counts as served.
const STAYS: Duration = Duration::from_secs(6);
/// The time in which a kubelet comes back, an incident ends, and a node loses its taints.
pub(crate) const CALM: Duration = Duration::from_secs(100);
/// An incident that has not reached the promised outcome when its repair is due goes on for this long, because a busy
/// machine is slow. Less than the six minutes after which kube-controller-manager force detaches volumes. Only failures
/// wait so long.
const PATIENCE: Duration = Duration::from_secs(300);

/// The result of an incident.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Finding {
    pub(crate) outcome: Outcome,
    /// From the first fault until every identity was served again, if that was before the repair.
    pub(crate) recovered: Option<Duration>,
    pub(crate) violations: Vec<Violation>,
    /// The refusals, and what pod-safety reported when the incident had no result.
    pub(crate) said: Vec<String>,
    /// The handovers from copy to copy, in seconds since the first fault.
    pub(crate) handovers: Vec<Handover>,
    /// How long any process ran after the last grant of its node's agent, where there were agents.
    pub(crate) outlived: Option<Outlived>,
    /// From the repair until everything was calm; `None`: it never was, and the world was started again.
    pub(crate) calm: Option<Duration>,
}

/// An incident, and its permitted outcomes.
#[derive(Clone, Copy)]
pub(crate) struct Incident<'a> {
    /// The identity whose machine has the fault.
    pub(crate) identity: &'a str,
    pub(crate) faults: &'a [(u64, Fault)],
    /// The time after which everything is repaired, if the promised outcome has been reached.
    pub(crate) lasts: Duration,
    pub(crate) promised: &'a [Outcome],
}

/// What the samples showed since a moment.
struct Observation {
    since: f64,
    /// When the first fault happened.
    struck: Option<f64>,
    sightings: Vec<Sighting>,
}

impl Observation {
    fn violations(&mut self, cluster: &Cluster) -> Result<Vec<Violation>> {
        self.sightings.extend(cluster.watch.sightings());
        Ok(oracle::check(&watch::lines(self.since)?, &self.sightings))
    }

    fn record_strike(&mut self, fault: Fault) -> Result<()> {
        if self.struck.is_none() && !fault.prepares() {
            self.struck = Some(watch::uptime()?);
        }
        Ok(())
    }

    fn handovers(&self) -> Result<Vec<Handover>> {
        let struck = self.struck.unwrap_or(self.since);
        let found = oracle::handovers(&watch::lines(self.since)?);
        let since = |at: f64| at - struck;
        Ok(found.into_iter().map(|one| Handover { ended: since(one.ended), began: since(one.began) }).collect())
    }
}

fn outcome(safe: bool, disturbed: bool, served: bool) -> Outcome {
    match (safe, disturbed, served) {
        (false, ..) => Outcome::Unsafe,
        (true, false, _) => Outcome::Undisturbed,
        (true, true, true) => Outcome::Recovers,
        (true, true, false) => Outcome::Waits,
    }
}

pub(crate) async fn play(cluster: &mut Cluster, incident: Incident<'_>) -> Result<Finding> {
    let Incident { identity, faults, lasts, promised } = incident;
    let victim = cluster.machine_of(identity)?;
    cluster.watch.sightings();
    let mut seen = Observation { since: watch::uptime()?, struck: None, sightings: Vec::new() };
    let (start, mut left, mut said) = (Instant::now(), faults, Vec::new());
    // Since when the state has been as it is; and whether it ever was otherwise.
    let (mut served_since, mut disturbed) = (Some(start), false);
    loop {
        while let [(at, fault), rest @ ..] = left
            && start.elapsed() >= Duration::from_secs(*at)
        {
            seen.record_strike(*fault)?;
            said.extend(cluster.strike(*fault, victim, identity).await?);
            left = rest;
        }
        match tokio::time::timeout(ANSWER, cluster.served()).await {
            Ok(Ok(Ok(()))) => served_since = served_since.or_else(|| Some(Instant::now())),
            Ok(Ok(Err(_))) => (served_since, disturbed) = (None, true),
            // No API server answered: the next sample decides.
            Ok(Err(_)) | Err(_) => {}
        }
        let stays = disturbed && served_since.is_some_and(|since| since.elapsed() > STAYS);
        if left.is_empty() && (stays || start.elapsed() > lasts) {
            let now = outcome(seen.violations(cluster)?.is_empty(), disturbed, served_since.is_some());
            if stays || promised.contains(&now) || start.elapsed() > PATIENCE {
                break;
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let recovered = served_since.filter(|_| disturbed).map(|since| since - start);
    if served_since.is_none() {
        said.extend(cluster.pod_safety_messages(identity).await?);
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
    let (violations, handovers) = (seen.violations(cluster)?, seen.handovers()?);
    let outlived = cluster.agents.as_ref().and_then(|agents| agents.outlived.longest());
    if calm.is_none() {
        cluster.start_over().await?;
    }
    cluster.clean_up().await?;
    cluster.until_calm(PATIENCE).await?;
    let outcome = outcome(violations.is_empty(), disturbed, recovered.is_some());
    Ok(Finding { outcome, recovered, violations, said, handovers, outlived, calm })
}
