//! What tests do to a cache in place of its feeds.

use std::time::Duration;

use super::Cache;
use super::absence::Heard;
use super::kinds::of_kind;
use super::object::Object;
use crate::clock::Mono;
use crate::model::Kind;
use crate::wire::{Raw, WireError};

impl Cache {
    /// An object as the API server sends it.
    ///
    /// # Errors
    /// It is none of the kind.
    pub(crate) fn apply_raw(&self, kind: Kind, raw: &Raw, now: Mono) -> Result<(), WireError> {
        of_kind!(kind, T => self.apply::<T>(raw.decode::<<T as Object>::Wire>()?, now));
        Ok(())
    }

    /// The kubelet of this missing node had been silent for as long as it takes when its Node went.
    pub(crate) fn fell_silent_first(&self, node: &str) {
        let long = Mono::default() + Duration::MAX;
        let heard = Heard { at: Mono::default(), until: long, duration: Duration::ZERO };
        self.inner.write().absences.went(node, Some(heard), false);
    }
}
