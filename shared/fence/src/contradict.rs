//! What follows when a node that was proved off is heard: its evidence is worth nothing, nor are the devices that gave it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::incident::{act_of, status};
use super::mark::{self, When};
use super::orders::path_of;
use super::{Acting, Target};
use crate::api::{Attempt, Condition, DeviceRef, FenceDeviceStatus, group_path};
use crate::client::{ApiError, Call, Method, WriteCall as _};
use crate::outcome::Outcome;
use crate::transport::Act;

/// What was proved is not true. First nothing may follow from it any more; then the devices, the taint, the status.
pub(super) async fn contradict(acting: &Acting<'_>, target: &Target) -> Result<(), Outcome> {
    let at = format!("{:.0}", acting.env.clock.wall());
    let why = target.status.message.clone();
    if let Some(proof) = &target.status.evidence {
        invalidate(acting, proof, &why, &at).await?;
    }
    // Those that said off; what another level tried before said the truth, or nothing.
    let said_off = |attempt: &&Attempt| act_of(attempt) == Act::Off && attempt.ended_what_ran();
    let devices = target.status.attempts.iter().filter(said_off);
    let devices: BTreeSet<_> = devices.flat_map(|attempt| &attempt.devices).collect();
    for device in devices {
        distrust(acting, device, &why, &at).await?;
    }
    // It stays where other evidence about this life holds: the incident goes on with that.
    if !target.status.tainted {
        mark::remove(acting, &target.spec.node, &target.fence.name, When::Untrue).await?;
    }
    status(acting, target, target.fence.rv, &target.status).await.map(drop)
}

/// An object with all of its fields; `None`: it is gone.
async fn read(acting: &Acting<'_>, path: String) -> Result<Option<Value>, Outcome> {
    match acting.send(Call::get(path).whole()).await {
        Err(Outcome::Gone) => Ok(None),
        read => {
            let whole = read?.whole().map_err(|error| Outcome::Failed(ApiError::Undecodable(error)))?;
            Ok(Some(whole))
        }
    }
}

/// Who is meant by a write, as it was read.
fn meta(object: &Value) -> Value {
    json!({ "uid": object.pointer("/metadata/uid"),
        "resourceVersion": object.pointer("/metadata/resourceVersion") })
}

/// It is declared invalid once: the first reason stays.
pub(super) async fn invalidate(acting: &Acting<'_>, proof: &str, why: &str, at: &str) -> Result<(), Outcome> {
    let path = group_path(&format!("fenceevidences/{proof}"));
    let Some(there) = read(acting, path.clone()).await? else { return Ok(()) };
    if there.pointer("/status/invalidated").is_some_and(Value::is_object) {
        return Ok(());
    }
    let invalidated = json!({ "at": at, "reason": why });
    let body = json!({ "metadata": meta(&there), "status": { "invalidated": invalidated } });
    match acting.send(Call::write(Method::Merge, format!("{path}/status"), &body)).await {
        Ok(_) | Err(Outcome::Gone) => Ok(()),
        Err(outcome) => Err(outcome),
    }
}

async fn distrust(acting: &Acting<'_>, device: &DeviceRef, why: &str, at: &str) -> Result<(), Outcome> {
    let Some(there) = read(acting, path_of(device)).await? else { return Ok(()) };
    let before = there.get("status").cloned().unwrap_or(Value::Null);
    let before: FenceDeviceStatus = serde_json::from_value(before).unwrap_or_default();
    let mut conditions = before.conditions.clone();
    conditions.retain(|one| one.r#type != "Trusted");
    conditions.push(Condition::after(
        &before.conditions,
        "Trusted",
        "False",
        "EvidenceContradicted",
        why,
        at,
    ));
    let body = json!({ "metadata": meta(&there), "status": { "conditions": conditions } });
    acting.send(Call::write(Method::Merge, format!("{}/status", path_of(device)), &body)).await?;
    let uid = there.pointer("/metadata/uid").and_then(Value::as_str);
    acting.tell(device, uid, &before.conditions, &conditions);
    Ok(())
}
