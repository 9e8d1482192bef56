//! EvictionRequests and Evictions of Kubernetes' Eviction API (`lifecycle.k8s.io/v1alpha1`, KEP-4563), as the CLI
//! creates and reads them.
//!
//! Danger note: nothing here is evidence. `TargetEvicted` with the reason `PodTerminal` follows from a phase, which
//! any client can write that may write the status of pods.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::model::{IMPERATIVE_EVICTOR, PodKey, RESPONDER_HEARTBEAT_DEADLINE, compare_turns};

/// The group and version.
const GROUP: &str = "/apis/lifecycle.k8s.io/v1alpha1";

/// The requester of `drain`.
pub const DRAIN: &str = "pod-safety.dev/drain";
/// The requester of `maintain`.
pub const MAINTAIN: &str = "pod-safety.dev/maintain";
/// The requesters of this program.
pub const OWN_REQUESTERS: [&str; 2] = [DRAIN, MAINTAIN];

/// The label of our requests: the node that is drained. If the node's name is longer than a label's value may be, an
/// annotation holds it whole.
pub const NODE_LABEL: &str = "pod-safety.dev/node";

/// The longest value of a label.
const MAX_LABEL_VALUE: usize = 63;

/// The metadata of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
    /// The generation of the spec.
    pub generation: i64,
    /// When it was created.
    pub creation_timestamp: Option<Timestamp>,
    /// When its deletion was requested.
    pub deletion_timestamp: Option<Timestamp>,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

/// The pod to evict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Target {
    /// The pod.
    pub pod: TargetPod,
}

/// A pod by its name and UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TargetPod {
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
}

/// A condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// `Failed` or `TargetEvicted`.
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason, in one word.
    pub reason: String,
    /// The reason, in a sentence.
    pub message: String,
    /// When its status last changed.
    pub last_transition_time: Option<Timestamp>,
}

/// The condition of this type, if it is True.
fn find_true<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|one| one.r#type == kind && one.status == "True")
}

/// An EvictionRequest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EvictionRequest {
    /// Its metadata.
    pub metadata: Meta,
    /// Its spec.
    pub spec: RequestSpec,
    /// Its status.
    pub status: RequestStatus,
}

/// The spec of an EvictionRequest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RequestSpec {
    /// The pod to evict.
    pub target: Target,
    /// The requester.
    pub requester: String,
    /// `Eviction` or `Withdrawn`.
    pub intent: String,
}

/// The status of an EvictionRequest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestStatus {
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// The last generation that the controller has processed; none: no controller has.
    pub observed_generation: Option<i64>,
}

impl EvictionRequest {
    /// Whether it still requests the eviction.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.spec.intent == "Eviction" && self.metadata.deletion_timestamp.is_none()
    }

    /// Whether the controller has processed its current generation.
    #[must_use]
    pub fn is_observed(&self) -> bool {
        self.status.observed_generation.is_some_and(|seen| seen >= self.metadata.generation)
    }

    /// The condition that it failed.
    #[must_use]
    pub fn failed_condition(&self) -> Option<&Condition> {
        find_true(&self.status.conditions, "Failed")
    }

    /// The condition that its pod is gone or has a terminal phase.
    #[must_use]
    pub fn evicted_condition(&self) -> Option<&Condition> {
        find_true(&self.status.conditions, "TargetEvicted")
    }

    /// Whether it was created by this program.
    #[must_use]
    pub fn is_own(&self) -> bool {
        OWN_REQUESTERS.contains(&&*self.spec.requester)
    }

    /// The node that is drained; empty: it names none.
    #[must_use]
    pub fn node(&self) -> &str {
        let Meta { labels, annotations, .. } = &self.metadata;
        annotations.get(NODE_LABEL).or_else(|| labels.get(NODE_LABEL)).map_or("", String::as_str)
    }
}

/// An Eviction: the one object for a pod, whichever requesters it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EvictionOfPod {
    /// Its metadata.
    pub metadata: Meta,
    /// Its spec.
    pub spec: EvictionSpec,
    /// Its status.
    pub status: EvictionStatus,
}

/// The spec of an Eviction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EvictionSpec {
    /// The pod to evict.
    pub target: Target,
}

/// The status of an Eviction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EvictionStatus {
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// Its requesters, also those that have withdrawn.
    pub requesters: Vec<Requester>,
    /// The responders in their order, with their states.
    pub target_responders: Vec<TargetResponder>,
    /// What responders report.
    pub responders: Vec<ResponderStatus>,
}

/// A requester.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Requester {
    /// The name.
    pub name: String,
    /// `Eviction` or `Withdrawn`.
    pub intent: String,
}

/// The state of a responder in the order of responders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TargetResponder {
    /// The name.
    pub name: String,
    /// The responder with the highest priority is first.
    pub priority: i32,
    /// `Inactive`, `Active`, `Completed`, `Interrupted` or `Canceled`.
    pub state: String,
}

/// The report of a responder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResponderStatus {
    /// The name.
    pub name: String,
    /// When it became active.
    pub start_time: Option<Timestamp>,
    /// Its last heartbeat.
    pub heartbeat_time: Option<Timestamp>,
    /// When it expects to complete.
    pub expected_completion_time: Option<Timestamp>,
    /// When it completed.
    pub completion_time: Option<Timestamp>,
    /// Its message.
    pub message: String,
}

impl EvictionOfPod {
    /// The condition that it failed.
    #[must_use]
    pub fn failed_condition(&self) -> Option<&Condition> {
        find_true(&self.status.conditions, "Failed")
    }

    /// The condition that its pod is gone or has a terminal phase.
    #[must_use]
    pub fn evicted_condition(&self) -> Option<&Condition> {
        find_true(&self.status.conditions, "TargetEvicted")
    }

    /// The active responder, and its report.
    #[must_use]
    pub fn active_responder(&self) -> Option<(&TargetResponder, &ResponderStatus)> {
        let turn = self.status.target_responders.iter().find(|turn| turn.state == "Active")?;
        Some((turn, self.responder_status(&turn.name)?))
    }

    /// The report of this responder.
    #[must_use]
    pub fn responder_status(&self, name: &str) -> Option<&ResponderStatus> {
        self.status.responders.iter().find(|report| report.name == name)
    }

    /// The responders in their order.
    #[must_use]
    pub fn sorted_responders(&self) -> Vec<&TargetResponder> {
        let mut turns: Vec<&TargetResponder> = self.status.target_responders.iter().collect();
        turns.sort_by(|one, other| compare_turns((&one.name, one.priority), (&other.name, other.priority)));
        turns
    }
}

impl TargetResponder {
    /// As the CLI prints it: `responder example.com/move`, or `the evictor`.
    #[must_use]
    pub fn title(&self) -> String {
        match &*self.name {
            IMPERATIVE_EVICTOR => "the evictor".to_owned(),
            name => format!("responder {name}"),
        }
    }
}

impl ResponderStatus {
    /// When it was or will be interrupted, unless it sends a heartbeat before.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.heartbeat_time.or(self.start_time)?.checked_add(RESPONDER_HEARTBEAT_DEADLINE).ok()
    }
}

/// Whether the API server serves EvictionRequests.
///
/// # Errors
/// The API server did not answer.
pub async fn is_served(connection: &Connection) -> Result<bool, ApiError> {
    match connection.send(Call::get(GROUP).all_fields()).await {
        Ok(raw) => {
            let all = raw.to_json().map_err(ApiError::Undecodable)?;
            let resources = all["resources"].as_array();
            Ok(resources.is_some_and(|all| all.iter().any(|one| one["name"] == "evictionrequests")))
        }
        // A client that may not discover the group cannot use it either.
        Err(error) if matches!(error.code(), Some(403 | 404)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The items of a list that can be decoded. None: the API server does not serve the kind.
async fn list<T: serde::de::DeserializeOwned>(
    connection: &Connection,
    namespace: Option<&str>,
    plural: &str,
    selector: &str,
) -> Result<Option<Vec<T>>, ApiError> {
    let within = namespace.map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
    let selector = if selector.is_empty() { String::new() } else { format!("?labelSelector={selector}") };
    match connection.list_items(&format!("{GROUP}{within}/{plural}{selector}")).await {
        Ok(items) => Ok(Some(items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect())),
        Err(error) if error.code() == Some(404) => Ok(None),
        // Authorization comes first, also for kinds that are not served.
        Err(error) if error.code() == Some(403) && !is_served(connection).await? => Ok(None),
        Err(error) => Err(error),
    }
}

/// The EvictionRequests with these labels. None: the API server does not serve the kind.
///
/// # Errors
/// They could not be read.
pub async fn list_requests(
    connection: &Connection,
    namespace: Option<&str>,
    selector: &str,
) -> Result<Option<Vec<EvictionRequest>>, ApiError> {
    list(connection, namespace, "evictionrequests", selector).await
}

/// The Evictions with these labels. None: the API server does not serve the kind.
///
/// # Errors
/// They could not be read.
pub async fn list_evictions(
    connection: &Connection,
    namespace: Option<&str>,
    selector: &str,
) -> Result<Option<Vec<EvictionOfPod>>, ApiError> {
    list(connection, namespace, "evictions", selector).await
}

/// The value of [`NODE_LABEL`] for a node: its name, or as much of it as a label holds.
fn node_label(node: &str) -> &str {
    let cut = node.get(..MAX_LABEL_VALUE).unwrap_or(node);
    cut.trim_end_matches(['.', '-'])
}

/// The requests of a drain of this node, by any requester of this program.
///
/// # Errors
/// They could not be read.
pub async fn list_node_requests(connection: &Connection, node: &str) -> Result<Vec<EvictionRequest>, ApiError> {
    let selector = format!("{NODE_LABEL}={}", node_label(node));
    let mut all = list_requests(connection, None, &selector).await?.unwrap_or_default();
    all.retain(|request| request.is_own() && request.node() == node);
    Ok(all)
}

/// The name of a request, which is the same for each try.
#[must_use]
pub fn request_name(requester: &str, pod: &PodKey) -> String {
    format!("{}-{}", requester.replace(".dev/", "-"), pod.uid)
}

fn path(namespace: &str, name: &str) -> String {
    format!("{GROUP}/namespaces/{namespace}/evictionrequests/{name}")
}

/// Requests the eviction of a pod. A request that was withdrawn before is made active again.
///
/// # Errors
/// It could not be written, or another object has the name.
pub async fn create_request(
    connection: &Connection,
    requester: &str,
    node: &str,
    pod: &PodKey,
) -> Result<(), ApiError> {
    let name = request_name(requester, pod);
    let label = node_label(node);
    let annotations = if label == node { json!({}) } else { json!({ NODE_LABEL: node }) };
    let body = json!({
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "EvictionRequest",
        "metadata": { "namespace": pod.namespace, "name": name, "labels": { NODE_LABEL: label }, "annotations": annotations },
        "spec": {
            "target": { "pod": { "name": pod.name, "uid": pod.uid } },
            "requester": requester,
            "intent": "Eviction",
        },
    });
    let all = format!("{GROUP}/namespaces/{}/evictionrequests", pod.namespace);
    let conflict = match connection.send(Call::write(Method::Post, all, &body)).await {
        Ok(_) => return Ok(()),
        Err(error) if error.code() == Some(409) => error,
        Err(error) => return Err(error),
    };
    let raw = connection.send(Call::get(path(&pod.namespace, &name)).all_fields()).await?;
    let existing = raw.to_json().map_err(ApiError::Undecodable)?;
    let existing: EvictionRequest = serde_json::from_value(existing).unwrap_or_default();
    let same = existing.spec.requester == requester && existing.spec.target.pod.uid == pod.uid.to_string();
    match (same, existing.is_active()) {
        (true, true) => Ok(()),
        (true, false) if existing.metadata.deletion_timestamp.is_none() => {
            set_intent(connection, &existing, "Eviction").await
        }
        (true | false, _) => Err(conflict),
    }
}

async fn set_intent(connection: &Connection, request: &EvictionRequest, intent: &str) -> Result<(), ApiError> {
    let EvictionRequest { metadata, .. } = request;
    let body = json!({ "metadata": { "uid": metadata.uid }, "spec": { "intent": intent } });
    let path = path(&metadata.namespace, &metadata.name);
    connection.send(Call::write(Method::Merge, path, &body)).await.map(drop)
}

/// Withdraws a request. If it is gone, there is nothing to do.
///
/// # Errors
/// It could not be written.
pub async fn withdraw_request(connection: &Connection, request: &EvictionRequest) -> Result<(), ApiError> {
    match set_intent(connection, request, "Withdrawn").await {
        Err(error) if error.is_not_found() => Ok(()),
        done => done,
    }
}

/// Deletes a request by its UID.
///
/// # Errors
/// It could not be deleted.
pub async fn delete_request(connection: &Connection, request: &EvictionRequest) -> Result<(), ApiError> {
    let EvictionRequest { metadata, .. } = request;
    let body = json!({ "preconditions": { "uid": metadata.uid } });
    let path = path(&metadata.namespace, &metadata.name);
    match connection.send(Call::write(Method::Delete, path, &body)).await {
        Err(error) if error.is_not_found() || error.code() == Some(409) => Ok(()),
        done => done.map(drop),
    }
}

#[cfg(test)]
mod tests;
