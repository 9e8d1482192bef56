//! The pool that carries intents out: fair turns, a named limit, one owner of
//! retries.

mod updates;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::act::{self, Outcome};
use super::claim::{ClaimKind, Force, Intent};
use super::ledger::{Admission, Ledger};
use super::queue::FairQueue;
use super::scales::Scales;
use super::update::Update;
use super::verify::{Refusal, Verifier};
use super::witness;
use crate::cache::Cache;
use crate::client::{ApiError, Connection};
use crate::clock::{Env, Mono};
use crate::events::{About, Event, EventType, Recorder};
use crate::lease::Leadership;
use crate::metrics::AuthorityMetrics;
use crate::model::Uid;
use crate::record::{Action, Journal, Record, error_chain};
use updates::Updates;

/// How many turns run at once. Each does one request at a time, so this is also
/// the number of connections that write: few beside the hundreds of seats of the
/// API server's `workload-low`, and more do not make the deletions faster, only
/// each of them slower (see `docs/benchmarks.md`).
pub const WRITERS: usize = 16;

/// How long the failure of a first read is left alone.
const WITNESS_AGAIN: Duration = Duration::from_secs(1);

/// What an operator decided for this process.
#[derive(Clone, Debug)]
pub struct Policy {
    /// How far the two reads of a missing node lie apart.
    pub quarantine: Duration,
    /// Take the out-of-service taint for proof, as KCM does.
    pub trust_out_of_service_taint: bool,
}

/// Who asked for an intent and hears how it ended.
pub trait Owner: Send + Sync + 'static {
    /// The controller's name.
    fn controller(&self) -> &'static str;
    /// The intent ended so.
    fn ended(&self, force: &Force, outcome: &Outcome);
    /// A status was written, or not.
    fn updated(&self, update: &Update, outcome: &Outcome);
    /// Decide again at this moment.
    fn wake_at(&self, when: Mono);
}

/// What became of an intent when it was handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It waits for its turn, or is being done.
    Accepted,
    /// It failed recently; decide again then.
    Later(Mono),
    /// Only the leader acts; this process is not it.
    NotLeading,
}

/// A queue turn's class: first reads, then each kind of claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Witness,
    Force(ClaimKind),
    Update,
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
    /// What is written is looked up when its turn comes: it may have been
    /// calculated anew since.
    Update {
        uid: Uid,
    },
}

#[derive(Default)]
struct State {
    queue: FairQueue<Class, Work>,
    ledger: Ledger,
    witnessing: BTreeSet<Arc<str>>,
    updates: Updates,
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
    state: Mutex<State>,
    work: Notify,
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
}

impl Authority {
    /// Starts the pool.
    #[must_use]
    pub fn start(parts: Parts) -> Arc<Self> {
        let Parts { connection, cache, env, policy, leadership, journal, events, metrics } = parts;
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
            state: Mutex::default(),
            work: Notify::new(),
            busy: AtomicUsize::new(0),
            idle: Notify::new(),
        });
        for _ in 0..WRITERS {
            let writer = Arc::clone(&authority);
            authority.env.spawner.spawn("writer", Box::pin(async move { writer.write_for_ever().await }));
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
        let submitted = match intent {
            Intent::Witness { node } => self.submit_witness(node, owner, now),
            Intent::Force(force) => self.submit_force(force, owner, now),
            Intent::Update(update) => self.submit_update(update, owner, now),
            Intent::Scale { namespace, controller } => {
                self.scales.ask(&namespace, &controller);
                return Submitted::Accepted;
            }
        };
        if submitted == Submitted::Accepted {
            self.work.notify_one();
        }
        submitted
    }

    fn submit_witness(&self, node: Arc<str>, owner: &Arc<dyn Owner>, now: Mono) -> Submitted {
        let mut state = self.state.lock();
        if !state.witnessing.insert(Arc::clone(&node)) {
            return Submitted::Accepted;
        }
        let work = Work::Witness { node: Arc::clone(&node), owner: Arc::clone(owner) };
        if state.queue.push(Class::Witness, &node, work).is_err() {
            state.witnessing.remove(&node);
            return Submitted::Later(now + WITNESS_AGAIN);
        }
        self.count(&state);
        Submitted::Accepted
    }

    fn submit_force(&self, force: Force, owner: &Arc<dyn Owner>, now: Mono) -> Submitted {
        if self.leadership.term(now).is_none() {
            return Submitted::NotLeading;
        }
        let mut state = self.state.lock();
        match state.ledger.admit(&force.pod.uid, force.rv, now) {
            Admission::Busy => return Submitted::Accepted,
            Admission::Paused(until) => return Submitted::Later(until),
            Admission::Admitted => {}
        }
        let class = Class::Force(force.claim.kind());
        let lane = Arc::clone(force.claim.node().unwrap_or(&force.pod.namespace));
        let uid = force.pod.uid.clone();
        if state.queue.push(class, &lane, Work::Force { force, owner: Arc::clone(owner) }).is_err() {
            state.ledger.released(&uid);
            return Submitted::Later(now + WITNESS_AGAIN);
        }
        self.count(&state);
        Submitted::Accepted
    }

    fn count(&self, state: &State) {
        self.metrics.queued.set(i64::try_from(state.queue.len()).unwrap_or(i64::MAX));
    }

    /// Forgets what waits: leadership is lost, and whoever leads decides anew.
    pub fn abandon(&self) {
        let mut state = self.state.lock();
        for work in state.queue.clear() {
            match work {
                Work::Witness { node, .. } => drop(state.witnessing.remove(&node)),
                Work::Force { force, .. } => state.ledger.released(&force.pod.uid),
                Work::Update { uid } => state.updates.forget(&uid),
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
    }

    async fn write_for_ever(&self) {
        loop {
            let batch = {
                let mut state = self.state.lock();
                let batch = state.queue.pop();
                self.count(&state);
                batch
            };
            match batch {
                Some(batch) => {
                    // Others may sleep while more than one turn waits.
                    self.work.notify_one();
                    self.serve(batch).await;
                }
                None => self.work.notified().await,
            }
        }
    }

    /// One turn.
    async fn serve(&self, batch: Vec<Work>) {
        let Self { connection, cache, env, policy, .. } = self;
        let mut verifier = Verifier { connection, cache, env, policy, proof: None };
        for work in batch {
            self.busy.fetch_add(1, Ordering::SeqCst);
            self.metrics.in_flight.inc();
            match work {
                Work::Witness { node, owner } => self.witness(&node, &owner).await,
                Work::Force { force, owner } => {
                    let outcome = self.force(&mut verifier, &force).await;
                    self.ended(&force, &outcome, &owner);
                }
                Work::Update { uid } => self.update(&uid).await,
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
                tracing::warn!(node = &**node, error = %error_chain(&error), "cannot ask for a missing node; asking again");
                owner.wake_at(now + WITNESS_AGAIN);
            }
        }
    }

    async fn force(&self, verifier: &mut Verifier<'_>, force: &Force) -> Outcome {
        let evidence = match verifier.verify(force).await {
            Ok(evidence) => evidence,
            Err(Refusal::PodChanged) => return Outcome::Changed,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        act::force(&self.connection, &self.env, &self.leadership, evidence).await
    }

    fn ended(&self, force: &Force, outcome: &Outcome, owner: &Arc<dyn Owner>) {
        let now = self.env.now();
        let uid = &force.pod.uid;
        let again = {
            let mut state = self.state.lock();
            match outcome {
                Outcome::Released(_) | Outcome::FinalizersRemain(_) | Outcome::Gone => {
                    state.ledger.settled(uid, now);
                    None
                }
                Outcome::NotLeader | Outcome::Written | Outcome::NoEffect => {
                    state.ledger.released(uid);
                    None
                }
                Outcome::Changed | Outcome::Expired | Outcome::Refused(_) => {
                    Some(state.ledger.failed(uid, force.rv, Duration::ZERO, now))
                }
                Outcome::Failed(error) => Some(state.ledger.failed(uid, force.rv, wished_pause(error), now)),
            }
        };
        self.metrics.outcomes.with_label_values(&[outcome.name()]).inc();
        self.report(force, outcome, owner.controller());
        owner.ended(force, outcome);
        if let Some(again) = again {
            owner.wake_at(again);
        }
    }

    fn report(&self, force: &Force, outcome: &Outcome, controller: &'static str) {
        let (action, reason, message) = match outcome {
            Outcome::Released(kind) | Outcome::FinalizersRemain(kind) => {
                self.metrics.releases.with_label_values(&[kind.name()]).inc();
                (Action::ForceDeleted, kind.name(), kind.to_string())
            }
            Outcome::Written | Outcome::NoEffect => return,
            Outcome::Gone => (Action::Dropped, "Gone", "somebody else removed the pod first".to_owned()),
            Outcome::Changed => (Action::Dropped, "Changed", "the pod changed since the decision".to_owned()),
            Outcome::Expired => (
                Action::Dropped,
                "Expired",
                "the evidence expired before the act; it is looked for again".to_owned(),
            ),
            Outcome::NotLeader => {
                (Action::Dropped, "NotLeader", "leadership was lost before the act".to_owned())
            }
            Outcome::Refused(refusal) => {
                self.metrics.refusals.with_label_values(&[refusal.reason()]).inc();
                (Action::Refused, refusal.reason(), error_chain(refusal))
            }
            Outcome::Failed(error) => (Action::Failed, error.category(), error_chain(error)),
        };
        self.tell_people(force, action, &message);
        let node = force.claim.node().cloned();
        let at = self.env.clock.wall();
        self.journal.write(Record {
            at,
            controller,
            action,
            pod: Some(force.pod.clone()),
            budget: None,
            node,
            reason,
            message,
        });
    }

    fn tell_people(&self, force: &Force, action: Action, message: &str) {
        let (kind, reason) = match action {
            Action::ForceDeleted => (EventType::Normal, "ForceDeleted"),
            Action::Refused => (EventType::Warning, "ForceDeleteRefused"),
            Action::Failed => (EventType::Warning, "ForceDeleteFailed"),
            Action::Held | Action::WouldForceDelete | Action::Dropped => return,
        };
        let about = About::Pod(force.pod.clone());
        self.events.record(Event { about, kind, reason, message: message.to_owned() });
    }
}

/// What the API server asked for, if it asked for a pause.
fn wished_pause(error: &ApiError) -> Duration {
    match error {
        ApiError::Refused { retry_after: Some(pause), .. } => *pause,
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests;
