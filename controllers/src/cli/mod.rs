//! The command line: a file per subcommand.
//!
//! Exit codes ([`Exit`]): 0 fine; 1 error (no connection, no rights, not found,
//! interrupted); 2 wrong usage; 3 answered, and the answer is that something blocks;
//! 4 refused for safety; 5 the time was up; 6 not known, for not everything could be
//! read. A wrong value ends with one line that names the flag, the value and what is
//! allowed.

mod budgets;
mod called;
mod clean;
mod cluster;
mod confirm_down;
mod consent;
#[cfg(feature = "demo")]
mod demo;
mod devices;
mod doctor;
#[cfg(all(test, feature = "demo"))]
mod documents;
mod drain;
mod drill;
mod duration;
mod explain;
mod fence;
mod fence_agents;
#[cfg(test)]
mod hostile;
mod logging;
mod maintain;
mod man;
mod manifests;
mod memory;
mod paint;
mod pause;
mod report;
mod run;
#[cfg(test)]
mod staged;
mod stake;
mod status;
mod ui;
mod version;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use pod_safety_shared::record::error_chain;

/// What a wrong use of flags ends with.
const USAGE: u8 = 2;

/// The version of what is printed for programs.
const API_VERSION: &str = "cli.pod-safety.dev/v1alpha1";

/// How a command ends that could answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    /// All is well.
    Fine,
    /// Somebody stopped it before it was done.
    Interrupted,
    /// The answer is that something blocks.
    Blocked,
    /// What was asked for would not be safe.
    Refused,
    /// The time was up before it was done.
    TimedOut,
    /// Nothing that was read blocks, and not everything could be read.
    Unknown,
}

impl Exit {
    const fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Interrupted => 1,
            Self::Blocked => 3,
            Self::Refused => 4,
            Self::TimedOut => 5,
            Self::Unknown => 6,
        }
    }
}

/// At the end of `--help`.
const AFTER_HELP: &str = "kubectl's flags --context, --kubeconfig, --as, --as-group, --request-timeout and -n work before the \
    command and after it.";

/// Keeps at most one pod running per StatefulSet identity, through any partition.
///
/// pod-safety runs Kubernetes controllers that delete pods gracefully,
/// and force delete a pod only with proof that its processes have terminated.
#[derive(Debug, Parser)]
#[command(name = "pod-safety", version, propagate_version = true, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch a simulated cluster in trouble, live, and break it yourself: needs no cluster, changes nothing
    #[cfg(feature = "demo")]
    Demo(demo::Args),
    /// Run a scenario file in the simulated cluster, and check the result
    #[cfg(feature = "demo")]
    Simulate(demo::SimulateArgs),
    /// Run the controllers
    Run(Box<run::Args>),
    /// Run fence agents for the controllers, in a container that cannot read their token or memory
    ///
    /// Orders arrive on a Unix socket from `pod-safety run --fence-agents-socket`, one per connection. An agent is killed when its
    /// connection closes or its deadline passes. At its start this command kills the agents that an earlier one with the
    /// same socket left behind.
    FenceAgents(fence_agents::Args),
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
    /// Take a node out of service for a person, and back: plan, drain, switch off, pause fencing; --finish
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
    /// Print the completion script of a shell
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual, or write a page for each command
    Man(man::Args),
}

/// Reads the arguments and does what they say.
pub(crate) fn main() -> ExitCode {
    match parsed() {
        Ok(cli) => carry_out(cli.command),
        Err(error) => usage(&error),
    }
}

fn parsed() -> Result<Cli, clap::Error> {
    let mut command = Cli::command();
    if called::is_plugin() {
        command = command.bin_name(called::PLUGIN);
    }
    Cli::from_arg_matches(&command.try_get_matches_from(cluster::flags_first(std::env::args_os()))?)
}

fn carry_out(command: Command) -> ExitCode {
    let done = match command {
        #[cfg(feature = "demo")]
        Command::Demo(args) => return demo::ended(args.main()),
        #[cfg(feature = "demo")]
        Command::Simulate(args) => return demo::ended(args.main()),
        Command::Drain(args) => args.main(),
        Command::Status(args) => args.main(),
        Command::Explain(args) => args.main(),
        Command::Timeline(args) => args.main(),
        Command::Resolve(args) => args.main(),
        Command::Doctor(args) => args.main(),
        Command::Report(args) => args.main(),
        Command::Ui(args) => args.main(),
        Command::ConfirmDown(args) => args.main(),
        Command::Withdraw(args) => args.main(),
        Command::Fence(args) => args.main(),
        Command::Cancel(args) => args.main(),
        Command::Maintain(args) => args.main(),
        Command::Pause(args) => args.main(),
        Command::Resume(args) => args.main(),
        Command::Devices(args) => args.main(),
        Command::Drill(args) => args.main(),
        Command::Run(args) => args.main().map(fine),
        Command::FenceAgents(args) => args.main().map(fine),
        Command::Manifests(args) => args.main().map(fine).map_err(anyhow::Error::from),
        Command::Version(args) => args.main().map(fine).map_err(anyhow::Error::from),
        Command::Man(args) => args.main().map(fine).map_err(anyhow::Error::from),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "pod-safety", &mut script);
            print_as_it_is(&script).map(fine).map_err(anyhow::Error::from)
        }
    };
    match done {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(error) => {
            say(&clean::line(&format!("pod-safety: {}", error_chain(error.as_ref()))));
            if error.is::<run::BadFlags>() || error.is::<explain::BadUse>() {
                ExitCode::from(USAGE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

const fn fine((): ()) -> Exit {
    Exit::Fine
}

/// A number that no other process has, from the operating system.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// "1 pod", "2 pods".
fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Help goes to stdout as it is; an error becomes one line.
fn usage(error: &clap::Error) -> ExitCode {
    let rendered = error.render();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _closed = print(rendered.to_string().as_bytes());
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            say(rendered.to_string().trim_end());
            ExitCode::from(USAGE)
        }
        _ => {
            let text = rendered.to_string();
            let lines =
                text.lines().take_while(|line| !line.starts_with("For more") && !line.starts_with("Usage:"));
            let lines = lines.map(str::trim).filter(|line| !line.is_empty());
            let line = lines.collect::<Vec<_>>().join(" ").replace(" tip: ", "; ");
            say(&format!("pod-safety: {} (see --help)", line.trim_start_matches("error: ")));
            ExitCode::from(USAGE)
        }
    }
}

/// Writes to stdout what people read, with commands that they can type ([`called`]).
fn print(bytes: &[u8]) -> std::io::Result<()> {
    match std::str::from_utf8(bytes) {
        Ok(text) => print_as_it_is(called::words(text).as_bytes()),
        Err(_) => print_as_it_is(bytes),
    }
}

/// Writes to stdout, without control characters. A reader that went away (`| head`) is no error.
fn print_as_it_is(bytes: &[u8]) -> std::io::Result<()> {
    let clean = std::str::from_utf8(bytes).map(clean::page);
    #[cfg(test)]
    if clean.as_ref().is_ok_and(|clean| hostile::keeps(clean)) {
        return Ok(());
    }
    match std::io::stdout().write_all(clean.as_ref().map_or(bytes, |clean| clean.as_bytes())) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Writes a line to stderr; when even that fails there is nobody to tell.
fn say(line: &str) {
    let line = called::words(line);
    let clean = clean::page(&line);
    #[cfg(test)]
    if hostile::keeps(&format!("{clean}\n")) {
        return;
    }
    let _nobody = writeln!(std::io::stderr(), "{clean}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_of_run_has_its_environment_twin() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        for argument in run.get_arguments().filter(|argument| argument.get_long().is_some()) {
            let long = argument.get_long().unwrap();
            // Those that mean nothing here are only taken.
            if long == "help" || long == "version" || argument.is_hide_set() {
                continue;
            }
            let twin = match long {
                // OpenTelemetry's own.
                "otlp-endpoint" => "OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(),
                _ => format!("POD_SAFETY_{}", long.to_uppercase().replace('-', "_")),
            };
            assert_eq!(argument.get_env().and_then(|name| name.to_str()), Some(twin.as_str()), "--{long}");
        }
    }
}
