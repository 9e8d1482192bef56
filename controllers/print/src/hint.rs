//! Commands in printed text: where they begin and end, so that no line is wrapped within one, and so that a test can
//! run them.

use std::collections::BTreeSet;
use std::ops::Range;

/// Programs whose commands are printed.
const PROGRAMS: [&str; 4] = ["pod-safety", "kubectl", "helm", "openssl"];

/// How many names follow the name of another program: a verb, a kind and a name.
const FOREIGN_NAMES: usize = 3;

/// The subcommands of the program.
#[derive(Debug)]
pub struct Commands {
    own: Vec<CommandShape>,
    foreign: &'static [&'static str],
}

/// What may follow a subcommand of this program.
#[derive(Debug)]
struct CommandShape {
    name: String,
    /// How many names it takes: `pod-safety doctor shows` is a command and a verb.
    names: usize,
    /// The flags that take a value.
    value_flags: BTreeSet<String>,
}

fn command_shape(command: &clap::Command) -> CommandShape {
    let below: Vec<CommandShape> = command.get_subcommands().map(command_shape).collect();
    let flags = command.get_arguments().filter(|arg| arg.get_action().takes_values());
    let valued = flags.flat_map(|arg| {
        let long = arg.get_long().map(|long| format!("--{long}"));
        long.into_iter().chain(arg.get_short().map(|short| format!("-{short}")))
    });
    let own = command.get_positionals().count();
    CommandShape {
        name: command.get_name().to_owned(),
        names: below.iter().map(|one| one.names + 1).max().unwrap_or(0).max(own),
        value_flags: valued.chain(below.iter().flat_map(|one| one.value_flags.iter().cloned())).collect(),
    }
}

impl Commands {
    /// The subcommands of `command`, and others of which only the names are known.
    #[must_use]
    pub fn from_clap(command: &clap::Command, foreign: &'static [&'static str]) -> Self {
        Self { own: command.get_subcommands().map(command_shape).collect(), foreign }
    }

    /// Whether the program has a subcommand of this name.
    #[must_use]
    pub fn contains(&self, word: &str) -> bool {
        self.own.iter().any(|one| one.name == word) || self.foreign.contains(&word)
    }

    /// The positions of the commands in a text. Each ends before the punctuation that follows it.
    #[must_use]
    pub fn find_in(&self, text: &str) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let mut from = 0;
        while let Some(start) = self.next(text, from) {
            let end = self.end(text, start);
            from = end.max(start + 1);
            ranges.push(start..end);
        }
        ranges
    }

    /// The beginning of the next command.
    fn next(&self, text: &str, from: usize) -> Option<usize> {
        let position = |program: &str| {
            let with_blank = format!("{program} ");
            let mut places = text.get(from..)?.match_indices(&with_blank).map(|(at, _)| from + at);
            places.find(|at| {
                let is_own_word =
                    !text[..*at].ends_with(|letter: char| letter.is_alphanumeric() || "-_./=".contains(letter));
                let next = text[at + with_blank.len()..].split(' ').next().unwrap_or_default();
                let next = next.trim_end_matches(|letter: char| !letter.is_alphanumeric());
                // The name of the project, or of a Helm release, is no command.
                let is_one = match program {
                    "pod-safety" => self.contains(next) || next.starts_with('-'),
                    _ => {
                        !next.is_empty()
                            && next.starts_with(|letter: char| letter.is_ascii_lowercase() || letter == '-')
                    }
                };
                is_own_word && is_one
            })
        };
        PROGRAMS.into_iter().filter_map(position).min()
    }

    /// The end of the command that begins at this position: the end of its line, or before text that no command has, or
    /// after the names that it takes.
    fn end(&self, text: &str, start: usize) -> usize {
        const AS_PLUGIN: &str = "kubectl pod-safety ";
        if text[start..].starts_with(AS_PLUGIN) {
            return self.end(text, start + "kubectl ".len());
        }
        let mut at = start;
        let mut command: Option<&CommandShape> = None;
        let (mut names, mut is_value, mut is_ours) = (0, false, false);
        for (index, word) in text[start..].split(' ').enumerate() {
            let bare = word.split('\n').next().unwrap_or_default();
            let bare = bare.trim_end_matches([',', ';', ':', '.', ')', '\'', '`', '?']);
            if bare.is_empty() || bare.starts_with(['(', '|', '&', '!']) {
                break;
            }
            let is_flag = bare.starts_with('-');
            match index {
                0 => is_ours = bare == "pod-safety",
                1 if is_ours => command = self.own.iter().find(|one| one.name == bare),
                _ if !is_flag && !is_value => {
                    names += usize::from(is_ours || !bare.contains('='));
                    if names > command.map_or(FOREIGN_NAMES, |command_shape| command_shape.names) {
                        break;
                    }
                }
                _ => {}
            }
            at = if index == 0 { start } else { at + 1 } + bare.len();
            is_value = is_flag
                && command.map_or_else(
                    || takes_foreign_value(bare),
                    |command_shape| command_shape.value_flags.contains(bare),
                );
            if bare.len() < word.len() {
                break;
            }
        }
        at
    }
}

/// Whether this flag of another program takes a value.
fn takes_foreign_value(flag: &str) -> bool {
    flag.len() == 2 || ["--namespace", "--set", "--values", "--version"].contains(&flag)
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;

    fn commands() -> Commands {
        let named = |name: &'static str, names: &[&'static str]| {
            Command::new(name).args(names.iter().map(|name| Arg::new(*name)))
        };
        let namespace = Arg::new("namespace").long("namespace").short('n');
        let apply = Arg::new("apply").long("apply").action(clap::ArgAction::SetTrue);
        let below = [
            named("pause", &["NODE"]).arg(Arg::new("reason").long("reason")),
            named("drain", &["NODE"]).arg(apply),
            named("explain", &["KIND", "NAME"]).arg(namespace),
            named("doctor", &[]),
            named("manifests", &[]),
            named("status", &[]),
        ];
        Commands::from_clap(&Command::new("pod-safety").subcommands(below), &["run"])
    }

    #[test]
    fn a_command_ends_where_the_sentence_continues() {
        for (text, expected) in [
            (
                "paused by your word (pod-safety pause b1 --reason TEXT). Until then",
                &["pod-safety pause b1 --reason TEXT"][..],
            ),
            ("pod-safety doctor shows whether it does", &["pod-safety doctor"]),
            ("pod-safety manifests prints them.", &["pod-safety manifests"]),
            (
                "See it: pod-safety explain node a, or kubectl get nodefence a-1 -w",
                &["pod-safety explain node a", "kubectl get nodefence a-1 -w"],
            ),
            ("kubectl get nodefences says how far it is", &["kubectl get nodefences says"]),
            ("    pod-safety explain pdb -n shop api", &["pod-safety explain pdb -n shop api"]),
            ("kubectl pod-safety drain a --apply.", &["kubectl pod-safety drain a --apply"]),
            ("pod-safety drain a --apply does not begin", &["pod-safety drain a --apply"]),
            ("pod-safety run --mode guard; then", &["pod-safety run --mode guard"]),
            ("pod-safety alone writes it", &[]),
            ("pod-safety status && deploy", &["pod-safety status"]),
            ("at pod-safety, and the pod-safety controllers", &[]),
        ] {
            let commands: Vec<&str> = commands().find_in(text).into_iter().map(|range| &text[range]).collect();
            assert_eq!(commands, expected, "{text}");
        }
    }
}
