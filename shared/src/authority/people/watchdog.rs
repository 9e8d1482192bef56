//! A drill of a watchdog: the grant of its agent is revoked, and the machine must be reset on time.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_fence::path_of;
use pod_safety_fence::watchdog::{Lease, path, revocation};
use pod_safety_watchdog::controller::may_count;
use pod_safety_watchdog::record::State;
use serde_json::json;

use super::{Device, PeopleError, api};
use crate::api::{DeviceRef, DrilledWatchdog, Incarnation};
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};

/// What the agent of a node promises.
#[derive(Clone, Debug)]
pub struct Promise {
    lease: Lease,
    /// The boot ID.
    pub boot_id: Arc<str>,
    /// Whether the promise stands, for this incarnation of the node.
    pub stands: bool,
    /// The watchdog behind it.
    pub watchdog: Option<Watchdog>,
    /// For how long which boot before this one outlived its last pet.
    pub survived: Option<(Arc<str>, Duration)>,
}

/// A watchdog, as its agent found it.
#[derive(Clone, Debug)]
pub struct Watchdog {
    /// What a FenceDevice names it by.
    pub drilled: DrilledWatchdog,
    /// Its class.
    pub class: String,
    /// Its timeout.
    pub timeout: Duration,
    /// Why its promise never counts, if so.
    pub useless: Option<String>,
}

/// What the agent of a node promises; `None`: it has no Lease, or one that no agent wrote.
///
/// # Errors
/// It could not be read.
pub async fn promise(
    connection: &Connection,
    device: &DeviceRef,
    node: &Incarnation,
) -> Result<Option<Promise>, PeopleError> {
    let read = match connection.send(Call::get(path(&device.namespace, &node.name)).whole()).await {
        Ok(raw) => raw.whole().map_err(ApiError::Undecodable),
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => Err(error),
    };
    let lease = Lease::of(&read.map_err(api("reading the watchdog Lease"))?);
    let Ok(record) = lease.record.clone() else { return Ok(None) };
    let watchdog = record.device.as_ref().map(|device| Watchdog {
        drilled: DrilledWatchdog {
            identity: device.identity.to_string(),
            firmware: device.firmware,
            kernel: device.kernel.to_string(),
        },
        class: device.class.to_string(),
        timeout: device.timeout,
        useless: may_count(device).err().map(|refusal| refusal.to_string()),
    });
    let boot = &record.boot;
    let stands = record.state == State::Armed && (&*boot.node, &*boot.id) == (&*node.uid, &*node.boot_id);
    let survived = lease.survived.clone().map(|survived| (survived.boot, survived.time));
    Ok(Some(Promise { boot_id: Arc::clone(&record.boot.id), stands, watchdog, survived, lease }))
}

/// Revokes the grant that this promise rests on: the pods of the node end, and its watchdog resets it.
///
/// # Errors
/// There is a newer grant, or it could not be written.
pub async fn revoke(
    connection: &Connection,
    device: &DeviceRef,
    node: &str,
    promise: &Promise,
) -> Result<(), PeopleError> {
    let path = path(&device.namespace, node);
    let Lease { uid, seen, .. } = &promise.lease;
    match connection.send(revocation(&path, uid, &seen.version)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_changed() => Err(PeopleError::Changed { object: path }),
        Err(source) => Err(PeopleError::Api { doing: "revoking the grant of the node's agent", source }),
    }
}

/// Records with a device that this watchdog has reset its machine on time.
///
/// # Errors
/// The device could not be written.
pub async fn has_passed(
    connection: &Connection,
    device: &Device,
    passed: &DrilledWatchdog,
) -> Result<(), PeopleError> {
    let known = device.spec.watchdog_lease.as_ref().map_or(&[][..], |spec| &spec.drilled);
    if known.contains(passed) {
        return Ok(());
    }
    let all: Vec<_> = known.iter().chain([passed]).collect();
    let body = json!({ "spec": { "watchdogLease": { "drilled": all } } });
    let sent = connection.send(Call::write(Method::Merge, path_of(&device.named), &body)).await;
    sent.map(drop).map_err(api("recording the drill with the FenceDevice"))
}
