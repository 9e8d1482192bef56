//! A real Prometheus scrapes the metrics, and the alerts of the chart fire for real causes.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]

pub(crate) mod causes;
pub(crate) mod kubelets;
mod replayed;
pub(crate) mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use pod_safety_control_plane::rigs::Rigs;
use pod_safety_control_plane::{ControlPlane, Options, PodSafety, check_that, rules, wait_until};
use pod_safety_locks::{installed, repository};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use kubelets::Kubelets;
use replayed::Replayed;
use server::{LIVE, Prometheus};

const NAMESPACE: &str = "shop";

/// Flags of a process that detects a lost node and a lost leader within seconds.
pub(crate) const HASTY: [&str; 6] = [
    "--mode=replace",
    "--node-monitor-grace-period=8s",
    "--allow-fence-dummy",
    // A busy machine must not cause a change of the leader, which would restart what is awaited.
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=6s",
    "--leader-elect-retry-period=1s",
];

#[tokio::test]
async fn prometheus_scrapes_the_binary_and_promtool_reports_no_problem() {
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    let mut pod_safety = plane.pod_safety("pod-safety", &kubeconfig, [] as [&str; 0]).await.unwrap();
    pod_safety.ready().await.unwrap();
    pod_safety.is_leader().await.unwrap();

    let mut promtool = tokio::process::Command::new(installed("promtool").unwrap())
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let page = pod_safety.get("/metrics").await.unwrap();
    promtool.stdin.take().unwrap().write_all(page.body.as_bytes()).await.unwrap();
    let output = promtool.wait_with_output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");

    let (prometheus, pod_safety) = (Prometheus::start(&plane).await, [pod_safety]);
    prometheus.scrapes(&pod_safety, None).await;
    let leads = async || {
        let answer = prometheus.query("leader_election_master_status{name=\"pod-safety\"}").await?;
        check_that(answer.len() == 1 && answer[0]["value"][1] == "1", format!("{answer:?}"))
    };
    wait_until("Prometheus knows that it leads", leads).await;
}

struct Fixture {
    plane: ControlPlane,
    kubeconfig: std::path::PathBuf,
    prometheus: Prometheus,
    pod_safety: Vec<PodSafety>,
    kubelets: Kubelets,
    agents: std::path::PathBuf,
    /// The switch of the node `liar`, which is wired to no machine.
    switch: std::path::PathBuf,
    replayed: Option<Replayed>,
    _rigs: Rigs,
}

impl Fixture {
    /// Without a process.
    async fn start() -> Self {
        let rigs = Rigs::new().await.unwrap();
        let switch = rigs.file("liar.power");
        std::fs::write(&switch, "on").unwrap();
        let plane = ControlPlane::start(Options::default()).await.unwrap();
        let (kubeconfig, prometheus) = (plane.install_pod_safety().await.unwrap(), Prometheus::start(&plane).await);
        let kubelets = Kubelets::start(&plane.admin()).await;
        plane.namespace(NAMESPACE).await.unwrap();
        let (pod_safety, agents) = (Vec::new(), rigs.agents());
        Self { plane, kubeconfig, prometheus, pod_safety, kubelets, agents, switch, replayed: None, _rigs: rigs }
    }

    /// Starts another process.
    async fn another(&mut self, name: &str) {
        let agents = format!("--fence-agents-path={}", self.agents.display());
        let args = HASTY.into_iter().chain(["--controllers=*,volume-guard,eviction", &agents]);
        let mut pod_safety = self.plane.pod_safety(name, &self.kubeconfig, args).await.unwrap();
        pod_safety.ready().await.unwrap();
        self.pod_safety.push(pod_safety);
        self.scrape().await;
    }

    async fn scrape(&self) {
        self.prometheus.scrapes(&self.pod_safety, self.replayed.as_ref()).await;
    }

    async fn kubectl(&self, args: &[&str], input: &Value) {
        self.plane.kubectl_with(args, &input.to_string()).await.unwrap().text().unwrap();
    }

    async fn apply(&self, object: &Value) {
        self.kubectl(&["apply", "-f", "-"], object).await;
    }

    /// Waits until these alerts fire.
    async fn until_alerts_fire(&self, alerts: &[&str]) -> BTreeMap<String, String> {
        self.prometheus.until_fire(LIVE, alerts).await
    }

    /// Waits until the alert fires with this text.
    async fn until_alert_fires(&self, alert: &str, tells: &str) {
        let texts = self.until_alerts_fire(&[alert]).await;
        assert!(texts[alert].contains(tells), "{alert}: {}", texts[alert]);
    }

    async fn until_alerts_stop(&self, alerts: &[&str]) {
        self.prometheus.until_stop(LIVE, alerts).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_alert_fires_for_what_happens_and_stops_when_it_ends() {
    let mut fixture = Fixture::start().await;
    no_replica_and_then_a_single_one(&mut fixture).await;
    let replayed = Replayed::of_process(&fixture.pod_safety[0]).await;
    fixture.replayed = Some(replayed);
    fixture.scrape().await;
    alerts_without_a_cause_here_are_replayed(&fixture, true).await;
    a_second_installation_lacks_rights_and_then_leads_beside_the_first(&mut fixture).await;
    alerts_without_a_cause_here_are_replayed(&fixture, false).await;
    causes::pods_and_budgets(&fixture).await;
    causes::a_kubelet_outlives_its_node(&fixture).await;
    causes::nodes_are_lost_and_fenced_or_not(&fixture).await;
    causes::all_nodes_are_lost(&fixture).await;
    without_an_api_server_no_process_leads(&mut fixture).await;
    // Not earlier: no watch may have failed before, and a counter without a series is not on the page.
    docs_list_all_metrics(&fixture).await;
    each_dashboard_query_has_an_answer(&fixture.prometheus).await;
    a_replica_is_down(&mut fixture).await;
    each_alert_was_fired(&fixture).await;
}

async fn no_replica_and_then_a_single_one(fixture: &mut Fixture) {
    fixture.until_alerts_fire(&["PodSafetyDown"]).await;
    fixture.another("pod-safety").await;
    fixture.pod_safety[0].is_leader().await.unwrap();
    fixture.until_alerts_stop(&["PodSafetyDown"]).await;
    fixture.until_alert_fires("PodSafetyNoStandby", "leader election: 1.").await;
    fixture.another("standby").await;
    // The alerts from the start of the processes end with their first lists.
    fixture.prometheus.until_quiet().await;
}

async fn alerts_without_a_cause_here_are_replayed(fixture: &Fixture, begins: bool) {
    let replayed = fixture.replayed.as_ref().unwrap();
    if begins {
        let mut firing = fixture.prometheus.firing(replayed::CLUSTER).await.unwrap();
        // There is only one process, and no standby: the alert for that may fire by now.
        firing.remove("PodSafetyNoStandby");
        assert!(firing.is_empty(), "the page as it is is quiet: {firing:?}");
        replayed.is_wrong(true);
    } else {
        fixture.prometheus.until_fire(replayed::CLUSTER, &replayed::alerts()).await;
        replayed.is_wrong(false);
        fixture.prometheus.until_stop(replayed::CLUSTER, &replayed::alerts()).await;
    }
}

/// With a Lease of its own. At first it has no rights at all.
async fn a_second_installation_lacks_rights_and_then_leads_beside_the_first(fixture: &mut Fixture) {
    let kubeconfig = fixture.plane.user_kubeconfig("second", &[]).unwrap();
    let args = ["--mode=replace", "--controllers=pod-gc", "--leader-elect-resource-name=second"];
    fixture.pod_safety.push(fixture.plane.pod_safety("second", &kubeconfig, args).await.unwrap());
    fixture.scrape().await;
    fixture.until_alerts_fire(&["PodSafetyNotSynced", "PodSafetyForbidden"]).await;
    let bind = ["create", "clusterrolebinding", "second", "--clusterrole=cluster-admin", "--user=second"];
    fixture.kubectl(&bind, &Value::Null).await;
    fixture.until_alerts_stop(&["PodSafetyNotSynced", "PodSafetyForbidden"]).await;
    fixture.until_alert_fires("PodSafetyTwoLeaders", "that they lead: 2.").await;
    drop(fixture.pod_safety.pop());
    fixture.scrape().await;
    fixture.until_alerts_stop(&["PodSafetyTwoLeaders"]).await;
}

async fn without_an_api_server_no_process_leads(fixture: &mut Fixture) {
    let alerts = ["PodSafetyNoLeader", "PodSafetyApiErrors"];
    fixture.plane.stop_apiserver().unwrap();
    let texts = fixture.until_alerts_fire(&alerts).await;
    assert!(texts["PodSafetyNoLeader"].contains("none of them has held the Lease"), "{texts:?}");
    fixture.plane.start_apiserver().await.unwrap();
    fixture.until_alerts_stop(&alerts).await;
}

async fn a_replica_is_down(fixture: &mut Fixture) {
    let address = fixture.pod_safety.last().unwrap().address();
    fixture.pod_safety.last_mut().unwrap().kill_9().unwrap();
    fixture.until_alert_fires("PodSafetyReplicaDown", &address).await;
    fixture.pod_safety.pop();
    fixture.scrape().await;
    fixture.until_alerts_stop(&["PodSafetyReplicaDown"]).await;
}

/// Each alert fired for a real cause, except for those in the table of replayed ones.
async fn each_alert_was_fired(fixture: &Fixture) {
    /// A busy machine may cause these at any time.
    const OF_A_SLOW_PROCESS: [&str; 2] = ["PodSafetyDecidingSlow", "PodSafetyDetectionSlow"];
    let rules: Value = serde_saphyr::from_str(&rules().unwrap()).unwrap();
    let groups = rules["groups"].as_array().unwrap();
    let all = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    let mut live: BTreeSet<_> = all.filter_map(|rule| rule["alert"].as_str()).map(str::to_owned).collect();
    let replayed: BTreeSet<_> = replayed::alerts().into_iter().map(str::to_owned).collect();
    assert!(replayed.is_subset(&live), "there is no such alert any more: {:?}", replayed.difference(&live));
    live.retain(|alert| !replayed.contains(alert));
    let fired = fixture.prometheus.fired(LIVE).await;
    let forgotten: Vec<_> = live.difference(&fired).collect();
    assert!(forgotten.is_empty(), "neither caused nor in the table of what is replayed: {forgotten:?}");
    let caused = fired.intersection(&replayed).filter(|alert| !OF_A_SLOW_PROCESS.contains(&alert.as_str()));
    let caused: Vec<_> = caused.collect();
    assert!(caused.is_empty(), "they are caused, and need no row: {caused:?}");
}

/// The rows of the table of all metrics of these pages, as in docs/metrics.md.
fn rows(pages: &str) -> BTreeSet<String> {
    let line = |kind: &str, name: &str| {
        let begin = format!("# {kind} {name} ");
        pages.lines().find_map(|line| line.strip_prefix(&begin)).unwrap_or_default().to_owned()
    };
    let names = pages.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let labels = |name: &str, kind: &str| {
        let sample = if kind == "histogram" { format!("{name}_count") } else { name.to_owned() };
        let series = pages.lines().filter_map(|line| line.strip_prefix(&sample)?.strip_prefix('{'));
        let words = series.flat_map(|rest| rest.split("=\"").filter_map(|part| part.rsplit([',', '"']).next()));
        let labels: BTreeSet<_> =
            words.filter(|word| word.chars().all(|c| c.is_ascii_lowercase()) && !word.is_empty()).collect();
        labels.into_iter().collect::<Vec<_>>().join(", ")
    };
    let row = |name: &str| {
        let kind = line("TYPE", name);
        format!("| `{name}` | {kind} | {} | {} |", labels(name, &kind), line("HELP", name))
    };
    names.map(row).collect()
}

async fn docs_list_all_metrics(fixture: &Fixture) {
    let mut pages = String::new();
    for pod_safety in &fixture.pod_safety {
        pages += &pod_safety.get("/metrics").await.unwrap().body;
    }
    let docs = std::fs::read_to_string(repository().join("docs/metrics.md")).unwrap();
    let listed: BTreeSet<_> = docs.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect();
    let there = rows(&pages);
    let (lacks, has): (Vec<_>, Vec<_>) = (there.difference(&listed).collect(), listed.difference(&there).collect());
    assert!(lacks.is_empty() && has.is_empty(), "docs/metrics.md lacks {lacks:#?}\nand has {has:#?}");
}

/// The queries of the dashboard's panels, by title, with variables filled in.
pub(crate) fn panels() -> Vec<(String, String)> {
    let file = repository().join("charts/pod-safety/dashboards/pod-safety.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let mut expr = target["expr"].as_str().unwrap().to_owned();
            for (variable, value) in [
                ("$cluster", ".*"),
                ("$namespace", "pod-safety"),
                ("$job", ".*"),
                ("$__rate_interval", "2m"),
                ("$__range", "5m"),
            ] {
                expr = expr.replace(variable, value);
            }
            queries.push((panel["title"].as_str().unwrap().to_owned(), expr));
        }
    }
    queries
}

/// Each panel has a result, except for those that show only problems.
async fn each_dashboard_query_has_an_answer(prometheus: &Prometheus) {
    // Queries of kube-apiserver's metrics, which this Prometheus does not scrape, are only parsed.
    for (_, expr) in panels() {
        let query = expr.strip_suffix(" > 0").unwrap_or(&expr);
        let answer = prometheus.query(query).await.map_err(|error| format!("{query}: {error}")).unwrap();
        assert!(!answer.is_empty() || query.contains("(apiserver_"), "nobody answers {query}");
    }
}
