//! Conditions that no test can cause in time: the metrics page of the running binary with some changed samples, served to the same Prometheus
//! as another cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use kube::Client;
use pod_safety_control_plane::PodSafety;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// Its value of the label `cluster`.
pub(super) const CLUSTER: &str = "replayed";

/// The change of a sample.
#[derive(Clone, Copy)]
enum Change {
    To(f64),
    /// It increases by this number each second.
    Grows(f64),
    /// This many seconds from now.
    Now(f64),
}

/// An alert, why it is not caused for real, and the changed samples: a name, and a subset of its labels.
type Row = (&'static str, &'static str, &'static [(&'static str, &'static str, Change)]);

/// All alerts that are not caused for real. Every other alert is.
const ROWS: [Row; 14] = [
    (
        "PodSafetyLeaderFlapping",
        "a process that loses its lease ends, and its count with it; four losses would take minutes",
        &[("pod_safety_leader_changes_total", "change=\"lost\"", Change::Grows(2.0))],
    ),
    (
        "PodSafetyWatchStale",
        "a watch must be silent for 150 s: that number is in the rule",
        &[("pod_safety_last_watch_timestamp_seconds", "resource=\"nodes\"", Change::Now(-200.0))],
    ),
    (
        "PodSafetyClockAhead",
        "all processes of a machine have its clock",
        &[("pod_safety_last_watch_timestamp_seconds", "resource=\"pods\"", Change::Now(20.0))],
    ),
    (
        "PodSafetyUndecodable",
        "the API server takes no object that cannot be decoded (suite api_faults spoils answers)",
        &[("pod_safety_cache_undecodable_objects", "resource=\"nodes\"", Change::To(2.0))],
    ),
    (
        "PodSafetyDecidingSlow",
        "a queue of five seconds needs more nodes and pods than a test has time for",
        &[
            ("workqueue_queue_duration_seconds_bucket", "le=\"+Inf\"", Change::Grows(1000.0)),
            ("workqueue_queue_duration_seconds_count", "", Change::Grows(1000.0)),
        ],
    ),
    (
        "PodSafetyDetectionSlow",
        "a process that finds a node ten seconds late has a machine that stands still",
        &[
            ("pod_safety_node_detection_lag_seconds_bucket", "le=\"+Inf\"", Change::Grows(100.0)),
            ("pod_safety_node_detection_lag_seconds_count", "", Change::Grows(100.0)),
        ],
    ),
    (
        "PodSafetyEvidenceRefused",
        "a race: live reads speak against what the cache said a moment ago (suite api_faults)",
        &[("pod_safety_evidence_refusals_total", "reason=\"ReadFailed\"", Change::Grows(1.0))],
    ),
    (
        "PodSafetyEvictionNotDeleted",
        "an eviction that was let through must be two minutes old",
        &[("pod_safety_holds", "reason=\"EvictionNotCompleted\"", Change::To(1.0))],
    ),
    (
        "PodSafetyStaleOutOfServiceTaint",
        "its node must have been Ready for two minutes",
        &[("pod_safety_holds", "reason=\"StaleTaint\"", Change::To(1.0))],
    ),
    (
        "PodSafetyEvidenceConflictsWithReady",
        "a kubelet that is heard again contradicts the evidence within half a minute",
        &[("pod_safety_holds", "reason=\"EvidenceConflictsWithReady\"", Change::To(1.0))],
    ),
    (
        "PodSafetyRequestedEvictionHeld",
        "the API server here has no EvictionRequests; the suite drain has some",
        &[("pod_safety_holds", "reason=\"EvictionRefused\"", Change::To(1.0))],
    ),
    (
        "PodSafetyVolumeHeld",
        "nothing here has volumes; the suite volumes holds those of lost nodes",
        &[("pod_safety_holds", "reason=\"VolumeUnproved\"", Change::To(1.0))],
    ),
    (
        "PodSafetyVolumeOnSeveralNodes",
        "nothing here has volumes, and those who attach them are to keep one from two nodes",
        &[("pod_safety_holds", "reason=\"VolumeOnSeveralNodes\"", Change::To(1.0))],
    ),
    // From the metrics page of kube-controller-manager, below.
    ("PodSafetyTwinRunning", "a kube-controller-manager here runs no twin of what is replaced", &[]),
];

/// The names of all alerts that are not caused for real.
pub(super) fn alerts() -> Vec<&'static str> {
    ROWS.iter().map(|(alert, ..)| *alert).collect()
}

/// The metrics of a kube-controller-manager, whose own pod garbage collector may run.
fn kcm_metrics(has_twin: bool) -> String {
    let queue = if has_twin { "orphaned_pods_nodes" } else { "deployment" };
    format!("# TYPE workqueue_adds_total counter\nworkqueue_adds_total{{name=\"{queue}\"}} 0\n")
}

/// A sample of the text format: its name, its labels, its value.
fn sample(line: &str) -> Option<(&str, &str, f64)> {
    let (series, value) = line.rsplit_once(' ').filter(|_| !line.starts_with('#'))?;
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    Some((name, labels.trim_end_matches('}'), value.parse().ok()?))
}

/// The page with the changes of all rows.
fn changed(page: &str, began: f64, now: f64) -> String {
    let line = |line: &str| {
        let Some((name, labels, value)) = sample(line) else { return format!("{line}\n") };
        let fits = |(of, with, _): &&(&str, &str, Change)| *of == name && labels.contains(with);
        let change = ROWS.iter().flat_map(|(.., changes)| *changes).find(fits);
        let value = match change.map(|(.., change)| *change) {
            None => return format!("{line}\n"),
            Some(Change::To(value)) => value,
            Some(Change::Grows(each_second)) => value + each_second * (now - began),
            Some(Change::Now(after)) => now + after,
        };
        let (series, _) = line.rsplit_once(' ').unwrap_or((line, ""));
        format!("{series} {value}\n")
    };
    page.lines().map(line).collect()
}

/// An exporter beside the binary. Dropping it ends it.
pub(super) struct Replayed {
    address: String,
    replays: Arc<AtomicBool>,
    serves: AbortHandle,
}

impl Drop for Replayed {
    fn drop(&mut self) {
        self.serves.abort();
    }
}

impl Replayed {
    /// Unchanged pages of this process, until changes are switched on.
    pub(super) async fn of_process(process: &PodSafety) -> Self {
        let page = process.get("/metrics").await.unwrap().body;
        for (alert, _, changes) in ROWS {
            for (name, labels, _) in changes {
                let there = page.lines().filter_map(sample).any(|(of, with, _)| of == *name && with.contains(labels));
                assert!(there, "{alert}: the binary prints no {name}{{{labels}}}");
            }
        }
        let url = format!("http://{}", process.address()).parse().unwrap();
        let client = Client::try_from(kube::Config::new(url)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let is_changed = Arc::new(AtomicBool::new(false));
        let serves = tokio::spawn(serve(listener, client, Arc::clone(&is_changed))).abort_handle();
        Self { address, replays: is_changed, serves }
    }

    /// Switches the changes of all rows on or off.
    pub(super) fn is_wrong(&self, wrong: bool) {
        self.replays.store(wrong, Ordering::SeqCst);
    }

    pub(super) fn targets(&self) -> [Value; 2] {
        let labels = |path: &str, job: &str| json!({ "cluster": CLUSTER, "namespace": "pod-safety", "job": job, "__metrics_path__": path });
        [("/metrics", "pod-safety"), ("/twin", "kube-controller-manager")]
            .map(|(path, job)| json!({ "targets": [self.address], "labels": labels(path, job) }))
    }
}

fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map(|since| since.as_secs_f64()).unwrap_or_default()
}

async fn serve(listener: TcpListener, client: Client, is_changed: Arc<AtomicBool>) {
    let began = seconds();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(answer(stream, client.clone(), is_changed.load(Ordering::SeqCst), began));
    }
}

/// Serves one page, if the binary serves its own.
async fn answer(mut stream: TcpStream, client: Client, is_changed: bool, began: f64) -> Option<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") && stream.read_buf(&mut request).await.ok()? > 0 {}
    let now = seconds();
    let page = if request.starts_with(b"GET /twin") {
        kcm_metrics(is_changed)
    } else {
        let metrics_request = http::Request::get("/metrics").body(Vec::new()).ok()?;
        let page = client.request_text(metrics_request).await.ok()?;
        if is_changed { changed(&page, began, now) } else { page }
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        page.len()
    );
    stream.write_all(&[head.as_bytes(), page.as_bytes()].concat()).await.ok()
}
