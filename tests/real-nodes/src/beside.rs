//! The modes in parallel: each is a program in a world of its own, which prints its findings; here they are put
//! together.
//!
//! Incidents mostly wait, so three worlds take little longer than the slowest of them.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::cluster::Mode;
use crate::needs::Cgroups;
use crate::report::Report;

/// The findings of one world.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) report: Report,
    /// The deviations from what is promised.
    pub(crate) wrong: Vec<String>,
}

impl Part {
    /// Prints them for the parent process.
    pub(crate) fn print(&self) -> Result<()> {
        Ok(serde_json::to_writer(std::io::stdout().lock(), self)?)
    }
}

/// The parts of a world.
pub(crate) struct World {
    pub(crate) tools: PathBuf,
    pub(crate) cgroups: Cgroups,
}

impl World {
    /// Runs this program again in a world in which nothing outlives its first process, and that does not outlive this
    /// process.
    pub(crate) fn command(&self) -> Result<Command> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(crate::machine::scripts().join("world.sh"));
        command.arg(&self.tools).arg(std::env::current_exe()?).args(std::env::args_os().skip(1));
        command.env("REAL_NODES_CGROUPS", self.cgroups.name());
        Ok(command)
    }
}

/// Runs all modes. A world that ended too early is reported as a deviation.
pub(crate) fn play(ways: &[Mode], world: &World) -> Result<Part> {
    let worlds = ways.iter().map(|way| Ok((*way, begin(*way, world)?))).collect::<Result<Vec<_>>>()?;
    let mut all = Part::default();
    for (way, child) in worlds {
        match end(child) {
            Ok(part) => {
                all.report.join(part.report);
                all.wrong.extend(part.wrong);
            }
            Err(error) => all.wrong.push(format!("{}: {error:#}", way.name())),
        }
    }
    Ok(all)
}

fn begin(way: Mode, world: &World) -> Result<Child> {
    let mut command = world.command()?;
    command.args(["--world", way.name()]).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().context("entering the world")
}

fn end(child: Child) -> Result<Part> {
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "its world ended with {}; it says why above", output.status);
    serde_json::from_slice(&output.stdout).context("what its world printed")
}

/// Prints a line for the person who waits. A failure to print has no other reader.
pub(crate) fn print_line(line: &str) {
    let _nobody = writeln!(std::io::stderr(), "real nodes: {line}");
}
