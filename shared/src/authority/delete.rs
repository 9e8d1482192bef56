//! The graceful deletion of one pod: a condition that says why, then DELETE with the
//! pod's own grace.
//!
//! Source of the contract: `pkg/controller/tainteviction` (`addConditionAndDeletePod`)
//! and `pkg/registry/core/pod/strategy.go` (`CheckGracefulDelete`), v1.37.2.
//!
//! No evidence is needed, for only the kubelet ends what it asks for. Invariants: the
//! grace is named and never zero; both requests carry the UID and the version, the
//! second one that of the first one's answer, so that neither meets a successor nor a
//! pod that was called finished meanwhile, which the API server removes at once; both
//! fall into the leader's term. The first one is the re-read of the pod: what it
//! answers with is what is deleted.

use jiff::Timestamp;
use pod_safety_fence::evict::MIN_GRACE_SECONDS;
use pod_safety_leader::outcome::Outcome;
use pod_safety_leader::send::send;
use pod_safety_proof::NODE_GONE_MESSAGE;
use serde_json::json;

use super::claim::{DeleteCause, GracefulDeleteRequest};
use crate::cache;
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::clock::Env;
use crate::events::ReportingController;
use crate::lease::Leadership;
use crate::model::{DEFAULT_GRACE, Rv};
use crate::wire;

/// In whose place, and by what reason, people read of deletions for taints: those who
/// look for kube-controller-manager's Events find ours.
pub(crate) const TAINT_MANAGER_EVICTION: (ReportingController, &str) =
    (ReportingController::Upstream("taint-eviction-controller"), "TaintManagerEviction");

/// KCM's reason and message of the condition `DisruptionTarget` (KEP-3329).
const fn condition_text(cause: &DeleteCause) -> (&'static str, &'static str) {
    match cause {
        DeleteCause::Taint { .. } => {
            ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
        }
        DeleteCause::NodeGone { .. } => ("DeletionByPodGC", NODE_GONE_MESSAGE),
    }
}

/// What people read on the pod that was asked to end: the reason in Events and the one in the journal.
pub(super) const fn event_and_reason(
    cause: &DeleteCause,
) -> ((ReportingController, &'static str), &'static str) {
    match cause {
        DeleteCause::Taint { .. } => (TAINT_MANAGER_EVICTION, "TaintNotTolerated"),
        DeleteCause::NodeGone { .. } => ((ReportingController::Own, "NodeGone"), "NodeGone"),
    }
}

/// The pod as the condition was written to it.
struct MarkedPod {
    rv: Rv,
    grace: i64,
}

/// Asks the pod to end; gives back how that went, and which version it left or found.
pub(super) async fn delete(
    connection: &Connection,
    env: &Env,
    leadership: &Leadership,
    delete: &GracefulDeleteRequest,
) -> (Outcome, Rv) {
    let marked = match send(connection, env, leadership, mark_call(delete, env.clock.wall()), None).await {
        Ok(answer) => match read(answer, env) {
            Ok(marked) => marked,
            Err(outcome) => return (outcome, delete.rv),
        },
        Err(outcome) => return (outcome, delete.rv),
    };
    match send(connection, env, leadership, delete_call(delete, &marked), None).await {
        Ok(_) => (Outcome::Ending, marked.rv),
        Err(outcome) => (outcome, marked.rv),
    }
}

/// What the condition was written to. It is what was decided about, for the version
/// was; a pod that ends or has ended would have had another one.
fn read(answer: wire::Raw, env: &Env) -> Result<MarkedPod, Outcome> {
    let wire: wire::Pod = answer.decode().map_err(|error| Outcome::Failed(ApiError::Undecodable(error)))?;
    let grace = wire.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let pod = cache::pod_from_wire(wire, env.now())
        .map_err(|unreadable| Outcome::Failed(ApiError::Malformed(unreadable.reason().to_owned())))?;
    if pod.deletion.is_some() || pod.phase.is_terminal() {
        return Err(Outcome::Changed);
    }
    Ok(MarkedPod { rv: pod.rv, grace: grace.unwrap_or(DEFAULT_GRACE).max(MIN_GRACE_SECONDS) })
}

/// A condition that is true already keeps the time since when it is: then this changes
/// nothing, however often it is tried.
fn mark_call(delete: &GracefulDeleteRequest, wall: Timestamp) -> Call {
    let GracefulDeleteRequest { pod, rv, generation, disrupted_since, cause, due: _ } = delete;
    let (reason, message) = condition_text(cause);
    let since = disrupted_since
        .filter(|seconds| *seconds > 0)
        .and_then(|seconds| Timestamp::from_second(seconds).ok());
    let since = since.unwrap_or(wall);
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": format!("{since:.0}"),
    });
    let body = json!({
        "metadata": { "uid": pod.uid, "resourceVersion": rv },
        "status": { "conditions": [condition] },
    });
    let path = format!("/api/v1/namespaces/{}/pods/{}/status", pod.namespace, pod.name);
    Call::write(Method::Patch, path, &body)
}

fn delete_call(delete: &GracefulDeleteRequest, marked: &MarkedPod) -> Call {
    let pod = &delete.pod;
    let body = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": marked.grace,
        "preconditions": { "uid": pod.uid, "resourceVersion": marked.rv },
    });
    Call::write(Method::Delete, format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name), &body)
}

#[cfg(test)]
mod tests;
