//! The Lease by which medik8s' operators keep out of each other's way at a node: taken before a machine is switched off,
//! given back when the incident is over.
//!
//! A courtesy, not a lock: where we have no right to it, or there is no such namespace, it is done without. That nobody
//! else fences a node rests on the NodeFence.

use serde_json::{Value, json};

use super::{Acting, Target};
use crate::api::Trigger;
use crate::client::{ApiError, Call, Method, WriteCall as _};
use crate::outcome::Outcome;
use crate::wire::{Lease, ObjectMeta};

const NAMESPACE: &str = "medik8s-leases";
/// Whoever leads: the incident goes on when another process does.
const HOLDER: &str = "pod-safety";
/// If nobody gives it back, it is over after this: longer than an attempt and its looks.
const SECONDS: u32 = 600;

pub(super) fn path(node: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/node-{node}")
}

/// Whether somebody gave us the right. Without it nothing is asked: each refusal would look like a fault to auditors.
async fn is_ours_to_take(acting: &Acting<'_>) -> bool {
    let wanted = json!({ "namespace": NAMESPACE, "verb": "create", "group": "coordination.k8s.io", "resource": "leases" });
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": wanted },
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = acting.send(Call::write(Method::Post, path, &body)).await;
    let allowed = answer.ok().and_then(|raw| raw.whole().ok());
    allowed.is_some_and(|answer| answer.pointer("/status/allowed") == Some(&Value::Bool(true)))
}

async fn read(acting: &Acting<'_>, node: &str) -> Result<Option<Lease>, Outcome> {
    match acting.send(Call::get(path(node))).await {
        Ok(raw) => raw.decode().map(Some).map_err(|error| Outcome::Failed(ApiError::Undecodable(error))),
        Err(Outcome::Gone) => Ok(None),
        Err(outcome) => Err(outcome),
    }
}

/// Who else has it, unless that is over, by the clocks of this world: a courtesy is no more exact.
fn other(lease: &Lease, now: i64) -> Option<String> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty() && *holder != HOLDER)?;
    let renewed = spec.renew_time.map_or(0, crate::wire::Time::whole_seconds);
    let ends = renewed.saturating_add(spec.lease_duration_seconds.unwrap_or(0).into());
    (now < ends).then(|| holder.to_owned())
}

fn body(meta: Option<&ObjectMeta>, now: &str) -> Value {
    let mut body = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {},
        "spec": { "holderIdentity": HOLDER, "leaseDurationSeconds": SECONDS, "acquireTime": now, "renewTime": now },
    });
    if let Some(meta) = meta {
        body["metadata"] = json!({ "uid": meta.uid, "resourceVersion": meta.resource_version });
    }
    body
}

/// Takes it. `Some`: who else has it. Whoever asked us by a remediation has it himself: then it is as good as ours.
pub(super) async fn take(acting: &Acting<'_>, target: &Target) -> Result<Option<String>, Outcome> {
    if !is_ours_to_take(acting).await {
        return Ok(None);
    }
    let node = &target.spec.node.name;
    let wall = acting.env.clock.wall();
    let now = format!("{wall:.6}");
    let there = read(acting, node).await?;
    if let Some(holder) = there.as_ref().and_then(|lease| other(lease, wall.as_second())) {
        return Ok(Some(holder).filter(|_| target.spec.trigger.kind != Trigger::External));
    }
    let (collection, _) =
        path(node).rsplit_once('/').map(|(all, one)| (all.to_owned(), one.to_owned())).unwrap_or_default();
    let call = match there.and_then(|lease| lease.metadata) {
        Some(meta) => Call::write(Method::Merge, path(node), &body(Some(&meta), &now)),
        None => {
            let mut new = body(None, &now);
            new["metadata"] = json!({ "name": format!("node-{node}"), "namespace": NAMESPACE });
            Call::write(Method::Post, collection, &new)
        }
    };
    match acting.send(call).await {
        // There is no such namespace.
        Ok(_) | Err(Outcome::Gone) => Ok(None),
        Err(outcome) => Err(outcome),
    }
}

/// Gives it back, if we have it.
pub(super) async fn give_back(acting: &Acting<'_>, node: &str) -> Result<(), Outcome> {
    if !is_ours_to_take(acting).await {
        return Ok(());
    }
    let Some(Lease { metadata: Some(meta), spec: Some(spec) }) = read(acting, node).await? else {
        return Ok(());
    };
    if spec.holder_identity.as_deref() != Some(HOLDER) {
        return Ok(());
    }
    let body = json!({ "preconditions": { "uid": meta.uid, "resourceVersion": meta.resource_version } });
    match acting.send(Call::write(Method::Delete, path(node), &body)).await {
        Ok(_) | Err(Outcome::Gone | Outcome::Changed) => Ok(()),
        Err(outcome) => Err(outcome),
    }
}
