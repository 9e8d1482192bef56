//! Executes status updates: one write of each object at a time, and what is written is the latest calculation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pod_safety_leader::outcome::RequestError;
use pod_safety_leader::send::WriteContext;

use super::super::outcome::UpdateOutcome;
use super::super::retry_tracker::{Admission, RetryTracker};
use super::super::status_write::{Records, UpdateTurn};
use super::super::update::{Basis, Update, UpdateKind};
use super::super::verify::Verifier;
use super::{Authority, CompletionHandler, Submitted, Work};
use crate::clock::Mono;
use crate::model::Uid;

/// A node that reported meanwhile is not read again before this. Its report is some seconds old at most, and the next grace
/// period starts there, so that no unreachable node is found late because of it; and the watch has this time to catch up.
pub(super) const REPORTED_RETRY: Duration = Duration::from_secs(5);

/// Updates that are queued or in flight.
#[derive(Default)]
pub(super) struct Updates {
    /// The queued updates, as calculated last.
    waiting: BTreeMap<Uid, (Update, Arc<dyn CompletionHandler>)>,
    /// The updates in flight.
    under_way: BTreeMap<Uid, UpdateKind>,
    /// Controllers whose update of the same object was replaced by one of another kind.
    superseded: BTreeMap<Uid, BTreeMap<UpdateKind, Arc<dyn CompletionHandler>>>,
    /// Separate from the tracker of force deletions: the same pod may have both, and a request that is rejected because of
    /// the other one would not be retried.
    retries: RetryTracker<Uid, Basis>,
}

impl Updates {
    /// Removes an update that this process will not execute.
    pub(super) fn forget(&mut self, uid: &Uid) {
        self.waiting.remove(uid);
        self.superseded.remove(uid);
        self.retries.release(uid);
    }

    /// Replaces a queued update of the same object; returns the update if none is queued.
    fn replace(&mut self, update: Update, owner: &Arc<dyn CompletionHandler>) -> Option<Update> {
        let uid = update.uid().clone();
        let Some(waiting) = self.waiting.get_mut(&uid) else { return Some(update) };
        let (before, handler) = std::mem::replace(waiting, (update, Arc::clone(owner)));
        if before.kind() != waiting.0.kind() {
            self.superseded.entry(uid).or_default().insert(before.kind(), handler);
        }
        None
    }

    /// Starts the queued update.
    fn begin(&mut self, uid: &Uid) -> Option<(Update, Arc<dyn CompletionHandler>)> {
        let begun = self.waiting.remove(uid)?;
        self.under_way.insert(uid.clone(), begun.0.kind());
        Some(begun)
    }

    /// Registers a controller whose update waits for one of another kind, so that it is woken up after that.
    fn supersede(&mut self, uid: &Uid, kind: UpdateKind, owner: &Arc<dyn CompletionHandler>) {
        if self.under_way.get(uid).is_some_and(|under_way| *under_way != kind) {
            self.superseded.entry(uid.clone()).or_default().insert(kind, Arc::clone(owner));
        }
    }

    /// The update completed. Returns the controllers that waited for it.
    fn end(&mut self, uid: &Uid) -> Vec<Arc<dyn CompletionHandler>> {
        self.under_way.remove(uid);
        self.superseded.remove(uid).into_iter().flat_map(BTreeMap::into_values).collect()
    }

    pub(super) fn tidy(&mut self, now: Mono) {
        self.retries.tidy(now);
    }
}

impl Authority {
    pub(super) fn submit_update(&self, update: Update, owner: &Arc<dyn CompletionHandler>, now: Mono) -> Submitted {
        if self.leadership.term(now).is_none() {
            return Submitted::NotLeading;
        }
        let mut state = self.state.lock();
        let Some(update) = state.updates.replace(update, owner) else { return Submitted::Accepted };
        let uid = update.uid().clone();
        match state.updates.retries.admit(&uid, &update.basis(), now) {
            Admission::Busy => {
                state.updates.supersede(&uid, update.kind(), owner);
                return Submitted::Accepted;
            }
            Admission::Paused(until) => return Submitted::Later(until),
            Admission::Admitted => {}
        }
        let (write, work) = (update.as_write(), Work::Update { uid: uid.clone() });
        if state.queue_for(write.pool()).push(write.level(), write.target().flow, work).is_err() {
            state.updates.retries.release(&uid);
            return Submitted::Later(now + state.drain.time_to_room());
        }
        state.updates.waiting.insert(uid, (update, Arc::clone(owner)));
        self.set_queued(&state);
        Submitted::Accepted
    }

    pub(super) async fn update(&self, verifier: &mut Verifier<'_>, uid: &Uid) {
        let Some((update, owner)) = self.state.lock().updates.begin(uid) else { return };
        let Self { connection, cache, env, leadership, .. } = self;
        let writer = WriteContext { connection, cache, env, leadership };
        let turn = UpdateTurn { writer: &writer, verifier, evictions: &self.evictions };
        let (outcome, done) = update.as_write().write(turn).await;
        let now = self.env.now();
        let (retry_at, others) = {
            let mut state = self.state.lock();
            let others = state.updates.end(uid);
            // The watch may have delivered the next version before this answer came.
            let requested_again = state.updates.retries.was_requested_again(uid).then_some(now);
            let retry_at = match &outcome {
                UpdateOutcome::Error(RequestError::NotLeader) => {
                    state.updates.retries.release(uid);
                    None
                }
                UpdateOutcome::Error(RequestError::Failed(error)) => {
                    let until = state.updates.retries.record_failure(uid, update.basis(), error.retry_after(), now);
                    requested_again.or(Some(until))
                }
                // The watch delivers nothing, or not for certain (the cause of a conflict may still be in flight): the
                // update is retried after a time.
                UpdateOutcome::NoEffect | UpdateOutcome::Error(RequestError::Changed) => {
                    let until = state.updates.retries.record_failure(uid, update.basis(), Duration::ZERO, now);
                    requested_again.or(Some(until))
                }
                // A volume's evidence rests on other objects, so no watch event need follow: it is retried after a time.
                UpdateOutcome::Refused(_) | UpdateOutcome::Error(RequestError::Expired) => {
                    let until = state.updates.retries.record_failure(uid, update.basis(), Duration::ZERO, now);
                    requested_again.or(Some(until))
                }
                // The watch need not deliver the report: heartbeats do not wake up controllers.
                UpdateOutcome::Heard => {
                    let until = state.updates.retries.pause(uid, update.basis(), REPORTED_RETRY, now);
                    requested_again.or(Some(until))
                }
                // In all other cases the watch delivers the version to decide from.
                UpdateOutcome::Written | UpdateOutcome::Error(RequestError::Gone) => {
                    state.updates.retries.record_written(uid, update.basis(), now);
                    requested_again
                }
            };
            (retry_at, others)
        };
        self.metrics.outcomes.with_label_values(&[outcome.name()]).inc();
        update.as_write().log(&outcome, owner.controller());
        let records = Records { events: &self.events, journal: &self.journal, at: self.env.clock.wall() };
        update.as_write().record(&records, &outcome, &done, owner.controller());
        owner.update_completed(&update, &outcome);
        if let Some(retry_at) = retry_at {
            owner.wake_at(retry_at);
        }
        // After leadership is lost, the new leader decides.
        if !matches!(outcome, UpdateOutcome::Error(RequestError::NotLeader)) {
            others.iter().for_each(|other| other.wake_at(now));
        }
    }
}
