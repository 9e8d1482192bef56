//! The out-of-service taint: added after proof, removed by its owner only.
//!
//! Danger note: adding it makes kube-controller-manager remove the pods of the node and detach its volumes. Its value
//! is the name of our NodeFence; a taint with another value belongs to another client, and is not touched.

use pod_safety_proof::{self as proof, Refusal, TaintRefusal, WholeNode};
use serde_json::{Value, json};

use super::StepContext;
use crate::api::Incarnation;
use crate::client::{ApiError, Call, Method, WriteCall as _};
use crate::model::OUT_OF_SERVICE_TAINT;
use crate::outcome::{Outcome, RequestError, VerifyError};

/// Reads a node with all of its fields.
async fn read(context: &StepContext<'_>, node: &str) -> Result<Value, Outcome> {
    let raw = context.send(Call::get(format!("/api/v1/nodes/{node}")).all_fields()).await?;
    raw.to_json().map_err(|error| Outcome::Failed(ApiError::Undecodable(error)))
}

/// Whether this evidence exists, was not declared invalid and has not expired, by a quorum read.
pub(super) async fn is_evidence_current(
    context: &StepContext<'_>,
    evidence: &str,
    node: &Incarnation,
) -> Result<bool, Outcome> {
    match context.evidence_reader().is_not_withdrawn(evidence, node).await.map_err(to_outcome) {
        Err(Outcome::Gone) => Ok(false),
        holds => holds,
    }
}

/// The outcome of a step whose evidence does not hold.
fn to_outcome(error: VerifyError) -> Outcome {
    match error {
        VerifyError::Refused(Refusal::KubeletAlive(_) | Refusal::NodeInService) => Outcome::Heard,
        VerifyError::Read(error) => RequestError::from_error(error).into(),
        error @ (VerifyError::Refused(_) | VerifyError::Late { .. }) => Outcome::Refused(error),
    }
}

/// Adds the taint to the node, if the kernel finds that evidence about this incarnation holds now, by a new status
/// check of its devices, too: kube-controller-manager acts on the taint alone.
pub(super) async fn add(
    context: &StepContext<'_>,
    node: &Incarnation,
    fence: &str,
    evidence: &str,
) -> Result<(), Outcome> {
    let (name, proof) = (node.name.as_str().into(), evidence.into());
    // Devices may take long to answer.
    let result = context.while_leading(context.evidence_reader().verify_fenced_node(&name, &proof)).await?;
    let in_time = result.and_then(|proved| VerifyError::check_not_late(proved, context.env.now()));
    let proved = in_time.map_err(to_outcome)?;
    if proved.subject() != node {
        return Err(Outcome::Changed);
    }
    let whole = read(context, &node.name).await?;
    let whole = WholeNode::new(&node.name, &whole);
    match proof::taint_out_of_service(proved, &whole, fence, context.env.clock.wall()) {
        Ok((request, expires)) => Ok(context.writer.send(Call::permitted(request), Some(expires)).await.map(drop)?),
        Err(TaintRefusal::WrongEvidence) => Err(Outcome::Changed),
        Err(TaintRefusal::Ready) => Err(Outcome::Heard),
        Err(TaintRefusal::AlreadyTainted) => Ok(()),
    }
}

/// When our taint may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RemovalReason {
    /// The node is Ready with another boot, or is another node.
    NewIncarnation,
    /// At once: the evidence is invalid.
    EvidenceInvalid,
}

/// Removes our taint from the node.
pub(super) async fn remove(
    context: &StepContext<'_>,
    node: &Incarnation,
    fence: &str,
    reason: RemovalReason,
) -> Result<(), Outcome> {
    let whole = match read(context, &node.name).await {
        Err(Outcome::Gone) => return Ok(()),
        read => read?,
    };
    let whole = WholeNode::new(&node.name, &whole);
    if reason == RemovalReason::NewIncarnation && (whole.incarnation() == *node || !whole.is_ready()) {
        return Err(Outcome::Changed);
    }
    let is_own = |taint: &Value| taint["key"] == OUT_OF_SERVICE_TAINT && taint["value"] == fence;
    let mut taints = whole.taints();
    if !taints.iter().any(is_own) {
        return Ok(());
    }
    taints.retain(|taint| !is_own(taint));
    let (uid, version) = (whole.incarnation().uid, whole.version());
    let body = json!({ "metadata": { "uid": uid, "resourceVersion": version }, "spec": { "taints": taints } });
    let path = format!("/api/v1/nodes/{}", node.name);
    let permitted = whole.permit_kept_taints(body.clone());
    let call = permitted.map_or_else(|| Call::write(Method::Patch, path, &body), Call::permitted);
    context.send(call).await.map(drop)
}
