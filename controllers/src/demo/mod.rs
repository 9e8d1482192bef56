//! `pod-safety demo` and `pod-safety simulate`: the shipped controllers in a simulated cluster.
//!
//! | file | subject |
//! |---|---|
//! | `hosting` | real `kubectl` in what is shown |
//! | `launch` | the shipped process, as the simulator starts it |
//! | `plain` | without a terminal: the timeline as lines, the verdict, the table |
//! | `simulate` | a scenario file |
//! | `show` | the state of the screen, and what keys do |
//! | `picture` | the layout of the screen, the table and the explanations above it |
//! | `cluster` | nodes, pods and processes |
//! | `panels` | why pods wait, the outcome by all sets of rules, and what happened |
//! | `record` | the same as an asciinema cast |
//! | `style` | colours |
//! | `screen` | the terminal |
//!
//! No other part of this crate may name the simulator (tests/locks), and the container image is built without the
//! feature.

mod cluster;
mod hosting;
mod launch;
mod panels;
mod picture;
mod plain;
mod record;
mod screen;
mod show;
mod simulate;
mod style;

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod svg;
#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as ClapArgs, ValueEnum};
use pod_safety_shared::record::error_chain;
use pod_safety_simulator::scenario::{Contender, Scenario, shipped};

pub(super) use simulate::SimulateArgs;

use pod_safety_process::sanitize;

/// Simulated seconds per real second: a quarantine of 40 s passes in seven.
const SPEED: f64 = 6.0;
/// The fastest speed that a person can follow.
const FASTEST: f64 = 1_000.0;

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// A scenario by its name or number, see --list-scenarios
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,

    /// Print the scenarios and exit
    #[arg(long)]
    list_scenarios: bool,

    /// The seed of all random decisions: another number gives another run of the same scenario
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// Simulated seconds per real second. Default: 6; without a terminal: as fast as possible
    #[arg(long, value_name = "FACTOR", value_parser = speed, allow_hyphen_values = true)]
    speed: Option<f64>,

    /// The rules to run
    #[arg(long, value_enum, default_value_t = SubjectArg::PodSafety)]
    subject: SubjectArg,

    /// Print lines instead of a picture, as without a terminal. Ends with the verdict: exit code 0 if
    /// pod-safety broke no rule, else 1
    #[arg(long)]
    plain: bool,

    /// Serve the simulated cluster to a real kubectl: kubectl --server http://127.0.0.1:8001 get pods -A -o wide -w.
    /// There is no authentication, so only an address of this machine is allowed. With --plain: at speed 1 by default
    #[arg(long, value_name = "ADDRESS", value_parser = hosting::address)]
    serve: Option<SocketAddr>,

    /// With --serve: write a kubeconfig of the simulated cluster to this file, for all commands of pod-safety
    #[arg(long, value_name = "FILE", requires = "serve")]
    write_kubeconfig: Option<PathBuf>,

    /// Write what is shown, until every pod is back, to an asciinema cast. Needs no terminal
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plain", "serve"])]
    record: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SubjectArg {
    /// The controllers of this program
    PodSafety,
    /// The rules of kube-controller-manager alone
    KubeControllerManager,
    /// A script that force deletes when a node is not ready
    Script,
}

impl SubjectArg {
    const fn contender(self) -> Contender {
        match self {
            Self::PodSafety => Contender::PodSafety,
            Self::KubeControllerManager => Contender::KubeControllerManager,
            Self::Script => Contender::Script,
        }
    }
}

/// Arguments with which nothing can be run.
#[derive(Debug, thiserror::Error)]
enum BadUse {
    /// An unknown scenario.
    #[error("invalid value {0:?} for '--scenario <NAME>': known are {1}")]
    Scenario(String, String),
    /// The file is invalid.
    #[error(transparent)]
    File(#[from] pod_safety_simulator::scenario::FieldError),
    /// The file cannot be read.
    #[error("{0}: {1}")]
    Unreadable(String, std::io::Error),
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (0.1..=FASTEST).contains(speed));
    speed.ok_or_else(|| format!("not a speed; allowed is 0.1 to {FASTEST}"))
}

impl Args {
    /// Whether the given scenario exists.
    #[cfg(test)]
    pub(super) fn knows_its_scenario(&self) -> bool {
        shipped().is_ok_and(|scenarios| find_scenario(&scenarios, self.scenario.as_deref()).is_ok())
    }

    /// Returns whether the run succeeded.
    pub(super) fn main(self) -> anyhow::Result<bool> {
        let Self { scenario, list_scenarios, seed, speed, subject, plain, serve, write_kubeconfig, record } = self;
        let mut scenarios = shipped()?;
        if list_scenarios {
            pod_safety_cli::print(&format_list(&scenarios))?;
            return Ok(true);
        }
        if let Some(seed) = seed {
            scenarios.iter_mut().for_each(|scenario| scenario.plan.seed = seed);
        }
        let at = find_scenario(&scenarios, scenario.as_deref())?;
        let contender = subject.contender();
        if let Some(file) = record {
            record::play(show::Show::new(scenarios, at, contender, speed.unwrap_or(SPEED)), &file)?;
            return Ok(true);
        }
        if plain || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
            let hosting = hosting::Hosting::new(serve, write_kubeconfig);
            // A cluster that is over in a second cannot be inspected with kubectl.
            let speed = speed.or(serve.map(|_| 1.0));
            return plain::play(scenarios.get(at), contender, speed, hosting);
        }
        let show = show::Show::new(scenarios, at, contender, speed.unwrap_or(SPEED));
        screen::play(show, hosting::Hosting::new(serve, write_kubeconfig))?;
        Ok(true)
    }
}

/// The index of the scenario with this name or number.
fn find_scenario(scenarios: &[Scenario], requested: Option<&str>) -> Result<usize, BadUse> {
    let Some(requested) = requested else { return Ok(0) };
    let named = scenarios.iter().position(|scenario| scenario.name == requested);
    let numbered = || requested.parse::<usize>().ok()?.checked_sub(1).filter(|at| *at < scenarios.len());
    named.or_else(numbered).ok_or_else(|| {
        let names: Vec<_> = scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
        BadUse::Scenario(requested.to_owned(), names.join(", "))
    })
}

fn format_list(scenarios: &[Scenario]) -> String {
    let width = scenarios.iter().map(|scenario| scenario.name.len()).max().unwrap_or(0);
    let lines = scenarios.iter().enumerate();
    lines.map(|(at, scenario)| format!("{:>2}  {:<width$}  {}\n", at + 1, scenario.name, scenario.title)).collect()
}

/// The exit code: 0 success, 1 a rule was broken or nothing could be run, 2 wrong use.
pub(super) fn exit_code(done: anyhow::Result<bool>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            pod_safety_cli::print_stderr(&sanitize::line(&format!("pod-safety: {}", error_chain(error.as_ref()))));
            if error.is::<BadUse>() { ExitCode::from(pod_safety_cli::USAGE) } else { ExitCode::FAILURE }
        }
    }
}
