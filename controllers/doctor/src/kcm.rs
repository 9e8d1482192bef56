//! What kube-controller-manager does, and what pod-safety does, by the flags of both.

use jiff::Timestamp;
use pod_safety_process::registry::{Name, is_enabled};
use pod_safety_shared::cache::View;
use pod_safety_shared::controller_loop::Mode;

use super::duties::{check_node_lifecycle, has_controller};
use super::{Duties, Health, Symptom, healthy, not_checked, symptom};

const CHECK: &str = "KubeControllerManager";

/// Why only one of them may run each controller.
const BOTH: &str =
    "two controllers that write the same objects undo each other's work, and its collector force deletes without proof";

/// What is known of kube-controller-manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kcm {
    /// The arguments of each of its pods.
    Arguments(Vec<Vec<String>>),
    /// Its pods are not visible, as in a managed control plane; whether its Lease is renewed.
    Hidden {
        /// Its Lease is renewed.
        is_leading: bool,
    },
}

/// Whether kube-controller-manager runs controllers that pod-safety runs in its place, and whether it runs those that
/// pod-safety leaves to it.
pub fn check_kcm(kcm: &Kcm, duties: Duties<'_>) -> Vec<Symptom> {
    let Some(mode) = duties.mode else {
        return vec![not_checked(CHECK, "the mode of pod-safety is not known")];
    };
    let all = match kcm {
        Kcm::Hidden { is_leading: false } => {
            let why = "its pods cannot be seen, and nobody renews its Lease kube-system/kube-controller-manager";
            return vec![not_checked(CHECK, why)];
        }
        Kcm::Hidden { is_leading: true } if mode == Mode::Replace => {
            let what = format!(
                "not checked: it leads, but its flags cannot be read, and pod-safety runs {} in the mode replace",
                join_names(&kcm_conflicts(duties.controllers))
            );
            let remedy = format!(
                "read its --controllers, which must disable them; where it cannot be changed: {}",
                duties.installation.helm_command("mode=guard")
            );
            return vec![symptom(CHECK, Health::Unknown, what, BOTH, remedy)];
        }
        Kcm::Hidden { is_leading: true } => {
            let what = "it leads; its flags cannot be read; pod-safety runs beside it";
            return vec![healthy(CHECK, format!("{what} in the mode {}", mode.name()))];
        }
        Kcm::Arguments(all) => all,
    };
    let mut symptoms = vec![compare_controllers(all, mode, duties)];
    let detach = |arguments: &Vec<String>| {
        arguments
            .iter()
            .any(|one| one == "--disable-force-detach-on-timeout" || one == "--disable-force-detach-on-timeout=true")
    };
    if !all.iter().all(detach) {
        symptoms.push(symptom(
            "ForceDetach",
            Health::Attention,
            "kube-controller-manager detaches volumes by force six minutes after a node became unreachable",
            "a volume may then be attached elsewhere while a pod on an unreachable node still writes to it",
            "start it with --disable-force-detach-on-timeout=true",
        ));
    }
    symptoms
}

/// The controllers of pod-safety that kube-controller-manager has too.
fn kcm_conflicts(controllers: &[Name]) -> Vec<Name> {
    let has = |name: &Name| !name.kcm_names().is_empty() && controllers.contains(name);
    Name::ALL.iter().copied().filter(has).collect()
}

/// Joins them by kube-controller-manager's names.
fn join_names(names: &[Name]) -> String {
    names.iter().filter_map(|name| name.kcm_names().first().copied()).collect::<Vec<_>>().join(", ")
}

/// Compares the controllers that kube-controller-manager runs with those of pod-safety.
fn compare_controllers(all: &[Vec<String>], mode: Mode, duties: Duties<'_>) -> Symptom {
    let runs = |name: &Name| all.iter().any(|arguments| runs(arguments, *name));
    let (both, neither): (Vec<Name>, Vec<Name>) = kcm_conflicts(duties.controllers).into_iter().partition(runs);
    match mode {
        Mode::Replace if !both.is_empty() => symptom(
            CHECK,
            Health::Problem,
            format!("it runs, too, what pod-safety runs in the mode replace: {}", join_names(&both)),
            BOTH,
            format!("add -{} to its --controllers", join_names(&both).replace(", ", ",-")),
        ),
        Mode::Guard | Mode::Observe if !neither.is_empty() => symptom(
            CHECK,
            Health::Problem,
            format!("nobody runs {}", join_names(&neither)),
            "in this mode pod-safety leaves them to kube-controller-manager, where they are disabled",
            format!("enable them there, or: {}", duties.installation.helm_command("mode=replace")),
        ),
        Mode::Replace => healthy(CHECK, format!("pod-safety runs {} in its place", join_names(&neither))),
        Mode::Guard | Mode::Observe => healthy(
            CHECK,
            format!("it runs {}; pod-safety runs beside it in the mode {}", join_names(&both), mode.name()),
        ),
    }
}

/// Whether no controller does node lifecycle, as effects or the flags of both show it. `false`: not known, because a
/// controller that is enabled may not work.
pub(super) fn lacks_node_lifecycle(kcm: &Kcm, duties: Duties<'_>, view: &View<'_>, wall: Timestamp) -> bool {
    if check_node_lifecycle(view, wall, duties).is_some_and(|found| found.health == Health::Problem) {
        return true;
    }
    let is_own = duties.mode.is_none() || has_controller(duties, Name::NodeLifecycle);
    let is_of_kcm = match kcm {
        Kcm::Arguments(all) => all.iter().any(|arguments| runs(arguments, Name::NodeLifecycle)),
        Kcm::Hidden { .. } => true,
    };
    !is_own && !is_of_kcm
}

/// Whether kube-controller-manager runs this controller by its `--controllers`, or without the flag. The lists of repeated
/// flags are one list.
fn runs(arguments: &[String], name: Name) -> bool {
    let lists = arguments.iter().filter_map(|one| one.strip_prefix("--controllers="));
    let words: Vec<&str> = lists.flat_map(|list| list.split(',')).map(str::trim).collect();
    words.is_empty() || is_enabled(&words, |word| name.kcm_names().contains(&word), true)
}
