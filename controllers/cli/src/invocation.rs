//! The name by which this program was invoked: commands in hints must work without change.
//!
//! As a plugin of kubectl the file is `kubectl-pod_safety`, and `pod-safety` need not exist.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::LazyLock;

use clap::Subcommand as _;
use pod_safety_print::Commands;

use super::Command;

/// The program name in texts, with a blank.
const PROGRAM_PREFIX: &str = "pod-safety ";

/// The commands of the program that are not in this crate.
pub const PROGRAM_COMMANDS: [&str; 6] = ["completion", "demo", "fence-agents", "man", "run", "simulate"];

/// What the user types before a subcommand of the plugin.
pub const PLUGIN: &str = "kubectl pod-safety";

/// Whether this program was invoked by kubectl, or by the plugin's file name.
#[must_use]
pub fn is_plugin() -> bool {
    std::env::args_os().next().is_some_and(|program| is_plugin_name(&program))
}

fn is_plugin_name(program: &OsStr) -> bool {
    Path::new(program).file_stem().is_some_and(|name| name == "kubectl-pod_safety")
}

/// The same text, with commands that work with this invocation.
pub(crate) fn adapt_commands(text: &str) -> Cow<'_, str> {
    if is_plugin() { Cow::Owned(to_plugin(text)) } else { Cow::Borrowed(text) }
}

/// The subcommands of the program: no line of a page is wrapped within one.
#[must_use]
pub fn commands() -> &'static Commands {
    static ALL: LazyLock<Commands> =
        LazyLock::new(|| Commands::from_clap(&Command::augment_subcommands(clap::Command::new("")), &PROGRAM_COMMANDS));
    &ALL
}

/// `pod-safety SUBCOMMAND` becomes `kubectl pod-safety SUBCOMMAND`.
fn to_plugin(text: &str) -> String {
    let mut adapted = String::with_capacity(text.len());
    let mut written = 0;
    for (at, prefix) in text.match_indices(PROGRAM_PREFIX) {
        let (before, after) = (&text[..at], &text[at + prefix.len()..]);
        let word = after.split(|letter: char| !letter.is_ascii_lowercase() && letter != '-').next();
        let goes_on = |letter: char| letter.is_alphanumeric() || "-_./=".contains(letter);
        if word.is_some_and(|word| commands().contains(word))
            && !before.ends_with(goes_on)
            && !before.ends_with("kubectl ")
        {
            adapted.push_str(&text[written..at]);
            adapted.push_str("kubectl ");
            written = at;
        }
    }
    adapted.push_str(&text[written..]);
    adapted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugin_is_recognised_by_its_file_name_in_any_folder() {
        for (program, is) in [
            ("kubectl-pod_safety", true),
            ("/home/anna/.krew/bin/kubectl-pod_safety", true),
            ("kubectl-pod_safety.exe", true),
            ("/usr/local/bin/pod-safety", false),
            ("", false),
        ] {
            assert_eq!(is_plugin_name(OsStr::new(program)), is, "{program}");
        }
    }

    /// A user who has only the plugin got the hint to type `pod-safety explain …`.
    #[test]
    fn bug_hints_of_the_plugin_were_not_valid_commands() {
        for (text, expected) in [
            ("pod-safety explain pod orders-1 -n shop", "kubectl pod-safety explain pod orders-1 -n shop"),
            (
                "do: pod-safety confirm-down w1\n`pod-safety drain w1`",
                "do: kubectl pod-safety confirm-down w1\n`kubectl pod-safety drain w1`",
            ),
            ("kubectl pod-safety status", "kubectl pod-safety status"),
            (
                "pod-safety runs beside it; kubectl -n pod-safety logs",
                "pod-safety runs beside it; kubectl -n pod-safety logs",
            ),
            (
                "helm upgrade pod-safety pod-safety/pod-safety -n pod-safety",
                "helm upgrade pod-safety pod-safety/pod-safety -n pod-safety",
            ),
            ("no pod-safety here, ✔ pod-safety ui", "no pod-safety here, ✔ kubectl pod-safety ui"),
        ] {
            assert_eq!(to_plugin(text), expected);
        }
    }
}
