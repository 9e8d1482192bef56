//! What others see of the API server: a ServiceAccount without rights but one reads one object, again and again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;

const READS_EACH: Duration = Duration::from_millis(20);

/// One that reads until it is dropped.
pub(crate) struct Others {
    times: Arc<Mutex<Vec<Duration>>>,
    task: JoinHandle<()>,
}

impl Drop for Others {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Others {
    /// A client that the API server counts among all other ServiceAccounts.
    pub(crate) async fn client(cluster: &Cluster) -> Result<Client> {
        let plane = &cluster.plane;
        let kubeconfig = plane.service_account("others", "others").await?;
        let role = ["create", "clusterrole", "others", "--verb=get", "--resource=namespaces"];
        let binding = [
            "create",
            "clusterrolebinding",
            "others",
            "--clusterrole=others",
            "--serviceaccount=others:others",
        ];
        for args in [&role[..], &binding[..]] {
            // The second time they are there.
            plane.kubectl(args).await?;
        }
        let client = plane.client(&kubeconfig).await?;
        Api::<Namespace>::all(client.clone()).get("others").await.context("others may not read")?;
        Ok(client)
    }

    pub(crate) fn start(client: &Client) -> Self {
        let (times, api) = (Arc::<Mutex<Vec<_>>>::default(), Api::<Namespace>::all(client.clone()));
        let into = Arc::clone(&times);
        let task = tokio::spawn(async move {
            loop {
                let began = Instant::now();
                // A read that fails has taken its time, too.
                let _answer = api.get("others").await;
                into.lock().push(began.elapsed());
                tokio::time::sleep(READS_EACH).await;
            }
        });
        Self { times, task }
    }

    /// Milliseconds within which so many of a hundred were answered.
    pub(crate) fn percentile(&self, percent: usize) -> Option<f64> {
        let mut times = self.times.lock().clone();
        times.sort();
        let at = times.len().checked_sub(1)? * percent / 100;
        times.get(at).map(|time| time.as_secs_f64() * 1e3)
    }
}
