//! The controllers, their names, and the list of those that run.

use pod_safety_shared::controller_loop::Controller;
use pod_safety_shared::model::Kind;

use crate::disruption::Disruption;
use crate::eviction::EvictionController;
use crate::fencing::Fencing;
use crate::node_lifecycle::NodeLifecycle;
use crate::pod_gc::PodGc;
use crate::taint_eviction::TaintEviction;
use crate::volume_guard::VolumeGuard;

/// A controller of this project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::VariantArray)]
pub enum Name {
    /// Pod garbage collection.
    PodGc,
    /// Disruption budgets.
    Disruption,
    /// Node loss.
    NodeLifecycle,
    /// Eviction by taint.
    TaintEviction,
    /// Fencing.
    Fencing,
    /// Exclusive volumes.
    VolumeGuard,
    /// Requested evictions.
    Eviction,
}

/// Why a list of controllers cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadControllers {
    /// An unknown name.
    #[error("{0:?} is not in the list of known controllers: {known}; a '-' before a name disables it, '*' means all that are on by default", known = known())]
    Unknown(String),
    /// No controller is left to run.
    #[error("no controller is left to run; known are: {known}", known = known())]
    None,
}

impl Name {
    /// Every controller.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The name in flags and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PodGc => PodGc::NAME,
            Self::Disruption => Disruption::NAME,
            Self::NodeLifecycle => NodeLifecycle::NAME,
            Self::TaintEviction => TaintEviction::NAME,
            Self::Fencing => Fencing::NAME,
            Self::VolumeGuard => VolumeGuard::NAME,
            Self::Eviction => EvictionController::NAME,
        }
    }

    /// The name and alias of kube-controller-manager's controller that this one replaces.
    #[must_use]
    pub const fn kcm_names(self) -> &'static [&'static str] {
        match self {
            Self::PodGc => &["pod-garbage-collector-controller", "podgc"],
            Self::Disruption => &["disruption-controller"],
            Self::NodeLifecycle => &["node-lifecycle-controller", "nodelifecycle"],
            Self::TaintEviction => &["taint-eviction-controller"],
            Self::Fencing | Self::VolumeGuard | Self::Eviction => &[],
        }
    }

    /// The kinds that it watches.
    #[must_use]
    pub const fn kinds(self) -> &'static [Kind] {
        match self {
            Self::PodGc => PodGc::KINDS,
            Self::Disruption => Disruption::KINDS,
            Self::TaintEviction => TaintEviction::KINDS,
            Self::NodeLifecycle => NodeLifecycle::KINDS,
            Self::Fencing => Fencing::KINDS,
            Self::VolumeGuard => VolumeGuard::KINDS,
            Self::Eviction => EvictionController::KINDS,
        }
    }

    /// Whether `*` includes it. The volume guard requires a namespace, rights and policies of its own, which a
    /// cluster has only on request; kube-controller-manager has such controllers, too. The eviction controller serves
    /// an alpha API, which a later kube-controller-manager may serve.
    #[must_use]
    pub const fn is_on_by_default(self) -> bool {
        match self {
            Self::PodGc | Self::Disruption | Self::NodeLifecycle | Self::TaintEviction | Self::Fencing => true,
            Self::VolumeGuard | Self::Eviction => false,
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|name| name.as_str() == word || name.kcm_names().contains(&word))
    }
}

fn known() -> String {
    let describe = |name: Name| match name.kcm_names() {
        [] => name.as_str().to_owned(),
        twins => format!("{} (or {})", name.as_str(), twins.join(", ")),
    };
    Name::ALL.iter().copied().map(describe).collect::<Vec<_>>().join(", ")
}

/// Whether the words of `--controllers` enable a controller, as in kube-controller-manager (`IsControllerEnabled` of
/// `k8s.io/controller-manager/app`): its name enables it, `-name` disables it, whichever comes first; `*` enables it if it is
/// on by default.
pub fn is_enabled(words: &[&str], is_its_name: impl Fn(&str) -> bool, is_on_by_default: bool) -> bool {
    let first = words.iter().find(|word| is_its_name(word.strip_prefix('-').unwrap_or(word)));
    first.map_or(is_on_by_default && words.contains(&"*"), |word| !word.starts_with('-'))
}

/// Reads `--controllers`: see [`is_enabled`].
///
/// # Errors
/// An unknown name, or nothing left to run.
pub fn parse_list(words: &[String]) -> Result<Vec<Name>, BadControllers> {
    let words: Vec<&str> = words.iter().map(|word| word.trim()).collect();
    let is_unknown = |word: &&&str| **word != "*" && Name::parse(word.strip_prefix('-').unwrap_or(word)).is_none();
    if let Some(word) = words.iter().find(is_unknown) {
        return Err(BadControllers::Unknown((*word).to_owned()));
    }
    let is_selected =
        |name: &Name| is_enabled(&words, |word| Name::parse(word) == Some(*name), name.is_on_by_default());
    let list: Vec<Name> = Name::ALL.iter().copied().filter(is_selected).collect();
    if list.is_empty() { Err(BadControllers::None) } else { Ok(list) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(words: &str) -> Result<Vec<Name>, BadControllers> {
        parse_list(&words.split(',').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_star_means_all_that_are_on_by_default() {
        assert_eq!(
            select("*"),
            Ok(vec![Name::PodGc, Name::Disruption, Name::NodeLifecycle, Name::TaintEviction, Name::Fencing])
        );
        let but = select("*,-disruption-controller,-nodelifecycle,-taint-eviction-controller,-fencing,-volume-guard");
        assert_eq!(but, Ok(vec![Name::PodGc]));
    }

    #[test]
    fn the_names_and_aliases_of_kcm_are_accepted() {
        for name in ["pod-gc", "pod-garbage-collector-controller", "podgc"] {
            assert_eq!(select(name), Ok(vec![Name::PodGc]), "{name}");
        }
    }

    #[test]
    fn bug_the_last_of_two_entries_decided_and_not_the_first_as_in_kcm() {
        assert_eq!(select("pod-gc,-pod-gc"), Ok(vec![Name::PodGc]));
        assert_eq!(select("-pod-gc,podgc,disruption"), Ok(vec![Name::Disruption]));
        assert_eq!(select("-podgc,pod-gc"), Err(BadControllers::None));
    }

    #[test]
    fn an_unknown_name_is_reported_with_the_known_ones() {
        let message = select("*,nosuch").unwrap_err().to_string();
        assert!(
            message.starts_with(r#""nosuch" is not in the list of known controllers: pod-gc (or pod-garbage"#),
            "{message}"
        );
        assert_eq!(select("*,-nosuch"), Err(BadControllers::Unknown("-nosuch".to_owned())));
    }

    #[test]
    fn the_volume_guard_runs_only_if_named() {
        let all = [Name::PodGc, Name::Disruption, Name::NodeLifecycle, Name::TaintEviction, Name::Fencing];
        assert_eq!(select("*,volume-guard").unwrap(), all.into_iter().chain([Name::VolumeGuard]).collect::<Vec<_>>());
        assert_eq!(select("volume-guard"), Ok(vec![Name::VolumeGuard]));
        assert_eq!(select("eviction"), Ok(vec![Name::Eviction]));
    }

    #[test]
    fn nothing_to_run_is_an_error() {
        assert_eq!(select("*,-pod-gc,-disruption,-node-lifecycle,-taint-eviction,-fencing"), Err(BadControllers::None));
    }
}
