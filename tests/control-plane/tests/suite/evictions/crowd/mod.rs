//! Pods with a simulated workload controller and kubelet, and a watch that counts them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kube::{Api, Client};
use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::observe;
use serde_json::json;

/// How often the kubelet acts.
const TICK: Duration = Duration::from_millis(50);

/// The pods of one workload, in their own namespace.
pub(crate) struct Crowd {
    pub(crate) namespace: &'static str,
    api: Client,
    owner: OwnerReference,
    /// The desired number of pods.
    replicas: Cell<usize>,
    created: Cell<usize>,
}

impl Crowd {
    /// Creates the pods, all of them ready.
    pub(crate) async fn create_all(
        api: &Client,
        namespace: &'static str,
        owner: OwnerReference,
        replicas: usize,
    ) -> Self {
        let crowd = Self { namespace, api: api.clone(), owner, replicas: Cell::new(replicas), created: Cell::new(0) };
        for _ in 0..replicas {
            crowd.create(true).await;
        }
        crowd
    }

    /// The name of created pod number `number`.
    pub(crate) fn name(number: usize) -> String {
        format!("pod-{number}")
    }

    /// How many pods were created in total.
    pub(crate) fn created(&self) -> usize {
        self.created.get()
    }

    async fn create(&self, ready: bool) {
        let name = Self::name(self.created.replace(self.created.get() + 1));
        let pod = objects::pod(self.namespace, &name).with_label("app", "crowd").on_node("worker");
        let mut pod = pod.controlled_by(self.owner.clone()).with_phase("Running");
        if !ready {
            pod.status = Some(readiness(false));
        }
        objects::create_pod(&self.api, &pod).await.unwrap();
    }

    pub(crate) async fn set_ready(&self, name: &str, ready: bool) {
        objects::set_pod_status(&self.api, self.namespace, name, &readiness(ready)).await.unwrap();
    }

    async fn pods(&self) -> Vec<Pod> {
        let pods = Api::<Pod>::namespaced(self.api.clone(), self.namespace);
        pods.list(&ListParams::default()).await.unwrap().items
    }

    /// Acts as the workload's controller and the kubelet, indefinitely: deleted pods terminate, replacements are created and become ready a
    /// moment later.
    pub(crate) async fn run_workload(&self) {
        loop {
            tokio::time::sleep(TICK).await;
            let pods = self.pods().await;
            let (ending, staying): (Vec<&Pod>, Vec<&Pod>) =
                pods.iter().partition(|pod| pod.metadata.deletion_timestamp.is_some());
            for pod in staying.iter().filter(|pod| !healthy(pod)) {
                // It may be evicted at the same time.
                let name = pod.metadata.name.as_deref().unwrap();
                let _gone = objects::set_pod_status(&self.api, self.namespace, name, &readiness(true)).await;
            }
            for pod in ending {
                let name = pod.metadata.name.as_deref().unwrap();
                observe::delete_pod(&self.api, self.namespace, name, true).await.unwrap();
            }
            for _ in staying.len()..self.replicas.get() {
                self.create(false).await;
            }
        }
    }
}

fn readiness(ready: bool) -> PodStatus {
    serde_json::from_value(json!({
        "phase": "Running",
        "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }],
    }))
    .unwrap()
}

/// Whether the pod is ready and not being deleted.
fn healthy(pod: &Pod) -> bool {
    let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    let ready = conditions.filter(|condition| condition.type_ == "Ready").any(|condition| condition.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

/// Counts the healthy pods after every single change, in the order of the changes.
pub(crate) struct HealthWatch<'a> {
    crowd: &'a Crowd,
    version: String,
    pods: RefCell<BTreeMap<String, bool>>,
    /// For each pod that stopped being healthy, the number of healthy pods after that.
    lost: RefCell<BTreeMap<String, usize>>,
    /// Pods that are being deleted, or are gone.
    ends: RefCell<BTreeSet<String>>,
}

impl<'a> HealthWatch<'a> {
    /// The current pods; [`watch`](Self::watch) continues from here.
    pub(crate) async fn start(crowd: &'a Crowd) -> Self {
        let pods = Api::<Pod>::namespaced(crowd.api.clone(), crowd.namespace);
        let list = pods.list(&ListParams::default()).await.unwrap();
        let initial = list.items.iter().map(|pod| (pod.metadata.name.clone().unwrap(), healthy(pod))).collect();
        let version = list.metadata.resource_version.unwrap();
        Self { crowd, version, pods: RefCell::new(initial), lost: RefCell::default(), ends: RefCell::default() }
    }

    /// Watches indefinitely.
    pub(crate) async fn watch(&self) {
        let pods = Api::<Pod>::namespaced(self.crowd.api.clone(), self.crowd.namespace);
        observe::watch_all_versions(pods, self.version.clone(), |pod, gone| {
            if gone || pod.metadata.deletion_timestamp.is_some() {
                self.ends.borrow_mut().extend(pod.metadata.name.clone());
            }
            self.see(pod, !gone && healthy(pod));
        })
        .await;
    }

    fn see(&self, pod: &Pod, is_healthy: bool) {
        let name = pod.metadata.name.clone().unwrap();
        let was = self.pods.borrow_mut().insert(name.clone(), is_healthy);
        if was == Some(true) && !is_healthy {
            let remaining = self.pods.borrow().values().filter(|healthy| **healthy).count();
            self.lost.borrow_mut().insert(name, remaining);
        }
    }

    /// The lowest number of healthy pods after the disruption of these pods; `None` if none of them was disrupted.
    pub(crate) fn lowest<'n>(&self, pods: impl IntoIterator<Item = &'n String>) -> Option<usize> {
        let lost = self.lost.borrow();
        pods.into_iter().filter_map(|name| lost.get(name).copied()).min()
    }

    /// Whether it has observed the deletion of this pod.
    pub(crate) fn saw_deletion(&self, name: &str) -> bool {
        self.ends.borrow().contains(name)
    }

    /// The pods that were disrupted so far.
    pub(crate) fn disrupted_pods(&self) -> Vec<String> {
        self.lost.borrow().keys().cloned().collect()
    }
}
