//! How commands end: one table of exit codes for all of them, and when each command ends with which.

/// How a command ends that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Fine,
    /// It was interrupted before it was done.
    Interrupted,
    /// Something blocks.
    Blocked,
    /// What was requested would not be safe.
    Refused,
    /// The timeout expired before it was done.
    TimedOut,
    /// Nothing that was read blocks, and not everything could be read.
    Unknown,
}

impl Exit {
    /// The exit code of the program.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Interrupted => FAILURE,
            Self::Blocked => 3,
            Self::Refused => 4,
            Self::TimedOut => 5,
            Self::Unknown => 6,
        }
    }
}

/// The code of an error.
const FAILURE: u8 = 1;

/// The code of wrong usage.
pub const USAGE: u8 = 2;

/// Every code and its meaning.
pub(crate) const CODES: [(u8, &str); 7] = [
    (Exit::Fine.code(), "fine"),
    (FAILURE, "error: no connection, no rights, not found, interrupted"),
    (USAGE, "wrong usage"),
    (Exit::Blocked.code(), "answered, and the answer is that something blocks"),
    (
        Exit::Refused.code(),
        "rejected for safety: a pod in a terminal phase may still run, a kubelet reports, or the confirmation did not match",
    ),
    (Exit::TimedOut.code(), "the time is up"),
    (Exit::Unknown.code(), "not known: nothing that could be read blocks, and not everything could be read"),
];

/// An error and wrong usage, as most commands have them.
const ERROR: (u8, &str) = (FAILURE, "after an error");
const WRONG_USAGE: (u8, &str) = (USAGE, "for wrong usage");
const TIMED_OUT: (u8, &str) = (5, "when the time is up");

/// The codes of a command, and when it ends with each.
type CommandCodes = (&'static str, &'static [(u8, &'static str)]);

pub(crate) const COMMANDS: [CommandCodes; 19] = [
    (
        "drain",
        &[
            (0, "if every pod can go, with --apply if each that was there is gone"),
            (1, "after an error or Ctrl-C"),
            WRONG_USAGE,
            (
                3,
                "if something blocks, must wait for its PodDisruptionBudget, or fits on no other node, with --apply if a pod was not evicted",
            ),
            (4, "if a pod must not go for safety"),
            TIMED_OUT,
        ],
    ),
    (
        "status",
        &[
            (0, "if nothing blocks"),
            ERROR,
            WRONG_USAGE,
            (3, "if something is blocked until a person acts"),
            (6, "if not everything could be read: pod-safety status && deploy"),
        ],
    ),
    ("explain", BLOCKS),
    ("timeline", &[(0, "if all of it could be read"), ERROR, WRONG_USAGE, (6, "if parts of it could not be read")]),
    ("resolve", BLOCKS),
    (
        "doctor",
        &[
            (0, "if all is well"),
            ERROR,
            WRONG_USAGE,
            (3, "if something must be fixed"),
            (6, "if a check could not be made"),
        ],
    ),
    (
        "report",
        &[(0, "if it is written"), ERROR, WRONG_USAGE, (6, "if it is written but parts of it could not be read")],
    ),
    ("ui", &[(0, "when it is stopped"), ERROR, WRONG_USAGE]),
    (
        "confirm-down",
        &[
            (0, "if the confirmation is recorded"),
            ERROR,
            WRONG_USAGE,
            (4, "if it is rejected: the kubelet reports, or the confirmation did not match"),
        ],
    ),
    ("withdraw", RECORDED),
    (
        "fence",
        &[
            (0, "if the request is recorded, or with --dry-run if no gate holds it"),
            ERROR,
            WRONG_USAGE,
            (3, "with --dry-run if a gate holds it"),
            (4, "if it is rejected: the confirmation did not match"),
        ],
    ),
    ("cancel", RECORDED),
    (
        "maintain",
        &[
            (0, "when a person may begin, or with --finish when the node is back"),
            (1, "after an error or Ctrl-C"),
            WRONG_USAGE,
            (3, "if something blocks"),
            (4, "if it is rejected"),
            (5, "when the time is up: the same command continues"),
        ],
    ),
    ("pause", RECORDED),
    ("resume", RECORDED),
    (
        "devices test",
        &[
            (0, "if every device answered for every node"),
            ERROR,
            WRONG_USAGE,
            (3, "if something is wrong with one"),
            (5, "if there was no answer in time"),
        ],
    ),
    (
        "drill",
        &[
            (
                0,
                "if nothing is in the way, with --really when the node is back, or with --watchdog when it was reset on time",
            ),
            ERROR,
            WRONG_USAGE,
            (3, "if something is in the way"),
            (4, "if it is rejected"),
            TIMED_OUT,
        ],
    ),
    ("manifests", &[(0, "if they are printed"), ERROR, WRONG_USAGE]),
    ("version", &[(0, "if it is printed"), ERROR, WRONG_USAGE]),
];

const BLOCKS: &[(u8, &str)] = &[
    (0, "if nothing blocks"),
    ERROR,
    WRONG_USAGE,
    (3, "if something is blocked until a person acts"),
    (6, "if too little could be read to tell"),
];

const RECORDED: &[(u8, &str)] =
    &[(0, "if it is recorded"), (1, "after an error or if there is nothing to do"), WRONG_USAGE];

/// The codes at the end of `--help` of a command.
pub(crate) fn help(command: &str) -> String {
    let of = COMMANDS.iter().find(|(name, _)| *name == command).map_or(&[][..], |(_, codes)| codes);
    let codes: Vec<String> = of.iter().map(|(code, when)| format!("{code} {when}")).collect();
    format!("Exits with {}.", codes.join("; "))
}

/// The codes at the end of `--help` of the program.
#[must_use]
pub fn overview() -> String {
    let codes: Vec<String> = CODES.iter().map(|(code, meaning)| format!("  {code}  {meaning}")).collect();
    format!("Exit codes:\n{}", codes.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::Cli;

    const PAGE: &str = include_str!("../../../docs/commands.md");

    #[test]
    fn the_page_has_the_programs_table_of_codes() {
        for (code, meaning) in CODES {
            let row = format!("| {code} | {meaning}");
            assert!(PAGE.lines().any(|line| line.starts_with(&row)), "{row}: not in docs/commands.md");
        }
        assert!(overview().contains("  4  rejected for safety"));
    }

    /// The commands of the command line, with `devices test` as one.
    fn all() -> Vec<(String, clap::Command)> {
        let named = |command: &clap::Command| command.get_name().to_owned();
        let mut all = Vec::new();
        for command in Cli::command().get_subcommands() {
            let below: Vec<_> = command.get_subcommands().filter(|one| one.get_name() != "help").collect();
            match below.as_slice() {
                [] => all.push((named(command), command.clone())),
                some => {
                    all.extend(some.iter().map(|one| (format!("{} {}", named(command), named(one)), (*one).clone())))
                }
            }
        }
        all
    }

    #[test]
    fn each_command_has_a_row_with_the_codes_of_its_help() {
        let commands: BTreeSet<String> = all().into_iter().map(|(name, _)| name).collect();
        let rows: BTreeSet<String> = COMMANDS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(commands, rows);
        for (name, command) in all() {
            let after_help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert_eq!(after_help, help(&name), "{name}");
        }
        for (name, entries) in COMMANDS {
            let codes: Vec<u8> = entries.iter().map(|(code, _)| *code).collect();
            assert!(codes.is_sorted() && codes.starts_with(&[0, 1, 2]), "{name}: {codes:?}");
            assert!(codes.iter().all(|code| CODES.iter().any(|(one, _)| one == code)), "{name}");
        }
    }

    /// A code in a sentence of the page: "exits with 3", "and with 3", "rejected (4)".
    fn codes_in(text: &str) -> BTreeSet<u8> {
        let starts = ["exits with ", "exits\nwith ", " with ", "("];
        let of = |start: &str| {
            let places = text.match_indices(start).map(|(at, found)| &text[at + found.len()..]);
            places
                .filter_map(|rest| {
                    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                    let next = rest[digits.len()..].chars().next().unwrap_or(' ');
                    let is_code = digits.len() == 1 && (" ,.;)".contains(next) || next == '\n');
                    digits.parse::<u8>().ok().filter(|_| is_code)
                })
                .collect::<Vec<u8>>()
        };
        starts.into_iter().flat_map(of).filter(|code| *code < 7).collect()
    }

    #[test]
    fn the_page_names_only_codes_that_a_command_has() {
        let mut count = 0;
        for section in PAGE.split("\n## ").skip(1) {
            let (title, text) = section.split_once('\n').unwrap();
            // The sentences about examples come from the program.
            let prose: String = text.split("```").step_by(2).collect();
            let Some((name, codes)) = COMMANDS.iter().find(|(name, _)| title.contains(&format!("pod-safety {name}")))
            else {
                continue;
            };
            for code in codes_in(&prose) {
                count += 1;
                assert!(
                    codes.iter().any(|(one, _)| *one == code),
                    "{name}: {code}: in its section of docs/commands.md"
                );
            }
        }
        assert!(count > 12, "only {count} codes were found");
    }
}
