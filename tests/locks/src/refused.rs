//! Builds the programs in `refused/`, none of which may compile, and collects their error messages.
//!
//! They are built like the other crates of the workspace, with the features of a release build, so that `make lint` has already compiled
//! nearly all dependencies.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::repository;

/// The only member that enables the test constructors (feature `testing`) outside of tests.
const WITH_TESTING: &str = "pod-safety-kernel-search";

/// Environment variables that cargo sets for a test about its crate.
const OF_THIS_CRATE: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// An error of the compiler or of clippy.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The name of the program.
    pub program: String,
    /// The line in its file.
    pub line: u64,
    /// `E0451`, `unsafe_code`, `clippy::disallowed_methods`, …; some errors have none.
    pub code: Option<String>,
    /// The first line of the message.
    pub message: String,
}

impl Refusal {
    /// Whether it is an error of the compiler itself, and not of a lint.
    #[must_use]
    pub fn is_of_the_language(&self) -> bool {
        self.code.as_ref().is_none_or(|code| code.starts_with('E'))
    }
}

/// Runs clippy on these programs like `make lint` on the workspace.
///
/// # Errors
/// If cargo cannot be run, or reports no error.
pub fn refusals(programs: &[String]) -> Result<Vec<Refusal>> {
    let mut clippy = Command::new(env!("CARGO"));
    // ring's build script runs again when these variables change, and all its dependents are then compiled again.
    for (name, _) in std::env::vars_os() {
        if OF_THIS_CRATE.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            clippy.env_remove(name);
        }
    }
    clippy.args(["clippy", "--offline", "--locked", "--quiet", "--keep-going", "--message-format=json"]);
    clippy.args(["--workspace", "--exclude", WITH_TESTING, "--features", "pod-safety-locks/refused"]);
    for program in programs {
        clippy.args(["--bin", program]);
    }
    clippy.args(["--", "--deny", "warnings"]).current_dir(repository());
    let output = clippy.output().context("cargo clippy")?;
    let mut refusals = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let entry: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        refusals.extend(refusal(&entry));
    }
    ensure!(!refusals.is_empty(), "clippy found nothing at all: {}", String::from_utf8_lossy(&output.stderr));
    Ok(refusals)
}

fn refusal(entry: &Value) -> Option<Refusal> {
    let message = &entry["message"];
    let place = message["spans"].as_array()?.iter().find(|span| span["is_primary"] == true)?;
    (message["level"] == "error").then(|| Refusal {
        program: entry["target"]["name"].as_str().unwrap_or_default().to_owned(),
        line: place["line_start"].as_u64().unwrap_or_default(),
        code: message["code"]["code"].as_str().map(str::to_owned),
        message: message["message"].as_str().unwrap_or_default().to_owned(),
    })
}
