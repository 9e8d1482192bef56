//! Drains many nodes with `pod-safety drain --apply` and with `kubectl drain`, in turn, on equal clusters of a real API server: one node
//! after the other, and many at a time (`xargs -P` for kubectl). kube-controller-manager calculates the PDBs; the kubelets and the
//! workload controllers are scripted (`others`). `usage` measures a command with all its child processes.

mod others;
mod requested;
mod usage;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use pod_safety_control_plane::{ControlPlane, Options, check_that, tool, until};

use crate::http;
use crate::page;
use crate::print_line;
use crate::report::{dash, format_value, ratio, table};
use crate::requests::{self, Requests};
use crate::results::{Origin, number};

use others::Workloads;
use usage::Usage;

const PAGE: &str = "benchmarks.md";
const NAMESPACE: &str = "load";
/// Nodes that are not drained: replacement pods run there.
const SPARE: usize = 20;
/// The loader's number of pods per PDB.
const PODS_PER_BUDGET: usize = 20;
/// The requests of a drain. Kubelets and controllers send other ones, and the API server itself lists PDBs for each eviction.
const REQUEST_COUNT: [&str; 9] = [
    "GET nodes",
    "LIST nodes",
    "PATCH nodes",
    "GET pods",
    "LIST pods",
    "POST pods/eviction",
    "GET daemonsets",
    "LIST daemonsets",
    "POST selfsubjectaccessreviews",
];

/// Measures how many nodes are drained, beside kubectl.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Drains {
    /// How many nodes are drained, many at a time
    #[arg(long, value_name = "COUNT", default_value = "1000", value_parser = clap::value_parser!(u16).range(1..))]
    nodes: u16,

    /// How many are drained one after the other
    #[arg(long, value_name = "COUNT", default_value = "50", value_parser = clap::value_parser!(u16).range(0..))]
    one_by_one: u16,

    /// How many pods each node has
    #[arg(long, value_name = "COUNT", default_value = "10", value_parser = clap::value_parser!(u16).range(1..))]
    pods: u16,

    /// How many nodes are drained at a time
    #[arg(long, value_name = "COUNT", default_value = "16", value_parser = clap::value_parser!(u16).range(1..))]
    parallel: u16,

    /// How long a pod takes to end
    #[arg(long, value_name = "SECONDS", default_value = "1.0")]
    ends_after: f64,

    /// How often each is measured, in turn
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,

    /// The pod-safety to measure
    #[arg(long, value_name = "FILE")]
    pod_safety: PathBuf,

    /// Also writes the table into benchmarks.md there
    #[arg(long, value_name = "FOLDER")]
    docs: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainTool {
    PodSafety,
    Kubectl,
    /// pod-safety's controllers, by EvictionRequests.
    Requests,
}

/// The number of nodes, and how many of them at a time.
#[derive(Clone, Copy, Debug)]
struct Case {
    nodes: u16,
    parallel: u16,
}

/// The result of a drain.
#[derive(Clone, Debug)]
struct Took {
    seconds: f64,
    requests: Requests,
    usage: Usage,
    api_cpu: f64,
}

impl Took {
    fn request_count(&self) -> f64 {
        number(usize::try_from(self.requests.values().sum::<u64>()).unwrap_or_default())
    }
}

/// Measures all cases, and returns the table.
pub(crate) async fn run(plan: Drains) -> Result<String> {
    let pod_safety = std::path::absolute(&plan.pod_safety)?;
    let scenes = [(plan.one_by_one, 1), (plan.nodes, plan.parallel)];
    let (mut text, mut lines) = (String::new(), String::new());
    for (nodes, parallel) in scenes.into_iter().filter(|(nodes, _)| *nodes > 0) {
        let case = Case { nodes, parallel };
        let mut took = Vec::new();
        for _ in 0..plan.rounds {
            // Requests are compared only with many nodes at a time: they are made without waiting.
            let all = [DrainTool::PodSafety, DrainTool::Kubectl, DrainTool::Requests];
            for &drainer in &all[..if parallel == 1 { 2 } else { 3 }] {
                let one = measure(&plan, &pod_safety, case, drainer).await?;
                print_line(&format!("{drainer:?}: {case:?}: {one:?}"));
                took.push((drainer, one));
            }
        }
        text.push_str(&shown_of(&plan, case, &took));
        lines.push_str(&line_of(&plan, case, &took));
    }
    if let Some(docs) = &plan.docs {
        write(docs, &lines)?;
    }
    Ok(text)
}

/// Each measurement has its own control plane, so that none is affected by the history of another.
async fn measure(plan: &Drains, pod_safety: &Path, case: Case, drainer: DrainTool) -> Result<Took> {
    let nodes: Vec<String> = (0..case.nodes).map(|node| format!("node-{node}")).collect();
    // Only the tool that requests evictions needs the API, which is disabled by default.
    let served = if drainer == DrainTool::Requests { &requested::SERVED[..] } else { &[] };
    let apiserver_args = served.iter().map(|arg| (*arg).to_owned()).collect();
    let mut plane = ControlPlane::start(Options { measured: true, apiserver_args, ..Options::default() }).await?;
    let all = nodes.len() + SPARE;
    let pods = all * usize::from(plan.pods);
    let budgets = pods.div_ceil(PODS_PER_BUDGET);
    let counts = [all, pods, budgets].map(|count| count.to_string());
    plane.loader(&["-nodes", &counts[0], "-pods", &counts[1], "-pdbs", &counts[2]]).await?;
    plane.kubectl(&["create", "serviceaccount", "default", "-n", NAMESPACE]).await?;
    let fast = ["--kube-api-qps=2000", "--kube-api-burst=4000"];
    let _budgets = plane.kube_controller_manager("disruption-controller", &fast).await?;
    until("budgets are calculated", async || {
        let text = plane.kubectl(&["get", "pdb", "-A", "-o", "jsonpath={.items[*].status.currentHealthy}"]).await;
        let text = text.and_then(pod_safety_control_plane::Output::text).map_err(|error| error.to_string())?;
        let done = text.split_whitespace().filter(|healthy| *healthy != "0").count();
        check_that(done == budgets, format!("{done} of {budgets}"))
    })
    .await?;
    let spare = (nodes.len()..all).map(|node| format!("node-{node}")).collect();
    let others =
        Workloads::start(plane.admin(), spare, std::time::Duration::try_from_secs_f64(plan.ends_after)?).await?;
    if drainer == DrainTool::Requests {
        let took = requested::drain(&mut plane, pod_safety, &nodes, &others).await?;
        others.stop().await?;
        return Ok(took);
    }
    let command = command(pod_safety, &plane.admin_kubeconfig(), case, drainer, &nodes).await?;
    let (before, cpu) = (read_requests(&plane).await?, apiserver_cpu(&mut plane)?);
    let began = Instant::now();
    let usage = usage::of_command(&command).await?;
    let seconds = began.elapsed().as_secs_f64();
    let api_cpu = apiserver_cpu(&mut plane)? - cpu;
    let requests = requests::between(&before, &read_requests(&plane).await?);
    let ended = others.stop().await?;
    let expected = nodes.len() * usize::from(plan.pods);
    ensure!(ended == expected, "{drainer:?}: {ended} of {expected} pods ended");
    Ok(Took { seconds, requests, usage, api_cpu })
}

fn apiserver_cpu(plane: &mut ControlPlane) -> Result<f64> {
    plane.apiserver().map_or(Ok(0.0), |program| Ok(program.cpu_seconds()?))
}

/// The requests of drains so far.
async fn read_requests(plane: &ControlPlane) -> Result<Requests> {
    let mut all = requests::parse_counters(&http::page(&plane.admin(), "metrics").await?);
    all.retain(|name, _| REQUEST_COUNT.contains(&name.as_str()));
    Ok(all)
}

/// The command line of the drain.
async fn command(
    pod_safety: &Path,
    kubeconfig: &Path,
    case: Case,
    drainer: DrainTool,
    nodes: &[String],
) -> Result<String> {
    let (config, nodes) = (kubeconfig.display(), nodes.join(" "));
    let kubectl = tool("kubectl").await?;
    let drain = format!("{} --kubeconfig {config} drain", kubectl.display());
    Ok(match (drainer, case.parallel) {
        (DrainTool::PodSafety | DrainTool::Requests, parallel) => {
            format!("{} drain {nodes} --apply --parallel {parallel} --kubeconfig {config}", pod_safety.display())
        }
        (DrainTool::Kubectl, 1) => format!("{drain} {nodes} --ignore-daemonsets"),
        (DrainTool::Kubectl, parallel) => {
            format!("echo {nodes} | xargs -n 1 -P {parallel} {drain} --ignore-daemonsets")
        }
    })
}

/// The compared numbers, as means of the rounds: the ratio, pod-safety, kubectl, and requests where these were measured.
fn compared(plan: &Drains, case: Case, took: &[(DrainTool, Took)]) -> [(&'static str, [String; 4]); 6] {
    let pods = number(usize::from(case.nodes) * usize::from(plan.pods));
    let mean = |drainer: DrainTool, of: &dyn Fn(&Took) -> f64| {
        let all: Vec<f64> = took.iter().filter(|(one, _)| *one == drainer).map(|(_, took)| of(took)).collect();
        all.iter().sum::<f64>() / number(all.len()).max(1.0)
    };
    let row = |what: &'static str, of: &dyn Fn(&Took) -> f64| {
        let (own, kubectl) = (mean(DrainTool::PodSafety, of), mean(DrainTool::Kubectl, of));
        let requests =
            took.iter().any(|(drainer, _)| *drainer == DrainTool::Requests).then(|| mean(DrainTool::Requests, of));
        (what, [ratio(Some(kubectl), Some(own)), Some(own), Some(kubectl), requests].map(format_value))
    };
    [
        row("seconds", &|took| took.seconds),
        row("requests", &Took::request_count),
        row("requests for each eviction", &|took| took.request_count() / pods),
        row("own CPU, s", &|took| took.usage.cpu),
        row("memory at its peak, MiB", &|took| took.usage.memory),
        row("API server CPU, s", &|took| took.api_cpu),
    ]
}

fn head(plan: &Drains, case: Case) -> String {
    let how = match case.parallel {
        1 => "one after the other".to_owned(),
        many => format!("{many} at a time"),
    };
    format!("{} nodes of {} pods, {how}", case.nodes, plan.pods)
}

/// The table of a case, ratios first.
fn shown_of(plan: &Drains, case: Case, took: &[(DrainTool, Took)]) -> String {
    let rows = compared(plan, case, took).map(|(what, [better, own, kubectl, requests])| {
        [what.to_owned(), format!("{better} ×"), own, kubectl, requests]
    });
    table([&*head(plan, case), "better by", "pod-safety", "kubectl", "by requests"], rows.into_iter()) + "\n"
}

/// The same as a line, for the page.
fn line_of(plan: &Drains, case: Case, took: &[(DrainTool, Took)]) -> String {
    let cells = compared(plan, case, took).map(|(what, [better, own, kubectl, requests])| {
        let requests = if requests == dash() { String::new() } else { format!("/{requests}") };
        format!("{what} {better}× ({own}/{kubectl}{requests})")
    });
    format!("- {}: {}\n", head(plan, case), cells.join("; "))
}

fn write(docs: &Path, lines: &str) -> Result<()> {
    let Origin { command, commit, date, machine, .. } = Origin::this(Vec::new());
    let file = docs.join(PAGE);
    let page = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let text = format!(
        "How many times as good (pod-safety/kubectl, and behind them pod-safety by EvictionRequests):\n\n{lines}\nCommit `{commit}`, {date}, `{command}`; {machine}.\n"
    );
    Ok(std::fs::write(&file, page::filled(&page, "drains", &text)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_place_for_it() {
        page::filled(include_str!("../../../../docs/benchmarks.md"), "drains", "").unwrap();
    }

    #[test]
    fn a_table_has_the_means_and_how_many_times_as_good() {
        let plan = <crate::plan::Plan as clap::Parser>::try_parse_from(["bench", "drains", "--pod-safety", "p"]);
        let Some(crate::plan::Command::Drains(plan)) = plan.unwrap().command else { panic!("it is another") };
        let took = |seconds: f64| Took {
            seconds,
            requests: Requests::from([("GET pods".to_owned(), 4)]),
            usage: Usage { cpu: 1.0, memory: 2.0 },
            api_cpu: 1.0,
        };
        let all = [
            (DrainTool::PodSafety, took(1.0)),
            (DrainTool::Kubectl, took(5.0)),
            (DrainTool::PodSafety, took(3.0)),
            (DrainTool::Kubectl, took(7.0)),
        ];
        let text = shown_of(&plan, Case { nodes: 5, parallel: 16 }, &all);
        assert!(
            text.starts_with("| 5 nodes of 10 pods, 16 at a time | better by | pod-safety | kubectl | by requests |\n"),
            "{text}"
        );
        assert!(text.contains("| seconds | 3.00 × | 2.00 | 6.00 | – |\n"), "{text}");
        assert!(text.contains("| requests | 1.00 × | 4.00 | 4.00 | – |\n"), "{text}");
        let line = line_of(&plan, Case { nodes: 5, parallel: 1 }, &all);
        assert!(
            line.starts_with("- 5 nodes of 10 pods, one after the other: seconds 3.00× (2.00/6.00); requests"),
            "{line}"
        );
    }
}
