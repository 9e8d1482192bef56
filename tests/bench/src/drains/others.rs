//! The other actors of a drain: kubelets that terminate the pods, and the controllers of ReplicaSets with a scheduler that binds the
//! replacements to spare nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Preconditions, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use pod_safety_control_plane::objects::{self, PodExt as _};
use tokio::task::JoinSet;

use super::NAMESPACE;

/// Time for terminations in progress to complete after a drain ends.
const REST: Duration = Duration::from_secs(3);

pub(super) struct Workloads {
    work: Arc<Work>,
    watching: JoinSet<Result<()>>,
}

struct Work {
    client: Client,
    spare: Vec<String>,
    ends_after: Duration,
    terminated: AtomicUsize,
}

impl Workloads {
    pub(super) async fn start(client: Client, spare: Vec<String>, ends_after: Duration) -> Result<Self> {
        let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
        let list = pods.list_metadata(&ListParams::default().limit(1)).await.context("cannot list the pods")?;
        let version = list.metadata.resource_version.unwrap_or_default();
        let work = Arc::new(Work { client, spare, ends_after, terminated: AtomicUsize::new(0) });
        let mut watching = JoinSet::new();
        watching.spawn(Arc::clone(&work).watch(version));
        Ok(Self { work, watching })
    }

    /// How many pods have been terminated so far.
    pub(super) fn terminated(&self) -> usize {
        self.work.terminated.load(Ordering::SeqCst)
    }

    /// Returns how many pods were terminated.
    pub(super) async fn stop(mut self) -> Result<usize> {
        tokio::time::sleep(REST).await;
        if let Some(ended) = self.watching.try_join_next() {
            ended??;
        }
        Ok(self.work.terminated.load(Ordering::SeqCst))
    }
}

impl Work {
    async fn watch(self: Arc<Self>, mut version: String) -> Result<()> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), NAMESPACE);
        let mut tasks = JoinSet::new();
        loop {
            let watch = pods.watch(&WatchParams::default(), &version).await.context("cannot watch the pods")?;
            let mut events = Box::pin(watch);
            while let Some(event) = events.next().await {
                let (pod, is_gone) = match event? {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => (pod, false),
                    WatchEvent::Deleted(pod) => (pod, true),
                    WatchEvent::Bookmark(bookmark) => {
                        version = bookmark.metadata.resource_version;
                        continue;
                    }
                    WatchEvent::Error(status) => anyhow::bail!("a watch ended: {status:?}"),
                };
                version = pod.resource_version().unwrap_or_default();
                if is_gone {
                    let number = self.terminated.fetch_add(1, Ordering::SeqCst);
                    tasks.spawn(Arc::clone(&self).replace(pod, number));
                } else if pod.metadata.deletion_timestamp.is_some() {
                    tasks.spawn(Arc::clone(&self).end(pod));
                }
                while tasks.try_join_next().is_some() {}
            }
        }
    }

    /// Acts as the kubelet of the pod.
    async fn end(self: Arc<Self>, pod: Pod) {
        tokio::time::sleep(self.ends_after).await;
        let over = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: pod.uid(), resource_version: None }),
            ..DeleteParams::default()
        };
        drop(Api::<Pod>::namespaced(self.client.clone(), NAMESPACE).delete(&pod.name_any(), &over).await);
    }

    /// Acts as the ReplicaSet controller, the scheduler and the next kubelet.
    async fn replace(self: Arc<Self>, pod: Pod, number: usize) {
        let Some(node) = self.spare.get(number % self.spare.len().max(1)) else { return };
        let mut next = objects::pod(NAMESPACE, &format!("{}-again", pod.name_any())).on_node(node);
        next.metadata.labels.clone_from(&pod.metadata.labels);
        next.metadata.owner_references.clone_from(&pod.metadata.owner_references);
        drop(objects::create_pod(&self.client, &next.with_phase("Running")).await);
    }
}
