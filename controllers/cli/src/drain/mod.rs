//! `pod-safety drain`: prints a plan by default, executes it with `--apply`.
//!
//! | file | subject |
//! |---|---|
//! | `snapshot` | what is read of the API server, and its answers to dry runs |
//! | `nodes` | the drain of all nodes: the consent that is needed, the cordons, the exit |
//! | `apply` | the drain of one node |
//! | `output` | the lines that are printed meanwhile |

mod apply;
mod nodes;
mod output;
pub(super) mod snapshot;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::builder::UnknownArgumentValueParser;
use clap::{Arg, ArgAction, Args as ClapArgs, ValueEnum};
use pod_safety_drain::{Consent, EvictionRequester, Plan};
use pod_safety_print::drains::{self as page, ProgressOutput};
use pod_safety_print::{Color, Paint};
use pod_safety_shared::authority::AccessRight;
use pod_safety_shared::authority::operator_requests::eviction_requests;
use pod_safety_shared::model::Kind;

use super::cluster::{ConnectArgs, Output, Session, name, node_name};
use super::terminal;
use super::{Exit, duration};
pub(crate) use apply::Drained;
use snapshot::DrainSnapshot;

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("drain"), args(flags_of_kubectl()))]
pub struct Args {
    /// The nodes
    #[arg(value_name = "NODE", value_parser = node_name, required_unless_present = "selector")]
    nodes: Vec<String>,

    /// The nodes with these labels, in place of names
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "nodes")]
    selector: Option<String>,

    /// Cordon the nodes and evict their pods; without this flag nothing is changed
    #[arg(long)]
    apply: bool,

    /// With --apply: how many nodes are emptied at a time; all are cordoned before the first
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1_000), default_value_t = 1)]
    parallel: u16,

    #[command(flatten)]
    consent: ConsentArgs,

    /// Withdraw the EvictionRequests of drains of the nodes: their pods stay, unless they terminate already
    #[arg(long, conflicts_with_all = ["apply", "output", "requests"])]
    withdraw: bool,

    /// With --apply: begin even if pods of the cluster cannot be read, or no pod of a node may go now
    #[arg(long, requires = "apply")]
    try_anyway: bool,

    /// With --apply: how long each node may take; then it stays cordoned, and the exit code is 5. Default: no limit
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true, requires = "apply")]
    timeout: Option<Duration>,

    /// The format of the plan
    #[arg(short, long, value_enum, default_value_t = Output::Table, conflicts_with = "apply")]
    output: Output,

    /// When to use colours
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,

    #[command(flatten)]
    cluster: ConnectArgs,
}

/// Flags of `kubectl drain` for what is done anyway, has another name here, or is never done.
fn flags_of_kubectl() -> [Arg; 5] {
    let refused = |name: &'static str, why: &'static str| {
        Arg::new(name).long(name).hide(true).value_parser(UnknownArgumentValueParser::suggest(why))
    };
    [
        Arg::new("dry-run")
            .long("dry-run")
            .help("Change nothing, which is the default; for those who know it from kubectl")
            .value_name("HOW")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("server")
            .value_parser(["client", "server"])
            .conflicts_with_all(["apply", "withdraw"]),
        Arg::new("ignore-daemonsets")
            .long("ignore-daemonsets")
            .help("Pods of DaemonSets stay, with this flag and without it; for those who know it from kubectl")
            .action(ArgAction::SetTrue),
        refused("force", "for pods without a controller: --evict-unmanaged").action(ArgAction::SetTrue),
        refused("disable-eviction", "pods are evicted, never deleted").action(ArgAction::SetTrue),
        refused("grace-period", "each pod keeps its own grace period").value_name("SECONDS"),
    ]
}

/// What may be lost by a drain, and what stays.
#[derive(Debug, ClapArgs)]
pub(super) struct ConsentArgs {
    /// A pod that stays; may be given more than once
    #[arg(long, value_name = "NAMESPACE/POD", value_parser = pod_name)]
    skip: Vec<(String, String)>,

    /// Evict pods with emptyDir volumes too: their data is lost
    #[arg(long)]
    delete_emptydir_data: bool,

    /// Evict pods without a controller too: they do not come back
    #[arg(long)]
    evict_unmanaged: bool,

    /// Whether evictions are requested by EvictionRequests, whose responders go first: auto does so where a controller answers
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Requests::Auto)]
    requests: Requests,
}

/// Whether evictions are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Requests {
    /// Where the API server has EvictionRequests and a controller answers them; else pods are evicted directly
    Auto,
    /// Pods are evicted directly
    Never,
    /// Pods are not evicted directly where it can be requested
    Always,
}

impl Requests {
    /// The requester of evictions for this API server, if evictions are requested.
    pub(super) async fn requester(
        self,
        session: &Session,
        requester: &'static str,
    ) -> anyhow::Result<Option<EvictionRequester>> {
        if self == Self::Never {
            return Ok(None);
        }
        let served = eviction_requests::is_served(&session.connection).await.context("asking for EvictionRequests")?;
        if self == Self::Always && !served {
            bail!(
                "--requests=always: this API server has no EvictionRequests (lifecycle.k8s.io/v1alpha1, Kubernetes 1.37 with the feature gate EvictionRequestAPI). Leave the flag out to evict directly"
            );
        }
        Ok(served.then_some(EvictionRequester { requester, requests_only: self == Self::Always }))
    }
}

impl ConsentArgs {
    pub(super) async fn requester(
        &self,
        session: &Session,
        requester: &'static str,
    ) -> anyhow::Result<Option<EvictionRequester>> {
        self.requests.requester(session, requester).await
    }

    pub(super) fn consent(&self) -> Consent {
        Consent {
            skip: self.skip.iter().cloned().collect(),
            delete_emptydir_data: self.delete_emptydir_data,
            evict_unmanaged: self.evict_unmanaged,
        }
    }
}

/// Parses `NAMESPACE/POD`.
fn pod_name(text: &str) -> Result<(String, String), String> {
    let (namespace, pod) = text.split_once('/').ok_or("allowed is NAMESPACE/POD, such as shop/api-0")?;
    Ok((name(namespace)?, name(pod)?))
}

impl Args {
    pub(super) fn main(self) -> anyhow::Result<Exit> {
        let cluster = self.cluster.clone();
        cluster.with_session("drain", async |session| self.run(session).await)
    }

    async fn run(self, session: Session) -> anyhow::Result<Exit> {
        let (paint, consent) = (terminal::for_stdout(self.color), self.consent.consent());
        if self.apply {
            return self.run_apply(session, consent, paint).await;
        }
        let nodes = self.select_nodes(&session).await?;
        if self.withdraw {
            return withdraw(&session, &nodes).await;
        }
        let requester = self.consent.requester(&session, eviction_requests::DRAIN).await?;
        let snapshot = DrainSnapshot::read(&session, &nodes).await?;
        snapshot.warn_missing_pods(&nodes, &consent);
        let (plans, missing) = build_plans(&session, &snapshot, &nodes, &consent, requester).await;
        let page = || session.with_header(&page::page(&plans, &missing, &page::describe_next(&plans), paint));
        match plans.as_slice() {
            [plan] => self.output.print(&page::Document::from_plan(plan, &missing, session.target()), page)?,
            _ => self.output.print(&page::List::from_plans(&plans, &missing, session.target()), page)?,
        }
        Ok(exit_for(&plans))
    }

    /// The nodes by their names, without duplicates.
    async fn select_nodes(&self, session: &Session) -> anyhow::Result<Vec<String>> {
        if let Some(selected) = session.select_by_labels(Kind::Nodes, self.selector.as_deref()).await? {
            if selected.is_empty() {
                bail!("no node has these labels: kubectl get nodes --show-labels");
            }
            return Ok(selected.into_iter().map(|(_, node)| node).collect());
        }
        let mut seen = BTreeSet::new();
        Ok(self.nodes.iter().filter(|node| seen.insert(*node)).cloned().collect())
    }

    async fn run_apply(self, session: Session, consent: Consent, paint: Paint) -> anyhow::Result<Exit> {
        let nodes = self.select_nodes(&session).await?;
        let requester = self.consent.requester(&session, eviction_requests::DRAIN).await?;
        let snapshot = DrainSnapshot::read_for_apply(&session, &nodes).await?;
        snapshot.warn_missing_pods(&nodes, &consent);
        let plans: Vec<Plan> = nodes.iter().map(|node| snapshot.plan(node, &consent)).collect();
        session.announce();
        snapshot.check_rights(&session, &plans).await?;
        let output = output::DrainOutput::new(ProgressOutput::for_stdout(paint), paint, nodes.len());
        let apply = apply::Apply::new(session, consent, snapshot, self.timeout, output, requester);
        let Drained { exit, .. } = apply.run(&plans, self.parallel.into(), self.try_anyway).await?;
        if exit == Exit::Fine {
            let which = self.selector.map_or_else(|| nodes.join(" "), |labels| format!("-l {labels:?}"));
            super::print(&format!("When the work is done: kubectl uncordon {which}\n"))?;
        }
        Ok(exit)
    }
}

/// Withdraws the eviction requests for these nodes.
async fn withdraw(session: &Session, nodes: &[String]) -> anyhow::Result<Exit> {
    session.announce();
    for node in nodes {
        let done = pod_safety_drain::withdraw(&session.connection, &session.env, node);
        let done = done.await.with_context(|| format!("withdrawing the requests for node {node}"))?;
        super::print(&format!("node/{node} {}\n", page::describe_withdrawn(&done)))?;
    }
    super::print(&format!("Nodes that are cordoned stay so; to undo: kubectl uncordon {}\n", nodes.join(" ")))?;
    Ok(Exit::Fine)
}

/// The plans by what was read, with the API server's answers to dry runs, and the missing rights.
async fn build_plans(
    session: &Session,
    snapshot: &DrainSnapshot,
    nodes: &[String],
    consent: &Consent,
    requester: Option<EvictionRequester>,
) -> (Vec<Plan>, Vec<AccessRight>) {
    let (mut plans, mut missing) = (Vec::new(), Vec::new());
    for node in nodes {
        let mut plan = snapshot.plan(node, consent);
        plan.requests = requester.is_some();
        missing = snapshot.run_dry_runs(session, &mut plan).await;
        plans.push(plan);
    }
    snapshot.place(&mut plans);
    (plans, missing)
}

/// Prints the plan for a node, with the name of its cluster, for `maintain --dry-run`.
pub(super) async fn print_plan(
    session: &Session,
    node: &str,
    args: &ConsentArgs,
    paint: Paint,
) -> anyhow::Result<Exit> {
    let (nodes, consent) = ([node.to_owned()], args.consent());
    let requester = args.requester(session, eviction_requests::MAINTAIN).await?;
    let snapshot = DrainSnapshot::read(session, &nodes).await?;
    snapshot.warn_missing_pods(&nodes, &consent);
    let (plans, missing) = build_plans(session, &snapshot, &nodes, &consent, requester).await;
    let next = plans.first().map(page::describe_next_maintenance).unwrap_or_default();
    super::print(&page::page(&plans, &missing, &next, paint))?;
    Ok(exit_for(&plans))
}

/// Executes a plan, as with `--apply`.
pub(super) async fn apply(
    session: &Session,
    snapshot: DrainSnapshot,
    args: &ConsentArgs,
    paint: Paint,
    timeout: Duration,
    plan: Plan,
) -> anyhow::Result<Drained> {
    let output = output::DrainOutput::new(ProgressOutput::for_stdout(paint), paint, 1);
    let requester = args.requester(session, eviction_requests::MAINTAIN).await?;
    let (session, consent) = (session.clone(), args.consent());
    let apply = apply::Apply::new(session, consent, snapshot, Some(timeout), output, requester);
    apply.run(&[plan], 1, false).await
}

/// The exit of plans, for scripts.
fn exit_for(plans: &[Plan]) -> Exit {
    match (plans.iter().any(Plan::is_unsafe), plans.iter().all(Plan::is_clear)) {
        (true, _) => Exit::Refused,
        (false, false) => Exit::Blocked,
        (false, true) => Exit::Fine,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pod_safety_drain::{Cluster, Consent, Needs, place, plan};
    use pod_safety_shared::authority::{Evicted, NotEvicted};
    use pod_safety_shared::model::Uid;
    use pod_safety_shared::testing::objects::pod;
    use pod_safety_shared::testing::{World, at};

    use super::*;
    use crate::untrusted_text::{objects, run_command, server};

    #[test]
    fn a_drain_is_not_complete_if_the_time_is_up_before_its_pods_were_read() {
        let server = server(objects(), "v1".to_owned(), false);
        let (code, text) = run_command("drain worker-b2 --apply --timeout 1s", &server);
        assert!(code == 5 && text.contains("node/worker-b2 not drained, the time is up"), "{code}: {text}");
    }

    #[test]
    fn bug_a_plan_with_an_unsafe_pod_exited_as_blocked() {
        let world = World::listed();
        world.apply(Kind::Pods, &pod("db-0").on("n").owned_by("apps/v1", "StatefulSet", "db"), at(0));
        let needs = BTreeMap::from([(Uid::new("uid-db-0").unwrap(), Needs::default())]);
        let guard = world.read();
        let (daemon_sets, view) = (BTreeMap::new(), guard.view());
        let cluster = Cluster {
            view,
            needs: &needs,
            capacities: &[],
            daemon_sets: &daemon_sets,
            budgets_unread: false,
            now: at(60),
        };
        let mut plans = [plan("n", &cluster, &Consent::default())];
        plans[0].record_dry_run(0, &Ok(Evicted::Terminates { grace: 30 }));
        place(&mut plans, &cluster);
        assert_eq!(exit_for(&plans), Exit::Blocked, "it fits on no other node");
        plans[0].record_dry_run(0, &Err(NotEvicted::Unsafe));
        assert_eq!(exit_for(&plans), Exit::Refused);
    }
}
