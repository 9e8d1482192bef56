//! The incarnation of a node: one boot of one Node object.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::BootId;

/// One boot of one Node object. Evidence is about an incarnation.
// docs/assumptions.md: one-boot-id
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Incarnation {
    /// The node's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The UID of its Node object.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
    /// `status.nodeInfo.bootID`, a UUID: it changes whenever the machine boots.
    #[schemars(length(min = 1, max = 128))]
    #[serde(rename = "bootID")]
    pub boot_id: String,
}

impl Incarnation {
    /// The incarnation of the Node `name` with this UID and boot ID; `boot_id` is empty if the boot ID is not a UUID.
    #[must_use]
    pub fn new(name: String, uid: String, boot: &str) -> Self {
        Self { name, uid, boot_id: BootId::from(boot).to_string() }
    }

    /// The boot ID, if it is a UUID.
    #[must_use]
    pub fn boot(&self) -> BootId {
        (*self.boot_id).into()
    }
}
