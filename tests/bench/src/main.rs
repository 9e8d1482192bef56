//! # The benchmark
//!
//! Measures pod-safety and the controllers of kube-controller-manager with the same duties, one after the other on the same real API server
//! with the same objects, beside a bare loop that shows the limit of the API server.
//!
//! - `plan`: what is measured, from the command line; `cluster`: where; `contender`: which program
//! - `calm`, `failover`, `removal`, `bare`, `budgets`, `losses`, `tenants`: a phase each
//! - `scale`, `mass`, `unreachable`: synthetic clusters; `agents`: Leases of node agents
//! - `reflect`: reference contenders: a client on kube-runtime, and a floor
//! - `drains`: many nodes drained, beside kubectl
//! - `kubelets`: heartbeats; `etcd`, `http`, `requests`, `listener`: sources of the measurements; `background_reads`: latency for other clients
//! - `synthetic`: an API server with a generated cluster of any size, for sizes that no machine can hold
//! - `results`: every measurement; `report`: tables for the terminal; `page`: docs/benchmarks.md; `sizes`: docs/scale.md;
//!   `pictures`: charts of its tables
//!
//! `docs/benchmarks.md` explains the numbers and how they are measured.
#![expect(
    clippy::disallowed_methods,
    reason = "it measures real time, and its bare loop is the one that writes without proof, to a cluster of its own"
)]

mod agents;
mod background_reads;
mod bare;
mod budgets;
mod calm;
mod cluster;
mod contender;
mod drains;
mod etcd;
mod failover;
mod http;
mod kubelets;
mod listener;
mod losses;
mod mass;
mod page;
mod pictures;
mod plan;
mod reflect;
mod removal;
mod report;
mod requests;
mod results;
mod scale;
mod sizes;
mod synthetic;
mod tenants;
mod unreachable;

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::Parser as _;

use cluster::Cluster;
use contender::{Contender, Starter};
use plan::{Command, Phase, Plan};
use results::{Origin, Results};

/// Threads that run the bare loop; the API server needs the other cores.
const THREADS: usize = 2;

fn main() -> Result<()> {
    let plan = Plan::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .context("starting threads")?;
    let table = match plan.command.clone() {
        Some(Command::Serve(serve)) => return runtime.block_on(synthetic::serve(serve)),
        Some(Command::Scale(plan)) => runtime.block_on(scale::run(plan))?,
        Some(Command::Agents(plan)) => runtime.block_on(agents::run(plan))?,
        Some(Command::Mass(plan)) => runtime.block_on(mass::run(plan))?,
        Some(Command::Silent(plan)) => runtime.block_on(unreachable::run(plan))?,
        Some(Command::Drains(plan)) => runtime.block_on(drains::run(plan))?,
        Some(Command::Reflect(plan)) => return runtime.block_on(reflect::run(plan)),
        Some(Command::Sizes(plan)) => return runtime.block_on(sizes::run(&plan)),
        Some(Command::Draw(plan)) => pictures::run(&plan)?,
        None => return runtime.block_on(run(plan)),
    };
    std::io::stdout().write_all(table.as_bytes()).context("writing the table")
}

async fn run(plan: Plan) -> Result<()> {
    let binary = match &plan.pod_safety {
        // Each program runs in its own folder.
        Some(binary) => std::path::absolute(binary)?,
        None => {
            // Minutes without output would look like a hang.
            print_line("building pod-safety");
            pod_safety_control_plane::binary().await?
        }
    };
    let kcm = pod_safety_control_plane::tool("kube-controller-manager").await?;
    let versions = vec![version(&binary).await?, format!("KCM: {}", version(&kcm).await?)];
    let mut starter = Starter::new(binary, &plan);
    let mut results = Results { origin: Origin::this(versions), plan: plan.clone(), samples: Vec::new() };
    let done = measure(&plan, &mut starter, &mut results).await;
    // After an hour's work, the results before a failure are still useful.
    std::io::stdout().write_all(report::markdown(&results).as_bytes()).context("writing the tables")?;
    done?;
    plan.docs.as_ref().map_or(Ok(()), |folder| page::write(folder, results))
}

async fn measure(plan: &Plan, starter: &mut Starter, results: &mut Results) -> Result<()> {
    let of_one = [Phase::Start, Phase::Quiet, Phase::Heartbeats, Phase::Failover, Phase::Removal, Phase::Bare];
    if of_one.into_iter().any(|phase| plan.includes(phase)) {
        measure_on_one(plan, starter, results).await?;
    }
    if plan.includes(Phase::Budgets) {
        budgets::run(starter, plan, results).await?;
    }
    if plan.includes(Phase::Nodes) {
        losses::run(starter, plan, results).await?;
    }
    if plan.includes(Phase::Tenants) {
        tenants::run(starter, plan, results).await?;
    }
    Ok(())
}

/// All measurements of pod garbage collection, and the failover, on one cluster.
async fn measure_on_one(plan: &Plan, starter: &mut Starter, results: &mut Results) -> Result<()> {
    let mut cluster = Cluster::start(plan).await?;
    if plan.includes(Phase::Start) {
        calm::starts(&mut cluster, starter, plan, results).await?;
    }
    for phase in [Phase::Quiet, Phase::Heartbeats] {
        for contender in plan.those_of(phase) {
            results.add(calm::quiet(&mut cluster, starter, plan, contender, phase).await?);
        }
    }
    if plan.includes(Phase::Failover) {
        failover::run(&mut cluster, starter, plan, results).await?;
    }
    for (place, &orphans) in plan.orphans.iter().enumerate() {
        measure_removal(results, &mut cluster, starter, plan, orphans, place == 0).await?;
    }
    Ok(())
}

/// The bare loop and pod-safety take turns, so that other load on the machine affects both. kube-controller-manager is limited to twenty
/// requests per second and takes the same time for each orphan, however many there are: it removes the `first` number.
async fn measure_removal(
    results: &mut Results,
    cluster: &mut Cluster,
    starter: &mut Starter,
    plan: &Plan,
    orphans: usize,
    first: bool,
) -> Result<()> {
    for round in 0..plan.rounds {
        if plan.includes(Phase::Bare) {
            for &connections in &plan.connections {
                results.add(bare::run(cluster, plan, orphans, connections).await?);
            }
        }
        let removers = plan.removers().filter(|one| (first && round == 0) || *one == Contender::PodSafety);
        for contender in removers.filter(|_| plan.includes(Phase::Removal)) {
            results.add(removal::run(cluster, starter, plan, contender, orphans).await?);
        }
    }
    Ok(())
}

async fn version(program: &Path) -> Result<String> {
    let output = tokio::process::Command::new(program).arg("--version").output().await;
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Prints a line of progress. If that fails there is no other place to report it.
pub(crate) fn print_line(line: &str) {
    let _nobody = writeln!(std::io::stderr(), "bench: {line}");
}
