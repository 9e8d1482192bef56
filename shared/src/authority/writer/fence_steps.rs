//! Executes steps of fencing, device checks, and status updates of remediations and policies: one at a time for each object.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_fence::{
    FenceStepRequest, MonitorRequest, PolicyStatusUpdate, RemediationRequest, RemediationUpdate, Step, StepContext,
    StepOutcome, execute_step, monitor, update_remediation, write_policy_status,
};
use pod_safety_leader::send::WriteContext;

use super::super::retry_tracker::{Admission, RetryTracker};
use super::{Authority, CompletionHandler, PriorityLevel, READ_RETRY, Submitted, Work, WorkerPool};
use crate::api::PodSafetyRemediationStatus;
use crate::clock::{Backoff, Mono};
use crate::events::{Event, EventType, InvolvedObject, ReportingController};
use crate::model::{NodeKey, Uid};
use crate::record::{Action, LogEvent, Record, error_chain};

/// The backoff of a flow.
const BACKOFF: Backoff = Backoff { initial: Duration::from_secs(1), maximum: Duration::from_secs(30) };
/// The time between two checks of a device, or two status updates of a policy. Without it, a write that changed nothing, or
/// a cache that is behind, would make the next one due at once.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The flows with a step in flight, or in backoff after a failure.
pub(super) struct StepTracker(RetryTracker<Arc<str>, ()>);

impl Default for StepTracker {
    fn default() -> Self {
        Self(RetryTracker::new(BACKOFF))
    }
}

impl StepTracker {
    /// Removes a flow whose step this process will not execute.
    pub(super) fn forget(&mut self, flow: &str) {
        self.0.forget(flow);
    }

    pub(super) fn tidy(&mut self, now: Mono) {
        self.0.tidy(now);
    }

    fn begin(&mut self, flow: &Arc<str>, now: Mono) -> Result<(), Submitted> {
        match self.0.admit(flow, &(), now) {
            Admission::Admitted => Ok(()),
            Admission::Busy => Err(Submitted::Accepted),
            Admission::Paused(until) => Err(Submitted::Later(until)),
        }
    }

    /// The number of failures in a row, if it is to be logged: the first, and then ever fewer, because the same error repeats.
    fn failures_to_log(&self, flow: &str) -> Option<u32> {
        Some(self.0.failures(flow).saturating_add(1)).filter(|failures| failures.is_power_of_two())
    }

    /// The step ended. Returns when the next step may run, if it failed or has to wait.
    fn end(&mut self, flow: &Arc<str>, outcome: &StepOutcome, pause: Duration, now: Mono) -> Option<Mono> {
        let at_least = match outcome {
            StepOutcome::Written if !pause.is_zero() => return Some(self.0.pause(flow, (), pause, now)),
            StepOutcome::Written | StepOutcome::NotLeader => {
                self.0.forget(flow);
                return None;
            }
            StepOutcome::Failed(error) => error.retry_after(),
            _ => Duration::ZERO,
        };
        Some(self.0.record_failure(flow, (), at_least, now))
    }
}

/// The flow of a device. The prefix keeps it apart from a node of the same name.
pub(super) fn device_flow(request: &MonitorRequest) -> Arc<str> {
    format!("device {}", request.device).into()
}

/// The flow of a remediation.
pub(super) fn remediation_flow(request: &RemediationRequest) -> Arc<str> {
    format!("remediation {}/{}", request.namespace, request.name).into()
}

/// The flow of a policy.
pub(super) fn policy_flow(request: &PolicyStatusUpdate) -> Arc<str> {
    format!("policy {}", request.name).into()
}

/// The Event for a remediation's status, with the reasons of the medik8s contract.
fn remediation_event(status: &PodSafetyRemediationStatus) -> (EventType, &'static str, String) {
    let is = |kind: &str, expected: &str| status.condition_status(kind) == Some(expected);
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
    pub(super) fn submit_fence(
        &self,
        request: Box<FenceStepRequest>,
        owner: &Arc<dyn CompletionHandler>,
        now: Mono,
    ) -> Submitted {
        let flow = Arc::clone(&request.node);
        let (pool, level) = match request.step.switches_power() {
            true => (WorkerPool::PowerSwitches, PriorityLevel::Switch),
            false => (WorkerPool::FenceSteps, PriorityLevel::Fence),
        };
        let work = Work::Fence { request, owner: Arc::clone(owner) };
        self.submit_step(pool, level, flow, work, now)
    }

    pub(super) fn submit_monitor(
        &self,
        request: Box<MonitorRequest>,
        owner: &Arc<dyn CompletionHandler>,
        now: Mono,
    ) -> Submitted {
        let flow = device_flow(&request);
        let work = Work::Monitor { request, owner: Arc::clone(owner) };
        self.submit_step(WorkerPool::StatusChecks, PriorityLevel::Monitor, flow, work, now)
    }

    pub(super) fn submit_remediate(
        &self,
        request: Box<RemediationRequest>,
        owner: &Arc<dyn CompletionHandler>,
        now: Mono,
    ) -> Submitted {
        let flow = remediation_flow(&request);
        let work = Work::Remediate { request, owner: Arc::clone(owner) };
        self.submit_step(WorkerPool::FenceSteps, PriorityLevel::Remediate, flow, work, now)
    }

    pub(super) fn submit_review(
        &self,
        request: Box<PolicyStatusUpdate>,
        owner: &Arc<dyn CompletionHandler>,
        now: Mono,
    ) -> Submitted {
        let flow = policy_flow(&request);
        let work = Work::Review { request, owner: Arc::clone(owner) };
        self.submit_step(WorkerPool::FenceSteps, PriorityLevel::Remediate, flow, work, now)
    }

    fn submit_step(&self, pool: WorkerPool, level: PriorityLevel, flow: Arc<str>, work: Work, now: Mono) -> Submitted {
        if self.leadership.term(now).is_none() {
            return Submitted::NotLeading;
        }
        let mut state = self.state.lock();
        if let Err(submitted) = state.steps.begin(&flow, now) {
            return submitted;
        }
        if state.queue_for(pool).push(level, &flow, work).is_err() {
            state.steps.forget(&flow);
            return Submitted::Later(now + READ_RETRY);
        }
        self.set_queued(&state);
        Submitted::Accepted
    }

    fn step_context(&self) -> StepContext<'_> {
        let Self { connection, cache, env, leadership, .. } = self;
        let writer = WriteContext { connection, cache, env, leadership };
        StepContext::new(writer, &*self.transport, &self.identity, &self.events)
    }

    pub(super) async fn fence(&self, request: &FenceStepRequest, owner: &Arc<dyn CompletionHandler>) {
        let outcome = execute_step(&self.step_context(), request).await;
        self.record_fence_step(request, &outcome, owner.controller());
        self.complete_step(request.step.name(), &request.node, &outcome, Duration::ZERO, owner);
    }

    pub(super) async fn monitor(&self, request: &MonitorRequest, owner: &Arc<dyn CompletionHandler>) {
        let outcome = monitor(&self.step_context(), request).await;
        if let (StepOutcome::Failed(error), Some(failures)) = (&outcome, self.failures_to_log(&device_flow(request))) {
            tracing::warn!(controller = owner.controller(), uid = %request.uid, device = %request.device, failures, error = %error_chain(error), "the status of a FenceDevice was not written; trying again");
        }
        self.complete_step("monitor", &device_flow(request), &outcome, REPORT_INTERVAL, owner);
    }

    pub(super) async fn remediate(&self, request: &RemediationRequest, owner: &Arc<dyn CompletionHandler>) {
        let outcome = update_remediation(&self.step_context(), request).await;
        match (&outcome, &request.update, &request.node) {
            (StepOutcome::Written, RemediationUpdate::WriteStatus(status), Some(node)) => {
                let (kind, reason, message) = remediation_event(status);
                let object = InvolvedObject::Node(node.clone());
                self.events.record(Event::new(ReportingController::Own, object, kind, reason, message));
            }
            (StepOutcome::Failed(error), ..) => {
                let RemediationRequest { namespace, name, .. } = request;
                if let Some(failures) = self.failures_to_log(&remediation_flow(request)) {
                    tracing::warn!(controller = owner.controller(), uid = %request.uid, %namespace, %name, failures, error = %error_chain(error), "the status of a remediation was not written; trying again");
                }
            }
            _ => {}
        }
        self.complete_step("remediate", &remediation_flow(request), &outcome, Duration::ZERO, owner);
    }

    pub(super) async fn review(&self, request: &PolicyStatusUpdate, owner: &Arc<dyn CompletionHandler>) {
        let outcome = write_policy_status(&self.step_context(), request).await;
        if let (StepOutcome::Failed(error), Some(failures)) = (&outcome, self.failures_to_log(&policy_flow(request))) {
            tracing::warn!(controller = owner.controller(), uid = %request.uid, policy = %request.name, failures, error = %error_chain(error), "the status of a FencePolicy was not written; trying again");
        }
        self.complete_step("review", &policy_flow(request), &outcome, REPORT_INTERVAL, owner);
    }

    fn failures_to_log(&self, flow: &str) -> Option<u32> {
        self.state.lock().steps.failures_to_log(flow)
    }

    /// Completes a step. Requests that came meanwhile were rejected, so the controller decides again.
    fn complete_step(
        &self,
        step: &'static str,
        flow: &Arc<str>,
        outcome: &StepOutcome,
        pause: Duration,
        owner: &Arc<dyn CompletionHandler>,
    ) {
        self.metrics.fence_steps.with_label_values(&[step, outcome.name()]).inc();
        let now = self.env.now();
        let retry_at = self.state.lock().steps.end(flow, outcome, pause, now);
        self.metrics.outcomes.with_label_values(&[outcome.name()]).inc();
        if !matches!(outcome, StepOutcome::NotLeader) {
            owner.wake_at(retry_at.unwrap_or(now));
        }
    }

    pub(super) fn record_fence_step(
        &self,
        request: &FenceStepRequest,
        outcome: &StepOutcome,
        controller: &'static str,
    ) {
        let (node, step) = (&request.node, request.step.name());
        match outcome {
            StepOutcome::Written => self.record_step(request, controller),
            StepOutcome::Failed(error) => {
                if let Some(failures) = self.failures_to_log(node) {
                    tracing::warn!(controller, %node, step, failures, error = %error_chain(error), "a step of fencing failed; trying again");
                }
            }
            StepOutcome::NotReady(why) => {
                if let Some(failures) = self.failures_to_log(node) {
                    tracing::info!(controller, %node, step, failures, why, "a step of fencing waits for an object; trying again");
                }
            }
            StepOutcome::Refused(refusal) => {
                tracing::warn!(controller, %node, step, reason = refusal.reason(), error = %error_chain(refusal), "the evidence is not valid now; trying again");
            }
            StepOutcome::Heard => {
                tracing::warn!(controller, %node, step, "the node reported meanwhile: nothing was done to it");
            }
            _ => {
                tracing::debug!(controller, %node, step, outcome = outcome.name(), "a step of fencing was not taken; deciding again")
            }
        }
    }

    /// Writes one line to the journal, and emits an Event for steps that operators must know of.
    fn record_step(&self, request: &FenceStepRequest, controller: &'static str) {
        let spec = request.step.spec();
        let message = match &request.step {
            Step::Open(spec) => format!("node {} is to be fenced: {}", request.node, spec.trigger.reason),
            step => step.target().map(|target| target.status.message.clone()).unwrap_or_default(),
        };
        let (event, kind, reason) = match &request.step {
            Step::Open(_) => (LogEvent::FencingBegan, EventType::Warning, "FencingBegins"),
            Step::Drain(..) => (LogEvent::NodeDraining, EventType::Warning, "DrainBegins"),
            Step::Attempt(_) => (LogEvent::FenceOrdered, EventType::Warning, "FenceAttempted"),
            Step::Prove(_) => (LogEvent::NodeFenced, EventType::Normal, "Fenced"),
            Step::ProveStorage(_) => (LogEvent::StorageFenced, EventType::Normal, "StorageFenced"),
            Step::Contradict(_) => (LogEvent::EvidenceContradicted, EventType::Warning, "EvidenceContradicted"),
            Step::Withdraw(_) => {
                (LogEvent::OutOfServiceTaintWithdrawn, EventType::Warning, "OutOfServiceTaintWithdrawn")
            }
            Step::Untaint(_) => (LogEvent::NodeReturned, EventType::Normal, "NodeReturned"),
            Step::Taint(_) => (LogEvent::OutOfServiceTaintAdded, EventType::Normal, "OutOfServiceTaintAdded"),
            Step::Write(target) => (LogEvent::FenceUpdated, EventType::Normal, target.status.phase.name()),
            Step::Look(_) => (LogEvent::PowerChecked, EventType::Normal, "Looked"),
        };
        let uid = Uid::new(&spec.node.uid);
        let is_for_the_log = match &request.step {
            Step::Look(_) | Step::Write(_) => true,
            // The status records its rounds.
            Step::Drain(target, _) => target.status.drain.is_some(),
            _ => false,
        };
        if let (Some(uid), false) = (uid.clone(), is_for_the_log) {
            let object = InvolvedObject::Node(NodeKey { name: Arc::clone(&request.node), uid });
            self.events.record(Event::new(ReportingController::Own, object, kind, reason, message.clone()));
        }
        let record = Record {
            at: self.env.clock.wall(),
            controller,
            action: Action::Fenced,
            pod: None,
            budget: None,
            node: Some(Arc::clone(&request.node)),
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

    #[test]
    fn a_step_that_was_not_executed_is_retried_with_backoff() {
        let (mut steps, flow, mut now): (_, Arc<str>, _) = (StepTracker::default(), "n".into(), Mono::default());
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            assert!(steps.begin(&flow, now).is_ok());
            let again = now + Duration::from_secs(pause);
            assert_eq!(steps.end(&flow, &StepOutcome::Changed, Duration::ZERO, now), Some(again));
            now = again;
        }
    }

    /// A status without changes causes no watch event, so the device seemed to be due again at once, a hundred times a minute.
    #[test]
    fn bug_a_device_without_nodes_was_checked_without_pause() {
        let (mut steps, flow): (_, Arc<str>) = (StepTracker::default(), "device ns/bmc".into());
        let began = Mono::default();
        assert!(steps.begin(&flow, began).is_ok());
        let again = steps.end(&flow, &StepOutcome::Written, REPORT_INTERVAL, began);
        assert_eq!(again, Some(began + REPORT_INTERVAL));
        assert!(matches!(steps.begin(&flow, began), Err(Submitted::Later(until)) if Some(until) == again));
        assert!(steps.begin(&flow, began + REPORT_INTERVAL).is_ok());
        // The steps of a node follow each other without delay.
        let node: Arc<str> = "n".into();
        assert!(steps.begin(&node, began).is_ok());
        assert_eq!(steps.end(&node, &StepOutcome::Written, Duration::ZERO, began), None);
        assert!(steps.begin(&node, began).is_ok());
    }
}
