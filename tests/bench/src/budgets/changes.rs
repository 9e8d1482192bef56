//! Pods become unready at a steady rate, and each time the status of their budget has to say so.

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

/// After the last change, statuses are waited for so long.
const AFTERMATH: Duration = Duration::from_secs(60);

/// Over how many connections changes are undone.
const UNDOERS: usize = 8;

pub(super) struct ChangeRun {
    /// From when a change was asked for until its budget's status told of it.
    pub(super) latencies: Vec<Duration>,
    /// Of how many no status told.
    pub(super) unreported: usize,
    /// How many there were in each second.
    pub(super) per_second: f64,
}

/// The changes on their way: of each budget, when each of its pods was changed. They are changed in order, so a
/// status with three pods less tells of the first three changes.
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
        let Some(asked) = self.changed_at.get(budget) else { return };
        let fewer = usize::try_from(PODS - status.healthy).unwrap_or(0).min(asked.len());
        let told = self.reported.entry(budget.clone()).or_default();
        if fewer > *told {
            let new = asked.iter().take(fewer).skip(*told);
            self.latencies.extend(new.map(|asked| at.saturating_duration_since(*asked)));
            *told = fewer;
        }
    }

    fn pending(&self) -> usize {
        self.changed_at.values().map(Vec::len).sum::<usize>() - self.latencies.len()
    }
}

/// Makes so many changes a second for as long as the plan says, one budget after the other.
pub(super) async fn run_changes(
    cluster: &Cluster,
    stage: &Fixture,
    plan: &Plan,
    budgets: usize,
    watcher: &mut Watcher,
) -> Result<ChangeRun> {
    let groups = stage.groups(budgets);
    let client = cluster.plane.admin();
    let (each_second, count) = plan.changes();
    let count = usize::try_from(count)?;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / each_second);
    // Late ones are made up for: the rate is what is measured.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut open, mut writers) = (PendingChanges::default(), JoinSet::new());
    let began = Instant::now();
    for (group, index) in each_in_turn(groups, count) {
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => break,
                told = watcher.next(Duration::from_secs(1)) => told?.iter().for_each(|told| open.record_status(told)),
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
        watcher.next(Duration::from_millis(200)).await?.iter().for_each(|told| open.record_status(told));
    }
    Ok(ChangeRun { unreported: open.pending(), latencies: open.latencies, per_second })
}

/// The first `count` changes: the groups in turn, and in each group its pods in turn.
fn each_in_turn(groups: &[Group], count: usize) -> impl Iterator<Item = (&Group, usize)> {
    let rounds = (0..usize::try_from(PODS).unwrap_or(0))
        .flat_map(move |index| groups.iter().map(move |group| (group, index)));
    rounds.take(count)
}

/// Makes all of them ready again.
pub(super) async fn undo(cluster: &Cluster, stage: &Fixture, budgets: usize, count: usize) -> Result<()> {
    let pods = each_in_turn(stage.groups(budgets), count);
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

/// As a kubelet does.
async fn set_ready(client: Client, namespace: String, pod: String, ready: bool) -> Result<()> {
    let status = if ready { "True" } else { "False" };
    // Any other time than before: it is what kubelets change with it.
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
