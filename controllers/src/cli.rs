//! The command line: the controllers, the demonstration, and the commands for operators (`pod-safety-cli`).

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use pod_safety_cli::{
    Exit, USAGE, exit_codes, invocation, move_global_flags, print, print_raw, print_stderr, report_exit,
};
use pod_safety_process::{fence_agents, run};

#[cfg(feature = "demo")]
use crate::demo;
use crate::man;

/// The text at the end of `--help`.
fn after_help() -> String {
    format!(
        "kubectl's flags --context, --kubeconfig, --as, --as-group, --request-timeout and -n work before and after every command that asks a cluster.\n\n{}",
        exit_codes()
    )
}

/// Force deletes a pod only with proof that its processes have terminated.
#[derive(Debug, Parser)]
#[command(name = "pod-safety", version, propagate_version = true, max_term_width = 100, after_help = after_help())]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
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
    #[command(flatten)]
    Operator(pod_safety_cli::Command),
    /// Print the completion script of a shell
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual, or write a page for each command
    Man(man::Args),
}

/// Parses the arguments and runs the command.
pub(crate) fn main() -> ExitCode {
    match parse() {
        Ok(cli) => run_command(cli.command),
        Err(error) => print_usage(&error),
    }
}

fn parse() -> Result<Cli, clap::Error> {
    let mut command = without_empty_variables(Cli::command(), &|name| std::env::var_os(name));
    if invocation::is_plugin() {
        command = command.bin_name(invocation::PLUGIN);
    }
    Cli::from_arg_matches(&command.try_get_matches_from(move_global_flags(std::env::args_os()))?)
}

/// An environment variable that is empty counts as not set, as KUBECONFIG does for kubectl and as OpenTelemetry demands of its
/// own: a template of a manifest writes `""` where it has no value.
fn without_empty_variables(command: clap::Command, variable: &dyn Fn(&OsStr) -> Option<OsString>) -> clap::Command {
    let command = command.mut_args(|arg| {
        let is_empty = arg.get_env().and_then(variable).is_some_and(|value| value.is_empty());
        if is_empty { arg.env(Resettable::Reset) } else { arg }
    });
    command.mut_subcommands(|below| without_empty_variables(below, variable))
}

fn run_command(command: Command) -> ExitCode {
    let done = match command {
        #[cfg(feature = "demo")]
        Command::Demo(args) => return demo::exit_code(args.main()),
        #[cfg(feature = "demo")]
        Command::Simulate(args) => return demo::exit_code(args.main()),
        Command::Run(args) => args.main(),
        Command::FenceAgents(args) => args.main(),
        Command::Operator(command) => return command.run(),
        Command::Man(args) => args.main(Cli::command()).map_err(anyhow::Error::from),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "pod-safety", &mut script);
            print_raw(&script).map_err(anyhow::Error::from)
        }
    };
    report_exit(done.map(|()| Exit::Fine))
}

/// Prints help to stdout unchanged; an error becomes one line.
fn print_usage(error: &clap::Error) -> ExitCode {
    let rendered = error.render();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _closed = print(&rendered.to_string());
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            print_stderr(rendered.to_string().trim_end());
            ExitCode::from(USAGE)
        }
        _ => {
            print_stderr(&one_line(&rendered.to_string()));
            ExitCode::from(USAGE)
        }
    }
}

/// The error and the allowed values, without the usage. Tips to pass a mistyped flag as a value are dropped: they are
/// never right.
fn one_line(text: &str) -> String {
    let lines = text.lines().take_while(|line| !line.starts_with("For more") && !line.starts_with("Usage:"));
    let lines = lines.map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("tip: to pass "));
    let line = lines.collect::<Vec<_>>().join(" ").replace(" tip: ", "; ");
    format!("pod-safety: {} (see --help)", line.trim_start_matches("error: "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// "to pass '--apply' as a value, use '-- --apply'" was misleading; and a negative speed was called a flag.
    #[test]
    fn bug_wrong_usage_was_answered_with_a_wrong_tip() {
        let mut rows = vec![
            ("maintain n --apply", "unexpected argument '--apply' found"),
            ("drain n --aply", "a similar argument exists: '--apply'"),
            ("drain n --force", "'--force' found; for pods without a controller: --evict-unmanaged (see --help)"),
            ("drain n --disable-eviction", "found; pods are evicted, never deleted"),
            ("drain n --grace-period=30", "found; each pod keeps its own grace period"),
            ("drain n --apply --dry-run", "cannot be used with"),
            ("confirm-down n --reason r --valid-for 59s", "too short; allowed is 1m to 168h"),
            ("confirm-down n --reason r --valid-for 169h", "too long; allowed is 1m to 168h"),
            ("confirm-down n --reason r --valid-for -5m", "negative; allowed is 1m to 168h"),
        ];
        if cfg!(feature = "demo") {
            let allowed = "not a speed; allowed is 0.1 to 1000";
            rows.extend([("demo --speed -1", allowed), ("simulate f --speed -1", allowed)]);
        }
        for (line, says) in rows {
            let words = std::iter::once("pod-safety").chain(line.split(' '));
            let text = one_line(&Cli::try_parse_from(words).unwrap_err().to_string());
            assert!(text.contains(says) && !text.contains("as a value"), "{line}: {text}");
        }
        let valid = |text: &str| {
            let line = format!("pod-safety confirm-down n --reason r --valid-for {text}");
            Cli::try_parse_from(line.split(' ')).is_ok()
        };
        assert!(valid("1m") && valid("168h") && valid("25h"));
    }

    /// Hints refer to commands by these names, and the commands for operators are tested with hostile texts.
    #[test]
    fn the_commands_that_are_not_for_operators_are_listed() {
        let people = <pod_safety_cli::Command as Subcommand>::augment_subcommands(clap::Command::new(""));
        let names = |command: clap::Command| -> BTreeSet<String> {
            command.get_subcommands().map(|subcommand| subcommand.get_name().to_owned()).collect()
        };
        let here: BTreeSet<String> = names(Cli::command()).difference(&names(people)).cloned().collect();
        let named = invocation::PROGRAM_COMMANDS.map(str::to_owned);
        let of_the_feature = |name: &String| cfg!(feature = "demo") || !matches!(&**name, "demo" | "simulate");
        assert_eq!(here, named.into_iter().filter(of_the_feature).collect());
    }

    /// `POD_SAFETY_MODE=` ended with "a value is required for '--mode <MODE>' but none was supplied".
    #[test]
    fn bug_an_empty_environment_variable_was_refused() {
        for (value, stays) in [("", false), ("guard", true)] {
            let command = without_empty_variables(Cli::command(), &|_| Some(value.into()));
            for name in ["run", "status", "fence-agents"] {
                let arguments = command.find_subcommand(name).unwrap().get_arguments();
                assert_eq!(arguments.filter(|arg| arg.get_env().is_some()).count() > 0, stays, "{name} {value:?}");
            }
        }
    }

    #[test]
    fn every_flag_of_run_has_an_environment_variable() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        for argument in run.get_arguments().filter(|argument| argument.get_long().is_some()) {
            let long = argument.get_long().unwrap();
            // Ignored flags are only parsed.
            if long == "help" || long == "version" || argument.is_hide_set() {
                continue;
            }
            let twin = match long {
                // OpenTelemetry's own variable.
                "otlp-endpoint" => "OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(),
                _ => format!("POD_SAFETY_{}", long.to_uppercase().replace('-', "_")),
            };
            assert_eq!(argument.get_env().and_then(|name| name.to_str()), Some(twin.as_str()), "--{long}");
        }
    }
}
