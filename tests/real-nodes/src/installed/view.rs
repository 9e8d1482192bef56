//! The operator's view: Prometheus, which reads the replicas by the addresses of their pods, and kubectl with the
//! plugin.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use pod_safety_control_plane::{Output, Prometheus, check_that, eventually};
use serde_json::{Value, json};

use super::image;
use crate::cluster::Cluster;
use crate::machine;

/// The time until an alert fires or stops: the rules here have short intervals, and look back for ten seconds.
const ALERT: Duration = Duration::from_secs(90);
const PORT: u16 = 8080;

pub(super) struct View {
    prometheus: Prometheus,
    plugins: PathBuf,
}

impl View {
    pub(super) async fn open(cluster: &Cluster) -> Result<Self> {
        let program = machine::scripts().join("../../../.cache/bin/prometheus");
        let prometheus = Prometheus::start(&cluster.plane, &program).await?;
        let plugins = std::env::temp_dir().join("plugins");
        image::plugin(&plugins)?;
        let view = Self { prometheus, plugins };
        view.discover(cluster).await?;
        view.until_result("both replicas are read", "sum(up) == 2").await?;
        view.until_result("one leads", "sum(leader_election_master_status{name=\"pod-safety\"}) == 1").await?;
        view.until_quiet(cluster).await?;
        Ok(view)
    }

    /// As Prometheus finds pods by their annotation in a cluster.
    async fn discover(&self, cluster: &Cluster) -> Result<()> {
        let target = |pod: &Pod| -> Option<Value> {
            let address = format!("{}:{PORT}", pod.status.as_ref()?.pod_ip.as_ref()?);
            Some(json!({ "targets": [address], "labels": { "namespace": "pod-safety", "pod": pod.metadata.name } }))
        };
        let targets = super::pods(cluster).await?.iter().filter_map(target).collect();
        Ok(self.prometheus.scrapes(targets)?)
    }

    /// Waits until the expression has a result.
    pub(super) async fn until_result(&self, what: &str, expr: &str) -> Result<()> {
        let shows = async || {
            let answer = self.prometheus.query(expr).await?;
            check_that(!answer.is_empty(), format!("{expr} is nothing"))
        };
        Ok(eventually(what, ALERT, shows).await?)
    }

    /// The address of the leader's pod.
    pub(super) async fn leader(&self) -> Result<Ipv4Addr> {
        let expr = "leader_election_master_status{name=\"pod-safety\"} == 1";
        let answer = self.prometheus.query(expr).await.map_err(anyhow::Error::msg)?;
        let [one] = answer.as_slice() else { anyhow::bail!("{} lead", answer.len()) };
        let address = one["metric"]["instance"].as_str().and_then(|name| name.split(':').next());
        Ok(address.context("no instance")?.parse()?)
    }

    async fn firing(&self, cluster: &Cluster) -> Result<Vec<String>, String> {
        // Pods come and go.
        self.discover(cluster).await.map_err(|error| error.to_string())?;
        let firing = self.prometheus.firing().await?;
        Ok(firing.iter().map(|alert| alert["labels"]["alertname"].as_str().unwrap_or("-").to_owned()).collect())
    }

    pub(super) async fn until_fires(&self, cluster: &Cluster, alert: &str) -> Result<()> {
        let fires = async || {
            let firing = self.firing(cluster).await?;
            check_that(firing.iter().any(|one| one == alert), format!("{firing:?}"))
        };
        Ok(eventually(&format!("{alert} fires"), ALERT, fires).await?)
    }

    pub(super) async fn until_quiet(&self, cluster: &Cluster) -> Result<()> {
        let quiet = async || {
            let firing = self.firing(cluster).await?;
            check_that(firing.is_empty(), format!("{firing:?}"))
        };
        Ok(eventually("no alert fires", ALERT, quiet).await?)
    }

    /// kubectl as a user has it, with `kubectl pod-safety`.
    pub(super) async fn kubectl(&self, cluster: &Cluster, args: &[&str]) -> Result<Output> {
        let path = format!("{}:{}", self.plugins.display(), std::env::var("PATH").unwrap_or_default());
        Ok(cluster.plane.kubectl_as(path.as_ref(), args).await?)
    }
}
