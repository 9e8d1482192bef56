//! Test helpers that write to a cache in place of its feeds.

use std::time::Duration;

use super::Cache;
use super::absence::KubeletContact;
use super::kinds::dispatch_kind;
use super::object::Object;
use crate::clock::Mono;
use crate::model::Kind;
use crate::wire::{Raw, WireError};

impl Cache {
    /// Applies an object as the API server sends it.
    ///
    /// # Errors
    /// It does not decode as the kind.
    pub(crate) fn apply_raw(&self, kind: Kind, raw: &Raw, now: Mono) -> Result<(), WireError> {
        dispatch_kind!(kind, T => self.apply::<T>(raw.decode::<<T as Object>::Wire>()?, now));
        Ok(())
    }

    /// Makes this missing node's kubelet count as unreachable before its Node was deleted.
    pub(crate) fn set_unreachable_before_node_deleted(&self, node: &str) {
        let end_of_time = Mono::default() + Duration::MAX;
        let last_contact = KubeletContact {
            last_report: Mono::default(),
            observed_until: end_of_time,
            lease_duration: Duration::ZERO,
        };
        self.inner.write().absences.record_node_deleted(node, Some(last_contact), false, None);
    }
}
