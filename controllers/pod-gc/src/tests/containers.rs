//! Containers that run despite a terminal phase: sidecars, init containers, ephemeral containers.

use super::*;

/// A pod with the phase Succeeded, with these containers' states by the field of the status.
fn called_ended(name: &str, statuses: &[(&str, &[&str])]) -> Obj {
    pod(name).on("n").modify(|pod| {
        pod["status"] = json!({ "phase": "Succeeded" });
        for (field, states) in statuses {
            let of = |state: &&str| json!({ "name": "c", "state": { *state: {} } });
            pod["status"][*field] = states.iter().map(of).collect();
        }
    })
}

fn collected(statuses: &[(&str, &[&str])]) -> Vec<String> {
    let world = World::listed();
    world.apply(Kind::Nodes, &node("n").ready("True"), at(0));
    world.apply(Kind::Pods, &called_ended("web-0", statuses), at(0));
    let all = Config { terminated_threshold: Some(0), ..config() };
    let decision = decide_at(&world, &Key::Terminated, at(1), &all);
    let mut words = describe(&decision);
    words.extend(hold_reasons(&decision).into_iter().map(|reason| format!("?{reason}")));
    words
}

/// A sidecar is an init container with `restartPolicy: Always`: it runs beside the others, and after them.
#[test]
fn a_terminal_phase_is_not_believed_while_any_container_is_reported_running() {
    let ended = ["remove web-0 because KubeletTerminated"];
    let running = ["?TerminalButRunning"];
    type Row = (&'static str, &'static [(&'static str, &'static [&'static str])], bool);
    const MAIN: &str = "containerStatuses";
    const INIT: &str = "initContainerStatuses";
    const DEBUG: &str = "ephemeralContainerStatuses";
    let rows: [Row; 9] = [
        ("all have ended", &[(MAIN, &["terminated", "terminated"])], false),
        ("nothing was ever reported: an evicted pod has no statuses", &[], false),
        ("the first runs", &[(MAIN, &["running", "terminated"])], true),
        ("the last runs", &[(MAIN, &["terminated", "running"])], true),
        ("init containers have ended", &[(INIT, &["terminated"]), (MAIN, &["terminated"])], false),
        ("a sidecar runs beside what has ended", &[(INIT, &["terminated", "running"]), (MAIN, &["terminated"])], true),
        ("a sidecar alone is reported", &[(INIT, &["running"])], true),
        ("a container for debugging runs", &[(MAIN, &["terminated"]), (DEBUG, &["running"])], true),
        ("a container that waits does not run", &[(INIT, &["waiting"]), (MAIN, &["waiting", "terminated"])], false),
    ];
    for (says, statuses, runs) in rows {
        let expected: &[&str] = if runs { &running } else { &ended };
        assert_eq!(collected(statuses), expected, "{says}");
    }
}

/// Evidence that the node is off is about the machine: containers reported running there have ended with it.
#[test]
fn a_sidecar_reported_running_has_ended_with_its_machine() {
    let world = World::listed();
    world.apply(Kind::Nodes, &node("n").boot("b0000000-0000-4000-8000-000000000001"), at(0));
    let sidecar = called_ended("web-0", &[("initContainerStatuses", &["running"])]).terminating();
    world.apply(Kind::Pods, &sidecar, at(0));
    assert_eq!(hold_reasons(&decide_at(&world, &node_key("n"), at(1), &config())), ["NoEvidence"]);
    world.apply(Kind::FenceEvidences, &evidence("e", "n", "b0000000-0000-4000-8000-000000000001", "PowerOff"), at(0));
    assert_eq!(describe(&decide_at(&world, &node_key("n"), at(1), &config())), ["remove web-0 because Fenced"]);
}
