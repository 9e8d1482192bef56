//! Incidents do not wait for the devices of other incidents; their Events, their log lines, and when they are decided again.

use pod_safety_fence::{RemediationUpdate, StepOutcome};
use pod_safety_leader::outcome::VerifyError;
use pod_safety_leader::testing::CapturedLogs;
use pod_safety_proof::Refusal;
use serde_json::json;

use super::messages::{event_types_and_reasons, events};
use super::*;
use crate::api::{
    Attempt, Condition, DesiredPower, DeviceRef, Drain, FenceTrigger, Incarnation, NodeFenceSpec, NodeFenceStatus,
    Phase, PodSafetyRemediationStatus, Trigger,
};
use crate::authority::{FenceKey, FenceStepRequest, Step, Target};
use crate::client::ApiError;
use crate::model::NodeKey;
use crate::testing::objects::uid;

pub(super) fn target(node: &str, status: NodeFenceStatus) -> Target {
    let trigger = FenceTrigger { kind: Trigger::Person, reason: "r".to_owned(), by: None, condition: None };
    let incarnation = Incarnation { name: node.to_owned(), uid: format!("uid-{node}"), boot_id: "boot".to_owned() };
    let spec = NodeFenceSpec {
        node: incarnation,
        policy: "p".to_owned(),
        trigger,
        dry_run: false,
        cancelled: false,
        keep_off: false,
    };
    let uid = Uid::new(&format!("uid-fence-{node}")).unwrap();
    let fence = FenceKey { name: node.into(), uid, rv: "1".parse().unwrap() };
    Target { fence, spec: Box::new(spec), status: Box::new(status) }
}

pub(super) fn step(node: &str, step: Step) -> Intent {
    Intent::Fence(Box::new(FenceStepRequest { node: node.into(), step }))
}

/// A status with this message, and nothing else.
fn status_with(message: &str) -> Target {
    target("n", NodeFenceStatus { message: message.to_owned(), phase: Phase::Fencing, ..Default::default() })
}

/// A write of this status to a remediation of the node `n`.
pub(super) fn remediation(status: PodSafetyRemediationStatus) -> Intent {
    let (namespace, name, rv) = ("ns".into(), "n".into(), "1".parse().unwrap());
    let node = Some(NodeKey { name: "n".into(), uid: uid("uid-n") });
    let reply = RemediationUpdate::WriteStatus(Box::new(status));
    Intent::Remediate(Box::new(RemediationRequest { namespace, name, uid: uid("uid-r"), rv, node, update: reply }))
}

pub(super) fn look_through(device: &str) -> Intent {
    let uid = Uid::new(&format!("uid-{device}")).unwrap();
    let device = DeviceRef { namespace: "fencing".to_owned(), name: device.to_owned() };
    Intent::Monitor(Box::new(MonitorRequest { device, uid, nodes: Vec::new(), is_complete: true, test: None }))
}

/// A request to switch off this node.
pub(super) fn attempt(node: &str) -> Step {
    let attempts = vec![Attempt { act: DesiredPower::Off, within_seconds: 600, ..Attempt::default() }];
    Step::Attempt(target(node, NodeFenceStatus { phase: Phase::Fencing, attempts, ..Default::default() }))
}

impl Pool {
    fn takes(&self, node: &str, taken: Step) -> Submitted {
        self.submit_intent(step(node, taken))
    }
}

/// Requests for these nodes and devices take an hour.
fn hangs(request: &Received) -> Answer {
    let hour = Duration::from_hours(1);
    let slow = request.path.contains("/nodes/slow-") || request.path.contains("/fencedevices/slow-");
    if slow { takes_all(request).delayed(hour) } else { takes_all(request) }
}

/// A machine that Cluster API deletes, or that another remediator reboots, takes ten minutes; a device with hundreds of
/// nodes that do not answer takes hours. Once, sixteen of them occupied all workers, and a node that was proved off waited
/// for its taint.
#[tokio::test(start_paused = true)]
async fn bug_slow_attempts_and_status_checks_delayed_other_incidents() {
    let pool = pool(Leadership::always(), hangs);
    for number in 0..=POWER_SWITCH_WORKERS {
        let name = format!("slow-{number}");
        assert_eq!(pool.takes(&name, attempt(&name)), Submitted::Accepted);
        pool.submit_accepted(look_through(&name));
    }
    advance(1.0).await;
    let done = |step: &str| {
        let page = pool.page();
        let line = format!(r#"pod_safety_fence_steps_total{{outcome="written",step="{step}"}} 1"#);
        page.contains(&line)
    };
    assert!(!done("write"));
    let started = pool.api.lines().into_iter().filter(|line| line.contains("/nodes/slow-")).count();
    assert_eq!(started, POWER_SWITCH_WORKERS, "one attempt waits for its turn");
    let waiting = 1 + (POWER_SWITCH_WORKERS + 1 - STATUS_CHECK_WORKERS);
    pool.counts(&format!("pod_safety_authority_queued_intents {waiting}\n"));
    let status = NodeFenceStatus { phase: Phase::Cancelled, ..NodeFenceStatus::default() };
    assert_eq!(pool.takes("quick", Step::Write(target("quick", status))), Submitted::Accepted);
    advance(1.0).await;
    assert!(done("write"), "nobody else's machine was waited for");
}

/// An API server that accepts everything.
fn takes_all(_: &Received) -> Answer {
    Answer::json(&json!({ "metadata": { "name": "x", "uid": "u", "resourceVersion": "2" } }))
}

#[tokio::test(start_paused = true)]
async fn each_step_is_recorded_and_all_but_checks_and_progress_have_events() {
    let mut draining = status_with("m");
    draining.status.drain = Some(Drain::default());
    for (step, reason, event) in [
        (Step::Open(status_with("m").spec), "FencingBegins", Some("Warning")),
        (Step::Drain(status_with("m"), Vec::new()), "DrainBegins", Some("Warning")),
        (Step::Drain(draining, Vec::new()), "DrainBegins", None),
        (Step::Attempt(status_with("m")), "FenceAttempted", Some("Warning")),
        (Step::Prove(status_with("m")), "Fenced", Some("Normal")),
        (Step::ProveStorage(status_with("m")), "StorageFenced", Some("Normal")),
        (Step::Contradict(status_with("m")), "EvidenceContradicted", Some("Warning")),
        (Step::Withdraw(status_with("m")), "OutOfServiceTaintWithdrawn", Some("Warning")),
        (Step::Untaint(status_with("m")), "NodeReturned", Some("Normal")),
        (Step::Taint(status_with("m")), "OutOfServiceTaintAdded", Some("Normal")),
        (Step::Write(status_with("m")), "Fencing", None),
        (Step::Look(status_with("m")), "Looked", None),
    ] {
        let message = if matches!(step, Step::Open(_)) { "node n is to be fenced: r" } else { "m" };
        let pool = pool(Leadership::always(), takes_all);
        let request = FenceStepRequest { node: "n".into(), step };
        pool.authority.record_fence_step(&request, &StepOutcome::Written, "fencing");
        let record = pool.journal.records().remove(0);
        assert_eq!((record.action, record.reason, &*record.message), (Action::Fenced, reason, message));
        let expected: Vec<_> = event.map(|kind| (kind.to_owned(), reason.to_owned())).into_iter().collect();
        assert_eq!(event_types_and_reasons(&pool).await, expected, "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_was_not_executed_is_only_logged() {
    let pool = pool(Leadership::always(), takes_all);
    let request = FenceStepRequest { node: "n".into(), step: Step::Write(status_with("m")) };
    for (outcome, line) in [
        (
            StepOutcome::Failed(ApiError::TimedOut { after: Duration::from_secs(30) }),
            "WARN a step of fencing failed; trying again",
        ),
        (StepOutcome::Refused(VerifyError::Refused(Refusal::NodeExists)), "WARN the evidence is not valid now"),
        (StepOutcome::Heard, "WARN the node reported meanwhile: nothing was done to it"),
        (StepOutcome::Changed, "DEBUG a step of fencing was not taken; deciding again"),
    ] {
        let log = CapturedLogs::capture();
        pool.authority.record_fence_step(&request, &outcome, "fencing");
        let lines = log.take_lines();
        assert!(lines.len() == 1 && lines[0].starts_with(line), "{line}: {lines:?}");
    }
    assert_eq!((pool.journal.records().len(), event_types_and_reasons(&pool).await.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn remediation_updates_have_events_on_the_node() {
    for (processing, succeeded, fence, kind, reason) in [
        ("True", "Unknown", None, "Normal", "RemediationStarted"),
        ("False", "True", Some("f"), "Normal", "RemediationFinished"),
        ("False", "False", Some("f"), "Warning", "RemediationStopped"),
        ("False", "False", None, "Warning", "RemediationCannotStart"),
    ] {
        let condition = |kind, status| Condition::transition(&[], kind, status, "R", "m", "");
        let conditions = vec![condition("Processing", processing), condition("Succeeded", succeeded)];
        let status = PodSafetyRemediationStatus { fence: fence.map(str::to_owned), conditions };
        let pool = pool(Leadership::always(), takes_all);
        pool.submit_accepted(remediation(status));
        advance(0.1).await;
        let events = events(&pool).await;
        assert_eq!((&events[0]["type"], &events[0]["reason"]), (&json!(kind), &json!(reason)));
        assert_eq!(events[0]["message"], "[remediation] m");
        assert_eq!(events[0]["involvedObject"]["uid"], "uid-n");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_remediation_update_is_logged_and_retried() {
    let pool = pool(Leadership::always(), |_| Answer::plain(429, "slow down").with_retry_after(9));
    let log = CapturedLogs::capture();
    pool.submit_accepted(remediation(PodSafetyRemediationStatus::default()));
    advance(0.1).await;
    let line = "WARN the status of a remediation was not written; trying again";
    let lines = log.take_lines();
    assert!(lines.iter().any(|logged| logged.starts_with(line)), "{lines:?}");
    assert_eq!(pool.wakes(), [Mono::from_start(Duration::from_secs(9))], "as the API server asks");
    assert_eq!(event_types_and_reasons(&pool).await, []);
}

/// Once, a status that was denied filled the log with the same line.
#[tokio::test(start_paused = true)]
async fn bug_a_lasting_failure_was_logged_without_backoff() {
    let pool = pool(Leadership::always(), |_| {
        Answer::status(403, "Forbidden", "ValidatingAdmissionPolicy 'pod-safety-fence' denied")
    });
    let log = CapturedLogs::capture();
    for _ in 0..9 {
        pool.submit_accepted(remediation(PodSafetyRemediationStatus::default()));
        advance(31.0).await;
    }
    let lines = log.take_lines().into_iter().filter(|line| line.contains("the status of a remediation"));
    let lines: Vec<String> = lines.collect();
    let count = |line: &String| line.split_once("failures=")?.1.split(' ').next().map(str::to_owned);
    let counts: Vec<String> = lines.iter().filter_map(count).collect();
    assert_eq!(counts, ["1", "2", "4", "8"], "{lines:?}");
    assert!(lines.iter().all(|line| line.contains("'pod-safety-fence'")), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_step_the_node_is_decided_again_if_this_process_leads() {
    for (leads, wakes) in [(true, vec![Mono::default()]), (false, Vec::new())] {
        let pool = pool(Leadership::always(), takes_all);
        assert_eq!(pool.takes("n", Step::Write(status_with("m"))), Submitted::Accepted);
        if !leads {
            pool.leadership.end_for_tests();
        }
        advance(0.1).await;
        assert_eq!(pool.wakes(), wakes, "leads: {leads}");
    }
}
