//! What an operator decided.

use std::collections::BTreeSet;
use std::time::Duration;

use pod_safety_shared::model::{Sharing, Volume};

/// What an operator decided.
#[derive(Clone, Debug)]
pub struct Config {
    /// For how long a node must have been missing before it counts as gone.
    pub quarantine: Duration,
    /// Classes whose volumes are exclusive whatever their access modes say.
    pub classes: BTreeSet<String>,
    /// CSI drivers of which the same holds.
    pub drivers: BTreeSet<String>,
    /// CSI drivers whose storage lets nobody write who is not attached.
    pub backends: BTreeSet<String>,
}

impl Config {
    /// What access modes say, and nothing else.
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

    /// Whether what is detached from a node is not written to by it any more.
    pub(super) fn can_detach(&self, volume: Option<&Volume>) -> bool {
        volume
            .and_then(|volume| volume.driver.as_ref())
            .is_some_and(|driver| self.backends.contains(&**driver))
    }
}
