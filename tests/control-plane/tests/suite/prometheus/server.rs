//! Prometheus itself, with the chart's alerts in a hurry.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use kube::Client;
use pod_safety_control_plane::{ControlPlane, PodSafety, Program, eventually, seen};
use pod_safety_locks::{installed, repository};
use serde_json::{Value, json};

use super::replayed::Replayed;
use super::{LATER, SOON};

/// The cluster that the processes of a test are in: rules know clusters only where one Prometheus watches several.
pub(super) const LIVE: &str = "";

/// The chart's rules.
pub(super) fn rules() -> String {
    std::fs::read_to_string(repository().join("charts/pod-safety/rules/pod-safety.rules.yaml")).unwrap()
}

/// A line of the rules as the test has it: alerts wait a second, and ranges are of ten.
fn hasty(line: &str) -> String {
    if let Some((before, _)) = line.split_once("for: ").filter(|(before, _)| before.trim().is_empty()) {
        return format!("{before}for: 1s\n");
    }
    let mut parts = line.split('[');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let range = part.split_once(']').filter(|(range, _)| range.starts_with(|c: char| c.is_ascii_digit()));
        text += &range.map_or_else(|| format!("[{part}"), |(_, rest)| format!("[10s]{rest}"));
    }
    text + "\n"
}

/// A running Prometheus. Dropping it kills it and removes its files.
pub(super) struct Prometheus {
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
    /// With the chart's own alerts, which wait for nothing and look back for as long as a test may take.
    pub(super) async fn start(plane: &ControlPlane) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rules.yaml"), rules().lines().map(hasty).collect::<String>())
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
    pub(super) async fn scrapes(&self, processes: &[PodSafety], replayed: Option<&Replayed>) {
        let addresses: Vec<_> = processes.iter().map(|process| process.address()).collect();
        // As a ServiceMonitor labels them.
        let mut groups = vec![json!({ "targets": addresses, "labels": { "namespace": "pod-safety" } })];
        groups.extend(replayed.into_iter().flat_map(Replayed::targets));
        let count = groups.iter().filter_map(|group| group["targets"].as_array()).flatten().count();
        // Prometheus may read it at any time.
        let (new, file) = (self.folder.path().join("targets.new"), self.folder.path().join("targets.json"));
        std::fs::write(&new, Value::from(groups).to_string()).unwrap();
        std::fs::rename(&new, &file).unwrap();
        eventually("Prometheus scrapes", SOON, async || {
            let up = self.query("sum(up)").await?;
            seen(up.len() == 1 && up[0]["value"][1].as_str() == Some(&*count.to_string()), format!("{up:?}"))
        })
        .await
        .unwrap();
    }

    async fn ask(&self, path: &str) -> Result<Value, String> {
        let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
        let text = self.client.request_text(request).await.map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    pub(super) async fn query(&self, expr: &str) -> Result<Vec<Value>, String> {
        let answer = self.ask(&format!("/api/v1/query?query={}", encoded(expr))).await?;
        answer["data"]["result"].as_array().cloned().ok_or_else(|| answer.to_string())
    }

    /// The alerts that fire in a cluster, with what they tell.
    pub(super) async fn firing(&self, cluster: &str) -> Result<BTreeMap<String, String>, String> {
        let answer = self.ask("/api/v1/alerts").await?;
        let alerts = answer["data"]["alerts"].as_array().ok_or("no alerts")?;
        let of = |alert: &&Value| alert["labels"]["cluster"].as_str().unwrap_or(LIVE) == cluster;
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing").filter(of);
        let word = |alert: &Value| alert["labels"]["alertname"].as_str().unwrap_or("-").to_owned();
        Ok(firing.map(|alert| (word(alert), alert["annotations"].to_string())).collect())
    }

    /// Until each of them has fired; gives back what they told. It must be all that they want to tell.
    pub(super) async fn until_fire(&self, cluster: &str, alerts: &[&str]) -> BTreeMap<String, String> {
        let told: Mutex<BTreeMap<String, String>> = Mutex::default();
        eventually(&format!("{alerts:?} fire"), LATER, async || {
            let firing = self.firing(cluster).await?;
            let mut told = told.lock().unwrap();
            told.extend(firing);
            let lacks: Vec<_> = alerts.iter().filter(|alert| !told.contains_key(**alert)).collect();
            seen(lacks.is_empty(), format!("{lacks:?} do not; {:?} did", told.keys()))
        })
        .await
        .unwrap();
        let told = told.into_inner().unwrap();
        for (alert, words) in &told {
            assert!(!words.contains("<error") && !words.contains("no value"), "{alert}: {words}");
        }
        told
    }

    pub(super) async fn until_stop(&self, cluster: &str, alerts: &[&str]) {
        let stopped = async || {
            let firing = self.firing(cluster).await?;
            seen(!alerts.iter().any(|alert| firing.contains_key(*alert)), format!("{firing:?}"))
        };
        eventually(&format!("{alerts:?} stop"), LATER, stopped).await.unwrap();
    }

    /// Until nothing fires.
    pub(super) async fn until_quiet(&self) {
        let quiet = async || {
            let firing = self.firing(LIVE).await?;
            seen(firing.is_empty(), format!("{firing:?}"))
        };
        eventually("nothing fires while all is well", LATER, quiet).await.unwrap();
    }

    /// The alerts that fired in a cluster since it was started.
    pub(super) async fn fired(&self, cluster: &str) -> BTreeSet<String> {
        let all = format!(
            "count by (alertname) (count_over_time(ALERTS{{alertstate=\"firing\", cluster=\"{cluster}\"}}[1h]))"
        );
        let fired = self.query(&all).await.unwrap();
        fired.iter().filter_map(|one| one["metric"]["alertname"].as_str()).map(str::to_owned).collect()
    }
}
