//! Prometheus itself reads the metrics.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]

use std::process::Stdio;
use std::time::Duration;

use kube::Client;
use pod_safety_control_plane::{ControlPlane, Options, eventually, seen};
use pod_safety_locks::installed;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

const SOON: Duration = Duration::from_secs(30);

async fn ask(prometheus: &Client, path: &str) -> Result<Value, String> {
    let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
    let text = prometheus.request_text(request).await.map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// A port that nobody else of this machine's tests takes.
fn free_port() -> u16 {
    // Below the range of outgoing connections, and beside the harness's own.
    (15_000..20_000)
        .find(|port| std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, *port)).is_ok())
        .unwrap_or_default()
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

    let folder = tempfile::tempdir().unwrap();
    let config = json!({
        "global": { "scrape_interval": "1s" },
        "scrape_configs": [{ "job_name": "pod-safety", "static_configs": [{ "targets": [ours.address()] }] }],
    });
    let file = folder.path().join("prometheus.yml");
    std::fs::write(&file, config.to_string()).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let args = [
        format!("--config.file={}", file.display()),
        format!("--storage.tsdb.path={}", folder.path().join("data").display()),
        format!("--web.listen-address={address}"),
    ];
    let mut prometheus = plane.program("prometheus", &installed("prometheus").unwrap(), args, &[]).unwrap();
    let client = Client::try_from(kube::Config::new(format!("http://{address}").parse().unwrap())).unwrap();
    let up = async || {
        let targets = ask(&client, "/api/v1/targets").await?;
        let target = &targets["data"]["activeTargets"][0];
        seen(target["health"] == "up", target.to_string())
    };
    prometheus.until("scrape the binary", SOON, up).await.unwrap();
    let query = "/api/v1/query?query=leader_election_master_status%7Bname%3D%22pod-safety%22%7D";
    let leads = async || {
        let answer = ask(&client, query).await?;
        seen(answer["data"]["result"][0]["value"][1] == "1", answer.to_string())
    };
    eventually("Prometheus knows that it leads", SOON, leads).await.unwrap();
}
