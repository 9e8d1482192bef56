//! EvictionRequests and Evictions of Kubernetes' Eviction API (`lifecycle.k8s.io/v1alpha1`, KEP-4563), as people ask with them and
//! read them.
//!
//! Danger note: nothing here is evidence. `TargetEvicted` with the reason `PodTerminal` follows from a phase, which everybody can
//! write who may write the status of pods.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::model::{IMPERATIVE_EVICTOR, PodKey, RESPONDER_HEARTBEAT_DEADLINE, compare_turns};

/// The group and version.
const GROUP: &str = "/apis/lifecycle.k8s.io/v1alpha1";

/// As whom `drain` asks.
pub const DRAIN: &str = "pod-safety.dev/drain";
/// As whom `maintain` asks.
pub const MAINTAIN: &str = "pod-safety.dev/maintain";
/// As whom people ask with this program.
pub const OWN_REQUESTERS: [&str; 2] = [DRAIN, MAINTAIN];

/// The label of our requests: the node that is drained. Of a longer name than a label holds, an annotation has all.
pub const NODE_LABEL: &str = "pod-safety.dev/node";

/// A label has no longer value.
const MAX_LABEL_VALUE: usize = 63;

/// What objects say of themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The identity.
    pub uid: String,
    /// The number of its last change by people.
    pub generation: i64,
    /// When it was created.
    pub creation_timestamp: Option<Timestamp>,
    /// Since when it has been deleted, if it is.
    pub deletion_timestamp: Option<Timestamp>,
    /// What keeps it although it is deleted.
    pub finalizers: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

/// Which pod is to go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Target {
    /// The pod.
    pub pod: TargetPod,
}

/// A pod by its name and its identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TargetPod {
    /// The name.
    pub name: String,
    /// The identity.
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
    /// Why, in one word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
    /// Since when.
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
    /// What it says of itself.
    pub metadata: Meta,
    /// What is asked.
    pub spec: RequestSpec,
    /// How far it is.
    pub status: RequestStatus,
}

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RequestSpec {
    /// Which pod is to go.
    pub target: Target,
    /// Who asks.
    pub requester: String,
    /// `Eviction` or `Withdrawn`.
    pub intent: String,
}

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestStatus {
    /// What came of it.
    pub conditions: Vec<Condition>,
    /// Which generation a controller has seen; none: nobody has looked at it.
    pub observed_generation: Option<i64>,
}

impl EvictionRequest {
    /// Whether it still asks.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.spec.intent == "Eviction" && self.metadata.deletion_timestamp.is_none()
    }

    /// Whether a controller has looked at it since it was changed.
    #[must_use]
    pub fn is_observed(&self) -> bool {
        self.status.observed_generation.is_some_and(|seen| seen >= self.metadata.generation)
    }

    /// That it failed, and why.
    #[must_use]
    pub fn failed_condition(&self) -> Option<&Condition> {
        find_true(&self.status.conditions, "Failed")
    }

    /// That its pod is gone or is called finished.
    #[must_use]
    pub fn evicted_condition(&self) -> Option<&Condition> {
        find_true(&self.status.conditions, "TargetEvicted")
    }

    /// Whether it is one of those that people ask with by this program.
    #[must_use]
    pub fn is_own(&self) -> bool {
        OWN_REQUESTERS.contains(&&*self.spec.requester)
    }

    /// Which node is drained; empty: it does not say.
    #[must_use]
    pub fn node(&self) -> &str {
        let Meta { labels, annotations, .. } = &self.metadata;
        annotations.get(NODE_LABEL).or_else(|| labels.get(NODE_LABEL)).map_or("", String::as_str)
    }
}

/// An Eviction: the one for a pod, whoever asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EvictionOfPod {
    /// What it says of itself.
    pub metadata: Meta,
    /// Which pod.
    pub spec: EvictionSpec,
    /// How far it is.
    pub status: EvictionStatus,
}

/// Which pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EvictionSpec {
    /// Which pod is to go.
    pub target: Target,
}

/// How far an Eviction is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EvictionStatus {
    /// What came of it.
    pub conditions: Vec<Condition>,
    /// Who asked, and asks.
    pub requesters: Vec<Requester>,
    /// Whose turn it is.
    pub target_responders: Vec<TargetResponder>,
    /// What responders say.
    pub responders: Vec<ResponderStatus>,
}

/// Who asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Requester {
    /// The name.
    pub name: String,
    /// `Eviction` or `Withdrawn`.
    pub intent: String,
}

/// The turn of a responder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TargetResponder {
    /// The name.
    pub name: String,
    /// The highest is first.
    pub priority: i32,
    /// `Inactive`, `Active`, `Completed`, `Interrupted` or `Canceled`.
    pub state: String,
}

/// What a responder says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResponderStatus {
    /// The name.
    pub name: String,
    /// When its turn began.
    pub start_time: Option<Timestamp>,
    /// When it last said that it works.
    pub heartbeat_time: Option<Timestamp>,
    /// When it expects to be done.
    pub expected_completion_time: Option<Timestamp>,
    /// When it was done.
    pub completion_time: Option<Timestamp>,
    /// What it does.
    pub message: String,
}

impl EvictionOfPod {
    /// That it failed, and why.
    #[must_use]
    pub fn failed_condition(&self) -> Option<&Condition> {
        find_true(&self.status.conditions, "Failed")
    }

    /// That the pod is gone or is called finished.
    #[must_use]
    pub fn evicted_condition(&self) -> Option<&Condition> {
        find_true(&self.status.conditions, "TargetEvicted")
    }

    /// Whose turn it is, and what it says.
    #[must_use]
    pub fn active_responder(&self) -> Option<(&TargetResponder, &ResponderStatus)> {
        let turn = self.status.target_responders.iter().find(|turn| turn.state == "Active")?;
        Some((turn, self.responder_status(&turn.name)?))
    }

    /// What this responder says.
    #[must_use]
    pub fn responder_status(&self, name: &str) -> Option<&ResponderStatus> {
        self.status.responders.iter().find(|report| report.name == name)
    }

    /// The turns in their order.
    #[must_use]
    pub fn sorted_responders(&self) -> Vec<&TargetResponder> {
        let mut turns: Vec<&TargetResponder> = self.status.target_responders.iter().collect();
        turns.sort_by(|one, other| compare_turns((&one.name, one.priority), (&other.name, other.priority)));
        turns
    }
}

impl TargetResponder {
    /// As people read it: `responder example.com/move`, or `the evictor`.
    #[must_use]
    pub fn title(&self) -> String {
        match &*self.name {
            IMPERATIVE_EVICTOR => "the evictor".to_owned(),
            name => format!("responder {name}"),
        }
    }
}

impl ResponderStatus {
    /// When it lost or loses its turn, unless it says something before.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.heartbeat_time.or(self.start_time)?.checked_add(RESPONDER_HEARTBEAT_DEADLINE).ok()
    }
}

/// Whether the API server has EvictionRequests.
///
/// # Errors
/// It could not say.
pub async fn is_served(connection: &Connection) -> Result<bool, ApiError> {
    match connection.send(Call::get(GROUP).all_fields()).await {
        Ok(raw) => {
            let all = raw.to_json().map_err(ApiError::Undecodable)?;
            let resources = all["resources"].as_array();
            Ok(resources.is_some_and(|all| all.iter().any(|one| one["name"] == "evictionrequests")))
        }
        // Who may not discover it cannot use it either.
        Err(error) if matches!(error.code(), Some(403 | 404)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The items of a list, as far as they can be read. None: the API server does not have the kind.
async fn list<T: serde::de::DeserializeOwned>(
    connection: &Connection,
    namespace: Option<&str>,
    plural: &str,
    selector: &str,
) -> Result<Option<Vec<T>>, ApiError> {
    let within = namespace.map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
    let selector = if selector.is_empty() { String::new() } else { format!("?labelSelector={selector}") };
    match connection.list_items(&format!("{GROUP}{within}/{plural}{selector}")).await {
        Ok(items) => {
            Ok(Some(items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect()))
        }
        Err(error) if error.code() == Some(404) => Ok(None),
        // Authorization comes first: also for kinds that are not there.
        Err(error) if error.code() == Some(403) && !is_served(connection).await? => Ok(None),
        Err(error) => Err(error),
    }
}

/// The EvictionRequests with these labels. None: the API server does not have the kind.
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

/// The Evictions with these labels. None: the API server does not have the kind.
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

/// The requests of a drain of this node, whoever of us asked.
///
/// # Errors
/// They could not be read.
pub async fn list_node_requests(
    connection: &Connection,
    node: &str,
) -> Result<Vec<EvictionRequest>, ApiError> {
    let selector = format!("{NODE_LABEL}={}", node_label(node));
    let mut all = list_requests(connection, None, &selector).await?.unwrap_or_default();
    all.retain(|request| request.is_own() && request.node() == node);
    Ok(all)
}

/// The name of a request: the same for each try.
#[must_use]
pub fn request_name(requester: &str, pod: &PodKey) -> String {
    format!("{}-{}", requester.replace(".dev/", "-"), pod.uid)
}

fn path(namespace: &str, name: &str) -> String {
    format!("{GROUP}/namespaces/{namespace}/evictionrequests/{name}")
}

/// Asks for the eviction of a pod. One that was asked for before, and withdrawn, is asked for again.
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

async fn set_intent(
    connection: &Connection,
    request: &EvictionRequest,
    intent: &str,
) -> Result<(), ApiError> {
    let EvictionRequest { metadata, .. } = request;
    let body = json!({ "metadata": { "uid": metadata.uid }, "spec": { "intent": intent } });
    let path = path(&metadata.namespace, &metadata.name);
    connection.send(Call::write(Method::Merge, path, &body)).await.map(drop)
}

/// Withdraws a request. One that is gone needs none.
///
/// # Errors
/// It could not be written.
pub async fn withdraw_request(connection: &Connection, request: &EvictionRequest) -> Result<(), ApiError> {
    match set_intent(connection, request, "Withdrawn").await {
        Err(error) if error.is_not_found() => Ok(()),
        done => done,
    }
}

/// Deletes a request: this one, and no other of its name.
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
