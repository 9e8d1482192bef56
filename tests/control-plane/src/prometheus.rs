//! A real Prometheus, with the chart's alerts and shorter times.

use std::net::Ipv4Addr;
use std::path::Path;

use kube::{Client, Config};
use serde_json::{Value, json};

use crate::port::Port;
use crate::{ControlPlane, Error, Program, chart};

/// A scrape may take no longer than the scrape interval. Several scrapes must fit into the ranges of [`shorten_for`].
const SCRAPE: &str = "2s";

/// A running Prometheus. Dropping it kills it and removes its files.
pub struct Prometheus {
    client: Client,
    folder: tempfile::TempDir,
    _port: Port,
    _program: Program,
}

/// The rules of the chart.
pub fn rules() -> Result<String, Error> {
    let path = chart().join("rules/pod-safety.rules.yaml");
    std::fs::read_to_string(&path).map_err(Error::file("read", &path))
}

/// A line of the rules with shorter times: alerts wait a second, ranges are ten seconds, and a count of 100 in a range becomes ten.
fn shorten_for(line: &str) -> String {
    if let Some((before, _)) = line.split_once("for: ").filter(|(before, _)| before.trim().is_empty()) {
        return format!("{before}for: 1s\n");
    }
    let mut parts = line.split('[');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let range = part.split_once(']').filter(|(range, _)| range.starts_with(|c: char| c.is_ascii_digit()));
        text += &range.map_or_else(|| format!("[{part}"), |(_, rest)| format!("[10s]{rest}"));
    }
    text.replace(" > 100", " > 10") + "\n"
}

/// Percent-encoded for a URL's query.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

impl Prometheus {
    /// Runs `program` with the chart's alerts, which fire without delay and look back for the longest duration of a test.
    pub async fn start(plane: &ControlPlane, program: &Path) -> Result<Self, Error> {
        let folder = tempfile::tempdir().map_err(Error::file("create a folder in", &std::env::temp_dir()))?;
        let hurried: String = rules()?.lines().map(shorten_for).collect();
        crate::pki::write(&folder.path().join("rules.yaml"), &hurried)?;
        let targets = json!({ "files": ["targets.json"], "refresh_interval": "1s" });
        let config = json!({
            "global": { "scrape_interval": SCRAPE, "evaluation_interval": "1s" },
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{ "job_name": "pod-safety", "file_sd_configs": [targets] }],
        });
        let file = folder.path().join("prometheus.yml");
        crate::pki::write(&file, &config.to_string())?;
        let port = Port::reserve()?;
        let args = [
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", folder.path().join("data").display()),
            format!("--web.listen-address={}:{}", Ipv4Addr::LOCALHOST, port.number()),
        ];
        let program = plane.program("prometheus", program, args, &[])?;
        let url = port.url("http").parse().map_err(|_| Error::Incomplete("the address"))?;
        let client = Client::try_from(Config::new(url)).map_err(Error::api("make a client".to_owned()))?;
        Ok(Self { client, folder, _port: port, _program: program })
    }

    /// Sets the scraped groups of targets.
    pub fn scrapes(&self, groups: Vec<Value>) -> Result<(), Error> {
        // Prometheus may read the file at any time.
        let (new, file) = (self.folder.path().join("targets.new"), self.folder.path().join("targets.json"));
        crate::pki::write(&new, &Value::from(groups).to_string())?;
        std::fs::rename(&new, &file).map_err(Error::file("rename", &new))
    }

    async fn fetch(&self, path: &str) -> Result<Value, String> {
        let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
        let text = self.client.request_text(request).await.map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    /// The current value of an expression.
    pub async fn query(&self, expr: &str) -> Result<Vec<Value>, String> {
        let answer = self.fetch(&format!("/api/v1/query?query={}", encoded(expr))).await?;
        answer["data"]["result"].as_array().cloned().ok_or_else(|| answer.to_string())
    }

    /// The firing alerts.
    pub async fn firing(&self) -> Result<Vec<Value>, String> {
        let answer = self.fetch("/api/v1/alerts").await?;
        let alerts = answer["data"]["alerts"].as_array().ok_or("no alerts")?;
        Ok(alerts.iter().filter(|alert| alert["state"] == "firing").cloned().collect())
    }
}
