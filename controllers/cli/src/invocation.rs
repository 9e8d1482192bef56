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

/// The flags that choose the cluster: a command of a hint without them would act on another one.
const CLUSTER_FLAGS: [&str; 2] = ["--context", "--kubeconfig"];

/// The commands of the program that take no cluster.
const WITHOUT_CLUSTER: [&str; 7] = ["completion", "demo", "fence-agents", "man", "manifests", "simulate", "version"];

/// The commands of kubectl in hints, also with a flag before them.
const KUBECTL_COMMANDS: [&str; 17] = [
    "-n", "annotate", "apply", "create", "delete", "describe", "edit", "events", "exec", "explain", "get", "label",
    "logs", "patch", "taint", "uncordon", "wait",
];

/// The same text, with commands that work with this invocation.
pub(crate) fn adapt_commands(text: &str) -> Cow<'_, str> {
    static FLAGS: LazyLock<String> =
        LazyLock::new(|| cluster_flags(std::env::args_os().map(|arg| arg.to_string_lossy().into_owned())));
    if is_plugin() || !FLAGS.is_empty() { Cow::Owned(adapt(text, is_plugin(), &FLAGS)) } else { Cow::Borrowed(text) }
}

/// The flags of the command line that choose the cluster, each with a blank behind it. Hints are also texts of JSON: a
/// value that takes more than quotes is left out.
fn cluster_flags(args: impl Iterator<Item = String>) -> String {
    let (mut args, mut flags) = (args.take_while(|arg| arg != "--"), String::new());
    while let Some(arg) = args.next() {
        let (flag, value) = arg.split_once('=').map_or((&*arg, None), |(flag, value)| (flag, Some(value.to_owned())));
        if !CLUSTER_FLAGS.contains(&flag) {
            continue;
        }
        let Some(value) = value.or_else(|| args.next()).filter(|value| !value.is_empty()) else { continue };
        let is_plain = |letter: char| letter.is_alphanumeric() || "-_./:@+,".contains(letter);
        if value.chars().all(is_plain) {
            flags += &format!("{flag} {value} ");
        } else if value.chars().all(|letter| is_plain(letter) || " ()[]=~".contains(letter)) {
            flags += &format!("{flag} '{value}' ");
        }
    }
    flags
}

/// The subcommands of the program: no line of a page is wrapped within one.
#[must_use]
pub fn commands() -> &'static Commands {
    static ALL: LazyLock<Commands> =
        LazyLock::new(|| Commands::from_clap(&Command::augment_subcommands(clap::Command::new("")), &PROGRAM_COMMANDS));
    &ALL
}

/// `pod-safety SUBCOMMAND` becomes `kubectl pod-safety FLAGS SUBCOMMAND`, and `kubectl get` gets the flags, too.
fn adapt(text: &str, plugin: bool, flags: &str) -> String {
    let own = replace_commands(text, PROGRAM_PREFIX, |word, before| {
        let flags = if WITHOUT_CLUSTER.contains(&word) { "" } else { flags };
        let kubectl = if plugin && !before.ends_with("kubectl ") { "kubectl " } else { "" };
        commands().contains(word).then(|| format!("{kubectl}{PROGRAM_PREFIX}{flags}"))
    });
    replace_commands(&own, "kubectl ", |word, _| KUBECTL_COMMANDS.contains(&word).then(|| format!("kubectl {flags}")))
}

/// Replaces `prefix` where `replace` allows it, by the word behind it and the text before it.
fn replace_commands(text: &str, prefix: &str, replace: impl Fn(&str, &str) -> Option<String>) -> String {
    let mut adapted = String::with_capacity(text.len());
    let mut written = 0;
    for (at, _) in text.match_indices(prefix) {
        let (before, after) = (&text[..at], &text[at + prefix.len()..]);
        let word = after.split(|letter: char| !letter.is_ascii_lowercase() && letter != '-').next();
        let goes_on = |letter: char| letter.is_alphanumeric() || "-_./=".contains(letter);
        let replaced = word.filter(|_| !before.ends_with(goes_on)).and_then(|word| replace(word, before));
        if let Some(replaced) = replaced {
            adapted.push_str(&text[written..at]);
            adapted.push_str(&replaced);
            written = at + prefix.len();
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
            assert_eq!(adapt(text, true, ""), expected);
        }
    }

    /// `pod-safety --context prod status` showed `pod-safety confirm-down w1`, which acts on the current context.
    #[test]
    fn bug_commands_of_hints_acted_on_another_cluster_than_the_page() {
        let flags = |line: &str| cluster_flags(line.split(' ').map(|word| word.replace('_', " ")));
        for (line, expected) in [
            ("pod-safety status", ""),
            ("pod-safety --context prod status -n shop", "--context prod "),
            (
                "pod-safety status --kubeconfig=/a/b --context arn:aws:eks/x",
                "--kubeconfig /a/b --context arn:aws:eks/x ",
            ),
            ("pod-safety status --context my_prod", "--context 'my prod' "),
            ("pod-safety status --context it's", ""),
            ("pod-safety status --context= --context", ""),
            ("pod-safety explain -- --context prod", ""),
        ] {
            assert_eq!(flags(line), expected, "{line}");
        }
        for (plugin, text, expected) in [
            (false, "pod-safety confirm-down w1", "pod-safety --context p confirm-down w1"),
            (true, "`pod-safety drain w1`", "`kubectl pod-safety --context p drain w1`"),
            (true, "kubectl pod-safety drain w1", "kubectl pod-safety --context p drain w1"),
            (
                false,
                "kubectl uncordon w1, kubectl -n a get x",
                "kubectl --context p uncordon w1, kubectl --context p -n a get x",
            ),
            (
                false,
                "pod-safety manifests prints them, as kubectl does",
                "pod-safety manifests prints them, as kubectl does",
            ),
        ] {
            assert_eq!(adapt(text, plugin, "--context p "), expected);
        }
    }
}
