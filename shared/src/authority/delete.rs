//! The graceful deletion of one pod: a condition with the reason, then DELETE with the pod's own grace period.
//!
//! Source of the contract: `pkg/controller/tainteviction` (`addConditionAndDeletePod`)
//! and `pkg/registry/core/pod/strategy.go` (`CheckGracefulDelete`), v1.37.2.
//!
//! It needs no evidence, because only the kubelet terminates what this requests. Invariants: the grace period is explicit
//! and never zero. Both requests carry the UID and the version, and the DELETE carries the version of the PATCH's answer.
//! So neither request applies to a pod that replaced this one, nor to a pod whose phase became terminal meanwhile, which
//! the API server would remove at once. Both requests are sent within the leader's term. The PATCH is the re-read of the
//! pod: its answer is the pod that is deleted.

use jiff::Timestamp;
use pod_safety_fence::evict::MIN_GRACE_SECONDS;
use pod_safety_leader::outcome::RequestError;
use pod_safety_leader::send::send;
use pod_safety_proof::NODE_GONE_MESSAGE;
use serde_json::json;

use super::claim::{DeleteCause, GracefulDeleteRequest};
use super::outcome::DeleteOutcome;
use crate::cache;
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::clock::Env;
use crate::events::ReportingController;
use crate::lease::Leadership;
use crate::model::{DEFAULT_GRACE, Rv};
use crate::wire;

/// The reporting controller and reason of Events about deletions for taints: those of kube-controller-manager, so that
/// operators and tools that search for its Events find these.
pub(crate) const TAINT_MANAGER_EVICTION: (ReportingController, &str) =
    (ReportingController::Upstream("taint-eviction-controller"), "TaintManagerEviction");

/// Reason and message of kube-controller-manager's condition `DisruptionTarget` (KEP-3329).
const fn condition_text(cause: &DeleteCause) -> (&'static str, &'static str) {
    match cause {
        DeleteCause::Taint { .. } => ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
        DeleteCause::NodeGone { .. } => ("DeletionByPodGC", NODE_GONE_MESSAGE),
    }
}

/// The reporting controller and reason of the Event on the deleted pod, and the reason in the journal.
pub(super) const fn event_and_reason(cause: &DeleteCause) -> ((ReportingController, &'static str), &'static str) {
    match cause {
        DeleteCause::Taint { .. } => (TAINT_MANAGER_EVICTION, "TaintNotTolerated"),
        DeleteCause::NodeGone { .. } => ((ReportingController::Own, "NodeGone"), "NodeGone"),
    }
}

/// The pod after the condition was written to it.
struct MarkedPod {
    rv: Rv,
    grace: i64,
}

/// Deletes the pod gracefully. Returns the outcome, and the pod's version after the last request.
pub(super) async fn delete(
    connection: &Connection,
    env: &Env,
    leadership: &Leadership,
    delete: &GracefulDeleteRequest,
) -> (DeleteOutcome, Rv) {
    let marked = match send(connection, env, leadership, mark_call(delete, env.clock.wall()), None).await {
        Ok(answer) => match read(answer, env) {
            Ok(marked) => marked,
            Err(error) => return (error.into(), delete.rv),
        },
        Err(error) => return (error.into(), delete.rv),
    };
    match send(connection, env, leadership, delete_call(delete, &marked), None).await {
        Ok(_) => (DeleteOutcome::Ending, marked.rv),
        Err(error) => (error.into(), marked.rv),
    }
}

/// Decodes the pod after the condition was written. It is the pod of the decision, because the PATCH carried its version; a
/// terminating or terminated pod would have had another version.
fn read(answer: wire::Raw, env: &Env) -> Result<MarkedPod, RequestError> {
    let wire: wire::Pod = answer.decode().map_err(|error| RequestError::Failed(ApiError::Undecodable(error)))?;
    let grace = wire.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let pod = cache::pod_from_wire(wire, env.now())
        .map_err(|unreadable| RequestError::Failed(ApiError::Malformed(unreadable.reason().to_owned())))?;
    if pod.deletion.is_some() || pod.phase.is_terminal() {
        return Err(RequestError::Changed);
    }
    Ok(MarkedPod { rv: pod.rv, grace: grace.unwrap_or(DEFAULT_GRACE).max(MIN_GRACE_SECONDS) })
}

/// The PATCH of the condition. A condition that is already true keeps its transition time: a retry then changes nothing.
fn mark_call(delete: &GracefulDeleteRequest, wall: Timestamp) -> Call {
    let GracefulDeleteRequest { pod, rv, generation, disrupted_since, cause, due: _ } = delete;
    let (reason, message) = condition_text(cause);
    let since = disrupted_since.filter(|seconds| *seconds > 0).and_then(|seconds| Timestamp::from_second(seconds).ok());
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
