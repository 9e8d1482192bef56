//! The commands for operators: a file per command.
//!
//! Duty: read a cluster with the rights of the user, report its state and why, and write what an operator decides. The
//! controllers are not here: `run` is in `pod-safety-process`, and the program puts both into one command line.
//!
//! All exit codes are in one table (`exit`). A wrong value ends with one line that names the flag, the value and what
//! is allowed; an error ends with a hint (`error_hints`).
//!
//! Invariants: no text of the cluster reaches a terminal with control characters in it (`untrusted_text`), and every
//! document for programs names its cluster.
#![forbid(unsafe_code)]

mod cluster;
mod confirm_down;
mod connect;
mod consent;
mod devices;
mod doctor;
mod drain;
mod drill;
mod error_hints;
mod exit;
mod explain;
mod fence;
#[cfg(test)]
mod fixture;
mod impact;
pub mod invocation;
mod maintain;
mod manifests;
mod pause;
mod progress;
mod report;
mod rights;
mod status;
mod terminal;
#[cfg(test)]
mod test_session;
#[cfg(test)]
mod tests;
mod ui;
#[cfg(test)]
mod untrusted_text;
mod version;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;
use pod_safety_explain::pluralize;
use pod_safety_print::API_VERSION;
use pod_safety_process::run::{self, BadFlags};
use pod_safety_process::{block_on, duration, random, sanitize};
use pod_safety_shared::record::error_chain;

pub use cluster::move_global_flags;
pub use exit::{Exit, USAGE, overview as exit_codes};
pub use pod_safety_print::Paint;

/// A command, as it was typed.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Empty a node: shows for every pod whether, when and where it goes, and why; --apply does it
    Drain(Box<drain::Args>),
    /// Show the whole cluster on one screen: the leader, nodes by zone, what needs a person, blocked pods
    Status(Box<status::Args>),
    /// Explain why an object is stuck, which proof is missing, who may act, and what to do next
    Explain(Box<explain::Args>),
    /// Show what happened to a node or a pod, in order, with durations
    Timeline(Box<explain::TimelineArgs>),
    /// Show what blocks the deletion of a namespace, and the steps to release it; nothing is changed
    Resolve(Box<explain::ResolveArgs>),
    /// Check the installation: what is wrong, why it matters, and how to fix it
    Doctor(Box<doctor::Args>),
    /// Write everything that you may read into a folder, without secrets, to hand to support
    Report(report::Args),
    /// Show status and explain in a browser: runs on this machine, with your kubeconfig
    Ui(ui::Args),
    /// Confirm that a node is off, so that its pods can be force deleted: recorded with your name and reason
    ConfirmDown(confirm_down::Args),
    /// Withdraw the evidence about a node: no pod is force deleted on it any more
    Withdraw(fence::WithdrawArgs),
    /// Switch a node off by its FencePolicy; its pods are force deleted when that is proved
    Fence(fence::FenceArgs),
    /// Cancel fencing of a node: no new attempt is begun; attempts in flight are not interrupted
    Cancel(fence::CancelArgs),
    /// Drain a node for maintenance and pause its fencing (--power-off: also power it off); --finish brings it back
    Maintain(Box<maintain::Args>),
    /// Pause fencing of a node or of a FencePolicy: recorded with your name and reason
    Pause(pause::PauseArgs),
    /// Resume fencing
    Resume(pause::ResumeArgs),
    /// Check whether fence devices would answer if they were needed
    Devices(devices::Args),
    /// Show what would be done if a node were lost: gates with their numbers, levels, devices. --really does it to a canary
    Drill(drill::Args),
    /// Print what a cluster needs before `run` works: CRDs, service account, RBAC and admission policies, as YAML
    Manifests(manifests::Args),
    /// Print the version
    Version(version::Args),
}

impl Command {
    /// Executes the command.
    #[must_use]
    pub fn run(self) -> ExitCode {
        report_exit(self.execute())
    }

    fn execute(self) -> anyhow::Result<Exit> {
        match self {
            Self::Drain(args) => args.main(),
            Self::Status(args) => args.main(),
            Self::Explain(args) => args.main(),
            Self::Timeline(args) => args.main(),
            Self::Resolve(args) => args.main(),
            Self::Doctor(args) => args.main(),
            Self::Report(args) => args.main(),
            Self::Ui(args) => args.main(),
            Self::ConfirmDown(args) => args.main(),
            Self::Withdraw(args) => args.main(),
            Self::Fence(args) => args.main(),
            Self::Cancel(args) => args.main(),
            Self::Maintain(args) => args.main(),
            Self::Pause(args) => args.main(),
            Self::Resume(args) => args.main(),
            Self::Devices(args) => args.main(),
            Self::Drill(args) => args.main(),
            Self::Manifests(args) => args.main().map(fine).map_err(anyhow::Error::from),
            Self::Version(args) => args.main().map(fine).map_err(anyhow::Error::from),
        }
    }
}

/// Prints why a command failed, if it did.
#[must_use]
pub fn report_exit(done: anyhow::Result<Exit>) -> ExitCode {
    ExitCode::from(exit_code(done))
}

fn exit_code(done: anyhow::Result<Exit>) -> u8 {
    match done {
        Ok(exit) => exit.code(),
        Err(error) => {
            print_stderr(&sanitize::line(&format!("pod-safety: {}", error_chain(error.as_ref()))));
            if error.is::<BadFlags>() || error.is::<explain::UsageError>() { USAGE } else { Exit::Interrupted.code() }
        }
    }
}

const fn fine((): ()) -> Exit {
    Exit::Fine
}

/// Writes text for operators to stdout, with commands that work as invoked ([`invocation`]).
///
/// # Errors
/// Standard output cannot be written.
pub fn print(text: &str) -> std::io::Result<()> {
    print_raw(invocation::adapt_commands(text).as_bytes())
}

/// Writes to stdout, without control characters. A reader that closed the pipe (`| head`) is no error.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_raw(bytes: &[u8]) -> std::io::Result<()> {
    let clean = std::str::from_utf8(bytes).map(sanitize::page);
    #[cfg(test)]
    if clean.as_ref().is_ok_and(|clean| test_session::capture(clean)) {
        return Ok(());
    }
    match std::io::stdout().write_all(clean.as_ref().map_or(bytes, |clean| clean.as_bytes())) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Writes a line to stderr. If that fails there is no other place to report it.
pub fn print_stderr(line: &str) {
    let line = invocation::adapt_commands(line);
    let clean = sanitize::page(&line);
    #[cfg(test)]
    if test_session::capture(&format!("{clean}\n")) {
        return;
    }
    let _unreported = writeln!(std::io::stderr(), "{clean}");
}

/// The command line of these commands alone.
#[cfg(test)]
#[derive(Debug, clap::Parser)]
#[command(name = "pod-safety")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}
