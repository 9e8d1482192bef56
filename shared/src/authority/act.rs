//! The act: PATCH and DELETE by compare-and-swap, within the leader's term.
//!
//! Danger note: nothing else in this project removes a pod. `force` consumes its
//! evidence, and both requests carry the UID and the resourceVersion to which the
//! evidence is bound: a kubelet that still writes breaks the act.

use jiff::Timestamp;
use serde_json::json;

use super::evidence::{Evidence, EvidenceKind};
use super::permit::Permit;
use super::verify::Refusal;
use crate::client::{ApiError, Call, Connection, Method};
use crate::clock::Env;
use crate::lease::Leadership;
use crate::model::Rv;
use crate::wire;

/// How an intent ended.
#[derive(Debug)]
pub enum Outcome {
    /// The pod is removed.
    Released(EvidenceKind),
    /// The pod is removed as far as we may: finalizers keep the object.
    FinalizersRemain(EvidenceKind),
    /// The pod ends within its own grace.
    Ending,
    /// The status is written.
    Written,
    /// The API server took the status, and what it stores is as it was: somebody
    /// between (a webhook, an admission policy) undid it. No event follows.
    NoEffect,
    /// The node was heard of meanwhile: the cache was behind, so it is us. Nothing
    /// was written.
    Heard,
    /// When its turn came, nobody wanted it any more.
    Withdrawn,
    /// Somebody else removed it first.
    Gone,
    /// It is not what the evidence was about any more; the next event decides.
    Changed,
    /// There is no evidence.
    Refused(Refusal),
    /// The evidence, or the term, ran out before the act was done.
    Expired,
    /// We do not lead.
    NotLeader,
    /// A request failed; whether it was applied may be unknown.
    Failed(ApiError),
}

impl Outcome {
    /// Its name in metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Released(_) => "released",
            Self::FinalizersRemain(_) => "finalizers_remain",
            Self::Ending => "ending",
            Self::Written => "written",
            Self::NoEffect => "no_effect",
            Self::Heard => "heard",
            Self::Withdrawn => "withdrawn",
            Self::Gone => "gone",
            Self::Changed => "changed",
            Self::Refused(_) => "refused",
            Self::Expired => "expired",
            Self::NotLeader => "not_leader",
            Self::Failed(_) => "failed",
        }
    }

    pub(super) fn of(error: ApiError) -> Self {
        if error.is_not_found() {
            Self::Gone
        } else if error.is_changed() {
            Self::Changed
        } else {
            Self::Failed(error)
        }
    }
}

/// KCM's condition on a pod whose node is gone (KEP-3329).
pub(super) const NODE_GONE_MESSAGE: &str = "PodGC: node no longer exists";

/// Removes the pod that `evidence` is about.
pub(super) async fn force(
    connection: &Connection,
    env: &Env,
    leadership: &Leadership,
    evidence: Evidence,
) -> Outcome {
    let mut rv = evidence.rv;
    if !evidence.terminal {
        // The PATCH is the re-read of the pod: it fails if anything was written
        // since, and its answer gives the version for the DELETE.
        rv = match send(connection, env, leadership, &evidence, mark_failed(&evidence, env.clock.wall()))
            .await
        {
            Ok(written) => match version(&written) {
                Some(rv) => rv,
                None => {
                    return Outcome::Failed(ApiError::ContentType(
                        "a pod without a resourceVersion".to_owned(),
                    ));
                }
            },
            Err(outcome) => return outcome,
        };
    }
    match send(connection, env, leadership, &evidence, remove(&evidence, rv)).await {
        Ok(answer) if answer.finalizers.is_empty() => Outcome::Released(evidence.kind),
        Ok(_) => Outcome::FinalizersRemain(evidence.kind),
        Err(outcome) => outcome,
    }
}

pub(super) fn version(meta: &wire::ObjectMeta) -> Option<Rv> {
    meta.resource_version.as_deref()?.parse().ok()
}

/// Sends one request of the pair, while evidence and term last.
async fn send(
    connection: &Connection,
    env: &Env,
    leadership: &Leadership,
    evidence: &Evidence,
    call: Call,
) -> Result<wire::ObjectMeta, Outcome> {
    let raw = super::send::send(connection, env, leadership, call, Some(evidence.expires)).await?;
    let only: wire::OnlyMeta = raw.decode().map_err(|error| Outcome::Failed(ApiError::Undecodable(error)))?;
    Ok(only.metadata.unwrap_or_default())
}

/// KCM's patch (`markFailedAndDeletePodWithCondition`), made conditional on the
/// resourceVersion too. A strategic merge patch, for server-side apply fails on
/// pods with duplicated ports or variables (kubernetes#118261).
fn mark_failed(evidence: &Evidence, wall: Timestamp) -> Call {
    let Evidence { pod, rv, generation, kind, .. } = evidence;
    let mut status = json!({ "phase": "Failed", "observedGeneration": generation });
    if let Some((reason, message)) = disrupted(kind) {
        status["conditions"] = json!([{
            "type": "DisruptionTarget",
            "status": "True",
            "reason": reason,
            "message": message,
            "observedGeneration": generation,
            "lastTransitionTime": format!("{wall:.0}"),
        }]);
    }
    let body = json!({ "metadata": { "uid": pod.uid, "resourceVersion": rv }, "status": status });
    let path = format!("/api/v1/namespaces/{}/pods/{}/status", pod.namespace, pod.name);
    let permit = Permit::danger_new(&path, &pod.uid, rv);
    Call::write(Method::Patch, path, &body).permitted(permit)
}

/// Why the pod is disrupted, where that is not its own doing.
fn disrupted(kind: &EvidenceKind) -> Option<(&'static str, String)> {
    match kind {
        EvidenceKind::NodeGone { .. } => Some(("DeletionByPodGC", NODE_GONE_MESSAGE.to_owned())),
        EvidenceKind::PowerOff { .. }
        | EvidenceKind::Decommissioned { .. }
        | EvidenceKind::Remediated { .. }
        | EvidenceKind::Confirmed { .. } => Some(("FencedByPodSafety", kind.to_string())),
        EvidenceKind::NeverScheduled
        | EvidenceKind::KubeletTerminated
        | EvidenceKind::BootChanged { .. }
        | EvidenceKind::StorageFenced { .. }
        | EvidenceKind::Asserted { .. } => None,
    }
}

fn remove(evidence: &Evidence, rv: Rv) -> Call {
    let pod = &evidence.pod;
    let body = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": { "uid": pod.uid, "resourceVersion": rv },
    });
    let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
    let permit = Permit::danger_new(&path, &pod.uid, rv);
    Call::write(Method::Delete, path, &body).permitted(permit)
}

#[cfg(test)]
mod tests;
