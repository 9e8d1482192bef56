//! What is measured, and on how much: the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::agents::Agents;
use crate::bare::Answers;
use crate::contender::Contender;
use crate::drains::Drains;
use crate::mass::Mass;
use crate::pictures::Draw;
use crate::reflect::Reflect;
use crate::scale::Scale;
use crate::sizes::Sizes;
use crate::synthetic::Serve;
use crate::unreachable::Silent;

/// Both contenders wait this long before they remove the pods of a missing node.
const QUARANTINE: Duration = Duration::from_secs(40);

/// The quarantine with --quick. kube-controller-manager's quarantine has no flag, so it is not measured then.
const QUICK_QUARANTINE: Duration = Duration::from_secs(5);

/// Measures pod-safety and kube-controller-manager's pod garbage collector and disruption controller, one after the
/// other, on the same real API server, and shows which of the promised numbers are reached.
///
/// At full size it takes two hours and 12 GiB of memory, most of the time for kube-controller-manager. With --quick
/// there is a small default for each flag.
#[derive(Clone, Debug, Parser, Serialize)]
#[command(name = "bench", max_term_width = 100)]
pub(crate) struct Plan {
    /// What else this program does
    #[command(subcommand)]
    #[serde(skip)]
    pub(crate) command: Option<Command>,

    /// How many nodes
    #[arg(long, value_name = "COUNT", default_value = "5000", default_value_if("quick", "true", "50"))]
    pub(crate) nodes: usize,

    /// How many pods on them
    #[arg(long, value_name = "COUNT", default_value = "150000", default_value_if("quick", "true", "1000"))]
    pub(crate) pods: usize,

    /// How many orphans are removed, each number a measurement
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1000,10000")]
    #[arg(default_value_if("quick", "true", "100"))]
    pub(crate) orphans: Vec<usize>,

    /// On how many missing nodes they are
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..), default_value = "50")]
    #[arg(default_value_if("quick", "true", "5"))]
    pub(crate) ghosts: u16,

    /// For how long nothing changes in the quiet phase
    #[arg(long, value_name = "MINUTES", default_value = "2", default_value_if("quick", "true", "0.05"))]
    quiet_minutes: f64,

    /// How often what is quick is repeated, for the median
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..), default_value = "3")]
    #[arg(default_value_if("quick", "true", "1"))]
    pub(crate) rounds: u16,

    /// Numbers of connections of the bare loop
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "16")]
    #[arg(default_value_if("quick", "true", "8,32"))]
    pub(crate) connections: Vec<usize>,

    /// How many disruption budgets there are, each number a measurement; each has twenty of the pods
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1000,5000")]
    #[arg(default_value_if("quick", "true", "40"))]
    pub(crate) budgets: Vec<usize>,

    /// Over how many namespaces they and the pods are, each number a measurement
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    #[arg(default_value = "1,100", default_value_if("quick", "true", "1,4"))]
    pub(crate) budget_namespaces: Vec<u16>,

    /// For how long the statuses of budgets are waited for before it is said how many were right
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u16).range(1..), default_value = "5")]
    budget_limit_minutes: u16,

    /// Only these phases
    #[arg(long, value_name = "PHASES", value_delimiter = ',', value_enum)]
    only: Vec<Phase>,

    /// Only these contenders
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        value_enum,
        default_value = "ours,kcm,kube-runtime,floor"
    )]
    pub(crate) contenders: Vec<Contender>,

    /// A small run of a minute that shows that all of it works; its numbers mean nothing
    #[arg(long)]
    pub(crate) quick: bool,

    /// What the bare loop asks the API server to answer
    #[arg(long, value_enum, default_value_t = Answers::Json)]
    pub(crate) bare_answers: Answers,

    /// A pod-safety to measure instead of the one in this repository
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub(crate) pod_safety: Option<PathBuf>,

    /// Also writes benchmarks.json, benchmarks.svg and benchmarks.md there
    #[arg(long, value_name = "FOLDER")]
    #[serde(skip)]
    pub(crate) docs: Option<PathBuf>,
}

/// What this program does instead of measuring.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Serves a cluster of any size that is made up
    Serve(Serve),
    /// Measures pod-safety alone on such clusters
    Scale(Scale),
    /// Measures what the Leases of node agents cost the API server and etcd
    Agents(Agents),
    /// Measures how the pods of a lost zone are removed, on a cluster that is made up
    Mass(Mass),
    /// Measures how soon nodes whose kubelets stop reporting are marked lost, also by a standby, on such clusters
    Silent(Silent),
    /// Measures how many nodes are drained, beside kubectl drain
    Drains(Drains),
    /// Is one of the contenders that are no products
    #[command(hide = true)]
    Reflect(Reflect),
    /// Measures on clusters that are made up, at every size, and writes docs/scale.md
    Sizes(Sizes),
    /// Generates docs/benchmarks.md from its numbers, and the charts of both pages
    Draw(Draw),
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Phase {
    /// From the start of a process to its synced caches
    Start,
    /// Some minutes without changes
    Quiet,
    /// The same while kubelets renew their leases
    Heartbeats,
    /// The leader dies, and the one that stands by decides
    Failover,
    /// Orphans appear and are removed
    Removal,
    /// The same writes from a loop that does nothing else
    Bare,
    /// Disruption budgets: all statuses after a cold start, and each after the change of a pod
    Budgets,
    /// Nodes are lost, and nodes get taints
    Nodes,
    /// What one tenant writes: pods and budgets that all match, labels without end
    Tenants,
    /// The first part of that of nodes
    #[value(skip)]
    Losses,
}

impl Phase {
    /// The name for `--only`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Quiet => "quiet",
            Self::Heartbeats => "heartbeats",
            Self::Failover => "failover",
            Self::Removal => "removal",
            Self::Bare => "bare",
            Self::Budgets => "budgets",
            Self::Nodes | Self::Losses => "nodes",
            Self::Tenants => "tenants",
        }
    }
}

impl Plan {
    /// How long pods of a missing node are kept.
    pub(crate) fn quarantine(&self) -> Duration {
        if self.quick { QUICK_QUARANTINE } else { QUARANTINE }
    }

    /// The length of the quiet phase.
    pub(crate) fn quiet(&self) -> Duration {
        Duration::try_from_secs_f64(self.quiet_minutes * 60.0).unwrap_or_default()
    }

    /// How many pods become unready per second, and how many in total.
    pub(crate) fn changes(&self) -> (u32, u32) {
        if self.quick { (20, 2 * 20) } else { (100, 60 * 100) }
    }

    pub(crate) fn budget_limit(&self) -> Duration {
        Duration::from_secs(60 * u64::from(self.budget_limit_minutes))
    }

    /// How long the API server must be idle before it counts as idle.
    pub(crate) fn calm_seconds(&self) -> u32 {
        if self.quick { 1 } else { 5 }
    }

    /// How many pods and PDBs one tenant has, and how long each scene lasts.
    pub(crate) fn tenants(&self) -> (usize, Duration) {
        if self.quick { (100, Duration::from_secs(5)) } else { (2_500, Duration::from_secs(60)) }
    }

    /// How long the API server's idle use is measured.
    pub(crate) fn idle(&self) -> Duration {
        Duration::from_secs(if self.quick { 2 } else { 30 })
    }

    /// Whether `phase` is to be measured.
    pub(crate) fn includes(&self, phase: Phase) -> bool {
        self.only.is_empty() || self.only.contains(&phase)
    }

    /// The contenders of a phase.
    pub(crate) fn those_of(&self, phase: Phase) -> impl Iterator<Item = Contender> {
        self.contenders.iter().copied().filter(move |contender| self.includes(phase) && contender.takes_part(phase))
    }

    /// The contenders of a removal: see [`QUICK_QUARANTINE`].
    pub(crate) fn removers(&self) -> impl Iterator<Item = Contender> {
        self.those_of(Phase::Removal).filter(|contender| !self.quick || *contender == Contender::PodSafety)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn plan(flags: &[&str]) -> Plan {
        Plan::try_parse_from([&["bench"], flags].concat()).unwrap()
    }

    fn phases(plan: &Plan) -> Vec<Phase> {
        Phase::value_variants().iter().copied().filter(|phase| plan.includes(*phase)).collect()
    }

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        Plan::command().debug_assert();
    }

    #[test]
    fn without_flags_it_is_the_full_size() {
        let plan = plan(&[]);
        assert_eq!((plan.nodes, plan.pods, plan.ghosts), (5_000, 150_000, 50));
        assert_eq!(plan.orphans, [1_000, 10_000]);
        assert_eq!((plan.quiet(), plan.quarantine()), (Duration::from_secs(120), QUARANTINE));
        assert_eq!((phases(&plan).len(), plan.removers().count()), (9, 2));
        assert_eq!(Contender::value_variants().iter().filter(|one| one.takes_part(Phase::Heartbeats)).count(), 3);
        assert_eq!((&*plan.budgets, &*plan.budget_namespaces), (&[1_000, 5_000][..], &[1, 100][..]));
        assert_eq!((plan.connections.len(), plan.rounds), (1, 3));
    }

    #[test]
    fn flags_override_quick() {
        assert_eq!(plan(&["--quick"]).removers().collect::<Vec<_>>(), [Contender::PodSafety]);
        let plan = plan(&["--quick", "--pods=20000", "--only=start,bare", "--quiet-minutes=0.5"]);
        assert_eq!((plan.nodes, plan.pods), (50, 20_000));
        assert_eq!(phases(&plan), [Phase::Start, Phase::Bare]);
        assert_eq!(plan.quiet(), Duration::from_secs(30));
        assert_eq!((plan.those_of(Phase::Start).count(), plan.removers().count()), (4, 0));
        assert_eq!((&*plan.connections, &*plan.orphans, plan.rounds), (&[8, 32][..], &[100][..], 1));
    }
}
