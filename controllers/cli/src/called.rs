//! By which name this program was called: hints must be commands that work as they stand.
//!
//! As a plugin of kubectl the file is `kubectl-pod_safety`, and `pod-safety` need not exist.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::LazyLock;

use clap::Subcommand as _;
use pod_safety_print::Commands;

use super::Command;

/// As the texts name it.
const OWN: &str = "pod-safety ";

/// The commands of the program that are not of this crate.
pub const OF_THE_PROGRAM: [&str; 6] = ["completion", "demo", "fence-agents", "man", "run", "simulate"];

/// What a person types before a subcommand.
pub const PLUGIN: &str = "kubectl pod-safety";

/// Whether kubectl called this program, or a person did by the plugin's file.
#[must_use]
pub fn is_plugin() -> bool {
    std::env::args_os().next().is_some_and(|program| names_plugin(&program))
}

fn names_plugin(program: &OsStr) -> bool {
    Path::new(program).file_stem().is_some_and(|name| name == "kubectl-pod_safety")
}

/// The same text, with its commands as they can be typed here.
pub(crate) fn words(text: &str) -> Cow<'_, str> {
    if is_plugin() { Cow::Owned(of_plugin(text)) } else { Cow::Borrowed(text) }
}

/// The subcommands of the program: no line of a page is broken within one.
#[must_use]
pub fn commands() -> &'static Commands {
    static ALL: LazyLock<Commands> = LazyLock::new(|| {
        Commands::of(&Command::augment_subcommands(clap::Command::new("")), &OF_THE_PROGRAM)
    });
    &ALL
}

/// `pod-safety SUBCOMMAND` becomes `kubectl pod-safety SUBCOMMAND`.
fn of_plugin(text: &str) -> String {
    let mut said = String::with_capacity(text.len());
    let mut written = 0;
    for (at, found) in text.match_indices(OWN) {
        let (before, after) = (&text[..at], &text[at + found.len()..]);
        let word = after.split(|letter: char| !letter.is_ascii_lowercase() && letter != '-').next();
        let goes_on = |letter: char| letter.is_alphanumeric() || "-_./=".contains(letter);
        if word.is_some_and(|word| commands().has(word))
            && !before.ends_with(goes_on)
            && !before.ends_with("kubectl ")
        {
            said.push_str(&text[written..at]);
            said.push_str("kubectl ");
            written = at;
        }
    }
    said.push_str(&text[written..]);
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_the_plugin_is_known_wherever_it_is() {
        for (program, is) in [
            ("kubectl-pod_safety", true),
            ("/home/anna/.krew/bin/kubectl-pod_safety", true),
            ("kubectl-pod_safety.exe", true),
            ("/usr/local/bin/pod-safety", false),
            ("", false),
        ] {
            assert_eq!(names_plugin(OsStr::new(program)), is, "{program}");
        }
    }

    /// A person who has the plugin alone was told to type `pod-safety explain …`.
    #[test]
    fn bug_hints_of_the_plugin_could_not_be_typed() {
        for (text, said) in [
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
            assert_eq!(of_plugin(text), said);
        }
    }
}
