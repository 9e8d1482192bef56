//! The pool that carries intents out: fair turns, a named limit, one owner of
//! retries.

mod deletions;
mod evictions;
mod fence_steps;
mod force_deletes;
mod nodes;
mod updates;
mod volumes;
mod worker_pool;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pod_safety_fence::quorum_read;
use pod_safety_fence::{
    EvidenceReader, FenceStepRequest, MonitorRequest, PolicyStatusUpdate, RemediationRequest, StatusChecker,
    Step,
};
use pod_safety_leader::outcome::Outcome;
use pod_safety_proof::ForceDeleteRequest;
use strum::EnumCount as _;
use tokio::sync::Notify;

use super::claim::{GracefulDeleteRequest, Intent};
use super::eviction;
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
use fence_steps::InFlightSteps;
use updates::Updates;
use worker_pool::{PriorityLevel, WorkerPool};

/// How many turns run at once, where the API server answers soon enough. Each does one request at a time.
pub const DEFAULT_WORKERS: usize = MAX_WRITE_SLOTS;

/// How many turns of nodes run at once, by writers of their own: whoever a kubelet's silence is told to must not wait
/// for the statuses of its thirty pods, least of all behind a webhook for pods that does not answer; nor must pods wait
/// for nodes. As many as the others, so that a rack of a hundred nodes is six or seven turns, of four requests each.
pub const NODE_WORKERS: usize = 16;

/// How many turns that check devices run at once. Each may take a device's whole timeout.
const EVIDENCE_CHECK_WORKERS: usize = 16;

/// How many steps of incidents are taken at once: they read, write, and look at the devices of one node.
pub const FENCE_STEP_WORKERS: usize = 16;

/// How many turns of evictions that are asked for run at once: force deletions and budgets wait for none of them.
pub const EVICTION_WORKERS: usize = 8;

/// How many machines are switched at once: as many as policies may allow (`brakes.maxConcurrent`). Each waits for its
/// devices, and where another controller does it, for ten minutes and more: nobody else's incident must wait for that.
pub const POWER_SWITCH_WORKERS: usize = 100;

/// How many devices are looked through at once: with hundreds of nodes that do not answer it takes hours, and neither
/// fencing nor the next device must wait for it.
pub const STATUS_CHECK_WORKERS: usize = 8;

/// How long the failure of a first read is left alone.
const READ_RETRY: Duration = Duration::from_secs(1);

/// Who asked for an intent and hears how it ended.
pub trait CompletionHandler: Send + Sync + 'static {
    /// The controller's name.
    fn controller(&self) -> &'static str;
    /// The intent ended so.
    fn completed(&self, force: &ForceDeleteRequest, outcome: &Outcome);
    /// A status was written, or not.
    fn update_completed(&self, update: &Update, outcome: &Outcome);
    /// What it would want now in place of this deletion, which has waited for its
    /// turn: perhaps nothing.
    fn redecide(&self, delete: &GracefulDeleteRequest) -> Option<GracefulDeleteRequest>;
    /// The pod was asked to end at this moment, or not.
    fn delete_completed(&self, delete: &GracefulDeleteRequest, outcome: &Outcome, at: Mono);
    /// Decide again at this moment.
    fn wake_at(&self, when: Mono);
}

/// What became of an intent when it was handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It waits for its turn, or is being done.
    Accepted,
    /// It failed recently, or waits for another one; decide again then.
    Later(Mono),
    /// Only the leader acts; this process is not it.
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
    /// What is written is looked up when its turn comes: it may have been
    /// calculated anew since.
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
    /// One for each [`WorkerPool`].
    queues: [FairQueue<PriorityLevel, Work>; WorkerPool::COUNT],
    drain: DrainRate,
    in_flight_steps: InFlightSteps,
    retries: RetryTracker<force_deletes::Basis>,
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
    /// One for each [`WorkerPool`]: there is work.
    notifiers: [Notify; WorkerPool::COUNT],
    busy: AtomicUsize,
    idle: Notify,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("policy", &self.config).finish_non_exhaustive()
    }
}

/// What an [`Authority`] is made of.
#[expect(missing_debug_implementations, reason = "a bundle of handles, taken apart at once")]
pub struct Parts {
    /// Where writes go.
    pub connection: Connection,
    /// Where claims are looked up.
    pub cache: Arc<Cache>,
    /// Time and tasks.
    pub env: Env,
    /// What the operator decided.
    pub config: VerifierConfig,
    /// Whether this process may write now.
    pub leadership: Arc<Leadership>,
    /// Where outcomes are written down.
    pub journal: Arc<Journal>,
    /// Where people hear of them.
    pub events: Recorder,
    /// Where Prometheus hears of them.
    pub metrics: AuthorityMetrics,
    /// What reaches fence devices.
    pub transport: Arc<dyn FenceTransport>,
    /// Who this process is, in attempts and evidence.
    pub identity: String,
}

impl Authority {
    /// Starts the pool.
    #[must_use]
    pub fn start(parts: Parts) -> Arc<Self> {
        let Parts {
            connection,
            cache,
            env,
            config,
            leadership,
            journal,
            events,
            metrics,
            transport,
            identity,
        } = parts;
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
        for pool in pools.into_iter().flat_map(|(staff, number)| std::iter::repeat_n(staff, number)) {
            let writer = Arc::clone(&authority);
            let task = async move { writer.worker_loop(pool).await };
            authority.env.spawner.spawn("writer", Box::pin(task));
        }
        authority
    }

    /// What the operator decided.
    #[must_use]
    pub const fn config(&self) -> &VerifierConfig {
        &self.config
    }

    /// Takes an intent on, unless it is already taken, too recent a failure, or
    /// not this process's to do.
    pub fn submit(&self, intent: Intent, owner: &Arc<dyn CompletionHandler>) -> Submitted {
        let now = self.env.now();
        let pool = WorkerPool::for_intent(&intent);
        let submitted = match intent {
            Intent::ReadMissingNode { node } => self.submit_missing_node_read(node, owner, now),
            Intent::Force(force) => self.submit_force(force, owner, now),
            Intent::Delete(delete) => self.submit_delete(delete, owner, now),
            Intent::Update(update) => self.submit_update(update, owner, now),
            Intent::Fence(fencing) => self.submit_fence(fencing, owner, now),
            Intent::Monitor(wish) => self.submit_monitor(wish, owner, now),
            Intent::Remediate(wish) => self.submit_remediate(wish, owner, now),
            Intent::Review(wish) => self.submit_review(wish, owner, now),
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

    fn submit_missing_node_read(
        &self,
        node: Arc<str>,
        owner: &Arc<dyn CompletionHandler>,
        now: Mono,
    ) -> Submitted {
        let mut state = self.state.lock();
        // When the read under way is answered, the key that wanted it first is woken, and no other.
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

    /// Forgets what waits: leadership is lost, and whoever leads decides anew.
    pub fn abandon(&self) {
        let mut state = self.state.lock();
        let all: Vec<Work> = state.queues.iter_mut().flat_map(FairQueue::drain).collect();
        for work in all {
            match work {
                Work::ReadMissingNode { node, .. } => drop(state.reading_nodes.remove(&node)),
                Work::Force { force, .. } => state.retries.release(&force.pod.uid),
                Work::Delete { delete, .. } => state.deletions.forget(&delete.pod.uid),
                Work::Update { uid } => state.updates.forget(&uid),
                Work::Fence { request, .. } => state.in_flight_steps.forget(&request.node),
                Work::Monitor { request, .. } => {
                    state.in_flight_steps.forget(&fence_steps::device_flow(&request))
                }
                Work::Remediate { request, .. } => {
                    state.in_flight_steps.forget(&fence_steps::remediation_flow(&request))
                }
                Work::Review { request, .. } => {
                    state.in_flight_steps.forget(&fence_steps::policy_flow(&request))
                }
            }
        }
        self.set_queued(&state);
    }

    /// Completes when nothing is being carried out, so that the lease can be
    /// given back. Call [`Authority::abandon`] first, with leadership resigned.
    pub async fn wait_idle(&self) {
        while self.busy.load(Ordering::SeqCst) > 0 {
            self.idle.notified().await;
        }
    }

    /// Forgets what is over.
    pub fn tidy(&self) {
        let (mut state, now) = (self.state.lock(), self.env.now());
        state.retries.tidy(now);
        state.updates.tidy(now);
        state.deletions.tidy(now);
        state.in_flight_steps.tidy(now);
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
                    // Others may sleep while more than one turn waits.
                    self.notify(pool).notify_one();
                    self.process_batch(pool, batch).await;
                }
                None => self.notify(pool).notified().await,
            }
        }
    }

    /// A judge who has seen nothing yet.
    fn new_verifier(&self) -> Verifier<'_> {
        let Self { connection, cache, env, config, transport, .. } = self;
        let evidence_reader = EvidenceReader::new(StatusChecker::new(connection, cache, env, &**transport));
        Verifier { connection, cache, env, config, evidence_reader, node_evidence: None, unconfirmed: None }
    }

    /// One turn.
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
            // To look at devices, and to switch them, takes minutes and writes little.
            let _busy =
                matches!(pool, WorkerPool::Default | WorkerPool::Nodes).then(|| self.events.begin_writing());
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
            // The cache is behind: the watch will bring the node.
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
