//! `pod-safety run`: the controllers.
//!
//! Flags keep kube-controller-manager's names and defaults where it has them, so that its command line can be reused.

#[cfg(test)]
mod fuzz;
mod ignored_flags;
mod traces;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::account::AccountCheck;
use crate::instance::{self, Config};
use crate::registry::{self, BadControllers, Flags, Name};
use anyhow::Context;
use clap::builder::Resettable;
use clap::{ArgAction, Args as ClapArgs, CommandFactory as _, FromArgMatches as _, Parser, ValueEnum};
use pod_safety_devices::{AgentLocation, Devices};
use pod_safety_shared::admin::{Listen, TlsFiles};
use pod_safety_shared::client::{ConnectOptions, Connection, Prefer};
use pod_safety_shared::clock::Env;
use pod_safety_shared::controller_loop::Mode;
use pod_safety_shared::lease::{BadTiming, LeaseConfig};
use pod_safety_shared::metrics::Metrics;
use pod_safety_shared::model::{BadName, parse_name};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::{duration, logging, memory, random};
use crate::block_on;

/// The flags of `pod-safety run`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// A kubeconfig file. Default: the pod's service account; outside a cluster $KUBECONFIG, else ~/.kube/config
    #[arg(long, value_name = "FILE", env = "POD_SAFETY_KUBECONFIG", help_heading = "Cluster")]
    kubeconfig: Option<PathBuf>,

    /// A context of the kubeconfig other than its current one
    #[arg(long, value_name = "NAME", env = "POD_SAFETY_CONTEXT", help_heading = "Cluster")]
    context: Option<String>,

    /// The address of the API server, instead of the kubeconfig's
    #[arg(long, value_name = "URL", env = "POD_SAFETY_MASTER", help_heading = "Cluster")]
    master: Option<String>,

    /// The user to impersonate, such as system:serviceaccount:pod-safety:pod-safety: outside a pod, the account that the
    /// admission policies let write
    #[arg(long = "as", value_name = "USER", env = "POD_SAFETY_AS", help_heading = "Cluster")]
    as_user: Option<String>,

    /// What the controllers may do
    #[arg(long, value_enum, default_value_t = ModeArg::Guard, env = "POD_SAFETY_MODE", help_heading = "Controllers")]
    mode: ModeArg,

    /// Which controllers run: NAME enables one, -NAME disables one, whichever comes first, * enables all others that are on by default. Names of kube-controller-manager's controllers work too
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true,
        env = "POD_SAFETY_CONTROLLERS",
        help_heading = "Controllers"
    )]
    controllers: Vec<String>,

    #[command(flatten)]
    flags: Flags,

    #[command(flatten)]
    election: ElectionArgs,

    #[command(flatten)]
    carried: ignored_flags::CarriedArgs,

    #[command(flatten)]
    admin: AdminArgs,

    #[command(flatten)]
    traces: traces::TraceArgs,

    /// The format of logs
    #[arg(long, value_enum, default_value_t = logging::Format::Text, env = "POD_SAFETY_LOG_FORMAT", help_heading = "Observation")]
    log_format: logging::Format,

    /// The level of logs
    #[arg(long, value_enum, default_value_t = logging::Level::Info, env = "POD_SAFETY_LOG_LEVEL", help_heading = "Observation")]
    log_level: logging::Level,
}

/// The arguments alone, without a command before them.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct ArgsOnly {
    #[command(flatten)]
    args: Args,
}

/// The configuration of a process with these arguments; `None`: they are not valid arguments.
pub fn parse_config(arguments: &[String]) -> Option<Config> {
    let matches = without_environment().try_get_matches_from(arguments).ok()?;
    let ArgsOnly { args } = ArgsOnly::from_arg_matches(&matches).ok()?;
    args.into_config("").ok().map(|(config, _)| config)
}

/// The flags of another process, on which the environment of this one has no effect.
fn without_environment() -> clap::Command {
    ArgsOnly::command().mut_args(|arg| arg.env(Resettable::Reset))
}

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Leader election")]
struct ElectionArgs {
    /// Write only while holding the lease. Off: this process must be the only one
    #[arg(
        long,
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        require_equals = true,
        env = "POD_SAFETY_LEADER_ELECT"
    )]
    leader_elect: bool,

    /// How long standbys wait after the leader's last renewal
    #[arg(long, value_name = "DURATION", default_value = "12s", value_parser = duration::parse, allow_hyphen_values = true, env = "POD_SAFETY_LEADER_ELECT_LEASE_DURATION")]
    leader_elect_lease_duration: Duration,

    /// How long the leader writes after its last renewal
    #[arg(long, value_name = "DURATION", default_value = "8s", value_parser = duration::parse, allow_hyphen_values = true, env = "POD_SAFETY_LEADER_ELECT_RENEW_DEADLINE")]
    leader_elect_renew_deadline: Duration,

    /// How often the process tries to renew or acquire the lease
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse, allow_hyphen_values = true, env = "POD_SAFETY_LEADER_ELECT_RETRY_PERIOD")]
    leader_elect_retry_period: Duration,

    /// The kind of lock; only leases are supported
    #[arg(long, value_enum, default_value_t = Lock::Leases, env = "POD_SAFETY_LEADER_ELECT_RESOURCE_LOCK")]
    leader_elect_resource_lock: Lock,

    /// The name of the lease
    #[arg(long, value_name = "NAME", default_value = "pod-safety", env = "POD_SAFETY_LEADER_ELECT_RESOURCE_NAME")]
    leader_elect_resource_name: String,

    /// The namespace of the lease
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = "kube-system",
        env = "POD_SAFETY_LEADER_ELECT_RESOURCE_NAMESPACE"
    )]
    leader_elect_resource_namespace: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    /// Decide and report, write nothing
    Observe,
    /// Act with proof, beside kube-controller-manager's own controllers
    Guard,
    /// Act with proof, in place of kube-controller-manager's own controllers
    Replace,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Lock {
    Leases,
}

/// Flags that are well-formed one by one but not together.
#[derive(Debug, thiserror::Error)]
pub enum BadFlags {
    /// `--controllers`.
    #[error("invalid value for '--controllers <LIST>'")]
    Controllers(#[source] BadControllers),
    /// The timing of the lease.
    #[error("leader election cannot work")]
    Timing(#[source] BadTiming),
    /// A name that is not valid in the API.
    #[error(transparent)]
    Name(#[from] BadName),
    /// `--otlp-endpoint`.
    #[error(transparent)]
    Traces(#[from] traces::BadEndpointFlag),
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Observe => Self::Observe,
            ModeArg::Guard => Self::Guard,
            ModeArg::Replace => Self::Replace,
        }
    }
}

/// The admin server.
#[derive(Debug, ClapArgs)]
struct AdminArgs {
    /// The address that serves /livez, /readyz, /metrics and /debug
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "0.0.0.0:8080",
        value_parser = address,
        env = "POD_SAFETY_ADMIN_ADDRESS",
        help_heading = "Observation"
    )]
    admin_address: SocketAddr,

    /// The certificate chain of the admin server, in PEM. Without it the server speaks HTTP. The file is read again every minute
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_private_key_file",
        env = "POD_SAFETY_TLS_CERT_FILE",
        help_heading = "Observation"
    )]
    tls_cert_file: Option<PathBuf>,

    /// The private key of that certificate, in PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert_file",
        env = "POD_SAFETY_TLS_PRIVATE_KEY_FILE",
        help_heading = "Observation"
    )]
    tls_private_key_file: Option<PathBuf>,

    /// Whether /debug answers. On the network of a node it answers every process of that node
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        action = ArgAction::Set,
        env = "POD_SAFETY_SERVE_DEBUG",
        help_heading = "Observation"
    )]
    serve_debug: bool,
}

impl AdminArgs {
    fn into_listen(self) -> Listen {
        let Self { admin_address, tls_cert_file, tls_private_key_file, serve_debug } = self;
        let files = tls_cert_file.zip(tls_private_key_file);
        let tls = files.map(|(certificate, key)| TlsFiles { certificate, key });
        Listen { address: admin_address, tls, debug: serve_debug }
    }
}

impl Args {
    /// Runs the controllers until it is stopped.
    ///
    /// # Errors
    /// [`BadFlags`], or why it could not start.
    pub fn main(self) -> anyhow::Result<()> {
        let (log_format, log_level) = (self.log_format, self.log_level);
        let connect = ConnectOptions {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            server: self.master.clone(),
            prefer: Prefer::ServiceAccount,
            user: self.as_user.clone().filter(|user| !user.is_empty()),
            ..ConnectOptions::default()
        };
        let without_effect = self.carried.given();
        let identity = identity();
        let (config, agents) = self.into_config(&identity)?;
        logging::start(log_format, log_level);
        memory::keep_private().context("keeping this process out of core dumps")?;
        for (flag, instead) in without_effect {
            tracing::warn!(flag, instead, "this flag of kube-controller-manager has no effect here");
        }
        block_on(run(config, &connect, agents))
    }

    /// Destructures every flag by name, so that an unused flag does not compile.
    fn into_config(self, identity: &str) -> Result<(Config, AgentLocation), BadFlags> {
        let Self {
            kubeconfig: _,
            context: _,
            master: _,
            as_user: _,
            carried: _,
            mode,
            controllers,
            flags,
            election,
            admin,
            traces,
            log_format: _,
            log_level: _,
        } = self;
        let mode = Mode::from(mode);
        let controllers = registry::parse_list(&controllers).map_err(BadFlags::Controllers)?;
        let (settings, agents) = flags.into_settings(mode, &controllers)?;
        let config = Config {
            controllers,
            mode,
            settings,
            lease: election.into_lease(identity)?,
            admin: Some(admin.into_listen()),
            traces: traces.into_endpoint()?,
            identity: identity.to_owned(),
            user: Arc::default(),
        };
        Ok((config, agents))
    }
}

impl ElectionArgs {
    fn into_lease(self, identity: &str) -> Result<Option<LeaseConfig>, BadFlags> {
        let Self {
            leader_elect,
            leader_elect_lease_duration,
            leader_elect_renew_deadline,
            leader_elect_retry_period,
            leader_elect_resource_lock: Lock::Leases,
            leader_elect_resource_name,
            leader_elect_resource_namespace,
        } = self;
        let lease = LeaseConfig {
            namespace: parse_name("leader-elect-resource-namespace", leader_elect_resource_namespace)?,
            name: parse_name("leader-elect-resource-name", leader_elect_resource_name)?,
            identity: identity.to_owned(),
            lease_duration: leader_elect_lease_duration,
            renew_deadline: leader_elect_renew_deadline,
            retry_period: leader_elect_retry_period,
        };
        lease.check().map_err(BadFlags::Timing)?;
        Ok(leader_elect.then_some(lease))
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    const ALLOWED: &str = "allowed is an IP address with a port, such as 0.0.0.0:8080 or [::1]:8080";
    text.parse().map_err(|_not_one| format!("not an address; {ALLOWED}"))
}

/// The pod's name (its host name), and a number that distinguishes its restarts.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").ok().filter(|host| !host.is_empty());
    let host = host.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    format!("{}_{:016x}", host.as_deref().map_or("pod-safety", str::trim), random())
}

async fn run(config: Config, connect: &ConnectOptions, agents: AgentLocation) -> anyhow::Result<()> {
    let metrics = Metrics::new().context("setting up metrics")?;
    let env = Env::real(random());
    let connection = Connection::open(connect, env.clone(), metrics.client.clone()).await?;
    let (stop_sender, stop) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let (writes, fences) = (config.mode != Mode::Observe, config.controllers.contains(&Name::Fencing));
    let account_check = AccountCheck::new(connection.clone(), env.clone(), Arc::clone(&config.user), fences);
    if writes {
        account_check.check_first().await?;
    }
    let denied = async { if writes { account_check.wait_until_denied().await } else { std::future::pending().await } };
    let names: Vec<_> = config.controllers.iter().map(|name| name.as_str()).collect();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), mode = config.mode.name(), controllers = names.join(","), identity = %config.identity, "starts");
    let devices = Arc::new(Devices::new(env.clone(), agents));
    let watched = watch_agents(Arc::clone(&devices), env.clone(), metrics.clone());
    env.spawner.spawn("fence agents", Box::pin(watched));
    let work = instance::run(config, connection, devices, env, metrics, stop, |_| ());
    tokio::pin!(work);
    let stop_signal = async {
        tokio::select! {
            biased;
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    };
    tokio::select! {
        biased;
        done = &mut work => return done.map_err(anyhow::Error::from),
        signal = stop_signal => tracing::info!(signal, "stops: finishing what is in progress"),
        denied = denied => {
            let _receiver_dropped = stop_sender.send(true);
            work.await?;
            return Err(denied.into());
        }
    }
    let _receiver_dropped = stop_sender.send(true);
    work.await?;
    tracing::info!("stopped");
    Ok(())
}

/// The interval of checks whether fence agents can run.
const AGENT_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Reports in the log, in `/readyz` and in a metric whether fence agents can run.
async fn watch_agents(devices: Arc<Devices>, env: Env, metrics: Metrics) {
    let mut could_run = None;
    loop {
        let can_run = devices.check_agents().await;
        match &can_run {
            Ok(()) if could_run == Some(false) => tracing::info!("fence agents can run again"),
            Err(error) if could_run != Some(false) => {
                tracing::warn!(%error, "fence agents cannot run; devices with other drivers are not affected");
            }
            Ok(()) | Err(_) => {}
        }
        metrics.set_fence_agents(can_run.is_ok());
        could_run = Some(can_run.is_ok());
        env.sleep(AGENT_CHECK_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `POD_SAFETY_MODE` of a shell was shown by `status` as the mode of the leader.
    #[test]
    fn bug_the_flags_of_other_processes_were_read_with_the_environment_of_this_one() {
        let has_variables = |command: clap::Command| command.get_arguments().any(|arg| arg.get_env().is_some());
        assert!(has_variables(ArgsOnly::command()) && !has_variables(without_environment()));
    }
}
