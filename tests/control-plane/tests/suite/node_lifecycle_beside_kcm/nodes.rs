//! Nodes that become unreachable and recover: a control plane with one node lifecycle controller, and simulated kubelets, which renew Leases
//! and post the statuses of the history.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Event, Node, NodeCondition, NodeSpec, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use pod_safety_control_plane::objects::{self, NodeExt as _, PodExt as _};
use pod_safety_control_plane::{ControlPlane, Implementation, Options, SoleController, observe, wait_until};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::beside_kcm::trace::Trace;
use crate::beside_kcm::{ObservedState, Step, World};

const NAMESPACE: &str = "default";
/// The renewal interval of a kubelet: short enough for a busy machine.
const RENEW_INTERVAL: Duration = Duration::from_secs(1);
/// Flags for both sides: short times, because with the defaults the history would take an hour.
pub(crate) const FLAGS: [&str; 3] =
    ["--node-monitor-grace-period=6s", "--node-startup-grace-period=6s", "--node-eviction-rate=2"];
/// The prefix of Kubernetes' own taints and labels, which the recorded state leaves out.
const OURS: &str = "node.kubernetes.io/";

/// One action.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// A kubelet registers its node in this zone, and reports whether it is ready.
    Register(&'static str, &'static str, bool),
    /// The same; its node has the taint `not-ready:NoExecute` from the start.
    RegisterTainted(&'static str, &'static str),
    /// A node without kubelet status is created; with `true` its Lease is renewed.
    NoLease(&'static str, &'static str, bool),
    /// Its kubelet stops reporting.
    StopReporting(&'static str),
    /// Its kubelet renews the Lease again, and reports whether it is ready.
    ResumeReporting(&'static str, bool),
    /// Its kubelet reports another condition.
    Condition(&'static str, &'static str, bool),
    Cordon(&'static str, bool),
    /// A client adds a taint: key and effect.
    Taint(&'static str, &'static str, &'static str),
    Label(&'static str, &'static str, &'static str),
    Delete(&'static str),
    /// A pod on a node, running and ready.
    Pod(&'static str, &'static str),
    /// A terminated pod, a pod without kubelet status, and a mirror pod.
    UnmanagedPods(&'static str),
    /// Its kubelet reports it ready.
    Ready(&'static str),
    Restart,
    Wait(u64),
}

/// The environment of the history.
pub(crate) struct Nodes {
    implementation: Implementation,
    plane: ControlPlane,
    controller: Option<SoleController>,
    /// The nodes whose kubelets report.
    reporting: Arc<Mutex<BTreeSet<&'static str>>>,
    heartbeats: JoinHandle<()>,
    /// The steps so far, with the second in which each started.
    started: Vec<(i64, String)>,
    trace: Trace<Node>,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.heartbeats.abort();
    }
}

impl World for Nodes {
    type Act = Act;

    async fn start(implementation: Implementation) -> Self {
        let plane = ControlPlane::start(Options::default()).await.unwrap();
        let alive: Arc<Mutex<BTreeSet<&'static str>>> = Arc::default();
        let (admin, speaking) = (plane.admin(), Arc::clone(&alive));
        let beats = tokio::spawn(async move {
            loop {
                let nodes: Vec<_> = speaking.lock().unwrap().iter().copied().collect();
                // A node that was deleted meanwhile has no Lease any more.
                let _renewed = join_all(nodes.iter().map(|node| objects::renew_lease(&admin, node))).await;
                tokio::time::sleep(RENEW_INTERVAL).await;
            }
        });
        let controller = Some(plane.node_lifecycle_controller(implementation, &FLAGS).await.unwrap());
        let trace = Trace::start(Api::all(plane.admin())).await;
        Self { implementation, plane, controller, reporting: alive, heartbeats: beats, started: Vec::new(), trace }
    }

    /// Runs a step. It starts in a new second, so that times distinguish steps.
    async fn run_step(&mut self, step: &Step<Act>) -> ObservedState {
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        self.started.push((Timestamp::now().as_second(), step.name.clone()));
        for act in &step.acts {
            self.apply_act(*act).await;
        }
        ObservedState::new()
    }

    /// Everything that a controller can have changed.
    async fn observe(&self) -> ObservedState {
        let mut state = ObservedState::new();
        let mut uids = BTreeMap::new();
        for node in self.nodes().list(&ListParams::default()).await.unwrap().items {
            uids.insert(node.name_any(), node.metadata.uid.clone().unwrap_or_default());
            self.draw_node(&node, &mut state);
        }
        for pod in self.pods().list(&ListParams::default()).await.unwrap().items {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
            let readiness = ready.map_or_else(|| "unsaid".to_owned(), |ready| ready.status.clone());
            state.insert(format!("{} ready", pod.name_any()), readiness);
        }
        self.draw_events(&uids, &mut state).await;
        state
    }

    /// The taints of each node.
    async fn intermediate_values(&mut self) -> Vec<(String, String)> {
        self.trace.drain_versions().await.iter().map(taints).collect()
    }

    /// Not even for a moment may a node have a taint that it had neither before nor after; except for the one that the API server adds to each
    /// new node. The changes of a step may come one after another: of zones that are lost together, the first node may be tainted before the
    /// last one is unreachable for long enough.
    fn lies_between(value: &str, before: &str, after: &str) -> bool {
        let key = |taint: &str| taint.split_once(':').map_or(taint, |(key, _)| key).to_owned();
        let has = |taints: &str, expected: &str| taints.split_whitespace().any(|taint| key(taint) == expected);
        let is_known =
            |taint: &str| has(before, &key(taint)) || has(after, &key(taint)) || taint == "not-ready:NoSchedule";
        value.split_whitespace().all(is_known)
    }
}

impl Nodes {
    fn api(&self) -> Client {
        self.plane.admin()
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.api())
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.api(), NAMESPACE)
    }

    async fn apply_act(&mut self, act: Act) {
        match act {
            Act::Register(node, zone, ready) => self.register(objects::node(node), node, zone, ready).await,
            Act::RegisterTainted(name, zone) => {
                let mut node = objects::node(name);
                let taint =
                    Taint { key: format!("{OURS}not-ready"), effect: "NoExecute".to_owned(), ..Taint::default() };
                node.spec = Some(NodeSpec { taints: Some(vec![taint]), ..NodeSpec::default() });
                self.register(node, name, zone, false).await;
            }
            Act::NoLease(name, zone, renews) => {
                let mut node = objects::node(name).with_label("topology.kubernetes.io/zone", zone);
                node.status = None;
                objects::create_node(&self.api(), &node).await.unwrap();
                if renews {
                    self.reporting.lock().unwrap().insert(name);
                }
            }
            Act::StopReporting(node) => drop(self.reporting.lock().unwrap().remove(node)),
            Act::ResumeReporting(node, ready) => {
                objects::renew_lease(&self.api(), node).await.unwrap();
                self.reporting.lock().unwrap().insert(node);
                self.post(node, statuses(ready)).await;
            }
            Act::Condition(node, kind, holds) => self.post(node, vec![condition(kind, holds, "HollowSays")]).await,
            Act::Cordon(node, cordoned) => self.patch(node, json!({ "spec": { "unschedulable": cordoned } })).await,
            Act::Taint(node, key, effect) => self.taint(node, key, effect).await,
            Act::Label(node, key, value) => {
                self.patch(node, json!({ "metadata": { "labels": { key: value } } })).await;
            }
            Act::Delete(node) => {
                self.reporting.lock().unwrap().remove(node);
                observe::delete_node(&self.api(), node).await.unwrap();
            }
            Act::Wait(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            Act::Restart => {
                self.controller.take().unwrap().end().await.unwrap();
                self.controller =
                    Some(self.plane.node_lifecycle_controller(self.implementation, &FLAGS).await.unwrap());
            }
            Act::Pod(..) | Act::UnmanagedPods(_) | Act::Ready(_) => self.act_on_pods(act).await,
        }
    }

    async fn act_on_pods(&self, act: Act) {
        let running = |node: &str, name: &str| objects::pod(NAMESPACE, name).on_node(node).with_phase("Running");
        match act {
            Act::Pod(node, name) => {
                objects::create_pod(&self.api(), &running(node, name)).await.unwrap();
            }
            Act::UnmanagedPods(node) => {
                let ended = running(node, "ended").with_phase("Succeeded");
                let mut unspoken = running(node, "unspoken");
                unspoken.status = None;
                for pod in [ended, unspoken, running(node, "mirror").mirror()] {
                    objects::create_pod(&self.api(), &pod).await.unwrap();
                }
            }
            Act::Ready(name) => {
                let status = running("", name).status.unwrap();
                objects::set_pod_status(&self.api(), NAMESPACE, name, &status).await.unwrap();
            }
            _ => {}
        }
    }

    async fn register(&self, mut node: Node, name: &'static str, zone: &str, ready: bool) {
        node = node.with_label("topology.kubernetes.io/zone", zone);
        node.status.as_mut().unwrap().conditions = Some(statuses(ready));
        objects::renew_lease(&self.api(), name).await.unwrap();
        self.reporting.lock().unwrap().insert(name);
        objects::create_node(&self.api(), &node).await.unwrap();
    }

    async fn post(&self, node: &str, conditions: Vec<NodeCondition>) {
        let patch = Patch::Strategic(json!({ "status": { "conditions": conditions } }));
        self.nodes().patch_status(node, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn patch(&self, node: &str, patch: Value) {
        self.nodes().patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn taint(&self, name: &str, key: &str, effect: &str) {
        wait_until("the taint is there", async || {
            let node = self.nodes().get(name).await.unwrap();
            let mut taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            taints.push(Taint { key: key.to_owned(), effect: effect.to_owned(), ..Taint::default() });
            let version = node.metadata.resource_version;
            let patch = json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": taints } });
            // The controller may have written in between.
            match self.nodes().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Err(kube::Error::Api(status)) if status.is_conflict() => Err(status.message),
                answer => {
                    answer.unwrap();
                    Ok(())
                }
            }
        })
        .await;
    }

    fn draw_node(&self, node: &Node, state: &mut ObservedState) {
        let name = node.name_any();
        state.extend([taints(node)]);
        let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let lost = taints.find(|taint| {
            taint.effect == "NoExecute" && ["not-ready", "unreachable"].contains(&taint.key.replace(OURS, "").as_str())
        });
        if let Some(added) = lost.and_then(|taint| taint.time_added.as_ref()) {
            let since = self.started.iter().rev().find(|(began, _)| *began <= added.0.as_second());
            let since = since.map_or("before all", |(_, step)| step);
            state.insert(format!("{name} tainted since"), since.to_owned());
        }
        for condition in node.status.iter().flat_map(|status| status.conditions.iter().flatten()) {
            let NodeCondition { type_, status, reason, message, .. } = condition;
            let (reason, message) = (reason.as_deref().unwrap_or(""), message.as_deref().unwrap_or(""));
            // Conditions of pod-safety have no counterpart in kube-controller-manager.
            if !type_.starts_with("pod-safety.dev/") {
                state.insert(format!("{name} {type_}"), format!("{status} {reason} {message}").trim().to_owned());
            }
        }
        for label in ["beta.kubernetes.io/os", "beta.kubernetes.io/arch"] {
            if let Some(value) = node.labels().get(label) {
                state.insert(format!("{name} {label}"), value.clone());
            }
        }
    }

    /// The Events of the node lifecycle controller, with their counts. RegisteredNode and RemovingNode are left out: kube-controller-manager
    /// emits them for all nodes whenever it starts.
    async fn draw_events(&self, uids: &BTreeMap<String, String>, state: &mut ObservedState) {
        let events = Api::<Event>::namespaced(self.api(), NAMESPACE);
        let mut counts: BTreeMap<String, i32> = BTreeMap::new();
        for event in events.list(&ListParams::default()).await.unwrap().items {
            let from = event.source.and_then(|source| source.component).unwrap_or_default();
            let reason = event.reason.unwrap_or_default();
            if from != "node-controller" || ["RegisteredNode", "RemovingNode"].contains(&reason.as_str()) {
                continue;
            }
            let about = event.involved_object;
            let name = about.name.unwrap_or_default();
            let whose = match (about.kind.as_deref(), about.uid) {
                (Some("Node"), Some(uid)) if uids.get(&name) == Some(&uid) => "node",
                (Some("Node"), Some(uid)) if uid == name => "node by its name",
                (Some("Node"), _) => "another node",
                _ => "pod",
            };
            let (kind, message) = (event.type_.unwrap_or_default(), event.message.unwrap_or_default());
            let line = format!("{name} told: {kind} {reason} of {whose}: {message}");
            *counts.entry(line).or_default() += event.count.unwrap_or(1);
        }
        state.extend(counts.into_iter().map(|(line, count)| (line, format!("{count} times"))));
    }
}

/// A line of the observed state.
fn taints(node: &Node) -> (String, String) {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let mut words: Vec<_> = taints.map(|taint| format!("{}:{}", taint.key.replace(OURS, ""), taint.effect)).collect();
    words.sort();
    (format!("{} taints", node.name_any()), words.join(" "))
}

/// The conditions that a kubelet posts.
fn statuses(ready: bool) -> Vec<NodeCondition> {
    let mut all = vec![condition("Ready", ready, if ready { "KubeletReady" } else { "KubeletNotReady" })];
    all.extend(["MemoryPressure", "DiskPressure"].map(|kind| condition(kind, false, "HollowSays")));
    all
}

fn condition(kind: &str, holds: bool, reason: &str) -> NodeCondition {
    let now = Some(Time(Timestamp::now()));
    NodeCondition {
        type_: kind.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some("says a hollow kubelet".to_owned()),
        last_heartbeat_time: now.clone(),
        last_transition_time: now,
    }
}
