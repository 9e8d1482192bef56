//! One history of nodes that are lost and come back, lived through by each side's node lifecycle controller on a
//! control plane of its own. After each step taints, conditions, labels, pods' readiness and Events are as the history
//! says, and the same on all [`SIDES`]; but for [`DIFFERENCES`], where a weak spot of kube-controller-manager shows, and
//! both sides are as said there. `nodes/script.rs` has the history.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]
#![expect(clippy::unwrap_used, reason = "scenarios may fail as loudly as the test that runs them")]

mod nodes;

use std::time::{Duration, Instant};

use futures::future::join_all;
use nodes::{Picture, Step, World, script};
use pod_safety_control_plane::Who;

/// Who lives through it.
const SIDES: &[Who] = &[Who::Kcm];

/// A silence is found after six seconds, nodes are tainted each half second, and a machine may do other things, too.
const PATIENCE: Duration = Duration::from_secs(40);

/// Step, line of the picture, the weak spot, kube-controller-manager's side, ours. What ours says is what the history
/// says, if it says something of that line.
const DIFFERENCES: &[(&str, &str, &str, &str, &str)] = &[
    // Its first look takes both taints from all nodes, and the times of their pods begin anew.
    ("the controller restarts", "a-1 tainted since", "W-NL9", "the controller restarts", AGAIN),
    ("the controller restarts", "a-2 tainted since", "W-NL9", "the controller restarts", AGAIN),
    // It marks pods when it calls their node Unknown, and when they come; not those of which somebody says later that
    // they are ready.
    ("the new ones are ready, or go", "late ready", "W-NL3", "True", "False"),
    (
        "the new ones are ready, or go",
        "late told: Warning NodeNotReady of pod: Node is not ready",
        "W-NL3",
        "",
        "1 times",
    ),
];

/// The step before the restart.
const AGAIN: &str = "the first is lost again, the second says that it is not ready";

/// What a line of the picture must say; `None`: whatever the other side says.
fn wanted(who: Who, step: &Step, line: &str) -> Option<&'static str> {
    let listed = DIFFERENCES.iter().find(|(at, of, ..)| *at == step.name && *of == line);
    let said = step.wanted.iter().find(|(of, _)| *of == line).map(|(_, said)| *said);
    listed.map(|(.., kcm, ours)| if who == Who::Kcm { *kcm } else { *ours }).or(said)
}

/// All lines that are wrong, in words.
fn wrong(step: &Step, pictures: &[(Who, Picture)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let said = |picture: &Picture, line: &str| picture.get(line).cloned().unwrap_or_default();
    let listed = DIFFERENCES.iter().filter(|(at, ..)| *at == step.name).map(|(_, line, ..)| *line);
    let lines = step.wanted.iter().map(|(line, _)| *line).chain(listed);
    for line in lines {
        for (who, picture) in pictures {
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
            if wanted(*who, step, line).is_none() && is != wanted_is {
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
    for step in script::history() {
        println!("{}", step.name);
        lived(&step, &mut worlds).await;
    }
}

/// All that was seen, for people.
fn told(pictures: &[(Who, Picture)]) -> String {
    let lines = |(who, picture): &(Who, Picture)| {
        let lines: Vec<_> = picture.iter().map(|(line, said)| format!("  {who:?}: {line}: {said}")).collect();
        lines.join("\n")
    };
    pictures.iter().map(lines).collect::<Vec<_>>().join("\n")
}

/// Lets all live through the step, and waits until it has come to what it must come to.
async fn lived(step: &Step, worlds: &mut [World]) {
    join_all(worlds.iter_mut().map(|world| world.live(step))).await;
    let began = Instant::now();
    loop {
        let pictures = join_all(worlds.iter().map(World::picture)).await;
        let pictures: Vec<_> = worlds.iter().map(|world| world.who).zip(pictures).collect();
        let wrong = wrong(step, &pictures);
        if wrong.is_empty() {
            return;
        }
        let late = began.elapsed() > PATIENCE;
        assert!(!late, "{}:\n{}\n{}", step.name, wrong.join("\n"), told(&pictures));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[test]
fn every_difference_is_of_a_line_and_a_step_that_there_are() {
    let steps = script::history();
    for (at, line, why, kcm, ours) in DIFFERENCES {
        let step = steps.iter().find(|step| step.name == *at);
        assert!(step.is_some(), "no step {at:?} for {line:?} ({why})");
        assert_ne!(kcm, ours, "{at}: {line}: a difference that is none");
        let said = step.and_then(|step| step.wanted.iter().find(|(of, _)| of == line));
        assert!(said.is_none_or(|(_, said)| said == ours), "{at}: {line}: the history says something else");
    }
}
