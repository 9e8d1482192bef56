//! The turn of a status: one write of each object at a time, and what is written
//! is what was calculated last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pod_safety_leader::outcome::Outcome;
use pod_safety_leader::send::WriteContext;

use super::super::node::NodeChanges;
use super::super::retry_tracker::{Admission, RetryTracker};
use super::super::update::{Basis, FinishedObject, Update, UpdateKind, write};
use super::super::verify::Verifier;
use super::{Authority, CompletionHandler, PriorityLevel, Submitted, Work, WorkerPool};
use crate::clock::Mono;
use crate::model::{BudgetStatus, Uid};
use crate::record::{LogEvent, error_chain};

/// A node that was heard of meanwhile is not asked about before this. What was heard is some seconds old at most, and
/// the next grace counts from there, so that nobody is found late by it; and the watch has that long to catch up.
pub(super) const REPORTED_RETRY: Duration = Duration::from_secs(5);

/// Statuses that wait or are being written.
#[derive(Default)]
pub(super) struct Updates {
    /// Those that wait for their turn, as calculated last.
    waiting: BTreeMap<Uid, (Update, Arc<dyn CompletionHandler>)>,
    /// Those that are being written.
    under_way: BTreeMap<Uid, UpdateKind>,
    /// Who wanted another kind of update of the same object, and gave way to it.
    superseded: BTreeMap<Uid, BTreeMap<UpdateKind, Arc<dyn CompletionHandler>>>,
    /// Apart from that of force deletions: the same pod may have both, and one that
    /// is turned away for the other's sake would not be woken.
    retries: RetryTracker<Basis>,
}

impl Updates {
    /// It will not be written by this process.
    pub(super) fn forget(&mut self, uid: &Uid) {
        self.waiting.remove(uid);
        self.superseded.remove(uid);
        self.retries.release(uid);
    }

    /// Takes the place of what waits for its turn; gives back what has to be queued.
    fn replace(&mut self, update: Update, owner: &Arc<dyn CompletionHandler>) -> Option<Update> {
        let uid = update.uid().clone();
        let Some(waiting) = self.waiting.get_mut(&uid) else { return Some(update) };
        let (before, handler) = std::mem::replace(waiting, (update, Arc::clone(owner)));
        if before.kind() != waiting.0.kind() {
            self.superseded.entry(uid).or_default().insert(before.kind(), handler);
        }
        None
    }

    /// Its turn has come.
    fn begin(&mut self, uid: &Uid) -> Option<(Update, Arc<dyn CompletionHandler>)> {
        let begun = self.waiting.remove(uid)?;
        self.under_way.insert(uid.clone(), begun.0.kind());
        Some(begun)
    }

    /// It wants what has to wait for an update of another kind, and is woken after that.
    fn supersede(&mut self, uid: &Uid, kind: UpdateKind, owner: &Arc<dyn CompletionHandler>) {
        if self.under_way.get(uid).is_some_and(|under_way| *under_way != kind) {
            self.superseded.entry(uid.clone()).or_default().insert(kind, Arc::clone(owner));
        }
    }

    /// It is over; gives back who gave way to it.
    fn end(&mut self, uid: &Uid) -> Vec<Arc<dyn CompletionHandler>> {
        self.under_way.remove(uid);
        self.superseded.remove(uid).into_iter().flat_map(BTreeMap::into_values).collect()
    }

    pub(super) fn tidy(&mut self, now: Mono) {
        self.retries.tidy(now);
    }
}

impl Authority {
    pub(super) fn submit_update(
        &self,
        update: Update,
        owner: &Arc<dyn CompletionHandler>,
        now: Mono,
    ) -> Submitted {
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
        let (flow, work) = (Arc::clone(update.flow()), Work::Update { uid: uid.clone() });
        let level = match update.kind() {
            UpdateKind::Node => PriorityLevel::Node,
            UpdateKind::PodOfLostNode => PriorityLevel::PodOfLostNode,
            UpdateKind::Eviction => PriorityLevel::Eviction,
            UpdateKind::Budget
            | UpdateKind::NotDisrupted
            | UpdateKind::Volume
            | UpdateKind::Ungate
            | UpdateKind::DeleteFinished => PriorityLevel::Update,
        };
        if state.queue_for(WorkerPool::for_update(&update)).push(level, &flow, work).is_err() {
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
        let (outcome, done) = write(&writer, verifier, &self.evictions, &update).await;
        let now = self.env.now();
        let (again, others) = {
            let mut state = self.state.lock();
            let others = state.updates.end(uid);
            // The watch may have brought the next version before this answer came.
            let requested_again = state.updates.retries.was_requested_again(uid).then_some(now);
            let again = match &outcome {
                Outcome::NotLeader => {
                    state.updates.retries.release(uid);
                    None
                }
                Outcome::Failed(error) => {
                    let until =
                        state.updates.retries.record_failure(uid, update.basis(), error.retry_after(), now);
                    requested_again.or(Some(until))
                }
                // The watch has nothing to bring, or not surely (a conflict may be somebody's on
                // the way): who waits for it waits in vain.
                Outcome::NoEffect | Outcome::Changed => {
                    let until =
                        state.updates.retries.record_failure(uid, update.basis(), Duration::ZERO, now);
                    requested_again.or(Some(until))
                }
                // Nothing that the watch brings need follow: what was looked for elsewhere may be there later.
                Outcome::Refused(_) | Outcome::Expired if matches!(update, Update::Volume(_)) => {
                    let until =
                        state.updates.retries.record_failure(uid, update.basis(), Duration::ZERO, now);
                    requested_again.or(Some(until))
                }
                // What was heard need not be what the watch brings: heartbeats wake nobody.
                Outcome::Heard => {
                    let until = state.updates.retries.pause(uid, update.basis(), REPORTED_RETRY, now);
                    requested_again.or(Some(until))
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
                    state.updates.retries.record_written(uid, update.basis(), now);
                    requested_again
                }
            };
            (again, others)
        };
        self.metrics.outcomes.with_label_values(&[outcome.name()]).inc();
        self.record_update(&update, &outcome, &done, owner.controller());
        owner.update_completed(&update, &outcome);
        if let Some(again) = again {
            owner.wake_at(again);
        }
        // Whoever leads decides.
        if !matches!(outcome, Outcome::NotLeader) {
            others.iter().for_each(|other| other.wake_at(now));
        }
    }

    fn record_update(
        &self,
        update: &Update,
        outcome: &Outcome,
        done: &NodeChanges,
        controller: &'static str,
    ) {
        log_update(update, outcome, controller);
        match update {
            Update::Node(update) => self.record_node_update(update, outcome, done, controller),
            Update::PodOfLostNode { pod, not_ready, .. } if matches!(outcome, Outcome::Written) => {
                self.record_pod_not_ready(pod, *not_ready);
            }
            Update::Volume(update) => self.record_volume_update(update, outcome, &done.evidence, controller),
            Update::Eviction(update) => self.record_eviction(update, outcome, &done.message, controller),
            Update::Budget { .. }
            | Update::PodOfLostNode { .. }
            | Update::NotDisrupted { .. }
            | Update::DeleteFinished(_)
            | Update::Ungate { .. } => {}
        }
    }
}

pub(super) fn log_update(update: &Update, outcome: &Outcome, controller: &'static str) {
    let (uid, flow) = (update.uid(), update.flow());
    match (update, outcome) {
        // The journal has that line.
        (Update::Node(_), Outcome::Written | Outcome::Failed(_)) => {}
        (Update::Volume(_) | Update::Eviction(_), _) => {}
        (_, Outcome::Failed(error)) => {
            tracing::warn!(controller, %uid, of = %flow, error = %error_chain(error), "a status was not written; trying again");
        }
        (Update::Node(_), Outcome::NoEffect) => {
            tracing::warn!(controller, %uid, node = %flow, "an update of a node had no effect: the node is already as wanted, or an admission webhook or policy reverts it; trying again");
        }
        (_, Outcome::NoEffect) => {
            tracing::warn!(controller, %uid, of = %flow, "an update of a status had no effect: an admission webhook or policy reverts it; trying again");
        }
        (Update::Node(_), Outcome::Heard) => {
            tracing::warn!(controller, %uid, node = %flow, "the kubelet reported meanwhile, so nothing was written: this process sees stale Nodes or Leases");
        }
        (Update::Budget { budget, status, .. }, Outcome::Written) => {
            let BudgetStatus { disruptions_allowed, current_healthy, desired_healthy, expected_pods, .. } =
                &**status;
            tracing::debug!(controller, %uid, %budget, disruptions_allowed, current_healthy, desired_healthy, expected_pods, "status written");
        }
        (Update::Ungate { pod, pin, .. }, Outcome::Written) => {
            tracing::info!(event = LogEvent::PodUngated.name(), controller, %uid, %pod, pin = pin.as_deref(), "the pod's exclusive volumes are free: it may be scheduled");
        }
        (Update::DeleteFinished(FinishedObject { kind, node, name, .. }), Outcome::Written) => {
            tracing::info!(event = LogEvent::HistoryDeleted.name(), controller, %uid, resource = kind.resource(), %name, %node, "deleted: it is over, nothing depends on it, and its time in --fencing-history has passed");
        }
        (Update::NotDisrupted { pod, .. }, Outcome::Written) => {
            tracing::info!(event = LogEvent::DisruptionTargetCleared.name(), controller, %uid, %pod, "the pod was not disrupted after all: its condition DisruptionTarget is False");
        }
        (Update::PodOfLostNode { pod, not_ready, unreachable, .. }, Outcome::Written) => {
            tracing::debug!(controller, %uid, %pod, not_ready, unreachable, "conditions of a pod written, because its node is not ready, or is ready again");
        }
        _ => {
            tracing::debug!(controller, %uid, of = %flow, outcome = outcome.name(), "a status was not written; deciding again")
        }
    }
}
