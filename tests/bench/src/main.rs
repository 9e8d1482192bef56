//! # The benchmark
//!
//! pod-safety and kube-controller-manager's controllers of the same duties, measured one after the other on the
//! same real API server with the same objects, beside a bare loop that shows what the API server can take.
//!
//! - `plan`: what is measured, from the command line; `cluster`: where; `contender`: who
//! - `start`, `quiet`, `removal`, `bare`, `budgets`, `losses`: a phase each; `kubelets`: heartbeats; `etcd`, `http`,
//!   `requests`, `listener`: what they look at
//! - `results`: every measurement; `targets`: the promises; `report` and `docs`: tables and files
//!
//! `docs/benchmarks.md` says what the numbers mean and how they are taken.
#![expect(
    clippy::disallowed_methods,
    reason = "it measures real time, and its bare loop is the one that writes without proof, to a cluster of its own"
)]

mod bare;
mod budgets;
mod cluster;
mod contender;
mod docs;
mod error;
mod etcd;
mod http;
mod kubelets;
mod listener;
mod losses;
mod machine;
mod plan;
mod quiet;
mod removal;
mod report;
mod requests;
mod results;
mod start;
mod targets;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Parser as _;

use cluster::Cluster;
use contender::{Contender, Starter};
use error::Error;
use machine::Machine;
use plan::{Args, Phase, Plan};
use results::Results;

/// Threads that run the bare loop; the API server needs the machine more.
const THREADS: usize = 2;

fn main() -> anyhow::Result<()> {
    let plan = Plan::from(Args::parse());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .context("starting threads")?;
    let binary = runtime.block_on(binary(&plan))?;
    let mut results = runtime.block_on(nothing_yet(&plan, &binary))?;
    let done = runtime.block_on(measure(&plan, binary, &mut results));
    // Of an hour's work, what was done before it failed is worth seeing.
    std::io::stdout().write_all(report::markdown(&results).as_bytes()).context("writing the tables")?;
    done?;
    if let Some(folder) = &plan.docs {
        docs::write(folder, &results)?;
    }
    Ok(())
}

/// The pod-safety to measure.
async fn binary(plan: &Plan) -> Result<PathBuf, Error> {
    match &plan.binary {
        // Programs run in a folder of their own.
        Some(binary) => std::path::absolute(binary).map_err(Error::file("find", binary)),
        None => {
            // Minutes of silence would look like a hang.
            say("building pod-safety");
            Ok(pod_safety_control_plane::binary().await?)
        }
    }
}

async fn nothing_yet(plan: &Plan, binary: &Path) -> Result<Results, Error> {
    let kcm = pod_safety_control_plane::tool("kube-controller-manager").await?;
    Ok(Results {
        machine: Machine::this(),
        versions: vec![version(binary).await?, format!("KCM: {}", version(&kcm).await?)],
        plan: plan.clone(),
        starts: Vec::new(),
        quiets: Vec::new(),
        removals: Vec::new(),
        bares: Vec::new(),
        statuses: Vec::new(),
        changes: Vec::new(),
        node_quiets: Vec::new(),
        evictions: Vec::new(),
        losses: Vec::new(),
    })
}

async fn measure(plan: &Plan, binary: PathBuf, results: &mut Results) -> Result<(), Error> {
    let mut starter = Starter::new(binary, plan);
    if plan.phases.iter().any(|phase| !matches!(phase, Phase::Budgets | Phase::Nodes)) {
        measure_pod_gc(plan, &mut starter, results).await?;
    }
    if plan.has(Phase::Budgets) {
        budgets::run(&mut starter, plan, results).await?;
    }
    if plan.has(Phase::Nodes) {
        losses::run(&mut starter, plan, results).await?;
    }
    Ok(())
}

/// All that has to do with the collection of pods, on one cluster.
async fn measure_pod_gc(plan: &Plan, starter: &mut Starter, results: &mut Results) -> Result<(), Error> {
    let mut cluster = Cluster::start(plan).await?;
    if plan.has(Phase::Start) {
        start::run(&mut cluster, starter, plan, &mut results.starts).await?;
    }
    measure_quiet(results, &mut cluster, starter, plan).await?;
    for &orphans in &plan.orphans {
        measure_removal(results, &mut cluster, starter, plan, orphans).await?;
    }
    Ok(())
}

async fn measure_quiet(
    results: &mut Results,
    cluster: &mut Cluster,
    starter: &mut Starter,
    plan: &Plan,
) -> Result<(), Error> {
    for &contender in &plan.contenders {
        // kube-controller-manager's pod garbage collector does not look at leases.
        for heartbeats in [false, true] {
            let phase = if heartbeats { Phase::Heartbeats } else { Phase::Quiet };
            if plan.has(phase) && (contender == Contender::Ours || !heartbeats) {
                let quiet = quiet::run(cluster, starter, plan, contender, heartbeats).await?;
                say(&format!("quiet: {quiet:.2?}"));
                results.quiets.push(quiet);
            }
        }
    }
    Ok(())
}

/// The bare loop and pod-safety take turns, so that what else the machine does meets both alike.
async fn measure_removal(
    results: &mut Results,
    cluster: &mut Cluster,
    starter: &mut Starter,
    plan: &Plan,
    orphans: usize,
) -> Result<(), Error> {
    for round in 0..plan.rounds {
        if plan.has(Phase::Bare) {
            for &connections in &plan.connections {
                let bare = bare::run(cluster, plan, orphans, connections).await?;
                say(&format!("bare: {bare:.2?}, {:.0} pods/s", bare.rate()));
                results.bares.push(bare);
            }
        }
        // At twenty requests a second kube-controller-manager takes a quarter of an hour, always the same.
        let removers = plan.removers().filter(|contender| round == 0 || *contender == Contender::Ours);
        for contender in removers.filter(|_| plan.has(Phase::Removal)) {
            let removal = removal::run(cluster, starter, plan, contender, orphans).await?;
            say(&format!("removal: {removal:.2?}, {:.0} pods/s", removal.rate()));
            results.removals.push(removal);
        }
    }
    Ok(())
}

/// What a program says it is.
async fn version(program: &Path) -> Result<String, Error> {
    let output = tokio::process::Command::new(program).arg("--version").output().await;
    let output = output.map_err(Error::file("start", program))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Tells the person who waits. When even that fails there is nobody to tell.
pub(crate) fn say(line: &str) {
    let _nobody = writeln!(std::io::stderr(), "bench: {line}");
}
