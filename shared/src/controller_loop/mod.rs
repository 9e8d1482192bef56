//! The one loop: dirty keys, deadlines and sweeps become decisions; decisions
//! become acts, holds and records.
//!
//! A wake-up carries no facts. An event marks a key, a deadline marks a key, a
//! sweep marks all of them, and what follows is the same `decide`. Nothing here
//! retries: whoever decides again is the retry.

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
    Authority, CompletionHandler, ForceDeleteRequest, GracefulDeleteRequest, Intent, Outcome, Submitted,
    Update,
};
use crate::cache::{Cache, Change, FreshnessError, Subscriber, View};
use crate::clock::{Env, Mono};
use crate::metrics::{Queue, QueueMetrics};
use crate::model::{Kind, PodKey, Uid};
use crate::record::{Action, Journal, Record};

/// How often everything is decided anew, to repair what a lost event left.
const SWEEP: Duration = Duration::from_secs(300);

/// After a round the next one waits this long, so that the thirty events of one
/// node are one decision and not thirty.
const COALESCE: Duration = Duration::from_millis(10);

/// The pause after a round that left keys over. A new leader decides about all nodes, and 130,000 nodes are a thousand rounds; watches write
/// to the cache in between.
const FULL_ROUND_PAUSE: Duration = Duration::from_millis(1);

/// A key that asked for pods rests this long for each of them: they leave one by
/// one, and each that does would have all the others decided again. The authority
/// carries out about one in this time.
const REST_PER_ACTION: Duration = Duration::from_millis(1);
/// The longest rest: what people do meanwhile must not wait.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Before everything is listed, this is how often the loop looks whether it is:
/// the first list marks a key for every pod.
const LISTING_POLL: Duration = Duration::from_millis(100);

/// How many keys are decided while the cache is locked for reading.
const ROUND_KEYS: usize = 128;

/// So long the cache is locked for reading at most, and a decision: heartbeats wait meanwhile, and a budget may choose
/// thousands of pods.
const ROUND_TIMEOUT: Duration = Duration::from_millis(5);

/// The loop shows at least this often that it is alive.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(20);

/// A controller: what wakes it, and what it decides. It has no client, no clock
/// and no memory of its own that decisions rest on, but metrics.
pub trait Controller: Send + Sync + 'static {
    /// What it decides about.
    type Key: Ord + Clone + Debug + Send + Sync + 'static;

    /// Why it does nothing about it.
    type Hold: HoldReason;

    /// Its name in logs, metrics and records.
    const NAME: &'static str;

    /// The kinds that must have been listed before it decides anything.
    const KINDS: &'static [Kind];

    /// The kinds that must have been listed before this key is decided: some of
    /// [`Controller::KINDS`]. One that cannot be listed must not stop the others.
    fn required_kinds(&self, _key: &Self::Key) -> &'static [Kind] {
        Self::KINDS
    }

    /// Marks the keys that `change` may affect.
    fn keys_for(&self, change: &Change<'_>, enqueue: &mut dyn FnMut(Self::Key));

    /// Whether `change` may affect any key: then all are marked, and [`Controller::keys_for`] is not asked.
    fn affects_all(&self, _change: &Change<'_>) -> bool {
        false
    }

    /// Marks every key that there is.
    fn list_keys(&self, view: &View<'_>, enqueue: &mut dyn FnMut(Self::Key));

    /// Decides. The same view, time and configuration give the same decision; metrics may be set beside it.
    fn decide(&self, key: &Self::Key, view: &View<'_>, now: Mono) -> Decision<Self::Hold>;

    /// Whether it writes in this mode. Where it does not, it decides and reports:
    /// nobody else is in the way then.
    fn acts_in(&self, mode: Mode) -> bool {
        mode != Mode::Observe
    }

    /// The authority ended an intent of this controller.
    fn completed(&self, _force: &ForceDeleteRequest, _outcome: &Outcome) {}

    /// A status that this controller calculated was written at this moment, or not.
    fn update_completed(&self, _update: &Update, _outcome: &Outcome, _at: Mono) {}

    /// A pod that this controller wants to end was asked to at this moment, or not.
    fn delete_completed(&self, _delete: &GracefulDeleteRequest, _outcome: &Outcome, _at: Mono) {}
}

/// What a loop works with.
#[derive(Clone, Debug)]
pub struct ControllerContext {
    /// What decisions see.
    pub cache: Arc<Cache>,
    /// Who acts.
    pub authority: Arc<Authority>,
    /// Time and tasks.
    pub env: Env,
    /// Whether anything is done at all.
    pub mode: Mode,
    /// Where decisions are written down.
    pub journal: Arc<Journal>,
    /// What is held now, for people and metrics.
    pub holds: Arc<Holds>,
    /// The queues' metrics.
    pub queues: QueueMetrics,
}

/// The loop of one controller.
pub struct ControllerLoop<C: Controller> {
    controller: Arc<C>,
    context: ControllerContext,
    work_queue: Arc<WorkQueue<C::Key>>,
    queue: Queue,
    /// Where this controller does not act: of which pods it said so.
    announced: Mutex<BTreeSet<Uid>>,
}

impl<C: Controller> Debug for ControllerLoop<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drive").field("controller", &C::NAME).finish_non_exhaustive()
    }
}

/// Marks keys when the cache changes.
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

/// Who asked for an intent: a key of a controller.
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
    fn completed(&self, force: &ForceDeleteRequest, outcome: &Outcome) {
        self.controller.completed(force, outcome);
    }
    fn update_completed(&self, update: &Update, outcome: &Outcome) {
        self.controller.update_completed(update, outcome, self.env.now());
    }
    /// A wish may wait for long, and rests on more than the pod: on its node, say.
    fn redecide(&self, delete: &GracefulDeleteRequest) -> Option<GracefulDeleteRequest> {
        let guard = self.cache.read();
        let decision = self.controller.decide(&self.key, &guard.view(), self.env.now());
        decision.intents.into_iter().find_map(|intent| match intent {
            Intent::Delete(redecided) => Some(redecided).filter(|anew| anew.pod.uid == delete.pod.uid),
            Intent::ReadMissingNode { .. }
            | Intent::Force(_)
            | Intent::Update(_)
            | Intent::Scale { .. }
            | Intent::Fence(_)
            | Intent::Monitor(_)
            | Intent::Remediate(_)
            | Intent::Review(_) => None,
        })
    }
    fn delete_completed(&self, delete: &GracefulDeleteRequest, outcome: &Outcome, at: Mono) {
        self.controller.delete_completed(delete, outcome, at);
    }
    fn wake_at(&self, when: Mono) {
        self.queue.retries.inc();
        self.work_queue.enqueue_at(self.key.clone(), when);
    }
}

/// What a round came to.
enum Round {
    /// Not everything was listed yet.
    Unlisted,
    /// Nothing was dirty.
    Idle,
    /// Something was decided.
    Decided,
    /// As much was decided as a round takes; there may be more.
    Full,
}

impl<C: Controller> ControllerLoop<C> {
    /// A loop that listens from now on.
    #[must_use]
    pub fn new(controller: C, context: ControllerContext) -> Self {
        let queue = context.queues.for_controller(C::NAME);
        let (controller, work_queue) = (Arc::new(controller), Arc::new(WorkQueue::new(queue.clone())));
        let marker = ChangeSubscriber {
            controller: Arc::clone(&controller),
            work_queue: Arc::clone(&work_queue),
            env: context.env.clone(),
        };
        context.cache.subscribe(Arc::new(marker));
        work_queue.enqueue_all();
        Self { controller, context, work_queue, queue, announced: Mutex::default() }
    }

    /// Runs until `stop` is set. `leads` wakes the loop when leadership is gained.
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
            // A copy waits, so that the change is still news to the loop.
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
                    futures::future::select(
                        Box::pin(self.work_queue.wait_for_work()),
                        Box::pin(leadership_gained),
                    )
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

    /// Decides what is dirty.
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
            // What waits for a list is marked again when that is there.
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

    /// Whether every kind was listed. Shows those that cannot be.
    fn all_listed(&self) -> bool {
        let mut all = true;
        for kind in C::KINDS.iter().copied() {
            let state = self.context.cache.read().view().state(kind).clone();
            all &= state.synced || state.unserved;
            let stuck = !state.synced && state.problem.is_some();
            let hold =
                stuck.then_some((Subject::Everything, C::Hold::from(FreshnessError::NotSynced { kind })));
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
        let deleted = intents.iter().filter_map(|intent| match intent {
            Intent::Delete(delete) => Some(delete.pod.uid.clone()),
            Intent::ReadMissingNode { .. }
            | Intent::Force(_)
            | Intent::Update(_)
            | Intent::Scale { .. }
            | Intent::Fence(_)
            | Intent::Monitor(_)
            | Intent::Remediate(_)
            | Intent::Review(_) => None,
        });
        let (deleted, name) = (deleted.collect(), C::NAME);
        self.context.holds.replace(name, &text, holds, &deleted, self.acts(), &self.context.env);
        if let Some(when) = recheck_at {
            self.work_queue.enqueue_at(key.clone(), when);
        }
        if intents.is_empty() {
            return;
        }
        let rest = REST_PER_ACTION.saturating_mul(u32::try_from(intents.len()).unwrap_or(u32::MAX));
        self.work_queue.defer_until(key.clone(), now + rest.min(LONGEST_REST));
        let asker = KeyCompletion {
            controller: Arc::clone(&self.controller),
            work_queue: Arc::clone(&self.work_queue),
            queue: self.queue.clone(),
            cache: Arc::clone(&self.context.cache),
            env: self.context.env.clone(),
            key: key.clone(),
        };
        let owner: Arc<dyn CompletionHandler> = Arc::new(asker);
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

    /// Says once what would have been done.
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
