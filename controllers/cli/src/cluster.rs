//! How a command connects to a cluster, and how it prints its result.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args as ClapArgs, ValueEnum};
use jiff::SignedDuration;
use pod_safety_explain::required_scales;
use pod_safety_print::{Color, Paint};
use pod_safety_shared::authority::{ScaleTarget, read_scales};
use pod_safety_shared::cache::{Snapshot, View};
use pod_safety_shared::client::{ApiError, Call, ConnectOptions, Connection, Prefer, Target};
use pod_safety_shared::clock::Env;
use pod_safety_shared::metrics::Metrics;
use pod_safety_shared::model::{Budget, Kind, is_kubernetes_name};
use pod_safety_shared::wire;
use serde::Serialize;

use super::progress::{announce_pauses, announce_wait};
use super::terminal;
use super::{Exit, duration, print_stderr};

/// Which cluster and namespace a person means: kubectl's own flags. They work before the subcommand, too ([`move_global_flags`]).
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ConnectArgs {
    /// A kubeconfig file. Default: $KUBECONFIG, else ~/.kube/config, else, in a pod, its service account
    #[arg(long, value_name = "FILE", env = "POD_SAFETY_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,

    /// A context of the kubeconfig other than its current one
    #[arg(long, value_name = "NAME", env = "POD_SAFETY_CONTEXT")]
    context: Option<String>,

    /// The user to impersonate
    #[arg(long = "as", value_name = "USER")]
    as_user: Option<String>,

    /// A group to impersonate, with --as; may be given more than once
    #[arg(long, value_name = "GROUP")]
    as_group: Vec<String>,

    /// How long one request may take, such as 10s, or 10 for seconds; 0: no limit. Default: 30s
    #[arg(long, value_name = "DURATION", value_parser = request_timeout, allow_hyphen_values = true)]
    request_timeout: Option<Duration>,

    /// The namespace; ignored for nodes
    #[arg(short, long, value_name = "NAME", value_parser = name)]
    pub(crate) namespace: Option<String>,
}

impl ConnectArgs {
    pub(crate) fn options(&self) -> ConnectOptions {
        ConnectOptions {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            server: None,
            prefer: Prefer::Kubeconfig,
            user: self.as_user.clone(),
            groups: self.as_group.clone(),
            request_timeout: self.request_timeout,
        }
    }
}

/// The flags of [`ConnectArgs`].
const GLOBAL_FLAGS: [&str; 7] =
    ["--kubeconfig", "--context", "--as", "--as-group", "--request-timeout", "--namespace", "-n"];

/// kubectl takes these flags before its subcommand too: they are moved behind the subcommand, where clap knows them.
pub fn move_global_flags(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args = args.into_iter();
    let mut kept: Vec<OsString> = args.next().into_iter().collect();
    let mut moved = Vec::new();
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        let flag = text.split_once('=').map_or(&*text, |(flag, _)| flag);
        if !GLOBAL_FLAGS.contains(&flag) {
            kept.push(arg);
            break;
        }
        let has_value = flag.len() < text.len();
        moved.push(arg);
        if !has_value {
            moved.extend(args.next());
        }
    }
    kept.extend(args);
    kept.extend(moved);
    kept
}

/// What every command that answers a question takes.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Output")]
pub(crate) struct PrintArgs {
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,

    /// Leave out the header line of tables
    #[arg(long)]
    no_headers: bool,

    /// When to use colours
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,

    /// Exit with 0 instead of 3 if something blocks
    #[arg(long)]
    exit_zero: bool,
}

impl PrintArgs {
    pub(crate) fn paint(&self) -> Paint {
        terminal::for_stdout(self.color).without_headers(self.no_headers)
    }

    /// The exit of a command that succeeded.
    pub(crate) const fn exit_for(&self, blocked: bool) -> Exit {
        self.final_exit(if blocked { Exit::Blocked } else { Exit::Fine })
    }

    /// The exit with `--exit-zero` applied: "something blocks" is a result and becomes 0, a timeout does not.
    pub(crate) const fn final_exit(&self, exit: Exit) -> Exit {
        match exit {
            Exit::Blocked if self.exit_zero => Exit::Fine,
            Exit::Blocked | Exit::Fine | Exit::Interrupted | Exit::Refused | Exit::TimedOut | Exit::Unknown => exit,
        }
    }
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Table,
    /// For people, with more
    Wide,
    /// For programs
    Json,
    /// The same as YAML
    Yaml,
}

impl Output {
    /// Prints `document`, or the text for operators.
    pub(crate) fn print(self, document: &impl Serialize, table: impl FnOnce() -> String) -> anyhow::Result<()> {
        super::print(&self.text(document, table)?).context("writing to stdout")
    }

    /// `document` as text, or the text for operators.
    pub(crate) fn text(self, document: &impl Serialize, table: impl FnOnce() -> String) -> anyhow::Result<String> {
        Ok(match self {
            Self::Table | Self::Wide => table(),
            Self::Json => {
                format!("{}\n", serde_json::to_string_pretty(document).context("writing JSON")?)
            }
            Self::Yaml => serde_saphyr::to_string(document).context("writing YAML")?,
        })
    }
}

/// The connection and the environment of a command.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) connection: Connection,
    pub(crate) env: Env,
}

/// Objects that were selected by their labels, as namespace and name.
pub(crate) type SelectedObjects = BTreeSet<(String, String)>;

/// The longest timeout of a request.
const LONGEST_TIMEOUT: Duration = Duration::from_hours(24);

/// How long the reads of the scales of custom resources may take, all together: the operator waits, and a result
/// without them lists what is missing.
const SCALES_WITHIN: Duration = Duration::from_secs(10);

/// The `Date` header has whole seconds, and the request took a while: a smaller difference is ignored.
const SAME_CLOCK: SignedDuration = SignedDuration::from_secs(2);

impl Session {
    /// The cluster.
    pub(crate) fn target(&self) -> &Target {
        self.connection.target()
    }

    /// Prints the name of the cluster before something is changed in it.
    pub(crate) fn announce(&self) {
        print_stderr(&format!("Cluster: {}", self.target()));
    }

    /// A page with the name of its cluster as its header.
    pub(crate) fn with_header(&self, page: &str) -> String {
        with_header(self.target(), page)
    }

    /// The objects of a kind, in all namespaces, that have these labels: the API server evaluates the selector. `None`:
    /// every object.
    pub(crate) async fn select_by_labels(
        &self,
        kind: Kind,
        selector: Option<&str>,
    ) -> anyhow::Result<Option<SelectedObjects>> {
        let Some(selector) = selector else { return Ok(None) };
        let encoded: String = form_urlencoded::byte_serialize(selector.as_bytes()).collect();
        let path = format!("{}?labelSelector={encoded}", kind.path_in(None));
        let reading = async {
            let (mut list, mut selected) = (self.connection.list(Call::get(path)).await?, SelectedObjects::new());
            while let Some(raw) = list.next().await? {
                let only = raw.decode::<wire::OnlyMeta>().map_err(ApiError::Undecodable)?;
                let meta = only.metadata.unwrap_or_default();
                selected.insert((meta.namespace.unwrap_or_default(), meta.name.unwrap_or_default()));
            }
            Ok::<_, ApiError>(Some(selected))
        };
        reading.await.with_context(|| format!("--selector {selector:?}"))
    }

    /// The same session with the wall clock of the API server, against which ages are measured: its objects have
    /// timestamps of that clock, and a simulated cluster has a time of its own. Without a `Date` header, the clock of
    /// this machine is used. Also the version of the API server; empty if it may not be read.
    pub(crate) async fn with_server_clock(&self) -> (Self, String) {
        let server = self.connection.server_info().await.ok();
        // The server may have been asked more than once, and its time is that of its last answer.
        let answered_at = self.env.clock.wall();
        let ahead = server
            .as_ref()
            .and_then(|server| server.date)
            .map_or(SignedDuration::ZERO, |date| date.duration_since(answered_at));
        let env = if ahead.abs() < SAME_CLOCK { self.env.clone() } else { self.env.with_wall_offset(ahead) };
        let version = server.map(|server| server.version).unwrap_or_default();
        (Self { connection: self.connection.clone(), env }, version)
    }

    /// Reads the scales of the controllers of the pods of `budgets` that are in no list.
    pub(crate) async fn query_scales(
        &self,
        snapshot: &Snapshot,
        budgets: impl for<'a> Fn(View<'a>) -> Vec<&'a Budget>,
    ) {
        let required: BTreeSet<ScaleTarget> = {
            let guard = snapshot.view();
            let view = guard.view();
            budgets(view).into_iter().flat_map(|budget| required_scales(budget, &view, snapshot.at())).collect()
        };
        read_scales(&self.connection, &self.env, snapshot, &required, SCALES_WITHIN).await;
    }
}

/// A page with the name of its cluster as its header.
pub(crate) fn with_header(target: &Target, page: &str) -> String {
    format!("Cluster: {target}\n{page}")
}

/// Connects.
pub(crate) async fn connect(options: &ConnectOptions) -> anyhow::Result<Session> {
    #[cfg(test)]
    if let Some((connection, env)) = super::test_session::test_connection() {
        return Ok(Session { connection: retry_reads(connection), env });
    }
    let env = Env::real(super::random());
    let metrics = Metrics::new().context("setting up metrics")?;
    let connection = retry_reads(Connection::open(options, env.clone(), metrics.client).await?);
    let reached = announce_wait(|| format!("the API server: {}", connection.target()), connection.server_info()).await;
    let place = connection.target().describe();
    match reached {
        Err(error @ ApiError::Refused { code: 400 | 401, .. }) => {
            Err(anyhow::Error::from(error).context(format!("asking {place}")))
        }
        // A refused `/version` does not prevent other requests.
        Ok(_) | Err(ApiError::Refused { .. }) => Ok(Session { connection, env }),
        Err(error @ ApiError::TimedOut { .. }) => {
            Err(anyhow::Error::from(error).context(format!("reaching {place}; check address, route, VPN and firewall")))
        }
        Err(error) => Err(error.into()),
    }
}

fn retry_reads(connection: Connection) -> Connection {
    let announce = announce_pauses(connection.target());
    connection.with_read_retries(announce)
}

/// Parses a timeout as kubectl does (`ParseTimeout` of client-go): a number without a unit is in seconds, and zero is no
/// timeout.
fn request_timeout(text: &str) -> Result<Duration, String> {
    const ALLOWED: &str = "allowed is up to 24h, written such as 10s or 1m30s, or 10 for seconds; 0: no limit";
    let seconds = text.parse::<u64>().map(|seconds| format!("{seconds}s"));
    let timeout = duration::between(seconds.as_deref().unwrap_or(text), Duration::ZERO, LONGEST_TIMEOUT, ALLOWED)?;
    Ok(if timeout.is_zero() { Duration::MAX } else { timeout })
}

/// Parses a name that becomes part of a URL.
pub(crate) fn name(text: &str) -> Result<String, String> {
    if is_kubernetes_name(text) {
        return Ok(text.to_owned());
    }
    Err("not a Kubernetes name; use lower-case letters, digits, '-' and '.'".to_owned())
}

/// Parses the name of a node, also as kubectl prints it: `node/NAME`.
pub(crate) fn node_name(text: &str) -> Result<String, String> {
    let plain = ["node/", "nodes/", "no/"].iter().find_map(|kind| text.strip_prefix(kind));
    name(plain.unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::Cli;

    #[test]
    fn bug_a_node_was_not_found_by_the_name_that_kubectl_prints() {
        for (given, read) in [
            ("n1", Some("n1")),
            ("node/n1", Some("n1")),
            ("nodes/n1", Some("n1")),
            ("no/n1", Some("n1")),
            ("pod/n1", None),
            ("node/", None),
        ] {
            assert_eq!(node_name(given).ok().as_deref(), read, "{given}");
        }
    }

    #[test]
    fn bug_request_timeout_refused_the_numbers_that_kubectl_takes() {
        for (text, millis) in [("1", 1_000), ("1s", 1_000), ("1m30s", 90_000), ("86400", 86_400_000), ("1ms", 1)] {
            assert_eq!(request_timeout(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for none in ["0", "0s"] {
            assert_eq!(request_timeout(none), Ok(Duration::MAX), "{none}");
        }
        for (text, problem) in [
            ("-1", "not a duration"),
            ("-1s", "a duration cannot be negative"),
            ("1.5", "not a duration"),
            ("", "not a duration"),
            ("soon", "not a duration"),
            ("86401", "too long"),
            ("99999999999999999999", "not a duration"),
        ] {
            let error =
                Cli::try_parse_from(["pod-safety", "status", "--request-timeout", text]).unwrap_err().to_string();
            let line =
                format!("invalid value '{text}' for '--request-timeout <DURATION>': {problem}; allowed is up to 24h");
            assert!(error.contains(&line), "{text}: {error}");
        }
    }

    #[test]
    fn bug_kubectls_flags_work_before_the_subcommand() {
        for (given, read) in [
            ("p status", "p status"),
            ("p --context x status -w", "p status -w --context x"),
            ("p --context=x -n y explain pod a", "p explain pod a --context=x -n y"),
            ("p --as bob --as-group g devices test", "p devices test --as bob --as-group g"),
            ("p --context", "p --context"),
            ("p --help", "p --help"),
        ] {
            let words = given.split(' ').map(OsString::from);
            let read: Vec<OsString> = read.split(' ').map(OsString::from).collect();
            assert_eq!(move_global_flags(words), read, "{given}");
        }
    }
}
