//! The steps for PDBs, and their environment: its own control plane with one disruption controller.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use pod_safety_control_plane::budgets::{self, BudgetStatus};
use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::workloads::{self, Kind};
use pod_safety_control_plane::{
    ControlPlane, Implementation, Options, SoleController, check_that, observe, wait_until,
};
use serde_json::{Value, json};

use crate::beside_kcm::trace::Trace;
use crate::beside_kcm::{ObservedState, Step, World};

/// Statuses that are unchanged for this time are final.
const QUIET: Duration = Duration::from_millis(400);
/// The status of this PDB shows when a controller has observed all earlier changes.
const CANARY: &str = "canary";

/// One action.
pub(crate) enum Act {
    /// Creates a PDB, or replaces its spec.
    Budget(&'static str, Value),
    NoBudget(&'static str),
    /// Triggers its controller again.
    Touch(&'static str),
    /// A workload with this number of replicas.
    Workload(Kind, &'static str, i32),
    /// The same, managed by an earlier one.
    Managed(Kind, &'static str, i32, &'static str),
    /// A workload that does not exist, but that pods reference.
    Unknown(Kind, &'static str),
    Scale(Kind, &'static str, i32),
    NoWorkload(Kind, &'static str),
    Pods(Pods),
    Ready(&'static str, bool),
    Relabel(&'static str, &'static str),
    /// The pod is deleted gracefully; no kubelet removes it.
    End(&'static str),
    /// A kubelet removes the pod.
    Gone(&'static str),
    Evict(&'static str),
    /// With a grace period of 0.
    EvictAtOnce(&'static str),
    /// The disruption controller stops.
    Down,
    Wait(Duration),
    Up,
}

/// Pods with equal specs.
pub(crate) struct Pods {
    pub(crate) names: &'static [&'static str],
    /// The value of their label `app`.
    pub(crate) app: &'static str,
    /// The workload that is their controller.
    pub(crate) owner: Option<&'static str>,
    pub(crate) phase: &'static str,
}

/// The environment of the history.
pub(crate) struct Budgets {
    plane: ControlPlane,
    implementation: Implementation,
    controller: Option<SoleController>,
    workloads: BTreeMap<(String, &'static str), OwnerReference>,
    rounds: i32,
    trace: Trace<PodDisruptionBudget>,
}

impl World for Budgets {
    type Act = Act;

    async fn start(implementation: Implementation) -> Self {
        let plane = ControlPlane::start(Options::default()).await.unwrap();
        // Before the controller runs discovery.
        workloads::define_custom_kinds(&plane.admin()).await.unwrap();
        let controller = Some(plane.disruption_controller(implementation).await.unwrap());
        plane.namespace(CANARY).await.unwrap();
        let bird = objects::pod(CANARY, "bird").with_label("app", "bird").on_node("worker").with_phase("Running");
        objects::create_pod(&plane.admin(), &bird).await.unwrap();
        let trace = Trace::start(Api::all(plane.admin())).await;
        Self { plane, implementation, controller, workloads: BTreeMap::new(), rounds: 0, trace }
    }

    /// Returns the answers to evictions.
    async fn run_step(&mut self, step: &Step<Act>) -> ObservedState {
        let (namespace, _) = step.name.split_once(": ").unwrap();
        self.plane.namespace(namespace).await.unwrap();
        let mut answers = ObservedState::new();
        for act in &step.acts {
            if let Some((pod, answer)) = self.apply_act(namespace, act).await {
                answers.insert(format!("{namespace}: eviction of {pod}"), answer);
            }
        }
        answers
    }

    /// Waits until the controller has observed everything and nothing changes any more.
    async fn wait_settled(&mut self) {
        self.rounds += 1;
        let api = &self.api();
        // The controller observes pods, PDBs and workloads by separate watches, and no status shows the observation of workloads: those have the
        // time of the other two, and then until nothing changes.
        set_ready(api, CANARY, "bird", self.rounds % 2 == 0).await;
        let spec = json!({ "minAvailable": self.rounds, "selector": { "matchLabels": { "app": "bird" } } });
        budgets::put(api, CANARY, "bird", &spec).await.unwrap();
        let expected = (1 - self.rounds % 2, self.rounds);
        wait_until(&format!("{:?} follows the canary", self.implementation), async || {
            let status = budgets::budget_status(api, CANARY, "bird").await.map_err(|error| format!("{error:?}"))?;
            check_that(
                (status.healthy, status.desired) == expected && status.observed == status.generation,
                status.to_string(),
            )
        })
        .await;
        // Later effects of a step of pod-safety are compared with the next step.
        if self.implementation == Implementation::PodSafety {
            return;
        }
        let mut before = budgets::budget_statuses(api).await.unwrap();
        loop {
            tokio::time::sleep(QUIET).await;
            let now = budgets::budget_statuses(api).await.unwrap();
            if now == before {
                return;
            }
            before = now;
        }
    }
    /// All PDBs, except the canary.
    async fn observe(&self) -> ObservedState {
        let all = budgets::budget_statuses(&self.api()).await.unwrap().into_iter();
        let of_the_history = all.filter(|(name, _)| !name.starts_with(CANARY));
        of_the_history.map(|(name, status): (String, BudgetStatus)| (name, status.to_string())).collect()
    }
    async fn intermediate_values(&mut self) -> Vec<(String, String)> {
        let versions = self.trace.drain_versions().await.into_iter();
        versions.filter(|one| one.namespace().as_deref() != Some(CANARY)).map(|one| line(&one)).collect()
    }

    /// Never is one eviction too many allowed, not even briefly: no more pods count as healthy than there were or will be, no fewer are desired
    /// than were or will be, and the difference is what is allowed. The controller may observe pods before workloads, or after them.
    fn lies_between(value: &str, before: &str, after: &str) -> bool {
        let Some([allowed, healthy, desired]) = numbers(value) else { return false };
        let bounds: Vec<_> = [before, after].into_iter().filter_map(numbers).collect();
        let counted = bounds.iter().any(|[_, bounds, _]| healthy <= *bounds);
        let is_desired = bounds.iter().any(|[_, _, bounds]| desired >= *bounds);
        allowed == 0 || (counted && is_desired && allowed <= healthy - desired)
    }
}

impl Budgets {
    fn api(&self) -> Client {
        self.plane.admin()
    }

    async fn apply_act(&mut self, namespace: &str, act: &Act) -> Option<(&'static str, String)> {
        let api = &self.api();
        match act {
            Act::Budget(name, spec) => budgets::put(api, namespace, name, spec).await.unwrap(),
            Act::NoBudget(name) => budgets::delete(api, namespace, name).await.unwrap(),
            Act::Touch(name) => budgets::touch_budget(api, namespace, name).await.unwrap(),
            Act::Workload(kind, name, replicas) => self.put(namespace, *kind, name, *replicas, None).await,
            Act::Managed(kind, name, replicas, owner) => {
                let owner = self.workloads[&(namespace.to_owned(), *owner)].clone();
                self.put(namespace, *kind, name, *replicas, Some(&owner)).await;
            }
            Act::Unknown(kind, name) => {
                let reference = workloads::reference(*kind, name, "5b0a4f0e-0000-4000-8000-000000000001");
                self.workloads.insert((namespace.to_owned(), name), reference);
            }
            Act::Scale(kind, name, replicas) => {
                workloads::scale(api, *kind, namespace, name, *replicas).await.unwrap();
            }
            Act::NoWorkload(kind, name) => workloads::delete(api, *kind, namespace, name).await.unwrap(),
            Act::Pods(pods) => self.create(namespace, pods).await,
            Act::Ready(name, ready) => set_ready(api, namespace, name, *ready).await,
            Act::Relabel(name, app) => {
                let patch = Patch::Merge(json!({ "metadata": { "labels": { "app": app } } }));
                let pods = Api::<Pod>::namespaced(api.clone(), namespace);
                pods.patch(name, &PatchParams::default(), &patch).await.unwrap();
            }
            Act::End(name) => observe::delete_pod(api, namespace, name, false).await.unwrap(),
            Act::Gone(name) => observe::delete_pod(api, namespace, name, true).await.unwrap(),
            Act::Evict(name) => return Some((name, evict(api, namespace, name, &Value::Null).await)),
            Act::EvictAtOnce(name) => {
                let at_once = json!({ "gracePeriodSeconds": 0 });
                return Some((name, evict(api, namespace, name, &at_once).await));
            }
            Act::Down => self.controller.take().unwrap().end().await.unwrap(),
            Act::Wait(time) => tokio::time::sleep(*time).await,
            Act::Up => self.controller = Some(self.plane.disruption_controller(self.implementation).await.unwrap()),
        }
        None
    }

    async fn put(
        &mut self,
        namespace: &str,
        kind: Kind,
        name: &'static str,
        replicas: i32,
        owner: Option<&OwnerReference>,
    ) {
        let put = workloads::put(&self.api(), kind, namespace, name, replicas, owner).await;
        self.workloads.insert((namespace.to_owned(), name), put.unwrap());
    }

    async fn create(&mut self, namespace: &str, pods: &Pods) {
        for name in pods.names {
            let mut pod = objects::pod(namespace, name).with_label("app", pods.app).with_phase(pods.phase);
            if pods.phase != "Pending" {
                pod = pod.on_node("worker");
            }
            if let Some(owner) = pods.owner {
                pod = pod.controlled_by(self.workloads[&(namespace.to_owned(), owner)].clone());
            }
            objects::create_pod(&self.api(), &pod).await.unwrap();
        }
    }
}

/// The allowed disruptions, the healthy pods and the desired healthy pods of a line.
fn numbers(status: &str) -> Option<[i32; 3]> {
    let mut numbers = status.split(' ').step_by(2).map(|word| word.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

/// A line of the observed state.
fn line(budget: &PodDisruptionBudget) -> (String, String) {
    let name = format!("{}/{}", budget.namespace().unwrap_or_default(), budget.name_any());
    (name, BudgetStatus::from(budget).to_string())
}

async fn evict(api: &Client, namespace: &str, pod: &str, options: &Value) -> String {
    budgets::evict(api, namespace, pod, options).await.unwrap().to_string()
}

async fn set_ready(api: &Client, namespace: &str, name: &str, ready: bool) {
    let status: PodStatus = serde_json::from_value(json!({
        "phase": "Running",
        "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }],
    }))
    .unwrap();
    objects::set_pod_status(api, namespace, name, &status).await.unwrap();
}
