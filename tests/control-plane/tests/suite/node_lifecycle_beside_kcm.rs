//! One history of nodes that are lost and come back, lived through by each side's node lifecycle controller on a
//! control plane of its own. After each step taints, conditions, labels, pods' readiness and Events are as the history
//! says, and the same on all [`SIDES`]; but for [`DIFFERENCES`], where a weak spot of kube-controller-manager shows, and
//! both sides are as said there. `nodes/script.rs` has the history.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]
#![expect(clippy::unwrap_used, reason = "scenarios may fail as loudly as the test that runs them")]

mod nodes;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use futures::future::join_all;
use nodes::{Picture, Step, World, script};
use pod_safety_control_plane::Who;

/// Who lives through it.
const SIDES: &[Who] = &[Who::Kcm, Who::Ours];

/// A silence is found after six seconds, nodes are tainted each half second, and a machine may do other things, too.
const PATIENCE: Duration = Duration::from_secs(40);

/// What is not the same on both sides, and why. What ours says is what the history says, if it says something of that
/// line.
struct Difference {
    /// From this step to that one.
    steps: (&'static str, &'static str),
    /// A line of the picture.
    line: &'static str,
    /// The weak spot of kube-controller-manager.
    why: &'static str,
    kcm: &'static str,
    ours: &'static str,
}

const fn differs(
    steps: (&'static str, &'static str),
    line: &'static str,
    why: &'static str,
    kcm: &'static str,
    ours: &'static str,
) -> Difference {
    Difference { steps, line, why, kcm, ours }
}

const SILENT_AGAIN: &str = "the first is back, the second falls silent";
/// The step before the restart.
const AGAIN: &str = "the first is lost again, the second says that it is not ready";
const RESTART: &str = "the controller restarts";
const NEW: &str = "nodes are new";
const NEW_ONES: &str = "the new ones are ready, or go";
const BEFORE_THE_LAST_LOSS: &str = "two of the small one are lost";
const LAST_LOSS: &str = "all zones are lost";
const END: &str = "all but one are back";
const OF_LATE: &str = "late told: Warning NodeNotReady of pod: Node is not ready";
const OF_WEB_2: &str = "web-2 told: Warning NodeNotReady of pod: Node is not ready";

const DIFFERENCES: &[Difference] = &[
    // Its first look takes both taints from all nodes, and the times of their pods begin anew.
    differs((RESTART, RESTART), "a-1 tainted since", "W-NL9", RESTART, AGAIN),
    differs((RESTART, RESTART), "a-2 tainted since", "W-NL9", RESTART, AGAIN),
    // The same of a node that comes with such a taint, which does not say since when it is there.
    differs((NEW, NEW), "n-2 tainted since", "W-NL9", NEW, ""),
    // It marks pods when a node that was Ready becomes Unknown, and when they come: not those of a node that was not
    // ready before it fell silent, nor those of which somebody says later that they are ready.
    differs((SILENT_AGAIN, RESTART), "web-2 ready", "W-NL3", "True", "False"),
    differs((SILENT_AGAIN, BEFORE_THE_LAST_LOSS), OF_WEB_2, "W-NL3", "", "1 times"),
    differs((LAST_LOSS, END), OF_WEB_2, "W-NL3", "1 times", "2 times"),
    differs((NEW_ONES, NEW_ONES), "late ready", "W-NL3", "True", "False"),
    differs((NEW_ONES, BEFORE_THE_LAST_LOSS), OF_LATE, "W-NL3", "", "1 times"),
    differs((LAST_LOSS, END), OF_LATE, "W-NL3", "1 times", "2 times"),
];

impl Difference {
    fn holds_at(&self, step: &str) -> bool {
        static ORDER: LazyLock<Vec<&str>> =
            LazyLock::new(|| script::history().iter().map(|step| step.name).collect());
        let place = |name: &str| ORDER.iter().position(|other| *other == name);
        let (first, last) = self.steps;
        place(first) <= place(step) && place(step) <= place(last)
    }

    const fn side(&self, who: Who) -> &'static str {
        match who {
            Who::Kcm => self.kcm,
            Who::Ours => self.ours,
        }
    }
}

/// What a line of the picture must say; `None`: whatever the other side says.
fn wanted(who: Who, step: &Step, line: &str) -> Option<&'static str> {
    let listed = DIFFERENCES.iter().find(|one| one.line == line && one.holds_at(step.name));
    let said = step.wanted.iter().find(|(of, _)| *of == line).map(|(_, said)| *said);
    listed.map(|one| one.side(who)).or(said)
}

/// What kube-controller-manager makes of a line differs from run to run (W-NL5): when all zones are lost it takes the
/// taints from every node, while another task still adds some.
fn is_drawn_by_chance(step: &Step, line: &str) -> bool {
    let (taints, since) = (line.ends_with(" taints"), line.ends_with(" tainted since"));
    (step.name == LAST_LOSS && (taints || since)) || (step.name == END && since)
}

/// All lines that are wrong, in words.
fn wrong(step: &Step, pictures: &[(Who, Picture)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let said = |picture: &Picture, line: &str| picture.get(line).cloned().unwrap_or_default();
    let listed = DIFFERENCES.iter().filter(|one| one.holds_at(step.name)).map(|one| one.line);
    let lines = step.wanted.iter().map(|(line, _)| *line).chain(listed);
    for line in lines {
        for (who, picture) in pictures {
            if *who == Who::Kcm && is_drawn_by_chance(step, line) {
                continue;
            }
            let (is, wanted) = (said(picture, line), wanted(*who, step, line).unwrap_or_default());
            if is != wanted {
                wrong.push(format!("{who:?}: {line}: {is:?}, wanted {wanted:?}"));
            }
        }
    }
    let Some(((first, model), others)) = pictures.split_first() else { return wrong };
    for (who, picture) in others {
        for line in model.keys().chain(picture.keys()) {
            let (is, wanted_is) = (said(picture, line), said(model, line));
            let free = wanted(*who, step, line).is_none() && !is_drawn_by_chance(step, line);
            if free && is != wanted_is {
                wrong.push(format!("{line}: {who:?} {is:?}, {first:?} {wanted_is:?}"));
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    wrong
}

#[tokio::test]
async fn the_same_history_of_nodes_has_the_same_end_but_for_what_is_listed() {
    let mut worlds = join_all(SIDES.iter().map(|who| World::of(*who))).await;
    let mut wrong = Vec::new();
    for step in script::history() {
        println!("{}", step.name);
        wrong.extend(lived(&step, &mut worlds).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// All that was seen, for people.
fn told(pictures: &[(Who, Picture)]) -> String {
    let lines = |(who, picture): &(Who, Picture)| {
        let lines: Vec<_> = picture.iter().map(|(line, said)| format!("  {who:?}: {line}: {said}")).collect();
        lines.join("\n")
    };
    pictures.iter().map(lines).collect::<Vec<_>>().join("\n")
}

/// Lets all live through the step, and waits until it has come to what it must come to; says if it has not.
async fn lived(step: &Step, worlds: &mut [World]) -> Option<String> {
    join_all(worlds.iter_mut().map(|world| world.live(step))).await;
    let began = Instant::now();
    loop {
        let pictures = join_all(worlds.iter().map(World::picture)).await;
        let pictures: Vec<_> = worlds.iter().map(|world| world.who).zip(pictures).collect();
        let wrong = wrong(step, &pictures);
        if wrong.is_empty() {
            return None;
        }
        if began.elapsed() > PATIENCE {
            return Some(format!("{}:\n{}\n{}", step.name, wrong.join("\n"), told(&pictures)));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[test]
fn every_difference_is_of_a_line_and_a_step_that_there_are() {
    let steps = script::history();
    for Difference { steps: (first, last), line, why, kcm, ours } in DIFFERENCES {
        let place = |name: &str| steps.iter().position(|step| step.name == name);
        let (Some(first), Some(last)) = (place(first), place(last)) else {
            panic!("no step {first:?} or {last:?} for {line:?} ({why})")
        };
        assert!(first <= last, "{line}: it ends before it begins");
        assert_ne!(kcm, ours, "{line}: a difference that is none");
        for step in &steps[first..=last] {
            let said = step.wanted.iter().find(|(of, _)| of == line);
            assert!(
                said.is_none_or(|(_, said)| said == ours),
                "{}: {line}: the history says something else",
                step.name
            );
        }
    }
}
