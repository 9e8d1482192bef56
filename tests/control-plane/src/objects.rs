//! Nodes, pods and leases for tests. Each is an ordinary `k8s_openapi` object with the minimum that the API server accepts; a test adds the
//! fields that it needs, with the `with_…` methods or directly.
//!
//! The API server ignores the status of a created object, so [`create_pod`] and [`create_node`] write it in a second call, like a kubelet.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    Container, Node, NodeCondition, NodeStatus, NodeSystemInfo, Pod, PodCondition, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource as _};
use serde_json::{Value, json};

use crate::{Error, kubelet, workloads};

/// The namespace of node leases.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";

/// The kubelet's default.
const LEASE_SECONDS: i32 = 40;

/// The boot ID of this boot of a machine: a UUID, as on Linux.
#[must_use]
pub fn boot_id(node: &str, number: u32) -> String {
    let of_node = node.bytes().fold(0_u64, |sum, byte| (sum * 31 + u64::from(byte)) & 0xffff_ffff);
    format!("{of_node:08x}-0000-4000-8000-{number:012x}")
}

/// A Ready node with room for pods.
pub fn node(name: &str) -> Node {
    let room = BTreeMap::from([
        ("cpu".to_owned(), Quantity("8".to_owned())),
        ("memory".to_owned(), Quantity("32Gi".to_owned())),
        ("pods".to_owned(), Quantity("110".to_owned())),
    ]);
    let labels = BTreeMap::from([("kubernetes.io/hostname".to_owned(), name.to_owned())]);
    let node_info = NodeSystemInfo {
        boot_id: boot_id(name, 1),
        kubelet_version: "v1.37.2".to_owned(),
        operating_system: "linux".to_owned(),
        ..NodeSystemInfo::default()
    };
    let status = NodeStatus {
        capacity: Some(room.clone()),
        allocatable: Some(room),
        conditions: Some(vec![ready("True")]),
        node_info: Some(node_info),
        ..NodeStatus::default()
    };
    let metadata = ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    Node { metadata, status: Some(status), ..Node::default() }
}

/// Changes to a node before it is created.
pub trait NodeExt: Sized {
    /// Sets the Ready condition: `"True"`, `"False"` or `"Unknown"`.
    #[must_use]
    fn with_ready(self, status: &str) -> Self;
    /// Sets the boot ID that the kubelet reports.
    #[must_use]
    fn with_boot_id(self, id: &str) -> Self;
    /// Adds a label.
    #[must_use]
    fn with_label(self, key: &str, value: &str) -> Self;
}

impl NodeExt for Node {
    fn with_ready(mut self, status: &str) -> Self {
        let conditions = self.status.get_or_insert_default().conditions.get_or_insert_default();
        conditions.retain(|condition| condition.type_ != "Ready");
        conditions.push(ready(status));
        self
    }

    fn with_boot_id(mut self, id: &str) -> Self {
        let node_info = self.status.get_or_insert_default().node_info.get_or_insert_default();
        id.clone_into(&mut node_info.boot_id);
        self
    }

    fn with_label(mut self, key: &str, value: &str) -> Self {
        self.metadata.labels.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        self
    }
}

fn ready(status: &str) -> NodeCondition {
    let now = Some(Time(Timestamp::now()));
    NodeCondition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: Some("KubeletReady".to_owned()),
        last_heartbeat_time: now.clone(),
        last_transition_time: now,
        ..NodeCondition::default()
    }
}

/// A pod of one container, not bound to a node, with a grace period of 30 s.
pub fn pod(namespace: &str, name: &str) -> Pod {
    let container = Container {
        name: "main".to_owned(),
        image: Some("registry.example/main:1".to_owned()),
        ..Container::default()
    };
    let spec =
        PodSpec { containers: vec![container], termination_grace_period_seconds: Some(30), ..PodSpec::default() };
    let metadata =
        ObjectMeta { namespace: Some(namespace.to_owned()), name: Some(name.to_owned()), ..ObjectMeta::default() };
    Pod { metadata, spec: Some(spec), status: None }
}

/// Changes to a pod before it is created.
pub trait PodExt: Sized {
    /// Binds it to a node, which need not exist.
    #[must_use]
    fn on_node(self, name: &str) -> Self;
    /// Sets its phase; `"Running"` also sets the Ready condition.
    #[must_use]
    fn with_phase(self, phase: &str) -> Self;
    /// Adds a finalizer, so that it stays visible while it is deleted.
    #[must_use]
    fn with_finalizer(self, name: &str) -> Self;
    /// Adds an annotation.
    #[must_use]
    fn with_annotation(self, key: &str, value: &str) -> Self;
    /// Adds a label.
    #[must_use]
    fn with_label(self, key: &str, value: &str) -> Self;
    /// Makes it the mirror pod of a static pod, like a kubelet.
    #[must_use]
    fn mirror(self) -> Self;
    /// Makes a StatefulSet its controller.
    #[must_use]
    fn owned_by_stateful_set(self, name: &str, uid: &str) -> Self;
    /// Makes this workload its controller.
    #[must_use]
    fn controlled_by(self, controller: OwnerReference) -> Self;
    /// Sets its grace period.
    #[must_use]
    fn with_grace(self, seconds: i64) -> Self;
}

impl PodExt for Pod {
    fn on_node(mut self, name: &str) -> Self {
        self.spec.get_or_insert_default().node_name = Some(name.to_owned());
        self
    }

    fn with_phase(mut self, phase: &str) -> Self {
        let is_ready = if phase == "Running" { "True" } else { "False" };
        let condition = PodCondition {
            type_: "Ready".to_owned(),
            status: is_ready.to_owned(),
            last_transition_time: Some(Time(Timestamp::now())),
            ..PodCondition::default()
        };
        let status = self.status.get_or_insert_default();
        status.phase = Some(phase.to_owned());
        status.conditions = Some(vec![condition]);
        // From Kubernetes 1.34 on, a kubelet reports the generation that it has observed.
        status.observed_generation = Some(1);
        self
    }

    fn with_finalizer(mut self, name: &str) -> Self {
        self.metadata.finalizers.get_or_insert_default().push(name.to_owned());
        self
    }

    fn with_annotation(mut self, key: &str, value: &str) -> Self {
        self.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        self
    }

    fn with_label(mut self, key: &str, value: &str) -> Self {
        self.metadata.labels.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        self
    }

    fn mirror(self) -> Self {
        self.with_annotation("kubernetes.io/config.mirror", "0123456789abcdef0123456789abcdef")
    }

    fn owned_by_stateful_set(self, name: &str, uid: &str) -> Self {
        self.controlled_by(workloads::reference(workloads::STATEFUL_SET, name, uid))
    }

    fn controlled_by(mut self, controller: OwnerReference) -> Self {
        self.metadata.owner_references.get_or_insert_default().push(controller);
        self
    }

    fn with_grace(mut self, seconds: i64) -> Self {
        self.spec.get_or_insert_default().termination_grace_period_seconds = Some(seconds);
        self
    }
}

/// A node's lease, renewed now.
pub fn lease(node: &str) -> Lease {
    let metadata = ObjectMeta {
        namespace: Some(LEASE_NAMESPACE.to_owned()),
        name: Some(node.to_owned()),
        ..ObjectMeta::default()
    };
    let spec = LeaseSpec {
        holder_identity: Some(node.to_owned()),
        lease_duration_seconds: Some(LEASE_SECONDS),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    };
    Lease { metadata, spec: Some(spec) }
}

/// Creates a pod with its status, and returns it as stored by the API server.
pub async fn create_pod(client: &Client, pod: &Pod) -> Result<Pod, Error> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let created = pods.create(&PostParams::default(), pod).await.map_err(Error::api("create a pod"))?;
    let (Some(status), Some(name)) = (&pod.status, &created.metadata.name) else { return Ok(created) };
    match pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
        Some(node) => report_pod(client, node, namespace, name, status).await,
        None => set_pod_status(client, namespace, name, status).await,
    }
}

/// Writes fields of a pod's status as the kubelet of that node: the policy `pod-report` allows no other user to report that a pod runs.
async fn report_pod(
    client: &Client,
    node: &str,
    namespace: &str,
    name: &str,
    status: &PodStatus,
) -> Result<Pod, Error> {
    let failed = |error| Error::api(format!("report the status of pod {namespace}/{name}"))(error);
    let patch = Patch::Strategic(json!({ "status": status }));
    let pods = kube::core::Request::new(Pod::url_path(&(), Some(namespace)));
    let request = pods.patch_subresource("status", name, &PatchParams::default(), &patch);
    let mut request = request.map_err(|error| failed(kube::Error::BuildRequest(error)))?;
    for (header, value) in
        [("impersonate-user", &*format!("system:node:{node}")), ("impersonate-group", "system:masters")]
    {
        let value = http::HeaderValue::from_str(value).map_err(|error| failed(kube::Error::HttpError(error.into())))?;
        request.headers_mut().insert(header, value);
    }
    client.request(request).await.map_err(failed)
}

/// Writes fields of a pod's status, like a kubelet; unset fields remain.
pub async fn set_pod_status(client: &Client, namespace: &str, name: &str, status: &PodStatus) -> Result<Pod, Error> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let patch = Patch::Strategic(json!({ "status": status }));
    let answer = pods.patch_status(name, &PatchParams::default(), &patch).await;
    answer.map_err(Error::api(format!("set the status of pod {namespace}/{name}")))
}

/// Creates a node with its status, and returns it as stored by the API server.
pub async fn create_node(client: &Client, node: &Node) -> Result<Node, Error> {
    let nodes = Api::<Node>::all(client.clone());
    let created = nodes.create(&PostParams::default(), node).await.map_err(Error::api("create a node"))?;
    match (&node.status, &created.metadata.name) {
        (Some(status), Some(name)) => set_node_status(client, name, status).await,
        _ => Ok(created),
    }
}

/// Writes fields of a node's status, like a kubelet; unset fields remain.
pub async fn set_node_status(client: &Client, name: &str, status: &NodeStatus) -> Result<Node, Error> {
    let nodes = Api::<Node>::all(client.clone());
    let patch = Patch::Strategic(json!({ "status": status }));
    let answer = nodes.patch_status(name, &PatchParams::default(), &patch).await;
    answer.map_err(Error::api(format!("set the status of node {name}")))
}

/// Renews a node's lease, or creates one without an owner, which the garbage collector does not delete with its Node.
pub async fn renew_lease(client: &Client, node: &str) -> Result<Lease, Error> {
    if let Some(renewed) = kubelet::renew(client, node).await? {
        return Ok(renewed);
    }
    let leases = Api::<Lease>::namespaced(client.clone(), LEASE_NAMESPACE);
    let created = leases.create(&PostParams::default(), &lease(node)).await;
    created.map_err(Error::api(format!("create the lease of {node}")))
}

/// Binds a pod through the binding subresource, like the scheduler.
pub async fn bind_pod(client: &Client, namespace: &str, name: &str, node: &str) -> Result<(), Error> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let failed = Error::api(format!("bind pod {namespace}/{name} to {node}"));
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": { "namespace": namespace, "name": name },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node },
    });
    let answer = pods.create_subresource::<Value, Value>("binding", name, &PostParams::default(), &binding).await;
    answer.map(drop).map_err(failed)
}
