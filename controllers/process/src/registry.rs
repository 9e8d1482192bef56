//! The table of the controllers, from which the rest of the process is derived: their names, flags and settings, how
//! each is started, and the list of those that run.

use std::collections::BTreeSet;
use std::sync::Arc;

use clap::Args as ClapArgs;
use pod_safety_devices::AgentLocation;
use pod_safety_shared::controller_loop::{Controller, HoldReason as _, Mode};
use pod_safety_shared::lease::Leadership;
use pod_safety_shared::metrics::{Metrics, MetricsError};
use pod_safety_shared::model::{BadName, Kind};

use crate::disruption::{self, Disruption};
use crate::eviction::EvictionController;
use crate::fence_agents::PlaceArgs;
use crate::fencing::{self, Fencing};
use crate::node_lifecycle::{self, NodeLifecycle};
use crate::pod_gc::{self, PodGc};
use crate::start::Start;
use crate::taint_eviction::TaintEviction;
use crate::volume_guard::{self, VolumeGuard};

/// A controller of this project. As a text: the name of its values in the chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::VariantArray, strum::IntoStaticStr)]
#[strum(serialize_all = "camelCase")]
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

/// The flags of the controllers, in the order of `--help`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Flags {
    #[command(flatten)]
    pod_gc: pod_gc::Flags,
    #[command(flatten)]
    disruption: disruption::Config,
    #[command(flatten)]
    node_lifecycle: node_lifecycle::Flags,
    #[command(flatten)]
    volume_guard: volume_guard::Flags,
    #[command(flatten)]
    agents: PlaceArgs,
    #[command(flatten)]
    fencing: fencing::Flags,
}

/// What the flags set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of pod garbage collection.
    pub pod_gc: pod_gc::Config,
    /// Of disruption budgets.
    pub disruption: disruption::Config,
    /// Of node lifecycle.
    pub node_lifecycle: node_lifecycle::Config,
    /// Of exclusive volumes.
    pub volume_guard: volume_guard::Config,
    /// Of fencing.
    pub fencing: fencing::Config,
    /// The namespaces whose FenceDevices and PodSafetyRemediations are watched.
    pub fencing_namespaces: BTreeSet<String>,
}

impl Flags {
    /// Destructures all flags by name, so that an unused one does not compile.
    pub(crate) fn into_settings(self, mode: Mode, controllers: &[Name]) -> Result<(Settings, AgentLocation), BadName> {
        let Self { pod_gc, disruption, node_lifecycle, volume_guard, agents, fencing } = self;
        let pod_gc = pod_gc.into_config()?;
        let volume_guard = volume_guard.into_config(pod_gc.quarantine)?;
        let (fencing, fencing_namespaces) = fencing.into_config(mode, controllers.contains(&Name::VolumeGuard))?;
        let node_lifecycle = node_lifecycle.into_config(mode);
        let settings = Settings { pod_gc, disruption, node_lifecycle, volume_guard, fencing, fencing_namespaces };
        Ok((settings, agents.into_location()))
    }
}

type Created = Result<Box<dyn Start>, MetricsError>;
type Create = fn(&Settings, &Arc<Leadership>, &Metrics) -> Created;

/// A row of the table.
struct Row {
    name: &'static str,
    kinds: &'static [Kind],
    hold_reasons: fn() -> Vec<&'static str>,
    create: Create,
    kcm_names: &'static [&'static str],
    is_on_by_default: bool,
}

impl Row {
    const fn row_for<C: Controller>(create: Create) -> Self {
        let (name, kinds, hold_reasons) = (C::NAME, C::KINDS, C::Hold::reason_names);
        Self { name, kinds, hold_reasons, create, kcm_names: &[], is_on_by_default: true }
    }

    const fn replaces(self, kcm_names: &'static [&'static str]) -> Self {
        Self { kcm_names, ..self }
    }

    const fn off_by_default(self) -> Self {
        Self { is_on_by_default: false, ..self }
    }
}

fn boxed<C: Controller>(created: Result<C, MetricsError>) -> Created {
    Ok(Box::new(created?))
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

    /// The table.
    const fn row(self) -> Row {
        match self {
            Self::PodGc => Row::row_for::<PodGc>(|settings, _, metrics| {
                boxed(PodGc::new(settings.pod_gc.clone(), metrics.registry()))
            })
            .replaces(&["pod-garbage-collector-controller", "podgc"]),
            Self::Disruption => Row::row_for::<Disruption>(|settings, _, metrics| {
                boxed(Disruption::new(settings.disruption.clone(), metrics.registry()))
            })
            .replaces(&["disruption-controller"]),
            Self::NodeLifecycle => Row::row_for::<NodeLifecycle>(|settings, leadership, metrics| {
                let config = settings.node_lifecycle.clone();
                boxed(NodeLifecycle::new(config, Arc::clone(leadership), metrics.registry()))
            })
            .replaces(&["node-lifecycle-controller", "nodelifecycle"]),
            Self::TaintEviction => {
                Row::row_for::<TaintEviction>(|_, _, metrics| boxed(TaintEviction::new(metrics.registry())))
                    .replaces(&["taint-eviction-controller"])
            }
            Self::Fencing => Row::row_for::<Fencing>(|settings, _, metrics| {
                boxed(Fencing::new(settings.fencing.clone(), metrics.registry()))
            }),
            // It requires a namespace, rights and policies of its own, which a cluster has only on request;
            // kube-controller-manager has such controllers, too.
            Self::VolumeGuard => Row::row_for::<VolumeGuard>(|settings, _, metrics| {
                boxed(VolumeGuard::new(settings.volume_guard.clone(), metrics.registry()))
            })
            .off_by_default(),
            // It serves an alpha API, which a later kube-controller-manager may serve.
            Self::Eviction => {
                Row::row_for::<EvictionController>(|_, _, metrics| boxed(EvictionController::new(metrics.registry())))
                    .off_by_default()
            }
        }
    }

    /// The name in flags and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.row().name
    }

    /// The name and alias of kube-controller-manager's controller that this one replaces.
    #[must_use]
    pub const fn kcm_names(self) -> &'static [&'static str] {
        self.row().kcm_names
    }

    /// The kinds that it watches.
    #[must_use]
    pub const fn kinds(self) -> &'static [Kind] {
        self.row().kinds
    }

    /// The reasons for which it does nothing.
    #[must_use]
    pub fn hold_reasons(self) -> Vec<&'static str> {
        (self.row().hold_reasons)()
    }

    /// Whether `*` includes it.
    #[must_use]
    pub const fn is_on_by_default(self) -> bool {
        self.row().is_on_by_default
    }

    pub(crate) fn create(self, settings: &Settings, leadership: &Arc<Leadership>, metrics: &Metrics) -> Created {
        (self.row().create)(settings, leadership, metrics)
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

    #[test]
    fn each_flag_sets_its_own_setting_and_zero_means_indefinitely_or_never() {
        for (flags, hours, threshold) in
            [("", Some(2_160), Some(12_500)), ("--fencing-history=0 --terminated-pod-gc-threshold=0", None, None)]
        {
            let config =
                crate::run::parse_config(&flags.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).unwrap();
            let kept = config.settings.fencing.history.map(|kept| kept.as_secs() / 3_600);
            assert_eq!((kept, config.settings.pod_gc.terminated_threshold), (hours, threshold), "{flags}");
        }
        let flags = "--leader-elect-lease-duration=31s --leader-elect-renew-deadline=21s --pod-gc-quarantine=41s \
            --leader-elect-retry-period=11s --stale-pod-disruption-timeout=51s --fence-provider-behind=61s";
        let config =
            crate::run::parse_config(&flags.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).unwrap();
        let lease = config.lease.unwrap();
        let spans = [lease.lease_duration, lease.renew_deadline, lease.retry_period, config.settings.pod_gc.quarantine];
        assert_eq!(spans.map(|span| span.as_secs()), [31, 21, 11, 41]);
        let spans = [
            config.settings.volume_guard.quarantine,
            config.settings.disruption.stale_pod_timeout,
            config.settings.fencing.provider_lag,
        ];
        assert_eq!(spans.map(|span| span.as_secs()), [41, 51, 61]);
    }
}
