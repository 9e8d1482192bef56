//! Requests for a status check of a fence device, which the leader executes.
//!
//! A check from the operator's own machine would use another network, other rights and other agents than fencing does. So
//! the request is written to the device ([`TEST_ANNOTATION`]), and the leader writes the result to its status.

use pod_safety_fence::device_path;
use serde_json::json;

use super::{OperatorError, api, list};
use crate::api::{DeviceRef, FenceDeviceSpec, FenceDeviceStatus, TEST_ANNOTATION};
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::wire;

type Object = wire::Custom<FenceDeviceSpec, FenceDeviceStatus>;

/// A FenceDevice as it was read.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its namespace and name.
    pub named: DeviceRef,
    /// Its spec.
    pub spec: FenceDeviceSpec,
    /// Its status.
    pub status: FenceDeviceStatus,
}

#[derive(serde::Deserialize)]
struct Devices {
    items: Vec<Object>,
}

/// All devices, sorted by namespace and name.
///
/// # Errors
/// They could not be read.
pub async fn list_devices(connection: &Connection) -> Result<Vec<Device>, OperatorError> {
    const DOING: &str = "reading the FenceDevices";
    let all: Devices = list(connection, "fencedevices", DOING).await?;
    let named = |object: Object| {
        let meta = object.metadata.common;
        let named = DeviceRef { namespace: meta.namespace?, name: meta.name? };
        Some(Device { named, spec: object.spec, status: object.status.unwrap_or_default() })
    };
    let mut all: Vec<_> = all.items.into_iter().filter_map(named).collect();
    all.sort_by(|one, other| one.named.cmp(&other.named));
    Ok(all)
}

/// Requests a status check of a device: of all of its nodes, or of one. Returns the token by which the result is identified.
///
/// # Errors
/// The device does not exist, or it could not be written.
pub async fn request_status_check(
    connection: &Connection,
    device: &DeviceRef,
    token: &str,
    node: Option<&str>,
) -> Result<String, OperatorError> {
    let test = node.map_or_else(|| token.to_owned(), |node| format!("{token} {node}"));
    let body = json!({ "metadata": { "annotations": { TEST_ANNOTATION: test } } });
    match connection.send(Call::write(Method::Merge, device_path(device), &body)).await {
        Ok(_) => Ok(test),
        Err(error) if error.is_not_found() => Err(OperatorError::NoDevice(device.to_string())),
        Err(source) => Err(OperatorError::Api { doing: "requesting a status check", source }),
    }
}

/// The result of the status check; `None`: the check is not done yet.
///
/// # Errors
/// The device could not be read.
pub async fn status_check_result(
    connection: &Connection,
    device: &DeviceRef,
    test: &str,
) -> Result<Option<FenceDeviceStatus>, OperatorError> {
    let raw = connection.send(Call::get(device_path(device))).await;
    let read = raw.and_then(|raw| raw.decode::<Object>().map_err(ApiError::Undecodable));
    let status = read.map_err(api("reading the result of the status check"))?.status.unwrap_or_default();
    Ok((status.tested.as_deref() == Some(test)).then_some(status))
}
