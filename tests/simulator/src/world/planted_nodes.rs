//! The effect of planted bugs on lost nodes: they trust other machines' clocks, mistake outages of API servers for lost
//! nodes, and add and remove taints wrongly.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use jiff::{SignedDuration, Timestamp};
use pod_safety_shared::clock::Clock;
use serde_json::{Value, json};

use super::kcm_nodes::ready;
use super::planted::request;
use super::seam::{Parts, Seam};
use super::str_at;
use crate::campaign::Plant;

/// `--node-monitor-grace-period`.
const GRACE: Duration = Duration::from_secs(50);
/// How often a bug with a loop of its own runs.
const LOOP_INTERVAL: Duration = Duration::from_secs(1);
/// The key under which a bug records that its loop runs.
const LOOP_KEY: &str = "looks";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

fn is_given_up(taint: &Value) -> bool {
    let key = str_at(taint, "/key");
    str_at(taint, "/effect") == "NoExecute" && key == "node.kubernetes.io/unreachable"
}

fn taints(node: &Value) -> &[Value] {
    node.pointer("/spec/taints").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn which(object: &Value) -> Value {
    let meta = |field: &str| str_at(object, &format!("/metadata/{field}")).to_owned();
    json!({ "uid": meta("uid"), "resourceVersion": meta("resourceVersion") })
}

impl Parts {
    /// The first request of a graceful deletion because of a missing Node: the condition with the reason.
    pub(super) fn marks_an_orphan(&self) -> bool {
        let says = |what: &str| self.body.windows(what.len()).any(|part| part == what.as_bytes());
        let of_pod = self.method == Method::PATCH && self.path().contains("/pods/");
        of_pod && self.path().ends_with("/status") && says("DeletionByPodGC") && !says("\"phase\"")
    }
}

fn renewed(lease: &Value) -> &str {
    str_at(lease, "/spec/renewTime")
}

impl Seam {
    /// The effect of a planted bug when an event of a node or of its Lease arrives.
    pub(super) fn on_node_event(&self, event: &Bytes) {
        let Some(plant) = self.plant else { return };
        let ours = [Plant::TrustsNodeClocks, Plant::RetaintsWhenLeading, Plant::NeverMaybeUs, Plant::LiftsUnread];
        if !ours.contains(&plant) {
            return;
        }
        let change: Value = serde_json::from_slice(event).unwrap_or_default();
        let (object, kind) = (&change["object"], str_at(&change, "/object/kind"));
        match (plant, kind) {
            (Plant::TrustsNodeClocks, "Lease") => self.trust_renewal(object),
            (Plant::NeverMaybeUs, "Lease") => {
                let now = self.world.checker.now().as_millis().to_string();
                let seen = Bytes::from(format!("{} {now}", renewed(object)));
                self.memory.lock().insert(str_at(object, "/metadata/name").to_owned(), (0, seen));
                self.start_loop(Self::unreachable_nodes);
            }
            (Plant::RetaintsWhenLeading, "Node") => self.start_loop(Self::tainted_nodes),
            (Plant::LiftsUnread, "Node") => self.lift_unread(object),
            _ => {}
        }
    }

    /// Starts a check every second, unless one runs already.
    fn start_loop(&self, check: fn(&Self) -> Vec<Value>) {
        if self.memory.lock().insert(LOOP_KEY.to_owned(), (1, Bytes::new())).is_some() {
            return;
        }
        let seam = self.clone();
        self.aside(Box::pin(async move {
            let mut led = false;
            loop {
                tokio::time::sleep(LOOP_INTERVAL).await;
                let leads = seam.leads();
                let began = leads && !led;
                led = leads;
                let looks = if seam.plant == Some(Plant::RetaintsWhenLeading) { began } else { leads };
                let todos = if looks { check(&seam) } else { Vec::new() };
                for todo in todos {
                    seam.carry_out_on_node(&todo).await;
                }
            }
        }));
    }

    async fn carry_out_on_node(&self, todo: &Value) {
        if self.plant == Some(Plant::RetaintsWhenLeading) {
            self.remove_taints(todo).await;
        } else {
            self.mark_lost(str_at(todo, "/metadata/name"), Some(renewed(todo))).await;
        }
    }

    /// Takes the age of a renewal from another machine's clock.
    fn trust_renewal(&self, lease: &Value) {
        let host = self.world.replicas.get(self.index).and_then(super::replica::Replica::host);
        let (Some(host), Ok(renewed)) = (host, renewed(lease).parse::<Timestamp>()) else { return };
        let grace = SignedDuration::try_from(GRACE).unwrap_or(SignedDuration::ZERO);
        if host.wall().duration_since(renewed) > grace && self.leads() {
            let (seam, name) = (self.clone(), str_at(lease, "/metadata/name").to_owned());
            self.aside(Box::pin(async move { seam.mark_lost(&name, None).await }));
        }
    }

    /// The Leases of the nodes that did not report for the grace period, even if no other node reported either.
    fn unreachable_nodes(&self) -> Vec<Value> {
        let now = self.world.checker.now();
        let unreachable = |(name, (_, seen)): (&String, &(u16, Bytes))| {
            let (renewed, at) = std::str::from_utf8(seen).ok()?.split_once(' ')?;
            let seen = Duration::from_millis(at.parse().ok()?);
            let lease = json!({ "metadata": { "name": name }, "spec": { "renewTime": renewed } });
            (now.saturating_sub(seen) > GRACE).then_some(lease)
        };
        self.memory.lock().iter().filter_map(unreachable).collect()
    }

    /// The nodes that were tainted before this process led.
    fn tainted_nodes(&self) -> Vec<Value> {
        let lost = |node: &Value| ready(node) != "True" && taints(node).iter().any(is_given_up);
        self.world.etcd.objects_that("Node", lost).into_iter().map(Arc::unwrap_or_clone).collect()
    }

    /// Removes taints of a lost node, by the node as it was received.
    async fn remove_taints(&self, node: &Value) {
        let kept: Vec<&Value> = taints(node).iter().filter(|taint| !is_given_up(taint)).collect();
        let body = json!({ "metadata": which(node), "spec": { "taints": kept } });
        self.write_as_meant(format!("/api/v1/nodes/{}", str_at(node, "/metadata/name")), &body).await;
    }

    /// Reads a node and its Lease, and marks it as lost if the Lease has not changed.
    async fn mark_lost(&self, name: &str, observed: Option<&str>) {
        let path = format!("/api/v1/nodes/{name}");
        let (node, lease) = (self.get(&path).await, self.get(&format!("{LEASES}/{name}")).await);
        let (Some(node), Some(lease)) = (node, lease) else { return };
        if ready(&node) == "Unknown" || observed.is_some_and(|observed| observed != renewed(&lease)) {
            return;
        }
        let condition = json!({ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown" });
        let body = json!({ "metadata": which(&node), "status": { "conditions": [condition] } });
        self.write_as_meant(format!("{path}/status"), &body).await;
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let answer = self.send(request(Method::GET, path.to_owned(), &Value::Null)).await.ok()?;
        if !answer.status().is_success() {
            return None;
        }
        serde_json::from_slice(&answer.into_body().collect().await.ok()?.to_bytes()).ok()
    }

    async fn is_missing(&self, path: String) -> bool {
        let answer = self.send(request(Method::GET, path, &Value::Null)).await;
        answer.is_ok_and(|answer| answer.status() == 404)
    }

    /// Force deletes the pod that was to be deleted gracefully, where Node and Lease are missing: as if the kubelet had
    /// stopped reporting before its Node was deleted.
    pub(super) async fn force_deletes(&self, mark: &Parts) {
        let target = mark.path().trim_end_matches("/status").to_owned();
        let name = target.rsplit('/').next().unwrap_or_default().to_owned();
        let known = || self.world.etcd.object("Pod", &format!("default/{name}"));
        let Some(pod) = known() else { return };
        let node = str_at(&pod, "/spec/nodeName");
        if !self.is_missing(format!("/api/v1/nodes/{node}")).await || !self.is_missing(format!("{LEASES}/{node}")).await
        {
            return;
        }
        let failed = json!({ "metadata": which(&pod), "status": { "phase": "Failed" } });
        self.write_as_meant(format!("{target}/status"), &failed).await;
        let Some(pod) = known() else { return };
        let options = json!({ "gracePeriodSeconds": 0, "preconditions": which(&pod) });
        self.send_as_meant(request(Method::DELETE, target, &options)).await;
    }

    /// Treats Unknown as if the kubelet had reported it: this cache has only the kubelet's last report.
    fn lift_unread(&self, node: &Value) {
        let name = str_at(node, "/metadata/name").to_owned();
        if ready(node) != "Unknown" {
            let reported = Bytes::from(ready(node).to_owned());
            self.memory.lock().insert(name, (0, reported));
            return;
        }
        let was_ready = self.memory.lock().get(&name).is_some_and(|(_, reported)| reported == "True");
        if was_ready && taints(node).iter().any(is_given_up) && self.leads() {
            let (seam, node) = (self.clone(), node.clone());
            self.aside(Box::pin(async move { seam.remove_taints(&node).await }));
        }
    }
}
