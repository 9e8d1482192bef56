//! Fencing requests of other remediators: medik8s' NodeHealthCheck, and others that keep its contract. Pure.
//!
//! A PodSafetyRemediation is about one incarnation of a node: the one in which it was first seen. Otherwise a node
//! that came back would be fenced again for as long as the object exists. The name of the incident is written into
//! its status before the incident is opened; an incident that no remediation names any more is cancelled.

use std::sync::Arc;

use crate::holds::{Decision, Hold};
use pod_safety_shared::api::{
    Condition, FenceTrigger, Phase, PodSafetyRemediationStatus, REMEDIATION_FINALIZER, TIMED_OUT_ANNOTATION, Trigger,
};
use pod_safety_shared::authority::{Intent, RemediationRequest, RemediationUpdate, incident_name};
use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Mode;
use pod_safety_shared::model::{FenceEvidenceObject, Kind, Node, NodeFenceObject, Readiness, RemediationObject};

use super::config::Config;
use super::detect::{open_incident, reopen_incident};
use super::incident::Incident;

/// The decision about one remediation.
#[derive(Debug, Default)]
pub(super) struct RemediationDecision {
    /// The step of its node.
    pub(super) step: Decision,
    /// The update of the remediation.
    pub(super) reply: Option<Intent>,
}

/// Its progress, in the terms of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// In progress.
    Processing,
    /// Succeeded.
    Succeeded,
    /// It will not succeed: the remediator may try another way at once.
    Failed,
}

struct RemediationReport {
    fence: Option<String>,
    progress: Progress,
    reason: &'static str,
    message: String,
    /// The node will never return under its name.
    is_gone: bool,
}

fn is_timed_out(remediation: &RemediationObject) -> bool {
    remediation.annotations.contains_key(TIMED_OUT_ANNOTATION)
}

/// The remediations that request this incident now.
fn requesters<'a>(incident: &Incident<'a>) -> impl Iterator<Item = &'a RemediationObject> + use<'a> {
    let name: &'a str = &incident.fence.name;
    let is_requester = move |remediation: &&RemediationObject| {
        !remediation.deleting && remediation.status.fence.as_deref() == Some(name)
    };
    incident.view.remediations_of(&incident.name).filter(is_requester)
}

/// The gate: all remediations that request it were reported as timed out.
pub(super) fn check_timed_out(incident: &Incident<'_>) -> Option<Hold> {
    if incident.fence.spec.trigger.kind != Trigger::External {
        return None;
    }
    let last = requesters(incident).last().filter(|_| requesters(incident).all(is_timed_out))?;
    Some(Hold::RemediationTimedOut { node: Arc::clone(&incident.name), remediation: display_name(last) })
}

/// Whether an incident that was opened on request has no request any more. Requests that cannot be read are not
/// withdrawn.
pub(super) fn is_withdrawn(incident: &Incident<'_>) -> bool {
    incident.fence.spec.trigger.kind == Trigger::External
        && incident.view.check_fresh(Kind::Remediations, incident.now).is_ok()
        && incident.view.count(Kind::Remediations).1 == 0
        && requesters(incident).next().is_none()
}

fn display_name(remediation: &RemediationObject) -> String {
    format!("PodSafetyRemediation {}/{}", remediation.namespace, remediation.name)
}

/// Decides about one remediation. `node`: its Node, if it exists.
pub(super) fn remediate(
    remediation: &RemediationObject,
    node: Option<&Node>,
    view: &View<'_>,
    now: Mono,
    config: &Config,
) -> RemediationDecision {
    if config.mode == Mode::Observe || view.check_fresh(Kind::Remediations, now).is_err() {
        return RemediationDecision::default();
    }
    let is_managed = remediation.finalizers.iter().any(|finalizer| finalizer == REMEDIATION_FINALIZER);
    let reply = |reply| Some(reply_intent(remediation, node, reply));
    let node_name = remediation.node().unwrap_or_default();
    let named = remediation.status.fence.as_deref();
    let fence = view.node_fences_of(node_name).find(|fence| Some(&*fence.name) == named);
    if remediation.deleting {
        return match is_managed && !fence.is_some_and(may_still_begin) {
            true => RemediationDecision {
                reply: reply(RemediationUpdate::RemoveFinalizer),
                ..RemediationDecision::default()
            },
            false => RemediationDecision::default(),
        };
    }
    if !is_managed {
        return RemediationDecision { reply: reply(RemediationUpdate::AddFinalizer), ..RemediationDecision::default() };
    }
    let (step, report) = match (fence, named) {
        (Some(fence), _) => follow_incident(remediation, fence, node, view),
        (None, Some(named)) => begin_requested(remediation, named, node, view),
        (None, None) => (Decision::default(), first_report(remediation, node, view)),
    };
    let desired = report.map(|report| report_status(&remediation.status, report));
    let changed = desired.filter(|status| *status != remediation.status);
    RemediationDecision {
        step,
        reply: changed.and_then(|status| reply(RemediationUpdate::WriteStatus(Box::new(status)))),
    }
}

fn reply_intent(remediation: &RemediationObject, node: Option<&Node>, reply: RemediationUpdate) -> Intent {
    Intent::Remediate(Box::new(RemediationRequest {
        namespace: Arc::clone(&remediation.namespace),
        name: Arc::clone(&remediation.name),
        uid: remediation.uid.clone(),
        rv: remediation.rv,
        node: node.map(Node::key),
        update: reply,
    }))
}

/// Whether fencing may still begin for it, and will not after a cancellation.
fn may_still_begin(fence: &NodeFenceObject) -> bool {
    fence.spec.trigger.kind == Trigger::External
        && matches!(fence.status.phase, Phase::Pending | Phase::Fencing)
        && !fence.deleting
}

fn failed_report(reason: &'static str, message: String) -> RemediationReport {
    RemediationReport { fence: None, progress: Progress::Failed, reason, message, is_gone: false }
}

/// It is new: its status names the incident before that is opened.
fn first_report(remediation: &RemediationObject, node: Option<&Node>, view: &View<'_>) -> Option<RemediationReport> {
    let node_name = remediation.node().unwrap_or_default();
    let Some(node) = node else {
        return Some(failed_report("NodeNotFound", format!("there is no node {node_name}")));
    };
    let Some(incarnation) = node.incarnation() else {
        let hold = Hold::NoBootId { node: Arc::clone(&node.name) };
        return Some(failed_report("NoBootId", hold.to_string()));
    };
    if is_timed_out(remediation) {
        return Some(failed_report("TimedOut", "it timed out before fencing began".to_owned()));
    }
    if view.policy_of(node.labels()).is_none() {
        return Some(failed_report("NoPolicy", format!("no FencePolicy selects node {node_name}")));
    }
    let name = incident_name(&incarnation);
    let message = format!("fencing {node_name}: NodeFence {name}");
    let (progress, reason) = (Progress::Processing, "Fencing");
    Some(RemediationReport { fence: Some(name), progress, reason, message, is_gone: false })
}

/// Its incident does not exist: opens it, if the node is still in that incarnation.
fn begin_requested(
    remediation: &RemediationObject,
    named: &str,
    node: Option<&Node>,
    view: &View<'_>,
) -> (Decision, Option<RemediationReport>) {
    if remediation.status.condition_status("Processing") == Some("False") {
        return (Decision::default(), None);
    }
    let finished = |progress, reason, message: String| {
        let fence = Some(named.to_owned());
        (Decision::default(), Some(RemediationReport { fence, progress, reason, message, is_gone: false }))
    };
    let current = node.and_then(|node| Some((node, node.incarnation()?)));
    let Some((node, incarnation)) = current else {
        return finished(Progress::Failed, "NodeNotFound", "the node no longer exists".to_owned());
    };
    if incident_name(&incarnation) != named {
        let message = "the machine rebooted by itself".to_owned();
        return finished(Progress::Succeeded, "Superseded", message);
    }
    if is_timed_out(remediation) {
        let message = "it timed out before fencing began".to_owned();
        return finished(Progress::Failed, "TimedOut", message);
    }
    let Some(policy) = view.policy_of(node.labels()) else {
        let message = format!("no FencePolicy selects node {}", node.name);
        return finished(Progress::Failed, "NoPolicy", message);
    };
    let by = self::display_name(remediation);
    let trigger =
        FenceTrigger { kind: Trigger::External, reason: format!("requested by {by}"), by: Some(by), condition: None };
    (open_incident(incarnation, policy, trigger), None)
}

/// Reports the progress of its incident.
fn follow_incident(
    remediation: &RemediationObject,
    fence: &NodeFenceObject,
    node: Option<&Node>,
    view: &View<'_>,
) -> (Decision, Option<RemediationReport>) {
    let phase = fence.status.phase;
    let is_lost = node.is_some_and(|node| {
        node.readiness != Readiness::Ready && node.incarnation().as_ref() == Some(&fence.spec.node)
    });
    let again = phase == Phase::Cancelled && !fence.spec.cancelled && !fence.deleting && is_lost;
    let (progress, reason) = match phase {
        Phase::Pending | Phase::Fencing if is_timed_out(remediation) => (Progress::Failed, "TimedOut"),
        Phase::Cancelled if again && !is_timed_out(remediation) => {
            let step = reopen_incident(fence, &format!("requested by {}", display_name(remediation)));
            return (step, None);
        }
        Phase::Pending | Phase::Fencing => (Progress::Processing, "Fencing"),
        Phase::Fenced | Phase::Recovering | Phase::Done => (Progress::Succeeded, "Fenced"),
        Phase::Superseded => (Progress::Succeeded, "Superseded"),
        Phase::AwaitingOperator => (Progress::Failed, "AwaitingOperator"),
        Phase::Cancelled => (Progress::Failed, "Cancelled"),
    };
    let message = format!("NodeFence {} is {}: {}", fence.name, phase.name(), fence.status.message);
    let is_its = |proof: &&FenceEvidenceObject| Some(&*proof.name) == fence.status.evidence.as_deref();
    let proof = view.fence_evidence_of(&fence.spec.node.name).find(is_its);
    let is_gone = proof.is_some_and(|proof| proof.spec.kind.ends_machine());
    let report = RemediationReport { fence: Some(fence.name.to_string()), progress, reason, message, is_gone };
    (Decision::default(), Some(report))
}

fn report_status(before: &PodSafetyRemediationStatus, report: RemediationReport) -> PodSafetyRemediationStatus {
    let RemediationReport { fence, progress, reason, message, is_gone } = report;
    let gone = if is_gone { "True" } else { "False" };
    let (processing, succeeded) = match progress {
        Progress::Processing => ("True", "Unknown"),
        Progress::Succeeded => ("False", "True"),
        Progress::Failed => ("False", "False"),
    };
    let condition =
        |kind: &str, word: &str| Condition::transition(&before.conditions, kind, word, reason, &message, "");
    PodSafetyRemediationStatus {
        fence: fence.or_else(|| before.fence.clone()),
        conditions: vec![
            condition("Processing", processing),
            condition("Succeeded", succeeded),
            condition("PermanentNodeDeletionExpected", gone),
        ],
    }
}
