//! Secrets, and the annotation by which each allows devices to use it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A Secret as the API server returned it. Only the values that are used are decoded.
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

/// The annotation by which a Secret names the FenceDevices of its namespace that may use it: names separated by
/// commas, or `*`. Without it, a client that may write a FenceDevice could have any Secret of the namespace sent to
/// an address of its own.
pub(super) const CONSENT: &str = "pod-safety.dev/fence-devices";

pub(super) fn consents(secret: &SecretObject<'_>, device: &str) -> bool {
    let names = secret.metadata.annotations.as_ref().and_then(|all| all.get(CONSENT));
    names.is_some_and(|names| names.split(',').map(str::trim).any(|name| name == "*" || name == device))
}
