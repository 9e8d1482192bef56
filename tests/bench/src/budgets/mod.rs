//! Phase: disruption budgets. Measures the time from the cold start of a contender to the correct status of every PDB, and from the
//! change of a pod to the status that reflects it.
//!
//! `fixture` creates the pods and PDBs, and restores what a run changed; `watcher` watches statuses; `changes` makes pods unready.

mod changes;
mod fixture;
mod watcher;

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cluster::Cluster;
use crate::contender::{Contender, Duty, Running, Starter};
use crate::plan::{Phase, Plan};
use crate::print_line;
use crate::results::{API_CPU, Meter, OWN_CPU, PEAK, Results, STATUSES, Sample, number};

use fixture::{Fixture, PODS};
use watcher::{StatusChange, Watcher, watch};

/// One second per status is allowed, and at least this long: kube-controller-manager writes twenty per second.
const PATIENCE: Duration = Duration::from_secs(120);

/// The number of correct statuses when the time was over.
pub(crate) const CORRECT_AFTER: &str = "statuses right when that time was over";

const PROGRESS_INTERVAL: Duration = Duration::from_secs(60);

/// Measures every number of PDBs over every number of namespaces, each combination on its own cluster.
pub(crate) async fn run(starter: &mut Starter, plan: &Plan, results: &mut Results) -> Result<()> {
    for &namespaces in &plan.budget_namespaces {
        let mut cluster = Cluster::empty(plan).await?;
        let fixture = Fixture::create_objects(&cluster, plan, usize::from(namespaces)).await?;
        cluster.calm().await?;
        for &budgets in &plan.budgets {
            for round in 0..plan.rounds {
                // kube-controller-manager's rate limit determines its time, which is the same in each round.
                let these = plan.those_of(Phase::Budgets).filter(|who| round == 0 || *who == Contender::PodSafety);
                for contender in these {
                    let mut case = Case { cluster: &mut cluster, starter, plan, fixture: &fixture, budgets };
                    case.measure(contender, round == 0, results).await?;
                }
            }
        }
    }
    Ok(())
}

/// One number of PDBs on a fixture.
struct Case<'a> {
    cluster: &'a mut Cluster,
    starter: &'a mut Starter,
    plan: &'a Plan,
    fixture: &'a Fixture,
    budgets: usize,
}

impl Case<'_> {
    async fn measure(&mut self, contender: Contender, with_changes: bool, results: &mut Results) -> Result<()> {
        self.fixture.set(self.cluster, self.budgets).await?;
        self.cluster.calm().await?;
        let mut watcher = watch(self.cluster.plane.admin()).await?;
        let before = self.cluster.apiserver_share(self.plan.idle()).await?;
        let (mut running, statuses, seconds) = self.cold_start(contender, &mut watcher).await?;
        let mut changes = None;
        if with_changes && statuses.value(CORRECT_AFTER) == Some(number(self.budgets)) {
            changes = Some(self.changes(contender, &mut running, &mut watcher).await?);
        }
        self.starter.stop(running).await?;
        self.cluster.calm().await?;
        // The lower of two idle measurements: a late garbage collection of the API server can fall into either.
        let idle = before.min(self.cluster.apiserver_share(self.plan.idle()).await?);
        let used = statuses.value(API_CPU).map(|used| used - idle * seconds);
        results.add(statuses.with(API_CPU, used));
        changes.into_iter().for_each(|changes| results.add(changes));
        Ok(())
    }

    fn case_name(&self) -> String {
        match self.fixture.namespaces() {
            1 => format!("{} budgets in one namespace", self.budgets),
            many => format!("{} budgets in {many} namespaces", self.budgets),
        }
    }

    /// The result includes all CPU time of the API server, also its idle use, for as many seconds as are also returned.
    async fn cold_start(&mut self, contender: Contender, watcher: &mut Watcher) -> Result<(Running, Sample, f64)> {
        let before = self.cluster.requests().await?;
        let limit = PATIENCE + Duration::from_secs(u64::try_from(self.budgets)?);
        let (running, reached) = tokio::join!(
            self.starter.start(contender, Duty::Budgets, self.cluster),
            until_right(watcher, self.budgets, limit.min(self.plan.budget_limit()))
        );
        let (mut running, (right, last)) = (running?, reached?);
        let (own, peak) = (running.cpu()?, running.peak_mib()?);
        self.cluster.calm().await?;
        let meter = Meter::since_start(before, &running);
        let seconds = last.saturating_duration_since(running.started).as_secs_f64();
        let sample = Sample::new(Phase::Budgets, contender.name(), self.case_name()).with(STATUSES, seconds);
        let sample = meter.read(sample, 0.0, self.cluster, &mut running).await?;
        // The CPU time when all statuses were correct.
        let sample = sample.with(OWN_CPU, own).with(PEAK, peak).with(CORRECT_AFTER, number(right));
        Ok((running, sample, meter.seconds()))
    }

    async fn changes(&mut self, contender: Contender, running: &mut Running, watcher: &mut Watcher) -> Result<Sample> {
        let meter = Meter::start(self.cluster.requests().await?, self.cluster, running)?;
        let made = changes::run_changes(self.cluster, self.fixture, self.plan, self.budgets, watcher).await?;
        let count = made.latencies.len() + made.unreported;
        let case = format!("{}, {count} pods become unready: to the status", self.case_name());
        let sample = Sample::new(Phase::Budgets, contender.name(), case)
            .spread(made.latencies, made.unreported)
            .with("of which no status told in a minute", number(made.unreported))
            .with("changes/s", made.per_second);
        // The changes themselves are among the requests, and cost the API server their share.
        let sample = meter.read(sample, 0.0, self.cluster, running).await?;
        changes::undo(self.cluster, self.fixture, self.budgets, count).await?;
        Ok(sample)
    }
}

/// Waits until every PDB has the correct status; returns how many do, and since when.
async fn until_right(watcher: &mut Watcher, budgets: usize, limit: Duration) -> Result<(usize, Instant)> {
    let began = Instant::now();
    let (mut right, mut last, mut reported_at) = (std::collections::BTreeSet::new(), began, began);
    while right.len() < budgets && began.elapsed() < limit {
        if let Some(StatusChange { budget, status, at }) = watcher.next(Duration::from_secs(1)).await? {
            let is_right = status.healthy == PODS && status.expected == PODS && status.up_to_date;
            // The first correct status counts: nothing changes while a contender starts.
            if is_right && right.insert(budget) {
                last = at;
            }
        }
        if reported_at.elapsed() > PROGRESS_INTERVAL {
            reported_at = Instant::now();
            print_line(&format!("{} of {budgets} statuses are right", right.len()));
        }
    }
    if right.len() < budgets {
        last = Instant::now();
    }
    Ok((right.len(), last))
}
