//! One running process: feeds, cache, authority, controller loops, leadership and admin server. All effects go
//! through what it is given (`Env`, connections), so that a simulation can run many of them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pod_safety_otlp::Endpoint;
use pod_safety_shared::admin::{Admin, AdminError, Listen, Tls};
use pod_safety_shared::authority::{Authority, Parts, VerifierConfig};
use pod_safety_shared::cache::{Cache, start_feeds};
use pod_safety_shared::client::{ConfigError, Connection};
use pod_safety_shared::clock::Env;
use pod_safety_shared::controller_loop::{
    Controller, ControllerContext, ControllerLoop, HoldReason as _, Holds, LoopHeartbeats, Mode,
};
use pod_safety_shared::events::Recorder;
use pod_safety_shared::lease::{Elector, Leadership, LeaseConfig};
use pod_safety_shared::metrics::{Metrics, MetricsError};
use pod_safety_shared::model::Kind;
use pod_safety_shared::record::Journal;
use pod_safety_shared::transport::FenceTransport;
use pod_safety_traces::{Sources, TraceMetrics, Traces};
use tokio::sync::watch;

use crate::account;
use crate::disruption::{self, Disruption};
use crate::eviction::EvictionController;
use crate::fencing::{self, Fencing};
use crate::node_lifecycle::{self, NodeLifecycle};
use crate::pod_gc::{self, PodGc};
use crate::registry::Name;
use crate::taint_eviction::TaintEviction;
use crate::volume_guard::{self, VolumeGuard};

/// How long a shutdown waits for requests in flight. Each of them ends within the leader's term, which is shorter.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15);

/// The component in Events and metrics.
const COMPONENT: &str = "pod-safety";

/// The configuration of one process.
#[derive(Clone, Debug)]
pub struct Config {
    /// The controllers that run.
    pub controllers: Vec<Name>,
    /// Their mode.
    pub mode: Mode,
    /// The leader election Lease; `None`: no election, this process is the only one.
    pub lease: Option<LeaseConfig>,
    /// The settings of pod garbage collection.
    pub pod_gc: pod_gc::Config,
    /// The settings of disruption budgets.
    pub disruption: disruption::Config,
    /// The settings of node lifecycle. Their mode is `mode` above.
    pub node_lifecycle: node_lifecycle::Config,
    /// The settings of exclusive volumes.
    pub volume_guard: volume_guard::Config,
    /// The node that this process runs on, if it is configured: fencing never fences that node.
    pub node_name: Option<Arc<str>>,
    /// The namespaces whose FenceDevices and PodSafetyRemediations are watched.
    pub fencing_namespaces: std::collections::BTreeSet<String>,
    /// How long fencing keeps incidents and evidence that nothing depends on; `None`: indefinitely.
    pub fencing_history: Option<std::time::Duration>,
    /// How far behind the replicas may be from which a cloud provider answers.
    pub provider_lag: std::time::Duration,
    /// The address of the admin server; `None`: there is none.
    pub admin: Option<Listen>,
    /// The collector of traces of incidents; `None`: there is none.
    pub traces: Option<Endpoint>,
    /// The identity of this process in Events.
    pub identity: String,
    /// The process's user name in the API, once it is known: the leader records it in its Lease.
    pub user: Arc<OnceLock<String>>,
}

/// Why a process does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A mistake in this program.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The admin server cannot listen.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// There is no connection for a feed of its own.
    #[error(transparent)]
    Connection(#[from] ConfigError),
}

/// The parts that exist as long as the process.
struct Running {
    env: Env,
    authority: Arc<Authority>,
    leadership: Arc<Leadership>,
    stop: watch::Receiver<bool>,
}

/// Runs until `stop` is set, then finishes requests in flight and releases the Lease. The demonstration gets the
/// holds.
///
/// # Errors
/// Why it could not start.
pub async fn run(
    config: Config,
    connection: Connection,
    transport: Arc<dyn FenceTransport>,
    env: Env,
    metrics: Metrics,
    stop: watch::Receiver<bool>,
    publish_holds: impl FnOnce(&Arc<Holds>) + Send,
) -> Result<(), StartError> {
    let kinds = watched_kinds(&config.controllers);
    let journal = Arc::new(Journal::default());
    let cache = Arc::new(Cache::default());
    cache.restrict_fencing_to(config.fencing_namespaces.clone());
    let events = Recorder::new(env.clone(), metrics.authority.clone());
    let holds = Holds::new(Arc::clone(&journal), events.clone(), metrics.registry())?;
    publish_holds(&holds);
    let leadership = leadership(&config);
    let heartbeats = LoopHeartbeats::default();
    if let Some(listen) = config.admin.clone() {
        let admin = Admin {
            env: env.clone(),
            kinds: kinds.clone(),
            cache: Arc::clone(&cache),
            metrics: metrics.clone(),
            journal: Arc::clone(&journal),
            holds: Arc::clone(&holds),
            leadership: Arc::clone(&leadership),
            heartbeats: heartbeats.clone(),
            debug: listen.debug,
        };
        serve(admin, listen, &env).await?;
    }
    let authority = Authority::start(Parts {
        connection: connection.clone(),
        cache: Arc::clone(&cache),
        env: env.clone(),
        config: verifier_config(&config),
        leadership: Arc::clone(&leadership),
        journal: Arc::clone(&journal),
        events: events.clone(),
        metrics: metrics.authority.clone(),
        transport,
        identity: config.identity.clone(),
    });
    let context = ControllerContext {
        cache: Arc::clone(&cache),
        authority: Arc::clone(&authority),
        env: env.clone(),
        mode: config.mode,
        journal,
        holds,
        queues: metrics.queues.clone(),
    };
    let running = Running { env: env.clone(), authority, leadership, stop };
    start_controllers(&config, &context, &metrics, &heartbeats, &running)?;
    export_traces(&config, &context, &connection, &metrics, &running)?;
    start_feeds(&kinds, &connection, &cache, &env, &metrics.cache);
    if config.mode != Mode::Observe {
        let (leadership, identity) = (Arc::clone(&running.leadership), config.identity.clone());
        let writing = events.worker_loop(connection.clone(), leadership, COMPONENT, identity);
        env.spawner.spawn("events", Box::pin(writing));
    }
    lead(config, connection, metrics, running).await;
    Ok(())
}

/// The settings of the verifier.
fn verifier_config(config: &Config) -> VerifierConfig {
    VerifierConfig {
        quarantine: config.pod_gc.quarantine,
        trust_out_of_service_taint: config.pod_gc.trust_out_of_service_taint,
        agent_reports: config.pod_gc.agent_reports.clone(),
        exclusive_backends: config.volume_guard.backends.clone(),
    }
}

/// Which process may write before a leader is elected.
fn leadership(config: &Config) -> Arc<Leadership> {
    if config.lease.is_some() || config.mode == Mode::Observe { Leadership::none() } else { Leadership::always() }
}

/// Serves the admin pages in the background.
async fn serve(admin: Admin, listen: Listen, env: &Env) -> Result<(), AdminError> {
    let Listen { address, tls, debug: _ } = listen;
    let tls = tls.map(|files| Tls::read(files, env.now())).transpose()?;
    let listener = Admin::bind(address).await?;
    tracing::info!(address = %listener.local_addr().map_or(address, |bound| bound), "admin server listens");
    env.spawner.spawn("admin", Box::pin(admin.serve(listener, tls)));
    Ok(())
}

/// The kinds that the controllers watch, each once.
fn watched_kinds(controllers: &[Name]) -> Vec<Kind> {
    let is_needed = |kind: &Kind| controllers.iter().any(|name| name.kinds().contains(kind));
    Kind::ALL.iter().copied().filter(is_needed).collect()
}

fn start_controllers(
    config: &Config,
    context: &ControllerContext,
    metrics: &Metrics,
    heartbeats: &LoopHeartbeats,
    running: &Running,
) -> Result<(), MetricsError> {
    for name in &config.controllers {
        metrics.set_mode(name.as_str(), config.mode.name());
        match name {
            Name::PodGc => {
                start(PodGc::new(config.pod_gc.clone(), metrics.registry())?, context, heartbeats, running);
            }
            Name::Disruption => {
                start(Disruption::new(config.disruption.clone(), metrics.registry())?, context, heartbeats, running);
            }
            Name::TaintEviction => start(TaintEviction::new(metrics.registry())?, context, heartbeats, running),
            Name::NodeLifecycle => {
                let settings = node_lifecycle::Config { mode: config.mode, ..config.node_lifecycle.clone() };
                let leadership = Arc::clone(&running.leadership);
                start(NodeLifecycle::new(settings, leadership, metrics.registry())?, context, heartbeats, running);
            }
            Name::Fencing => {
                let guards_volumes = config.controllers.contains(&Name::VolumeGuard);
                let own_node = config.node_name.clone();
                let settings = fencing::Config {
                    mode: config.mode,
                    own_node,
                    guards_volumes,
                    include_dry_runs: true,
                    history: config.fencing_history,
                    provider_lag: config.provider_lag,
                };
                start(Fencing::new(settings, metrics.registry())?, context, heartbeats, running);
            }
            Name::Eviction => start(EvictionController::new(metrics.registry())?, context, heartbeats, running),
            Name::VolumeGuard => {
                start(VolumeGuard::new(config.volume_guard.clone(), metrics.registry())?, context, heartbeats, running);
            }
        }
    }
    Ok(())
}

fn start<C: Controller>(controller: C, context: &ControllerContext, heartbeats: &LoopHeartbeats, running: &Running) {
    let name = C::NAME;
    context.holds.register(name, &C::Hold::reason_names());
    let controller_loop = ControllerLoop::new(controller, context.clone());
    let heartbeat = heartbeats.register(name, running.env.now());
    let (leads, stop) = (running.leadership.subscribe(), running.stop.clone());
    running.env.spawner.spawn(name, Box::pin(controller_loop.run(heartbeat, leads, stop)));
}

/// Exports traces of incidents, if there is a collector.
fn export_traces(
    config: &Config,
    context: &ControllerContext,
    connection: &Connection,
    metrics: &Metrics,
    running: &Running,
) -> Result<(), MetricsError> {
    let metrics = TraceMetrics::register(metrics.registry())?;
    let Some(endpoint) = config.traces.clone() else { return Ok(()) };
    let sources = Sources {
        cache: Arc::clone(&context.cache),
        journal: Arc::clone(&context.journal),
        connection: connection.clone(),
        leadership: Arc::clone(&running.leadership),
    };
    let traces = Traces::new(endpoint, config.identity.clone(), sources, running.env.clone(), metrics);
    running.env.spawner.spawn("traces", Box::pin(traces.run()));
    Ok(())
}

/// Leads whenever it can, until the process is stopped.
async fn lead(config: Config, connection: Connection, metrics: Metrics, running: Running) {
    let Running { env, authority, leadership, mut stop } = running;
    let elects = config.lease.filter(|_| config.mode != Mode::Observe);
    let Some(lease) = elects else {
        let _closed = stop.wait_for(|stop| *stop).await;
        return;
    };
    let mut elector = Elector::new(lease, connection, env.clone(), metrics.lease.clone(), Arc::clone(&leadership));
    elector = elector.with_settings(account::describe_settings(config.mode, &config.controllers), config.user);
    let mut changes = leadership.subscribe();
    let abandoner = Arc::clone(&authority);
    env.spawner.spawn(
        "abandon",
        Box::pin(async move {
            // The next leader continues with the queue of a former one.
            while changes.changed().await.is_ok() {
                if !*changes.borrow_and_update() {
                    abandoner.abandon();
                }
            }
        }),
    );
    elector.run(&mut stop).await;
    elector.resign();
    authority.abandon();
    if env.timeout_at(env.now() + DRAIN_TIMEOUT, authority.wait_idle()).await.is_some() {
        elector.release().await;
    }
}
