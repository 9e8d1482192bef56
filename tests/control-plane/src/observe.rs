//! What tests look at again and again: whether a pod is there still, and what was said about it.

use std::fmt::Debug;
use std::pin::pin;

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{DeleteParams, ListParams, PropagationPolicy, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};

use crate::{Error, until};

/// The pod, if it is there.
pub async fn find_pod(client: &Client, namespace: &str, name: &str) -> Result<Option<Pod>, Error> {
    let found = Api::<Pod>::namespaced(client.clone(), namespace).get_opt(name).await;
    found.map_err(Error::api(format!("look for pod {namespace}/{name}")))
}

/// The node and the UID of a pod that runs, and is not being deleted.
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

/// Waits until no pod of the namespace is there but these, in order.
pub async fn remaining_pod(client: &Client, namespace: &str, names: &[&str]) -> Result<(), Error> {
    until(&format!("only {names:?} are left in {namespace}"), async || {
        let left = pod_names(client, namespace).await.map_err(|error| format!("{error:?}"))?;
        crate::check_that(left == names, format!("{left:?}"))
    })
    .await
}

/// The Events with this reason on a pod, by its name.
pub async fn events(client: &Client, namespace: &str, pod: &str, reason: &str) -> Result<Vec<Event>, Error> {
    let fields = format!("involvedObject.name={pod},reason={reason}");
    let (events, params) =
        (Api::<Event>::namespaced(client.clone(), namespace), ListParams::default().fields(&fields));
    Ok(events.list(&params).await.map_err(Error::api(format!("list the events of {namespace}")))?.items)
}

/// Waits for an Event on a pod; gives back its message.
pub async fn event(client: &Client, namespace: &str, pod: &str, reason: &str) -> Result<String, Error> {
    until(&format!("an Event {reason} on {namespace}/{pod}"), async || {
        let events = events(client, namespace, pod, reason).await.map_err(|error| format!("{error:?}"))?;
        let message = events.into_iter().next().and_then(|event| event.message);
        message.ok_or_else(|| "none".to_owned())
    })
    .await
}

/// Deletes a node, as an administrator or a cloud provider's controller does.
pub async fn delete_node(client: &Client, name: &str) -> Result<(), Error> {
    let nodes = Api::<Node>::all(client.clone());
    let deleted = nodes.delete(name, &DeleteParams::default()).await;
    deleted.map(drop).map_err(Error::api(format!("delete node {name}")))
}

/// Asks for a pod's deletion: gracefully, or at once (`--force`).
pub async fn delete_pod(client: &Client, namespace: &str, name: &str, at_once: bool) -> Result<(), Error> {
    let params = DeleteParams {
        grace_period_seconds: at_once.then_some(0),
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    let deleted = Api::<Pod>::namespaced(client.clone(), namespace).delete(name, &params).await;
    deleted.map(drop).map_err(Error::api(format!("delete pod {namespace}/{name}")))
}

/// Hears of every version of every object after `from`, for ever and in the order in which they were written; `true` where
/// it is the last one, of an object that is gone.
pub async fn watch_all_versions<K>(api: Api<K>, mut from: String, mut hear: impl FnMut(&K, bool))
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    loop {
        // A server that is away, or ends the watch, is asked again; what was missed comes then.
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
