//! Commands of operators about nodes: a node is off, a confirmation is withdrawn, a node should be fenced.
//!
//! Danger note: [`confirm`] creates evidence from a person's statement, and pods are force deleted because of it. The
//! evidence is about the incarnation that was examined, names the user as the API server authenticated it, and is never
//! written while the kubelet reports. RBAC decides which users may write it: the right to create FenceEvidences is the
//! right to confirm.

mod devices;
mod drill;
mod maintain;
mod pause;
mod watchdog;

use std::time::Duration;

use serde_json::json;

pub use devices::{Device, list_devices, request_status_check, status_check_result};
pub use drill::{Drill, delete_drill, plan_drill, read_incident, start_drill};
pub use maintain::{
    DRAIN_IN_PROGRESS, DRAINED, LifecycleCondition, MAINTENANCE_IN_PROGRESS, is_being_fenced, list_kept_off,
    request_keep_off, set_keep_off, write_conditions,
};
pub use pause::{Scope, pause, read_pause, resume};
pub use watchdog::{Watchdog, WatchdogGrant, read_grant, record_drill, revoke};

pub use pod_safety_fence::eviction_requests;

use pod_safety_fence::incident_name;
use pod_safety_fence::quorum_read::{invalid_renew_time, read_node_and_lease};
use pod_safety_proof::QuorumRead;

use super::access::{AccessRight, is_allowed};
use crate::api::{
    FenceEvidenceKind, FenceEvidenceSpec, FenceEvidenceStatus, FencePolicySpec, FencePolicyStatus, FenceTrigger, GROUP,
    Incarnation, NodeFenceSpec, Trigger, group_path, new_object,
};
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::clock::Env;
use crate::wire;

/// Why a command changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// There is no such node.
    #[error("there is no node {0}")]
    NoNode(String),
    /// The node is Ready. For most of a minute it keeps that mark after its kubelet stopped.
    #[error("node {0} is still marked Ready. If it is off, try again in a minute. Nothing was changed")]
    Ready(String),
    /// The kubelet renewed its Lease while the node was examined.
    #[error("the kubelet of node {0} renewed its Lease just now: it is not off. Nothing was changed")]
    LeaseRenewed(String),
    /// The node does not report which boot it is in.
    #[error(
        "node {0} has no UUID in status.nodeInfo.bootID, so a confirmation about this boot could not be told from one about the next"
    )]
    NoBootId(String),
    /// The named incarnation is the present one.
    #[error(
        "the Node {0} that is there now has that UID. To confirm that its present boot is off, leave out --uid and --boot. Nothing was changed"
    )]
    PresentIncarnation(String),
    /// The node has not booted since, as far as it reports.
    #[error("node {0} reports that boot ID, or none that is a UUID, so that boot may still run. Nothing was changed")]
    NotBooted(String),
    /// No FencePolicy selects the node.
    #[error("no FencePolicy selects node {0}; create one with a nodeSelector that does")]
    NoPolicy(String),
    /// The object exists already.
    #[error("{kind} {name} exists already; see kubectl get {kind} {name} -o yaml")]
    AlreadyExists {
        /// The kind.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// There is nothing to withdraw.
    #[error("there is no {kind} about the present boot of node {node}")]
    NoneFound {
        /// The kind.
        kind: &'static str,
        /// The node.
        node: String,
    },
    /// The device does not exist.
    #[error("there is no FenceDevice {0}")]
    NoDevice(String),
    /// The policy does not exist.
    #[error("there is no FencePolicy {0}")]
    NoSuchPolicy(String),
    /// Fencing is already paused.
    #[error("{object} is already paused: {why}. Nothing was changed")]
    Paused {
        /// What is paused.
        object: String,
        /// The text of the existing pause.
        why: String,
    },
    /// Fencing is not paused.
    #[error("{object} is not paused")]
    NotPaused {
        /// The object.
        object: String,
    },
    /// The reason is too long.
    #[error("--reason is {over} characters too long")]
    TooLong {
        /// By how many characters.
        over: usize,
    },
    /// Another client changed the object in between.
    #[error("{object} changed just now, so nothing was written. Check it, and run the command again")]
    Changed {
        /// The object.
        object: String,
    },
    /// A request to the API server failed.
    #[error("{doing}")]
    Api {
        /// What was tried.
        doing: &'static str,
        /// The error.
        source: ApiError,
    },
}

pub(super) fn api(doing: &'static str) -> impl FnOnce(ApiError) -> OperatorError {
    move |source| OperatorError::Api { doing, source }
}

/// A node as a quorum read returned it.
#[derive(Clone, Debug)]
pub struct Examined {
    /// Its incarnation.
    pub node: Incarnation,
    /// Its labels.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Whether it is Ready.
    pub ready: bool,
    /// Whether it is cordoned.
    pub cordoned: bool,
    /// When its Lease was last renewed, by its kubelet's clock.
    pub renewed: Option<String>,
}

/// Reads a node and its Lease by quorum.
///
/// # Errors
/// The node does not exist, has no usable boot ID, or could not be read.
pub async fn examine(connection: &Connection, env: &Env, name: &str) -> Result<Examined, OperatorError> {
    let QuorumRead { node, lease, .. } =
        read_node_and_lease(connection, env, name).await.map_err(api("reading the node"))?;
    let node = node.ok_or_else(|| OperatorError::NoNode(name.to_owned()))?;
    let (ready, cordoned) = (node.is_ready(), node.is_cordoned());
    let incarnation = node.incarnation().clone();
    if incarnation.boot_id.is_empty() {
        return Err(OperatorError::NoBootId(name.to_owned()));
    }
    let renewed = lease.renewed().map_err(invalid_renew_time).map_err(api("reading the node's Lease"))?;
    let labels = node.labels().clone();
    Ok(Examined { node: incarnation, labels, ready, cordoned, renewed: renewed.map(|time| time.to_string()) })
}

/// Reads a node by quorum to examine a former incarnation of it: another Node with another boot ID must have its name now,
/// whether or not it is Ready.
///
/// # Errors
/// The former incarnation may be the present one.
pub async fn examine_former(
    connection: &Connection,
    env: &Env,
    former: Incarnation,
) -> Result<Examined, OperatorError> {
    let name = former.name.clone();
    let QuorumRead { node, .. } = read_node_and_lease(connection, env, &name).await.map_err(api("reading the node"))?;
    let node = node.ok_or_else(|| OperatorError::NoNode(name.clone()))?;
    if node.incarnation().uid == former.uid {
        return Err(OperatorError::PresentIncarnation(name));
    }
    if !former.boot().is_known_different(node.incarnation().boot()) {
        return Err(OperatorError::NotBooted(name));
    }
    let (labels, ready, cordoned) = (node.labels().clone(), node.is_ready(), node.is_cordoned());
    // The Lease is that of the present incarnation.
    Ok(Examined { node: former, labels, ready, cordoned, renewed: None })
}

/// Waits for as long as a running kubelet takes to renew its Lease, and reads the node again.
///
/// # Errors
/// The kubelet reported, or the node has another incarnation.
pub async fn confirm_not_reporting(
    connection: &Connection,
    env: &Env,
    examined: &Examined,
    listen_for: Duration,
) -> Result<(), OperatorError> {
    let name = &examined.node.name;
    if examined.ready {
        return Err(OperatorError::Ready(name.clone()));
    }
    env.sleep(listen_for).await;
    let again = examine(connection, env, name).await?;
    if again.ready {
        return Err(OperatorError::Ready(name.clone()));
    }
    let same = again.renewed == examined.renewed && again.node == examined.node;
    if same { Ok(()) } else { Err(OperatorError::LeaseRenewed(name.clone())) }
}

/// The name of the user as which the API server authenticates this process.
///
/// # Errors
/// The API server did not answer.
pub async fn whoami(connection: &Connection) -> Result<String, OperatorError> {
    let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let call = Call::write(Method::Post, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &body);
    let answer = connection.send(call).await.and_then(|raw| raw.to_json().map_err(ApiError::Undecodable));
    let answer = answer.map_err(api("asking who you are"))?;
    let user = answer.pointer("/status/userInfo/username").and_then(serde_json::Value::as_str);
    Ok(user.unwrap_or("unknown").to_owned())
}

/// Checks that a confirmation can be written: the kind is served, and this user may create it. It runs before the operator
/// has to wait and type the confirmation.
///
/// # Errors
/// A confirmation cannot be written.
pub async fn check_may_confirm(connection: &Connection) -> Result<(), OperatorError> {
    const DOING: &str = "writing a FenceEvidence";
    connection.list_items(&group_path("fenceevidences?limit=1")).await.map_err(api("reading the FenceEvidences"))?;
    let right = AccessRight {
        verb: "create".to_owned(),
        group: GROUP.to_owned(),
        resource: "fenceevidences".to_owned(),
        ..AccessRight::default()
    };
    if is_allowed(connection, None, &right).await.map_err(api("asking who may do what"))? {
        return Ok(());
    }
    let message = format!("you may not {right}");
    let (reason, causes, retry_after) = ("Forbidden".to_owned(), Vec::new(), None);
    Err(api(DOING)(ApiError::Refused { code: 403, reason, message, causes, retry_after }))
}

async fn create(
    connection: &Connection,
    kind: &'static str,
    plural: &'static str,
    metadata: serde_json::Value,
    spec: &impl serde::Serialize,
) -> Result<String, OperatorError> {
    let name = metadata["name"].as_str().unwrap_or_default().to_owned();
    let body = new_object(kind, metadata, spec);
    match connection.send(Call::write(Method::Post, group_path(plural), &body)).await {
        Ok(answer) => {
            let only = answer.decode::<wire::OnlyMeta>().ok().and_then(|only| only.metadata);
            Ok(only.and_then(|meta| meta.name).unwrap_or(name))
        }
        Err(error) if error.is_changed() => Err(OperatorError::AlreadyExists { kind: plural, name }),
        Err(source) => Err(OperatorError::Api { doing: "writing it", source }),
    }
}

/// A person's statement that a node is off.
#[derive(Clone, Copy, Debug)]
pub struct Confirmation<'a> {
    /// The user name.
    pub by: &'a str,
    /// Why.
    pub reason: &'a str,
    /// How long the confirmation is valid.
    pub valid_for: Duration,
    /// Whether the machine may be switched on again, if its FencePolicy allows it. By default it may not, so that a person
    /// can work on it.
    pub power_on: bool,
}

/// Writes the confirmation that the node is off. Returns the name of the evidence. Each confirmation has its own name, so
/// that a confirmation can follow one that was withdrawn.
///
/// # Errors
/// The evidence could not be written.
pub async fn confirm(
    connection: &Connection,
    examined: &Examined,
    confirmation: Confirmation<'_>,
) -> Result<String, OperatorError> {
    let Confirmation { by, reason, valid_for, power_on } = confirmation;
    let spec = FenceEvidenceSpec {
        node: examined.node.clone(),
        kind: FenceEvidenceKind::OperatorConfirmed,
        storage: Vec::new(),
        fence: None,
        corroborated: Vec::new(),
        samples: Vec::new(),
        lease_renewed: examined.renewed.clone(),
        by: by.to_owned(),
        reason: Some(reason.to_owned()),
        // The API server refuses a larger number of seconds.
        valid_seconds: Some(u32::try_from(valid_for.as_secs()).unwrap_or(u32::MAX)),
        power_on,
    };
    let metadata = json!({ "generateName": format!("{}-", incident_name(&examined.node)) });
    create(connection, "FenceEvidence", "fenceevidences", metadata, &spec).await
}

#[derive(serde::Deserialize)]
struct Evidences {
    items: Vec<wire::Custom<FenceEvidenceSpec, FenceEvidenceStatus>>,
}

/// Invalidates the evidence about the node's present incarnation. Returns the names of that evidence.
///
/// # Errors
/// There is no such evidence, or it could not be written.
pub async fn withdraw(
    connection: &Connection,
    env: &Env,
    node: &Incarnation,
    reason: &str,
) -> Result<Vec<String>, OperatorError> {
    let all: Evidences = list(connection, "fenceevidences", "reading the FenceEvidences").await?;
    let is_valid_about_node = |evidence: &wire::Custom<FenceEvidenceSpec, FenceEvidenceStatus>| {
        let is_valid = evidence.status.as_ref().is_none_or(|status| status.invalidated.is_none());
        is_valid && evidence.spec.node == *node
    };
    let names: Vec<_> = all
        .items
        .into_iter()
        .filter(is_valid_about_node)
        .filter_map(|evidence| evidence.metadata.common.name)
        .collect();
    if names.is_empty() {
        return Err(OperatorError::NoneFound { kind: "FenceEvidence", node: node.name.clone() });
    }
    let at = format!("{:.0}", env.clock.wall());
    for name in &names {
        let body = json!({ "status": { "invalidated": { "at": at, "reason": reason } } });
        let path = group_path(&format!("fenceevidences/{name}/status"));
        merge(connection, path, &body, "FenceEvidence", node).await?;
    }
    Ok(names)
}

async fn list<T: serde::de::DeserializeOwned>(
    connection: &Connection,
    plural: &'static str,
    doing: &'static str,
) -> Result<T, OperatorError> {
    let mut items = Vec::new();
    connection.for_each_item(&group_path(plural), &mut |item| items.push(item)).await.map_err(api(doing))?;
    serde_json::from_value(json!({ "items": items }))
        .map_err(|error| OperatorError::Api { doing, source: ApiError::Undecodable(wire::WireError::Json(error)) })
}

async fn merge(
    connection: &Connection,
    path: String,
    body: &serde_json::Value,
    kind: &'static str,
    node: &Incarnation,
) -> Result<(), OperatorError> {
    match connection.send(Call::write(Method::Merge, path, body)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Err(OperatorError::NoneFound { kind, node: node.name.clone() }),
        Err(source) => Err(OperatorError::Api { doing: "writing it", source }),
    }
}

/// Requests that the node is fenced. Returns the name of the NodeFence.
///
/// # Errors
/// No policy selects the node, fencing is requested already, or the NodeFence could not be written.
pub async fn request_fence(
    connection: &Connection,
    examined: &Examined,
    by: &str,
    reason: &str,
) -> Result<String, OperatorError> {
    request_fence_with(connection, examined, by, reason, |_| ()).await
}

async fn request_fence_with(
    connection: &Connection,
    examined: &Examined,
    by: &str,
    reason: &str,
    change: impl FnOnce(&mut NodeFenceSpec),
) -> Result<String, OperatorError> {
    let trigger =
        FenceTrigger { kind: Trigger::Person, reason: reason.to_owned(), by: Some(by.to_owned()), condition: None };
    let mut spec = new_fence_spec(connection, examined, trigger, false).await?;
    change(&mut spec);
    let name = incident_name(&examined.node);
    create(connection, "NodeFence", "nodefences", json!({ "name": name }), &spec).await
}

async fn new_fence_spec(
    connection: &Connection,
    examined: &Examined,
    trigger: FenceTrigger,
    dry_run: bool,
) -> Result<NodeFenceSpec, OperatorError> {
    let (policy, _) = select_policy(connection, examined).await?;
    Ok(NodeFenceSpec { node: examined.node.clone(), policy, trigger, dry_run, cancelled: false, keep_off: false })
}

#[derive(serde::Deserialize)]
struct Policies {
    items: Vec<wire::Custom<FencePolicySpec, FencePolicyStatus>>,
}

/// The policy that applies to a node, chosen as the controller chooses it ([`crate::cache::View::policy_of`]).
///
/// # Errors
/// No policy selects the node, or the policies could not be read.
pub async fn read_policy(connection: &Connection, examined: &Examined) -> Result<FencePolicySpec, OperatorError> {
    select_policy(connection, examined).await.map(|(_, spec)| spec)
}

async fn select_policy(
    connection: &Connection,
    examined: &Examined,
) -> Result<(String, FencePolicySpec), OperatorError> {
    const DOING: &str = "reading the FencePolicies";
    let all: Policies = list(connection, "fencepolicies", DOING).await?;
    let chosen = all.items.into_iter().filter(|policy| policy.spec.node_selector.matches(&examined.labels));
    let named = chosen.filter_map(|policy| Some((policy.metadata.common.name?, policy.spec)));
    let first = named.min_by_key(|(name, spec)| (std::cmp::Reverse(spec.priority), name.clone()));
    first.ok_or_else(|| OperatorError::NoPolicy(examined.node.name.clone()))
}

/// Cancels the incident of the node's present incarnation: no new attempt begins.
///
/// # Errors
/// There is no incident, or it could not be written.
pub async fn cancel_fence(connection: &Connection, node: &Incarnation) -> Result<String, OperatorError> {
    let name = incident_name(node);
    let body = json!({ "spec": { "cancelled": true } });
    merge(connection, group_path(&format!("nodefences/{name}")), &body, "NodeFence", node).await?;
    Ok(name)
}

#[cfg(test)]
mod tests;
