//! # Real nodes
//!
//! Three machines with kubelets, containers and cables of their own, on one Linux host, beside a real control plane; what goes
//! wrong between them; and who really runs meanwhile.
//!
//! - `needs`: what this machine must allow; `scripts/world.sh`: namespaces in which nothing outlives the first process;
//!   `beside`: one for each of the ways
//! - `machine`: a machine, by `scripts/machine.sh`; `slow`: its cable, when that takes its time
//! - `agents`: agents of nodes, and what keeps their promise; `outlived`: for how long anything runs without it
//! - `plane`: API servers, etcd, and the ways to them; `ours`: our replicas; `cluster` and `objects`: all of it, with
//!   StatefulSets, power switches, and who keeps order
//! - `busy`: a kubelet whose worker for a pod waits while a container of it runs
//! - `fault`: what goes wrong, and its repair; `scenario`: the table; `storm`: rounds by chance; `play`: one incident
//! - `installed`: the user's whole path, from the image by Helm to the alert; `steps`: how long each step took
//! - `requested`: a drain by EvictionRequests, during which a node is lost; `mover`: an application that moves its data first
//! - `hollow`: the simulator's kubelet beside a real one; `histories`: many kubelets without containers
//! - `watch`: process tables and logs; `oracle`: who ran when nobody should have; `planted`: whether they see it; `killed`: what is left;
//!   `report`: the table that comes of it
//!
//! `docs/real-nodes.md` says what the table means.
#![expect(clippy::disallowed_methods, reason = "it drives a real cluster in real time")]

mod agents;
mod beside;
mod busy;
mod cluster;
mod confirmed;
mod fault;
mod histories;
mod hollow;
mod installed;
mod killed;
mod machine;
mod mover;
mod needs;
mod objects;
mod oracle;
mod plane;
mod planted;
mod play;
mod pod_safety;
mod promise_check;
mod report;
mod requested;
mod scenario;
mod slow;
mod steps;
mod storm;
mod watch;

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;

use beside::{Part, World, print_line};
use cluster::{Cluster, Mode};
use needs::Verdict;
use objects::IDENTITIES;
use play::{Finding, Incident};
use promise_check::Outlived;
use scenario::{Outcome, Scenario};
use storm::Chance;

/// Set in the world, by scripts/world.sh.
const INSIDE: &str = "REAL_NODES_CGROUP";

#[derive(Parser)]
#[command(about = "Real kubelets, real partitions, and who runs meanwhile")]
struct Args {
    /// The short set, in the ways that are most worth their time
    #[arg(long)]
    short: bool,
    /// Only scenarios whose name contains this; may be given several times
    #[arg(long)]
    only: Vec<String>,
    /// No scenarios: rounds alone
    #[arg(long)]
    no_scenarios: bool,
    /// In these ways
    #[arg(long, value_delimiter = ',', default_value = "plain,guard,replace")]
    ways: Vec<Mode>,
    /// So many rounds of faults by chance, after the scenarios
    #[arg(long, default_value_t = 0)]
    rounds: usize,
    /// Rounds of machines with agents and watchdogs
    #[arg(long)]
    with_agents: bool,
    /// Rounds are drawn from this
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also writes the table to this file
    #[arg(long)]
    table: Option<PathBuf>,
    /// Only says what of this machine is missing, if anything is
    #[arg(long)]
    needs: bool,
    /// No cluster: two copies on one volume, which must be found
    #[arg(long)]
    planted: bool,
    /// No cluster: a world that is killed while a machine is frozen, of which nothing may be left
    #[arg(long)]
    killed: bool,
    /// As a user has it: its image in the machines, installed with Helm, read by Prometheus
    #[arg(long)]
    helm: bool,
    /// The same scripts on real kubelets and in the simulator, and how they differ
    #[arg(long)]
    hollow: bool,
    /// No machines: so many histories of kubelets without containers
    #[arg(long, default_value_t = 0)]
    histories: usize,
    /// The nodes of these histories
    #[arg(long, default_value_t = 24)]
    nodes: usize,
    /// Nodes drained by EvictionRequests, by an application that moves its data first, and one of them lost meanwhile
    #[arg(long)]
    requests: bool,
    /// A shell with kubectl in a cluster, in the first of the ways
    #[arg(long)]
    shell: bool,
    /// Of one who plays several ways: plays this one, and prints what it found for a program
    #[arg(long, hide = true)]
    world: Option<Mode>,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if std::env::var_os(INSIDE).is_some() {
        return runtime.block_on(inside(&args));
    }
    if args.histories > 0 {
        let mode = if args.ways == [Mode::Plain] { Mode::Plain } else { Mode::Replace };
        let (table, wrong) = runtime.block_on(histories::play(mode, args.histories, args.nodes, args.seed))?;
        return print_verdict(&table, &wrong);
    }
    let verdict = needs::verdict()?;
    if args.needs {
        if let Verdict::Lacks(lacks) = verdict {
            lacks.iter().try_for_each(|lack| writeln!(std::io::stdout(), "{lack}"))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let cgroups = match verdict {
        Verdict::CanRun(cgroups) => cgroups,
        Verdict::Lacks(lacks) => {
            lacks.iter().for_each(|lack| print_line(&format!("this machine cannot run them: it needs {lack}")));
            return Ok(ExitCode::FAILURE);
        }
    };
    // What has to be built or fetched needs the network, which the world has not.
    runtime.block_on(async {
        pod_safety_control_plane::tool("etcd").await?;
        pod_safety_control_plane::binary().await?;
        pod_safety_control_plane::rigs::Rigs::new().await
    })?;
    if args.helm {
        installed::pack()?;
    }
    let tools = Command::new(machine::scripts().join("tools.sh")).stderr(Stdio::inherit()).output()?;
    ensure!(tools.status.success(), "tools.sh failed ({})", tools.status);
    let world = World { tools: PathBuf::from(String::from_utf8(tools.stdout)?.trim()), cgroups };
    if args.killed {
        runtime.block_on(killed::check(&world))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.planted || args.shell || args.helm || args.hollow || args.requests {
        return Err(world.command()?.exec()).context("entering the world");
    }
    let start = Instant::now();
    let ways: Vec<_> = Mode::ALL.into_iter().filter(|way| args.includes_mode(*way)).collect();
    let Part { report, wrong } = beside::play(&ways, &world)?;
    std::io::stdout().write_all(report.markdown().as_bytes())?;
    if let Some(path) = &args.table {
        std::fs::write(path, report.page(&commit()?)).with_context(|| format!("writing {}", path.display()))?;
    }
    for line in &wrong {
        print_line(&format!("WRONG: {line}"));
    }
    print_line(&format!("{:.0} s, {} wrong", start.elapsed().as_secs_f64(), wrong.len()));
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_verdict(table: &str, wrong: &[String]) -> Result<ExitCode> {
    std::io::stdout().write_all(table.as_bytes())?;
    wrong.iter().for_each(|line| print_line(&format!("WRONG: {line}")));
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The commit of the tree, and its date.
fn commit() -> Result<String> {
    let format = ["log", "-1", "--abbrev=8", "--format=`%h`, %cs"];
    let output = Command::new("git").args(["-C", env!("CARGO_MANIFEST_DIR")]).args(format).output()?;
    ensure!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

async fn inside(args: &Args) -> Result<ExitCode> {
    if args.planted {
        let tools = std::env::var_os("REAL_NODES_TOOLS").context("no tools")?;
        for violation in planted::check(tools.as_ref()).await? {
            writeln!(std::io::stdout(), "{violation}")?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.helm || args.requests {
        let played = if args.helm { installed::play().await } else { requested::play().await };
        if played.is_err() {
            keep_logs(Mode::Replace).await?;
        }
        std::io::stdout().write_all(played?.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.hollow {
        let (table, wrong) = hollow::compare().await?;
        return print_verdict(&table, &wrong);
    }
    if args.shell {
        let cluster = Cluster::start(args.ways.first().copied().context("in which way?")?).await?;
        Command::new("bash").env("KUBECONFIG", cluster.plane.admin_kubeconfig()).status()?;
        return Ok(ExitCode::SUCCESS);
    }
    let way = args.world.context("which way?")?;
    let mut part = Part::default();
    // What was found before it failed is worth seeing.
    if let Err(error) = play(args, way, &mut part).await {
        part.wrong.push(format!("{}: {error:#}", way.name()));
    }
    part.print()?;
    Ok(ExitCode::SUCCESS)
}

/// Everything here is in memory and goes with us.
async fn keep_logs(way: Mode) -> Result<()> {
    let folder = machine::scripts().join("../../../target/real-nodes").join(way.name());
    std::fs::create_dir_all(&folder)?;
    let script = "rm -rf \"$0\"/*; cp -r /run/volumes \"$0\"; for one in /run/machines/*; do cp -r \"$one/log\" \"$0/${one##*/}\"; cp \"$one/boot.log\" \"$0/${one##*/}\"; done
        for one in /run/scratch/*/logs; do cp \"$one\"/* \"$0\" || true; done";
    machine::run("bash", &["-c", script, &folder.to_string_lossy()]).await?;
    print_line(&format!("the logs of all programs are in {}", folder.canonicalize()?.display()));
    Ok(())
}

/// Plays what was asked for, in one way.
async fn play(args: &Args, way: Mode, part: &mut Part) -> Result<()> {
    let start = Instant::now();
    let started = Cluster::start(way).await;
    if started.is_err() {
        keep_logs(way).await?;
    }
    let mut cluster = started?;
    let after = start.elapsed().as_secs_f64();
    print_line(&format!("{}: three nodes are Ready and write, {after:.0} s after the beginning", way.name()));
    let played = play_in(&mut cluster, args, part).await;
    // The logs go with their cluster.
    if played.is_err() || !part.wrong.is_empty() {
        keep_logs(way).await?;
    }
    played
}

async fn play_in(cluster: &mut Cluster, args: &Args, part: &mut Part) -> Result<()> {
    for scenario in args.scenarios(cluster.mode) {
        play_scenario(cluster, scenario, part).await?;
    }
    storm(cluster, args, part).await
}

impl Args {
    fn scenarios(&self, way: Mode) -> impl Iterator<Item = &'static Scenario> {
        let named =
            |scenario: &Scenario| self.only.is_empty() || self.only.iter().any(|part| scenario.name.contains(part));
        scenario::ALL.iter().filter(move |scenario| {
            named(scenario) && !self.no_scenarios && (!self.short || scenario.short.contains(&way))
        })
    }

    fn rounds_of(&self, way: Mode) -> usize {
        if way == Mode::Replace { self.rounds } else { 0 }
    }

    fn includes_mode(&self, way: Mode) -> bool {
        self.ways.contains(&way) && (self.scenarios(way).next().is_some() || self.rounds_of(way) > 0)
    }
}

/// Plays it; what is not as it was promised is wrong.
async fn play_scenario(cluster: &mut Cluster, scenario: &'static Scenario, part: &mut Part) -> Result<()> {
    let way = cluster.mode;
    let name = format!("{}: {}", way.name(), scenario.name);
    let promised = scenario.outcomes[way as usize];
    let Scenario { identity, faults, .. } = *scenario;
    let incident = Incident { identity, faults, lasts: scenario.lasts(), promised };
    let Some(finding) = played(cluster, &name, incident).await? else {
        part.wrong.push(format!("{name}: it could not be played to its end"));
        return Ok(());
    };
    print_line(&format!("{name}: {}", report::cell(&finding)));
    for violation in &finding.violations {
        print_line(&format!("    {violation}"));
    }
    for word in &finding.said {
        print_line(&format!("    {word}"));
    }
    if !promised.contains(&finding.outcome) {
        let words = promised.iter().map(|one| one.as_str()).collect::<Vec<_>>().join(" or ");
        part.wrong.push(format!("{name}: {}, not {words}", finding.outcome.as_str()));
    }
    if let Some(late) = finding.outlived.filter(Outlived::is_late) {
        part.wrong.push(format!("{name}: {late}"));
    }
    part.report.add(scenario, way, finding);
    Ok(())
}

/// `None`: it could not be played to its end, which is said; the next one finds a cluster that began anew.
async fn played(cluster: &mut Cluster, name: &str, incident: Incident<'_>) -> Result<Option<Finding>> {
    match play::play(cluster, incident).await {
        Ok(finding) => Ok(Some(finding)),
        Err(error) => {
            print_line(&format!("{name}: {error:#}"));
            cluster.repair().await?;
            cluster.start_over().await?;
            cluster.until_calm(play::CALM).await?;
            Ok(None)
        }
    }
}

/// Rounds by chance; wrong are those in which something was violated, or that waited without a reason that is said.
async fn storm(cluster: &mut Cluster, args: &Args, part: &mut Part) -> Result<()> {
    let Part { report, wrong } = part;
    let (seed, rounds) = (args.seed, args.rounds_of(cluster.mode));
    let (mut chance, mut counts, mut handovers) = (Chance::new(seed), [0; 4], Vec::new());
    let mut outlived = None;
    for round in 1..=rounds {
        let identity = IDENTITIES[chance.below(IDENTITIES.len())];
        let faults = if args.with_agents { storm::draw_with_agents(&mut chance) } else { storm::draw(&mut chance) };
        let name = format!("seed {seed}, round {round}: {identity}: {faults:?}");
        let lasts = storm::lasts(&faults);
        let incident = Incident { identity, faults: &faults, lasts, promised: &Outcome::ALL };
        let Some(finding) = played(cluster, &name, incident).await? else {
            wrong.push(format!("{name}: it could not be played to its end"));
            continue;
        };
        let (cell, said) = (report::cell(&finding), finding.said.join("; "));
        print_line(&format!("{name}: {cell}; {said}{}", report::margins(&finding.handovers, finding.outlived)));
        counts[finding.outcome as usize] += 1;
        handovers.extend_from_slice(&finding.handovers);
        outlived = Outlived::longer(outlived, finding.outlived);
        wrong.extend(finding.outlived.filter(Outlived::is_late).map(|late| format!("{name}: {late}")));
        match finding.outcome {
            Outcome::Unsafe => wrong.push(format!("{name}: {:?}", finding.violations)),
            Outcome::Waits if finding.said.is_empty() => wrong.push(format!("{name}: it waits and nobody says why")),
            Outcome::Waits | Outcome::Recovers | Outcome::Undisturbed => {}
        }
    }
    if rounds > 0 {
        let [undisturbed, recovers, waits, broken] = counts;
        let with = if args.with_agents { " with agents" } else { "" };
        let shortest = report::shortest(&handovers).map_or_else(|| "–".to_owned(), |time| format!("{time:.1} s"));
        let line =
            format!("| {seed} | {rounds}{with} | {undisturbed} | {recovers} | {waits} | {broken} | {shortest} |");
        print_line(&format!("{line}{}", report::margins(&handovers, outlived)));
        report.rounds.push(line);
    }
    Ok(())
}
