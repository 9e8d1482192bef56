//! The command line: a file per subcommand.
//!
//! Exit codes: 0 fine, 1 error, 2 wrong usage. A wrong value ends with one line
//! that names the flag, the value and what is allowed.

#[cfg(feature = "demo")]
mod demo;
mod duration;
mod logging;
mod manifests;
mod run;
mod version;

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use pod_safety_shared::record::error_chain;

/// What a wrong use of flags ends with.
const USAGE: u8 = 2;

/// Keeps at most one pod running per StatefulSet identity, through any partition.
///
/// pod-safety runs Kubernetes-style controllers that signal graceful deletion,
/// and force delete a pod only with proof that its processes have ended.
#[derive(Debug, Parser)]
#[command(name = "pod-safety", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch a simulated cluster in trouble, live, and meddle with it: nothing is needed, nothing is touched
    #[cfg(feature = "demo")]
    Demo(demo::Args),
    /// Run a scenario file in the simulated cluster, and judge what came of it
    #[cfg(feature = "demo")]
    Simulate(demo::SimulateArgs),
    /// Run the controllers
    Run(Box<run::Args>),
    /// Print what a cluster needs before `run` works: service account and RBAC, as YAML
    Manifests(manifests::Args),
    /// Print the version
    Version(version::Args),
    /// Print the completion script of a shell
    Completion {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// Reads the arguments and does what they say.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let done = match cli.command {
        #[cfg(feature = "demo")]
        Command::Demo(args) => return demo::ended(args.main()),
        #[cfg(feature = "demo")]
        Command::Simulate(args) => return demo::ended(args.main()),
        Command::Run(args) => args.main(),
        Command::Manifests(args) => args.main().map_err(anyhow::Error::from),
        Command::Version(args) => args.main().map_err(anyhow::Error::from),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "pod-safety", &mut script);
            print(&script).map_err(anyhow::Error::from)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("pod-safety: {}", error_chain(error.as_ref())));
            if error.is::<run::BadFlags>() { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
        }
    }
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
            let line = lines.map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
            say(&format!("pod-safety: {} (see --help)", line.trim_start_matches("error: ")));
            ExitCode::from(USAGE)
        }
    }
}

/// Writes to stdout. A reader that went away (`| head`) is no error.
fn print(bytes: &[u8]) -> std::io::Result<()> {
    match std::io::stdout().write_all(bytes) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Writes a line to stderr; when even that fails there is nobody to tell.
fn say(line: &str) {
    let _nobody = writeln!(std::io::stderr(), "{line}");
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
            if long == "help" || long == "version" {
                continue;
            }
            let twin = format!("POD_SAFETY_{}", long.to_uppercase().replace('-', "_"));
            assert_eq!(argument.get_env().and_then(|name| name.to_str()), Some(twin.as_str()), "--{long}");
        }
    }
}
