//! Common observations of tests: whether a pod still exists, and its Events.

use std::fmt::Debug;
use std::pin::pin;

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{DeleteParams, ListParams, PropagationPolicy, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};

use crate::{Error, until};

/// The pod, if it exists.
pub async fn find_pod(client: &Client, namespace: &str, name: &str) -> Result<Option<Pod>, Error> {
    let pod = Api::<Pod>::namespaced(client.clone(), namespace).get_opt(name).await;
    pod.map_err(Error::api(format!("look for pod {namespace}/{name}")))
}

/// The node and the UID of a pod that runs and is not being deleted.
#[must_use]
pub fn is_running(pod: &Pod) -> Option<(String, String)> {
    let running = pod.status.as_ref()?.phase.as_deref() == Some("Running");
    let stays = running && pod.metadata.deletion_timestamp.is_none();
    stays.then_some((pod.spec.as_ref()?.node_name.clone()?, pod.metadata.uid.clone()?))
}

/// The names of the pods of a namespace, in order.
pub async fn pod_names(client: &Client, namespace: &str) -> Result<Vec<String>, Error> {
    let list = Api::<Pod>::namespaced(client.clone(), namespace).list(&ListParams::default()).await;
    let list = list.map_err(Error::api(format!("list the pods of {namespace}")))?;
    Ok(list.items.into_iter().filter_map(|pod| pod.metadata.name).collect())
}

/// Waits until the namespace has exactly these pods, in order.
pub async fn remaining_pod(client: &Client, namespace: &str, names: &[&str]) -> Result<(), Error> {
    until(&format!("only {names:?} are left in {namespace}"), async || {
        let remaining = pod_names(client, namespace).await.map_err(|error| format!("{error:?}"))?;
        crate::check_that(remaining == names, format!("{remaining:?}"))
    })
    .await
}

/// The Events with this reason on a pod, by its name.
pub async fn events(client: &Client, namespace: &str, pod: &str, reason: &str) -> Result<Vec<Event>, Error> {
    let fields = format!("involvedObject.name={pod},reason={reason}");
    let (events, params) = (Api::<Event>::namespaced(client.clone(), namespace), ListParams::default().fields(&fields));
    Ok(events.list(&params).await.map_err(Error::api(format!("list the events of {namespace}")))?.items)
}

/// Waits for an Event on a pod; returns its message.
pub async fn event(client: &Client, namespace: &str, pod: &str, reason: &str) -> Result<String, Error> {
    until(&format!("an Event {reason} on {namespace}/{pod}"), async || {
        let events = events(client, namespace, pod, reason).await.map_err(|error| format!("{error:?}"))?;
        let message = events.into_iter().next().and_then(|event| event.message);
        message.ok_or_else(|| "none".to_owned())
    })
    .await
}

/// Deletes a node, like an administrator or a cloud provider's controller.
pub async fn delete_node(client: &Client, name: &str) -> Result<(), Error> {
    let nodes = Api::<Node>::all(client.clone());
    let deleted = nodes.delete(name, &DeleteParams::default()).await;
    deleted.map(drop).map_err(Error::api(format!("delete node {name}")))
}

/// Deletes a pod: gracefully, or with grace period 0 (`--force`).
pub async fn delete_pod(client: &Client, namespace: &str, name: &str, at_once: bool) -> Result<(), Error> {
    let params = DeleteParams {
        grace_period_seconds: at_once.then_some(0),
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    let deleted = Api::<Pod>::namespaced(client.clone(), namespace).delete(name, &params).await;
    deleted.map(drop).map_err(Error::api(format!("delete pod {namespace}/{name}")))
}

/// Watches every version of every object after `from`, indefinitely and in the order of the writes; `true` marks the last version of a
/// deleted object.
pub async fn watch_all_versions<K>(api: Api<K>, mut from: String, mut hear: impl FnMut(&K, bool))
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    loop {
        // A server that is unavailable, or ends the watch, is asked again; missed versions are delivered then.
        tokio::time::sleep(crate::eventually::PAUSE).await;
        let Ok(stream) = api.watch(&WatchParams::default(), &from).await else { continue };
        let mut stream = pin!(stream);
        while let Ok(Some(event)) = stream.try_next().await {
            let (object, gone) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                WatchEvent::Deleted(object) => (object, true),
                WatchEvent::Bookmark(_) | WatchEvent::Error(_) => continue,
            };
            from = object.resource_version().unwrap_or_default();
            hear(&object, gone);
        }
    }
}
