//! Whose FenceDevices are used.

use std::collections::BTreeSet;

use super::View;

impl<'a> View<'a> {
    /// The namespaces whose FenceDevices and PodSafetyRemediations are followed; `None`: all.
    #[must_use]
    pub fn fencing_namespaces(&self) -> Option<&'a BTreeSet<String>> {
        self.inner.fencing_namespaces.as_ref()
    }
}
