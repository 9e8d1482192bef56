//! A world in which nodes are tainted and pods tolerate that or not: a control plane of its own with one controller
//! that ends pods for taints, and no kubelet, so that whoever is asked to end stays to be looked at.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, Toleration};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::workloads::{self, DAEMON_SET};
use pod_safety_control_plane::{ControlPlane, Options, SoleController, Who, eventually, observe, seen};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);
const NAMESPACE: &str = "default";
const NODES: [&str; 6] = ["across", "plain", "two", "spared", "changing", "narrowing"];

/// Nobody may delete the pod `denied`, like many a webhook would have it.
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

/// A toleration of a taint that ends pods: of this key (empty: all), of this value (empty: all), for so long.
#[derive(Clone, Copy)]
pub(crate) struct Bears(pub(crate) &'static str, pub(crate) &'static str, pub(crate) Option<i64>);

impl Bears {
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

/// When each taint was added, by node and key.
type Taints = BTreeMap<(&'static str, &'static str), String>;

pub(crate) struct World {
    pub(crate) who: Who,
    plane: ControlPlane,
    controller: Option<SoleController>,
    taints: RefCell<Taints>,
}

impl World {
    pub(crate) async fn of(who: Who) -> Self {
        let plane = ControlPlane::start(Options::default()).await.unwrap();
        for node in NODES {
            objects::create_node(&plane.admin(), &objects::node(node)).await.unwrap();
        }
        let controller = Some(plane.taint_eviction_controller(who).await.unwrap());
        Self { who, plane, controller, taints: RefCell::default() }
    }

    fn api(&self) -> Client {
        self.plane.admin()
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.api(), NAMESPACE)
    }

    /// Ends the controller as a rollout would, and starts another.
    pub(crate) async fn restart(&mut self) {
        self.controller.take().unwrap().end().await.unwrap();
        self.controller = Some(self.plane.taint_eviction_controller(self.who).await.unwrap());
    }

    /// A running pod with a grace period of 30 s.
    pub(crate) async fn pod(&self, node: &str, name: &str, bears: &[Bears], also: impl FnOnce(&mut Pod)) {
        let mut pod = objects::pod(NAMESPACE, name).on_node(node).with_phase("Running");
        let tolerations = bears.iter().map(|one| one.toleration()).collect();
        pod.spec.get_or_insert_default().tolerations = Some(tolerations);
        also(&mut pod);
        objects::create_pod(&self.api(), &pod).await.unwrap();
    }

    /// Pods without tolerations, to which something else is odd.
    pub(crate) async fn special_pods(&self, node: &str) {
        self.pod(node, "long-grace", &[], |pod| *pod = pod.clone().with_grace(45)).await;
        self.pod(node, "pending", &[], |pod| pod.status = None).await;
        let set = workloads::reference(DAEMON_SET, "set", "5b0a4f0e-0000-4000-8000-000000000001");
        self.pod(node, "of-a-daemon-set", &[], |pod| *pod = pod.clone().controlled_by(set)).await;
        self.pod(node, "mirror", &[], |pod| *pod = pod.clone().mirror()).await;
        self.pod(node, "completed", &[], |pod| *pod = pod.clone().with_phase("Succeeded")).await;
        self.pod(node, "ending", &[], |_| ()).await;
        observe::delete_pod(&self.api(), NAMESPACE, "ending", false).await.unwrap();
    }

    /// The node has these taints, key and value, and no others; those that it had stay as old as they are. Gives back
    /// the second in which the others were added.
    pub(crate) async fn taint(&self, node: &'static str, taints: &[(&'static str, &str)]) -> i64 {
        let now = Timestamp::now();
        let taints: Vec<Value> = {
            let mut known = self.taints.borrow_mut();
            known.retain(|(of, key), _| *of != node || taints.iter().any(|(kept, _)| kept == key));
            let taints = taints.iter().map(|(key, value)| {
                let added = known.entry((node, *key)).or_insert_with(|| format!("{now:.0}"));
                json!({ "key": key, "value": value, "effect": "NoExecute", "timeAdded": added })
            });
            taints.collect()
        };
        let patch = Patch::Merge(json!({ "spec": { "taints": taints } }));
        Api::<Node>::all(self.api()).patch(node, &PatchParams::default(), &patch).await.unwrap();
        now.as_second()
    }

    /// The node has one more taint.
    pub(crate) async fn also_taint(&self, node: &'static str, key: &'static str) {
        let keys: Vec<_> =
            self.taints.borrow().keys().filter(|(of, _)| *of == node).map(|(_, key)| *key).collect();
        let all: Vec<_> = keys.into_iter().chain([key]).map(|key| (key, "")).collect();
        self.taint(node, &all).await;
    }

    /// The pod tolerates this for so long from now on.
    pub(crate) async fn tolerate(&self, name: &str, bears: Bears) {
        let pod = self.pods().get(name).await.unwrap();
        let mut all = pod.spec.unwrap().tolerations.unwrap_or_default();
        // What is there may get another time, but may not go.
        all.retain(|one| one.key != bears.toleration().key);
        all.push(bears.toleration());
        let patch = Patch::Merge(json!({ "spec": { "tolerations": all } }));
        self.pods().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Somebody takes the pod away at once.
    pub(crate) async fn vanish(&self, name: &str) {
        observe::delete_pod(&self.api(), NAMESPACE, name, true).await.unwrap();
    }

    /// Nobody may delete the pod `denied`, from now on.
    pub(crate) async fn deny(&self) {
        self.plane.kubectl_with(&["apply", "-f", "-"], POLICY).await.unwrap().text().unwrap();
        eventually("the deletion is denied", SOON, async || {
            let tried = self.plane.kubectl(&["delete", "pod", "denied", "--dry-run=server"]).await.unwrap();
            seen(tried.text().is_err(), "it would be let through")
        })
        .await
        .unwrap();
    }

    /// It may be deleted again.
    pub(crate) async fn allow(&self) {
        let delete = ["delete", "validatingadmissionpolicybinding", "denied"];
        self.plane.kubectl(&delete).await.unwrap().text().unwrap();
    }

    /// In which second the pod was asked to end, once it is.
    pub(crate) async fn ends(&self, name: &str, within: Duration) -> i64 {
        eventually(&format!("{name} ends"), within, async || {
            let moments = self.moments().await;
            moments.get(name).copied().ok_or_else(|| format!("{:?}: {moments:?}", self.who))
        })
        .await
        .unwrap()
    }

    /// In which second each pod that ends was asked to.
    pub(crate) async fn moments(&self) -> BTreeMap<String, i64> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap().items.into_iter();
        let moment = |pod: Pod| {
            let meta = pod.metadata;
            let grace = meta.deletion_grace_period_seconds.unwrap_or(0);
            Some((meta.name?, meta.deletion_timestamp?.0.as_second() - grace))
        };
        pods.filter_map(moment).collect()
    }

    /// What became of each pod that there is, or of which there is an Event, in words.
    pub(crate) async fn fates(&self) -> Fates {
        let pods = self.pods().list(&ListParams::default()).await.unwrap().items;
        let mut fates: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
        for pod in pods {
            let meta = pod.metadata;
            let ends = meta.deletion_timestamp.and(meta.deletion_grace_period_seconds);
            let fate = ends.map_or_else(|| "stays".to_owned(), |grace| format!("ends in {grace}s"));
            fates.insert(meta.name.unwrap(), (fate, Vec::new()));
        }
        for (pod, said) in self.events().await {
            fates.entry(pod).or_insert_with(|| ("gone".to_owned(), Vec::new())).1.push(said);
        }
        let words = |(fate, mut said): (String, Vec<String>)| {
            said.sort_unstable();
            said.dedup();
            match said.as_slice() {
                [] if fate.starts_with("ends") => format!("{fate} without a word"),
                [] => fate,
                said => format!("{fate}, {}", said.join(", ")),
            }
        };
        Fates(fates.into_iter().map(|(pod, fate)| (pod, words(fate))).collect())
    }

    /// What was said of pods in the name of kube-controller-manager's controller.
    async fn events(&self) -> Vec<(String, String)> {
        let events = Api::<k8s_openapi::api::core::v1::Event>::namespaced(self.api(), NAMESPACE);
        let ours = ListParams::default().fields("reason=TaintManagerEviction,type=Normal");
        let events = events.list(&ours).await.unwrap().items.into_iter();
        let said = |event: k8s_openapi::api::core::v1::Event| {
            let (pod, message) = (event.involved_object.name.unwrap(), event.message.unwrap());
            let from = event.source.and_then(|source| source.component).unwrap_or_default();
            let said = match (message.as_str(), from.as_str()) {
                (marked, "taint-eviction-controller")
                    if marked == format!("Marking for deletion Pod default/{pod}") =>
                {
                    "marked".to_owned()
                }
                (off, "taint-eviction-controller")
                    if off == format!("Cancelling deletion of Pod default/{pod}") =>
                {
                    "cancelled".to_owned()
                }
                (other, from) => format!("{from} says {other:?}"),
            };
            (pod, said)
        };
        events.map(said).collect()
    }

    /// The condition `DisruptionTarget` of each pod that has one, but for its time.
    pub(crate) async fn conditions(&self) -> BTreeMap<String, String> {
        let pods =
            Api::<DynamicObject>::namespaced_with(self.api(), NAMESPACE, &ApiResource::erase::<Pod>(&()));
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

    /// All samples of its metrics.
    pub(crate) async fn metrics(&self) -> BTreeMap<String, f64> {
        let page = self.controller.as_ref().unwrap().metrics().await.unwrap();
        let samples =
            page.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
        samples.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
    }
}

/// What became of each pod.
#[derive(Debug)]
pub(crate) struct Fates(BTreeMap<String, String>);

impl std::ops::Index<&str> for Fates {
    type Output = str;

    fn index(&self, pod: &str) -> &str {
        self.0.get(pod).map_or("gone", String::as_str)
    }
}
