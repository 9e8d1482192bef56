//! The `run:` steps of the workflows, in order, as a shell on this machine can run them (`make workflows`).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{manifest, texts};

/// Steps that a shell alone cannot run: a part of the step's text, and what it needs.
pub const NOT_HERE: [(&str, &str); 8] = [
    ("make advisories", "RustSec's database, on GitHub"),
    ("docker build ", "Docker, and images of a registry; tests of the image run the lines of the Dockerfile"),
    ("docker run ", "the images that a step before it built"),
    ("docker push ", "a registry, Sigstore, and an identity that GitHub grants"),
    ("helm registry login", "a registry; a test of the chart runs packaging/chart.sh as it stands there"),
    ("cosign sign-blob", "Sigstore, and an identity that GitHub grants"),
    ("gh release create", "a repository on GitHub in which a release is made"),
    ("sudo chown -R", "a runner whose user is not root, after actions/cache"),
];

/// A step with a `run:` script.
#[derive(Clone, Debug)]
pub struct Step {
    /// File, job and number.
    pub place: String,
    /// The script, with GitHub's expressions replaced.
    pub run: String,
    /// Its environment, with that of its workflow.
    pub env: BTreeMap<String, String>,
}

impl Step {
    /// What the step needs that is missing here. `None`: it can run.
    #[must_use]
    pub fn needs(&self) -> Option<&'static str> {
        NOT_HERE.iter().find(|(part, _)| self.run.contains(part)).map(|(_, needs)| *needs)
    }
}

/// A job, which starts with a clean clone.
#[derive(Clone, Debug)]
pub struct Job {
    /// File and name.
    pub place: String,
    /// The steps in order.
    pub steps: Vec<Step>,
    /// The other machines of the matrix, as in `pod-safety-OS-ARCH.tar.gz`; the first one is this machine.
    pub others: Vec<String>,
}

/// Every job of every workflow that has a `run:` step.
///
/// # Errors
/// If a workflow cannot be read, or a runnable step has an expression that only GitHub can evaluate.
pub fn jobs() -> Result<Vec<Job>> {
    let mut jobs_found = Vec::new();
    for file in texts(&[".github/workflows"], &["yml"])? {
        let workflow: Value = serde_saphyr::from_str(&file.text).with_context(|| file.path.clone())?;
        for (name, job) in workflow["jobs"].as_object().context("jobs")? {
            let job = read_job(&format!("{} {name}", file.path), &workflow, job)?;
            jobs_found.extend((!job.steps.is_empty()).then_some(job));
        }
    }
    Ok(jobs_found)
}

fn read_job(place: &str, workflow: &Value, job: &Value) -> Result<Job> {
    let matrix = job["strategy"]["matrix"]["include"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let others = matrix.iter().skip(1).map(|one| format!("{}-{}", text(&one["os"]), text(&one["arch"])));
    let mut expressions = of_github()?;
    for (name, value) in matrix.first().and_then(Value::as_object).into_iter().flatten() {
        expressions.insert(format!("matrix.{name}"), text(value));
    }
    let mut steps = Vec::new();
    for (number, step) in (1..).zip(job["steps"].as_array().into_iter().flatten()) {
        let Some(run) = step["run"].as_str() else { continue };
        let mut typed = Step { place: format!("{place} {number}"), run: run.to_owned(), env: BTreeMap::new() };
        if typed.needs().is_none() {
            let fill = |text: &str| filled(text, &expressions).with_context(|| typed.place.clone());
            let env = [&workflow["env"], &step["env"]].into_iter().filter_map(Value::as_object).flatten();
            let env = env.map(|(name, value)| Ok((name.clone(), fill(&text(value))?)));
            (typed.env, typed.run) = (env.collect::<Result<_>>()?, fill(run)?);
        }
        steps.push(typed);
    }
    Ok(Job { place: place.to_owned(), steps, others: others.collect() })
}

/// The values of GitHub's expressions for a tag of this version.
fn of_github() -> Result<BTreeMap<String, String>> {
    let root = manifest("Cargo.toml")?;
    let version = root["workspace"]["package"]["version"].as_str().context("version")?;
    let expressions = [
        ("github.ref_name", format!("v{version}")),
        ("github.sha", "0".repeat(40)),
        ("github.repository", "pod-safety/pod-safety".to_owned()),
        ("github.repository_owner", "pod-safety".to_owned()),
    ];
    Ok(expressions.map(|(name, value)| (name.to_owned(), value)).into())
}

/// The text with GitHub's expressions replaced.
fn filled(text: &str, expressions: &BTreeMap<String, String>) -> Result<String> {
    let mut parts = text.split("${{");
    let mut done = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (expression, rest) = part.split_once("}}").context("an expression has no end")?;
        let value = expressions.get(expression.trim());
        done += value.with_context(|| format!("only GitHub knows {}", expression.trim()))?;
        done += rest;
    }
    ensure!(!done.contains("${{"), "{done}");
    Ok(done)
}

/// The shell command for a step, as GitHub's runner runs it in a checkout. Its outputs go into a file of `scratch`.
///
/// # Errors
/// If this machine's version or scratch folder cannot be read.
pub fn shell(step: &Step, checkout: &Path, scratch: &Path) -> Result<Command> {
    let expressions = of_github()?;
    // Without sudo, the user is root.
    let sudo = "command -v sudo >/dev/null || sudo() { while [[ $1 == --* ]]; do shift; done; \"$@\"; }";
    let mut shell = Command::new("bash");
    shell.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", &format!("{sudo}\n{}", step.run)]);
    shell.current_dir(checkout).envs(&step.env).env("CI", "true");
    shell.env("GITHUB_REF_NAME", expressions.get("github.ref_name").context("ref_name")?);
    shell.env("GITHUB_OUTPUT", scratch.join("outputs"));
    // The clone is built in its own folder.
    shell.env_remove("CARGO_TARGET_DIR");
    Ok(shell)
}
