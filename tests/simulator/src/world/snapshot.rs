//! The state of the world at one moment, as it is shown to viewers: what the API shows, and what is true.

use std::sync::atomic::Ordering;
use std::time::Duration;

use pod_safety_shared::model::SUSPECT_TAINT;
use serde_json::Value;

use super::host::EPOCH;
use super::kcm_nodes::ready;
use super::run::World;
use super::{number_at, str_at, zone};
use crate::checker::{News, Violation};

/// The pods that must always run; other pods may complete.
const STATEFUL: &str = "default/data-";

/// The true state of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// It has no power, or boots.
    Off,
    /// It runs.
    On,
    /// It does nothing, and may go on at any moment.
    Frozen,
    /// It runs and reaches no API server.
    Cut,
}

/// A node: its machine, and what the API shows of it.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Its zone.
    pub zone: &'static str,
    /// The state of its machine.
    pub machine: Machine,
    /// Whether there is a Node object.
    pub registered: bool,
    /// The age of its Lease by its `renewTime`; `None`: it has no Lease.
    pub lease_age: Option<Duration>,
    /// The node's other conditions and taints, as text; empty: it is Ready and has no taint.
    pub condition_summary: String,
}

/// A pod, as the API shows it.
#[derive(Clone, Debug)]
pub struct PodView {
    /// `namespace/name`.
    pub identity: String,
    /// Its UID.
    pub uid: String,
    /// Its phase.
    pub phase: String,
    /// Its node; empty: none yet.
    pub node: String,
    /// Whether it is being deleted.
    pub terminating: bool,
}

/// A process that can write, whatever the API shows.
#[derive(Clone, Debug)]
pub struct ProcessView {
    /// `namespace/name`.
    pub identity: String,
    /// The UID of its pod.
    pub uid: String,
    /// The node on which it runs.
    pub node: String,
    /// Since when it runs.
    pub since: Duration,
}

/// A process of pod-safety.
#[derive(Clone, Debug)]
pub struct ReplicaView {
    /// The name of the replica.
    pub name: String,
    /// Whether it runs.
    pub running: bool,
    /// Whether it is paused without noticing.
    pub paused: bool,
    /// Whether it acts as the leader.
    pub leads: bool,
}

/// A hold: an object on which a controller does not act yet, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldView {
    /// The pod or node.
    pub subject: String,
    /// The reason in CamelCase.
    pub reason: String,
    /// The reason as a sentence, with what would end the hold.
    pub message: String,
}

/// A disruption budget: what its status shows, and what is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetView {
    /// Its name.
    pub name: String,
    /// `disruptionsAllowed`.
    pub allowed: i64,
    /// `currentHealthy`.
    pub current: i64,
    /// `desiredHealthy`.
    pub desired: i64,
    /// `expectedPods`.
    pub expected: i64,
    /// How many processes are really ready and not about to leave.
    pub ready: i64,
}

/// An identity without a process, or a pod of a node that is gone, at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// `namespace/name`.
    pub identity: String,
    /// In which way it is stuck.
    pub how: String,
    /// Whether a process of it runs nevertheless.
    pub runs: bool,
    /// The reason that the controller under test shows; `None`: it shows none.
    pub reason: Option<String>,
}

/// The state at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Simulated time.
    pub at: Duration,
    /// All nodes, in their order.
    pub nodes: Vec<NodeView>,
    /// All pods, in the order of their names.
    pub pods: Vec<PodView>,
    /// All processes of pods.
    pub processes: Vec<ProcessView>,
    /// The processes of pod-safety; none for other subjects.
    pub replicas: Vec<ReplicaView>,
    /// All disruption budgets, in the order of their names.
    pub budgets: Vec<BudgetView>,
    /// The holds, with reasons.
    pub holds: Vec<HoldView>,
    /// The rules broken so far.
    pub violations: Vec<Violation>,
    /// What happened since the last snapshot.
    pub news: Vec<News>,
    /// Whether the plan has come to its end.
    pub over: bool,
}

impl World {
    /// The present state, with the news after the first `sent` lines.
    pub(crate) fn snapshot(&self, sent: usize) -> Snapshot {
        let processes = self.checker.processes().into_iter().map(|process| ProcessView {
            identity: process.identity,
            uid: process.uid,
            node: process.node.to_string(),
            since: process.started,
        });
        let replicas = self.replicas.iter().map(|place| ReplicaView {
            name: place.name(),
            running: place.host().is_some(),
            paused: place.host().is_some_and(|host| host.is_paused()),
            leads: place.leads(),
        });
        Snapshot {
            at: self.checker.now(),
            nodes: self.node_views(),
            pods: self.etcd.objects("Pod").iter().map(|pod| pod_view(pod)).collect(),
            processes: processes.collect(),
            replicas: replicas.collect(),
            budgets: self.budget_views(),
            holds: self.hold_views(),
            violations: self.checker.violations(),
            news: self.checker.news(sent),
            over: self.over.load(Ordering::Relaxed),
        }
    }

    fn node_views(&self) -> Vec<NodeView> {
        let machines = self.machines.lock();
        let views = machines.iter().enumerate().map(|(index, machine)| {
            let name = self.node(index);
            let frozen = machine.host.as_ref().is_some_and(|host| host.is_paused());
            let machine = match (machine.powered, frozen, self.is_cut(&name)) {
                (false, _, _) => Machine::Off,
                (true, true, _) => Machine::Frozen,
                (true, false, true) => Machine::Cut,
                (true, false, false) => Machine::On,
            };
            let node = self.etcd.object("Node", &name);
            let (registered, said) = (node.is_some(), node.as_deref().map(condition_summary_of).unwrap_or_default());
            let lease = self.etcd.object("Lease", &format!("kube-node-lease/{name}"));
            let lease_age = lease.and_then(|lease| self.age(str_at(&lease, "/spec/renewTime")));
            let zone = zone(index);
            NodeView { name, zone, machine, registered, lease_age, condition_summary: said }
        });
        views.collect()
    }

    fn age(&self, stamp: &str) -> Option<Duration> {
        let then: jiff::Timestamp = stamp.parse().ok()?;
        let now = jiff::Timestamp::from_second(EPOCH).ok()? + self.checker.now();
        Some(Duration::try_from(now.duration_since(then)).unwrap_or_default())
    }

    fn budget_views(&self) -> Vec<BudgetView> {
        let view = |budget: &Value| {
            let status = |field: &str| number_at(budget, &format!("/status/{field}")).unwrap_or(0);
            BudgetView {
                name: str_at(budget, "/metadata/name").to_owned(),
                allowed: status("disruptionsAllowed"),
                current: status("currentHealthy"),
                desired: status("desiredHealthy"),
                expected: status("expectedPods"),
                ready: self.checker.ready_of(budget),
            }
        };
        self.etcd.objects("PodDisruptionBudget").iter().map(|budget| view(budget)).collect()
    }

    /// The holds of the leader; without a leader, those of any replica.
    fn hold_views(&self) -> Vec<HoldView> {
        let leader = self.replicas.iter().find(|place| place.leads());
        let Some(place) = leader.or_else(|| self.replicas.first()) else { return Vec::new() };
        let view = |held: pod_safety_shared::controller_loop::CurrentHold| HoldView {
            subject: match &held.subject {
                pod_safety_shared::controller_loop::Subject::Pod(pod) => pod.to_string(),
                pod_safety_shared::controller_loop::Subject::Budget(budget) => budget.to_string(),
                pod_safety_shared::controller_loop::Subject::Volume(volume) => volume.name.to_string(),
                pod_safety_shared::controller_loop::Subject::Node(node)
                | pod_safety_shared::controller_loop::Subject::Fencing { node, .. } => node.to_string(),
                pod_safety_shared::controller_loop::Subject::Everything => "everything".to_owned(),
            },
            reason: held.reason.to_owned(),
            message: held.message,
        };
        place.held().into_iter().map(view).collect()
    }

    /// What is stuck now. Pods that may complete do not count.
    pub(crate) fn stuck(&self) -> Vec<Stuck> {
        let (processes, holds) = (self.checker.processes(), self.hold_views());
        let pods: Vec<PodView> = self.etcd.objects("Pod").iter().map(|pod| pod_view(pod)).collect();
        let mut stuck = Vec::new();
        for pod in pods.iter().filter(|pod| pod.identity.starts_with(STATEFUL)) {
            let orphan = !pod.node.is_empty() && self.etcd.object("Node", &pod.node).is_none();
            let runs = processes.iter().any(|process| process.identity == pod.identity);
            let how = match (orphan, runs) {
                (true, true) => format!("runs on {}, whose Node is gone", pod.node),
                (true, false) => format!("dead on {}, whose Node is gone", pod.node),
                (false, false) if pod.terminating => format!("terminating on {}", pod.node),
                (false, false) if pod.node.is_empty() => "waits for a node".to_owned(),
                (false, false) => format!("{} on {}, without a process", pod.phase, pod.node),
                (false, true) => continue,
            };
            let hold = holds.iter().find(|hold| hold.subject == pod.identity || hold.subject == pod.node);
            let reason = hold.map(|hold| format!("{}: {}", hold.reason, hold.message));
            stuck.push(Stuck { identity: pod.identity.clone(), how, runs, reason });
        }
        stuck
    }
}

/// A description of a node's Ready condition and taints.
fn condition_summary_of(node: &Value) -> String {
    let taints = || node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
    let ends = |taint: &&Value| str_at(taint, "/effect") == "NoExecute";
    let lost = |taint: &Value| str_at(taint, "/key") == "node.kubernetes.io/unreachable";
    let parts = [
        match ready(node) {
            "True" => "",
            "False" => "NotReady",
            other => other,
        },
        if taints().any(|taint| str_at(taint, "/key") == SUSPECT_TAINT) { "suspect" } else { "" },
        if taints().filter(ends).any(lost) { "NoExecute" } else { "" },
        if taints().filter(ends).any(|taint| !lost(taint)) { "evicts pods" } else { "" },
    ];
    parts.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ")
}

fn pod_view(pod: &Value) -> PodView {
    PodView {
        identity: format!("{}/{}", str_at(pod, "/metadata/namespace"), str_at(pod, "/metadata/name")),
        uid: str_at(pod, "/metadata/uid").to_owned(),
        phase: str_at(pod, "/status/phase").to_owned(),
        node: str_at(pod, "/spec/nodeName").to_owned(),
        terminating: pod.pointer("/metadata/deletionTimestamp").is_some(),
    }
}
