//! Types README's first command in a terminal: cargo finds the program, builds it, and the demo shows its first picture. `make build` has
//! already built it.

use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use pod_safety_locks::documents::commands;
use pod_safety_locks::repository;

/// The node agent is a second program of the package, and cargo could not determine which one was meant.
#[test]
fn bug_readmes_first_command_could_not_determine_which_binary_to_run() -> Result<()> {
    let commands = commands()?;
    let of_readme = |place: &str| place.starts_with("README.md:");
    let first = commands.iter().find(|one| of_readme(&one.place) && one.text.starts_with("cargo "));
    let first = first.context("README types no cargo command")?;
    ensure!(first.text.ends_with(" demo"), "{}: {} does not run the demo", first.place, first.text);
    let mut terminal = typed(&first.text)?;
    let mut screen = terminal.stdout.take().context("stdout")?;
    let (mut drawn, mut part) = (Vec::new(), [0; 4096]);
    while !shows(&drawn, "data-0") {
        let read = screen.read(&mut part)?;
        ensure!(read > 0, "{} ended: {}", first.text, String::from_utf8_lossy(&drawn));
        drawn.extend(part.iter().take(read));
    }
    ensure!(shows(&drawn, "\x1b[?1049h"), "it drew no picture: {}", String::from_utf8_lossy(&drawn));
    terminal.stdin.take().context("stdin")?.write_all(b"q")?;
    screen.read_to_end(&mut drawn)?;
    ensure!(terminal.wait()?.success(), "{} failed when it was closed", first.text);
    keeps_output_timely(&target()?.join("typed/debug/pod-safety"))
}

/// The screen shows six simulated seconds per second. An unoptimised build must need far less than all of that time; the story takes 15
/// minutes, and `--plain` prints it for three sets of rules.
fn keeps_output_timely(program: &Path) -> Result<()> {
    const STORY: f64 = 3.0 * 15.0 * 60.0;
    const SPEED: f64 = 6.0;
    let mut demo = Command::new("bash");
    demo.args(["-c", "TIMEFORMAT=%U; time \"$0\" demo --plain >/dev/null"]).arg(program);
    let output = demo.output()?;
    ensure!(output.status.success(), "{output:?}");
    let seconds: f64 = String::from_utf8(output.stderr)?.trim().parse().context("seconds of CPU time")?;
    ensure!(seconds < STORY / SPEED / 5.0, "{seconds} s of CPU time for {STORY} s");
    Ok(())
}

fn shows(drawn: &[u8], what: &str) -> bool {
    drawn.windows(what.len()).any(|part| part == what.as_bytes())
}

/// Runs the line in a terminal at the root of the repository. Build output goes to the folder of this test run; the program itself goes to
/// another folder, so that no other test sees it while it is replaced.
fn typed(line: &str) -> Result<Child> {
    let run = target()?;
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", &format!("stty rows 24 cols 80; exec {line}"), "/dev/null"]);
    // Cargo's variables for this test would make the build scripts of dependencies run again.
    for (name, _) in std::env::vars_os() {
        let own = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_"];
        if own.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            terminal.env_remove(name);
        }
    }
    terminal.env("CARGO_TARGET_DIR", run.join("typed")).env("CARGO_BUILD_BUILD_DIR", &run);
    terminal.current_dir(repository()).stdin(Stdio::piped()).stdout(Stdio::piped());
    terminal.spawn().context("script, of every Debian")
}

/// The folder in which cargo built this test: the test program is `debug/deps/first_command-…` there.
fn target() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    program.ancestors().nth(3).map(Path::to_owned).context("this program is in no target folder")
}
