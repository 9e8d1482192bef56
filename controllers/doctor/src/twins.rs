//! Whether kube-controller-manager does the same work.

use pod_safety_process::registry::Name;
use pod_safety_shared::drive::Mode;

use super::{Health, Symptom, fine, found, not_checked};

/// What is known of kube-controller-manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kcm {
    /// Its arguments, of each of its pods.
    Arguments(Vec<Vec<String>>),
    /// Its pods cannot be seen, as where somebody else runs the control plane; whether its lease is kept.
    Hidden {
        /// Somebody renews its lease.
        leads: bool,
    },
}

/// Whether kube-controller-manager runs what pod-safety runs in its place, and runs what pod-safety does not.
pub fn twins(kcm: &Kcm, mode: Option<Mode>, ours: &[Name]) -> Vec<Symptom> {
    let Some(mode) = mode else {
        return vec![not_checked("Twins", "the mode of pod-safety is not known")];
    };
    let all = match kcm {
        Kcm::Hidden { leads: false } => {
            return vec![not_checked("Twins", "kube-controller-manager cannot be seen, nor its lease")];
        }
        Kcm::Hidden { leads: true } if mode == Mode::Replace => {
            return vec![found(
                "Twins",
                Health::Problem,
                "kube-controller-manager leads, but its controllers cannot be seen; pod-safety runs in the mode replace",
                "two controllers that write the same objects undo each other's work, and its collector force deletes without proof",
                "if its flags cannot be changed, use the mode guard",
            )];
        }
        Kcm::Hidden { leads: true } => {
            return vec![fine("Twins", "kube-controller-manager leads; pod-safety runs beside it")];
        }
        Kcm::Arguments(all) => all,
    };
    let mut symptoms = vec![compared(all, mode, ours)];
    let detach = |arguments: &Vec<String>| {
        arguments.iter().any(|one| {
            one == "--disable-force-detach-on-timeout" || one == "--disable-force-detach-on-timeout=true"
        })
    };
    if !all.iter().all(detach) {
        symptoms.push(found(
            "ForceDetach",
            Health::Attention,
            "kube-controller-manager detaches volumes by force six minutes after a node became unreachable",
            "a volume may then be attached elsewhere while a pod on an unreachable node still writes to it",
            "start it with --disable-force-detach-on-timeout=true",
        ));
    }
    symptoms
}

/// What it was told to run, beside what we run.
fn compared(all: &[Vec<String>], mode: Mode, ours: &[Name]) -> Symptom {
    let names = Name::ALL.iter().copied().filter(|name| !name.of_kcm().is_empty() && ours.contains(name));
    let runs = |name: &Name| all.iter().any(|arguments| runs(arguments, name.of_kcm()));
    let (both, neither): (Vec<Name>, Vec<Name>) = names.partition(runs);
    let words = |names: &[Name]| {
        names.iter().filter_map(|name| name.of_kcm().first().copied()).collect::<Vec<_>>().join(", ")
    };
    match mode {
        Mode::Replace if !both.is_empty() => found(
            "Twins",
            Health::Problem,
            format!("kube-controller-manager runs too: {}", words(&both)),
            "two controllers that write the same objects undo each other's work, and its collector force deletes without proof",
            format!("add -{} to its --controllers", words(&both).replace(", ", ",-")),
        ),
        Mode::Guard | Mode::Observe if !neither.is_empty() => found(
            "Twins",
            Health::Problem,
            format!("no controller manager runs: {}", words(&neither)),
            "in this mode pod-safety leaves these to kube-controller-manager, where they are switched off",
            "use the mode replace, or enable them there",
        ),
        Mode::Replace => {
            fine("Twins", "kube-controller-manager runs none of what pod-safety runs in its place")
        }
        Mode::Guard | Mode::Observe => {
            fine("Twins", "kube-controller-manager runs its own; pod-safety runs beside it")
        }
    }
}

/// Whether one of these names is on, by its rules: a name switches on, -name off, * all others.
fn runs(arguments: &[String], names: &[&str]) -> bool {
    let mut lists = arguments.iter().filter_map(|one| one.strip_prefix("--controllers="));
    let Some(list) = lists.next_back() else { return true };
    let words: Vec<&str> = list.split(',').map(str::trim).collect();
    let off = |name: &&str| words.iter().any(|word| word.strip_prefix('-') == Some(name));
    let on = |name: &&str| words.contains(name);
    names.iter().any(on) || (words.contains(&"*") && !names.iter().any(off))
}
