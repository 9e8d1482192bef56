//! Prometheus itself reads the metrics, and the alerts that the chart ships fire for what really happens.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]
#![expect(clippy::unwrap_used, reason = "what stands between the tests may fail as loudly as they")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use pod_safety_control_plane::objects::{self, NodeExt as _, PodExt as _};
use pod_safety_control_plane::{ControlPlane, Options, PodSafety, Program, eventually, observe, seen};
use pod_safety_locks::{installed, repository};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;

const SOON: Duration = Duration::from_secs(30);
/// Until a lost node was tried to be fenced in vain, or a stopped API server serves again.
const LATER: Duration = Duration::from_secs(120);
const NAMESPACE: &str = "shop";

/// A running Prometheus. Dropping it kills it and removes its files.
struct Prometheus {
    client: Client,
    folder: tempfile::TempDir,
    _program: Program,
}

/// A port that nobody else of this machine's tests takes.
fn free_port() -> u16 {
    // Below the range of outgoing connections, and beside the harness's own.
    (15_000..20_000)
        .find(|port| std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, *port)).is_ok())
        .unwrap_or_default()
}

/// As the argument of a URL's query.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

impl Prometheus {
    /// With the chart's own alerts, which wait for nothing.
    async fn start(plane: &ControlPlane) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let rules = repository().join("charts/pod-safety/rules/pod-safety.rules.yaml");
        let rules = std::fs::read_to_string(rules).unwrap();
        let at_once = |line: &str| match line.split_once("for: ") {
            Some((before, _)) if before.trim().is_empty() => format!("{before}for: 1s\n"),
            _ => format!("{line}\n"),
        };
        std::fs::write(folder.path().join("rules.yaml"), rules.lines().map(at_once).collect::<String>())
            .unwrap();
        let targets = json!({ "files": ["targets.json"], "refresh_interval": "1s" });
        let config = json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{ "job_name": "pod-safety", "file_sd_configs": [targets] }],
        });
        let file = folder.path().join("prometheus.yml");
        std::fs::write(&file, config.to_string()).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let args = [
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", folder.path().join("data").display()),
            format!("--web.listen-address={address}"),
        ];
        let program = plane.program("prometheus", &installed("prometheus").unwrap(), args, &[]).unwrap();
        let client =
            Client::try_from(kube::Config::new(format!("http://{address}").parse().unwrap())).unwrap();
        Self { client, folder, _program: program }
    }

    /// It scrapes these from now on.
    async fn scrapes(&self, targets: &[PodSafety]) {
        let addresses: Vec<_> = targets.iter().map(|target| target.address()).collect();
        // As a ServiceMonitor labels them.
        let file = json!([{ "targets": addresses, "labels": { "namespace": "pod-safety" } }]);
        std::fs::write(self.folder.path().join("targets.json"), file.to_string()).unwrap();
        eventually("Prometheus scrapes", SOON, async || {
            let up = self.query("sum(up)").await?;
            seen(
                up.len() == 1 && up[0]["value"][1].as_str() == Some(&*addresses.len().to_string()),
                format!("{up:?}"),
            )
        })
        .await
        .unwrap();
    }

    async fn ask(&self, path: &str) -> Result<Value, String> {
        let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
        let text = self.client.request_text(request).await.map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    async fn query(&self, expr: &str) -> Result<Vec<Value>, String> {
        let answer = self.ask(&format!("/api/v1/query?query={}", encoded(expr))).await?;
        answer["data"]["result"].as_array().cloned().ok_or_else(|| answer.to_string())
    }

    /// The alerts that fire, with what they tell.
    async fn firing(&self) -> Result<BTreeMap<String, String>, String> {
        let answer = self.ask("/api/v1/alerts").await?;
        let alerts = answer["data"]["alerts"].as_array().ok_or("no alerts")?;
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        Ok(firing
            .map(|alert| {
                (
                    alert["labels"]["alertname"].as_str().unwrap_or("-").to_owned(),
                    alert["annotations"].to_string(),
                )
            })
            .collect())
    }

    async fn until_fires(&self, alert: &str) -> String {
        eventually(&format!("{alert} fires"), LATER, async || {
            let firing = self.firing().await?;
            firing.get(alert).cloned().ok_or_else(|| format!("{:?} fire", firing.keys()))
        })
        .await
        .unwrap()
    }

    async fn until_stops(&self, alert: &str) {
        let stopped = async || {
            let firing = self.firing().await?;
            seen(!firing.contains_key(alert), format!("{firing:?}"))
        };
        eventually(&format!("{alert} stops"), LATER, stopped).await.unwrap();
    }
}

#[tokio::test]
async fn prometheus_scrapes_the_binary_and_promtool_finds_nothing_to_say() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    let mut ours = plane.pod_safety("pod-safety", &kubeconfig, [] as [&str; 0]).await.unwrap();
    ours.ready().await.unwrap();
    ours.leads().await.unwrap();

    let mut promtool = tokio::process::Command::new(installed("promtool").unwrap())
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let page = ours.get("/metrics").await.unwrap();
    promtool.stdin.take().unwrap().write_all(page.body.as_bytes()).await.unwrap();
    let output = promtool.wait_with_output().await.unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");

    let (prometheus, ours) = (Prometheus::start(&plane).await, [ours]);
    prometheus.scrapes(&ours).await;
    let leads = async || {
        let answer = prometheus.query("leader_election_master_status{name=\"pod-safety\"}").await?;
        seen(answer.len() == 1 && answer[0]["value"][1] == "1", format!("{answer:?}"))
    };
    eventually("Prometheus knows that it leads", SOON, leads).await.unwrap();
}

/// Nodes whose kubelets are this test.
#[derive(Clone)]
struct Kubelet {
    node: &'static str,
    lives: Arc<AtomicBool>,
}

impl Kubelet {
    async fn live(self, api: Client) {
        loop {
            if self.lives.load(Ordering::SeqCst) {
                // What fails is tried again in a second, as a kubelet does.
                let status = objects::node(self.node).status.unwrap_or_default();
                let _again = objects::set_node_status(&api, self.node, &status).await;
                let _again = objects::renew_lease(&api, self.node).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

struct Scene {
    plane: ControlPlane,
    kubeconfig: std::path::PathBuf,
    prometheus: Prometheus,
    ours: Vec<PodSafety>,
    kubelets: BTreeMap<&'static str, Kubelet>,
    _tasks: JoinSet<()>,
}

impl Scene {
    async fn start() -> Self {
        let plane = ControlPlane::start(Options::default()).await.unwrap();
        let (kubeconfig, prometheus) =
            (plane.install_pod_safety().await.unwrap(), Prometheus::start(&plane).await);
        let (mut kubelets, mut tasks) = (BTreeMap::new(), JoinSet::new());
        for node in ["well", "fine", "gone", "lost"] {
            objects::create_node(&plane.admin(), &objects::node(node).with_ready("True")).await.unwrap();
            let kubelet = Kubelet { node, lives: Arc::new(AtomicBool::new(true)) };
            tasks.spawn(kubelet.clone().live(plane.admin()));
            kubelets.insert(node, kubelet);
        }
        let mut scene = Self { plane, kubeconfig, prometheus, ours: Vec::new(), kubelets, _tasks: tasks };
        scene.another("pod-safety").await;
        scene.ours[0].leads().await.unwrap();
        scene
    }

    /// One process more.
    async fn another(&mut self, name: &str) {
        let args = ["--mode=replace", "--controllers=*,volume-guard", "--node-monitor-grace-period=8s"];
        let mut ours = self.plane.pod_safety(name, &self.kubeconfig, args).await.unwrap();
        ours.ready().await.unwrap();
        self.ours.push(ours);
        self.prometheus.scrapes(&self.ours).await;
    }

    fn falls_silent(&self, node: &str) {
        self.kubelets[node].lives.store(false, Ordering::SeqCst);
    }

    async fn kubectl(&self, args: &[&str], input: &Value) {
        self.plane.kubectl_with(args, &input.to_string()).await.unwrap().text().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alerts_fire_for_what_happens_and_stop_when_it_ends() {
    let mut scene = Scene::start().await;
    a_process_alone_has_no_standby(&mut scene).await;
    a_pod_is_held_whose_kubelet_outlives_its_node(&scene).await;
    a_lost_node_that_no_device_reaches_needs_a_person(&scene).await;
    without_an_api_server_nobody_leads(&mut scene).await;
    docs_list_the_metrics_that_there_are(&scene).await;
    the_dashboard_is_answered(&scene.prometheus).await;
}

/// It fires, tells this, and can tell everything that it wants to.
async fn fires(scene: &Scene, alert: &str, tells: &str) {
    let told = scene.prometheus.until_fires(alert).await;
    assert!(told.contains(tells) && !told.contains("error") && !told.contains("no value"), "{alert}: {told}");
}

async fn a_process_alone_has_no_standby(scene: &mut Scene) {
    fires(scene, "PodSafetyNoStandby", "1 process").await;
    scene.another("standby").await;
    scene.prometheus.until_stops("PodSafetyNoStandby").await;
    // What began with the processes ends with their first lists.
    let quiet = async || {
        let firing = scene.prometheus.firing().await?;
        seen(firing.is_empty(), format!("{firing:?}"))
    };
    eventually("nothing fires while all is well", SOON, quiet).await.unwrap();
}

async fn a_pod_is_held_whose_kubelet_outlives_its_node(scene: &Scene) {
    let api = scene.plane.admin();
    scene.plane.namespace(NAMESPACE).await.unwrap();
    let pod = objects::pod(NAMESPACE, "held").on_node("gone").with_phase("Running");
    objects::create_pod(&api, &pod).await.unwrap();
    observe::delete_node(&api, "gone").await.unwrap();
    fires(scene, "PodSafetyPodsHeld", "pod-gc holds for KubeletAlive: 1,").await;
    scene.falls_silent("gone");
    scene.prometheus.until_stops("PodSafetyPodsHeld").await;
    // It goes on as a quarantine, which wakes nobody.
    eventually("it is released", SOON, async || {
        let pod = observe::find_pod(&api, NAMESPACE, "held").await.map_err(|error| format!("{error:?}"))?;
        seen(pod.is_none(), "it is there".to_owned())
    })
    .await
    .unwrap();
}

async fn a_lost_node_that_no_device_reaches_needs_a_person(scene: &Scene) {
    let lost = json!({ "matchLabels": { "kubernetes.io/hostname": "lost" } });
    let device = json!({
        "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FenceDevice",
        "metadata": { "namespace": "pod-safety", "name": "bmc" },
        "spec": {
            "driver": "Redfish", "nodeSelector": lost,
            // Nobody listens there.
            "parameters": { "address": "https://127.0.0.1:1", "insecure": "true" },
            "timeoutSeconds": { "off": 1, "on": 1, "look": 1 },
        },
    });
    let policy = json!({
        "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FencePolicy", "metadata": { "name": "lost" },
        "spec": {
            "nodeSelector": lost, "when": "Always", "unhealthy": { "silentSeconds": 10 }, "rounds": 1,
            "levels": [{ "name": "power", "devices": [{ "namespace": "pod-safety", "name": "bmc" }], "attempts": 1 }],
        },
    });
    scene.kubectl(&["apply", "-f", "-"], &device).await;
    fires(scene, "PodSafetyFenceDeviceSilent", "at its last look: 1,").await;
    scene.kubectl(&["apply", "-f", "-"], &policy).await;
    scene.falls_silent("lost");
    fires(scene, "PodSafetyFenceAwaitsOperator", "AwaitingOperator: 1.").await;
    scene.kubectl(&["delete", "fencepolicies,nodefences", "--all"], &Value::Null).await;
    scene.prometheus.until_stops("PodSafetyFenceAwaitsOperator").await;
    scene.kubectl(&["delete", "fencedevices", "--all", "-n", "pod-safety"], &Value::Null).await;
    scene.prometheus.until_stops("PodSafetyFenceDeviceSilent").await;
}

async fn without_an_api_server_nobody_leads(scene: &mut Scene) {
    scene.plane.stop_apiserver().unwrap();
    fires(scene, "PodSafetyNoLeader", "none of them has held the lease").await;
    scene.plane.start_apiserver().await.unwrap();
    scene.prometheus.until_stops("PodSafetyNoLeader").await;
}

/// The rows of a table of all metrics of these pages, as docs/metrics.md has it.
fn rows(pages: &str) -> BTreeSet<String> {
    let line = |kind: &str, name: &str| {
        let begin = format!("# {kind} {name} ");
        pages.lines().find_map(|line| line.strip_prefix(&begin)).unwrap_or_default().to_owned()
    };
    let names = pages.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let labels = |name: &str, kind: &str| {
        let sample = if kind == "histogram" { format!("{name}_count") } else { name.to_owned() };
        let series = pages.lines().filter_map(|line| line.strip_prefix(&sample)?.strip_prefix('{'));
        let words =
            series.flat_map(|rest| rest.split("=\"").filter_map(|part| part.rsplit([',', '"']).next()));
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

async fn docs_list_the_metrics_that_there_are(scene: &Scene) {
    let mut pages = String::new();
    for ours in &scene.ours {
        pages += &ours.get("/metrics").await.unwrap().body;
    }
    let docs = std::fs::read_to_string(repository().join("docs/metrics.md")).unwrap();
    let listed: BTreeSet<_> =
        docs.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect();
    let there = rows(&pages);
    let (lacks, has): (Vec<_>, Vec<_>) =
        (there.difference(&listed).collect(), listed.difference(&there).collect());
    assert!(lacks.is_empty() && has.is_empty(), "docs/metrics.md lacks {lacks:#?}\nand has {has:#?}");
}

/// Each panel has something to show, but for those that show only what is wrong.
async fn the_dashboard_is_answered(prometheus: &Prometheus) {
    let file = repository().join("charts/pod-safety/dashboards/pod-safety.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let targets =
        dashboard["panels"].as_array().unwrap().iter().filter_map(|panel| panel["targets"].as_array());
    for target in targets.flatten() {
        let mut expr = target["expr"].as_str().unwrap().to_owned();
        for (variable, value) in
            [("$namespace", "pod-safety"), ("$job", ".*"), ("$__rate_interval", "2m"), ("$__range", "5m")]
        {
            expr = expr.replace(variable, value);
        }
        let asked = expr.strip_suffix(" > 0").unwrap_or(&expr);
        let answer = prometheus.query(asked).await.map_err(|error| format!("{asked}: {error}")).unwrap();
        assert!(!answer.is_empty(), "nobody answers {asked}");
    }
}
