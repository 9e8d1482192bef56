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
use pod_safety_shared::controller_loop::{ControllerContext, Holds, LoopHeartbeats, Mode};
use pod_safety_shared::events::Recorder;
use pod_safety_shared::lease::{Elector, Leadership, LeaseConfig};
use pod_safety_shared::metrics::{Metrics, MetricsError};
use pod_safety_shared::model::Kind;
use pod_safety_shared::record::Journal;
use pod_safety_shared::transport::FenceTransport;
use pod_safety_traces::{Sources, TraceMetrics, Traces};
use tokio::sync::watch;

use crate::account;
use crate::registry::{Name, Settings};
use crate::start::Loops;

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
    /// Their settings.
    pub settings: Settings,
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
    cache.restrict_fencing_to(config.settings.fencing_namespaces.clone());
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
    let loops = Loops { context, heartbeats, leadership, stop };
    start_controllers(&config, &metrics, &loops)?;
    export_traces(&config, &connection, &metrics, &loops)?;
    start_feeds(&kinds, &connection, &cache, &env, &metrics.cache);
    if config.mode != Mode::Observe {
        let (leadership, identity) = (Arc::clone(&loops.leadership), config.identity.clone());
        let writing = events.worker_loop(connection.clone(), leadership, COMPONENT, identity);
        env.spawner.spawn("events", Box::pin(writing));
    }
    lead(config, connection, metrics, loops).await;
    Ok(())
}

/// The settings of the verifier.
fn verifier_config(config: &Config) -> VerifierConfig {
    let Settings { pod_gc, volume_guard, .. } = &config.settings;
    VerifierConfig {
        quarantine: pod_gc.quarantine,
        trust_out_of_service_taint: pod_gc.trust_out_of_service_taint,
        agent_reports: pod_gc.agent_reports.clone(),
        exclusive_backends: volume_guard.backends.clone(),
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

fn start_controllers(config: &Config, metrics: &Metrics, loops: &Loops) -> Result<(), MetricsError> {
    for name in &config.controllers {
        metrics.set_mode(name.as_str(), config.mode.name());
        name.create(&config.settings, &loops.leadership, metrics)?.start(loops);
    }
    Ok(())
}

/// Exports traces of incidents, if there is a collector.
fn export_traces(
    config: &Config,
    connection: &Connection,
    metrics: &Metrics,
    loops: &Loops,
) -> Result<(), MetricsError> {
    let metrics = TraceMetrics::register(metrics.registry())?;
    let Some(endpoint) = config.traces.clone() else { return Ok(()) };
    let ControllerContext { cache, journal, env, .. } = &loops.context;
    let sources = Sources {
        cache: Arc::clone(cache),
        journal: Arc::clone(journal),
        connection: connection.clone(),
        leadership: Arc::clone(&loops.leadership),
    };
    let traces = Traces::new(endpoint, config.identity.clone(), sources, env.clone(), metrics);
    env.spawner.spawn("traces", Box::pin(traces.run()));
    Ok(())
}

/// Leads whenever it can, until the process is stopped.
async fn lead(config: Config, connection: Connection, metrics: Metrics, loops: Loops) {
    let Loops { context: ControllerContext { env, authority, .. }, leadership, mut stop, .. } = loops;
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
