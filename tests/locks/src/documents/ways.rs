//! Which test runs which command: a list that is closed.

use anyhow::{Context, Result, bail, ensure};

use super::words::split;
use super::{Block, blocks};

/// Programs that only pass on what others print: they are run, and decide nothing.
const FILTERS: [&str; 12] =
    ["awk", "cut", "grep", "head", "jq", "less", "sed", "sort", "tail", "tr", "wc", "xargs"];

/// Subcommands of `pod-safety` that ask no cluster; their flags are read, and other tests run them.
const ALONE: [&str; 8] =
    ["completion", "demo", "fence-agents", "man", "manifests", "run", "simulate", "version"];

/// How commands begin that no test here can run, and why. One that begins no command of the documentation fails the test.
const NOT_HERE: &[(&str, &str)] = &[
    ("docker exec ", "needs the nodes of kind: make test-kind"),
    ("kind create cluster", "needs Docker: make test-kind"),
    ("kind load docker-image", "needs Docker: make test-kind"),
    ("tests/kind/bmc.sh", "needs the nodes of kind: make test-kind"),
    (
        "pod-safety drill --watchdog",
        "needs an agent on the node: fencing::watchdog of the control-plane suite runs it",
    ),
    ("helm -n pod-safety test", "its pod needs a kubelet: make test-nodes"),
    ("kubectl -n pod-safety rollout status", "no pod is Ready without a kubelet: make test-kind"),
    ("kubectl -n pod-safety port-forward", "needs a kubelet"),
    ("kubectl -n pod-safety top", "needs metrics-server"),
    ("export KUBECONFIG=", "each test chooses its cluster"),
];

/// What a person is told whose command is of no kind.
const WHAT_TO_DO: &str = "write it as pod-safety, kubectl, helm, curl, make or cargo, or add how it begins to NOT_HERE in \
    tests/locks/src/documents/ways.rs, with the reason why no test can run it";

/// Which test runs a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// The simulator's: `pod-safety` in a served demonstration.
    Demo,
    /// The control plane's: `kubectl`, `helm` and `curl`.
    ControlPlane,
    /// This crate's: `make` and `cargo`, as far as that there is what they name.
    Build,
    /// The binary's: its flags are read.
    Flags,
    /// None, for this reason.
    NotHere(&'static str),
}

/// A command, as a person copies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// File and line.
    pub place: String,
    /// All of it.
    pub text: String,
    /// Which test runs it.
    pub way: Way,
}

/// Every command of every block, as a person copies it.
///
/// # Errors
/// If a block cannot be read, or a command is of no kind.
pub fn commands() -> Result<Vec<Command>> {
    let all: Result<Vec<_>> = blocks()?.iter().filter(|block| block.is_shell()).map(commands_of).collect();
    Ok(all?.concat())
}

/// The commands of one block.
///
/// # Errors
/// If one is of no kind.
pub fn commands_of(block: &Block) -> Result<Vec<Command>> {
    let mut found = Vec::new();
    for (line, text) in block.lines() {
        for text in split(&text, &["&&", ";"]) {
            let place = format!("{}:{line}", block.file);
            let way = way(&text).with_context(|| format!("{place}: {text}: {WHAT_TO_DO}"))?;
            found.push(Command { place, text, way });
        }
    }
    Ok(found)
}

/// The entries of the list of what no test runs that begin no command.
#[must_use]
pub fn idle_exceptions(commands: &[Command]) -> Vec<&'static str> {
    let idle = |begins: &&str| !commands.iter().any(|command| command.text.starts_with(begins));
    NOT_HERE.iter().map(|(begins, _)| *begins).filter(idle).collect()
}

fn way(text: &str) -> Result<Way> {
    if let Some((_, reason)) = NOT_HERE.iter().find(|(begins, _)| text.starts_with(begins)) {
        return Ok(Way::NotHere(reason));
    }
    let mut way = None;
    for program in split(text, &["|"]) {
        let words: Vec<&str> = program.split_whitespace().collect();
        let this = match words.as_slice() {
            ["kubectl", "pod-safety", rest @ ..] | ["pod-safety", rest @ ..] => {
                if rest.first().is_some_and(|first| ALONE.contains(first)) { Way::Flags } else { Way::Demo }
            }
            ["kubectl" | "helm" | "curl", ..] => Way::ControlPlane,
            ["make" | "cargo", ..] => Way::Build,
            [filter, ..] if FILTERS.contains(filter) => continue,
            [other, ..] => bail!("no test knows {other}"),
            [] => bail!("there is no command"),
        };
        // What prints for kubectl is run with it.
        let prints = way == Some(Way::Flags) && this == Way::ControlPlane;
        ensure!(prints || way.as_ref().is_none_or(|one| *one == this), "no test runs both of its programs");
        way = Some(this);
    }
    way.context("there is no command but filters")
}
