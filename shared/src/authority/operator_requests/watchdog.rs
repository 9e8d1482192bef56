//! A drill of a watchdog: the grant of its agent is revoked, and the watchdog must reset the machine in time.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_fence::device_path;
use pod_safety_fence::watchdog::{AgentLease, lease_path, revocation_call};
use pod_safety_watchdog::controller::check_promise;
use pod_safety_watchdog::record::State;
use serde_json::json;

use super::{Device, OperatorError, api};
use crate::api::{DeviceRef, DrilledWatchdog, Incarnation};
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};

/// The grant of a node's agent.
#[derive(Clone, Debug)]
pub struct WatchdogGrant {
    lease: AgentLease,
    /// The boot ID.
    pub boot_id: Arc<str>,
    /// Whether the grant is armed for this incarnation of the node.
    pub is_armed: bool,
    /// The watchdog of the grant.
    pub watchdog: Option<Watchdog>,
    /// An earlier boot that ran on after its last watchdog ping: its boot ID, and for how long.
    pub survived: Option<(Arc<str>, Duration)>,
}

/// A watchdog as its agent reports it.
#[derive(Clone, Debug)]
pub struct Watchdog {
    /// Its identity, as a FenceDevice names it.
    pub drilled: DrilledWatchdog,
    /// Its class.
    pub class: String,
    /// Its timeout.
    pub timeout: Duration,
    /// Why this watchdog is never accepted, if it is not.
    pub unfit_reason: Option<String>,
}

/// Reads the grant of a node's agent; `None`: the node has no such Lease, or no agent wrote it.
///
/// # Errors
/// The Lease could not be read.
pub async fn read_grant(
    connection: &Connection,
    device: &DeviceRef,
    node: &Incarnation,
) -> Result<Option<WatchdogGrant>, OperatorError> {
    let read = match connection.send(Call::get(lease_path(&device.namespace, &node.name)).all_fields()).await {
        Ok(raw) => raw.to_json().map_err(ApiError::Undecodable),
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => Err(error),
    };
    let lease = AgentLease::from_object(&read.map_err(api("reading the watchdog Lease"))?);
    let Ok(record) = lease.record.clone() else { return Ok(None) };
    let watchdog = record.device.as_ref().map(|device| Watchdog {
        drilled: DrilledWatchdog {
            identity: device.identity.to_string(),
            firmware: device.firmware,
            kernel: device.kernel.to_string(),
        },
        class: device.class.to_string(),
        timeout: device.timeout,
        unfit_reason: check_promise(device).err().map(|refusal| refusal.to_string()),
    });
    let boot = &record.boot;
    let is_armed = record.state == State::Armed && (&*boot.node, &*boot.id) == (&*node.uid, &*node.boot_id);
    let survived = lease.survived.clone().map(|survived| (survived.boot, survived.outlived));
    Ok(Some(WatchdogGrant { boot_id: Arc::clone(&record.boot.id), is_armed, watchdog, survived, lease }))
}

/// Revokes this grant: the pods of the node terminate, and its watchdog resets the machine.
///
/// # Errors
/// There is a newer grant, or the Lease could not be written.
pub async fn revoke(
    connection: &Connection,
    device: &DeviceRef,
    node: &str,
    grant: &WatchdogGrant,
) -> Result<(), OperatorError> {
    let path = lease_path(&device.namespace, node);
    let AgentLease { uid, observed: seen, .. } = &grant.lease;
    match connection.send(revocation_call(&path, uid, &seen.version)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_changed() => Err(OperatorError::Changed { object: path }),
        Err(source) => Err(OperatorError::Api { doing: "revoking the grant of the node's agent", source }),
    }
}

/// Records on a device that this watchdog has reset its machine in time.
///
/// # Errors
/// The device could not be written.
pub async fn record_drill(
    connection: &Connection,
    device: &Device,
    passed: &DrilledWatchdog,
) -> Result<(), OperatorError> {
    let existing = device.spec.watchdog_lease.as_ref().map_or(&[][..], |spec| &spec.drilled);
    if existing.contains(passed) {
        return Ok(());
    }
    let all: Vec<_> = existing.iter().chain([passed]).collect();
    let body = json!({ "spec": { "watchdogLease": { "drilled": all } } });
    let sent = connection.send(Call::write(Method::Merge, device_path(&device.named), &body)).await;
    sent.map(drop).map_err(api("recording the drill with the FenceDevice"))
}
