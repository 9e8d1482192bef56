//! Why the controller does not act: typed, with numbers, for Events and for programs.

use pod_safety_shared::cache::FreshnessError;
use pod_safety_shared::controller_loop::{self, HoldReason};
use pod_safety_shared::events::EventType;
use strum::{IntoStaticStr, VariantNames};

/// What this controller decides about a key.
pub type Decision = controller_loop::Decision<Hold>;

/// A reason not to act now. The names of the variants are values of metrics and of programs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, IntoStaticStr, VariantNames)]
pub enum Hold {
    /// The cache of a kind is not synced, or is stale.
    #[error(transparent)]
    #[strum(transparent)]
    Unfresh(#[from] FreshnessError),
    /// The budget selects no pods.
    #[error("the PodDisruptionBudget selects no pods")]
    NoPods,
    /// The numbers of the PodDisruptionBudget cannot be calculated: no eviction is allowed.
    #[error("no eviction is allowed, because the numbers cannot be calculated: {why}")]
    BudgetFailed {
        /// What is wrong, and how to correct it.
        why: String,
        /// The selector is invalid: it is unknown which pods it selects.
        selector: bool,
    },
    /// Pods without a controller.
    #[error(
        "these pods have no controller: they count as healthy, but not as expected. Set spec.minAvailable to a whole number to count them: {}", pods.join(", ")
    )]
    UnmanagedPods {
        /// Their names.
        pods: Vec<String>,
    },
    /// Pods whose controllers have no scale.
    #[error("these pods count neither as expected nor as healthy, because their controllers have no scale: {}", pods.join(", "))]
    PodsNotCounted {
        /// Their names and controllers.
        pods: Vec<String>,
    },
    /// Pods of its namespace of which it is unknown whether the budget selects them.
    #[error("these pods count in no PodDisruptionBudget, because they have more labels than pod-safety keeps (128, or 16 KiB): {}", pods.join(", "))]
    TooManyLabels {
        /// Their names.
        pods: Vec<String>,
    },
    /// No eviction will ever be allowed, unless it is changed or the workload is scaled.
    #[error(
        "no eviction can ever be allowed: {desired} pods must be healthy, and no more than {healthy} can be. pod-safety explain pdb shows the ways out"
    )]
    DisruptionsNeverAllowed {
        /// How many must be healthy.
        desired: i32,
        /// How many can ever be healthy.
        healthy: i32,
    },
    /// The eviction API refuses to evict a pod of several budgets.
    #[error("the pod matches multiple PodDisruptionBudgets: {}. The eviction API denies its eviction until only one is left", budgets.join(", "))]
    MultipleBudgets {
        /// Their names.
        budgets: Vec<String>,
    },
    /// Its eviction was allowed, and it still exists.
    #[error(
        "its eviction was allowed by the PodDisruptionBudget {budget} two minutes ago, and it is not terminating yet"
    )]
    EvictionNotCompleted {
        /// The budget that allowed it.
        budget: String,
    },
    /// The scale of a controller was requested, and has not been read yet.
    #[error("waiting for the scale of {controller}")]
    ScaleAsked {
        /// Its kind and name.
        controller: String,
    },
}

impl HoldReason for Hold {
    fn reason(&self) -> &'static str {
        self.into()
    }

    fn event(&self) -> Option<(EventType, &'static str)> {
        match self {
            Self::Unfresh(_) | Self::DisruptionsNeverAllowed { .. } | Self::ScaleAsked { .. } => None,
            Self::NoPods => Some((EventType::Normal, "NoPods")),
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
