//! Pods become unready at a steady rate, and the status of their PodDisruptionBudget must follow each time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::cluster::Cluster;
use crate::plan::Plan;
use crate::results::number;

use super::fixture::{Fixture, Group, PODS};
use super::watcher::{StatusChange, Watcher};

/// How long statuses are awaited after the last change.
const AFTERMATH: Duration = Duration::from_secs(60);

/// The number of connections that undo changes.
const UNDOERS: usize = 8;

pub(super) struct ChangeRun {
    /// From the request of a change until the status of its PDB reflected it.
    pub(super) latencies: Vec<Duration>,
    /// The number of changes that no status reflected.
    pub(super) unreported: usize,
    /// The number of changes per second.
    pub(super) per_second: f64,
}

/// Changes in progress: for each PDB, when each of its pods was changed. Pods are changed in order, so a status with three healthy pods
/// less reflects the first three changes.
#[derive(Default)]
struct PendingChanges {
    changed_at: BTreeMap<String, Vec<Instant>>,
    reported: BTreeMap<String, usize>,
    latencies: Vec<Duration>,
}

impl PendingChanges {
    fn record_change(&mut self, budget: String) {
        self.changed_at.entry(budget).or_default().push(Instant::now());
    }

    fn record_status(&mut self, StatusChange { budget, status, at }: &StatusChange) {
        let Some(changed) = self.changed_at.get(budget) else { return };
        let fewer = usize::try_from(PODS - status.healthy).unwrap_or(0).min(changed.len());
        let reported = self.reported.entry(budget.clone()).or_default();
        if fewer > *reported {
            let new = changed.iter().take(fewer).skip(*reported);
            self.latencies.extend(new.map(|changed| at.saturating_duration_since(*changed)));
            *reported = fewer;
        }
    }

    fn pending(&self) -> usize {
        self.changed_at.values().map(Vec::len).sum::<usize>() - self.latencies.len()
    }
}

/// Makes changes at the planned rate for the planned time, one PDB after the other.
pub(super) async fn run_changes(
    cluster: &Cluster,
    fixture: &Fixture,
    plan: &Plan,
    budgets: usize,
    watcher: &mut Watcher,
) -> Result<ChangeRun> {
    let groups = fixture.groups(budgets);
    let client = cluster.plane.admin();
    let (each_second, count) = plan.changes();
    let count = usize::try_from(count)?;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / each_second);
    // Late changes are caught up, because the rate is measured.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut open, mut writers) = (PendingChanges::default(), JoinSet::new());
    let began = Instant::now();
    for (group, index) in each_in_turn(groups, count) {
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => break,
                change = watcher.next(Duration::from_secs(1)) => change?.iter().for_each(|change| open.record_status(change)),
            }
        }
        open.record_change(group.budget());
        writers.spawn(set_ready(client.clone(), group.namespace().to_owned(), group.pod(index), false));
        while let Some(written) = writers.try_join_next() {
            written??;
        }
    }
    let per_second = number(count) / began.elapsed().as_secs_f64();
    while let Some(written) = writers.join_next().await {
        written??;
    }
    let over = Instant::now() + AFTERMATH;
    while open.pending() > 0 && Instant::now() < over {
        watcher.next(Duration::from_millis(200)).await?.iter().for_each(|change| open.record_status(change));
    }
    Ok(ChangeRun { unreported: open.pending(), latencies: open.latencies, per_second })
}

/// The first `count` changes: the groups in turn, and in each group its pods in turn.
fn each_in_turn(groups: &[Group], count: usize) -> impl Iterator<Item = (&Group, usize)> {
    let rounds =
        (0..usize::try_from(PODS).unwrap_or(0)).flat_map(move |index| groups.iter().map(move |group| (group, index)));
    rounds.take(count)
}

/// Makes all changed pods ready again.
pub(super) async fn undo(cluster: &Cluster, fixture: &Fixture, budgets: usize, count: usize) -> Result<()> {
    let pods = each_in_turn(fixture.groups(budgets), count);
    let pods: Vec<_> = pods.map(|(group, index)| (group.namespace().to_owned(), group.pod(index))).collect();
    let pods = Arc::new(pods);
    let mut undoers = JoinSet::new();
    for undoer in 0..UNDOERS {
        let (client, pods) = (cluster.plane.admin(), Arc::clone(&pods));
        undoers.spawn(async move {
            for (namespace, pod) in pods.iter().skip(undoer).step_by(UNDOERS) {
                set_ready(client.clone(), namespace.clone(), pod.clone(), true).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = undoers.join_next().await {
        ended??;
    }
    Ok(())
}

/// Writes the condition like a kubelet.
async fn set_ready(client: Client, namespace: String, pod: String, ready: bool) -> Result<()> {
    let status = if ready { "True" } else { "False" };
    // Kubelets change the transition time with the condition; any different time will do.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let reason = format!("Changed{now}");
    let condition = json!({ "type": "Ready", "status": status, "reason": reason });
    let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
    let request = Request::new(format!("/api/v1/namespaces/{namespace}/pods")).patch_subresource(
        "status",
        &pod,
        &PatchParams::default(),
        &patch,
    )?;
    let changed = client.request::<Value>(request).await;
    changed.map(drop).with_context(|| format!("cannot change {namespace}/{pod}"))
}

#[cfg(test)]
mod tests {
    use super::super::watcher::Status;
    use super::*;

    #[test]
    fn a_status_reports_all_earlier_changes() {
        let mut open = PendingChanges::default();
        for _ in 0..3 {
            open.record_change("a".to_owned());
        }
        open.record_change("b".to_owned());
        let mut hear = |budget: &str, healthy| {
            let status = Status { healthy, expected: PODS, up_to_date: true };
            open.record_status(&StatusChange { budget: budget.to_owned(), status, at: Instant::now() });
            open.pending()
        };
        assert_eq!(hear("a", PODS), 4, "nothing new");
        assert_eq!(hear("a", PODS - 2), 2);
        assert_eq!(hear("a", PODS - 1), 2, "late");
        assert_eq!(hear("c", PODS - 1), 2, "not ours");
        assert_eq!(hear("a", PODS - 3), 1);
        assert_eq!(hear("b", PODS - 1), 0);
    }
}
