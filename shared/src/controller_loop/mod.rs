//! The control loop: enqueued keys, deadlines and resyncs become decisions; decisions become requests, holds and records.
//!
//! A wake-up carries no facts. A watch event enqueues a key, a deadline enqueues a key, a resync enqueues all keys, and
//! each key is then decided in the same way. The loop does not retry requests: a retry is a new decision.

mod decision;
mod holds;
mod liveness;
mod reason;
mod work_queue;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

pub use decision::{Decision, Mode, Subject};
pub use holds::{CurrentHold, Holds};
pub use liveness::{LoopHeartbeat, LoopHeartbeats};
pub use reason::{FORCE_DELETE_HELD, HoldReason, NodeUnreadable};
use work_queue::WorkQueue;

use crate::authority::{
    Authority, CompletionHandler, DeleteOutcome, ForceDeleteRequest, ForceOutcome, GracefulDeleteRequest, Intent,
    Submitted, Update, UpdateOutcome,
};
use crate::cache::{Cache, Change, FreshnessError, Subscriber, View};
use crate::clock::{Env, Mono};
use crate::metrics::{Queue, QueueMetrics};
use crate::model::{Kind, PodKey, Uid};
use crate::record::{Action, Journal, Record};

/// How often all keys are enqueued, to repair what a lost event left (resync).
const SWEEP: Duration = Duration::from_secs(300);

/// After a round the next one waits this long, so that the thirty events of one node result in one decision and not thirty.
const COALESCE: Duration = Duration::from_millis(10);

/// The pause after a round that left keys in the queue. A new leader decides about all nodes, and 130,000 nodes are a
/// thousand rounds; the watches write to the cache in between.
const FULL_ROUND_PAUSE: Duration = Duration::from_millis(1);

/// How long a key is deferred for each pod that it requested. The pods leave one by one, and each that leaves would cause a
/// decision about all others. The authority executes about one request in this time.
const DEFERRAL_PER_ACTION: Duration = Duration::from_millis(1);
/// The longest deferral, so that changes by users are not delayed.
const MAX_DEFERRAL: Duration = Duration::from_secs(1);

/// Until all kinds are listed, the loop checks for it at this interval, because the first list enqueues a key for every pod.
const LISTING_POLL: Duration = Duration::from_millis(100);

/// How many keys are decided while the cache is locked for reading.
const ROUND_KEYS: usize = 128;

/// The longest time for which a round locks the cache for reading, plus one decision: the watches wait meanwhile, and a
/// budget may select thousands of pods.
const ROUND_TIMEOUT: Duration = Duration::from_millis(5);

/// The longest interval between two heartbeats of the loop.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(20);

/// A controller: which changes concern it, and what it decides. It has no client and no clock, and no state on which
/// decisions rest. It may have metrics.
pub trait Controller: Send + Sync + 'static {
    /// What it decides about: the key in the work queue.
    type Key: Ord + Clone + Debug + Send + Sync + 'static;

    /// The reasons for which it does nothing.
    type Hold: HoldReason;

    /// The name in logs, metrics and records.
    const NAME: &'static str;

    /// The kinds that it uses. The loop watches that they are listed.
    const KINDS: &'static [Kind];

    /// The kinds that must be listed before this key is decided: a subset of [`Controller::KINDS`]. A kind that cannot be
    /// listed must not stop keys that do not need it.
    fn required_kinds(&self, _key: &Self::Key) -> &'static [Kind] {
        Self::KINDS
    }

    /// Enqueues the keys that `change` may affect.
    fn keys_for(&self, change: &Change<'_>, enqueue: &mut dyn FnMut(Self::Key));

    /// Whether `change` may affect any key. If so, all keys are enqueued, and [`Controller::keys_for`] is not called.
    fn affects_all(&self, _change: &Change<'_>) -> bool {
        false
    }

    /// Enqueues all keys.
    fn list_keys(&self, view: &View<'_>, enqueue: &mut dyn FnMut(Self::Key));

    /// Decides about a key. The same view, time and configuration give the same decision. It may also set metrics.
    fn decide(&self, key: &Self::Key, view: &View<'_>, now: Mono) -> Decision<Self::Hold>;

    /// Whether it writes in this mode. If not, it decides and reports only.
    fn acts_in(&self, mode: Mode) -> bool {
        mode != Mode::Observe
    }

    /// A force deletion that this controller requested completed.
    fn completed(&self, _force: &ForceDeleteRequest, _outcome: &ForceOutcome) {}

    /// An update that this controller requested completed at this time.
    fn update_completed(&self, _update: &Update, _outcome: &UpdateOutcome, _at: Mono) {}

    /// A graceful deletion that this controller requested completed at this time.
    fn delete_completed(&self, _delete: &GracefulDeleteRequest, _outcome: &DeleteOutcome, _at: Mono) {}
}

/// The shared parts that a control loop uses.
#[derive(Clone, Debug)]
pub struct ControllerContext {
    /// The cache from which decisions are made.
    pub cache: Arc<Cache>,
    /// Executes requests.
    pub authority: Arc<Authority>,
    /// Time and tasks.
    pub env: Env,
    /// What the controllers may do.
    pub mode: Mode,
    /// Records decisions.
    pub journal: Arc<Journal>,
    /// The present holds.
    pub holds: Arc<Holds>,
    /// The metrics of the work queues.
    pub queues: QueueMetrics,
}

/// The loop of one controller.
pub struct ControllerLoop<C: Controller> {
    controller: Arc<C>,
    context: ControllerContext,
    work_queue: Arc<WorkQueue<C::Key>>,
    queue: Queue,
    /// The pods whose dry-run record was written, if this controller does not write.
    announced: Mutex<BTreeSet<Uid>>,
}

impl<C: Controller> Debug for ControllerLoop<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerLoop").field("controller", &C::NAME).finish_non_exhaustive()
    }
}

/// Enqueues keys when the cache changes.
struct ChangeSubscriber<C: Controller> {
    controller: Arc<C>,
    work_queue: Arc<WorkQueue<C::Key>>,
    env: Env,
}

impl<C: Controller> Subscriber for ChangeSubscriber<C> {
    fn on_change(&self, change: Change<'_>) {
        if matches!(change, Change::Listed(_)) || self.controller.affects_all(&change) {
            self.work_queue.enqueue_all();
        } else {
            self.controller.keys_for(&change, &mut |key| self.work_queue.enqueue(key, self.env.now()));
        }
    }
}

/// The completion handler of requests for one key of a controller.
struct KeyCompletion<C: Controller> {
    controller: Arc<C>,
    work_queue: Arc<WorkQueue<C::Key>>,
    queue: Queue,
    cache: Arc<Cache>,
    env: Env,
    key: C::Key,
}

impl<C: Controller> CompletionHandler for KeyCompletion<C> {
    fn controller(&self) -> &'static str {
        C::NAME
    }
    fn completed(&self, force: &ForceDeleteRequest, outcome: &ForceOutcome) {
        self.controller.completed(force, outcome);
    }
    fn update_completed(&self, update: &Update, outcome: &UpdateOutcome) {
        self.controller.update_completed(update, outcome, self.env.now());
    }
    /// A request may wait for long, and rests on more than the pod: for instance on its node.
    fn redecide(&self, delete: &GracefulDeleteRequest) -> Option<GracefulDeleteRequest> {
        let guard = self.cache.read();
        let decision = self.controller.decide(&self.key, &guard.view(), self.env.now());
        let mut deletes = decision.intents.iter().filter_map(Intent::as_delete);
        deletes.find(|redecided| redecided.pod.uid == delete.pod.uid).cloned()
    }
    fn delete_completed(&self, delete: &GracefulDeleteRequest, outcome: &DeleteOutcome, at: Mono) {
        self.controller.delete_completed(delete, outcome, at);
    }
    fn wake_at(&self, when: Mono) {
        self.queue.retries.inc();
        self.work_queue.enqueue_at(self.key.clone(), when);
    }
}

/// The result of a round.
enum Round {
    /// Not all kinds are listed yet.
    Unlisted,
    /// The queue was empty.
    Idle,
    /// Keys were decided.
    Decided,
    /// The maximum of keys was decided; the queue may have more.
    Full,
}

impl<C: Controller> ControllerLoop<C> {
    /// A loop that is subscribed to the cache from now on.
    #[must_use]
    pub fn new(controller: C, context: ControllerContext) -> Self {
        let queue = context.queues.for_controller(C::NAME);
        let (controller, work_queue) = (Arc::new(controller), Arc::new(WorkQueue::new(queue.clone())));
        let subscriber = ChangeSubscriber {
            controller: Arc::clone(&controller),
            work_queue: Arc::clone(&work_queue),
            env: context.env.clone(),
        };
        context.cache.subscribe(Arc::new(subscriber));
        work_queue.enqueue_all();
        Self { controller, context, work_queue, queue, announced: Mutex::default() }
    }

    /// Runs until `stop` is set. `leads` wakes up the loop when leadership is gained.
    pub async fn run(
        self,
        heartbeat: LoopHeartbeat,
        mut leads: watch::Receiver<bool>,
        mut stop: watch::Receiver<bool>,
    ) {
        let env = self.context.env.clone();
        let mut sweep = env.now() + SWEEP;
        loop {
            let now = env.now();
            heartbeat.record(now);
            if now >= sweep {
                sweep = now + SWEEP;
                self.tidy(now);
            }
            if leads.has_changed().unwrap_or(false) && *leads.borrow_and_update() {
                if self.acts() {
                    self.context.holds.emit_events_again(C::NAME);
                }
                self.work_queue.requeue_refused(now);
            }
            let pause = match self.round(now) {
                Round::Unlisted => Some(LISTING_POLL),
                Round::Decided => Some(COALESCE),
                Round::Full => Some(FULL_ROUND_PAUSE),
                Round::Idle => None,
            };
            let due = || sweep.min(now + HEARTBEAT_INTERVAL).min(self.work_queue.next_due().unwrap_or(sweep));
            let until = pause.map_or_else(due, |pause| now + pause);
            // A clone waits, so that the change is still unseen for the loop itself.
            let mut waiting = leads.clone();
            let leadership_gained = async {
                if waiting.changed().await.is_err() {
                    std::future::pending().await
                }
            };
            let work_added = async {
                if pause.is_some() {
                    std::future::pending().await
                } else {
                    futures::future::select(Box::pin(self.work_queue.wait_for_work()), Box::pin(leadership_gained))
                        .await
                }
            };
            let wait = env.timeout_at(
                until,
                futures::future::select(Box::pin(stop.wait_for(|stop| *stop)), Box::pin(work_added)),
            );
            if let Some(futures::future::Either::Left(_)) = wait.await {
                return;
            }
        }
    }

    fn acts(&self) -> bool {
        self.controller.acts_in(self.context.mode)
    }

    fn tidy(&self, now: Mono) {
        self.context.cache.prune(now);
        self.context.authority.tidy();
        let guard = self.context.cache.read();
        let view = guard.view();
        self.announced.lock().retain(|uid| view.pod(uid).is_some());
        self.work_queue.enqueue_all();
    }

    /// Decides enqueued keys.
    fn round(&self, now: Mono) -> Round {
        let (decisions, full) = {
            let guard = self.context.cache.read();
            let view = guard.view();
            if self.work_queue.take_enqueue_all(now) {
                self.controller.list_keys(&view, &mut |key| self.work_queue.enqueue(key, now));
            }
            let is_listed = |kind: &Kind| view.state(*kind).synced;
            let until = now + ROUND_TIMEOUT;
            let keys = std::iter::from_fn(|| self.work_queue.pop(now)).take(ROUND_KEYS);
            // A key whose kinds are not listed is dropped: the list enqueues all keys again.
            let keys = keys.filter(|key| self.controller.required_kinds(key).iter().all(is_listed));
            let (mut decisions, mut late) = (Vec::new(), false);
            for key in keys {
                decisions.push((self.decide(&key, &view, now), key));
                late = self.context.env.now() >= until;
                if late {
                    break;
                }
            }
            let full = late || decisions.len() == ROUND_KEYS;
            (decisions, full)
        };
        let round = match (decisions.is_empty(), self.all_listed()) {
            (false, _) if full => Round::Full,
            (false, _) => Round::Decided,
            (true, true) => Round::Idle,
            (true, false) => Round::Unlisted,
        };
        for (decision, key) in decisions {
            self.carry_out(key, decision, now);
        }
        round
    }

    fn decide(&self, key: &C::Key, view: &View<'_>, now: Mono) -> Decision<C::Hold> {
        let began = self.context.env.now();
        let decision = self.controller.decide(key, view, now);
        self.queue.worked.observe(self.context.env.now().since(began).as_secs_f64());
        decision
    }

    /// Whether every kind is listed. Kinds that cannot be listed become holds.
    fn all_listed(&self) -> bool {
        let mut all = true;
        for kind in C::KINDS.iter().copied() {
            let state = self.context.cache.read().view().state(kind).clone();
            all &= state.synced || state.unserved;
            let stuck = !state.synced && state.problem.is_some();
            let hold = stuck.then_some((Subject::Everything, C::Hold::from(FreshnessError::NotSynced { kind })));
            let holds = hold.into_iter().collect();
            self.context.holds.replace(
                C::NAME,
                kind.resource(),
                holds,
                &BTreeSet::new(),
                self.acts(),
                &self.context.env,
            );
        }
        all
    }

    fn carry_out(&self, key: C::Key, decision: Decision<C::Hold>, now: Mono) {
        let Decision { intents, holds, requeue_at: recheck_at } = decision;
        let text = format!("{key:?}");
        let deleted = intents.iter().filter_map(Intent::as_delete).map(|delete| delete.pod.uid.clone());
        let (deleted, name) = (deleted.collect(), C::NAME);
        self.context.holds.replace(name, &text, holds, &deleted, self.acts(), &self.context.env);
        if let Some(when) = recheck_at {
            self.work_queue.enqueue_at(key.clone(), when);
        }
        if intents.is_empty() {
            return;
        }
        let rest = DEFERRAL_PER_ACTION.saturating_mul(u32::try_from(intents.len()).unwrap_or(u32::MAX));
        self.work_queue.defer_until(key.clone(), now + rest.min(MAX_DEFERRAL));
        let handler = KeyCompletion {
            controller: Arc::clone(&self.controller),
            work_queue: Arc::clone(&self.work_queue),
            queue: self.queue.clone(),
            cache: Arc::clone(&self.context.cache),
            env: self.context.env.clone(),
            key: key.clone(),
        };
        let owner: Arc<dyn CompletionHandler> = Arc::new(handler);
        let acts = self.acts();
        for intent in intents {
            match intent {
                Intent::Force(force) if !acts => {
                    let message = format!("would verify and force delete: {:?}", force.claim);
                    self.record_dry_run(&force.pod, force.claim.node(), Action::WouldForceDelete, message);
                }
                Intent::Delete(delete) if !acts => {
                    let message = format!("would delete it gracefully: {}", delete.cause);
                    self.record_dry_run(&delete.pod, Some(delete.cause.node()), Action::WouldDelete, message);
                }
                Intent::Update(_)
                | Intent::Fence(_)
                | Intent::Monitor(_)
                | Intent::Remediate(_)
                | Intent::Review(_)
                    if !acts => {}
                intent => match self.context.authority.submit(intent, &owner) {
                    Submitted::Later(when) => self.work_queue.enqueue_at(key.clone(), when),
                    Submitted::NotLeading => self.work_queue.set_refused(key.clone()),
                    Submitted::Accepted => {}
                },
            }
        }
    }

    /// Records once what the controller would do.
    fn record_dry_run(&self, pod: &PodKey, node: Option<&Arc<str>>, action: Action, message: String) {
        if !self.announced.lock().insert(pod.uid.clone()) {
            return;
        }
        let reason = match self.context.mode {
            Mode::Observe => "ObserveMode",
            Mode::Guard => "GuardMode",
            Mode::Replace => "ReplaceMode",
        };
        self.context.journal.write(Record {
            at: self.context.env.clock.wall(),
            controller: C::NAME,
            action,
            pod: Some(pod.clone()),
            budget: None,
            node: node.cloned(),
            node_uid: None,
            reason,
            message,
        });
    }
}

#[cfg(test)]
mod tests;
