//! When this process first saw which version of which watchdog Lease. They are not watched: each is read when it is needed.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use pod_safety_watchdog::controller::Watch;

/// What this process knows of watchdog Leases, by their paths.
#[derive(Debug, Default)]
pub struct Watchdogs(Mutex<BTreeMap<Box<str>, Watch>>);

impl Watchdogs {
    /// What it knows of this one.
    pub(crate) fn with<T>(&self, path: &str, then: impl FnOnce(&mut Watch) -> T) -> T {
        then(self.0.lock().entry(path.into()).or_default())
    }
}
