//! Workloads with a disruption budget, and the controllers that keep their pods:
//! StatefulSets, whose pods keep their names, and ReplicaSets, whose pods do not.
//!
//! Like the other workload controllers they read the truth and write through the
//! API. What can make them late is in the plan (`StallWorkloads`): a quota, a
//! webhook, a controller that is not there.
//!
//! Their pods say in an annotation how long they take from start to readiness.
//! Whether a process *is* ready only the checker knows; its kubelet asks it, as a
//! probe does. What no kubelet reports any more, a node monitor calls unready, as
//! kube-controller-manager's node lifecycle does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::host::Host;
use super::initial_objects::SET;
use super::request::send_request;
use super::run::World;
use super::{number_at, str_at};
use crate::campaign::{Fault, Limit};

/// Where a pod says how many seconds it takes to be ready. Pods without it have no
/// readiness.
pub(crate) const START_UP: &str = "hollow/start-up";
/// `--node-monitor-grace-period`, less its tick: a silent node's pods are called
/// unready.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(50);
const APPS: &str = "/apis/apps/v1/namespaces/default";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// The controllers of one world.
pub(super) struct Shops {
    world: Arc<World>,
    /// The last renewal of each Lease, and when it was seen.
    beats: BTreeMap<String, (String, Duration)>,
    /// Silent nodes whose pods were called unready: once, as upstream does. A kubelet
    /// that has a word with the API all the same says otherwise.
    reported: BTreeSet<String>,
}

/// The name of a workload, of its budget and of its pods' label.
pub(super) fn name(workload: usize) -> String {
    format!("shop-{workload}")
}

/// The seconds that a pod takes to be ready.
pub(crate) fn start_up(pod: &Value) -> Option<u64> {
    pod.get("metadata")?.get("annotations")?.get(START_UP)?.as_str()?.parse().ok()
}

/// What the API says about a pod's readiness.
pub(crate) fn is_called_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().any(|one| str_at(one, "/type") == "Ready" && str_at(one, "/status") == "True")
}

/// The condition that says whether a pod is ready.
pub(super) fn readiness(ready: bool, now: &str) -> Value {
    json!({ "type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": now })
}

fn is_ended(pod: &Value) -> bool {
    matches!(str_at(pod, "/status/phase"), "Failed" | "Succeeded")
}

fn terminates(pod: &Value) -> bool {
    pod.pointer("/metadata/deletionTimestamp").is_some()
}

impl Shops {
    /// Starts them, if the plan has something for them.
    pub(super) fn start(world: &Arc<World>, host: &Arc<Host>) {
        if !world.has_budgets {
            return;
        }
        let mut shops = Self { world: Arc::clone(world), beats: BTreeMap::new(), reported: BTreeSet::new() };
        let env = host.env();
        host.start_task("shops", async move {
            loop {
                shops.reconcile().await;
                env.sleep(Duration::from_secs(1)).await;
            }
        });
    }

    async fn request(&self, caller: &str, method: &str, path: &str, body: Option<Value>) -> u16 {
        let Some(server) = self.world.servers.get(0) else { return 0 };
        send_request(&server, caller, method, path, body).await.map_or(0, |(code, _)| code)
    }

    async fn reconcile(&mut self) {
        let now = self.world.checker.now();
        if now >= *self.world.stalled_until.lock() {
            // That one has a keeper of its own.
            for set in self.world.etcd.objects_that("StatefulSet", |set| str_at(set, "/metadata/name") != SET) {
                self.keep_named(&set).await;
            }
            for set in self.world.etcd.objects("ReplicaSet") {
                self.keep_count(&set).await;
            }
        }
        self.monitor(now).await;
    }

    fn pods_of(&self, set: &Value) -> Vec<Arc<Value>> {
        let uid = str_at(set, "/metadata/uid");
        self.world.etcd.objects_that("Pod", |pod| str_at(pod, "/metadata/ownerReferences/0/uid") == uid)
    }

    async fn create(&self, set: &Value, name: Option<&str>) {
        let owner = str_at(set, "/metadata/name");
        let mut pod = set.pointer("/spec/template").cloned().unwrap_or_default();
        let count = self.world.etcd.revision();
        let grace = 2 + self.world.chance.below(20, owner, "grace", count);
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        pod["metadata"]["namespace"] = "default".into();
        match name {
            Some(name) => pod["metadata"]["name"] = name.into(),
            None => pod["metadata"]["generateName"] = format!("{owner}-").into(),
        }
        pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": str_at(set, "/kind"),
            "name": owner, "uid": str_at(set, "/metadata/uid"), "controller": true, "blockOwnerDeletion": true }]);
        pod["spec"]["terminationGracePeriodSeconds"] = grace.into();
        self.world.name_responders(&mut pod);
        self.request("workloads", "POST", PODS, Some(pod)).await;
    }

    async fn delete(&self, pod: &Value) {
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": { "uid": str_at(pod, "/metadata/uid") } });
        self.request("workloads", "DELETE", &format!("{PODS}/{}", str_at(pod, "/metadata/name")), Some(options)).await;
    }

    /// A pod of each ordinal, and none beyond.
    async fn keep_named(&self, set: &Value) {
        let wanted = number_at(set, "/spec/replicas").unwrap_or(0);
        let name = str_at(set, "/metadata/name");
        let pods = self.pods_of(set);
        for ordinal in 0..wanted {
            let name = format!("{name}-{ordinal}");
            match pods.iter().find(|pod| str_at(pod, "/metadata/name") == name) {
                None => self.create(set, Some(&name)).await,
                Some(pod) if is_ended(pod) && !terminates(pod) => self.delete(pod).await,
                Some(_) => {}
            }
        }
        let ordinal = |pod: &Value| str_at(pod, "/metadata/name").rsplit('-').next()?.parse::<i64>().ok();
        for pod in pods.iter().filter(|pod| ordinal(pod) >= Some(wanted) && !terminates(pod)) {
            self.delete(pod).await;
        }
    }

    /// As many as are wanted; unready ones go first.
    async fn keep_count(&self, set: &Value) {
        let wanted = usize::try_from(number_at(set, "/spec/replicas").unwrap_or(0)).unwrap_or(0);
        let mut pods = self.pods_of(set);
        pods.retain(|pod| !is_ended(pod) && !terminates(pod));
        for _ in pods.len()..wanted {
            self.create(set, None).await;
        }
        pods.sort_by_key(|pod| is_called_ready(pod));
        let many = pods.len().saturating_sub(wanted);
        for pod in pods.iter().take(many) {
            self.delete(pod).await;
        }
    }

    /// Calls the pods of nodes that fell silent unready.
    async fn monitor(&mut self, now: Duration) {
        for lease in self.world.etcd.objects("Lease") {
            let (name, renewed) = (str_at(&lease, "/metadata/name"), str_at(&lease, "/spec/renewTime"));
            if self.beats.get(name).is_none_or(|(known, _)| known != renewed) {
                self.beats.insert(name.to_owned(), (renewed.to_owned(), now));
            }
        }
        let nodes = self.world.etcd.objects("Node");
        let silent =
            |node: &str| self.beats.get(node).is_some_and(|(_, at)| now.saturating_sub(*at) > UNREACHABLE_AFTER);
        let names = nodes.iter().map(|node| str_at(node, "/metadata/name")).filter(|node| silent(node));
        let names: BTreeSet<String> = names.map(str::to_owned).collect();
        let fell: BTreeSet<String> = names.difference(&self.reported).cloned().collect();
        self.reported = names;
        let wrong = |pod: &Value| {
            fell.contains(str_at(pod, "/spec/nodeName")) && start_up(pod).is_some() && is_called_ready(pod)
        };
        for pod in self.world.etcd.objects_that("Pod", wrong) {
            let stamp = super::host::stamp(now);
            let patch = json!({ "metadata": { "uid": str_at(&pod, "/metadata/uid") },
                "status": { "conditions": [readiness(false, &stamp)] } });
            let path = format!("{PODS}/{}/status", str_at(&pod, "/metadata/name"));
            self.request("node-controller", "PATCH", &path, Some(patch)).await;
        }
    }
}

/// The fields of a budget's spec.
fn spec(limit: Limit) -> (&'static str, Value) {
    match limit {
        Limit::MinAvailable(pods) => ("minAvailable", pods.into()),
        Limit::MinPercent(percent) => ("minAvailable", format!("{percent}%").into()),
        Limit::MaxUnavailable(pods) => ("maxUnavailable", pods.into()),
        Limit::MaxPercent(percent) => ("maxUnavailable", format!("{percent}%").into()),
    }
}

impl World {
    /// What people do to workloads with a budget.
    pub(super) async fn tend_shops(self: &Arc<Self>, fault: &Fault) {
        match fault {
            Fault::Deploy { workload, replicas, keeps_names, start_up, limit } => {
                self.deploy(*workload, *replicas, *keeps_names, *start_up, *limit).await;
            }
            Fault::Scale { workload, replicas } => {
                let name = name(*workload);
                let plural = if self.etcd.object("ReplicaSet", &format!("default/{name}")).is_some() {
                    "replicasets"
                } else {
                    "statefulsets"
                };
                let patch = json!({ "spec": { "replicas": replicas } });
                self.person("PATCH", &format!("{APPS}/{plural}/{name}"), Some(patch)).await;
            }
            Fault::ChangeBudget { workload, limit } => {
                let (field, value) = spec(*limit);
                let mut patch = json!({ "spec": { "minAvailable": null, "maxUnavailable": null } });
                patch["spec"][field] = value;
                let path = format!("/apis/policy/v1/namespaces/default/poddisruptionbudgets/{}", name(*workload));
                self.person("PATCH", &path, Some(patch)).await;
            }
            Fault::StallWorkloads { seconds } => {
                let until = self.checker.now() + Duration::from_secs(*seconds);
                let mut stalled = self.stalled_until.lock();
                *stalled = until.max(*stalled);
            }
            Fault::Sicken { workload, pod, seconds } => {
                let until = self.checker.now() + Duration::from_secs(*seconds);
                let name = name(*workload);
                let pods = self.etcd.objects("Pod");
                let mut own = pods.iter().filter(|pod| str_at(pod, "/metadata/labels/app") == name);
                if let Some(pod) = own.nth(*pod) {
                    self.checker.sickens(str_at(pod, "/metadata/uid"), until);
                }
            }
            fault => self.people_evict(fault).await,
        }
    }

    async fn deploy(&self, workload: usize, replicas: u64, keeps_names: bool, start_up: u64, limit: Limit) {
        let name = name(workload);
        let (kind, plural) = if keeps_names { ("StatefulSet", "statefulsets") } else { ("ReplicaSet", "replicasets") };
        let template = json!({
            "metadata": { "labels": { "app": name }, "annotations": { START_UP: start_up.to_string() } },
            "spec": { "containers": [{ "name": "main", "image": "hollow" }] },
        });
        let mut set = json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name },
            "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": name } }, "template": template },
        });
        if keeps_names {
            set["spec"]["serviceName"] = name.as_str().into();
        }
        self.person("POST", &format!("{APPS}/{plural}"), Some(set)).await;
        let (field, value) = spec(limit);
        let mut budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": name },
            "spec": { "selector": { "matchLabels": { "app": name } } },
        });
        budget["spec"][field] = value;
        self.person("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", Some(budget)).await;
    }
}
