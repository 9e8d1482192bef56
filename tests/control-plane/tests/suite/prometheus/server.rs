//! Prometheus with the processes of a test as targets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use pod_safety_control_plane::{ControlPlane, PodSafety, check_that, wait_until};
use pod_safety_locks::installed;
use serde_json::{Value, json};

use super::replayed::Replayed;

/// The cluster label of the processes of a test: rules use it only where one Prometheus scrapes several clusters.
pub(crate) const LIVE: &str = "";

/// A running Prometheus. Dropping it kills it and removes its files.
pub(crate) struct Prometheus(pod_safety_control_plane::Prometheus);

impl Prometheus {
    pub(crate) async fn start(plane: &ControlPlane) -> Self {
        let program = installed("prometheus").unwrap();
        Self(pod_safety_control_plane::Prometheus::start(plane, &program).await.unwrap())
    }

    /// Sets these targets.
    pub(in crate::prometheus) async fn scrapes(&self, processes: &[PodSafety], replayed: Option<&Replayed>) {
        self.scrapes_and(processes, replayed.into_iter().flat_map(Replayed::targets).collect()).await;
    }

    /// Sets these targets, and these groups of targets.
    pub(crate) async fn scrapes_and(&self, processes: &[PodSafety], more: Vec<Value>) {
        let addresses: Vec<_> = processes.iter().map(|process| process.address()).collect();
        // With the labels of a ServiceMonitor.
        let mut groups = vec![json!({ "targets": addresses, "labels": { "namespace": "pod-safety" } })];
        groups.extend(more);
        let count = groups.iter().filter_map(|group| group["targets"].as_array()).flatten().count();
        self.0.scrapes(groups).unwrap();
        wait_until("Prometheus scrapes", async || {
            let up = self.query("sum(up)").await?;
            check_that(up.len() == 1 && up[0]["value"][1].as_str() == Some(&*count.to_string()), format!("{up:?}"))
        })
        .await;
    }

    /// The firing alerts of Prometheus.
    pub(crate) async fn alerts(&self) -> Result<Vec<Value>, String> {
        self.0.firing().await
    }

    pub(crate) async fn query(&self, expr: &str) -> Result<Vec<Value>, String> {
        self.0.query(expr).await
    }

    /// The firing alerts of a cluster, with their texts.
    pub(crate) async fn firing(&self, cluster: &str) -> Result<BTreeMap<String, String>, String> {
        let alerts = self.0.firing().await?;
        let of = |alert: &&Value| alert["labels"]["cluster"].as_str().unwrap_or(LIVE) == cluster;
        let firing = alerts.iter().filter(of);
        let word = |alert: &Value| alert["labels"]["alertname"].as_str().unwrap_or("-").to_owned();
        Ok(firing.map(|alert| (word(alert), alert["annotations"].to_string())).collect())
    }

    /// Waits until each alert has fired; returns their texts. All template values must be filled in.
    pub(crate) async fn until_fire(&self, cluster: &str, alerts: &[&str]) -> BTreeMap<String, String> {
        let texts: Mutex<BTreeMap<String, String>> = Mutex::default();
        wait_until(&format!("{alerts:?} fire"), async || {
            let firing = self.firing(cluster).await?;
            let mut texts = texts.lock().unwrap();
            texts.extend(firing);
            let lacks: Vec<_> = alerts.iter().filter(|alert| !texts.contains_key(**alert)).collect();
            check_that(lacks.is_empty(), format!("{lacks:?} do not; {:?} did", texts.keys()))
        })
        .await;
        let texts = texts.into_inner().unwrap();
        for (alert, words) in &texts {
            assert!(!words.contains("<error") && !words.contains("no value"), "{alert}: {words}");
        }
        texts
    }

    pub(crate) async fn until_stop(&self, cluster: &str, alerts: &[&str]) {
        let stopped = async || {
            let firing = self.firing(cluster).await?;
            check_that(!alerts.iter().any(|alert| firing.contains_key(*alert)), format!("{firing:?}"))
        };
        wait_until(&format!("{alerts:?} stop"), stopped).await;
    }

    /// Waits until no alert fires.
    pub(crate) async fn until_quiet(&self) {
        let quiet = async || {
            let firing = self.firing(LIVE).await?;
            check_that(firing.is_empty(), format!("{firing:?}"))
        };
        wait_until("nothing fires while all is well", quiet).await;
    }

    /// The alerts that fired in a cluster since Prometheus was started.
    pub(crate) async fn fired(&self, cluster: &str) -> BTreeSet<String> {
        let all = format!(
            "count by (alertname) (count_over_time(ALERTS{{alertstate=\"firing\", cluster=\"{cluster}\"}}[1h]))"
        );
        let fired = self.query(&all).await.unwrap();
        fired.iter().filter_map(|one| one["metric"]["alertname"].as_str()).map(str::to_owned).collect()
    }
}
