//! The turn of a fence, and of a device that is looked through: one of each node, or device, at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pod_safety_fence::{
    Acting, Fencing, Monitor, PolicyReview, Remediate, Reply, Step, answer, carry_out, monitor, review,
};
use pod_safety_leader::outcome::Outcome;
use pod_safety_leader::send::Means;

use super::{Authority, Class, Owner, Staff, Submitted, WITNESS_AGAIN, Work};
use crate::api::PodSafetyRemediationStatus;
use crate::clock::Mono;
use crate::events::{About, Event, EventType, Speaker};
use crate::model::{NodeKey, Uid};
use crate::record::{Action, LogEvent, Record, error_chain};

/// What failed is tried again after this, and after twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// For so long after its pause a turn's failures are remembered.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Between two looks through a device, or two reviews of a policy, whatever is thought of it: what was written may have
/// changed nothing, or our view may be behind, and then it seems to be due still.
const MONITOR_RESTS: Duration = Duration::from_secs(10);

/// Whose turn is under way, or has to wait after a failure.
#[derive(Default)]
pub(super) struct Fences(BTreeMap<Arc<str>, Turn>);

enum Turn {
    UnderWay { failures: u32 },
    Paused { until: Mono, failures: u32 },
}

impl Fences {
    /// It will not be done by this process.
    pub(super) fn forget(&mut self, lane: &str) {
        self.0.remove(lane);
    }

    /// Forgets what was not taken up again: remediations are deleted, and no other has their name.
    pub(super) fn tidy(&mut self, now: Mono) {
        self.0.retain(|_, turn| !matches!(turn, Turn::Paused { until, .. } if *until + FORGOTTEN <= now));
    }

    fn take(&mut self, lane: &Arc<str>, now: Mono) -> Result<(), Submitted> {
        let failures = match self.0.get(lane) {
            Some(Turn::UnderWay { .. }) => return Err(Submitted::Accepted),
            Some(Turn::Paused { until, .. }) if *until > now => return Err(Submitted::Later(*until)),
            Some(Turn::Paused { failures, .. }) => *failures,
            None => 0,
        };
        self.0.insert(Arc::clone(lane), Turn::UnderWay { failures });
        Ok(())
    }

    /// The number of this failure in a row, if it is logged: the first, and ever fewer, for the same error comes again.
    fn logged(&self, lane: &str) -> Option<u32> {
        let before = match self.0.get(lane) {
            Some(Turn::UnderWay { failures } | Turn::Paused { failures, .. }) => *failures,
            None => 0,
        };
        Some(before.saturating_add(1)).filter(|failures| failures.is_power_of_two())
    }

    /// It ended; gives back when it may be tried again, if it failed, or has to rest.
    fn end(&mut self, lane: &Arc<str>, outcome: &Outcome, rests: Duration, now: Mono) -> Option<Mono> {
        let before = match self.0.remove(lane) {
            Some(Turn::UnderWay { failures } | Turn::Paused { failures, .. }) => failures,
            None => 0,
        };
        let wished = match outcome {
            Outcome::Written if !rests.is_zero() => {
                let until = now + rests;
                self.0.insert(Arc::clone(lane), Turn::Paused { until, failures: 0 });
                return Some(until);
            }
            Outcome::Written | Outcome::NotLeader => return None,
            Outcome::Failed(error) => error.pause(),
            _ => Duration::ZERO,
        };
        let pause = FIRST_PAUSE.saturating_mul(1 << before.min(10)).min(LONGEST_PAUSE).max(wished);
        let (until, failures) = (now + pause, before.saturating_add(1));
        self.0.insert(Arc::clone(lane), Turn::Paused { until, failures });
        Some(until)
    }
}

/// Devices are no nodes, though they may have the name of one.
pub(super) fn lane_of(wish: &Monitor) -> Arc<str> {
    format!("device {}", wish.device).into()
}

/// Nor are those who want nodes fenced.
pub(super) fn lane_of_remediation(wish: &Remediate) -> Arc<str> {
    format!("remediation {}/{}", wish.namespace, wish.name).into()
}

/// Nor are policies.
pub(super) fn lane_of_policy(wish: &PolicyReview) -> Arc<str> {
    format!("policy {}", wish.name).into()
}

/// What of a status is said as an Event, in the words of medik8s' contract.
fn said(status: &PodSafetyRemediationStatus) -> (EventType, &'static str, String) {
    let is = |kind: &str, word: &str| status.says(kind) == Some(word);
    let (kind, reason) = match (is("Processing", "True"), is("Succeeded", "True"), &status.fence) {
        (true, ..) => (EventType::Normal, "RemediationStarted"),
        (false, true, _) => (EventType::Normal, "RemediationFinished"),
        (false, false, Some(_)) => (EventType::Warning, "RemediationStopped"),
        (false, false, None) => (EventType::Warning, "RemediationCannotStart"),
    };
    let message = status.conditions.first().map(|one| one.message.clone()).unwrap_or_default();
    (kind, reason, format!("[remediation] {message}"))
}

impl Authority {
    pub(super) fn submit_fence(&self, fencing: Box<Fencing>, owner: &Arc<dyn Owner>, now: Mono) -> Submitted {
        let lane = Arc::clone(&fencing.node);
        let (staff, class) = match fencing.step.switches() {
            true => (Staff::Switchers, Class::Switch),
            false => (Staff::Fencers, Class::Fence),
        };
        let work = Work::Fence { fencing, owner: Arc::clone(owner) };
        self.submit_to(staff, class, lane, work, now)
    }

    pub(super) fn submit_monitor(&self, wish: Box<Monitor>, owner: &Arc<dyn Owner>, now: Mono) -> Submitted {
        let lane = lane_of(&wish);
        let work = Work::Monitor { wish, owner: Arc::clone(owner) };
        self.submit_to(Staff::Lookers, Class::Monitor, lane, work, now)
    }

    pub(super) fn submit_remediate(
        &self,
        wish: Box<Remediate>,
        owner: &Arc<dyn Owner>,
        now: Mono,
    ) -> Submitted {
        let lane = lane_of_remediation(&wish);
        let work = Work::Remediate { wish, owner: Arc::clone(owner) };
        self.submit_to(Staff::Fencers, Class::Remediate, lane, work, now)
    }

    pub(super) fn submit_review(
        &self,
        wish: Box<PolicyReview>,
        owner: &Arc<dyn Owner>,
        now: Mono,
    ) -> Submitted {
        let lane = lane_of_policy(&wish);
        let work = Work::Review { wish, owner: Arc::clone(owner) };
        self.submit_to(Staff::Fencers, Class::Remediate, lane, work, now)
    }

    fn submit_to(&self, staff: Staff, class: Class, lane: Arc<str>, work: Work, now: Mono) -> Submitted {
        if self.leadership.term(now).is_none() {
            return Submitted::NotLeading;
        }
        let mut state = self.state.lock();
        if let Err(submitted) = state.fences.take(&lane, now) {
            return submitted;
        }
        if state.queue_of(staff).push(class, &lane, work).is_err() {
            state.fences.forget(&lane);
            return Submitted::Later(now + WITNESS_AGAIN);
        }
        self.count(&state);
        Submitted::Accepted
    }

    fn acting(&self) -> Acting<'_> {
        let Self { connection, cache, env, leadership, .. } = self;
        let means = Means { connection, cache, env, leadership };
        Acting::new(means, &*self.transport, &self.identity, &self.events)
    }

    pub(super) async fn fence(&self, fencing: &Fencing, owner: &Arc<dyn Owner>) {
        let outcome = carry_out(&self.acting(), fencing).await;
        self.tell_fence(fencing, &outcome, owner.controller());
        self.ended_turn(fencing.step.name(), &fencing.node, &outcome, Duration::ZERO, owner);
    }

    pub(super) async fn monitor(&self, wish: &Monitor, owner: &Arc<dyn Owner>) {
        let outcome = monitor(&self.acting(), wish).await;
        if let (Outcome::Failed(error), Some(failures)) = (&outcome, self.logged(&lane_of(wish))) {
            tracing::warn!(controller = owner.controller(), uid = %wish.uid, device = %wish.device, failures, error = %error_chain(error), "the status of a FenceDevice was not written; trying again");
        }
        self.ended_turn("monitor", &lane_of(wish), &outcome, MONITOR_RESTS, owner);
    }

    pub(super) async fn remediate(&self, wish: &Remediate, owner: &Arc<dyn Owner>) {
        let outcome = answer(&self.acting(), wish).await;
        match (&outcome, &wish.reply, &wish.node) {
            (Outcome::Written, Reply::Say(status), Some(node)) => {
                let (kind, reason, message) = said(status);
                let about = About::Node(node.clone());
                self.events.record(Event::new(Speaker::Ours, about, kind, reason, message));
            }
            (Outcome::Failed(error), ..) => {
                let Remediate { namespace, name, .. } = wish;
                if let Some(failures) = self.logged(&lane_of_remediation(wish)) {
                    tracing::warn!(controller = owner.controller(), uid = %wish.uid, %namespace, %name, failures, error = %error_chain(error), "the status of a remediation was not written; trying again");
                }
            }
            _ => {}
        }
        self.ended_turn("remediate", &lane_of_remediation(wish), &outcome, Duration::ZERO, owner);
    }

    pub(super) async fn review(&self, wish: &PolicyReview, owner: &Arc<dyn Owner>) {
        let outcome = review(&self.acting(), wish).await;
        if let (Outcome::Failed(error), Some(failures)) = (&outcome, self.logged(&lane_of_policy(wish))) {
            tracing::warn!(controller = owner.controller(), uid = %wish.uid, policy = %wish.name, failures, error = %error_chain(error), "the status of a FencePolicy was not written; trying again");
        }
        self.ended_turn("review", &lane_of_policy(wish), &outcome, MONITOR_RESTS, owner);
    }

    fn logged(&self, lane: &str) -> Option<u32> {
        self.state.lock().fences.logged(lane)
    }

    /// What was marked meanwhile was turned away: it is decided anew.
    fn ended_turn(
        &self,
        step: &'static str,
        lane: &Arc<str>,
        outcome: &Outcome,
        rests: Duration,
        owner: &Arc<dyn Owner>,
    ) {
        self.metrics.fence_steps.with_label_values(&[step, outcome.name()]).inc();
        let now = self.env.now();
        let again = self.state.lock().fences.end(lane, outcome, rests, now);
        self.metrics.outcomes.with_label_values(&[outcome.name()]).inc();
        if !matches!(outcome, Outcome::NotLeader) {
            owner.wake_at(again.unwrap_or(now));
        }
    }

    pub(super) fn tell_fence(&self, fencing: &Fencing, outcome: &Outcome, controller: &'static str) {
        let (node, step) = (&fencing.node, fencing.step.name());
        match outcome {
            Outcome::Written => self.say_step(fencing, controller),
            Outcome::Failed(error) => {
                if let Some(failures) = self.logged(node) {
                    tracing::warn!(controller, %node, step, failures, error = %error_chain(error), "a step of fencing failed; trying again");
                }
            }
            Outcome::NotReady(why) => {
                if let Some(failures) = self.logged(node) {
                    tracing::info!(controller, %node, step, failures, why, "a step of fencing waits for an object; trying again");
                }
            }
            Outcome::Refused(refusal) => {
                tracing::warn!(controller, %node, step, reason = refusal.reason(), error = %error_chain(refusal), "the evidence is not valid now; trying again");
            }
            Outcome::Heard => {
                tracing::warn!(controller, %node, step, "the node reported meanwhile: nothing was done to it");
            }
            _ => {
                tracing::debug!(controller, %node, step, outcome = outcome.name(), "a step of fencing was not taken; deciding again")
            }
        }
    }

    /// One line, and an Event for what people must know.
    fn say_step(&self, fencing: &Fencing, controller: &'static str) {
        let spec = fencing.step.spec();
        let message = match &fencing.step {
            Step::Open(spec) => format!("node {} is to be fenced: {}", fencing.node, spec.trigger.reason),
            step => step.target().map(|target| target.status.message.clone()).unwrap_or_default(),
        };
        let (event, kind, reason) = match &fencing.step {
            Step::Open(_) => (LogEvent::FencingBegan, EventType::Warning, "FencingBegins"),
            Step::Drain(..) => (LogEvent::NodeDraining, EventType::Warning, "DrainBegins"),
            Step::Attempt(_) => (LogEvent::FenceOrdered, EventType::Warning, "FenceAttempted"),
            Step::Prove(_) => (LogEvent::NodeFenced, EventType::Normal, "Fenced"),
            Step::ProveStorage(_) => (LogEvent::StorageFenced, EventType::Normal, "StorageFenced"),
            Step::Contradict(_) => {
                (LogEvent::EvidenceContradicted, EventType::Warning, "EvidenceContradicted")
            }
            Step::Withdraw(_) => {
                (LogEvent::OutOfServiceTaintWithdrawn, EventType::Warning, "OutOfServiceTaintWithdrawn")
            }
            Step::Untaint(_) => (LogEvent::NodeReturned, EventType::Normal, "NodeReturned"),
            Step::Taint(_) => (LogEvent::OutOfServiceTaintAdded, EventType::Normal, "OutOfServiceTaintAdded"),
            Step::Write(target) => (LogEvent::FenceUpdated, EventType::Normal, target.status.phase.name()),
            Step::Look(_) => (LogEvent::PowerChecked, EventType::Normal, "Looked"),
        };
        let uid = Uid::new(&spec.node.uid);
        let is_for_the_log = match &fencing.step {
            Step::Look(_) | Step::Write(_) => true,
            // Its rounds are told by the status.
            Step::Drain(target, _) => target.status.drain.is_some(),
            _ => false,
        };
        if let (Some(uid), false) = (uid.clone(), is_for_the_log) {
            let about = About::Node(NodeKey { name: Arc::clone(&fencing.node), uid });
            self.events.record(Event::new(Speaker::Ours, about, kind, reason, message.clone()));
        }
        let record = Record {
            at: self.env.clock.wall(),
            controller,
            action: Action::Fenced,
            pod: None,
            budget: None,
            node: Some(Arc::clone(&fencing.node)),
            node_uid: uid,
            reason,
            message,
        };
        self.journal.write_as(event, record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C10: a lane that ever failed was remembered for ever.
    #[test]
    fn what_failed_and_is_not_taken_up_again_is_forgotten() {
        let mut fences = Fences::default();
        for number in 0..50_u64 {
            let lane: Arc<str> = format!("remediation ns/{number}").into();
            let now = Mono::default() + Duration::from_secs(100 * number);
            assert!(fences.take(&lane, now).is_ok());
            fences.end(&lane, &Outcome::Changed, Duration::ZERO, now);
            fences.tidy(now);
        }
        assert_eq!(fences.0.len(), 7, "those of the last ten minutes");
    }

    #[test]
    fn a_step_that_was_not_taken_is_tried_again_ever_more_rarely() {
        let (mut fences, lane, mut now): (_, Arc<str>, _) = (Fences::default(), "n".into(), Mono::default());
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            assert!(fences.take(&lane, now).is_ok());
            let again = now + Duration::from_secs(pause);
            assert_eq!(fences.end(&lane, &Outcome::Changed, Duration::ZERO, now), Some(again));
            now = again;
        }
    }

    /// The simulator found it: a status that says what it said before makes no event, so the device seemed to be due
    /// again at once, a hundred times a minute.
    #[test]
    fn bug_a_device_that_chooses_no_node_was_looked_through_without_end() {
        let (mut fences, lane): (_, Arc<str>) = (Fences::default(), "device ns/bmc".into());
        let began = Mono::default();
        assert!(fences.take(&lane, began).is_ok());
        let again = fences.end(&lane, &Outcome::Written, MONITOR_RESTS, began);
        assert_eq!(again, Some(began + MONITOR_RESTS));
        assert!(matches!(fences.take(&lane, began), Err(Submitted::Later(until)) if Some(until) == again));
        assert!(fences.take(&lane, began + MONITOR_RESTS).is_ok());
        // Steps of a node follow each other at once.
        let node: Arc<str> = "n".into();
        assert!(fences.take(&node, began).is_ok());
        assert_eq!(fences.end(&node, &Outcome::Written, Duration::ZERO, began), None);
        assert!(fences.take(&node, began).is_ok());
    }
}
