//! The pass that lets one request through the guard.

use std::fmt::Display;

/// Permission for one request: to this path, about the object with this UID, at this version. The guard compares all
/// three with the bytes that go out. It is made in `act`, from evidence; and for the taints of a node, at the version at which they were read.
#[derive(Clone, Debug)]
pub(crate) struct Permit {
    path: String,
    uid: String,
    version: String,
}

impl Permit {
    /// Danger note: only with evidence in hand that covers exactly this object at this version, or for a request that frees
    /// no pod's name: one that keeps what others wrote, at the version at which they did.
    pub(in crate::authority) fn danger_new(path: &str, uid: impl Display, version: impl Display) -> Self {
        Self { path: path.to_owned(), uid: uid.to_string(), version: version.to_string() }
    }

    /// Whether it is for a request to this path whose body names this UID and this version. Empty ones name nothing.
    pub(crate) fn covers(&self, path: &str, uid: &str, version: &str) -> bool {
        let named = !uid.is_empty() && !version.is_empty();
        named && self.path == path && self.uid == uid && self.version == version
    }

    /// For tests of the guard.
    #[cfg(test)]
    pub(crate) fn for_guard_tests(path: &str, uid: &str, version: &str) -> Self {
        Self::danger_new(path, uid, version)
    }
}
