//! What is measured, and on how much.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde::Serialize;

use crate::bare::Answers;
use crate::contender::Contender;

/// Both contenders wait this long before they remove the pods of a missing node.
const QUARANTINE: Duration = Duration::from_secs(40);

/// What --quick waits instead. kube-controller-manager's time is not a flag, so it is left out there.
const QUICK_QUARANTINE: Duration = Duration::from_secs(5);

/// Measures pod-safety and kube-controller-manager's pod garbage collector and disruption controller, one after the
/// other, on the same real API server, and says which of the promised numbers are reached.
///
/// At full size it takes two hours and 12 GiB of memory, most of the time for kube-controller-manager.
#[derive(Debug, Parser)]
#[command(name = "bench", max_term_width = 100)]
pub(crate) struct Args {
    /// How many nodes [default: 5000; with --quick 50]
    #[arg(long, value_name = "COUNT")]
    nodes: Option<usize>,

    /// How many pods on them [default: 150000; with --quick 1000]
    #[arg(long, value_name = "COUNT")]
    pods: Option<usize>,

    /// How many orphans are removed, each number a measurement [default: 1000,10000; with --quick 100]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    orphans: Option<Vec<usize>>,

    /// On how many missing nodes they are [default: 50; with --quick 5]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    ghosts: Option<u16>,

    /// For how long nothing changes in the quiet phase [default: 5; with --quick a twentieth]
    #[arg(long, value_name = "MINUTES")]
    quiet_minutes: Option<f64>,

    /// How often what is quick is repeated, for the median [default: 3; with --quick 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,

    /// Numbers of connections of the bare loop [default: 8,16,32,64; with --quick 8,32]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    connections: Option<Vec<usize>>,

    /// How many disruption budgets there are, each number a measurement; each has twenty of the pods [default:
    /// 1000,5000; with --quick 40]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    budgets: Option<Vec<usize>>,

    /// Over how many namespaces they and the pods are, each number a measurement [default: 1,100; with --quick 1,4]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    budget_namespaces: Option<Vec<u16>>,

    /// For how long the statuses of budgets are waited for before it is said how many were right [default: 60]
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u16).range(1..))]
    budget_limit_minutes: Option<u16>,

    /// Only these phases
    #[arg(long, value_name = "PHASES", value_delimiter = ',', value_enum)]
    only: Vec<Phase>,

    /// Only these contenders
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum)]
    contenders: Vec<Contender>,

    /// A small run of a minute that shows that all of it works; its numbers mean nothing
    #[arg(long)]
    quick: bool,

    /// What the bare loop asks the API server to answer
    #[arg(long, value_enum, default_value_t = Answers::Json)]
    bare_answers: Answers,

    /// A pod-safety to measure instead of the one in this repository
    #[arg(long, value_name = "FILE")]
    pod_safety: Option<PathBuf>,

    /// Also writes benchmarks.json there, and the tables into its benchmarks.md
    #[arg(long, value_name = "FOLDER")]
    docs: Option<PathBuf>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub(crate) enum Phase {
    /// From the start of a process to its synced caches
    Start,
    /// Some minutes without changes
    Quiet,
    /// The same while kubelets renew their leases
    Heartbeats,
    /// Orphans appear and are removed
    Removal,
    /// The same writes from a loop that does nothing else
    Bare,
    /// Disruption budgets: all statuses after a cold start, and each after the change of a pod
    Budgets,
    /// Nodes are lost, and nodes get taints
    Nodes,
}

/// What is measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) orphans: Vec<usize>,
    pub(crate) ghosts: usize,
    pub(crate) quiet: Duration,
    pub(crate) rounds: u16,
    pub(crate) connections: Vec<usize>,
    pub(crate) phases: Vec<Phase>,
    pub(crate) contenders: Vec<Contender>,
    pub(crate) answers: Answers,
    pub(crate) budgets: Vec<usize>,
    pub(crate) budget_namespaces: Vec<usize>,
    /// How many pods become unready in each second.
    pub(crate) changes_per_second: u32,
    /// For how long they do.
    pub(crate) changes: Duration,
    #[serde(skip)]
    pub(crate) budget_limit: Duration,
    /// Set with --quick.
    #[serde(skip)]
    pub(crate) shorter_quarantine: Option<Duration>,
    /// For how long the API server must be calm before it is calm.
    #[serde(skip)]
    pub(crate) calm_seconds: u32,
    /// For how long the API server's idle use is measured.
    #[serde(skip)]
    pub(crate) idle: Duration,
    #[serde(skip)]
    pub(crate) binary: Option<PathBuf>,
    #[serde(skip)]
    pub(crate) docs: Option<PathBuf>,
}

impl From<Args> for Plan {
    fn from(args: Args) -> Self {
        let Args {
            nodes,
            pods,
            orphans,
            ghosts,
            quiet_minutes,
            rounds,
            connections,
            budgets,
            budget_namespaces,
            budget_limit_minutes,
            only,
            contenders,
            quick,
            bare_answers,
            pod_safety,
            docs,
        } = args;
        let seconds = |full: u64, small: u64| Duration::from_secs(if quick { small } else { full });
        let quiet = Duration::try_from_secs_f64(quiet_minutes.unwrap_or_default() * 60.0);
        Self {
            nodes: nodes.unwrap_or(if quick { 50 } else { 5_000 }),
            pods: pods.unwrap_or(if quick { 1_000 } else { 150_000 }),
            orphans: orphans.unwrap_or(if quick { vec![100] } else { vec![1_000, 10_000] }),
            ghosts: ghosts.map_or(if quick { 5 } else { 50 }, usize::from),
            quiet: quiet.ok().filter(|quiet| !quiet.is_zero()).unwrap_or_else(|| seconds(300, 3)),
            rounds: rounds.unwrap_or(if quick { 1 } else { 3 }),
            connections: connections.unwrap_or(if quick { vec![8, 32] } else { vec![8, 16, 32, 64] }),
            phases: if only.is_empty() { Phase::value_variants().to_vec() } else { only },
            contenders: if contenders.is_empty() { Contender::value_variants().to_vec() } else { contenders },
            answers: bare_answers,
            budgets: budgets.unwrap_or(if quick { vec![40] } else { vec![1_000, 5_000] }),
            budget_namespaces: budget_namespaces
                .map_or(if quick { vec![1, 4] } else { vec![1, 100] }, |counts| {
                    counts.into_iter().map(usize::from).collect()
                }),
            changes_per_second: if quick { 20 } else { 100 },
            changes: seconds(60, 2),
            budget_limit: Duration::from_secs(60 * u64::from(budget_limit_minutes.unwrap_or(60))),
            shorter_quarantine: quick.then_some(QUICK_QUARANTINE),
            calm_seconds: if quick { 1 } else { 5 },
            idle: seconds(30, 2),
            binary: pod_safety,
            docs,
        }
    }
}

impl Plan {
    /// How long pods of a missing node are left alone.
    pub(crate) fn quarantine(&self) -> Duration {
        self.shorter_quarantine.unwrap_or(QUARANTINE)
    }

    /// Whether `phase` is to be measured.
    pub(crate) fn has(&self, phase: Phase) -> bool {
        self.phases.contains(&phase)
    }

    /// Who takes part in a removal: see [`QUICK_QUARANTINE`].
    pub(crate) fn removers(&self) -> impl Iterator<Item = Contender> {
        let quick = self.shorter_quarantine.is_some();
        self.contenders.iter().copied().filter(move |contender| !quick || *contender == Contender::Ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn plan(flags: &[&str]) -> Plan {
        Plan::from(Args::try_parse_from([&["bench"], flags].concat()).unwrap())
    }

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn without_flags_it_is_the_full_size() {
        let plan = plan(&[]);
        assert_eq!((plan.nodes, plan.pods, plan.ghosts), (5_000, 150_000, 50));
        assert_eq!(plan.orphans, [1_000, 10_000]);
        assert_eq!((plan.quiet, plan.quarantine()), (Duration::from_secs(300), QUARANTINE));
        assert_eq!((plan.phases.len(), plan.removers().count()), (7, 2));
        assert_eq!((plan.budgets, plan.budget_namespaces), (vec![1_000, 5_000], vec![1, 100]));
    }

    #[test]
    fn flags_win_over_quick() {
        let plan = plan(&["--quick", "--pods=20000", "--only=start,bare", "--quiet-minutes=0.5"]);
        assert_eq!((plan.nodes, plan.pods), (50, 20_000));
        assert_eq!(plan.phases, [Phase::Start, Phase::Bare]);
        assert_eq!(plan.quiet, Duration::from_secs(30));
        assert_eq!(plan.removers().collect::<Vec<_>>(), [Contender::Ours]);
    }
}
