//! Writes of a kubelet, for nodes without a machine: its Lease, which its Node owns, and its reports about deleted pods.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;

use crate::objects::{self, LEASE_NAMESPACE};
use crate::{Error, observe};

/// A quarter of the duration of a Lease.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);

/// Creates the node, and its Lease with the Node as its owner: the garbage collector deletes the Lease with the Node.
pub async fn register(client: &Client, node: &Node) -> Result<Node, Error> {
    let node = objects::create_node(client, node).await?;
    let name = node.metadata.name.clone().unwrap_or_default();
    let mut lease = objects::lease(&name);
    lease.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        name,
        ..OwnerReference::default()
    }]);
    let created = leases(client).create(&PostParams::default(), &lease).await;
    created.map(|_lease| node).map_err(Error::api("create the Lease of a node"))
}

/// Renews a Lease, by a clock on which ten seconds have passed since the last renewal: so does a kubelet that has not been
/// restarted. `None`: it does not exist, and a kubelet without a Node cannot create it.
pub async fn renew(client: &Client, node: &str) -> Result<Option<Lease>, Error> {
    let failed = Error::api(format!("read the Lease of {node}"));
    let Some(before) = leases(client).get_opt(node).await.map_err(failed)? else { return Ok(None) };
    let mut spec = objects::lease(node).spec.unwrap_or_default();
    if let Some(renewed) = before.spec.and_then(|spec| spec.renew_time) {
        spec.renew_time = Some(MicroTime(renewed.0 + RENEW_INTERVAL));
    }
    let patch = Patch::Merge(json!({ "spec": spec }));
    match leases(client).patch(node, &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        answer => answer.map(Some).map_err(Error::api(format!("renew the Lease of {node}"))),
    }
}

/// Reports that the kubelet has received the deletion of a pod. `None`: the pod is not deleted. A kubelet of Kubernetes 1.34 or later
/// reports that within seconds.
pub async fn report_deletion(client: &Client, namespace: &str, name: &str) -> Result<Option<Pod>, Error> {
    let pod = observe::find_pod(client, namespace, name).await?;
    let Some(pod) = pod.filter(|pod| pod.metadata.deletion_timestamp.is_some()) else { return Ok(None) };
    let seen = PodStatus { observed_generation: pod.metadata.generation, ..PodStatus::default() };
    objects::set_pod_status(client, namespace, name, &seen).await.map(Some)
}

/// Removes a pod whose containers have terminated.
pub async fn remove(client: &Client, pod: &Pod) -> Result<(), Error> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: pod.metadata.uid.clone(), resource_version: None }),
        ..DeleteParams::default()
    };
    let deleted = Api::<Pod>::namespaced(client.clone(), namespace).delete(name, &params).await;
    deleted.map(drop).map_err(Error::api(format!("remove pod {namespace}/{name}")))
}

/// Whether the node has a Lease.
pub async fn has_lease(client: &Client, node: &str) -> Result<bool, Error> {
    let response = leases(client).get_opt(node).await;
    response.map(|lease| lease.is_some()).map_err(Error::api(format!("look for the Lease of {node}")))
}

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), LEASE_NAMESPACE)
}
