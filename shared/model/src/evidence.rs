//! How a fact about an incarnation was found, and how much that is worth.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a fact was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum KindOfEvidence {
    /// All its power supplies were off in two status checks.
    PowerOff,
    /// Its Machine, or its NodeClaim, is gone: the provider reports that the machine does not exist any more.
    Decommissioned,
    /// Another remediator reports that it is fenced.
    Remediated,
    /// A storage accepts no writes from it any more. This is about volumes, and releases no pod.
    StorageFenced,
    /// A person confirmed that it is off.
    Asserted,
}

impl KindOfEvidence {
    /// How much it is worth.
    #[must_use]
    pub const fn grade(self) -> Grade {
        match self {
            Self::PowerOff | Self::Decommissioned | Self::StorageFenced => Grade::Verified,
            Self::Remediated | Self::Asserted => Grade::Asserted,
        }
    }

    /// Whether it proves that nothing of the incarnation runs any more.
    #[must_use]
    pub const fn ends_life(self) -> bool {
        match self {
            Self::PowerOff | Self::Decommissioned | Self::Remediated | Self::Asserted => true,
            Self::StorageFenced => false,
        }
    }
}

/// The evidence that is enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Grade {
    /// A confirmation by a person with the right to confirm.
    #[default]
    Asserted,
    /// Verified evidence only.
    Verified,
}
