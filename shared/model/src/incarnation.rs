//! One life of a node's machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::BootId;

/// Which node, and which life of its machine. Facts are about incarnations.
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
    /// Of the object `name` with this UID, in the boot that `status.nodeInfo.bootID` names: empty, if that is no UUID.
    #[must_use]
    pub fn new(name: String, uid: String, boot: &str) -> Self {
        Self { name, uid, boot_id: BootId::from(boot).to_string() }
    }

    /// The boot, if it is one that counts.
    #[must_use]
    pub fn boot(&self) -> BootId {
        (*self.boot_id).into()
    }
}
