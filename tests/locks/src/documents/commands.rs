//! Which test runs which command: a list that is closed.

use anyhow::{Context, Result, bail, ensure};

use super::shell_words::split;
use super::{Block, blocks};

/// Programs that only pass on what others print: they are run, and decide nothing.
const FILTERS: [&str; 12] =
    ["awk", "cut", "grep", "head", "jq", "less", "sed", "sort", "tail", "tr", "wc", "xargs"];

/// Subcommands of `pod-safety` that ask no cluster; their flags are read, and other tests run them.
const STANDALONE: [&str; 8] =
    ["completion", "demo", "fence-agents", "man", "manifests", "run", "simulate", "version"];

/// Commands that no test of `make test` can run, and what types them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// How they begin.
    pub begins: &'static str,
    /// What they need.
    pub needs: &'static str,
    /// The file that types them, or the folder of scripts.
    pub typed_in: &'static str,
    /// What stands there.
    pub typed_as: &'static str,
}

const KIND: &str = "tests/kind";

/// One that begins no command of the documentation fails the test, and so does one that nothing types.
pub const NOT_HERE: &[Elsewhere] = &[
    elsewhere("docker exec ", "the nodes of kind", KIND, "docker exec"),
    elsewhere("kind create cluster", "Docker", KIND, "kind create cluster"),
    elsewhere("kind load docker-image", "Docker", KIND, "kind load docker-image"),
    elsewhere("tests/kind/bmc.sh", "the nodes of kind", KIND, "bmc.sh"),
    elsewhere("helm -n pod-safety test", "a kubelet that runs its pod", KIND, "test pod-safety"),
    elsewhere(
        "kubectl -n pod-safety rollout status",
        "a kubelet that reports pods Ready",
        KIND,
        "rollout status",
    ),
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

/// What a person is told whose command is of no kind.
const WHAT_TO_DO: &str = "write it as pod-safety, kubectl, helm, curl, make or cargo, or add how it begins to NOT_HERE in \
    tests/locks/src/documents/commands.rs, with what it needs and what types it";

/// Which test runs a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestedBy {
    /// The simulator's: `pod-safety` in a served demonstration.
    Demo,
    /// The control plane's: `kubectl`, `helm` and `curl`.
    ControlPlane,
    /// This crate's: `make` and `cargo`, as far as that there is what they name.
    Build,
    /// The binary's: its flags are read.
    Flags,
    /// None of `make test`.
    NotHere(Elsewhere),
}

/// A command, as a person copies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// File and line.
    pub place: String,
    /// All of it.
    pub text: String,
    /// Which test runs it.
    pub tested_by: TestedBy,
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
            let way = tested_by(&text).with_context(|| format!("{place}: {text}: {WHAT_TO_DO}"))?;
            found.push(Command { place, text, tested_by: way });
        }
    }
    Ok(found)
}

/// The entries of the list of what no test runs that begin no command.
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
            // What follows is for the cluster of the served demonstration.
            ["export", variable] if variable.starts_with("KUBECONFIG=") => TestedBy::Demo,
            ["kubectl" | "helm" | "curl", ..] => TestedBy::ControlPlane,
            ["make" | "cargo", ..] => TestedBy::Build,
            [filter, ..] if FILTERS.contains(filter) => continue,
            [other, ..] => bail!("no test knows {other}"),
            [] => bail!("there is no command"),
        };
        // What prints for kubectl is run with it.
        let prints = way == Some(TestedBy::Flags) && this == TestedBy::ControlPlane;
        ensure!(prints || way.as_ref().is_none_or(|one| *one == this), "no test runs both of its programs");
        way = Some(this);
    }
    way.context("there is no command but filters")
}
