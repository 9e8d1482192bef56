//! What people say about nodes: that one is off, that it is not, that it should be fenced.
//!
//! Danger note: [`confirm`] makes evidence of a person's word, and pods are force deleted by it. It is written about the
//! incarnation that was examined, in the name that the API server knows the person by, and never while a kubelet
//! speaks. What the API server lets whom write is RBAC's: the right to create FenceEvidences is the right to confirm.

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
    FenceEvidenceKind, FenceEvidenceSpec, FenceEvidenceStatus, FencePolicySpec, FencePolicyStatus,
    FenceTrigger, GROUP, Incarnation, NodeFenceSpec, Trigger, group_path, new_object,
};
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::clock::Env;
use crate::wire;

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// There is no such node.
    #[error("there is no node {0}")]
    NoNode(String),
    /// Its kubelet says that it is well.
    #[error("node {0} is Ready: its kubelet reports. Nothing was changed")]
    Ready(String),
    /// Its kubelet renewed its Lease while it was examined.
    #[error("the kubelet of node {0} renewed its Lease just now: it is not off. Nothing was changed")]
    LeaseRenewed(String),
    /// It does not say which boot it is in.
    #[error(
        "node {0} has no UUID in status.nodeInfo.bootID, so a confirmation about this boot could not be told from one about the next"
    )]
    NoBootId(String),
    /// It is in that life.
    #[error(
        "the Node {0} that is there now has that UID. To confirm that its present boot is off, leave out --uid and --boot. Nothing was changed"
    )]
    PresentIncarnation(String),
    /// It has not booted since, as far as it says.
    #[error(
        "node {0} reports that boot ID, or none that is a UUID, so that boot may still run. Nothing was changed"
    )]
    NotBooted(String),
    /// Nobody said how to fence it.
    #[error("no FencePolicy selects node {0}; create one with a nodeSelector that does")]
    NoPolicy(String),
    /// It is there already.
    #[error("{kind} {name} exists already; see kubectl get {kind} {name} -o yaml")]
    AlreadyExists {
        /// The kind.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// There is nothing to take back.
    #[error("there is no {kind} about the present boot of node {node}")]
    NoneFound {
        /// The kind.
        kind: &'static str,
        /// The node.
        node: String,
    },
    /// No such device.
    #[error("there is no FenceDevice {0}")]
    NoDevice(String),
    /// No such policy.
    #[error("there is no FencePolicy {0}")]
    NoSuchPolicy(String),
    /// Somebody had it pause before.
    #[error("{object} is already paused: {why}. Nothing was changed")]
    Paused {
        /// What pauses.
        object: String,
        /// What he wrote there.
        why: String,
    },
    /// It does not pause.
    #[error("{object} is not paused")]
    NotPaused {
        /// What.
        object: String,
    },
    /// The reason is too long for its place.
    #[error("--reason is {over} characters too long")]
    TooLong {
        /// By how many.
        over: usize,
    },
    /// Somebody else wrote to it in between.
    #[error("{object} changed just now, so nothing was written. Check it, and run the command again")]
    Changed {
        /// What.
        object: String,
    },
    /// A request failed.
    #[error("{doing}")]
    Api {
        /// What was tried.
        doing: &'static str,
        /// How it failed.
        source: ApiError,
    },
}

pub(super) fn api(doing: &'static str) -> impl FnOnce(ApiError) -> OperatorError {
    move |source| OperatorError::Api { doing, source }
}

/// A node, as it was found.
#[derive(Clone, Debug)]
pub struct Examined {
    /// Which life of it.
    pub node: Incarnation,
    /// Its labels.
    pub labels: std::collections::BTreeMap<String, String>,
    /// It says that it is Ready.
    pub ready: bool,
    /// It is cordoned.
    pub cordoned: bool,
    /// When its Lease was last renewed, by its kubelet's clock.
    pub renewed: Option<String>,
}

/// Reads a node and its Lease by quorum.
///
/// # Errors
/// It is not there, or says too little of itself.
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

/// Reads a node by quorum, of which a former life is spoken of: another Node with another boot has its name now, whether it is Ready
/// or not.
///
/// # Errors
/// That life may be the present one.
pub async fn examine_former(
    connection: &Connection,
    env: &Env,
    former: Incarnation,
) -> Result<Examined, OperatorError> {
    let name = former.name.clone();
    let QuorumRead { node, .. } =
        read_node_and_lease(connection, env, &name).await.map_err(api("reading the node"))?;
    let node = node.ok_or_else(|| OperatorError::NoNode(name.clone()))?;
    if node.incarnation().uid == former.uid {
        return Err(OperatorError::PresentIncarnation(name));
    }
    if !former.boot().is_known_different(node.incarnation().boot()) {
        return Err(OperatorError::NotBooted(name));
    }
    let (labels, ready, cordoned) = (node.labels().clone(), node.is_ready(), node.is_cordoned());
    // The Lease is that of the present life.
    Ok(Examined { node: former, labels, ready, cordoned, renewed: None })
}

/// Waits for as long as a living kubelet takes to renew its Lease, and looks again.
///
/// # Errors
/// It is heard, or began another life.
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

/// Who the API server takes us for.
///
/// # Errors
/// It does not say.
pub async fn whoami(connection: &Connection) -> Result<String, OperatorError> {
    let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let call = Call::write(Method::Post, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &body);
    let answer = connection.send(call).await.and_then(|raw| raw.to_json().map_err(ApiError::Undecodable));
    let answer = answer.map_err(api("asking who you are"))?;
    let user = answer.pointer("/status/userInfo/username").and_then(serde_json::Value::as_str);
    Ok(user.unwrap_or("unknown").to_owned())
}

/// Whether a confirmation would be taken: the kind is there, and we may write it. Asked before a person waits and types.
///
/// # Errors
/// It would not.
pub async fn check_may_confirm(connection: &Connection) -> Result<(), OperatorError> {
    const DOING: &str = "writing a FenceEvidence";
    connection
        .list_items(&group_path("fenceevidences?limit=1"))
        .await
        .map_err(api("reading the FenceEvidences"))?;
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

/// What a person says of a node that is off.
#[derive(Clone, Copy, Debug)]
pub struct Confirmation<'a> {
    /// Who says so.
    pub by: &'a str,
    /// Why.
    pub reason: &'a str,
    /// For how long pods are released by it.
    pub valid_for: Duration,
    /// The machine may be switched on again, if its FencePolicy says so. Without it nobody's hands are at risk.
    pub power_on: bool,
}

/// Writes down that a person says that the node is off. Gives back the name of the evidence: each has its own, for what was
/// withdrawn may be said again.
///
/// # Errors
/// It could not be written.
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
        // A clock of more seconds than that the API server refuses.
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

/// Takes back what is said or was found of the node's present life. Gives back the names of that evidence.
///
/// # Errors
/// There is nothing, or it could not be written.
pub async fn withdraw(
    connection: &Connection,
    env: &Env,
    node: &Incarnation,
    reason: &str,
) -> Result<Vec<String>, OperatorError> {
    let all: Evidences = list(connection, "fenceevidences", "reading the FenceEvidences").await?;
    let about = |proof: &wire::Custom<FenceEvidenceSpec, FenceEvidenceStatus>| {
        let holds = proof.status.as_ref().is_none_or(|status| status.invalidated.is_none());
        holds && proof.spec.node == *node
    };
    let names: Vec<_> =
        all.items.into_iter().filter(about).filter_map(|proof| proof.metadata.common.name).collect();
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
    serde_json::from_value(json!({ "items": items })).map_err(|error| OperatorError::Api {
        doing,
        source: ApiError::Undecodable(wire::WireError::Json(error)),
    })
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

/// Asks for the node to be fenced. Gives back the name of the NodeFence.
///
/// # Errors
/// No policy chooses the node, it is asked for already, or it could not be written.
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
    let trigger = FenceTrigger {
        kind: Trigger::Person,
        reason: reason.to_owned(),
        by: Some(by.to_owned()),
        condition: None,
    };
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
    Ok(NodeFenceSpec {
        node: examined.node.clone(),
        policy,
        trigger,
        dry_run,
        cancelled: false,
        keep_off: false,
    })
}

#[derive(serde::Deserialize)]
struct Policies {
    items: Vec<wire::Custom<FencePolicySpec, FencePolicyStatus>>,
}

/// The policy by which a node is fenced, as the controller chooses ([`crate::cache::View::policy_of`]).
///
/// # Errors
/// None chooses it, or they could not be read.
pub async fn read_policy(
    connection: &Connection,
    examined: &Examined,
) -> Result<FencePolicySpec, OperatorError> {
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

/// Has no new attempt begun against the node's present life.
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
