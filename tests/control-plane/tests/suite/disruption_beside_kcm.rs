//! One scripted history of PDBs for pod-safety and for kube-controller-manager's disruption controller. After each step all statuses,
//! conditions and answers to evictions are equal, except for [`differences`]: those are defects of kube-controller-manager, and both sides
//! have the listed values. In between, pod-safety never allows more evictions than before the step or after it. `script` has the
//! history.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]

mod budgets;
mod script;

use budgets::{Act, Budgets};

use crate::beside_kcm::differences::Difference;
use crate::beside_kcm::{History, kcm_matches_the_recording, pod_safety_matches_the_recording};

/// Scaling a workload does not trigger its PDB in kube-controller-manager; the next event of a pod does.
const SCALED: &str = "W-DC2";
/// It triggers one of several PDBs of a pod, and never the one that a pod no longer matches.
const ONE_BUDGET: &str = "W-DC3";
/// It does not calculate a PDB at all if one pod has a controller without a scale.
const UNSCALED_POD: &str = "W-DC5";
/// It does not report which pod's controller could not be read, and does not retry.
const UNSCALED_MESSAGE: &str = "W-DC4";
/// It confuses the successor of an evicted pod, under the same name, with the evicted one.
const SAME_NAME: &str = "W-DC6";

const ALLOWS_ONE_OF_THREE: &str = "1 allowed: 3 healthy, 2 desired, 3 expected, True SufficientPods";
const ALLOWS_NONE_OF_THREE: &str = "0 allowed: 2 healthy, 2 desired, 3 expected, False InsufficientPods";
const REFUSED: &str = "429 Cannot evict pod as it would violate the pod's disruption budget. The disruption budget";

/// A difference after one step.
fn at(
    (namespace, step): (&str, &str),
    why: &'static str,
    about: &[&str],
    kcm: &[&str],
    pod_safety: &[&str],
) -> Difference {
    let step = format!("{namespace}: {step}");
    crate::beside_kcm::differences::differs((&step, &step), why, about, kcm, pod_safety)
}

/// All differences.
fn differences() -> Vec<Difference> {
    let mut all = vec![
        at(
            ("rollout", "scaled up"),
            SCALED,
            &["rollout/shop"],
            &["1 allowed: 4 healthy, 3 desired, 4 expected, True SufficientPods"],
            &["0 allowed: 4 healthy, 6 desired, 8 expected, False InsufficientPods"],
        ),
        at(
            ("rollout", "scaled down"),
            SCALED,
            &["rollout/shop"],
            &["2 allowed: 8 healthy, 6 desired, 8 expected, True SufficientPods"],
            &["7 allowed: 8 healthy, 1 desired, 2 expected, True SufficientPods"],
        ),
        at(
            ("others", "the ReplicationController is scaled"),
            SCALED,
            &["others/old"],
            &["1 allowed: 4 healthy, 3 desired, 5 expected, True SufficientPods"],
            &["2 allowed: 4 healthy, 2 desired, 3 expected, True SufficientPods"],
        ),
    ];
    all.extend(of_overlapping_budgets());
    all.extend(of_a_successor());
    all.extend(UNSCALED.iter().flat_map(|(namespace, resource)| of_an_unscaled_pod(namespace, resource)));
    all.extend(of_a_vanished_controller());
    all.extend(["a budget that asks for it", "an eviction"].map(|step| {
        at(
            ("phantom", step),
            UNSCALED_MESSAGE,
            &["phantom/ghost"],
            &[&phantom("no matches for kind \"Phantom\" in version \"phantom.example.com/v1\"")],
            &[&phantom("the controller of pod g-0: there is no kind Phantom in phantom.example.com/v1; it is retried")],
        )
    }));
    all
}

fn phantom(why: &str) -> String {
    format!("0 allowed: 1 healthy, 0 desired, 1 expected, False SyncFailed {why}, seen 1 of 2")
}

fn of_overlapping_budgets() -> Vec<Difference> {
    let twins = ["overlapping/twin-1", "overlapping/twin-2"];
    let (one, none) = (ALLOWS_ONE_OF_THREE, ALLOWS_NONE_OF_THREE);
    vec![
        at(("overlapping", "a pod crashes"), ONE_BUDGET, &twins, &[none, one], &[none, none]),
        at(("overlapping", "it recovers"), ONE_BUDGET, &twins, &[none, one], &[one, one]),
        at(("overlapping", "a pod is relabelled"), ONE_BUDGET, &twins, &[one, one], &[none, none]),
    ]
}

fn of_a_successor() -> Vec<Difference> {
    let counted_out = format!("{ALLOWS_NONE_OF_THREE}, disrupted db-0");
    let refused = format!("{REFUSED} db needs 2 healthy pods and has 2 currently");
    vec![
        at(
            ("successor", "one is replaced while no controller runs"),
            SAME_NAME,
            &["successor/db"],
            &[&counted_out],
            &[ALLOWS_ONE_OF_THREE],
        ),
        at(
            ("successor", "another may not go, or may"),
            SAME_NAME,
            &["successor/db", "successor: eviction of db-1"],
            &[&counted_out, &refused],
            &[ALLOWS_NONE_OF_THREE, "201"],
        ),
    ]
}

/// The position of an unscaled pod among those of a ReplicaSet, and the resource of its controller.
const UNSCALED: [(&str, &str); 3] =
    [("daemon", "daemonsets.apps"), ("job", "jobs.batch"), ("herd", "herds.example.com")];

fn of_an_unscaled_pod(namespace: &'static str, resource: &str) -> Vec<Difference> {
    let why = format!("{resource} does not implement the scale subresource");
    let failed = format!("0 allowed: 3 healthy, 2 desired, 3 expected, False SyncFailed {why}");
    let refused = format!("{REFUSED} set does not allow evicting pods currently because it failed sync: {why}");
    let (budget, eviction) = (format!("{namespace}/set"), format!("{namespace}: eviction of s-0"));
    vec![
        at((namespace, "an odd pod beside them"), UNSCALED_POD, &[&budget], &[&failed], &[ALLOWS_ONE_OF_THREE]),
        at(
            (namespace, "an eviction"),
            UNSCALED_POD,
            &[&budget, &eviction],
            &[&failed, &refused],
            &[ALLOWS_NONE_OF_THREE, "201"],
        ),
    ]
}

fn of_a_vanished_controller() -> Vec<Difference> {
    let nothing = "0 allowed: 0 healthy, 0 desired, 0 expected, False InsufficientPods";
    let why = "found no controllers for pod \"s-0\"";
    let failed = format!("0 allowed: 1 healthy, 0 desired, 1 expected, False SyncFailed {why}");
    let refused = format!("{REFUSED} set does not allow evicting pods currently because it failed sync: {why}");
    let changed = |step| at(("vanished", step), UNSCALED_POD, &["vanished/set"], &[&failed], &[nothing]);
    vec![
        at(
            ("vanished", "the ReplicaSet is deleted"),
            SCALED,
            &["vanished/set"],
            &["1 allowed: 1 healthy, 0 desired, 1 expected, True SufficientPods"],
            &[nothing],
        ),
        changed("then its pod changes"),
        at(
            ("vanished", "an eviction"),
            UNSCALED_POD,
            &["vanished/set", "vanished: eviction of s-0"],
            &[&failed, &refused],
            &[nothing, &format!("{REFUSED} set needs 0 healthy pods and has 0 currently")],
        ),
        changed("another ReplicaSet of that name"),
    ]
}

fn history() -> History<Act> {
    History { name: "disruption", steps: script::steps(), differences: differences(), is_drawn_by_chance: |_, _| false }
}

#[tokio::test]
async fn pdb_statuses_equal_kcm_but_for_listed_differences() {
    pod_safety_matches_the_recording::<Budgets>(history()).await;
}

#[tokio::test]
async fn kcm_follows_the_recorded_pdb_history_live() {
    kcm_matches_the_recording::<Budgets>(history()).await;
}
