//! The worker pools that execute requests: fair queues with limits, and one place that decides about retries.

mod deletions;
mod fence_steps;
mod force_deletes;
mod updates;
mod worker_pool;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pod_safety_fence::quorum_read;
use pod_safety_fence::{
    EvidenceReader, FenceStepRequest, MonitorRequest, PolicyStatusUpdate, RemediationRequest, StatusChecker, Step,
};
use pod_safety_proof::ForceDeleteRequest;
use strum::EnumCount as _;
use tokio::sync::Notify;

use super::claim::{GracefulDeleteRequest, Intent};
use super::eviction;
use super::outcome::{DeleteOutcome, ForceOutcome, UpdateOutcome};
use super::priority::{PriorityLevel, WorkerPool};
use super::queue::{DrainRate, FairQueue};
use super::retry_tracker::RetryTracker;
use super::scales::Scales;
use super::update::Update;
use super::verify::{Verifier, VerifierConfig};
use crate::cache::{Cache, CacheWriter as _};
use crate::client::{Connection, MAX_WRITE_SLOTS};
use crate::clock::{Env, Mono};
use crate::events::Recorder;
use crate::lease::Leadership;
use crate::metrics::AuthorityMetrics;
use crate::model::Uid;
use crate::record::{Journal, error_chain};
use crate::transport::FenceTransport;
use deletions::{CheckedNode, Deletions};
use fence_steps::StepTracker;
use updates::Updates;

/// How many turns run at once, if the API server answers soon enough. Each turn has one request in flight.
pub const DEFAULT_WORKERS: usize = MAX_WRITE_SLOTS;

/// How many turns of nodes run at once. Nodes have workers of their own: the write that records an unreachable node must
/// not wait for the statuses of its thirty pods, least of all behind a webhook for pods that does not answer; and pods must
/// not wait for nodes. There are as many as default workers, so a rack of a hundred nodes takes six or seven turns, of four
/// requests each.
pub const NODE_WORKERS: usize = 16;

/// How many turns that check devices for evidence run at once. Each may take a device's whole timeout.
const EVIDENCE_CHECK_WORKERS: usize = 16;

/// How many steps of incidents run at once: they read, write, and check the devices of one node.
pub const FENCE_STEP_WORKERS: usize = 16;

/// How many turns of requested evictions run at once. Force deletions and budgets wait for none of them.
pub const EVICTION_WORKERS: usize = 8;

/// How many machines are switched at once: as many as policies may allow (`brakes.maxConcurrent`). Each step waits for its
/// devices, for ten minutes and more if another controller switches the machine. No other incident may wait for that.
pub const POWER_SWITCH_WORKERS: usize = 100;

/// How many devices are monitored at once. With hundreds of nodes that do not answer, one device takes hours, and neither
/// fencing nor the next device may wait for it.
pub const STATUS_CHECK_WORKERS: usize = 8;

/// How long to wait before a failed first read is retried.
const READ_RETRY: Duration = Duration::from_secs(1);

/// The requester of an intent, which is notified of the outcome.
pub trait CompletionHandler: Send + Sync + 'static {
    /// The controller's name.
    fn controller(&self) -> &'static str;
    /// A force deletion completed.
    fn completed(&self, force: &ForceDeleteRequest, outcome: &ForceOutcome);
    /// An update completed.
    fn update_completed(&self, update: &Update, outcome: &UpdateOutcome);
    /// Decides again about a deletion that has waited for its turn. `None`: it is no longer needed.
    fn redecide(&self, delete: &GracefulDeleteRequest) -> Option<GracefulDeleteRequest>;
    /// A graceful deletion completed at this time.
    fn delete_completed(&self, delete: &GracefulDeleteRequest, outcome: &DeleteOutcome, at: Mono);
    /// Requests a new decision at this time.
    fn wake_at(&self, when: Mono);
}

/// The result of submitting an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It is queued or in flight.
    Accepted,
    /// It failed recently, or another request must complete first. Decide again at this time.
    Later(Mono),
    /// Only the leader writes, and this process is not the leader.
    NotLeading,
}

enum Work {
    ReadMissingNode {
        node: Arc<str>,
        owner: Arc<dyn CompletionHandler>,
    },
    Force {
        force: ForceDeleteRequest,
        owner: Arc<dyn CompletionHandler>,
    },
    Delete {
        delete: GracefulDeleteRequest,
        owner: Arc<dyn CompletionHandler>,
    },
    /// The update is looked up by UID when its turn comes, because a newer one may have replaced it.
    Update {
        uid: Uid,
    },
    Fence {
        request: Box<FenceStepRequest>,
        owner: Arc<dyn CompletionHandler>,
    },
    Monitor {
        request: Box<MonitorRequest>,
        owner: Arc<dyn CompletionHandler>,
    },
    Remediate {
        request: Box<RemediationRequest>,
        owner: Arc<dyn CompletionHandler>,
    },
    Review {
        request: Box<PolicyStatusUpdate>,
        owner: Arc<dyn CompletionHandler>,
    },
}

#[derive(Default)]
struct State {
    /// One queue for each [`WorkerPool`].
    queues: [FairQueue<PriorityLevel, Work>; WorkerPool::COUNT],
    drain: DrainRate,
    steps: StepTracker,
    retries: RetryTracker<Uid, force_deletes::Basis>,
    reading_nodes: BTreeSet<Arc<str>>,
    updates: Updates,
    deletions: Deletions,
}

impl State {
    const fn queue_for(&mut self, pool: WorkerPool) -> &mut FairQueue<PriorityLevel, Work> {
        &mut self.queues[pool as usize]
    }
}

/// The deletion authority of one process.
pub struct Authority {
    connection: Connection,
    cache: Arc<Cache>,
    env: Env,
    config: VerifierConfig,
    leadership: Arc<Leadership>,
    journal: Arc<Journal>,
    events: Recorder,
    metrics: AuthorityMetrics,
    scales: Arc<Scales>,
    transport: Arc<dyn FenceTransport>,
    identity: String,
    evictions: eviction::EvictionShared,
    state: Mutex<State>,
    /// One for each [`WorkerPool`]: it is notified when there is work.
    notifiers: [Notify; WorkerPool::COUNT],
    busy: AtomicUsize,
    idle: Notify,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The parts of an [`Authority`].
#[expect(missing_debug_implementations, reason = "a bundle of handles, taken apart at once")]
pub struct Parts {
    /// The connection for all requests.
    pub connection: Connection,
    /// The cache.
    pub cache: Arc<Cache>,
    /// Time and tasks.
    pub env: Env,
    /// The operator's settings.
    pub config: VerifierConfig,
    /// Whether this process may write now.
    pub leadership: Arc<Leadership>,
    /// Records outcomes.
    pub journal: Arc<Journal>,
    /// Emits Events.
    pub events: Recorder,
    /// Counts outcomes.
    pub metrics: AuthorityMetrics,
    /// Reaches fence devices.
    pub transport: Arc<dyn FenceTransport>,
    /// The identity of this process in attempts and evidence.
    pub identity: String,
}

impl Authority {
    /// Starts the worker pools.
    #[must_use]
    pub fn start(parts: Parts) -> Arc<Self> {
        let Parts { connection, cache, env, config, leadership, journal, events, metrics, transport, identity } = parts;
        metrics.register_steps(Step::NAMES.iter().copied().chain(["monitor", "remediate", "review"]));
        let scales = Scales::start(connection.clone(), Arc::clone(&cache), env.clone());
        let authority = Arc::new(Self {
            connection,
            cache,
            env,
            config,
            leadership,
            journal,
            events,
            metrics,
            scales,
            transport,
            identity,
            evictions: eviction::EvictionShared::default(),
            state: Mutex::default(),
            notifiers: Default::default(),
            busy: AtomicUsize::new(0),
            idle: Notify::new(),
        });
        let pools = [
            (WorkerPool::Default, DEFAULT_WORKERS),
            (WorkerPool::EvidenceChecks, EVIDENCE_CHECK_WORKERS),
            (WorkerPool::Nodes, NODE_WORKERS),
            (WorkerPool::Evictions, EVICTION_WORKERS),
            (WorkerPool::FenceSteps, FENCE_STEP_WORKERS),
            (WorkerPool::PowerSwitches, POWER_SWITCH_WORKERS),
            (WorkerPool::StatusChecks, STATUS_CHECK_WORKERS),
        ];
        for pool in pools.into_iter().flat_map(|(pool, number)| std::iter::repeat_n(pool, number)) {
            let writer = Arc::clone(&authority);
            let task = async move { writer.worker_loop(pool).await };
            authority.env.spawner.spawn("writer", Box::pin(task));
        }
        authority
    }

    /// The operator's settings.
    #[must_use]
    pub const fn config(&self) -> &VerifierConfig {
        &self.config
    }

    /// Accepts an intent, unless it is in flight, failed too recently, or is the leader's to execute and this process is
    /// not the leader.
    pub fn submit(&self, intent: Intent, owner: &Arc<dyn CompletionHandler>) -> Submitted {
        let now = self.env.now();
        let pool = WorkerPool::for_intent(&intent);
        let submitted = match intent {
            Intent::ReadMissingNode { node } => self.submit_missing_node_read(node, owner, now),
            Intent::Force(force) => self.submit_force(force, owner, now),
            Intent::Delete(delete) => self.submit_delete(delete, owner, now),
            Intent::Update(update) => self.submit_update(update, owner, now),
            Intent::Fence(request) => self.submit_fence(request, owner, now),
            Intent::Monitor(request) => self.submit_monitor(request, owner, now),
            Intent::Remediate(request) => self.submit_remediate(request, owner, now),
            Intent::Review(request) => self.submit_review(request, owner, now),
            Intent::Scale { namespace, controller } => {
                self.scales.request(&namespace, &controller);
                return Submitted::Accepted;
            }
        };
        if submitted == Submitted::Accepted {
            self.notify(pool).notify_one();
        }
        submitted
    }

    fn submit_missing_node_read(&self, node: Arc<str>, owner: &Arc<dyn CompletionHandler>, now: Mono) -> Submitted {
        let mut state = self.state.lock();
        // When the read in flight is answered, only the key that requested it first is woken up.
        if !state.reading_nodes.insert(Arc::clone(&node)) {
            return Submitted::Later(now + READ_RETRY);
        }
        let work = Work::ReadMissingNode { node: Arc::clone(&node), owner: Arc::clone(owner) };
        if state.queue_for(WorkerPool::Default).push(PriorityLevel::ReadMissingNode, &node, work).is_err() {
            state.reading_nodes.remove(&node);
            return Submitted::Later(now + state.drain.time_to_room());
        }
        self.set_queued(&state);
        Submitted::Accepted
    }

    fn set_queued(&self, state: &State) {
        let queued: usize = state.queues.iter().map(FairQueue::len).sum();
        self.metrics.queued.set(i64::try_from(queued).unwrap_or(i64::MAX));
    }

    /// Discards all queued requests, when leadership is lost: the new leader decides again.
    pub fn abandon(&self) {
        let mut state = self.state.lock();
        let all: Vec<Work> = state.queues.iter_mut().flat_map(FairQueue::drain).collect();
        for work in all {
            match work {
                Work::ReadMissingNode { node, .. } => drop(state.reading_nodes.remove(&node)),
                Work::Force { force, .. } => state.retries.release(&force.pod.uid),
                Work::Delete { delete, .. } => state.deletions.forget(&delete.pod.uid),
                Work::Update { uid } => state.updates.forget(&uid),
                Work::Fence { request, .. } => state.steps.forget(&request.node),
                Work::Monitor { request, .. } => state.steps.forget(&fence_steps::device_flow(&request)),
                Work::Remediate { request, .. } => state.steps.forget(&fence_steps::remediation_flow(&request)),
                Work::Review { request, .. } => state.steps.forget(&fence_steps::policy_flow(&request)),
            }
        }
        self.set_queued(&state);
    }

    /// Completes when no request is in flight, so that the leader Lease can be released. Call [`Authority::abandon`] first,
    /// with leadership resigned.
    pub async fn wait_idle(&self) {
        while self.busy.load(Ordering::SeqCst) > 0 {
            self.idle.notified().await;
        }
    }

    /// Removes state that is no longer needed.
    pub fn tidy(&self) {
        let (mut state, now) = (self.state.lock(), self.env.now());
        state.retries.tidy(now);
        state.updates.tidy(now);
        state.deletions.tidy(now);
        state.steps.tidy(now);
    }

    const fn notify(&self, pool: WorkerPool) -> &Notify {
        &self.notifiers[pool as usize]
    }

    async fn worker_loop(&self, pool: WorkerPool) {
        loop {
            let batch = {
                let mut state = self.state.lock();
                let nodes_wait = state.queue_for(WorkerPool::Nodes).len() > 0;
                let batch = if matches!(pool, WorkerPool::Default) {
                    let others = state.queue_for(pool);
                    let batch = others.pop_except(nodes_wait.then_some(PriorityLevel::PodOfLostNode));
                    state.drain.record(batch.as_ref().map_or(0, Vec::len), self.env.now());
                    batch
                } else {
                    state.queue_for(pool).pop()
                };
                self.set_queued(&state);
                if matches!(pool, WorkerPool::Nodes) && state.queue_for(pool).len() == 0 {
                    self.notify(WorkerPool::Default).notify_one();
                }
                batch
            };
            match batch {
                Some(batch) => {
                    // Other workers may sleep while more than one turn waits.
                    self.notify(pool).notify_one();
                    self.process_batch(pool, batch).await;
                }
                None => self.notify(pool).notified().await,
            }
        }
    }

    /// A verifier for one turn, without evidence yet.
    fn new_verifier(&self) -> Verifier<'_> {
        let Self { connection, cache, env, config, transport, .. } = self;
        let evidence_reader = EvidenceReader::new(StatusChecker::new(connection, cache, env, &**transport));
        Verifier { connection, cache, env, config, evidence_reader, node_evidence: None, unconfirmed: None }
    }

    /// Executes one turn.
    async fn process_batch(&self, pool: WorkerPool, batch: Vec<Work>) {
        let mut verifier = self.new_verifier();
        let mut checked_node = CheckedNode::default();
        for work in batch {
            let writes = matches!(work, Work::Force { .. } | Work::Delete { .. } | Work::Update { .. });
            let _turn = match pool {
                WorkerPool::Default if writes => Some(self.connection.acquire_slot().await),
                _ if writes => {
                    self.connection.wait_backoff().await;
                    None
                }
                _ => None,
            };
            // Status checks and switching of devices take minutes and write little.
            let _busy = matches!(pool, WorkerPool::Default | WorkerPool::Nodes).then(|| self.events.begin_writing());
            self.busy.fetch_add(1, Ordering::SeqCst);
            self.metrics.in_flight.inc();
            match work {
                Work::ReadMissingNode { node, owner } => self.read_missing_node(&node, &owner).await,
                Work::Force { force, owner } => {
                    let outcome = self.force_delete(&mut verifier, &force).await;
                    self.complete_force_delete(&force, &outcome, &owner);
                }
                Work::Delete { delete, owner } => self.delete(delete, &owner, &mut checked_node).await,
                Work::Update { uid } => self.update(&mut verifier, &uid).await,
                Work::Fence { request, owner } => self.fence(&request, &owner).await,
                Work::Monitor { request, owner } => self.monitor(&request, &owner).await,
                Work::Remediate { request, owner } => self.remediate(&request, &owner).await,
                Work::Review { request, owner } => self.review(&request, &owner).await,
            }
            self.metrics.in_flight.dec();
            if self.busy.fetch_sub(1, Ordering::SeqCst) == 1 {
                self.idle.notify_waiters();
                self.idle.notify_one();
            }
        }
    }

    async fn read_missing_node(&self, node: &Arc<str>, owner: &Arc<dyn CompletionHandler>) {
        let read = quorum_read::read_absence(&self.connection, &self.env, node).await;
        self.state.lock().reading_nodes.remove(node);
        let now = self.env.now();
        match read {
            Ok(Some(absence)) => {
                self.cache.record_absence_read(node, absence);
                owner.wake_at(now);
            }
            // The cache is behind: the watch will deliver the node.
            Ok(None) => owner.wake_at(now + READ_RETRY),
            Err(error) => {
                tracing::warn!(node = &**node, error = %error_chain(&error), "cannot read whether a missing node exists; trying again");
                owner.wake_at(now + READ_RETRY);
            }
        }
    }
}

#[cfg(test)]
mod tests;
