//! What becomes of a pod, and what a person agreed to.

use std::collections::BTreeSet;

/// What a person agreed to.
#[derive(Clone, Debug, Default)]
pub struct Consent {
    /// Pods that stay, as namespace and name.
    pub skip: BTreeSet<(String, String)>,
    /// Data of emptyDir volumes may be lost.
    pub delete_emptydir_data: bool,
    /// Pods without a controller may be evicted, though nothing recreates them.
    pub evict_unmanaged: bool,
}

/// What becomes of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// It goes.
    Evict,
    /// It goes once its budget lets it.
    Wait,
    /// It does not go before somebody changes something.
    Blocked,
    /// It does not go before a person agrees.
    NeedsConsent,
    /// It must not go: it may run although it is called finished.
    Unsafe,
    /// It ends already.
    Ending,
    /// It stays, and that is right.
    Stay,
}

impl Action {
    /// One CamelCase word, for programs.
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
