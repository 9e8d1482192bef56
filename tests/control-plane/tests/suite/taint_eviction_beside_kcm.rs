//! One history of taints and tolerations for pod-safety and for kube-controller-manager's taint eviction controller. In the end the same pods
//! were deleted, none too early, with the same grace period, condition and Events, except for [`ENDS`]: those are defects of
//! kube-controller-manager, and both sides have the listed values. In between, pod-safety marks no pod that it does not delete in the
//! end.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]

mod taints;

use taints::{ACROSS, Act, SHORT, Taints, TolerationSpec};

use crate::beside_kcm::differences::{Difference, differs};
use crate::beside_kcm::{History, Step, kcm_matches_the_recording, pod_safety_matches_the_recording};
use crate::versions;

/// Deleted gracefully, with one Event.
const ENDS: &str = "ends in 30s, marked";
/// Its toleration period was running, and the deletion was cancelled.
const CALLED_OFF: &str = "stays, cancelled";
/// No action.
const STAYS: &str = "stays";

/// The only step: toleration periods run while other changes happen.
const ALL: &str = "pods tolerate taints, or not, and change their minds";

/// The result on both sides: pod and outcome.
const SAME: &[(&str, &str)] = &[
    ("intolerant", ENDS),
    ("tolerant", STAYS),
    ("tolerates-all", STAYS),
    ("another-key", ENDS),
    ("right-value", STAYS),
    ("wrong-value", ENDS),
    ("not-a-moment", ENDS),
    ("two-seconds", ENDS),
    ("five-seconds", ENDS),
    ("long-grace", "ends in 45s, marked"),
    ("pending", ENDS),
    ("of-a-daemon-set", ENDS),
    ("mirror", ENDS),
    ("shortest-of-two", ENDS),
    ("one-of-two", ENDS),
    ("reprieved", CALLED_OFF),
    ("pardoned", CALLED_OFF),
    ("vanished", "gone, cancelled"),
    ("across", ENDS),
    ("ended before their times", ""),
];

/// Line, the defect, the value of kube-controller-manager, that of pod-safety.
const DIFFERENCES: [(&str, &str, &str, &str); 10] = [
    // Five attempts within 50 ms.
    ("denied", "W-TE1", "stays, marked", ENDS),
    // A restart during a toleration period starts it again.
    ("across a restart", "W-TE3", "its time began anew", "its time went on"),
    // An existing timer is not changed.
    ("shortened", "TE-3, W-TE4", STAYS, ENDS),
    ("lengthened", "TE-3, W-TE4", ENDS, STAYS),
    ("shorter-by-a-second-taint", "TE-3, W-TE4", STAYS, ENDS),
    ("its-taint-went", "W-TE4", ENDS, STAYS),
    // It does not read the pod again.
    ("completed", "W-TE7", "gone, marked", STAYS),
    ("ending", "W-TE7", ENDS, "ends in 30s without a word"),
    // It cancels the timer before it deletes immediately.
    ("cut-short", "TE-2", "ends in 30s, cancelled, marked", ENDS),
    // It multiplies nanoseconds by a second.
    ("durations are seconds", "TE-7", "no", "yes"),
];

fn differences() -> Vec<Difference> {
    let rows = DIFFERENCES.iter();
    rows.map(|(line, why, kcm, pod_safety)| differs((ALL, ALL), why, &[line], &[kcm], &[pod_safety])).collect()
}

/// Conditions differ with the outcomes; but both sides mark the pod whose deletion is denied.
fn differs_in_outcome(_: &str, line: &str) -> bool {
    let pod = line.strip_suffix(" condition").filter(|pod| *pod != "denied");
    pod.is_some_and(|pod| DIFFERENCES.iter().any(|(other, ..)| *other == pod))
}

fn history() -> History<Act> {
    let steps = vec![Step { name: ALL.to_owned(), acts: acts(), expected: SAME }];
    History { name: "taint-eviction", steps, differences: differences(), is_drawn_by_chance: differs_in_outcome }
}

/// The pods, the taints, and the changes while toleration periods run.
fn acts() -> Vec<Act> {
    let (ever, secs) = (|key| TolerationSpec(key, "", None), |key, seconds| TolerationSpec(key, "", Some(seconds)));
    let on = |node, name, tolerations: &[TolerationSpec]| Act::Pod(node, name, tolerations.to_vec());
    let mut acts = vec![
        on("across", "across", &[secs("k", ACROSS)]),
        Act::Taint("across", &[("k", "")]),
        Act::WaitHalf,
        Act::Restart,
        on("plain", "intolerant", &[]),
        on("plain", "tolerant", &[ever("k")]),
        on("plain", "tolerates-all", &[ever("")]),
        on("plain", "another-key", &[ever("other")]),
        on("plain", "right-value", &[TolerationSpec("k", "v", None)]),
        on("plain", "wrong-value", &[TolerationSpec("k", "w", None)]),
        on("plain", "not-a-moment", &[secs("k", 0)]),
        on("plain", "two-seconds", &[secs("k", 2)]),
        on("plain", "five-seconds", &[secs("k", 5)]),
        Act::SpecialPods("plain"),
        on("two", "shortest-of-two", &[secs("k", 300), secs("l", 2)]),
        on("two", "one-of-two", &[ever("k")]),
        on("two", "its-taint-went", &[secs("k", SHORT), secs("l", 300)]),
        on("spared", "reprieved", &[secs("k", 300)]),
        on("changing", "pardoned", &[secs("k", 300)]),
        on("changing", "vanished", &[secs("k", 300)]),
        on("changing", "shortened", &[secs("k", 300)]),
        on("changing", "lengthened", &[secs("k", SHORT)]),
        on("changing", "shorter-by-a-second-taint", &[secs("k", 300), secs("m", 2)]),
        on("narrowing", "cut-short", &[secs("k", 300)]),
        on("plain", "denied", &[]),
        Act::Deny,
        Act::Taint("plain", &[("k", "v")]),
        Act::Taint("two", &[("k", ""), ("l", "")]),
    ];
    acts.extend(["spared", "changing", "narrowing"].map(|node| Act::Taint(node, &[("k", "")])));
    acts.extend([
        Act::Wait(1_500),
        Act::Taint("two", &[("l", "")]),
        Act::Taint("spared", &[]),
        Act::Vanish("vanished"),
    ]);
    for (name, bears) in [("pardoned", ever("k")), ("shortened", secs("k", 2)), ("lengthened", secs("k", 300))] {
        // The next taint is not about them.
        acts.extend([Act::Tolerate(name, bears), Act::Tolerate(name, ever("m"))]);
    }
    acts.extend([Act::AlsoTaint("changing", "m"), Act::AlsoTaint("narrowing", "m"), Act::WaitShort, Act::Allow]);
    acts
}

#[tokio::test]
async fn taint_evictions_equal_kcm_but_for_listed_differences() {
    pod_safety_matches_the_recording::<Taints>(history()).await;
}

#[tokio::test]
async fn kcm_follows_the_recorded_taint_history_live() {
    if versions::is_1_32() {
        println!(
            "NOT RUN: taint eviction of kube-controller-manager 1.32 needs its node lifecycle controller beside it"
        );
        return;
    }
    kcm_matches_the_recording::<Taints>(history()).await;
}
