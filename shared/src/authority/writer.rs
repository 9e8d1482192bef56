//! The pool that carries intents out: fair turns, a named limit, one owner of
//! retries.

mod deletions;
mod evictions;
mod fences;
mod forces;
mod nodes;
mod staff;
mod updates;
mod volumes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pod_safety_fence::witness;
use pod_safety_fence::{Fencing, Judge, Looker, Monitor, PolicyReview, Remediate, Step};
use pod_safety_leader::outcome::Outcome;
use pod_safety_proof::Force;
use strum::EnumCount as _;
use tokio::sync::Notify;

use super::claim::{Delete, Intent};
use super::eviction;
use super::ledger::Ledger;
use super::queue::{Drain, FairQueue};
use super::scales::Scales;
use super::update::Update;
use super::verify::{Policy, Verifier};
use crate::cache::{Cache, Learns as _};
use crate::client::{Connection, MOST};
use crate::clock::{Env, Mono};
use crate::events::Recorder;
use crate::lease::Leadership;
use crate::metrics::AuthorityMetrics;
use crate::model::Uid;
use crate::record::{Journal, error_chain};
use crate::transport::FenceTransport;
use deletions::{Deletions, LookedAt};
use fences::Fences;
use staff::{Class, Staff};
use updates::Updates;

/// How many turns run at once, where the API server answers soon enough. Each does one request at a time.
pub const WRITERS: usize = MOST;

/// How many turns of nodes run at once, by writers of their own: whoever a kubelet's silence is told to must not wait
/// for the statuses of its thirty pods, least of all behind a webhook for pods that does not answer; nor must pods wait
/// for nodes. As many as the others, so that a rack of a hundred nodes is six or seven turns, of four requests each.
pub const NODE_WRITERS: usize = 16;

/// How many turns that check devices run at once. Each may take a device's whole timeout.
const DEVICE_CHECKERS: usize = 16;

/// How many steps of incidents are taken at once: they read, write, and look at the devices of one node.
pub const FENCERS: usize = 16;

/// How many turns of evictions that are asked for run at once: force deletions and budgets wait for none of them.
pub const EVICTORS: usize = 8;

/// How many machines are switched at once: as many as policies may allow (`brakes.maxConcurrent`). Each waits for its
/// devices, and where another controller does it, for ten minutes and more: nobody else's incident must wait for that.
pub const SWITCHERS: usize = 100;

/// How many devices are looked through at once: with hundreds of nodes that do not answer it takes hours, and neither
/// fencing nor the next device must wait for it.
pub const LOOKERS: usize = 8;

/// How long the failure of a first read is left alone.
const WITNESS_AGAIN: Duration = Duration::from_secs(1);

/// Who asked for an intent and hears how it ended.
pub trait Owner: Send + Sync + 'static {
    /// The controller's name.
    fn controller(&self) -> &'static str;
    /// The intent ended so.
    fn ended(&self, force: &Force, outcome: &Outcome);
    /// A status was written, or not.
    fn updated(&self, update: &Update, outcome: &Outcome);
    /// What it would want now in place of this deletion, which has waited for its
    /// turn: perhaps nothing.
    fn anew(&self, delete: &Delete) -> Option<Delete>;
    /// The pod was asked to end at this moment, or not.
    fn deleted(&self, delete: &Delete, outcome: &Outcome, at: Mono);
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
    Witness {
        node: Arc<str>,
        owner: Arc<dyn Owner>,
    },
    Force {
        force: Force,
        owner: Arc<dyn Owner>,
    },
    Delete {
        delete: Delete,
        owner: Arc<dyn Owner>,
    },
    /// What is written is looked up when its turn comes: it may have been
    /// calculated anew since.
    Update {
        uid: Uid,
    },
    Fence {
        fencing: Box<Fencing>,
        owner: Arc<dyn Owner>,
    },
    Monitor {
        wish: Box<Monitor>,
        owner: Arc<dyn Owner>,
    },
    Remediate {
        wish: Box<Remediate>,
        owner: Arc<dyn Owner>,
    },
    Review {
        wish: Box<PolicyReview>,
        owner: Arc<dyn Owner>,
    },
}

#[derive(Default)]
struct State {
    /// One for each [`Staff`].
    queues: [FairQueue<Class, Work>; Staff::COUNT],
    drain: Drain,
    fences: Fences,
    ledger: Ledger<forces::Basis>,
    witnessing: BTreeSet<Arc<str>>,
    updates: Updates,
    deletions: Deletions,
}

impl State {
    const fn queue_of(&mut self, staff: Staff) -> &mut FairQueue<Class, Work> {
        &mut self.queues[staff as usize]
    }
}

/// The deletion authority of one process.
pub struct Authority {
    connection: Connection,
    cache: Arc<Cache>,
    env: Env,
    policy: Policy,
    leadership: Arc<Leadership>,
    journal: Arc<Journal>,
    events: Recorder,
    metrics: AuthorityMetrics,
    scales: Arc<Scales>,
    transport: Arc<dyn FenceTransport>,
    identity: String,
    evictions: eviction::Common,
    state: Mutex<State>,
    /// One for each [`Staff`]: there is work.
    bells: [Notify; Staff::COUNT],
    busy: AtomicUsize,
    idle: Notify,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("policy", &self.policy).finish_non_exhaustive()
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
    pub policy: Policy,
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
            policy,
            leadership,
            journal,
            events,
            metrics,
            transport,
            identity,
        } = parts;
        metrics.knows_steps(Step::NAMES.iter().copied().chain(["monitor", "remediate", "review"]));
        let scales = Scales::start(connection.clone(), Arc::clone(&cache), env.clone());
        let authority = Arc::new(Self {
            connection,
            cache,
            env,
            policy,
            leadership,
            journal,
            events,
            metrics,
            scales,
            transport,
            identity,
            evictions: eviction::Common::default(),
            state: Mutex::default(),
            bells: Default::default(),
            busy: AtomicUsize::new(0),
            idle: Notify::new(),
        });
        let staff = [
            (Staff::Others, WRITERS),
            (Staff::DeviceCheckers, DEVICE_CHECKERS),
            (Staff::Nodes, NODE_WRITERS),
            (Staff::Evictors, EVICTORS),
            (Staff::Fencers, FENCERS),
            (Staff::Switchers, SWITCHERS),
            (Staff::Lookers, LOOKERS),
        ];
        for staff in staff.into_iter().flat_map(|(staff, number)| std::iter::repeat_n(staff, number)) {
            let writer = Arc::clone(&authority);
            let task = async move { writer.write_for_ever(staff).await };
            authority.env.spawner.spawn("writer", Box::pin(task));
        }
        authority
    }

    /// What the operator decided.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Takes an intent on, unless it is already taken, too recent a failure, or
    /// not this process's to do.
    pub fn submit(&self, intent: Intent, owner: &Arc<dyn Owner>) -> Submitted {
        let now = self.env.now();
        let staff = Staff::of(&intent);
        let submitted = match intent {
            Intent::Witness { node } => self.submit_witness(node, owner, now),
            Intent::Force(force) => self.submit_force(force, owner, now),
            Intent::Delete(delete) => self.submit_delete(delete, owner, now),
            Intent::Update(update) => self.submit_update(update, owner, now),
            Intent::Fence(fencing) => self.submit_fence(fencing, owner, now),
            Intent::Monitor(wish) => self.submit_monitor(wish, owner, now),
            Intent::Remediate(wish) => self.submit_remediate(wish, owner, now),
            Intent::Review(wish) => self.submit_review(wish, owner, now),
            Intent::Scale { namespace, controller } => {
                self.scales.ask(&namespace, &controller);
                return Submitted::Accepted;
            }
        };
        if submitted == Submitted::Accepted {
            self.bell(staff).notify_one();
        }
        submitted
    }

    fn submit_witness(&self, node: Arc<str>, owner: &Arc<dyn Owner>, now: Mono) -> Submitted {
        let mut state = self.state.lock();
        // When the read under way is answered, the key that wanted it first is woken, and no other.
        if !state.witnessing.insert(Arc::clone(&node)) {
            return Submitted::Later(now + WITNESS_AGAIN);
        }
        let work = Work::Witness { node: Arc::clone(&node), owner: Arc::clone(owner) };
        if state.queue_of(Staff::Others).push(Class::Witness, &node, work).is_err() {
            state.witnessing.remove(&node);
            return Submitted::Later(now + state.drain.room_in());
        }
        self.count(&state);
        Submitted::Accepted
    }

    fn count(&self, state: &State) {
        let queued: usize = state.queues.iter().map(FairQueue::len).sum();
        self.metrics.queued.set(i64::try_from(queued).unwrap_or(i64::MAX));
    }

    /// Forgets what waits: leadership is lost, and whoever leads decides anew.
    pub fn abandon(&self) {
        let mut state = self.state.lock();
        let all: Vec<Work> = state.queues.iter_mut().flat_map(FairQueue::clear).collect();
        for work in all {
            match work {
                Work::Witness { node, .. } => drop(state.witnessing.remove(&node)),
                Work::Force { force, .. } => state.ledger.released(&force.pod.uid),
                Work::Delete { delete, .. } => state.deletions.forget(&delete.pod.uid),
                Work::Update { uid } => state.updates.forget(&uid),
                Work::Fence { fencing, .. } => state.fences.forget(&fencing.node),
                Work::Monitor { wish, .. } => state.fences.forget(&fences::lane_of(&wish)),
                Work::Remediate { wish, .. } => state.fences.forget(&fences::lane_of_remediation(&wish)),
                Work::Review { wish, .. } => state.fences.forget(&fences::lane_of_policy(&wish)),
            }
        }
        self.count(&state);
    }

    /// Completes when nothing is being carried out, so that the lease can be
    /// given back. Call [`Authority::abandon`] first, with leadership resigned.
    pub async fn drained(&self) {
        while self.busy.load(Ordering::SeqCst) > 0 {
            self.idle.notified().await;
        }
    }

    /// Forgets what is over.
    pub fn tidy(&self) {
        let (mut state, now) = (self.state.lock(), self.env.now());
        state.ledger.tidy(now);
        state.updates.tidy(now);
        state.deletions.tidy(now);
        state.fences.tidy(now);
    }

    const fn bell(&self, staff: Staff) -> &Notify {
        &self.bells[staff as usize]
    }

    async fn write_for_ever(&self, staff: Staff) {
        loop {
            let batch = {
                let mut state = self.state.lock();
                let nodes_wait = state.queue_of(Staff::Nodes).len() > 0;
                let batch = if matches!(staff, Staff::Others) {
                    let others = state.queue_of(staff);
                    let batch = others.pop_but(nodes_wait.then_some(Class::PodOfLostNode));
                    state.drain.took(batch.as_ref().map_or(0, Vec::len), self.env.now());
                    batch
                } else {
                    state.queue_of(staff).pop()
                };
                self.count(&state);
                if matches!(staff, Staff::Nodes) && state.queue_of(staff).len() == 0 {
                    self.bell(Staff::Others).notify_one();
                }
                batch
            };
            match batch {
                Some(batch) => {
                    // Others may sleep while more than one turn waits.
                    self.bell(staff).notify_one();
                    self.serve(staff, batch).await;
                }
                None => self.bell(staff).notified().await,
            }
        }
    }

    /// A judge who has seen nothing yet.
    fn verifier(&self) -> Verifier<'_> {
        let Self { connection, cache, env, policy, transport, .. } = self;
        let judge = Judge::new(Looker::new(connection, cache, env, &**transport));
        Verifier { connection, cache, env, policy, judge, found: None, unconfirmed: None }
    }

    /// One turn.
    async fn serve(&self, staff: Staff, batch: Vec<Work>) {
        let mut verifier = self.verifier();
        let mut looked_at = LookedAt::default();
        for work in batch {
            let writes = matches!(work, Work::Force { .. } | Work::Delete { .. } | Work::Update { .. });
            let _turn = match staff {
                Staff::Others if writes => Some(self.connection.turn().await),
                _ if writes => {
                    self.connection.rested().await;
                    None
                }
                _ => None,
            };
            // To look at devices, and to switch them, takes minutes and writes little.
            let _busy = matches!(staff, Staff::Others | Staff::Nodes).then(|| self.events.busy());
            self.busy.fetch_add(1, Ordering::SeqCst);
            self.metrics.in_flight.inc();
            match work {
                Work::Witness { node, owner } => self.witness(&node, &owner).await,
                Work::Force { force, owner } => {
                    let outcome = self.force(&mut verifier, &force).await;
                    self.ended(&force, &outcome, &owner);
                }
                Work::Delete { delete, owner } => self.delete(delete, &owner, &mut looked_at).await,
                Work::Update { uid } => self.update(&mut verifier, &uid).await,
                Work::Fence { fencing, owner } => self.fence(&fencing, &owner).await,
                Work::Monitor { wish, owner } => self.monitor(&wish, &owner).await,
                Work::Remediate { wish, owner } => self.remediate(&wish, &owner).await,
                Work::Review { wish, owner } => self.review(&wish, &owner).await,
            }
            self.metrics.in_flight.dec();
            if self.busy.fetch_sub(1, Ordering::SeqCst) == 1 {
                self.idle.notify_waiters();
                self.idle.notify_one();
            }
        }
    }

    async fn witness(&self, node: &Arc<str>, owner: &Arc<dyn Owner>) {
        let seen = witness::take(&self.connection, &self.env, node).await;
        self.state.lock().witnessing.remove(node);
        let now = self.env.now();
        match seen {
            Ok(Some(witness)) => {
                self.cache.witnessed(node, witness);
                owner.wake_at(now);
            }
            // The cache is behind: the watch will bring the node.
            Ok(None) => owner.wake_at(now + WITNESS_AGAIN),
            Err(error) => {
                tracing::warn!(node = &**node, error = %error_chain(&error), "cannot read whether a missing node exists; trying again");
                owner.wake_at(now + WITNESS_AGAIN);
            }
        }
    }
}

#[cfg(test)]
mod tests;
