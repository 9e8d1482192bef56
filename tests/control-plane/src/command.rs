//! Commands that run to their end: kubectl, helm and the loader.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::Error;
use crate::program::GO_MEMORY;

/// The limit for commands that hang. Loading 150,000 pods takes a minute.
const WITHIN: Duration = Duration::from_secs(600);

/// The result of a command.
#[derive(Debug)]
pub struct Output {
    command: String,
    /// Its exit status.
    pub status: ExitStatus,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
}

impl Output {
    /// Its stdout, if it succeeded.
    pub fn text(self) -> Result<String, Error> {
        if self.status.success() {
            return Ok(self.stdout);
        }
        Err(Error::Command { command: self.command, status: self.status, stderr: self.stderr })
    }
}

/// Runs `program` with `input` on stdin, and collects its output. It is killed if the future is dropped.
pub(crate) async fn run(program: &Path, args: &[&str], env: &[(&str, &Path)], input: &str) -> Result<Output, Error> {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let command = format!("{name} {}", args.join(" "));
    let failed = |act| {
        let program = name.clone().into_owned();
        move |source| Error::Process { act, program, source }
    };
    let mut child = Command::new(program)
        .envs(GO_MEMORY)
        .args(args)
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed("start"))?;
    let stdin = child.stdin.take();
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A command that does not read its input to the end reports the cause itself.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let finish = async { tokio::join!(feed, child.wait_with_output()).1 };
    let Ok(output) = tokio::time::timeout(WITHIN, finish).await else {
        return Err(Error::Hangs { command, within: WITHIN });
    };
    let output = output.map_err(failed("wait for"))?;
    Ok(Output {
        command,
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
