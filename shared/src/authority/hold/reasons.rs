//! The words of holds for metrics, Events and programs: closed.

use super::{FORCE_DELETE_HELD, Hold};
use crate::cache::Unfresh;
use crate::events::EventType;

impl Hold {
    /// The reason in one CamelCase word, for metrics, Events and programs.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "a table")]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Volume(hold) => hold.reason(),
            Self::Unfresh(Unfresh::NotSynced { .. }) => "NotSynced",
            Self::Unfresh(Unfresh::Stale { .. }) => "Stale",
            Self::NodeUnreadable { .. } => "NodeUnreadable",
            Self::Quarantine { .. } => "Quarantine",
            Self::AwaitsKubelet { .. } => "AwaitsKubelet",
            Self::KubeletAlive { .. } => "KubeletAlive",
            Self::OutOfServiceWithoutEvidence { .. } => "OutOfServiceWithoutEvidence",
            Self::NoEvidence { .. } => "NoEvidence",
            Self::OutOfServiceButReady { .. } => "OutOfServiceButReady",
            Self::TerminalButRunning => "TerminalButRunning",
            Self::PhaseUnreadable => "PhaseUnreadable",
            Self::NoPods => "NoPods",
            Self::BudgetFailed { .. } => "BudgetFailed",
            Self::UnmanagedPods { .. } => "UnmanagedPods",
            Self::PodsNotCounted { .. } => "PodsNotCounted",
            Self::TooManyLabels { .. } => "TooManyLabels",
            Self::DisruptionsNeverAllowed { .. } => "DisruptionsNeverAllowed",
            Self::MultipleBudgets { .. } => "MultipleBudgets",
            Self::EvictionNotCompleted { .. } => "EvictionNotCompleted",
            Self::ScaleAsked { .. } => "ScaleAsked",
            Self::Tolerated { .. } => "Tolerated",
            Self::TolerationUnreadable { .. } => "TolerationUnreadable",
            Self::LargeOutage { .. } | Self::TooManyLost { .. } => "LargeOutage",
            Self::ZoneDisrupted { .. } => "ZoneDisrupted",
            Self::EvictionOff => "EvictionOff",
            Self::EvictionQueued { .. } => "EvictionQueued",
            Self::EvidenceConflictsWithReady { .. } => "EvidenceConflictsWithReady",
            Self::FencingUnreadable { .. } => "FencingUnreadable",
            Self::NoBootId { .. } => "NoBootId",
            Self::FenceNotNeeded { .. } => "FenceNotNeeded",
            Self::WouldFence { .. } => "WouldFence",
            Self::FenceOver { .. } => "FenceOver",
            Self::DuplicateFence { .. } => "DuplicateFence",
            Self::NoPolicy { .. } => "NoPolicy",
            Self::DryRun { .. } => "DryRun",
            Self::Paused { .. } => "Paused",
            Self::FencingSuspended { .. } => "FencingSuspended",
            Self::ZoneInTrouble { .. } => "ZoneInTrouble",
            Self::ControlPlane { .. } | Self::ControlPlaneQuorum { .. } => "ControlPlane",
            Self::EtcdQuorum { .. } => "EtcdQuorum",
            Self::Collateral { .. } | Self::BudgetsUnread { .. } => "Collateral",
            Self::Drain { .. } => "Drain",
            Self::Repeated { .. } => "Repeated",
            Self::StaleTaint { .. } => "StaleTaint",
            Self::Concurrency { .. } => "Concurrency",
            Self::Cooldown { .. } => "Cooldown",
            Self::RemediationTimedOut { .. } => "RemediationTimedOut",
            Self::SelfNode { .. } => "SelfNode",
            Self::NoDevices { .. } => "NoDevices",
            Self::AttemptUnderWay { .. } => "AttemptUnderWay",
            Self::ProviderBehind { .. } => "ProviderBehind",
            Self::RetryBackoff { .. } => "RetryBackoff",
            Self::AwaitingOperator { .. } => "AwaitingOperator",
            Self::EvidenceMissing { .. } => "EvidenceMissing",
            Self::SignOfLife { .. } => "SignOfLife",
            Self::NodeStillReady { .. } => "NodeStillReady",
            Self::WaitsForPods { .. } => "WaitsForPods",
            Self::MachinePoweredOff { .. } => "MachinePoweredOff",
            Self::AwaitingNodeReady { .. } => "AwaitingNodeReady",
            Self::Finalizers { .. } => "Finalizers",
        }
    }

    /// Every reason of a controller that removes pods, for metrics that must exist
    /// before they count.
    pub const OF_PODS: &'static [&'static str] = &[
        "NotSynced",
        "Stale",
        "NodeUnreadable",
        "Quarantine",
        "AwaitsKubelet",
        "KubeletAlive",
        "OutOfServiceWithoutEvidence",
        "NoEvidence",
        "OutOfServiceButReady",
        "TerminalButRunning",
        "PhaseUnreadable",
        "EvidenceConflictsWithReady",
        "Finalizers",
    ];

    /// Every reason of the controller of disruption budgets.
    pub const OF_BUDGETS: &'static [&'static str] = &[
        "NotSynced",
        "Stale",
        "NoPods",
        "BudgetFailed",
        "UnmanagedPods",
        "PodsNotCounted",
        "TooManyLabels",
        "DisruptionsNeverAllowed",
        "MultipleBudgets",
        "EvictionNotCompleted",
        "ScaleAsked",
    ];

    /// Every reason of the controller of taints.
    pub const OF_TAINTS: &'static [&'static str] =
        &["NotSynced", "Stale", "NodeUnreadable", "Tolerated", "TolerationUnreadable"];

    /// Every reason of the controller of lost nodes.
    pub const OF_NODES: &'static [&'static str] = &[
        "NotSynced",
        "Stale",
        "NodeUnreadable",
        "LargeOutage",
        "ZoneDisrupted",
        "EvictionOff",
        "EvictionQueued",
    ];

    /// Every reason of the controller of exclusive volumes.
    pub const OF_VOLUMES: &'static [&'static str] = &[
        "NotSynced",
        "Stale",
        "VolumeUnproved",
        "VolumeDetached",
        "VolumeOnSeveralNodes",
        "VolumeLeaseUnreadable",
        "VolumeUnconfirmed",
        "VolumeUnreadable",
        "WaitsForVolume",
    ];

    /// Every reason of the controller that fences.
    pub const OF_FENCING: &'static [&'static str] = &[
        "NotSynced",
        "Stale",
        "NodeUnreadable",
        "FencingUnreadable",
        "NoBootId",
        "FenceNotNeeded",
        "WouldFence",
        "FenceOver",
        "DuplicateFence",
        "NoPolicy",
        "DryRun",
        "Paused",
        "FencingSuspended",
        "LargeOutage",
        "ZoneInTrouble",
        "ControlPlane",
        "EtcdQuorum",
        "Collateral",
        "Drain",
        "Repeated",
        "StaleTaint",
        "Concurrency",
        "Cooldown",
        "RemediationTimedOut",
        "SelfNode",
        "NoDevices",
        "AttemptUnderWay",
        "ProviderBehind",
        "RetryBackoff",
        "AwaitingOperator",
        "EvidenceMissing",
        "SignOfLife",
        "NodeStillReady",
        "WaitsForPods",
        "MachinePoweredOff",
        "AwaitingNodeReady",
    ];

    /// A deletion follows when its time has passed; if it ends otherwise, that is
    /// called off. There may be one for each pod of a lost zone: people look them up,
    /// nobody writes them down.
    #[must_use]
    pub const fn counts_down(&self) -> bool {
        matches!(self, Self::Tolerated { .. })
    }

    /// The Event by which people hear of it; `None`: it will pass by itself. What
    /// KCM has an Event for has its type and reason.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "a table")]
    pub const fn event(&self) -> Option<(EventType, &'static str)> {
        match self {
            Self::Volume(hold) => hold.event(),
            Self::Unfresh(_)
            | Self::Quarantine { .. }
            | Self::AwaitsKubelet { .. }
            | Self::DisruptionsNeverAllowed { .. }
            | Self::ScaleAsked { .. }
            | Self::Tolerated { .. }
            | Self::LargeOutage { .. }
            | Self::ZoneDisrupted { .. }
            | Self::EvictionOff
            | Self::EvictionQueued { .. }
            | Self::FenceNotNeeded { .. }
            | Self::WouldFence { .. }
            | Self::DryRun { .. }
            | Self::Paused { .. }
            | Self::FencingSuspended { .. }
            | Self::RemediationTimedOut { .. }
            | Self::TooManyLost { .. }
            | Self::ZoneInTrouble { .. }
            | Self::ControlPlane { .. }
            | Self::Collateral { .. }
            | Self::BudgetsUnread { .. }
            | Self::Drain { .. }
            | Self::Concurrency { .. }
            | Self::Cooldown { .. }
            | Self::AttemptUnderWay { .. }
            | Self::ProviderBehind { .. }
            | Self::RetryBackoff { .. }
            | Self::NodeStillReady { .. }
            | Self::WaitsForPods { .. }
            | Self::AwaitingNodeReady { .. }
            | Self::SignOfLife { .. }
            | Self::Finalizers { .. } => None,
            Self::NodeUnreadable { .. }
            | Self::KubeletAlive { .. }
            | Self::OutOfServiceWithoutEvidence { .. }
            | Self::NoEvidence { .. }
            | Self::OutOfServiceButReady { .. }
            | Self::TerminalButRunning
            | Self::PhaseUnreadable
            | Self::EvidenceConflictsWithReady { .. } => Some((EventType::Warning, FORCE_DELETE_HELD)),
            Self::FencingUnreadable { .. }
            | Self::Repeated { .. }
            | Self::NoBootId { .. }
            | Self::FenceOver { .. }
            | Self::DuplicateFence { .. }
            | Self::NoPolicy { .. }
            | Self::SelfNode { .. }
            | Self::NoDevices { .. }
            | Self::ControlPlaneQuorum { .. }
            | Self::EtcdQuorum { .. }
            | Self::AwaitingOperator { .. }
            | Self::EvidenceMissing { .. } => Some((EventType::Warning, "FencingHeld")),
            Self::StaleTaint { .. } => Some((EventType::Warning, "StaleOutOfServiceTaint")),
            Self::MachinePoweredOff { .. } => Some((EventType::Normal, "MachinePoweredOff")),
            Self::TolerationUnreadable { .. } => Some((EventType::Warning, "TaintEvictionHeld")),
            Self::NoPods => Some((EventType::Normal, "NoPods")),
            // KCM's two reasons.
            Self::BudgetFailed { selector: true, .. } => Some((EventType::Warning, "NoPods")),
            Self::BudgetFailed { .. } => Some((EventType::Warning, "CalculateExpectedPodCountFailed")),
            Self::UnmanagedPods { .. } => Some((EventType::Warning, "UnmanagedPods")),
            Self::PodsNotCounted { .. } => Some((EventType::Warning, "PodsNotCounted")),
            Self::TooManyLabels { .. } => Some((EventType::Warning, "TooManyLabels")),
            Self::MultipleBudgets { .. } => Some((EventType::Warning, "MultiplePodDisruptionBudgets")),
            Self::EvictionNotCompleted { .. } => Some((EventType::Warning, "EvictionNotCompleted")),
        }
    }
}
