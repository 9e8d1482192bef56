//! How a command reaches a cluster, and how it prints what it found.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args as ClapArgs, ValueEnum};
use jiff::SignedDuration;
use pod_safety::explain::asks;
use pod_safety_shared::authority::{Scaled, ask_scales};
use pod_safety_shared::cache::{Snapshot, View};
use pod_safety_shared::client::{ConnectOptions, Connection};
use pod_safety_shared::clock::Env;
use pod_safety_shared::metrics::Metrics;
use pod_safety_shared::model::{Budget, is_kubernetes_name};
use serde::Serialize;

use super::Exit;
use super::paint::{Color, Paint};

/// Threads that run the process: one reads the watches while another writes.
const THREADS: usize = 2;

#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Cluster")]
pub(super) struct ConnectArgs {
    /// A kubeconfig file. Default: the pod's service account; outside a cluster $KUBECONFIG, else ~/.kube/config
    #[arg(long, value_name = "FILE", env = "POD_SAFETY_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,

    /// A context of the kubeconfig other than its current one
    #[arg(long, value_name = "NAME", env = "POD_SAFETY_CONTEXT")]
    context: Option<String>,
}

impl ConnectArgs {
    pub(super) fn options(&self) -> ConnectOptions {
        ConnectOptions { kubeconfig: self.kubeconfig.clone(), context: self.context.clone(), server: None }
    }
}

/// What every command that answers a question takes.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Output")]
pub(super) struct PrintArgs {
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(super) output: Output,

    /// Leave out the line that names the columns of a table
    #[arg(long)]
    no_headers: bool,

    /// When to use colours
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,

    /// End with 0 also if the answer is that something blocks
    #[arg(long)]
    exit_zero: bool,
}

impl PrintArgs {
    pub(super) fn paint(&self) -> Paint {
        Paint::of_stdout(self.color).without_headers(self.no_headers)
    }

    /// How a command ends that could answer.
    pub(super) const fn exit(&self, blocked: bool) -> Exit {
        self.ends(if blocked { Exit::Blocked } else { Exit::Fine })
    }

    /// How a command ends that would end so: that something blocks is an answer, and the time being up is none.
    pub(super) const fn ends(&self, exit: Exit) -> Exit {
        match exit {
            Exit::Blocked if self.exit_zero => Exit::Fine,
            Exit::Blocked | Exit::Fine | Exit::Interrupted | Exit::Refused | Exit::TimedOut => exit,
        }
    }
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
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
    /// Prints `document`, or what people see.
    pub(super) fn print(
        self,
        document: &impl Serialize,
        table: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        super::print(self.text(document, table)?.as_bytes()).context("writing to stdout")
    }

    /// `document` as text, or what people see.
    pub(super) fn text(
        self,
        document: &impl Serialize,
        table: impl FnOnce() -> String,
    ) -> anyhow::Result<String> {
        Ok(match self {
            Self::Table | Self::Wide => table(),
            Self::Json => {
                format!("{}\n", serde_json::to_string_pretty(document).context("writing JSON")?)
            }
            Self::Yaml => serde_saphyr::to_string(document).context("writing YAML")?,
        })
    }
}

/// What a command works with.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) env: Env,
}

/// How long custom resources may take, all together, to say how many pods they want:
/// a person waits, and an answer without them says what it lacks.
const SCALES_WITHIN: Duration = Duration::from_secs(10);

/// The header of an answer tells whole seconds, and the answer took a while: less than this is no difference.
const SAME_CLOCK: SignedDuration = SignedDuration::from_secs(2);

impl Session {
    /// The same by the wall clock of the API server, against which ages are measured: its objects have their stamps by it,
    /// and a simulated cluster has a time of its own. Where it does not tell, by this machine's. And the API server's version;
    /// empty: who may not ask for it misses no more.
    pub(super) async fn by_its_clock(&self) -> (Self, String) {
        let asked = self.env.clock.wall();
        let server = self.connection.server().await.ok();
        let ahead = server
            .as_ref()
            .and_then(|server| server.date)
            .map_or(SignedDuration::ZERO, |date| date.duration_since(asked));
        let env = if ahead.abs() < SAME_CLOCK { self.env.clone() } else { self.env.ahead_by(ahead) };
        let version = server.map(|server| server.version).unwrap_or_default();
        (Self { connection: self.connection.clone(), env }, version)
    }

    /// Asks the controllers of the pods of `budgets` that no list tells of how many pods
    /// they want.
    pub(super) async fn ask_scales(
        &self,
        snapshot: &Snapshot,
        budgets: impl for<'a> Fn(View<'a>) -> Vec<&'a Budget>,
    ) {
        let asked: BTreeSet<Scaled> = {
            let guard = snapshot.view();
            let view = guard.view();
            budgets(view).into_iter().flat_map(|budget| asks(budget, &view, snapshot.at())).collect()
        };
        ask_scales(&self.connection, &self.env, snapshot, &asked, SCALES_WITHIN).await;
    }
}

/// Starts the threads of the process and runs `work` on them.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .context("starting threads")?;
    let done = runtime.block_on(work);
    // Watches never end by themselves; nothing of ours is left to wait for.
    runtime.shutdown_background();
    done
}

/// Connects.
pub(super) async fn open(options: &ConnectOptions) -> anyhow::Result<Session> {
    #[cfg(test)]
    if let Some(session) = super::hostile::session() {
        return Ok(session);
    }
    let env = Env::real(super::random());
    let metrics = Metrics::new().context("setting up metrics")?;
    let connection = Connection::open(options, env.clone(), metrics.client).await?;
    Ok(Session { connection, env })
}

/// Reads a name that becomes part of a URL.
pub(super) fn name(text: &str) -> Result<String, String> {
    if is_kubernetes_name(text) {
        return Ok(text.to_owned());
    }
    Err("not a Kubernetes name; allowed are lower-case letters, digits, '-' and '.'".to_owned())
}
