//! The Lease by which medik8s' operators exclude each other from a node: acquired before a machine is switched off,
//! released when the incident is over.
//!
//! It is cooperative, and no lock: without the permission, or without the namespace, fencing goes on without it. Only
//! the NodeFence ensures that no other replica fences the node.

use serde_json::{Value, json};

use super::{StepContext, Target};
use crate::api::Trigger;
use crate::client::{ApiError, Call, Method, WriteCall as _};
use crate::outcome::Outcome;
use crate::wire::{Lease, ObjectMeta};

const NAMESPACE: &str = "medik8s-leases";
/// The holder, whichever replica leads: the incident goes on when another replica takes over.
const HOLDER: &str = "pod-safety";
/// An unreleased Lease expires after this: longer than an attempt and its status checks.
const LEASE_SECONDS: u32 = 600;

pub(super) fn lease_path(node: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/node-{node}")
}

/// Whether the permission was granted. Without it the Lease is not requested: each refusal would be logged as a fault
/// by the API server's audit.
async fn has_permission(context: &StepContext<'_>) -> bool {
    let attributes =
        json!({ "namespace": NAMESPACE, "verb": "create", "group": "coordination.k8s.io", "resource": "leases" });
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": attributes },
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = context.send(Call::write(Method::Post, path, &body)).await;
    let allowed = answer.ok().and_then(|raw| raw.to_json().ok());
    allowed.is_some_and(|answer| answer.pointer("/status/allowed") == Some(&Value::Bool(true)))
}

async fn read_lease(context: &StepContext<'_>, node: &str) -> Result<Option<Lease>, Outcome> {
    match context.send(Call::get(lease_path(node))).await {
        Ok(raw) => raw.decode().map(Some).map_err(|error| Outcome::Failed(ApiError::Undecodable(error))),
        Err(Outcome::Gone) => Ok(None),
        Err(outcome) => Err(outcome),
    }
}

/// Another holder, unless its Lease has expired by the wall clocks: a cooperative Lease needs no more.
fn other_holder(lease: &Lease, now: i64) -> Option<String> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty() && *holder != HOLDER)?;
    let renewed = spec.renew_time.map_or(0, crate::wire::Time::whole_seconds);
    let ends = renewed.saturating_add(spec.lease_duration_seconds.unwrap_or(0).into());
    (now < ends).then(|| holder.to_owned())
}

fn body(meta: Option<&ObjectMeta>, now: &str) -> Value {
    let mut body = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {},
        "spec": { "holderIdentity": HOLDER, "leaseDurationSeconds": LEASE_SECONDS, "acquireTime": now, "renewTime": now },
    });
    if let Some(meta) = meta {
        body["metadata"] = json!({ "uid": meta.uid, "resourceVersion": meta.resource_version });
    }
    body
}

/// Acquires the Lease. `Some`: another holder has it. The operator that requested fencing by a PodSafetyRemediation
/// holds the Lease itself: that counts as ours.
pub(super) async fn acquire(context: &StepContext<'_>, target: &Target) -> Result<Option<String>, Outcome> {
    if !has_permission(context).await {
        return Ok(None);
    }
    let node = &target.spec.node.name;
    let wall = context.env.clock.wall();
    let now = format!("{wall:.6}");
    let existing = read_lease(context, node).await?;
    if let Some(holder) = existing.as_ref().and_then(|lease| other_holder(lease, wall.as_second())) {
        return Ok(Some(holder).filter(|_| target.spec.trigger.kind != Trigger::External));
    }
    let (collection, _) =
        lease_path(node).rsplit_once('/').map(|(all, one)| (all.to_owned(), one.to_owned())).unwrap_or_default();
    let call = match existing.and_then(|lease| lease.metadata) {
        Some(meta) => Call::write(Method::Merge, lease_path(node), &body(Some(&meta), &now)),
        None => {
            let mut new = body(None, &now);
            new["metadata"] = json!({ "name": format!("node-{node}"), "namespace": NAMESPACE });
            Call::write(Method::Post, collection, &new)
        }
    };
    match context.send(call).await {
        // The namespace does not exist.
        Ok(_) | Err(Outcome::Gone) => Ok(None),
        Err(outcome) => Err(outcome),
    }
}

/// Deletes the Lease, if pod-safety holds it.
pub(super) async fn release(context: &StepContext<'_>, node: &str) -> Result<(), Outcome> {
    if !has_permission(context).await {
        return Ok(());
    }
    let Some(Lease { metadata: Some(meta), spec: Some(spec) }) = read_lease(context, node).await? else {
        return Ok(());
    };
    if spec.holder_identity.as_deref() != Some(HOLDER) {
        return Ok(());
    }
    let body = json!({ "preconditions": { "uid": meta.uid, "resourceVersion": meta.resource_version } });
    match context.send(Call::write(Method::Delete, lease_path(node), &body)).await {
        Ok(_) | Err(Outcome::Gone | Outcome::Changed) => Ok(()),
        Err(outcome) => Err(outcome),
    }
}
