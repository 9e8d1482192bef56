//! Phase: disruption budgets. From the cold start of a contender to the right status of every budget, and from
//! the change of a pod to the status that tells of it.
//!
//! `stage` has the pods and budgets, and puts back what a run changed; `watcher` hears of statuses; `changes` makes
//! pods unready.

mod changes;
mod stage;
mod watcher;

use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::contender::{Contender, Duty, Running, Starter};
use crate::error::Error;
use crate::plan::Plan;
use crate::requests;
use crate::results::{Changes, Results, Statuses};
use crate::say;

use stage::{PODS, Stage};
use watcher::{Told, Watcher, watch};

/// A status a second is waited for, and this long in any case: kube-controller-manager writes twenty.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Measures every number of budgets over every number of namespaces, each of these on a cluster of its own.
pub(crate) async fn run(starter: &mut Starter, plan: &Plan, results: &mut Results) -> Result<(), Error> {
    for &namespaces in &plan.budget_namespaces {
        let mut cluster = Cluster::empty(plan).await?;
        let stage = Stage::fill(&cluster, plan, namespaces).await?;
        cluster.calm().await?;
        for &budgets in &plan.budgets {
            for round in 0..plan.rounds {
                // kube-controller-manager's own limit decides its time, always the same.
                let these = plan.contenders.iter().filter(|who| round == 0 || **who == Contender::Ours);
                for &contender in these {
                    let mut scene = Scene { cluster: &mut cluster, starter, plan, stage: &stage, budgets };
                    scene.measure(contender, round == 0, results).await?;
                }
            }
        }
    }
    Ok(())
}

/// So many budgets of a stage.
struct Scene<'a> {
    cluster: &'a mut Cluster,
    starter: &'a mut Starter,
    plan: &'a Plan,
    stage: &'a Stage,
    budgets: usize,
}

impl Scene<'_> {
    async fn measure(
        &mut self,
        contender: Contender,
        with_changes: bool,
        results: &mut Results,
    ) -> Result<(), Error> {
        self.stage.set(self.cluster, self.budgets).await?;
        self.cluster.calm().await?;
        let mut watcher = watch(self.cluster.plane.admin()).await?;
        let before = self.cluster.apiserver_share(self.plan.idle).await?;
        let (mut running, mut statuses, measured) = self.cold_start(contender, &mut watcher).await?;
        let all_right = statuses.right == statuses.budgets;
        if with_changes && all_right {
            let changes = self.changes(contender, &mut running, &mut watcher).await?;
            say(&format!("changes: {changes:.2?}"));
            results.changes.push(changes);
        }
        self.starter.stop(running).await?;
        self.cluster.calm().await?;
        // Of two idle times the calmer one: a late collection of the API server's garbage can fall into either.
        let idle = before.min(self.cluster.apiserver_share(self.plan.idle).await?);
        statuses.apiserver_cpu -= idle * measured.as_secs_f64();
        say(&format!("budgets: {statuses:.2?}, idle {idle:.3}"));
        results.statuses.push(statuses);
        Ok(())
    }

    /// The API server's processor time is whole in it, with what it uses when idle for as long as is also given back.
    async fn cold_start(
        &mut self,
        contender: Contender,
        watcher: &mut Watcher,
    ) -> Result<(Running, Statuses, Duration), Error> {
        let before = self.cluster.requests().await?;
        let limit = PATIENCE + Duration::from_secs(u64::try_from(self.budgets).unwrap_or(u64::MAX));
        let budgets = self.budgets;
        let (running, reached) = tokio::join!(
            self.starter.start(contender, Duty::Budgets, self.cluster),
            until_right(watcher, budgets, limit.min(self.plan.budget_limit))
        );
        let (mut running, (right, last)) = (running?, reached?);
        let (cpu, peak_mib) = (running.cpu()?, running.peak_mib()?);
        self.cluster.calm().await?;
        let apiserver_cpu = self.cluster.apiserver_cpu()? - running.apiserver_before;
        let measured = running.started.elapsed();
        let statuses = Statuses {
            contender,
            namespaces: self.stage.namespaces(),
            budgets,
            right,
            seconds: last.saturating_duration_since(running.started).as_secs_f64(),
            cpu,
            apiserver_cpu,
            peak_mib,
            requests: requests::between(&before, &self.cluster.requests().await?),
        };
        Ok((running, statuses, measured))
    }

    async fn changes(
        &mut self,
        contender: Contender,
        running: &mut Running,
        watcher: &mut Watcher,
    ) -> Result<Changes, Error> {
        let before = self.cluster.requests().await?;
        let (apiserver, own) = (self.cluster.apiserver_cpu()?, running.cpu()?);
        let made = changes::make(self.cluster, self.stage, self.plan, self.budgets, watcher).await?;
        let changes = Changes {
            contender,
            namespaces: self.stage.namespaces(),
            budgets: self.budgets,
            changes: made.latencies.len() + made.untold,
            per_second: made.per_second,
            p50: made.percentile(50),
            p99: made.percentile(99),
            untold: made.untold,
            cpu: running.cpu()? - own,
            apiserver_cpu: self.cluster.apiserver_cpu()? - apiserver,
            peak_mib: running.peak_mib()?,
            requests: requests::between(&before, &self.cluster.requests().await?),
        };
        changes::undo(self.cluster, self.stage, self.budgets, changes.changes).await?;
        Ok(changes)
    }
}

/// Waits until every budget says what is so; gives back how many do, and since when.
async fn until_right(
    watcher: &mut Watcher,
    budgets: usize,
    limit: Duration,
) -> Result<(usize, Instant), Error> {
    let began = Instant::now();
    let (mut right, mut last, mut told) = (std::collections::BTreeSet::new(), began, began);
    while right.len() < budgets && began.elapsed() < limit {
        if let Some(Told { budget, status, at }) = watcher.next(Duration::from_secs(1)).await? {
            let is_right = status.healthy == PODS && status.expected == PODS && status.up_to_date;
            // Once is enough: nothing changes while a contender starts.
            if is_right && right.insert(budget) {
                last = at;
            }
        }
        if told.elapsed() > TELL_EVERY {
            told = Instant::now();
            say(&format!("{} of {budgets} statuses are right", right.len()));
        }
    }
    if right.len() < budgets {
        last = Instant::now();
    }
    Ok((right.len(), last))
}
