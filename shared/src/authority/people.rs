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

pub use devices::{Device, ask_to_test, devices, tested};
pub use drill::{Drill, incident, rehearse, supposed, tidy_up};
pub use maintain::{
    DRAIN_IN_PROGRESS, DRAINED, Lifecycle, MAINTENANCE_IN_PROGRESS, ask_to_keep_off, is_being_fenced,
    keep_off, kept_off, report,
};
pub use pause::{Scope, pause, paused, resume};
pub use watchdog::{Promise, Watchdog, has_passed, promise, revoke};

pub use pod_safety_fence::requests;

use pod_safety_fence::incident_name;
use pod_safety_fence::witness::{look, nonsense};
use pod_safety_proof::Look;

use super::access::{Right, may};
use crate::api::{
    FenceEvidenceSpec, FenceEvidenceStatus, FencePolicySpec, FencePolicyStatus, FenceTrigger, GROUP,
    Incarnation, KindOfEvidence, NodeFenceSpec, Trigger, group_path, object,
};
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::clock::Env;
use crate::wire;

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum PeopleError {
    /// There is no such node.
    #[error("there is no node {0}")]
    NoNode(String),
    /// Its kubelet says that it is well.
    #[error("node {0} is Ready: its kubelet reports. Nothing was changed")]
    Ready(String),
    /// Its kubelet renewed its Lease while it was examined.
    #[error("the kubelet of node {0} renewed its Lease just now: it is not off. Nothing was changed")]
    Heard(String),
    /// It does not say which boot it is in.
    #[error(
        "node {0} has no UUID in status.nodeInfo.bootID, so a confirmation about this boot could not be told from one about the next"
    )]
    NoBootId(String),
    /// It is in that life.
    #[error(
        "the Node {0} that is there now has that UID. To confirm that its present boot is off, leave out --uid and --boot. Nothing was changed"
    )]
    PresentLife(String),
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
    There {
        /// The kind.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// There is nothing to take back.
    #[error("there is no {kind} about the present boot of node {node}")]
    Nothing {
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

pub(super) fn api(doing: &'static str) -> impl FnOnce(ApiError) -> PeopleError {
    move |source| PeopleError::Api { doing, source }
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
pub async fn examine(connection: &Connection, env: &Env, name: &str) -> Result<Examined, PeopleError> {
    let Look { node, lease, .. } = look(connection, env, name).await.map_err(api("reading the node"))?;
    let node = node.ok_or_else(|| PeopleError::NoNode(name.to_owned()))?;
    let (ready, cordoned) = (node.is_ready(), node.is_cordoned());
    let life = node.incarnation().clone();
    if life.boot_id.is_empty() {
        return Err(PeopleError::NoBootId(name.to_owned()));
    }
    let renewed = lease.renewed().map_err(nonsense).map_err(api("reading the node's Lease"))?;
    let labels = node.labels().clone();
    Ok(Examined { node: life, labels, ready, cordoned, renewed: renewed.map(|time| time.to_string()) })
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
) -> Result<Examined, PeopleError> {
    let name = former.name.clone();
    let Look { node, .. } = look(connection, env, &name).await.map_err(api("reading the node"))?;
    let node = node.ok_or_else(|| PeopleError::NoNode(name.clone()))?;
    if node.incarnation().uid == former.uid {
        return Err(PeopleError::PresentLife(name));
    }
    if !former.boot().differs(node.incarnation().boot()) {
        return Err(PeopleError::NotBooted(name));
    }
    let (labels, ready, cordoned) = (node.labels().clone(), node.is_ready(), node.is_cordoned());
    // The Lease is that of the present life.
    Ok(Examined { node: former, labels, ready, cordoned, renewed: None })
}

/// Waits for as long as a living kubelet takes to renew its Lease, and looks again.
///
/// # Errors
/// It is heard, or began another life.
pub async fn listen(
    connection: &Connection,
    env: &Env,
    examined: &Examined,
    listen_for: Duration,
) -> Result<(), PeopleError> {
    let name = &examined.node.name;
    if examined.ready {
        return Err(PeopleError::Ready(name.clone()));
    }
    env.sleep(listen_for).await;
    let again = examine(connection, env, name).await?;
    if again.ready {
        return Err(PeopleError::Ready(name.clone()));
    }
    let same = again.renewed == examined.renewed && again.node == examined.node;
    if same { Ok(()) } else { Err(PeopleError::Heard(name.clone())) }
}

/// Who the API server takes us for.
///
/// # Errors
/// It does not say.
pub async fn whoami(connection: &Connection) -> Result<String, PeopleError> {
    let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let call = Call::write(Method::Post, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &body);
    let answer = connection.send(call).await.and_then(|raw| raw.whole().map_err(ApiError::Undecodable));
    let answer = answer.map_err(api("asking who you are"))?;
    let user = answer.pointer("/status/userInfo/username").and_then(serde_json::Value::as_str);
    Ok(user.unwrap_or("unknown").to_owned())
}

/// Whether a confirmation would be taken: the kind is there, and we may write it. Asked before a person waits and types.
///
/// # Errors
/// It would not.
pub async fn may_confirm(connection: &Connection) -> Result<(), PeopleError> {
    const DOING: &str = "writing a FenceEvidence";
    connection
        .items(&group_path("fenceevidences?limit=1"))
        .await
        .map_err(api("reading the FenceEvidences"))?;
    let right = Right {
        verb: "create".to_owned(),
        group: GROUP.to_owned(),
        resource: "fenceevidences".to_owned(),
        ..Right::default()
    };
    if may(connection, None, &right).await.map_err(api("asking who may do what"))? {
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
) -> Result<String, PeopleError> {
    let name = metadata["name"].as_str().unwrap_or_default().to_owned();
    let body = object(kind, metadata, spec);
    match connection.send(Call::write(Method::Post, group_path(plural), &body)).await {
        Ok(answer) => {
            let only = answer.decode::<wire::OnlyMeta>().ok().and_then(|only| only.metadata);
            Ok(only.and_then(|meta| meta.name).unwrap_or(name))
        }
        Err(error) if error.is_changed() => Err(PeopleError::There { kind: plural, name }),
        Err(source) => Err(PeopleError::Api { doing: "writing it", source }),
    }
}

/// What a person says of a node that is off.
#[derive(Clone, Copy, Debug)]
pub struct Word<'a> {
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
    word: Word<'_>,
) -> Result<String, PeopleError> {
    let Word { by, reason, valid_for, power_on } = word;
    let spec = FenceEvidenceSpec {
        node: examined.node.clone(),
        kind: KindOfEvidence::Asserted,
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
struct Proofs {
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
) -> Result<Vec<String>, PeopleError> {
    let all: Proofs = list(connection, "fenceevidences", "reading the FenceEvidences").await?;
    let about = |proof: &wire::Custom<FenceEvidenceSpec, FenceEvidenceStatus>| {
        let holds = proof.status.as_ref().is_none_or(|status| status.invalidated.is_none());
        holds && proof.spec.node == *node
    };
    let names: Vec<_> =
        all.items.into_iter().filter(about).filter_map(|proof| proof.metadata.common.name).collect();
    if names.is_empty() {
        return Err(PeopleError::Nothing { kind: "FenceEvidence", node: node.name.clone() });
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
) -> Result<T, PeopleError> {
    let mut items = Vec::new();
    connection.each(&group_path(plural), &mut |item| items.push(item)).await.map_err(api(doing))?;
    serde_json::from_value(json!({ "items": items })).map_err(|error| PeopleError::Api {
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
) -> Result<(), PeopleError> {
    match connection.send(Call::write(Method::Merge, path, body)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Err(PeopleError::Nothing { kind, node: node.name.clone() }),
        Err(source) => Err(PeopleError::Api { doing: "writing it", source }),
    }
}

/// Asks for the node to be fenced. Gives back the name of the NodeFence.
///
/// # Errors
/// No policy chooses the node, it is asked for already, or it could not be written.
pub async fn ask_to_fence(
    connection: &Connection,
    examined: &Examined,
    by: &str,
    reason: &str,
) -> Result<String, PeopleError> {
    ask_to_fence_with(connection, examined, by, reason, |_| ()).await
}

async fn ask_to_fence_with(
    connection: &Connection,
    examined: &Examined,
    by: &str,
    reason: &str,
    change: impl FnOnce(&mut NodeFenceSpec),
) -> Result<String, PeopleError> {
    let trigger = FenceTrigger {
        kind: Trigger::Person,
        reason: reason.to_owned(),
        by: Some(by.to_owned()),
        condition: None,
    };
    let mut spec = asked_for(connection, examined, trigger, false).await?;
    change(&mut spec);
    let name = incident_name(&examined.node);
    create(connection, "NodeFence", "nodefences", json!({ "name": name }), &spec).await
}

async fn asked_for(
    connection: &Connection,
    examined: &Examined,
    trigger: FenceTrigger,
    dry_run: bool,
) -> Result<NodeFenceSpec, PeopleError> {
    let (policy, _) = chosen(connection, examined).await?;
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
pub async fn policy(connection: &Connection, examined: &Examined) -> Result<FencePolicySpec, PeopleError> {
    chosen(connection, examined).await.map(|(_, spec)| spec)
}

async fn chosen(
    connection: &Connection,
    examined: &Examined,
) -> Result<(String, FencePolicySpec), PeopleError> {
    const DOING: &str = "reading the FencePolicies";
    let all: Policies = list(connection, "fencepolicies", DOING).await?;
    let chosen = all.items.into_iter().filter(|policy| policy.spec.node_selector.chooses(&examined.labels));
    let named = chosen.filter_map(|policy| Some((policy.metadata.common.name?, policy.spec)));
    let first = named.min_by_key(|(name, spec)| (std::cmp::Reverse(spec.priority), name.clone()));
    first.ok_or_else(|| PeopleError::NoPolicy(examined.node.name.clone()))
}

/// Has no new attempt begun against the node's present life.
///
/// # Errors
/// There is no incident, or it could not be written.
pub async fn cancel(connection: &Connection, node: &Incarnation) -> Result<String, PeopleError> {
    let name = incident_name(node);
    let body = json!({ "spec": { "cancelled": true } });
    merge(connection, group_path(&format!("nodefences/{name}")), &body, "NodeFence", node).await?;
    Ok(name)
}

#[cfg(test)]
mod tests;
