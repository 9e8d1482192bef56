//! Executes force deletions: evidence, requests, Event and journal.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pod_safety_leader::outcome::RequestError::{Changed, Expired, Failed, Gone, NotLeader};
use pod_safety_leader::outcome::VerifyError;
use pod_safety_proof::{Claim, ClaimKind, ForceDeleteRequest, Refusal};

use super::super::act;
use super::super::outcome::ForceOutcome;
use super::super::retry_tracker::Admission;
use super::super::verify::{FORCE_DELETE_REFUSED, Verifier};
use super::{Authority, CompletionHandler, PriorityLevel, Submitted, Work, WorkerPool};
use crate::cache::CacheWriter as _;
use crate::clock::Mono;
use crate::events::{Event, EventType, InvolvedObject, Related, ReportingController};
use crate::model::{Pod, Rv};
use crate::record::{Action, Record, error_chain};

/// What a request rests on.
pub(super) type Basis = (Rv, Claim);

fn basis(force: &ForceDeleteRequest) -> Basis {
    (force.rv, force.claim.clone())
}

impl Authority {
    pub(super) fn submit_force(
        &self,
        force: ForceDeleteRequest,
        owner: &Arc<dyn CompletionHandler>,
        now: Mono,
    ) -> Submitted {
        if self.leadership.term(now).is_none() {
            return Submitted::NotLeading;
        }
        let keeps_identity = {
            let cache = self.cache.read();
            cache.view().pod(&force.pod.uid).is_some_and(Pod::keeps_identity)
        };
        let mut state = self.state.lock();
        match state.retries.admit(&force.pod.uid, &basis(&force), now) {
            Admission::Busy => return Submitted::Accepted,
            Admission::Paused(until) => return Submitted::Later(until),
            Admission::Admitted => {}
        }
        let kind = ClaimKind::from(&force.claim);
        let level = if keeps_identity { PriorityLevel::ForceOfIdentity(kind) } else { PriorityLevel::Force(kind) };
        let flow = Arc::clone(force.claim.node().unwrap_or(&force.pod.namespace));
        let (pool, uid) = (WorkerPool::for_force_delete(&force), force.pod.uid.clone());
        let work = Work::Force { force, owner: Arc::clone(owner) };
        if state.queue_for(pool).push(level, &flow, work).is_err() {
            state.retries.release(&uid);
            return Submitted::Later(now + state.drain.time_to_room());
        }
        self.set_queued(&state);
        Submitted::Accepted
    }

    pub(super) async fn force_delete(&self, verifier: &mut Verifier<'_>, force: &ForceDeleteRequest) -> ForceOutcome {
        let evidence = match verifier.verify(force).await {
            Ok(evidence) => evidence,
            Err(VerifyError::Refused(Refusal::PodChanged)) => return Changed.into(),
            Err(refusal) => return ForceOutcome::Refused(refusal),
        };
        // The volume guard must know it, also if another client removes the pod first.
        self.cache.record_proved_terminated(&force.pod.uid);
        // Evidence expires in seconds, so a force deletion after device checks does not wait for a write slot.
        let _busy = self.events.begin_writing();
        act::force_delete(&self.connection, &self.env, &self.leadership, evidence).await
    }

    pub(super) fn complete_force_delete(
        &self,
        force: &ForceDeleteRequest,
        outcome: &ForceOutcome,
        owner: &Arc<dyn CompletionHandler>,
    ) {
        let now = self.env.now();
        let uid = &force.pod.uid;
        let retry_at = {
            let mut state = self.state.lock();
            // A request that came meanwhile may have newer data.
            let requested_again = state.retries.was_requested_again(uid).then_some(now);
            match outcome {
                ForceOutcome::Released(_) | ForceOutcome::FinalizersRemain(_) | ForceOutcome::Error(Gone) => {
                    state.retries.settle(uid, now);
                    None
                }
                ForceOutcome::Error(NotLeader) => {
                    state.retries.release(uid);
                    None
                }
                ForceOutcome::Error(Changed | Expired) | ForceOutcome::Refused(_) => {
                    let until = state.retries.record_failure(uid, basis(force), Duration::ZERO, now);
                    requested_again.or(Some(until))
                }
                ForceOutcome::Error(Failed(error)) => {
                    let until = state.retries.record_failure(uid, basis(force), error.retry_after(), now);
                    requested_again.or(Some(until))
                }
            }
        };
        self.metrics.outcomes.with_label_values(&[outcome.name()]).inc();
        self.report(force, outcome, owner.controller());
        owner.completed(force, outcome);
        if let Some(retry_at) = retry_at {
            owner.wake_at(retry_at);
        }
    }

    fn report(&self, force: &ForceDeleteRequest, outcome: &ForceOutcome, controller: &'static str) {
        let (action, reason, message) = match outcome {
            ForceOutcome::Released(kind) | ForceOutcome::FinalizersRemain(kind) => {
                self.metrics.releases.with_label_values(&[kind.name()]).inc();
                (Action::ForceDeleted, kind.name(), kind.to_string())
            }
            ForceOutcome::Error(Gone) => (Action::Dropped, "Gone", "the pod was removed before that".to_owned()),
            ForceOutcome::Error(Changed) => {
                (Action::Dropped, "Changed", "the pod changed since the decision".to_owned())
            }
            ForceOutcome::Error(Expired) => {
                (Action::Dropped, "Expired", "the evidence expired before the act; it is gathered again".to_owned())
            }
            ForceOutcome::Error(NotLeader) => {
                (Action::Dropped, "NotLeader", "leadership was lost before the act".to_owned())
            }
            ForceOutcome::Refused(refusal) => {
                self.metrics.refusals.with_label_values(&[refusal.reason()]).inc();
                (Action::Refused, refusal.reason(), error_chain(refusal))
            }
            ForceOutcome::Error(Failed(error)) => (Action::Failed, error.category(), error_chain(error)),
        };
        self.emit_event(force, action, reason, &message);
        let node = force.claim.node().cloned();
        let at = self.env.clock.wall();
        self.journal.write(Record {
            at,
            controller,
            action,
            pod: Some(force.pod.clone()),
            budget: None,
            node,
            node_uid: None,
            reason,
            message,
        });
    }

    fn emit_event(&self, force: &ForceDeleteRequest, action: Action, code: &'static str, message: &str) {
        let (kind, reason) = match action {
            Action::ForceDeleted => (EventType::Normal, "ForceDeleted"),
            Action::Refused => (EventType::Warning, FORCE_DELETE_REFUSED),
            Action::Failed => (EventType::Warning, "ForceDeleteFailed"),
            Action::Held
            | Action::WouldForceDelete
            | Action::WouldDelete
            | Action::Deleted
            | Action::Marked
            | Action::Fenced
            | Action::Guarded
            | Action::Evicted
            | Action::Dropped => return,
        };
        let object = InvolvedObject::Pod(force.pod.clone());
        let code = matches!(action, Action::Refused).then_some(code);
        let event =
            Event { reporter: ReportingController::Own, object, kind, reason, code, message: message.to_owned() };
        let requested = force.requested.filter(|_| matches!(action, Action::ForceDeleted));
        let requested = requested.and_then(|at| Timestamp::from_second(at).ok());
        self.events.record_related(event, Related { node: force.claim.node().cloned(), requested });
    }
}
