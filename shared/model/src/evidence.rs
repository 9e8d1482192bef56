//! The kinds of evidence about an incarnation, and their grades.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumIter, IntoStaticStr};

/// The kind of evidence about an incarnation.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, EnumIter, IntoStaticStr,
)]
pub enum FenceEvidenceKind {
    /// All its power supplies were off in two status checks.
    // docs/assumptions.md: ends-with-its-machine, domain-is-current
    PowerOff,
    /// Its Machine, or its NodeClaim, is gone: the provider reports that the machine does not exist any more.
    // docs/assumptions.md: machine-goes-with-its-object
    Decommissioned,
    /// Its provider reports in two status checks that the instance of its providerID is stopped.
    // docs/assumptions.md: stopped-is-ended
    InstanceStopped,
    /// Its provider reports in two status checks that the instance of its providerID is terminated: it never runs again.
    InstanceGone,
    /// The grant of its node agent was revoked, and all that it guards has ended, or its watchdog reset the machine.
    // docs/assumptions.md: watchdog-fires
    WatchdogLease,
    /// Another remediator reports that it is fenced.
    // docs/assumptions.md: remediator-is-right
    Remediated,
    /// A storage accepts no writes from it any more. This is about volumes, and releases no pod.
    StorageFenced,
    /// A person confirmed that it is off.
    #[serde(rename = "Asserted")]
    #[strum(serialize = "Asserted")]
    OperatorConfirmed,
}

impl FenceEvidenceKind {
    /// The grade of this kind.
    #[must_use]
    pub const fn grade(self) -> Grade {
        match self {
            Self::PowerOff
            | Self::Decommissioned
            | Self::InstanceStopped
            | Self::InstanceGone
            | Self::WatchdogLease
            | Self::StorageFenced => Grade::Verified,
            Self::Remediated | Self::OperatorConfirmed => Grade::Asserted,
        }
    }

    /// Whether it proves that no process of the incarnation runs any more.
    #[must_use]
    pub const fn ends_incarnation(self) -> bool {
        match self {
            Self::PowerOff
            | Self::Decommissioned
            | Self::InstanceStopped
            | Self::InstanceGone
            | Self::WatchdogLease
            | Self::Remediated
            | Self::OperatorConfirmed => true,
            Self::StorageFenced => false,
        }
    }

    /// Whether it proves that the machine does not exist any more, so that it is never powered on.
    #[must_use]
    pub const fn ends_machine(self) -> bool {
        match self {
            Self::Decommissioned | Self::InstanceGone => true,
            Self::PowerOff
            | Self::InstanceStopped
            | Self::WatchdogLease
            | Self::Remediated
            | Self::StorageFenced
            | Self::OperatorConfirmed => false,
        }
    }

    /// Whether a device check with this result confirms evidence of that kind. An instance that was stopped may have
    /// been terminated since; one that was terminated is never stopped again. Older evidence about instances is of
    /// kind PowerOff.
    #[must_use]
    pub fn confirms(self, evidence: Self) -> bool {
        match self {
            Self::InstanceGone => {
                matches!(evidence, Self::InstanceGone | Self::InstanceStopped | Self::PowerOff)
            }
            Self::InstanceStopped => matches!(evidence, Self::InstanceStopped | Self::PowerOff),
            Self::PowerOff
            | Self::Decommissioned
            | Self::WatchdogLease
            | Self::Remediated
            | Self::StorageFenced
            | Self::OperatorConfirmed => self == evidence,
        }
    }

    /// The name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// What happened to the node, as the end of a sentence.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::PowerOff => "was switched off",
            Self::Decommissioned => "has no Machine any more",
            Self::InstanceStopped => "is an instance that its provider stopped",
            Self::InstanceGone => "is an instance that its provider terminated",
            Self::WatchdogLease => "lost the grant of its agent: its pods have ended, or its watchdog reset it",
            Self::Remediated => "is fenced, as another remediator says",
            Self::StorageFenced => "is cut off from its storage",
            Self::OperatorConfirmed => "is off, as a person confirmed",
        }
    }
}

/// The minimum evidence of a FencePolicy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Grade {
    /// A confirmation by a person with the right to confirm.
    #[default]
    Asserted,
    /// Verified evidence only.
    Verified,
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator as _;

    use super::FenceEvidenceKind::{self, *};

    #[test]
    fn evidence_is_confirmed_by_its_own_kind_or_a_stronger_one_about_the_instance() {
        let more = [(InstanceGone, InstanceStopped), (InstanceGone, PowerOff), (InstanceStopped, PowerOff)];
        for (shown, evidence) in
            FenceEvidenceKind::iter().flat_map(|shown| FenceEvidenceKind::iter().map(move |evidence| (shown, evidence)))
        {
            let confirms = shown == evidence || more.contains(&(shown, evidence));
            assert_eq!(shown.confirms(evidence), confirms, "{shown:?} {evidence:?}");
        }
    }

    #[test]
    fn the_name_of_a_kind_is_its_serialized_value() {
        for kind in FenceEvidenceKind::iter() {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
