//! Tainted nodes and pods with or without tolerations: a control plane with one taint eviction controller, and no kubelet, so that deleted
//! pods remain visible.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, Toleration};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::workloads::{self, DAEMON_SET};
use pod_safety_control_plane::{
    ControlPlane, Implementation, Options, SoleController, check_that, observe, wait_until,
};
use serde_json::{Value, json};

use crate::beside_kcm::trace::Trace;
use crate::beside_kcm::{ObservedState, Step, World};

const NAMESPACE: &str = "default";
/// Pods with a toleration period that is not changed: name, node, seconds.
const TIMED: [(&str, &str, i64); 4] = [
    ("across", "across", ACROSS),
    ("two-seconds", "plain", 2),
    ("five-seconds", "plain", 5),
    ("shortest-of-two", "two", 2),
];
const NODES: [&str; 6] = ["across", "plain", "two", "spared", "changing", "narrowing"];

/// Denies the deletion of the pod `denied`, like an admission webhook.
const POLICY: &str = r#"{
    "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
          "metadata": { "name": "denied" }, "spec": { "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{ "apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["DELETE"], "resources": ["pods"] }] },
            "validations": [{ "expression": "oldObject.metadata.name != 'denied'", "message": "not this one" }] } },
        { "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
          "metadata": { "name": "denied" }, "spec": { "policyName": "denied", "validationActions": ["Deny"] } }
    ]
}"#;

/// A toleration of a NoExecute taint: key (empty: all), value (empty: all), seconds.
#[derive(Clone, Copy)]
pub(crate) struct TolerationSpec(pub(crate) &'static str, pub(crate) &'static str, pub(crate) Option<i64>);

impl TolerationSpec {
    fn toleration(self) -> Toleration {
        let Self(key, value, seconds) = self;
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Toleration {
            key: some(key),
            operator: Some(if value.is_empty() { "Exists" } else { "Equal" }.to_owned()),
            value: some(value),
            effect: Some("NoExecute".to_owned()),
            toleration_seconds: seconds,
        }
    }
}

/// The toleration period, in seconds, during which the controller is restarted: half of it before that.
pub(crate) const ACROSS: i64 = 20;
/// The toleration period, in seconds, of a taint that is changed before its end.
pub(crate) const SHORT: i64 = 8;

/// One action.
pub(crate) enum Act {
    /// A running pod with a grace period of 30 s: its node, its name, its tolerations.
    Pod(&'static str, &'static str, Vec<TolerationSpec>),
    /// Pods without tolerations, each with another special property.
    SpecialPods(&'static str),
    /// The node has exactly these taints, key and value; existing ones keep their times.
    Taint(&'static str, &'static [(&'static str, &'static str)]),
    /// The node gets one more taint.
    AlsoTaint(&'static str, &'static str),
    /// The pod has this toleration from now on.
    Tolerate(&'static str, TolerationSpec),
    /// The pod is force deleted.
    Vanish(&'static str),
    /// Denies the deletion of the pod `denied`, until it is allowed again.
    Deny,
    Allow,
    /// The controller stops like in a rollout, and another starts.
    Restart,
    /// Milliseconds.
    Wait(u64),
    /// Half of [`ACROSS`].
    WaitHalf,
    /// [`SHORT`].
    WaitShort,
}

/// The environment of the history.
pub(crate) struct Taints {
    implementation: Implementation,
    plane: ControlPlane,
    controller: Option<SoleController>,
    taints: BTreeMap<(&'static str, &'static str), String>,
    /// The earliest second in which each pod may be deleted, by name.
    earliest: BTreeMap<&'static str, i64>,
    /// The second in which the controller was restarted.
    restarted: i64,
    trace: Trace<Pod>,
}

impl World for Taints {
    type Act = Act;

    async fn start(implementation: Implementation) -> Self {
        let plane = ControlPlane::start(Options::default()).await.unwrap();
        for node in NODES {
            objects::create_node(&plane.admin(), &objects::node(node)).await.unwrap();
        }
        let controller = Some(plane.taint_eviction_controller(implementation).await.unwrap());
        let trace = Trace::start(Api::namespaced(plane.admin(), NAMESPACE)).await;
        let (taints, earliest) = (BTreeMap::new(), BTreeMap::new());
        Self { implementation, plane, controller, taints, earliest, restarted: 0, trace }
    }

    async fn run_step(&mut self, step: &Step<Act>) -> ObservedState {
        for act in &step.acts {
            self.apply_act(act).await;
        }
        ObservedState::new()
    }

    async fn observe(&self) -> ObservedState {
        let mut state = self.outcomes().await;
        let ends = self.moments().await;
        let early = self.earliest.iter().filter(|(pod, earliest)| ends.get(**pod).is_some_and(|end| end < *earliest));
        let early: Vec<_> = early.map(|(pod, _)| *pod).collect();
        state.insert("ended before their times".to_owned(), early.join(" "));
        if let Some(end) = ends.get("across") {
            // Times in the API have no fractions.
            let anew = *end >= self.restarted + ACROSS - 1;
            let value = if anew { "its time began anew" } else { "its time went on" };
            state.insert("across a restart".to_owned(), value.to_owned());
        }
        let conditions = self.conditions().await;
        state.extend(conditions.into_iter().map(|(pod, value)| (format!("{pod} condition"), value)));
        self.draw_metrics(&mut state).await;
        state
    }

    /// The condition of each pod in every version of it.
    async fn intermediate_values(&mut self) -> Vec<(String, String)> {
        let marked = |pod: &Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let mut target = conditions.filter(|one| one.type_ == "DisruptionTarget");
            target.next().map_or("stays", |_| "marked")
        };
        let versions = self.trace.drain_versions().await;
        versions.iter().map(|pod| (pod.name_any(), marked(pod).to_owned())).collect()
    }

    fn lies_between(value: &str, _: &str, after: &str) -> bool {
        value == "stays" || after != "stays"
    }
}

impl Taints {
    async fn apply_act(&mut self, act: &Act) {
        match act {
            Act::Pod(node, name, bears) => self.pod(node, name, bears, |_| ()).await,
            Act::SpecialPods(node) => self.special_pods(node).await,
            &Act::Taint(node, taints) => self.taint(node, taints).await,
            &Act::AlsoTaint(node, key) => self.also_taint(node, key).await,
            Act::Tolerate(name, bears) => self.tolerate(name, *bears).await,
            Act::Vanish(name) => observe::delete_pod(&self.api(), NAMESPACE, name, true).await.unwrap(),
            Act::Deny => self.deny().await,
            Act::Allow => {
                let delete = ["delete", "validatingadmissionpolicybinding", "denied"];
                self.plane.kubectl(&delete).await.unwrap().text().unwrap();
            }
            Act::Restart => {
                self.controller.take().unwrap().end().await.unwrap();
                self.restarted = Timestamp::now().as_second();
                self.controller = Some(self.plane.taint_eviction_controller(self.implementation).await.unwrap());
            }
            Act::Wait(millis) => tokio::time::sleep(Duration::from_millis(*millis)).await,
            Act::WaitHalf => tokio::time::sleep(Duration::from_secs(ACROSS.unsigned_abs() / 2)).await,
            Act::WaitShort => tokio::time::sleep(Duration::from_secs(SHORT.unsigned_abs())).await,
        }
    }

    fn api(&self) -> Client {
        self.plane.admin()
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.api(), NAMESPACE)
    }

    /// A running pod with a grace period of 30 s.
    async fn pod(&self, node: &str, name: &str, bears: &[TolerationSpec], also: impl FnOnce(&mut Pod)) {
        let mut pod = objects::pod(NAMESPACE, name).on_node(node).with_phase("Running");
        let tolerations = bears.iter().map(|one| one.toleration()).collect();
        pod.spec.get_or_insert_default().tolerations = Some(tolerations);
        also(&mut pod);
        objects::create_pod(&self.api(), &pod).await.unwrap();
    }

    /// Pods without tolerations, each with another special property.
    async fn special_pods(&self, node: &str) {
        self.pod(node, "long-grace", &[], |pod| *pod = pod.clone().with_grace(45)).await;
        self.pod(node, "pending", &[], |pod| pod.status = None).await;
        let set = workloads::reference(DAEMON_SET, "set", "5b0a4f0e-0000-4000-8000-000000000001");
        self.pod(node, "of-a-daemon-set", &[], |pod| *pod = pod.clone().controlled_by(set)).await;
        self.pod(node, "mirror", &[], |pod| *pod = pod.clone().mirror()).await;
        self.pod(node, "completed", &[], |pod| *pod = pod.clone().with_phase("Succeeded")).await;
        self.pod(node, "ending", &[], |_| ()).await;
        observe::delete_pod(&self.api(), NAMESPACE, "ending", false).await.unwrap();
    }

    /// Sets the earliest deletions of pods that tolerate one of them for a time.
    async fn taint(&mut self, node: &'static str, taints: &[(&'static str, &str)]) {
        let now = Timestamp::now();
        self.taints.retain(|(of, key), _| *of != node || taints.iter().any(|(kept, _)| kept == key));
        let current = &mut self.taints;
        let taints = taints.iter().map(|(key, value)| {
            let added = current.entry((node, *key)).or_insert_with(|| format!("{now:.0}"));
            json!({ "key": key, "value": value, "effect": "NoExecute", "timeAdded": added })
        });
        let taints: Vec<Value> = taints.collect();
        for (pod, _, seconds) in TIMED.iter().filter(|(_, of, _)| *of == node) {
            self.earliest.entry(pod).or_insert(now.as_second() + seconds);
        }
        let patch = Patch::Merge(json!({ "spec": { "taints": taints } }));
        Api::<Node>::all(self.api()).patch(node, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn also_taint(&mut self, node: &'static str, key: &'static str) {
        let keys: Vec<_> = self.taints.keys().filter(|(of, _)| *of == node).map(|(_, key)| *key).collect();
        let all: Vec<_> = keys.into_iter().chain([key]).map(|key| (key, "")).collect();
        self.taint(node, &all).await;
    }

    async fn tolerate(&self, name: &str, bears: TolerationSpec) {
        let pod = self.pods().get(name).await.unwrap();
        let mut all = pod.spec.unwrap().tolerations.unwrap_or_default();
        // An existing toleration may get another period, but may not be removed.
        all.retain(|one| one.key != bears.toleration().key);
        all.push(bears.toleration());
        let patch = Patch::Merge(json!({ "spec": { "tolerations": all } }));
        self.pods().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn deny(&self) {
        self.plane.kubectl_with(&["apply", "-f", "-"], POLICY).await.unwrap().text().unwrap();
        wait_until("the deletion is denied", async || {
            let tried = self.plane.kubectl(&["delete", "pod", "denied", "--dry-run=server"]).await.unwrap();
            check_that(tried.text().is_err(), "it would be let through")
        })
        .await;
    }

    /// The second in which each deleted pod was deleted.
    async fn moments(&self) -> BTreeMap<String, i64> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap().items.into_iter();
        let moment = |pod: Pod| {
            let meta = pod.metadata;
            let grace = meta.deletion_grace_period_seconds.unwrap_or(0);
            Some((meta.name?, meta.deletion_timestamp?.0.as_second() - grace))
        };
        pods.filter_map(moment).collect()
    }

    /// The outcome of each pod that exists or has an Event, as text.
    async fn outcomes(&self) -> ObservedState {
        let pods = self.pods().list(&ListParams::default()).await.unwrap().items;
        let mut fates: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
        for pod in pods {
            let meta = pod.metadata;
            let ends = meta.deletion_timestamp.and(meta.deletion_grace_period_seconds);
            let fate = ends.map_or_else(|| "stays".to_owned(), |grace| format!("ends in {grace}s"));
            fates.insert(meta.name.unwrap(), (fate, Vec::new()));
        }
        for (pod, event) in self.events().await {
            fates.entry(pod).or_insert_with(|| ("gone".to_owned(), Vec::new())).1.push(event);
        }
        let words = |(fate, mut event): (String, Vec<String>)| {
            event.sort_unstable();
            event.dedup();
            match event.as_slice() {
                [] if fate.starts_with("ends") => format!("{fate} without a word"),
                [] => fate,
                event => format!("{fate}, {}", event.join(", ")),
            }
        };
        fates.into_iter().map(|(pod, fate)| (pod, words(fate))).collect()
    }

    /// The Events about pods by the taint eviction controller.
    async fn events(&self) -> Vec<(String, String)> {
        let events = Api::<k8s_openapi::api::core::v1::Event>::namespaced(self.api(), NAMESPACE);
        let of_taint_manager = ListParams::default().fields("reason=TaintManagerEviction,type=Normal");
        let events = events.list(&of_taint_manager).await.unwrap().items.into_iter();
        let to_line = |event: k8s_openapi::api::core::v1::Event| {
            let (pod, message) = (event.involved_object.name.unwrap(), event.message.unwrap());
            let from = event.source.and_then(|source| source.component).unwrap_or_default();
            let line = match (message.as_str(), from.as_str()) {
                (marked, "taint-eviction-controller")
                    if marked == format!("Marking for deletion Pod default/{pod}") =>
                {
                    "marked".to_owned()
                }
                (off, "taint-eviction-controller") if off == format!("Cancelling deletion of Pod default/{pod}") => {
                    "cancelled".to_owned()
                }
                (other, from) => format!("{from} says {other:?}"),
            };
            (pod, line)
        };
        events.map(to_line).collect()
    }

    /// The condition `DisruptionTarget` of each pod that has one, without its time.
    async fn conditions(&self) -> BTreeMap<String, String> {
        let pods = Api::<DynamicObject>::namespaced_with(self.api(), NAMESPACE, &ApiResource::erase::<Pod>(&()));
        let pods = pods.list(&ListParams::default()).await.unwrap().items.into_iter();
        let condition = |pod: DynamicObject| {
            let conditions = pod.data["status"]["conditions"].as_array()?.clone();
            let mut target = conditions.into_iter().find(|one| one["type"] == "DisruptionTarget")?;
            target.as_object_mut()?.remove("lastTransitionTime");
            target.as_object_mut()?.remove("lastProbeTime");
            Some((pod.metadata.name?, target.to_string()))
        };
        pods.filter_map(condition).collect()
    }

    /// Which of its metrics exist, and whether their units are right.
    async fn draw_metrics(&self, state: &mut ObservedState) {
        let page = self.controller.as_ref().unwrap().metrics().await.unwrap();
        let samples = page.lines().filter_map(|line| line.rsplit_once(' '));
        let samples = samples.filter(|(name, _)| name.starts_with("taint_eviction_controller"));
        let samples: BTreeMap<_, f64> = samples.filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect();
        let names: Vec<_> = samples.keys().copied().collect();
        let of = |name: &str| samples.get(&*format!("taint_eviction_controller_pod_{name}")).copied();
        let (deletions, count) = (of("deletions_total"), of("deletion_duration_seconds_count"));
        let yes = |holds: bool| if holds { "yes" } else { "no" }.to_owned();
        let seconds = of("deletion_duration_seconds_sum").is_some_and(|sum| (0.0..600.0).contains(&sum));
        state.extend([
            ("metrics".to_owned(), names.join(" ")),
            ("deletions are counted".to_owned(), yes(deletions > Some(10.0) && deletions == count)),
            ("durations are seconds".to_owned(), yes(seconds)),
        ]);
    }
}
