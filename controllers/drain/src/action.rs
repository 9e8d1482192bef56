//! What happens to a pod, and what an operator consented to.

use std::collections::BTreeSet;

/// What an operator consented to.
#[derive(Clone, Debug, Default)]
pub struct Consent {
    /// Pods that are skipped, as namespace and name.
    pub skip: BTreeSet<(String, String)>,
    /// Data of emptyDir volumes may be lost.
    pub delete_emptydir_data: bool,
    /// Pods without a controller may be evicted, though nothing recreates them.
    pub evict_unmanaged: bool,
}

/// What happens to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// It is evicted.
    Evict,
    /// It is evicted once its budget allows it.
    Wait,
    /// It is not evicted until something is changed.
    Blocked,
    /// It is not evicted until an operator consents.
    NeedsConsent,
    /// It must not be evicted: its processes may run although its phase is terminal.
    Unsafe,
    /// It is terminating already.
    Ending,
    /// It stays, as it should.
    Stay,
}

impl Action {
    /// The name in CamelCase, for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Evict => "Evict",
            Self::Wait => "Wait",
            Self::Blocked | Self::NeedsConsent => "Blocked",
            Self::Unsafe => "RefusedForSafety",
            Self::Ending => "Terminating",
            Self::Stay => "Stay",
        }
    }
}
