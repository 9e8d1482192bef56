//! The turn of a graceful deletion: what was wished for is asked for anew, the node is
//! read once more, and one request pair goes out for each pod at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pod_safety_leader::outcome::{Outcome, READS_TOO_SLOW};

use super::super::claim::Cause;
use super::super::delete::{delete, told};
use super::super::ledger::{Admission, Ledger};
use super::{Authority, Class, Delete, Owner, Staff, Submitted, Work};
use crate::cache::{self, Lookup};
use crate::client::{ApiError, Call};
use crate::clock::Mono;
use crate::events::{About, Event, EventType, Speaker};
use crate::model::{Rv, Taint, Uid};
use crate::record::{Action, Record, error_chain};
use crate::wire;

/// How long the read of a node speaks for the pods of its turn. They need some
/// milliseconds each; a slow API server is asked again.
pub(super) const LOOK_LASTS: Duration = Duration::from_secs(2);

/// Deletions that wait or are being carried out.
#[derive(Default)]
pub(super) struct Deletions {
    /// Apart from those of force deletions and statuses: whoever is turned away for
    /// another's sake would not be woken.
    ledger: Ledger,
    /// Other controllers that wanted the same meanwhile: the wish under way may be withdrawn where theirs would not be.
    gave_way: BTreeMap<Uid, BTreeMap<&'static str, Arc<dyn Owner>>>,
}

impl Deletions {
    /// It will not be carried out by this process.
    pub(super) fn forget(&mut self, uid: &Uid) {
        self.gave_way.remove(uid);
        self.ledger.released(uid);
    }

    pub(super) fn tidy(&mut self, now: Mono) {
        self.ledger.tidy(now);
    }
}

/// The node that a turn has read, when, and whether it is as the cache has it.
#[derive(Default)]
pub(super) struct LookedAt(Option<(Arc<str>, Mono, bool)>);

impl LookedAt {
    /// What the last read said of this node, if that was just now.
    fn remembered(&self, name: &Arc<str>, now: Mono) -> Option<bool> {
        let (of, at, same) = self.0.as_ref()?;
        (of == name && now.since(*at) < LOOK_LASTS).then_some(*same)
    }
}

fn withdrawn(wished: Delete) -> (Delete, (Outcome, Rv)) {
    let rv = wished.rv;
    (wished, (Outcome::Withdrawn, rv))
}

/// Whether the taints that end pods are the same ones.
fn same_taints(live: &[Taint], known: &[Taint]) -> bool {
    let names = |taint: &Taint| (Arc::clone(&taint.key), Arc::clone(&taint.value), taint.time_added);
    live.iter().map(names).eq(known.iter().map(names))
}

impl Authority {
    pub(super) fn submit_delete(&self, delete: Delete, owner: &Arc<dyn Owner>, now: Mono) -> Submitted {
        if self.leadership.term(now).is_none() {
            return Submitted::NotLeading;
        }
        let mut state = self.state.lock();
        let uid = delete.pod.uid.clone();
        match state.deletions.ledger.admit(&uid, &delete.rv, now) {
            Admission::Busy => {
                if state.deletions.ledger.asked_again(&uid) {
                    let others = state.deletions.gave_way.entry(uid).or_default();
                    others.insert(owner.controller(), Arc::clone(owner));
                }
                return Submitted::Accepted;
            }
            Admission::Paused(until) => return Submitted::Later(until),
            Admission::Admitted => {}
        }
        let lane = Arc::clone(delete.cause.node());
        let work = Work::Delete { delete, owner: Arc::clone(owner) };
        if state.queue_of(Staff::Others).push(Class::Delete, &lane, work).is_err() {
            state.deletions.ledger.released(&uid);
            return Submitted::Later(now + state.drain.room_in());
        }
        self.count(&state);
        Submitted::Accepted
    }

    pub(super) async fn delete(&self, wished: Delete, owner: &Arc<dyn Owner>, looked_at: &mut LookedAt) {
        let (wished, (outcome, rv)) = match owner.anew(&wished) {
            Some(anew) => self.carry_out(anew, owner, looked_at).await,
            None => withdrawn(wished),
        };
        let (uid, now) = (&wished.pod.uid, self.env.now());
        let (again, others) = {
            let Deletions { ledger, gave_way } = &mut self.state.lock().deletions;
            // Whoever asked meanwhile was turned away, and may know more.
            let asked_again = ledger.asked_again(uid).then_some(now);
            let again = match &outcome {
                Outcome::Ending | Outcome::Gone => {
                    ledger.settled(uid, now);
                    None
                }
                Outcome::Withdrawn => {
                    ledger.released(uid);
                    asked_again
                }
                Outcome::Changed | Outcome::Expired => Some(ledger.failed(uid, rv, Duration::ZERO, now)),
                Outcome::Failed(error) => Some(ledger.failed(uid, rv, error.pause(), now)),
                Outcome::NotLeader
                | Outcome::Written
                | Outcome::NoEffect
                | Outcome::Heard
                | Outcome::NotReady(_)
                | Outcome::Refused(_)
                | Outcome::Released(_)
                | Outcome::FinalizersRemain(_) => {
                    ledger.released(uid);
                    None
                }
            };
            (again, gave_way.remove(uid).unwrap_or_default())
        };
        self.metrics.outcomes.with_label_values(&[outcome.name()]).inc();
        self.tell(&wished, &outcome, owner.controller());
        owner.deleted(&wished, &outcome, now);
        if let Some(again) = again {
            owner.wake_at(again);
            others.values().for_each(|other| other.wake_at(now));
        }
    }

    /// After a read of its node it is asked for once more: the taint may have gone
    /// meanwhile, and then the read and the cache agree that it has.
    async fn carry_out(
        &self,
        wished: Delete,
        owner: &Arc<dyn Owner>,
        looked_at: &mut LookedAt,
    ) -> (Delete, (Outcome, Rv)) {
        let rv = wished.rv;
        let wished = match looked_at.remembered(wished.cause.node(), self.env.now()) {
            Some(true) => wished,
            Some(false) => return (wished, (Outcome::Changed, rv)),
            None => match self.is_as_known(&wished.cause, looked_at).await {
                // An answer is as old as its question: it came late, or this process stood still.
                Ok(_) if looked_at.remembered(wished.cause.node(), self.env.now()).is_none() => {
                    return (wished, (Outcome::Expired, rv));
                }
                Ok(true) => match owner.anew(&wished) {
                    Some(still) => still,
                    None => return withdrawn(wished),
                },
                Ok(false) => return (wished, (Outcome::Changed, rv)),
                Err(error) => return (wished, (Outcome::Failed(error), rv)),
            },
        };
        let done = delete(&self.connection, &self.env, &self.leadership, &wished).await;
        (wished, done)
    }

    /// Whether a quorum read finds the node's identity and taints as the cache has
    /// them, or no node either: the cache may be behind, and a deletion cannot be taken back.
    async fn is_as_known(&self, cause: &Cause, looked_at: &mut LookedAt) -> Result<bool, ApiError> {
        let (asked, name) = (self.env.now(), cause.node());
        let same = match self.connection.send(Call::get(format!("/api/v1/nodes/{name}"))).await {
            Ok(raw) => {
                let wire: wire::Node = raw.decode().map_err(ApiError::Undecodable)?;
                let live = cache::node(wire, asked);
                let guard = self.cache.read();
                match (live, guard.view().node(name)) {
                    (Ok(live), Lookup::Known(known)) => {
                        matches!(cause, Cause::Taint { .. })
                            && live.uid == known.uid
                            && same_taints(&live.no_execute, &known.no_execute)
                    }
                    (Err(_), _) | (_, Lookup::Unknown(_) | Lookup::Absent) => false,
                }
            }
            Err(error) if error.is_not_found() => match cause {
                Cause::Taint { .. } => false,
                Cause::NodeGone { .. } => matches!(self.cache.read().view().node(name), Lookup::Absent),
            },
            Err(error) => return Err(error),
        };
        looked_at.0 = Some((Arc::clone(name), asked, same));
        Ok(same)
    }

    /// Tells people of the pod that its deletion waits.
    fn warn(&self, wished: &Delete, code: Option<&'static str>, message: String) {
        let reason = match &wished.cause {
            Cause::Taint { .. } => "TaintEvictionFailed",
            Cause::NodeGone { .. } => "DeletionFailed",
        };
        let about = About::Pod(wished.pod.clone());
        let (speaker, kind) = (Speaker::Ours, EventType::Warning);
        self.events.record(Event { speaker, about, kind, reason, code, message });
    }

    fn tell(&self, wished: &Delete, outcome: &Outcome, controller: &'static str) {
        let pod = &wished.pod;
        let about = About::Pod(pod.clone());
        let (action, reason, message) = match outcome {
            Outcome::Ending => {
                let ((speaker, reason), recorded) = told(&wished.cause);
                let message = match &wished.cause {
                    Cause::Taint { .. } => format!("Marking for deletion Pod {pod}"),
                    Cause::NodeGone { .. } => wished.cause.to_string(),
                };
                self.events.record(Event::new(speaker, about, EventType::Normal, reason, message));
                (Action::Deleted, recorded, wished.cause.to_string())
            }
            Outcome::Failed(error) => {
                let why = error_chain(error);
                self.warn(wished, None, format!("the deletion failed and is tried again: {why}"));
                (Action::Failed, error.category(), why)
            }
            Outcome::Expired => {
                let within = LOOK_LASTS.as_secs();
                let why = format!(
                    "the node was read, but the answer took longer than {within}s, and the node may have changed since: tried again"
                );
                self.warn(wished, Some(READS_TOO_SLOW), why.clone());
                (Action::Failed, READS_TOO_SLOW, why)
            }
            Outcome::Gone => (Action::Dropped, "Gone", "the pod no longer exists".to_owned()),
            Outcome::Withdrawn => {
                (Action::Dropped, "Withdrawn", "the deletion is no longer wanted".to_owned())
            }
            Outcome::NotLeader => {
                (Action::Dropped, "NotLeader", "leadership was lost before the act".to_owned())
            }
            Outcome::Changed
            | Outcome::Written
            | Outcome::NoEffect
            | Outcome::Heard
            | Outcome::NotReady(_)
            | Outcome::Refused(_)
            | Outcome::Released(_)
            | Outcome::FinalizersRemain(_) => {
                (Action::Dropped, "Changed", "pod or node changed since the decision".to_owned())
            }
        };
        let (at, node) = (self.env.clock.wall(), Some(Arc::clone(wished.cause.node())));
        let pod = Some(pod.clone());
        let (budget, node_uid) = (None, None);
        self.journal.write(Record { at, controller, action, pod, budget, node, node_uid, reason, message });
    }
}
