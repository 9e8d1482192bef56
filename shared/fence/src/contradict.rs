//! What follows when a node that was proved off reports: its evidence is invalidated, and its devices are no longer
//! trusted.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::incident::{act_of, write_fence_status};
use super::orders::device_path;
use super::taint::{self, RemovalReason};
use super::{StepContext, Target};
use crate::api::{Attempt, Condition, DeviceRef, FenceDeviceStatus, group_path};
use crate::client::{ApiError, Call, Method, WriteCall as _};
use crate::outcome::Outcome;
use crate::transport::Act;

/// The evidence is wrong. First it is invalidated, so that nothing follows from it; then the devices, the taint and
/// the status are written.
pub(super) async fn contradict(context: &StepContext<'_>, target: &Target) -> Result<(), Outcome> {
    let at = format!("{:.0}", context.env.clock.wall());
    let why = target.status.message.clone();
    if let Some(evidence) = &target.status.evidence {
        invalidate(context, evidence, &why, &at).await?;
    }
    // The devices that reported off. Devices of a level that failed before reported the truth, or nothing.
    let reported_off = |attempt: &&Attempt| act_of(attempt) == Act::Off && attempt.has_ended_workloads();
    let devices = target.status.attempts.iter().filter(reported_off);
    let devices: BTreeSet<_> = devices.flat_map(|attempt| &attempt.devices).collect();
    for device in devices {
        distrust(context, device, &why, &at).await?;
    }
    // The taint stays where other evidence about this incarnation holds: the incident goes on with that evidence.
    if !target.status.tainted {
        taint::remove(context, &target.spec.node, &target.fence.name, RemovalReason::EvidenceInvalid).await?;
    }
    write_fence_status(context, target, target.fence.rv, &target.status).await.map(drop)
}

/// Reads an object with all of its fields; `None`: it is gone.
async fn read_object(context: &StepContext<'_>, path: String) -> Result<Option<Value>, Outcome> {
    match context.send(Call::get(path).all_fields()).await {
        Err(Outcome::Gone) => Ok(None),
        read => {
            let whole = read?.to_json().map_err(|error| Outcome::Failed(ApiError::Undecodable(error)))?;
            Ok(Some(whole))
        }
    }
}

/// The UID and the resourceVersion of the object as it was read.
fn preconditions(object: &Value) -> Value {
    json!({ "uid": object.pointer("/metadata/uid"),
        "resourceVersion": object.pointer("/metadata/resourceVersion") })
}

/// Declares evidence invalid. If it already is, the first reason stays.
pub(super) async fn invalidate(context: &StepContext<'_>, evidence: &str, why: &str, at: &str) -> Result<(), Outcome> {
    let path = group_path(&format!("fenceevidences/{evidence}"));
    let Some(existing) = read_object(context, path.clone()).await? else { return Ok(()) };
    if existing.pointer("/status/invalidated").is_some_and(Value::is_object) {
        return Ok(());
    }
    let invalidated = json!({ "at": at, "reason": why });
    let body = json!({ "metadata": preconditions(&existing), "status": { "invalidated": invalidated } });
    match context.send(Call::write(Method::Merge, format!("{path}/status"), &body)).await {
        Ok(_) | Err(Outcome::Gone) => Ok(()),
        Err(outcome) => Err(outcome),
    }
}

async fn distrust(context: &StepContext<'_>, device: &DeviceRef, why: &str, at: &str) -> Result<(), Outcome> {
    let Some(existing) = read_object(context, device_path(device)).await? else { return Ok(()) };
    let before = existing.get("status").cloned().unwrap_or(Value::Null);
    let before: FenceDeviceStatus = serde_json::from_value(before).unwrap_or_default();
    let mut conditions = before.conditions.clone();
    conditions.retain(|one| one.r#type != "Trusted");
    conditions.push(Condition::transition(&before.conditions, "Trusted", "False", "EvidenceContradicted", why, at));
    let body = json!({ "metadata": preconditions(&existing), "status": { "conditions": conditions } });
    context.send(Call::write(Method::Merge, format!("{}/status", device_path(device)), &body)).await?;
    let uid = existing.pointer("/metadata/uid").and_then(Value::as_str);
    context.record_changes(device, uid, &before.conditions, &conditions);
    Ok(())
}
