//! The turn of a status: one write of each object at a time, and what is written
//! is what was calculated last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::act::Outcome;
use super::super::ledger::{Admission, Ledger};
use super::super::update::{Update, write};
use super::{Authority, Class, Owner, Submitted, WITNESS_AGAIN, Work, wished_pause};
use crate::clock::Mono;
use crate::model::{BudgetStatus, Uid};
use crate::record::error_chain;

/// Statuses that wait or are being written.
#[derive(Default)]
pub(super) struct Updates {
    /// Those that wait for their turn, as calculated last.
    waiting: BTreeMap<Uid, (Update, Arc<dyn Owner>)>,
    /// Apart from that of force deletions: the same pod may have both, and one that
    /// is turned away for the other's sake would not be woken.
    ledger: Ledger,
}

impl Updates {
    /// It will not be written by this process.
    pub(super) fn forget(&mut self, uid: &Uid) {
        self.waiting.remove(uid);
        self.ledger.released(uid);
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
        let uid = update.uid().clone();
        if let Some(waiting) = state.updates.waiting.get_mut(&uid) {
            *waiting = (update, Arc::clone(owner));
            return Submitted::Accepted;
        }
        match state.updates.ledger.admit(&uid, update.rv(), now) {
            Admission::Busy => return Submitted::Accepted,
            Admission::Paused(until) => return Submitted::Later(until),
            Admission::Admitted => {}
        }
        let lane = Arc::clone(update.namespace());
        if state.queue.push(Class::Update, &lane, Work::Update { uid: uid.clone() }).is_err() {
            state.updates.ledger.released(&uid);
            return Submitted::Later(now + WITNESS_AGAIN);
        }
        state.updates.waiting.insert(uid, (update, Arc::clone(owner)));
        self.count(&state);
        Submitted::Accepted
    }

    pub(super) async fn update(&self, uid: &Uid) {
        let waiting = self.state.lock().updates.waiting.remove(uid);
        let Some((update, owner)) = waiting else { return };
        let outcome = write(&self.connection, &self.env, &self.leadership, &update).await;
        let now = self.env.now();
        let again = {
            let mut state = self.state.lock();
            // The watch may have brought the next version before this answer came.
            let asked_again = state.updates.ledger.asked_again(uid).then_some(now);
            match &outcome {
                Outcome::NotLeader => {
                    state.updates.ledger.released(uid);
                    None
                }
                Outcome::Failed(error) => {
                    let until = state.updates.ledger.failed(uid, update.rv(), wished_pause(error), now);
                    asked_again.or(Some(until))
                }
                // The watch has nothing to bring, or not surely (a conflict may be somebody's on
                // the way): who waits for it waits in vain.
                Outcome::NoEffect | Outcome::Changed => {
                    let until = state.updates.ledger.failed(uid, update.rv(), Duration::ZERO, now);
                    asked_again.or(Some(until))
                }
                // Otherwise it brings the version to decide from.
                Outcome::Written
                | Outcome::Ending
                | Outcome::Withdrawn
                | Outcome::Gone
                | Outcome::Expired
                | Outcome::Released(_)
                | Outcome::FinalizersRemain(_)
                | Outcome::Refused(_) => {
                    state.updates.ledger.written(uid, update.rv(), now);
                    asked_again
                }
            }
        };
        self.metrics.outcomes.with_label_values(&[outcome.name()]).inc();
        log_update(&update, &outcome, owner.controller());
        owner.updated(&update, &outcome);
        if let Some(again) = again {
            owner.wake_at(again);
        }
    }
}

fn log_update(update: &Update, outcome: &Outcome, controller: &'static str) {
    let (uid, namespace) = (update.uid(), update.namespace());
    match (update, outcome) {
        (_, Outcome::Failed(error)) => {
            tracing::warn!(controller, %uid, %namespace, error = %error_chain(error), "a status was not written; trying again");
        }
        (_, Outcome::NoEffect) => {
            tracing::warn!(controller, %uid, %namespace, "a status was taken and is as it was: an admission webhook or policy undoes it; trying again");
        }
        (Update::Budget { budget, status, .. }, Outcome::Written) => {
            let BudgetStatus { disruptions_allowed, current_healthy, desired_healthy, expected_pods, .. } =
                &**status;
            tracing::debug!(controller, %uid, %budget, disruptions_allowed, current_healthy, desired_healthy, expected_pods, "status written");
        }
        (Update::NotDisrupted { pod, .. }, Outcome::Written) => {
            tracing::info!(controller, %uid, %pod, "the pod was not disrupted after all: its condition DisruptionTarget is False");
        }
        _ => {
            tracing::debug!(controller, %uid, %namespace, outcome = outcome.name(), "a status was not written; deciding anew")
        }
    }
}
