//! The controllers of pods: workloads of every kind with a scale, and of some without.
//!
//! No controller of Kubernetes runs for them unless a test starts it, so only the test changes them and the pods that reference them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use serde_json::{Value, json};

use crate::{Error, raw, until};

/// A kind of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Group and version.
    pub api_version: &'static str,
    /// Its kind in objects.
    pub kind: &'static str,
    /// Its plural name in paths.
    pub plural: &'static str,
}

impl Kind {
    /// A kind that is not listed here.
    pub const fn custom(api_version: &'static str, kind: &'static str, plural: &'static str) -> Self {
        Self { api_version, kind, plural }
    }

    fn path(self, namespace: &str) -> String {
        let root = if self.api_version.contains('/') { "/apis" } else { "/api" };
        format!("{root}/{}/namespaces/{namespace}/{}", self.api_version, self.plural)
    }
}

/// apps/v1.
pub const DEPLOYMENT: Kind = Kind::custom("apps/v1", "Deployment", "deployments");
/// apps/v1.
pub const REPLICA_SET: Kind = Kind::custom("apps/v1", "ReplicaSet", "replicasets");
/// apps/v1.
pub const STATEFUL_SET: Kind = Kind::custom("apps/v1", "StatefulSet", "statefulsets");
/// v1.
pub const REPLICATION_CONTROLLER: Kind = Kind::custom("v1", "ReplicationController", "replicationcontrollers");
/// apps/v1; it has no scale.
pub const DAEMON_SET: Kind = Kind::custom("apps/v1", "DaemonSet", "daemonsets");
/// batch/v1; it has no scale.
pub const JOB: Kind = Kind::custom("batch/v1", "Job", "jobs");
/// A custom kind with a scale subresource; see [`define_custom_kinds`].
pub const FLEET: Kind = Kind::custom("example.com/v1", "Fleet", "fleets");
/// A custom kind without a scale subresource.
pub const HERD: Kind = Kind::custom("example.com/v1", "Herd", "herds");
/// A kind that is not defined.
pub const PHANTOM: Kind = Kind::custom("phantom.example.com/v1", "Phantom", "phantoms");

/// Defines [`FLEET`] and [`HERD`] and waits until the API server serves them. Clients that ran discovery before that learn of them later:
/// start those afterwards.
pub async fn define_custom_kinds(client: &Client) -> Result<(), Error> {
    let scale = json!({ "scale": { "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" } });
    for (kind, subresources) in [(FLEET, scale), (HERD, json!({}))] {
        define(client, kind, "Namespaced", &subresources).await?;
    }
    Ok(())
}

/// Defines a kind without a schema, and waits until the API server serves it.
pub async fn define(client: &Client, kind: Kind, scope: &str, subresources: &Value) -> Result<(), Error> {
    let (group, version) = kind.api_version.split_once('/').unwrap_or_default();
    let name = format!("{}.{group}", kind.plural);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": name },
        "spec": {
            "group": group,
            "names": { "kind": kind.kind, "plural": kind.plural },
            "scope": scope,
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "subresources": subresources,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    });
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    raw::apply(client, &path, &definition).await?;
    until(&format!("{name} is served"), async || {
        let resources = client.list_api_group_resources(kind.api_version).await;
        let resources = resources.map_err(|error| error.to_string())?;
        crate::check_that(
            resources.resources.iter().any(|resource| resource.name == kind.plural),
            "not found".to_owned(),
        )
    })
    .await
}

/// Creates or updates a workload; returns the owner reference for its pods.
pub async fn put(
    client: &Client,
    kind: Kind,
    namespace: &str,
    name: &str,
    replicas: i32,
    controller: Option<&OwnerReference>,
) -> Result<OwnerReference, Error> {
    let object = json!({
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": { "name": name, "ownerReferences": controller.as_slice() },
        "spec": spec(kind, name, replicas),
    });
    let created = raw::apply(client, &format!("{}/{name}", kind.path(namespace)), &object).await?;
    let uid = created["metadata"]["uid"].as_str().ok_or(Error::Incomplete("a UID"))?;
    Ok(reference(kind, name, uid))
}

/// An owner reference to a controller, which need not exist.
#[must_use]
pub fn reference(kind: Kind, name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: kind.api_version.to_owned(),
        kind: kind.kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The smallest spec that the API server accepts.
fn spec(kind: Kind, name: &str, replicas: i32) -> Value {
    let labels = json!({ "workload": name });
    let container = json!({ "name": "main", "image": "registry.example/main:1" });
    let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
    let selector = json!({ "matchLabels": labels });
    match kind {
        DAEMON_SET => json!({ "selector": selector, "template": template }),
        STATEFUL_SET => {
            json!({ "replicas": replicas, "serviceName": name, "selector": selector, "template": template })
        }
        REPLICATION_CONTROLLER => json!({ "replicas": replicas, "selector": labels, "template": template }),
        JOB => json!({ "template": { "spec": { "restartPolicy": "Never", "containers": [container] } } }),
        FLEET | HERD => json!({ "replicas": replicas }),
        _ => json!({ "replicas": replicas, "selector": selector, "template": template }),
    }
}

/// A StatefulSet of one pod that prefers this node, and may run on any.
#[must_use]
pub fn stateful_set_near(namespace: &str, name: &str, node: &str) -> Value {
    let mut spec = spec(STATEFUL_SET, name, 1);
    spec["template"]["spec"]["affinity"] = affinity_to(node);
    json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "spec": spec,
        "metadata": { "namespace": namespace, "name": name } })
}

/// The affinity of pods that prefer this node.
#[must_use]
pub fn affinity_to(node: &str) -> Value {
    let here = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] });
    let preferred = json!([{ "weight": 100, "preference": { "matchExpressions": [here] } }]);
    json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": preferred } })
}

/// The tolerations of pods that are evicted a second after their node is lost.
#[must_use]
pub fn brief_tolerations() -> Value {
    let bears = |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1 });
    json!([bears("node.kubernetes.io/unreachable"), bears("node.kubernetes.io/not-ready")])
}

/// Sets the number of replicas, like `kubectl scale`.
pub async fn scale(client: &Client, kind: Kind, namespace: &str, name: &str, replicas: i32) -> Result<(), Error> {
    let path = format!("{}/{name}", kind.path(namespace));
    raw::merge(client, &path, &json!({ "spec": { "replicas": replicas } })).await.map(drop)
}

/// Deletes a workload; its pods remain.
pub async fn delete(client: &Client, kind: Kind, namespace: &str, name: &str) -> Result<(), Error> {
    raw::delete(client, &format!("{}/{name}", kind.path(namespace))).await
}
