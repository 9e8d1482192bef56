//! The one task: it waits for changes of incidents, and exports due spans while this process leads.
//!
//! It reads the cache and the journal, and nothing waits for it. An unreachable or hanging collector delays this task
//! only: due spans are built again from the records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pod_safety_otlp::{Endpoint, Exporter, Service, Span};
use pod_safety_shared::cache::{Cache, Change, Subscriber};
use pod_safety_shared::client::Connection;
use pod_safety_shared::clock::{Backoff, Env};
use pod_safety_shared::lease::Leadership;
use pod_safety_shared::model::PodKey;
use pod_safety_shared::record::{Journal, error_chain};
use tokio::sync::Notify;

use super::export_queue::ExportQueue;
use super::incident::Incident;
use super::metrics::TraceMetrics;
use super::release::{Release, Successor};

/// Records that belong together are written within this time, and are exported in one request.
const COALESCE: Duration = Duration::from_secs(1);
/// Due spans are computed at least this often: force deletes and successors do not trigger the change signal.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// How long the task waits for the successor of a force deleted pod: as long as its Event is kept.
const SUCCESSOR_WINDOW: Duration = Duration::from_secs(3_600);
/// Within this time a leader exports a record. So the records of the last such time of a leader that crashed may not
/// have been exported. They are exported again, with the same ids.
const OVERLAP: Duration = Duration::from_secs(5);
/// The pauses after failures.
const BACKOFF: Backoff = Backoff { initial: Duration::from_secs(1), maximum: Duration::from_secs(60) };
/// The longest pause that a collector can request.
const RETRY_AFTER_MOST: Duration = Duration::from_secs(300);
/// The Events of previous leaders, as many as a cluster has in its worst hour. A client that may create Events may
/// forge them: only traces rely on them.
const EVENTS: &str = "/api/v1/events?limit=5000&fieldSelector=reason=ForceDeleted,reportingComponent=pod-safety";
/// The number of releases that are kept: those of some forty nodes.
const MAX_RELEASES: usize = 5_000;

/// Exports the traces of incidents.
#[derive(Debug)]
pub struct Traces {
    exporter: Exporter,
    cache: Arc<Cache>,
    connection: Connection,
    env: Env,
    leadership: Arc<Leadership>,
    journal: Arc<Journal>,
    metrics: TraceMetrics,
    started: Timestamp,
    change_signal: Arc<ChangeSignal>,
}

/// The inputs of traces.
#[derive(Debug)]
pub struct Sources {
    /// NodeFences, evidence, Nodes and pods.
    pub cache: Arc<Cache>,
    /// The actions of this process.
    pub journal: Arc<Journal>,
    /// For Events, and the times when successors became Ready.
    pub connection: Connection,
    /// The leadership: only the leader exports.
    pub leadership: Arc<Leadership>,
}

#[derive(Debug, Default)]
struct ChangeSignal(Notify);

impl Subscriber for ChangeSignal {
    fn on_change(&self, change: Change<'_>) {
        if matches!(change, Change::Fencing { .. } | Change::Node { readiness: true, .. } | Change::Listed(_)) {
            self.0.notify_one();
        }
    }
}

/// The state of this process since another process led. It survives a lapsed term if no other process took over.
struct Term {
    follows: Option<Timestamp>,
    queue: ExportQueue,
    releases: BTreeMap<PodKey, Release>,
    successors: BTreeMap<PodKey, Successor>,
}

/// The result of an export.
enum ExportResult {
    /// Nothing is due, or another process leads.
    Idle,
    /// There may be more to export at once.
    More,
    /// The collector did not accept the spans: they are exported after this pause.
    Failed(Duration),
}

impl Traces {
    /// A task that receives changes from now on, and exports once it runs.
    #[must_use]
    pub fn new(endpoint: Endpoint, instance: String, sources: Sources, env: Env, metrics: TraceMetrics) -> Self {
        let Sources { cache, journal, connection, leadership } = sources;
        let service = Service { name: "pod-safety", version: env!("CARGO_PKG_VERSION"), instance };
        let exporter = Exporter::new(env.clone(), endpoint, service);
        let change_signal = Arc::new(ChangeSignal::default());
        cache.subscribe(Arc::<ChangeSignal>::clone(&change_signal));
        let started = env.clock.wall();
        Self { exporter, cache, connection, env, leadership, journal, metrics, started, change_signal }
    }

    /// Runs until the process ends.
    pub async fn run(self) {
        let (mut term, mut failures) = (None, 0_u32);
        loop {
            let result = self.export_due(&mut term, &mut failures).await;
            match result {
                ExportResult::More => {}
                ExportResult::Failed(pause) => self.wait_to_retry(&mut term, pause).await,
                ExportResult::Idle => {
                    let until = self.env.now() + POLL_INTERVAL;
                    if self.env.timeout_at(until, self.change_signal.0.notified()).await.is_some() {
                        self.env.sleep(COALESCE).await;
                    }
                }
            }
        }
    }

    async fn export_due(&self, term: &mut Option<Term>, failures: &mut u32) -> ExportResult {
        if self.leadership.term(self.env.now()).is_none() {
            return ExportResult::Idle;
        }
        let follows = self.leadership.predecessor_renewed_at();
        if term.as_ref().is_none_or(|term| term.follows != follows) {
            *term = Some(self.begin(follows).await);
        }
        let Some(term) = term.as_mut() else { return ExportResult::Idle };
        self.gather(term).await;
        let (releases, successors): (Vec<_>, Vec<_>) =
            (term.releases.values().cloned().collect(), term.successors.values().cloned().collect());
        let due = {
            let guard = self.cache.read();
            term.queue.next_batch(&Incident::collect(&guard.view(), &releases, &successors))
        };
        self.metrics.dropped(count(due.dropped));
        if due.spans.is_empty() {
            return ExportResult::Idle;
        }
        if let Err(pause) = self.export(&due.spans, failures).await {
            return ExportResult::Failed(pause);
        }
        term.queue.mark_done(&due.spans);
        ExportResult::More
    }

    /// Waits for the next try. The journal keeps a thousand records only, so the releases in it are taken meanwhile.
    async fn wait_to_retry(&self, term: &mut Option<Term>, pause: Duration) {
        let until = self.env.now() + pause;
        while self.env.now() < until {
            if let Some(term) = term {
                self.add_releases(term);
            }
            self.env.sleep(COALESCE.min(until.since(self.env.now()))).await;
        }
    }

    /// Starts the term of a new leader with the records that the previous one may not have exported.
    async fn begin(&self, follows: Option<Timestamp>) -> Term {
        let since = follows.unwrap_or(self.started);
        let since = since.saturating_sub(OVERLAP).unwrap_or(since);
        let releases = match self.connection.list_items(EVENTS).await {
            Ok(events) => events.iter().filter_map(Release::from_event).map(|one| (one.pod.clone(), one)).collect(),
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "Events cannot be listed; traces lack the force deletes of the last leader");
                BTreeMap::new()
            }
        };
        Term { follows, queue: ExportQueue::new(since), releases, successors: BTreeMap::new() }
    }

    /// Adds the releases of the journal.
    fn add_releases(&self, term: &mut Term) {
        for record in self.journal.records() {
            if let Some(release) = Release::from_record(&record).filter(|_| term.releases.len() < MAX_RELEASES) {
                term.releases.entry(release.pod.clone()).or_insert(release);
            }
        }
    }

    /// Adds new releases and successors; drops old ones.
    async fn gather(&self, term: &mut Term) {
        let recent = self.env.clock.wall().saturating_sub(SUCCESSOR_WINDOW).unwrap_or(Timestamp::MIN);
        self.add_releases(term);
        term.releases.retain(|_, release| release.at >= recent);
        term.successors.retain(|pod, _| term.releases.contains_key(pod));
        for pod in self.ready_successors(term) {
            let path = format!("/api/v1/namespaces/{}/pods?fieldSelector=metadata.name={}", pod.namespace, pod.name);
            // A failed read is repeated in the next round.
            let Ok(pods) = self.connection.list_items(&path).await else { return };
            if let Some(successor) = pods.iter().find_map(|one| Successor::from_pod(&pod, one)) {
                term.successors.insert(pod, successor);
            }
        }
    }

    /// Released pods with a Ready successor that was not recorded yet.
    fn ready_successors(&self, term: &Term) -> Vec<PodKey> {
        let waiting = term.releases.keys().filter(|pod| !term.successors.contains_key(*pod));
        let waiting: BTreeMap<_, _> = waiting.map(|pod| ((&*pod.namespace, &*pod.name), pod)).collect();
        if waiting.is_empty() {
            return Vec::new();
        }
        let guard = self.cache.read();
        let ready = guard.view().all_pods().filter(|pod| pod.ready && pod.deletion.is_none());
        let successors = ready.filter_map(|pod| {
            let before = waiting.get(&(&*pod.key.namespace, &*pod.key.name))?;
            (before.uid != pod.key.uid).then(|| PodKey::clone(before))
        });
        successors.collect()
    }

    /// `Ok`: these spans are done: accepted, or rejected for good. `Err`: the pause before the next try. The first of
    /// several failures is logged.
    async fn export(&self, spans: &[Span], failures: &mut u32) -> Result<(), Duration> {
        let endpoint = self.exporter.endpoint();
        match self.exporter.export(spans).await {
            Ok(answer) => {
                if *failures > 0 {
                    tracing::info!(%endpoint, "spans are exported again");
                }
                *failures = 0;
                self.metrics.exported(count(spans.len()).saturating_sub(answer.rejected));
                self.metrics.rejected(answer.rejected);
                if answer.rejected > 0 {
                    tracing::debug!(%endpoint, rejected = answer.rejected, why = answer.message, "the collector rejected spans");
                }
                Ok(())
            }
            Err(error) => {
                self.metrics.failed();
                if *failures == 0 {
                    tracing::warn!(%endpoint, %error, "spans cannot be exported; see pod_safety_trace_export_failures_total");
                }
                *failures = failures.saturating_add(1);
                if error.is_retryable() {
                    let requested = error.retry_after().min(RETRY_AFTER_MOST);
                    return Err(self.env.jitter(BACKOFF.after(*failures).max(requested), 0.2));
                }
                self.metrics.rejected(count(spans.len()));
                Ok(())
            }
        }
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
