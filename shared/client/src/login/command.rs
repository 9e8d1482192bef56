//! A login command (`exec` of a kubeconfig): its input and its output.

use std::fmt;
use std::io::{IsTerminal as _, Write};
use std::pin::pin;
use std::process::{Output, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt as _;
use futures::future::{Either, select};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use zeroize::{Zeroize as _, Zeroizing};

use super::LoginError;
use crate::kubeconfig::{self, Cluster, Interactive};
use pod_safety_clock::Env;

/// Without a line for longer than this, a user cannot know whether the command still runs.
const ANNOUNCE_AFTER: Duration = Duration::from_secs(2);

/// A login command, and the cluster information that it gets.
pub(super) struct Exec {
    command: kubeconfig::Command,
    cluster: Option<Value>,
}

impl fmt::Display for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the login command {} of the kubeconfig", self.command.path.display())
    }
}

/// The output of a login command.
pub(super) struct ExecOutput {
    pub(super) token: Option<Zeroizing<String>>,
    /// Certificates and key, in PEM.
    pub(super) identity: Option<(String, Zeroizing<String>)>,
    pub(super) ends: Option<Timestamp>,
}

/// `ExecCredential` of `client.authentication.k8s.io`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

impl Exec {
    pub(super) fn new(command: &kubeconfig::Command, cluster: &Cluster) -> Self {
        let cluster = command.with_cluster.then(|| cluster_info(cluster));
        Self { command: command.clone(), cluster }
    }

    /// Runs the command to its end, and writes to stderr that it is waited for if that takes long.
    pub(super) async fn run(&self, env: &Env) -> Result<ExecOutput, LoginError> {
        announce(env.sleep(ANNOUNCE_AFTER), &self.to_string(), &mut std::io::stderr(), self.run_to_end()).await
    }

    async fn run_to_end(&self) -> Result<ExecOutput, LoginError> {
        let is_terminal = std::io::stdin().is_terminal();
        let is_interactive = match self.command.interactive {
            Interactive::Never => false,
            Interactive::IfAvailable => is_terminal,
            Interactive::Always if is_terminal => true,
            Interactive::Always => {
                return Err(LoginError(format!(
                    "{self} wants to ask you (interactiveMode: Always), and there is no terminal"
                )));
            }
        };
        let mut command = Command::new(&self.command.path);
        command.args(&self.command.arguments);
        command.envs(self.command.variables.iter().map(|(name, value)| (name, value)));
        command.env("KUBERNETES_EXEC_INFO", self.exec_info(is_interactive).to_string());
        command.stdout(Stdio::piped());
        // The user sees its output while it waits for input.
        command.stdin(if is_interactive { Stdio::inherit() } else { Stdio::null() });
        command.stderr(if is_interactive { Stdio::inherit() } else { Stdio::piped() });
        let mut out = output(command, &mut std::io::stderr()).await.map_err(|error| self.did_not_start(&error))?;
        let output = self.read(&out, is_interactive);
        out.stdout.zeroize();
        output
    }

    fn exec_info(&self, is_interactive: bool) -> Value {
        let mut spec = json!({ "interactive": is_interactive });
        if let Some(cluster) = &self.cluster {
            spec["cluster"] = cluster.clone();
        }
        json!({ "kind": "ExecCredential", "apiVersion": self.command.version, "spec": spec })
    }

    fn did_not_start(&self, error: &std::io::Error) -> LoginError {
        let hint = self.command.hint.as_deref().unwrap_or_default();
        let hint: String = hint.chars().filter(|letter| !letter.is_control() || letter.is_whitespace()).collect();
        let hint = hint.split_whitespace().collect::<Vec<_>>().join(" ");
        let hint = if hint.is_empty() { hint } else { format!("; {hint}") };
        LoginError(format!("{self} cannot be started: {}{hint}", crate::cause::io_message(error)))
    }

    fn read(&self, out: &Output, is_interactive: bool) -> Result<ExecOutput, LoginError> {
        if !out.status.success() {
            let output = String::from_utf8_lossy(&out.stderr);
            let output = output.lines().map(str::trim).find(|line| !line.is_empty());
            let output = output.unwrap_or(if is_interactive { "see above" } else { "it said nothing" });
            return Err(LoginError(format!("{self} failed ({}): {}", out.status, crate::cause::in_one_line(output))));
        }
        let bad = |why: &str| LoginError(format!("{self} gave no login: {why}"));
        if out.stdout.trim_ascii().is_empty() {
            return Err(bad("it wrote nothing"));
        }
        let read = serde_json::from_slice(&out.stdout);
        // The parser's error is not shown, because it may quote a secret.
        let answer: Answer = read
            .or_else(|_not_json| serde_saphyr::from_slice(&out.stdout))
            .map_err(|_neither| bad("what it wrote is no ExecCredential in JSON or YAML"))?;
        if answer.api_version != self.command.version {
            let (theirs, ours) = (&answer.api_version, &self.command.version);
            return Err(bad(&format!("it answered in the apiVersion {theirs:?}, and the kubeconfig says {ours}")));
        }
        let status = answer.status.ok_or_else(|| bad("it answered without a status"))?;
        let token = status.token.filter(|token| !token.is_empty()).map(Zeroizing::new);
        let certificates = status.client_certificate_data.filter(|data| !data.is_empty());
        let key = status.client_key_data.filter(|data| !data.is_empty()).map(Zeroizing::new);
        let identity = match (certificates, key) {
            (Some(certificates), Some(key)) => Some((certificates, key)),
            (None, None) if token.is_none() => return Err(bad("it gave neither a token nor a certificate")),
            (None, None) => None,
            _ => return Err(bad("it gave only one of certificate and key")),
        };
        let ends = status.expiration_timestamp.filter(|text| !text.is_empty());
        let ends = ends.map(|text| {
            text.parse().map_err(|_not_one| bad(&format!("expirationTimestamp {text:?} is no time stamp (RFC 3339)")))
        });
        Ok(ExecOutput { token, identity, ends: ends.transpose()? })
    }
}

/// Runs `work`, and names what is waited for once `patience` has ended.
async fn announce<T>(
    patience: impl Future<Output = ()>,
    what: &str,
    shown: &mut (impl Write + Send),
    work: impl Future<Output = T>,
) -> T {
    let (patience, work) = (Box::pin(patience), Box::pin(work));
    let work = match select(work, patience).await {
        Either::Left((done, _)) => return done,
        Either::Right(((), work)) => work,
    };
    let what: String = what.chars().filter(|letter| !letter.is_control()).collect();
    // If it cannot be shown, the command still logs in.
    drop(writeln!(shown, "waiting for {what} …"));
    work.await
}

/// Runs a command to its end. What it writes to stderr is shown at once, as by kubectl: it may be a code to type into a
/// browser. A process that it leaves behind, such as that browser, may keep stderr open.
async fn output(mut command: Command, shown: &mut (impl Write + Send)) -> std::io::Result<Output> {
    let mut child = command.spawn()?;
    let (errors, mut written) = (child.stderr.take(), Vec::new());
    let show = async {
        let Some(mut errors) = errors else { return };
        while let Ok(count @ 1..) = errors.read_buf(&mut written).await {
            // If it cannot be shown, the command still logs in.
            drop(shown.write_all(&written[written.len() - count..]));
        }
    };
    let mut out = match select(pin!(child.wait_with_output()), pin!(show)).await {
        Either::Left((out, show)) => {
            show.now_or_never();
            out?
        }
        Either::Right(((), out)) => out.await?,
    };
    out.stderr = written;
    Ok(out)
}

/// The cluster information in the format of `client.authentication.k8s.io`.
fn cluster_info(cluster: &Cluster) -> Value {
    let mut info = json!({ "server": cluster.server });
    if let Some(authority) = &cluster.authority {
        info["certificate-authority-data"] = STANDARD.encode(authority).into();
    }
    if cluster.insecure {
        info["insecure-skip-tls-verify"] = true.into();
    }
    for (field, value) in [("tls-server-name", &cluster.server_name), ("proxy-url", &cluster.proxy)] {
        if let Some(value) = value {
            info[field] = value.clone().into();
        }
    }
    if let Some(config) = &cluster.exec_config {
        info["config"] = config.clone();
    }
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `status` printed nothing while a login command hung.
    #[tokio::test(start_paused = true)]
    async fn bug_a_login_command_was_waited_for_without_a_word() {
        for (millis, line) in [(1_900, ""), (60_000, "waiting for the login command aws of the kubeconfig …\n")] {
            let mut shown = Vec::new();
            let [patience, work] = [ANNOUNCE_AFTER, Duration::from_millis(millis)].map(tokio::time::sleep);
            announce(patience, "the login command \u{1b}aws of the kubeconfig", &mut shown, work).await;
            assert_eq!(String::from_utf8(shown).unwrap(), line, "{millis}");
        }
    }

    /// The code of a login by browser was not shown, and the open browser was waited for.
    #[tokio::test]
    async fn bug_a_login_by_browser_did_not_end() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo enter AB-12 >&2; sleep 20 > /dev/null & echo token"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut shown = Vec::new();
        let out = tokio::time::timeout(Duration::from_secs(15), output(command, &mut shown)).await.unwrap().unwrap();
        assert_eq!((&*shown, &*out.stdout), (&b"enter AB-12\n"[..], &b"token\n"[..]));
        assert_eq!(out.stderr, shown);
    }
}
