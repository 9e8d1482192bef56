//! The binary under test, built by the cargo that runs the benchmark.

use std::path::PathBuf;
use std::process::Stdio;

use serde::Deserialize;
use tokio::process::Command;

use crate::error::Error;

/// The one executable that is asked for.
const NAME: &str = "pod-safety";

/// One of cargo's messages; those without these fields are about something else.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// Builds `pod-safety`, as this program was built (release or not), and tells where it is.
pub(crate) async fn build() -> Result<PathBuf, Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // As in the container image: without the demonstration.
    command.args(["build", "--locked", "--no-default-features", "--package", NAME, "--bin", NAME]);
    command.arg("--message-format=json-render-diagnostics");
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    // Its progress goes to our own stderr: minutes of silence look like a hang.
    command.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().await.map_err(|error| Error::Build(error.to_string()))?;
    if !output.status.success() {
        return Err(Error::Build(format!("cargo failed ({}); it says why above", output.status)));
    }
    executable(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| Error::Build("cargo does not say where it is".to_owned()))
}

fn executable(messages: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    let ours = messages.filter(|message| message.target.as_ref().is_some_and(|target| target.name == NAME));
    ours.filter_map(|message| message.executable).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_comes_from_cargo() {
        let messages = r#"
{"reason":"compiler-artifact","target":{"name":"build-script-build"},"executable":"/t/build-script"}
{"reason":"compiler-artifact","target":{"name":"pod-safety","kind":["bin"]},"executable":"/t/release/pod-safety"}
{"reason":"compiler-artifact","target":{"name":"pod_safety","kind":["lib"]},"executable":null}
{"reason":"build-finished","success":true}
"#;
        assert_eq!(executable(messages), Some(PathBuf::from("/t/release/pod-safety")));
        assert_eq!(executable("{}"), None);
    }
}
