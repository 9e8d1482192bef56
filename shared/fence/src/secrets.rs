//! Secrets, and the consent of each to be used by a device.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A Secret as it came. Its values are decoded when they are used, and the others are not.
#[derive(Deserialize)]
pub(super) struct SecretObject<'a> {
    #[serde(default)]
    metadata: SecretMeta,
    #[serde(borrow, default)]
    pub(super) data: Option<BTreeMap<String, &'a RawValue>>,
}

#[derive(Default, Deserialize)]
struct SecretMeta {
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

/// The annotation by which a Secret names the FenceDevices of its namespace that may use it: names with commas between, or
/// `*`. Without it whoever may write a FenceDevice could have any Secret beside it sent to an address of their own.
pub(super) const CONSENT: &str = "pod-safety.dev/fence-devices";

pub(super) fn consents(secret: &SecretObject<'_>, device: &str) -> bool {
    let names = secret.metadata.annotations.as_ref().and_then(|all| all.get(CONSENT));
    names.is_some_and(|names| names.split(',').map(str::trim).any(|name| name == "*" || name == device))
}
