//! Which test runs which command: an exhaustive list.

use anyhow::{Context, Result, bail, ensure};

use super::shell_words::split;
use super::{Block, blocks};

/// Programs that only filter the output of others: they run, and need no test of their own.
const FILTERS: [&str; 12] = ["awk", "cut", "grep", "head", "jq", "less", "sed", "sort", "tail", "tr", "wc", "xargs"];

/// Subcommands of `pod-safety` that need no cluster; their flags are parsed here, and other tests run them.
const STANDALONE: [&str; 8] = ["completion", "demo", "fence-agents", "man", "manifests", "run", "simulate", "version"];

/// Commands that no test of `make test` can run, and the file that runs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// The beginning of the command.
    pub begins: &'static str,
    /// What the command needs.
    pub needs: &'static str,
    /// The file that runs it, or the folder of scripts.
    pub typed_in: &'static str,
    /// The text in that file.
    pub typed_as: &'static str,
}

const KIND: &str = "tests/kind";

/// An entry that matches no documented command fails the test, and so does one that no file runs.
pub const NOT_HERE: &[Elsewhere] = &[
    elsewhere("docker exec ", "the nodes of kind", KIND, "docker exec"),
    elsewhere("kind create cluster", "Docker", KIND, "kind create cluster"),
    elsewhere("kind load docker-image", "Docker", KIND, "kind load docker-image"),
    elsewhere("tests/kind/bmc.sh", "the nodes of kind", KIND, "bmc.sh"),
    elsewhere("helm -n pod-safety test", "a kubelet that runs its pod", KIND, "test pod-safety"),
    elsewhere("kubectl -n pod-safety rollout status", "a kubelet that reports pods Ready", KIND, "rollout status"),
    elsewhere("kubectl -n pod-safety port-forward", "a kubelet", KIND, "port-forward"),
    elsewhere(
        "pod-safety drill --watchdog",
        "an agent on the node",
        "tests/control-plane/tests/suite/fencing/watchdog.rs",
        "--watchdog",
    ),
];

const fn elsewhere(
    begins: &'static str,
    needs: &'static str,
    typed_in: &'static str,
    typed_as: &'static str,
) -> Elsewhere {
    Elsewhere { begins, needs, typed_in, typed_as }
}

/// The error for a command of no known kind.
const WHAT_TO_DO: &str = "write it as pod-safety, kubectl, helm, curl, make or cargo, or add how it begins to NOT_HERE in \
    tests/locks/src/documents/commands.rs, with what it needs and what types it";

/// Which test runs a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestedBy {
    /// The simulator's tests: `pod-safety` against a served demonstration.
    Demo,
    /// The control-plane tests: `kubectl`, `helm` and `curl`.
    ControlPlane,
    /// This crate: `make` and `cargo`, as far as their targets exist.
    Build,
    /// The binary's tests: its flags are parsed.
    Flags,
    /// No test of `make test`.
    NotHere(Elsewhere),
}

/// A command, as a user copies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// File and line.
    pub place: String,
    /// Its full text.
    pub text: String,
    /// Which test runs it.
    pub tested_by: TestedBy,
}

/// Every command of every block, as a user copies it.
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
    let mut commands = Vec::new();
    for (line, text) in block.lines() {
        for text in split(&text, &["&&", ";"]) {
            let place = format!("{}:{line}", block.file);
            let way = tested_by(&text).with_context(|| format!("{place}: {text}: {WHAT_TO_DO}"))?;
            commands.push(Command { place, text, tested_by: way });
        }
    }
    Ok(commands)
}

/// The entries of the list of exceptions that match no command.
#[must_use]
pub fn idle_exceptions(commands: &[Command]) -> Vec<&'static str> {
    let idle = |begins: &&str| !commands.iter().any(|command| command.text.starts_with(begins));
    NOT_HERE.iter().map(|one| one.begins).filter(idle).collect()
}

fn tested_by(text: &str) -> Result<TestedBy> {
    if let Some(elsewhere) = NOT_HERE.iter().find(|one| text.starts_with(one.begins)) {
        return Ok(TestedBy::NotHere(*elsewhere));
    }
    let mut way = None;
    for program in split(text, &["|"]) {
        let words: Vec<&str> = program.split_whitespace().collect();
        let this = match words.as_slice() {
            ["kubectl", "pod-safety", rest @ ..] | ["pod-safety", rest @ ..] => {
                if rest.first().is_some_and(|first| STANDALONE.contains(first)) {
                    TestedBy::Flags
                } else {
                    TestedBy::Demo
                }
            }
            // The following commands are for the cluster of the served demonstration.
            ["export", variable] if variable.starts_with("KUBECONFIG=") => TestedBy::Demo,
            ["kubectl" | "helm" | "curl", ..] => TestedBy::ControlPlane,
            ["make" | "cargo", ..] => TestedBy::Build,
            [filter, ..] if FILTERS.contains(filter) => continue,
            [other, ..] => bail!("no test knows {other}"),
            [] => bail!("there is no command"),
        };
        // A command whose output kubectl reads runs with kubectl.
        let prints = way == Some(TestedBy::Flags) && this == TestedBy::ControlPlane;
        ensure!(prints || way.as_ref().is_none_or(|one| *one == this), "no test runs both of its programs");
        way = Some(this);
    }
    way.context("there is no command but filters")
}
