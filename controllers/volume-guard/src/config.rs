//! The settings of the volume guard.

use std::collections::BTreeSet;
use std::time::Duration;

use pod_safety_shared::model::{Sharing, Volume};

/// The settings of the volume guard.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long a node must have been missing before it counts as deleted.
    pub quarantine: Duration,
    /// Storage classes whose volumes are exclusive whatever their access modes are.
    pub classes: BTreeSet<String>,
    /// CSI drivers whose volumes are exclusive whatever their access modes are.
    pub drivers: BTreeSet<String>,
    /// CSI drivers whose storage accepts writes only from nodes to which the volume is attached.
    pub backends: BTreeSet<String>,
}

impl Config {
    /// Settings by which only access modes decide.
    #[must_use]
    pub const fn with_quarantine(quarantine: Duration) -> Self {
        let none = BTreeSet::new;
        Self { quarantine, classes: none(), drivers: none(), backends: none() }
    }

    /// Whether a volume is exclusive.
    #[must_use]
    pub fn guards(&self, volume: &Volume) -> bool {
        volume.sharing != Sharing::Many
            || self.classes.contains(&*volume.class)
            || volume.driver.as_ref().is_some_and(|driver| self.drivers.contains(&**driver))
    }

    /// Whether a node can no longer write to the volume once it is detached from it.
    pub(super) fn can_detach(&self, volume: Option<&Volume>) -> bool {
        volume.and_then(|volume| volume.driver.as_ref()).is_some_and(|driver| self.backends.contains(&**driver))
    }
}
