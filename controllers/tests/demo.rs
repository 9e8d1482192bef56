//! The built binary, run without a terminal.
#![cfg(feature = "demo")]
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

fn pod_safety(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pod-safety"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = pod_safety(arguments).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn file(name: &str, text: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn demo_without_a_terminal_prints_the_timeline_the_verdict_and_the_comparison() {
    let (code, output, complaint) = run(&["demo", "--plain", "--scenario", "power-loss", "--seed", "1"]);
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{output}");
    for line in [
        "power-loss: a machine loses power for good",
        "node-0 loses power",
        "its Node is gone, and its kubelet has not reported since",
        "verdict: pod-safety broke no rule in ",
        "the same fault and seed with each set of rules:",
        "With pod-safety: data-",
        "longest time away",
        "two copies wrote",
    ] {
        assert!(output.contains(line), "{line}: not in\n{output}");
    }
    for debug in ["{ ", "Some(", "None"] {
        assert!(!output.contains(debug), "{debug}: in\n{output}");
    }
}

/// The default output: a database, three sets of rules, and a sentence for each.
#[test]
fn the_default_scenario_is_a_database_whose_node_stops_answering() {
    let (code, output, complaint) = run(&["demo"]);
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{output}");
    assert!(output.starts_with("database: a database's node stops answering"), "{output}");
    for line in [
        "node-0 loses its network",
        "With pod-safety: data-0 was away for ",
        "With kube-controller-manager alone: data-0 is still away after 15 min, and no pod ran twice.",
        "With a script that uses --force: data-0 was away for ",
        ", and two copies of data-0 wrote for ",
    ] {
        assert!(output.contains(line), "{line}: not in\n{output}");
    }
}

#[test]
fn a_recording_is_a_cast_that_begins_and_ends_and_is_the_same_each_time() {
    let record = |name: &str| {
        let path = file(name, "");
        let (code, output, complaint) = run(&["demo", "--record", &path]);
        assert_eq!((code, complaint.as_str()), (Some(0), ""), "{output}");
        assert!(output.contains("play it with: asciinema play"), "{output}");
        std::fs::read_to_string(path).unwrap()
    };
    let cast = record("one.cast");
    assert!(cast.starts_with(r#"{"height":24,"title":"pod-safety demo: "#), "{}", cast.lines().next().unwrap());
    assert!(cast.lines().skip(1).all(|line| line.starts_with('[') && line.ends_with(']')));
    assert!(cast.len() < 500_000, "{} bytes", cast.len());
    assert_eq!(cast, record("again.cast"));
    let (code, _, complaint) = run(&["demo", "--record", "/no/such/folder/x.cast"]);
    assert_eq!(code, Some(1), "{complaint}");
    assert!(complaint.contains("/no/such/folder/x.cast: No such file"), "{complaint}");
}

#[test]
fn the_same_seed_gives_the_same_output_and_another_one_another() {
    let story = |seed| run(&["demo", "--plain", "--scenario=storm", "--seed", seed]).1;
    let first = story("3");
    assert_eq!(first, story("3"));
    assert_ne!(first, story("4"));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = pod_safety(&["demo", "--plain"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    // The pipe is closed when the reader is dropped, as by `| head -1`.
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(first.starts_with("database: "), "{first}");
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]));
}

/// The signal left the terminal in raw mode, without a cursor, on the alternate screen. `script` (in every Debian)
/// provides a terminal.
#[test]
fn bug_a_sigterm_restores_the_terminal() {
    let note = file("terminal.pid", "");
    let shell = format!("stty rows 40 cols 120; echo $$ > {note}; exec {} demo", env!("CARGO_BIN_EXE_pod-safety"));
    let mut terminal = Command::new("script")
        .args(["--quiet", "--return", "--command", &shell, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut screen = terminal.stdout.take().unwrap();
    let mut drawn = Vec::new();
    let shows = |drawn: &[u8], what: &str| drawn.windows(what.len()).any(|part| part == what.as_bytes());
    while !shows(&drawn, "database") {
        let mut part = [0; 4096];
        let read = screen.read(&mut part).unwrap();
        assert!(read > 0, "it ended: {}", String::from_utf8_lossy(&drawn));
        drawn.extend(part.iter().take(read));
    }
    assert!(shows(&drawn, "\x1b[?1049h"), "a screen of its own");
    let pid = std::fs::read_to_string(note).unwrap();
    assert!(Command::new("kill").args(["-TERM", pid.trim()]).status().unwrap().success());
    let mut rest = Vec::new();
    screen.read_to_end(&mut rest).unwrap();
    assert!(shows(&rest, "\x1b[?1049l") && shows(&rest, "\x1b[?25h"), "{}", String::from_utf8_lossy(&rest));
    assert_eq!(terminal.wait().unwrap().code(), Some(0), "as with Ctrl-C");
}

#[test]
fn simulate_ends_as_its_file_expects() {
    let plan = "nodes: 4\npods: 6\nlease-collected-after: 10m\nheal-at: 100s\nsubject: script\nfaults:\n  \
                - { at: 30s, fault: cut-node, node: 0, for: 3m }\n  - { at: 30s, fault: cut-node, node: 1, for: 3m }\n";
    let (code, output, _) = run(&["simulate", &file("broken.yaml", plan)]);
    assert_eq!(code, Some(1), "{output}");
    assert!(
        output.contains("verdict: script broke rules") && output.contains("not as expected: broken rules:"),
        "{output}"
    );
    let ours = plan.replace("subject: script\n", "");
    let (code, output, _) = run(&["simulate", &file("whole.yaml", &ours)]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("verdict: pod-safety broke no rule"), "{output}");
}

#[test]
fn arguments_that_cannot_be_run_give_an_error_in_one_line() {
    let wrong =
        file("wrong.yaml", "nodes: 3\npods: 2\nheal-at: 90s\nfaults:\n  - { at: 9s, fault: reboot, node: 7 }\n");
    for (arguments, expected) in [
        (vec!["simulate", wrong.as_str()], "wrong.yaml:5:36: field `node`: value `7`, allowed is 0 to 2"),
        (vec!["simulate", "/no/such/file"], "/no/such/file: No such file"),
        (vec!["simulate", "/"], "/: Is a directory"),
        (vec!["demo", "--scenario", "nosuch"], "invalid value \"nosuch\" for '--scenario <NAME>': known are database,"),
        (vec!["demo", "--speed", "0"], "invalid value '0' for '--speed <FACTOR>': not a speed; allowed is 0.1 to 1000"),
        (vec!["demo", "--seed", "-1"], "'-1'"),
    ] {
        let (code, output, complaint) = run(&arguments);
        assert_eq!((code, output.as_str(), complaint.lines().count()), (Some(2), "", 1), "{arguments:?}: {complaint}");
        assert!(complaint.contains(expected), "{arguments:?}: {complaint}");
    }
}
