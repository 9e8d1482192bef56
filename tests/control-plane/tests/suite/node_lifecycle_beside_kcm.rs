//! One history of nodes that are lost and recover, for pod-safety and for kube-controller-manager's node lifecycle controller. After each step
//! taints, conditions, labels, pods' readiness and Events are as expected and equal on both sides, except for [`differences`]: those are
//! defects of kube-controller-manager, and both sides have the listed values. In between, no node of pod-safety has a taint that it had
//! neither before the step nor after it. `script` has the history.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]

mod nodes;
mod script;

use nodes::{Act, Nodes};

use crate::beside_kcm::differences::{Difference, differs};
use crate::beside_kcm::{History, kcm_matches_the_recording, pod_safety_matches_the_recording};

const UNREACHABLE_AGAIN: &str = "the first is back, the second falls silent";
/// The step before the restart.
const AGAIN: &str = "the first is lost again, the second says that it is not ready";
const RESTART: &str = "the controller restarts";
const NEW: &str = "nodes are new";
const NEW_ONES: &str = "the new ones are ready, or go";
const BEFORE_THE_LAST_LOSS: &str = "two of the small one are lost";
const LAST_LOSS: &str = "all zones are lost";
const END: &str = "all but one are back";
const LATE: &str = "late told: Warning NodeNotReady of pod: Node is not ready";
const OF_WEB_2: &str = "web-2 told: Warning NodeNotReady of pod: Node is not ready";

fn differences() -> Vec<Difference> {
    let one = |steps, line, why, kcm, pod_safety| differs(steps, why, &[line], &[kcm], &[pod_safety]);
    vec![
        // Its first sync removes both taints from all nodes, and the toleration periods of their pods start again.
        one((RESTART, RESTART), "a-1 tainted since", "W-NL9", RESTART, AGAIN),
        one((RESTART, RESTART), "a-2 tainted since", "W-NL9", RESTART, AGAIN),
        // The same for a node that registers with such a taint, which does not have a time.
        one((NEW, NEW), "n-2 tainted since", "W-NL9", NEW, ""),
        // It marks pods when a node that was Ready becomes Unknown, and when they are created: not those of a node that was not Ready before it
        // became unreachable, nor those that another client marks ready later.
        one((UNREACHABLE_AGAIN, RESTART), "web-2 ready", "W-NL3", "True", "False"),
        one((UNREACHABLE_AGAIN, BEFORE_THE_LAST_LOSS), OF_WEB_2, "W-NL3", "", "1 times"),
        one((LAST_LOSS, END), OF_WEB_2, "W-NL3", "1 times", "2 times"),
        one((NEW_ONES, NEW_ONES), "late ready", "W-NL3", "True", "False"),
        one((NEW_ONES, BEFORE_THE_LAST_LOSS), LATE, "W-NL3", "", "1 times"),
        one((LAST_LOSS, END), LATE, "W-NL3", "1 times", "2 times"),
    ]
}

/// kube-controller-manager's value of a line differs from run to run (W-NL5): when all zones are lost it removes the taints from every node,
/// while another task still adds some.
fn is_drawn_by_chance(step: &str, line: &str) -> bool {
    let (taints, since) = (line.ends_with(" taints"), line.ends_with(" tainted since"));
    (step == LAST_LOSS && (taints || since)) || (step == END && since)
}

fn history() -> History<Act> {
    History { name: "node-lifecycle", steps: script::steps(), differences: differences(), is_drawn_by_chance }
}

#[tokio::test]
async fn node_states_equal_kcm_but_for_listed_differences() {
    pod_safety_matches_the_recording::<Nodes>(history()).await;
}

#[tokio::test]
async fn kcm_follows_the_recorded_node_history_live() {
    kcm_matches_the_recording::<Nodes>(history()).await;
}
