//! The short set on real nodes, and whether its looks can see.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

/// The only way to go on where they cannot run: `skip`.
const ALLOWED: &str = "POD_SAFETY_REAL_NODES";

/// What it printed. Its progress goes past the test runner, which would show it only when it is over.
fn run(args: &[&str]) -> Result<String> {
    // If this process is killed, so is that one, and with it everything that it made.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_pod-safety-real-nodes")]).args(args);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "{}; it says why above", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// `false`: they cannot run here, and need not.
fn can_run() -> Result<bool> {
    let missing = run(&["--needs"])?;
    let skip = std::env::var(ALLOWED).as_deref() == Ok("skip");
    ensure!(
        missing.is_empty() || skip,
        "this machine cannot run real nodes. To go on without them, set {ALLOWED}=skip. It needs\n{missing}"
    );
    for lack in missing.lines() {
        writeln!(std::io::stderr(), "real nodes: NOT RUN: needs {lack}")?;
    }
    Ok(missing.is_empty())
}

#[test]
fn a_killed_world_leaves_no_processes_while_a_machine_is_frozen() -> Result<()> {
    if can_run()? {
        run(&["--killed"])?;
    }
    Ok(())
}

/// A node is drained by EvictionRequests, whose data an application moves first; another node is lost and fenced meanwhile.
#[test]
fn a_drain_by_requests_ends_with_evidence_about_the_node_that_is_lost_meanwhile() -> Result<()> {
    if can_run()? {
        let table = run(&["--requests"])?;
        assert!(table.contains("| the switch answers: the requests end with evidence |"), "{table}");
    }
    Ok(())
}

/// One test: two of them would be slower together than one after the other.
#[test]
fn probes_detect_a_planted_double_writer_and_the_short_set_passes() -> Result<()> {
    if !can_run()? {
        return Ok(());
    }
    let planted = run(&["--planted"])?;
    assert!(planted.contains("while another had the lock"), "{planted}");
    let table = run(&["--short"])?;
    assert!(table.contains("| cable pulled | person + "), "{table}");
    Ok(())
}
