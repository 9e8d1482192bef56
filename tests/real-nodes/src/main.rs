//! # Real nodes
//!
//! Three machines with kubelets, containers and cables of their own, on one Linux host, beside a real control plane; what goes
//! wrong between them; and who really runs meanwhile.
//!
//! - `needs`: what this machine must allow; `scripts/world.sh`: namespaces in which nothing outlives the first process
//! - `machine`: a machine, by `scripts/machine.sh`; `cluster` and `objects`: control plane, StatefulSet,
//!   power switches, and who keeps order
//! - `fault`: what goes wrong, and its repair; `scenario`: the table; `storm`: rounds by chance; `play`: one incident
//! - `watch`: process tables and logs; `oracle`: who ran when nobody should have; `planted`: whether they see it;
//!   `report`: the table that comes of it
//!
//! `docs/real-nodes.md` says what the table means.
#![expect(clippy::disallowed_methods, reason = "it drives a real cluster in real time")]

mod cluster;
mod fault;
mod machine;
mod needs;
mod objects;
mod oracle;
mod planted;
mod play;
mod report;
mod scenario;
mod storm;
mod watch;

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;

use cluster::{Cluster, Way};
use fault::Fault;
use objects::IDENTITIES;
use play::Finding;
use report::Report;
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
    ways: Vec<Way>,
    /// So many rounds of faults by chance, after the scenarios
    #[arg(long, default_value_t = 0)]
    rounds: usize,
    /// Rounds are drawn from this
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also writes the table to this file
    #[arg(long)]
    table: Option<PathBuf>,
    /// No cluster: two copies on one volume, which must be found
    #[arg(long)]
    planted: bool,
    /// A shell with kubectl in a cluster, in the first of the ways
    #[arg(long)]
    shell: bool,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if std::env::var_os(INSIDE).is_some() {
        return runtime.block_on(inside(&args));
    }
    if let Some(missing) = needs::missing() {
        say(&format!("NOT RUN: needs {missing}"));
        return Ok(ExitCode::FAILURE);
    }
    // What has to be built or fetched needs the network, which the world has not.
    runtime.block_on(async {
        pod_safety_control_plane::tool("etcd").await?;
        pod_safety_control_plane::binary().await?;
        pod_safety_control_plane::rigs::Rigs::new().await
    })?;
    let tools = Command::new(machine::scripts().join("tools.sh")).stderr(Stdio::inherit()).output()?;
    ensure!(tools.status.success(), "tools.sh failed ({})", tools.status);
    let error = Command::new(machine::scripts().join("world.sh"))
        .arg(String::from_utf8(tools.stdout)?.trim())
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .exec();
    Err(error).context("entering the world")
}

async fn inside(args: &Args) -> Result<ExitCode> {
    if args.planted {
        let tools = std::env::var_os("REAL_NODES_TOOLS").context("no tools")?;
        for violation in planted::check(tools.as_ref()).await? {
            writeln!(std::io::stdout(), "{violation}")?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.shell {
        let cluster = Cluster::start(args.ways.first().copied().context("in which way?")?).await?;
        Command::new("bash").env("KUBECONFIG", cluster.plane.admin_kubeconfig()).status()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut report = Report::default();
    let played = play_all(args, &mut report).await;
    // What was found before it failed is worth seeing.
    std::io::stdout().write_all(report.markdown().as_bytes())?;
    if let Some(path) = &args.table {
        std::fs::write(path, report.page()).with_context(|| format!("writing {}", path.display()))?;
    }
    for line in played.as_ref().into_iter().flatten() {
        say(&format!("WRONG: {line}"));
    }
    let good = played?.is_empty();
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Everything here is in memory and goes with us.
async fn keep_logs(way: Way) -> Result<()> {
    let folder = machine::scripts().join("../../../target/real-nodes").join(way.name());
    std::fs::create_dir_all(&folder)?;
    let script = "rm -rf \"$0\"/*; cp -r /run/volumes \"$0\"; for one in /run/machines/*; do cp -r \"$one/log\" \"$0/${one##*/}\"; cp \"$one/boot.log\" \"$0/${one##*/}\"; done
        for one in /run/scratch/*/logs; do cp \"$one\"/* \"$0\" || true; done";
    machine::run("bash", &["-c", script, &folder.to_string_lossy()]).await?;
    say(&format!("the logs of all programs are in {}", folder.canonicalize()?.display()));
    Ok(())
}

/// Plays what was asked for; gives back what is not as it was promised.
async fn play_all(args: &Args, report: &mut Report) -> Result<Vec<String>> {
    let (mut wrong, start) = (Vec::new(), Instant::now());
    for way in Way::ALL.into_iter().filter(|way| args.ways.contains(way)) {
        let all = scenario::ALL.iter().filter(|scenario| args.has(scenario, way));
        let all: Vec<_> = all.collect();
        let rounds = if way == Way::Replace { args.rounds } else { 0 };
        if all.is_empty() && rounds == 0 {
            continue;
        }
        let started = Cluster::start(way).await;
        if started.is_err() {
            keep_logs(way).await?;
        }
        let mut cluster = started?;
        say(&format!(
            "{}: three nodes are Ready and write, {:.0} s after the beginning",
            way.name(),
            start.elapsed().as_secs_f64()
        ));
        let played = play_one_way(&mut cluster, args, &all, rounds, report).await;
        // The logs go with their cluster.
        if !played.as_ref().is_ok_and(Vec::is_empty) {
            keep_logs(way).await?;
        }
        wrong.extend(played?);
    }
    say(&format!("{:.0} s, {} wrong", start.elapsed().as_secs_f64(), wrong.len()));
    Ok(wrong)
}

async fn play_one_way(
    cluster: &mut Cluster,
    args: &Args,
    scenarios: &[&'static Scenario],
    rounds: usize,
    report: &mut Report,
) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for scenario in scenarios {
        wrong.extend(one(cluster, scenario, report).await?);
    }
    wrong.extend(storm(cluster, args.seed, rounds, report).await?);
    Ok(wrong)
}

impl Args {
    fn has(&self, scenario: &Scenario, way: Way) -> bool {
        let named = self.only.is_empty() || self.only.iter().any(|part| scenario.name.contains(part));
        named && !self.no_scenarios && (!self.short || scenario.short.contains(&way))
    }
}

/// Plays it; gives back what is not as it was promised.
async fn one(
    cluster: &mut Cluster,
    scenario: &'static Scenario,
    report: &mut Report,
) -> Result<Option<String>> {
    let way = cluster.way;
    let name = format!("{}: {}", way.name(), scenario.name);
    let Some(finding) = played(cluster, &name, IDENTITIES[0], scenario.faults, scenario.lasts()).await?
    else {
        return Ok(Some(format!("{name}: it could not be played to its end")));
    };
    say(&format!("{name}: {}", report::cell(&finding)));
    for violation in &finding.violations {
        say(&format!("    {violation}"));
    }
    for word in &finding.said {
        say(&format!("    {word}"));
    }
    let promised = scenario.outcomes[way as usize];
    let kept = promised.contains(&finding.outcome);
    let words = promised.iter().map(|one| one.word()).collect::<Vec<_>>().join(" or ");
    let broken = format!("{}, {}: {}, not {words}", scenario.name, way.name(), finding.outcome.word());
    report.add(scenario, way, finding);
    Ok((!kept).then_some(broken))
}

/// `None`: it could not be played to its end, which is said; the next one finds a cluster that began anew.
async fn played(
    cluster: &mut Cluster,
    name: &str,
    identity: &str,
    faults: &[(u64, Fault)],
    lasts: Duration,
) -> Result<Option<Finding>> {
    match play::play(cluster, identity, faults, lasts).await {
        Ok(finding) => Ok(Some(finding)),
        Err(error) => {
            say(&format!("{name}: {error:#}"));
            cluster.repair().await?;
            cluster.begin_anew().await?;
            cluster.until_calm(play::CALM).await?;
            Ok(None)
        }
    }
}

/// Rounds by chance; gives back those in which something was violated, or in which nobody said why nothing went on.
async fn storm(cluster: &mut Cluster, seed: u64, rounds: usize, report: &mut Report) -> Result<Vec<String>> {
    let (mut chance, mut wrong, mut counts) = (Chance::new(seed), Vec::new(), [0; 4]);
    for round in 1..=rounds {
        let identity = IDENTITIES[chance.below(IDENTITIES.len())];
        let faults = storm::draw(&mut chance);
        let name = format!("seed {seed}, round {round}: {identity}: {faults:?}");
        let lasts = Duration::from_secs(storm::LASTS);
        let Some(finding) = played(cluster, &name, identity, &faults, lasts).await? else {
            wrong.push(format!("{name}: it could not be played to its end"));
            continue;
        };
        say(&format!("{name}: {}; {}", report::cell(&finding), finding.said.join("; ")));
        counts[finding.outcome as usize] += 1;
        match finding.outcome {
            Outcome::Unsafe => wrong.push(format!("{name}: {:?}", finding.violations)),
            Outcome::Waits if finding.said.is_empty() => {
                wrong.push(format!("{name}: it waits and nobody says why"))
            }
            Outcome::Waits | Outcome::Recovers | Outcome::Undisturbed => {}
        }
    }
    if rounds > 0 {
        let [undisturbed, recovers, waits, broken] = counts;
        let line = format!(
            "Seed {seed}, {rounds} rounds by chance under `replace`: {undisturbed} undisturbed, {recovers} recovered, {waits} waited and said what for, {broken} unsafe."
        );
        say(&line);
        report.rounds.push(line);
    }
    Ok(wrong)
}

/// Tells the person who waits. When even that fails there is nobody to tell.
fn say(line: &str) {
    let _nobody = writeln!(std::io::stderr(), "real nodes: {line}");
}
