//! The API server's latency for other clients: a ServiceAccount with one right reads one object repeatedly.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::results::{BACKGROUND_BEFORE, BACKGROUND_P50, BACKGROUND_P99, Sample, percentile};

const READ_INTERVAL: Duration = Duration::from_millis(20);

/// Reads in the background until it is dropped.
pub(crate) struct BackgroundReads {
    times: Arc<Mutex<Vec<Duration>>>,
    before: Option<f64>,
    task: JoinHandle<()>,
}

impl Drop for BackgroundReads {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl BackgroundReads {
    /// Starts to read, as a client that API priority and fairness counts among all other ServiceAccounts.
    pub(crate) async fn start(cluster: &Cluster) -> Result<Self> {
        let plane = &cluster.plane;
        let kubeconfig = plane.service_account("others", "others").await?;
        let role = ["create", "clusterrole", "others", "--verb=get", "--resource=namespaces"];
        let binding =
            ["create", "clusterrolebinding", "others", "--clusterrole=others", "--serviceaccount=others:others"];
        for args in [&role[..], &binding[..]] {
            // In later runs they exist already.
            plane.kubectl(args).await?;
        }
        let client = plane.client(&kubeconfig).await?;
        let (times, api) = (Arc::<Mutex<Vec<_>>>::default(), Api::<Namespace>::all(client));
        api.get("others").await.context("others may not read")?;
        let into = Arc::clone(&times);
        let task = tokio::spawn(async move {
            loop {
                let began = Instant::now();
                // A failed read counts with its duration, too.
                let _answer = api.get("others").await;
                into.lock().push(began.elapsed());
                tokio::time::sleep(READ_INTERVAL).await;
            }
        });
        Ok(Self { times, before: None, task })
    }

    /// Starts the measurement. Earlier reads are the baseline.
    pub(crate) fn begin(&mut self) {
        self.before = self.percentile(99);
        self.times.lock().clear();
    }

    /// Adds the measured latencies.
    pub(crate) fn add_to(&self, sample: Sample) -> Sample {
        let sample = sample.with(BACKGROUND_BEFORE, self.before);
        sample.with(BACKGROUND_P50, self.percentile(50)).with(BACKGROUND_P99, self.percentile(99))
    }

    fn percentile(&self, percent: usize) -> Option<f64> {
        let mut times = self.times.lock().clone();
        times.sort();
        percentile(&times, 0, percent)
    }
}
