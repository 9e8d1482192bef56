//! The programs in `refused/`, none of which may compile, and what is said of them.
//!
//! They are built beside the workspace's other crates, with the features that these have when they are shipped. So `make lint` has
//! compiled nearly all that they need.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::repository;

/// The only member that asks for the constructors of tests (`testing`) outside of tests.
const WITH_TESTING: &str = "pod-safety-kernel-search";

/// What cargo says to a test about its crate.
const OF_THIS_CRATE: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// An error of the compiler or of clippy.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The program that it is about.
    pub program: String,
    /// Where, in its file.
    pub line: u64,
    /// `E0451`, `unsafe_code`, `clippy::disallowed_methods`, …; some errors have none.
    pub code: Option<String>,
    /// Its first line.
    pub message: String,
}

impl Refusal {
    /// An error of the compiler itself, and not of a lint.
    #[must_use]
    pub fn is_of_the_language(&self) -> bool {
        self.code.as_ref().is_none_or(|code| code.starts_with('E'))
    }
}

/// Lets clippy judge these programs as `make lint` judges the workspace.
///
/// # Errors
/// If cargo cannot be run, or found nothing wrong.
pub fn refusals(programs: &[String]) -> Result<Vec<Refusal>> {
    let mut clippy = Command::new(env!("CARGO"));
    // ring's build script runs again when they change, and everything above it is compiled anew.
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
        let said: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        refusals.extend(refusal(&said));
    }
    ensure!(!refusals.is_empty(), "clippy found nothing at all: {}", String::from_utf8_lossy(&output.stderr));
    Ok(refusals)
}

fn refusal(said: &Value) -> Option<Refusal> {
    let message = &said["message"];
    let place = message["spans"].as_array()?.iter().find(|span| span["is_primary"] == true)?;
    (message["level"] == "error").then(|| Refusal {
        program: said["target"]["name"].as_str().unwrap_or_default().to_owned(),
        line: place["line_start"].as_u64().unwrap_or_default(),
        code: message["code"]["code"].as_str().map(str::to_owned),
        message: message["message"].as_str().unwrap_or_default().to_owned(),
    })
}
