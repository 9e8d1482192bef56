//! The turn of a status: one write of each object at a time, and what is written
//! is what was calculated last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pod_safety_leader::outcome::Outcome;
use pod_safety_leader::send::Means;

use super::super::ledger::{Admission, Ledger};
use super::super::node::Done;
use super::super::update::{Basis, Past, Update, UpdateKind, write};
use super::super::verify::Verifier;
use super::{Authority, Class, Owner, Staff, Submitted, Work};
use crate::clock::Mono;
use crate::model::{BudgetStatus, Uid};
use crate::record::{LogEvent, error_chain};

/// A node that was heard of meanwhile is not asked about before this. What was heard is some seconds old at most, and
/// the next grace counts from there, so that nobody is found late by it; and the watch has that long to catch up.
pub(super) const HEARD_AGAIN: Duration = Duration::from_secs(5);

/// Statuses that wait or are being written.
#[derive(Default)]
pub(super) struct Updates {
    /// Those that wait for their turn, as calculated last.
    waiting: BTreeMap<Uid, (Update, Arc<dyn Owner>)>,
    /// Those that are being written.
    under_way: BTreeMap<Uid, UpdateKind>,
    /// Who wanted another kind of update of the same object, and gave way to it.
    gave_way: BTreeMap<Uid, BTreeMap<UpdateKind, Arc<dyn Owner>>>,
    /// Apart from that of force deletions: the same pod may have both, and one that
    /// is turned away for the other's sake would not be woken.
    ledger: Ledger<Basis>,
}

impl Updates {
    /// It will not be written by this process.
    pub(super) fn forget(&mut self, uid: &Uid) {
        self.waiting.remove(uid);
        self.gave_way.remove(uid);
        self.ledger.released(uid);
    }

    /// Takes the place of what waits for its turn; gives back what has to be queued.
    fn replace(&mut self, update: Update, owner: &Arc<dyn Owner>) -> Option<Update> {
        let uid = update.uid().clone();
        let Some(waiting) = self.waiting.get_mut(&uid) else { return Some(update) };
        let (before, whose) = std::mem::replace(waiting, (update, Arc::clone(owner)));
        if before.kind() != waiting.0.kind() {
            self.gave_way.entry(uid).or_default().insert(before.kind(), whose);
        }
        None
    }

    /// Its turn has come.
    fn begin(&mut self, uid: &Uid) -> Option<(Update, Arc<dyn Owner>)> {
        let begun = self.waiting.remove(uid)?;
        self.under_way.insert(uid.clone(), begun.0.kind());
        Some(begun)
    }

    /// It wants what has to wait for an update of another kind, and is woken after that.
    fn give_way(&mut self, uid: &Uid, kind: UpdateKind, owner: &Arc<dyn Owner>) {
        if self.under_way.get(uid).is_some_and(|under_way| *under_way != kind) {
            self.gave_way.entry(uid.clone()).or_default().insert(kind, Arc::clone(owner));
        }
    }

    /// It is over; gives back who gave way to it.
    fn end(&mut self, uid: &Uid) -> Vec<Arc<dyn Owner>> {
        self.under_way.remove(uid);
        self.gave_way.remove(uid).into_iter().flat_map(BTreeMap::into_values).collect()
    }

    pub(super) fn tidy(&mut self, now: Mono) {
        self.ledger.tidy(now);
    }
}

impl Authority {
    pub(super) fn submit_update(&self, update: Update, owner: &Arc<dyn Owner>, now: Mono) -> Submitted {
        if self.leadership.term(now).is_none() {
            return Submitted::NotLeading;
        }
        let mut state = self.state.lock();
        let Some(update) = state.updates.replace(update, owner) else { return Submitted::Accepted };
        let uid = update.uid().clone();
        match state.updates.ledger.admit(&uid, &update.basis(), now) {
            Admission::Busy => {
                state.updates.give_way(&uid, update.kind(), owner);
                return Submitted::Accepted;
            }
            Admission::Paused(until) => return Submitted::Later(until),
            Admission::Admitted => {}
        }
        let (lane, work) = (Arc::clone(update.lane()), Work::Update { uid: uid.clone() });
        let class = match update.kind() {
            UpdateKind::Node => Class::Node,
            UpdateKind::PodOfLostNode => Class::PodOfLostNode,
            UpdateKind::Eviction => Class::Eviction,
            UpdateKind::Budget
            | UpdateKind::NotDisrupted
            | UpdateKind::Volume
            | UpdateKind::Ungate
            | UpdateKind::Forget => Class::Update,
        };
        if state.queue_of(Staff::of_update(&update)).push(class, &lane, work).is_err() {
            state.updates.ledger.released(&uid);
            return Submitted::Later(now + state.drain.room_in());
        }
        state.updates.waiting.insert(uid, (update, Arc::clone(owner)));
        self.count(&state);
        Submitted::Accepted
    }

    pub(super) async fn update(&self, verifier: &mut Verifier<'_>, uid: &Uid) {
        let Some((update, owner)) = self.state.lock().updates.begin(uid) else { return };
        let Self { connection, cache, env, leadership, .. } = self;
        let means = Means { connection, cache, env, leadership };
        let (outcome, done) = write(&means, verifier, &self.evictions, &update).await;
        let now = self.env.now();
        let (again, others) = {
            let mut state = self.state.lock();
            let others = state.updates.end(uid);
            // The watch may have brought the next version before this answer came.
            let asked_again = state.updates.ledger.asked_again(uid).then_some(now);
            let again = match &outcome {
                Outcome::NotLeader => {
                    state.updates.ledger.released(uid);
                    None
                }
                Outcome::Failed(error) => {
                    let until = state.updates.ledger.failed(uid, update.basis(), error.pause(), now);
                    asked_again.or(Some(until))
                }
                // The watch has nothing to bring, or not surely (a conflict may be somebody's on
                // the way): who waits for it waits in vain.
                Outcome::NoEffect | Outcome::Changed => {
                    let until = state.updates.ledger.failed(uid, update.basis(), Duration::ZERO, now);
                    asked_again.or(Some(until))
                }
                // Nothing that the watch brings need follow: what was looked for elsewhere may be there later.
                Outcome::Refused(_) | Outcome::Expired if matches!(update, Update::Volume(_)) => {
                    let until = state.updates.ledger.failed(uid, update.basis(), Duration::ZERO, now);
                    asked_again.or(Some(until))
                }
                // What was heard need not be what the watch brings: heartbeats wake nobody.
                Outcome::Heard => {
                    let until = state.updates.ledger.rested(uid, update.basis(), HEARD_AGAIN, now);
                    asked_again.or(Some(until))
                }
                // Otherwise it brings the version to decide from.
                Outcome::Written
                | Outcome::Ending
                | Outcome::Withdrawn
                | Outcome::NotReady(_)
                | Outcome::Gone
                | Outcome::Expired
                | Outcome::Released(_)
                | Outcome::FinalizersRemain(_)
                | Outcome::Refused(_) => {
                    state.updates.ledger.written(uid, update.basis(), now);
                    asked_again
                }
            };
            (again, others)
        };
        self.metrics.outcomes.with_label_values(&[outcome.name()]).inc();
        self.tell_update(&update, &outcome, &done, owner.controller());
        owner.updated(&update, &outcome);
        if let Some(again) = again {
            owner.wake_at(again);
        }
        // Whoever leads decides.
        if !matches!(outcome, Outcome::NotLeader) {
            others.iter().for_each(|other| other.wake_at(now));
        }
    }

    fn tell_update(&self, update: &Update, outcome: &Outcome, done: &Done, controller: &'static str) {
        log_update(update, outcome, controller);
        match update {
            Update::Node(update) => self.tell_node(update, outcome, done, controller),
            Update::PodOfLostNode { pod, not_ready, .. } if matches!(outcome, Outcome::Written) => {
                self.tell_pod_of_lost_node(pod, *not_ready);
            }
            Update::Volume(update) => self.tell_volume(update, outcome, &done.found, controller),
            Update::Eviction(update) => self.tell_eviction(update, outcome, &done.said, controller),
            Update::Budget { .. }
            | Update::PodOfLostNode { .. }
            | Update::NotDisrupted { .. }
            | Update::Forget(_)
            | Update::Ungate { .. } => {}
        }
    }
}

pub(super) fn log_update(update: &Update, outcome: &Outcome, controller: &'static str) {
    let (uid, lane) = (update.uid(), update.lane());
    match (update, outcome) {
        // The journal has that line.
        (Update::Node(_), Outcome::Written | Outcome::Failed(_)) => {}
        (Update::Volume(_) | Update::Eviction(_), _) => {}
        (_, Outcome::Failed(error)) => {
            tracing::warn!(controller, %uid, of = %lane, error = %error_chain(error), "a status was not written; trying again");
        }
        (Update::Node(_), Outcome::NoEffect) => {
            tracing::warn!(controller, %uid, node = %lane, "an update of a node had no effect: the node is already as wanted, or an admission webhook or policy reverts it; trying again");
        }
        (_, Outcome::NoEffect) => {
            tracing::warn!(controller, %uid, of = %lane, "an update of a status had no effect: an admission webhook or policy reverts it; trying again");
        }
        (Update::Node(_), Outcome::Heard) => {
            tracing::warn!(controller, %uid, node = %lane, "the kubelet reported meanwhile, so nothing was written: this process sees stale Nodes or Leases");
        }
        (Update::Budget { budget, status, .. }, Outcome::Written) => {
            let BudgetStatus { disruptions_allowed, current_healthy, desired_healthy, expected_pods, .. } =
                &**status;
            tracing::debug!(controller, %uid, %budget, disruptions_allowed, current_healthy, desired_healthy, expected_pods, "status written");
        }
        (Update::Ungate { pod, pin, .. }, Outcome::Written) => {
            tracing::info!(event = LogEvent::PodUngated.name(), controller, %uid, %pod, pin = pin.as_deref(), "the pod's exclusive volumes are free: it may be scheduled");
        }
        (Update::Forget(Past { kind, node, name, .. }), Outcome::Written) => {
            tracing::info!(event = LogEvent::HistoryDeleted.name(), controller, %uid, resource = kind.resource(), %name, %node, "deleted: it is over, nothing depends on it, and its time in --fencing-history has passed");
        }
        (Update::NotDisrupted { pod, .. }, Outcome::Written) => {
            tracing::info!(event = LogEvent::DisruptionTargetCleared.name(), controller, %uid, %pod, "the pod was not disrupted after all: its condition DisruptionTarget is False");
        }
        (Update::PodOfLostNode { pod, not_ready, unreachable, .. }, Outcome::Written) => {
            tracing::debug!(controller, %uid, %pod, not_ready, unreachable, "conditions of a pod written, because its node is not ready, or is ready again");
        }
        _ => {
            tracing::debug!(controller, %uid, of = %lane, outcome = outcome.name(), "a status was not written; deciding again")
        }
    }
}
