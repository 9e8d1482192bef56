//! Executes graceful deletions. When the turn of a request comes, the controller decides again, the node is read by quorum,
//! and each pod has one PATCH and one DELETE in flight at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pod_safety_leader::outcome::READS_TOO_SLOW;
use pod_safety_leader::outcome::RequestError::{Changed, Expired, Failed, Gone, NotLeader};

use super::super::claim::DeleteCause;
use super::super::delete::{delete, event_and_reason};
use super::super::outcome::DeleteOutcome;
use super::super::retry_tracker::{Admission, RetryTracker};
use super::{Authority, CompletionHandler, GracefulDeleteRequest, PriorityLevel, Submitted, Work, WorkerPool};
use crate::cache::{self, Lookup};
use crate::client::{ApiError, Call};
use crate::clock::Mono;
use crate::events::{Event, EventType, InvolvedObject, ReportingController};
use crate::model::{Rv, Taint, Uid};
use crate::record::{Action, Record, error_chain};
use crate::wire;

/// How long the read of a node is valid for the pods of its turn. They take some milliseconds each; if the API server is
/// slow, the node is read again.
pub(super) const NODE_CHECK_VALID_FOR: Duration = Duration::from_secs(2);

/// Deletions that are queued or in flight.
#[derive(Default)]
pub(super) struct Deletions {
    /// Separate from the trackers of force deletions and statuses: a request that is rejected because of the other kind
    /// would not be retried.
    retries: RetryTracker,
    /// Other controllers that requested the same deletion meanwhile: the request in flight may be withdrawn where theirs
    /// would not be.
    superseded: BTreeMap<Uid, BTreeMap<&'static str, Arc<dyn CompletionHandler>>>,
}

impl Deletions {
    /// Removes a deletion that this process will not execute.
    pub(super) fn forget(&mut self, uid: &Uid) {
        self.superseded.remove(uid);
        self.retries.release(uid);
    }

    pub(super) fn tidy(&mut self, now: Mono) {
        self.retries.tidy(now);
    }
}

/// The node that a turn has read, when, and whether its UID and taints equal those in the cache.
#[derive(Default)]
pub(super) struct CheckedNode(Option<(Arc<str>, Mono, bool)>);

impl CheckedNode {
    /// The result of the last read of this node, if it is recent enough.
    fn remembered(&self, name: &Arc<str>, now: Mono) -> Option<bool> {
        let (of, at, same) = self.0.as_ref()?;
        (of == name && now.since(*at) < NODE_CHECK_VALID_FOR).then_some(*same)
    }
}

fn withdrawn(request: GracefulDeleteRequest) -> (GracefulDeleteRequest, (DeleteOutcome, Rv)) {
    let rv = request.rv;
    (request, (DeleteOutcome::Withdrawn, rv))
}

/// Whether the NoExecute taints are the same.
fn same_taints(live: &[Taint], cached: &[Taint]) -> bool {
    let names = |taint: &Taint| (Arc::clone(&taint.key), Arc::clone(&taint.value), taint.time_added);
    live.iter().map(names).eq(cached.iter().map(names))
}

impl Authority {
    pub(super) fn submit_delete(
        &self,
        delete: GracefulDeleteRequest,
        owner: &Arc<dyn CompletionHandler>,
        now: Mono,
    ) -> Submitted {
        if self.leadership.term(now).is_none() {
            return Submitted::NotLeading;
        }
        let mut state = self.state.lock();
        let uid = delete.pod.uid.clone();
        match state.deletions.retries.admit(&uid, &delete.rv, now) {
            Admission::Busy => {
                if state.deletions.retries.was_requested_again(&uid) {
                    let others = state.deletions.superseded.entry(uid).or_default();
                    others.insert(owner.controller(), Arc::clone(owner));
                }
                return Submitted::Accepted;
            }
            Admission::Paused(until) => return Submitted::Later(until),
            Admission::Admitted => {}
        }
        let flow = Arc::clone(delete.cause.node());
        let work = Work::Delete { delete, owner: Arc::clone(owner) };
        if state.queue_for(WorkerPool::Default).push(PriorityLevel::Delete, &flow, work).is_err() {
            state.deletions.retries.release(&uid);
            return Submitted::Later(now + state.drain.time_to_room());
        }
        self.set_queued(&state);
        Submitted::Accepted
    }

    pub(super) async fn delete(
        &self,
        request: GracefulDeleteRequest,
        owner: &Arc<dyn CompletionHandler>,
        checked_node: &mut CheckedNode,
    ) {
        let (request, (outcome, rv)) = match owner.redecide(&request) {
            Some(request) => self.carry_out(request, owner, checked_node).await,
            None => withdrawn(request),
        };
        let (uid, now) = (&request.pod.uid, self.env.now());
        let (retry_at, others) = {
            let Deletions { retries, superseded } = &mut self.state.lock().deletions;
            // A controller that was rejected meanwhile may have newer data.
            let requested_again = retries.was_requested_again(uid).then_some(now);
            let retry_at = match &outcome {
                DeleteOutcome::Ending | DeleteOutcome::Error(Gone) => {
                    retries.settle(uid, now);
                    None
                }
                DeleteOutcome::Withdrawn => {
                    retries.release(uid);
                    requested_again
                }
                DeleteOutcome::Error(Changed | Expired) => Some(retries.record_failure(uid, rv, Duration::ZERO, now)),
                DeleteOutcome::Error(Failed(error)) => Some(retries.record_failure(uid, rv, error.retry_after(), now)),
                DeleteOutcome::Error(NotLeader) => {
                    retries.release(uid);
                    None
                }
            };
            (retry_at, superseded.remove(uid).unwrap_or_default())
        };
        self.metrics.outcomes.with_label_values(&[outcome.name()]).inc();
        self.record_outcome(&request, &outcome, owner.controller());
        owner.delete_completed(&request, &outcome, now);
        if let Some(retry_at) = retry_at {
            owner.wake_at(retry_at);
            others.values().for_each(|other| other.wake_at(now));
        }
    }

    /// After the read of the node the controller decides once more: the taint may have been removed meanwhile, and then the
    /// read and the cache agree.
    async fn carry_out(
        &self,
        request: GracefulDeleteRequest,
        owner: &Arc<dyn CompletionHandler>,
        checked_node: &mut CheckedNode,
    ) -> (GracefulDeleteRequest, (DeleteOutcome, Rv)) {
        let rv = request.rv;
        let request = match checked_node.remembered(request.cause.node(), self.env.now()) {
            Some(true) => request,
            Some(false) => return (request, (Changed.into(), rv)),
            None => match self.matches_cache(&request.cause, checked_node).await {
                // An answer is as old as its request: it came late, or this process was suspended.
                Ok(_) if checked_node.remembered(request.cause.node(), self.env.now()).is_none() => {
                    return (request, (Expired.into(), rv));
                }
                Ok(true) => match owner.redecide(&request) {
                    Some(still) => still,
                    None => return withdrawn(request),
                },
                Ok(false) => return (request, (Changed.into(), rv)),
                Err(error) => return (request, (Failed(error).into(), rv)),
            },
        };
        let done = delete(&self.connection, &self.env, &self.leadership, &request).await;
        (request, done)
    }

    /// Whether a quorum read confirms that UID and taints of the node are as in the cache, or that the node does not exist.
    /// The cache may be behind, and a deletion cannot be undone.
    async fn matches_cache(&self, cause: &DeleteCause, checked_node: &mut CheckedNode) -> Result<bool, ApiError> {
        let (requested_at, name) = (self.env.now(), cause.node());
        let same = match self.connection.send(Call::get(format!("/api/v1/nodes/{name}"))).await {
            Ok(raw) => {
                let wire: wire::Node = raw.decode().map_err(ApiError::Undecodable)?;
                let live = cache::node_from_wire(wire, requested_at);
                let guard = self.cache.read();
                match (live, guard.view().node(name)) {
                    (Ok(live), Lookup::Known(cached)) => {
                        matches!(cause, DeleteCause::Taint { .. })
                            && live.uid == cached.uid
                            && same_taints(&live.no_execute, &cached.no_execute)
                    }
                    (Err(_), _) | (_, Lookup::Unknown(_) | Lookup::Absent) => false,
                }
            }
            Err(error) if error.is_not_found() => match cause {
                DeleteCause::Taint { .. } => false,
                DeleteCause::NodeGone { .. } => matches!(self.cache.read().view().node(name), Lookup::Absent),
            },
            Err(error) => return Err(error),
        };
        checked_node.0 = Some((Arc::clone(name), requested_at, same));
        Ok(same)
    }

    /// Emits an Event on the pod that its deletion waits.
    fn emit_warning(&self, request: &GracefulDeleteRequest, code: Option<&'static str>, message: String) {
        let reason = match &request.cause {
            DeleteCause::Taint { .. } => "TaintEvictionFailed",
            DeleteCause::NodeGone { .. } => "DeletionFailed",
        };
        let object = InvolvedObject::Pod(request.pod.clone());
        let (reporter, kind) = (ReportingController::Own, EventType::Warning);
        self.events.record(Event { reporter, object, kind, reason, code, message });
    }

    fn record_outcome(&self, request: &GracefulDeleteRequest, outcome: &DeleteOutcome, controller: &'static str) {
        let pod = &request.pod;
        let object = InvolvedObject::Pod(pod.clone());
        let (action, reason, message) = match outcome {
            DeleteOutcome::Ending => {
                let ((reporter, reason), recorded) = event_and_reason(&request.cause);
                let message = match &request.cause {
                    DeleteCause::Taint { .. } => format!("Marking for deletion Pod {pod}"),
                    DeleteCause::NodeGone { .. } => request.cause.to_string(),
                };
                self.events.record(Event::new(reporter, object, EventType::Normal, reason, message));
                (Action::Deleted, recorded, request.cause.to_string())
            }
            DeleteOutcome::Error(Failed(error)) => {
                let why = error_chain(error);
                self.emit_warning(request, None, format!("the deletion failed and is tried again: {why}"));
                (Action::Failed, error.category(), why)
            }
            DeleteOutcome::Error(Expired) => {
                let within = NODE_CHECK_VALID_FOR.as_secs();
                let why = format!(
                    "the node was read, but the answer took longer than {within}s, and the node may have changed since: tried again"
                );
                self.emit_warning(request, Some(READS_TOO_SLOW), why.clone());
                (Action::Failed, READS_TOO_SLOW, why)
            }
            DeleteOutcome::Error(Gone) => (Action::Dropped, "Gone", "the pod no longer exists".to_owned()),
            DeleteOutcome::Withdrawn => (Action::Dropped, "Withdrawn", "the deletion is no longer wanted".to_owned()),
            DeleteOutcome::Error(NotLeader) => {
                (Action::Dropped, "NotLeader", "leadership was lost before the act".to_owned())
            }
            DeleteOutcome::Error(Changed) => {
                (Action::Dropped, "Changed", "pod or node changed since the decision".to_owned())
            }
        };
        let (at, node) = (self.env.clock.wall(), Some(Arc::clone(request.cause.node())));
        let pod = Some(pod.clone());
        let (budget, node_uid) = (None, None);
        self.journal.write(Record { at, controller, action, pod, budget, node, node_uid, reason, message });
    }
}
