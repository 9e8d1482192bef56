//! The write of a node: it is read, compared, and written in at most two requests.

use std::fmt;

use pod_safety_fence::quorum_read::{decode_lease, lease_call};
use pod_safety_leader::outcome::RequestError;
use pod_safety_leader::send::WriteContext;
use pod_safety_proof::{EvidenceKind, WholeNode};
use serde_json::json;

use super::super::outcome::UpdateOutcome;
use super::live::Live;
use super::{Effect, ManagedTaint, NodeUpdate, conditions, taints};
use crate::client::{ApiError, Call, Method, WriteCall as _};
use crate::wire::Raw;

/// The changes that were made before the write ended. The status may be written although the taints and labels were not:
/// the next decision then requests what is missing.
#[derive(Debug, Default)]
pub(in crate::authority) struct NodeChanges {
    /// The conditions of the kubelet became Unknown.
    pub(in crate::authority) set_unknown: bool,
    /// The new status of the condition `pod-safety.dev/NodeUnreachable`.
    pub(in crate::authority) unreachable: Option<bool>,
    pub(in crate::authority) added: Vec<ManagedTaint>,
    pub(in crate::authority) removed: Vec<ManagedTaint>,
    pub(in crate::authority) labels: Vec<String>,
    /// For the revocation of a volume's Lease: the evidence that its holder has ended.
    pub(in crate::authority) evidence: Option<EvidenceKind>,
    /// For an eviction: the API server's answer.
    pub(in crate::authority) message: Option<String>,
    /// The node was Ready until this process set its conditions to Unknown. Only then an Event is emitted.
    pub(in crate::authority) turned_not_ready: bool,
}

impl NodeChanges {
    /// Whether nothing was changed.
    pub(in crate::authority) fn is_empty(&self) -> bool {
        let Self { set_unknown, unreachable, added, removed, labels, turned_not_ready: _, evidence: _, message: _ } =
            self;
        !set_unknown && unreachable.is_none() && added.is_empty() && removed.is_empty() && labels.is_empty()
    }

    /// The reason, as one CamelCase word.
    pub(in crate::authority) fn reason(&self) -> &'static str {
        if self.set_unknown {
            "KubeletNotReporting"
        } else if !self.added.is_empty() || !self.removed.is_empty() {
            "Taints"
        } else if self.unreachable.is_some() {
            "NodeUnreachable"
        } else {
            "Labels"
        }
    }
}

impl fmt::Display for NodeChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taints = |taints: &[ManagedTaint]| {
            let taints = taints.iter().map(|(key, effect)| format!("{key}:{}", Effect::name(*effect)));
            taints.collect::<Vec<_>>().join(", ")
        };
        let mut parts = Vec::new();
        if self.set_unknown {
            parts.push("Ready and the pressures are Unknown".to_owned());
        }
        if let Some(unreachable) = self.unreachable {
            parts.push(format!("NodeUnreachable is {}", if unreachable { "True" } else { "False" }));
        }
        if !self.added.is_empty() {
            parts.push(format!("added {}", taints(&self.added)));
        }
        if !self.removed.is_empty() {
            parts.push(format!("removed {}", taints(&self.removed)));
        }
        if !self.labels.is_empty() {
            parts.push(format!("labelled with {}", self.labels.join(", ")));
        }
        f.write_str(&parts.join("; "))
    }
}

/// Executes an update. Returns the outcome, and the changes that were made.
pub(super) async fn write(writer: &WriteContext<'_>, update: &NodeUpdate) -> (UpdateOutcome, NodeChanges) {
    let mut done = NodeChanges::default();
    let outcome = match carry_out(writer, update, &mut done).await {
        Ok(outcome) | Err(outcome) => outcome,
    };
    (outcome, done)
}

async fn carry_out(
    writer: &WriteContext<'_>,
    update: &NodeUpdate,
    done: &mut NodeChanges,
) -> Result<UpdateOutcome, UpdateOutcome> {
    let read = read_node(writer, update).await?;
    let version = read.version().to_owned();
    let live = write_status(writer, update, read, done).await?;
    write_rest(writer, update, &live, done).await?;
    Ok(match (done.is_empty(), version == update.rv.to_string()) {
        (false, _) => UpdateOutcome::Written,
        // The node has all changes already. If its version differs, the cache is behind; if not, no write will ever change
        // anything.
        (true, false) => RequestError::Changed.into(),
        (true, true) => UpdateOutcome::NoEffect,
    })
}

/// Reads the node by quorum, and checks that it is as the decision found it.
async fn read_node(writer: &WriteContext<'_>, update: &NodeUpdate) -> Result<Live, UpdateOutcome> {
    let node = writer.query(Call::get(path(update)).all_fields());
    let Some(not_reporting) = &update.not_reporting else {
        let live = check_uid(node.await?, update)?;
        let same = live.confirms(update, writer.cache, writer.env.now());
        return if same { Ok(live) } else { Err(RequestError::Changed.into()) };
    };
    let (node, lease) = futures::future::join(node, writer.query(lease_call(&update.node.name))).await;
    let (live, lease) = (check_uid(node?, update)?, decode_lease(lease?).map_err(RequestError::Failed)?);
    // The decision rests on this comparison, not on the version: other clients write to an unreachable node, too, for
    // instance which volumes are attached to it.
    match live.has_reported(not_reporting, &lease) {
        Ok(false) => Ok(live),
        Ok(true) => Err(UpdateOutcome::Heard),
        Err(error) => Err(RequestError::Failed(error).into()),
    }
}

/// Checks that the answer is the node that the decision is about.
fn check_uid(answer: Result<Raw, ApiError>, update: &NodeUpdate) -> Result<Live, RequestError> {
    let live = read(answer.map_err(RequestError::from_error)?)?;
    if live.meta("uid") == Some(&*update.node.uid.to_string()) { Ok(live) } else { Err(RequestError::Gone) }
}

async fn write_status(
    writer: &WriteContext<'_>,
    update: &NodeUpdate,
    live: Live,
    done: &mut NodeChanges,
) -> Result<Live, UpdateOutcome> {
    let change = conditions::change(update, &live, writer.env.now(), writer.env.clock.wall());
    if change.conditions.is_empty() {
        return Ok(live);
    }
    let body = json!({
        "metadata": { "uid": update.node.uid, "resourceVersion": live.version() },
        "status": { "conditions": change.conditions },
    });
    let call = Call::write(Method::Patch, format!("{}/status", path(update)), &body);
    let answer = read(writer.send(call, None).await?)?;
    // If a webhook undid the change of the conditions, the taints are not added.
    let unknown = answer.condition_status("Ready") == Some(conditions::UNKNOWN);
    if answer.version() == live.version() || (change.sets_unknown && !unknown) {
        return Err(UpdateOutcome::NoEffect);
    }
    (done.set_unknown, done.unreachable) = (change.sets_unknown, change.unreachable);
    done.turned_not_ready = change.turned_not_ready;
    Ok(answer)
}

async fn write_rest(
    writer: &WriteContext<'_>,
    update: &NodeUpdate,
    live: &Live,
    done: &mut NodeChanges,
) -> Result<(), UpdateOutcome> {
    let Some(change) = taints::change(update, live, writer.env.clock.wall()) else { return Ok(()) };
    let taints::Change { labels, taints, added, removed } = change;
    let named = labels.keys().cloned().collect();
    let mut body = json!({ "metadata": { "uid": update.node.uid, "resourceVersion": live.version() } });
    if !labels.is_empty() {
        body["metadata"]["labels"] = labels.into();
    }
    if let Some(taints) = taints {
        body["spec"] = json!({ "taints": taints });
    }
    // The guard reads the bytes: a list that keeps an out-of-service taint needs a permit.
    let kept = WholeNode::new(&update.node.name, live.whole()).permit_kept_taints(body.clone());
    let call = kept.map_or_else(|| Call::write(Method::Patch, path(update), &body), Call::permitted);
    let answer = Live::read(writer.send(call, None).await?);
    if answer.is_ok_and(|answer| answer.version() == live.version()) {
        return Err(UpdateOutcome::NoEffect);
    }
    (done.added, done.removed, done.labels) = (added, removed, named);
    Ok(())
}

fn read(raw: Raw) -> Result<Live, RequestError> {
    Live::read(raw).map_err(RequestError::Failed)
}

fn path(update: &NodeUpdate) -> String {
    format!("/api/v1/nodes/{}", update.node.name)
}
