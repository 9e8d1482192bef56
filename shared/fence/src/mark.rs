//! The out-of-service taint: added after proof, taken away by its owner only.
//!
//! Danger note: whoever adds it has kube-controller-manager remove the pods of the node and detach its volumes. Its
//! value is the name of our NodeFence; a taint with another value is somebody else's, and is left alone.

use pod_safety_proof::{self as proof, NotTainted, Refusal, WholeNode};
use serde_json::{Value, json};

use super::Acting;
use crate::api::Incarnation;
use crate::client::{ApiError, Call, Method, WriteCall as _};
use crate::model::OUT_OF_SERVICE_TAINT;
use crate::outcome::{Outcome, Unproved};

/// A node with all of its fields.
async fn read(acting: &Acting<'_>, node: &str) -> Result<Value, Outcome> {
    let raw = acting.send(Call::get(format!("/api/v1/nodes/{node}")).whole()).await?;
    raw.whole().map_err(|error| Outcome::Failed(ApiError::Undecodable(error)))
}

/// Whether this evidence is there and nobody declared it invalid, nor is its time over, by a quorum read.
pub(super) async fn holds(acting: &Acting<'_>, proof: &str, node: &Incarnation) -> Result<bool, Outcome> {
    match acting.judge().still_holds(proof, node).await.map_err(outcome) {
        Err(Outcome::Gone) => Ok(false),
        holds => holds,
    }
}

/// How a step ends for which there is no evidence.
fn outcome(unproved: Unproved) -> Outcome {
    match unproved {
        Unproved::Refused(Refusal::KubeletAlive(_) | Refusal::NodeInService) => Outcome::Heard,
        Unproved::Read(error) => Outcome::of(error),
        unproved @ (Unproved::Refused(_) | Unproved::Late { .. }) => Outcome::Refused(unproved),
    }
}

/// Puts the taint on the node, if the judge finds that evidence about this incarnation of it holds now, by its devices, too:
/// kube-controller-manager acts on the taint alone.
pub(super) async fn add(
    acting: &Acting<'_>,
    node: &Incarnation,
    fence: &str,
    proof: &str,
) -> Result<(), Outcome> {
    let (name, proof) = (node.name.as_str().into(), proof.into());
    // Devices may take long to answer.
    let judged = acting.while_leading(acting.judge().fenced(&name, &proof)).await?;
    let in_time = judged.and_then(|proved| Unproved::unless_late(proved, acting.env.now()));
    let proved = in_time.map_err(outcome)?;
    if proved.subject() != node {
        return Err(Outcome::Changed);
    }
    let whole = read(acting, &node.name).await?;
    let whole = WholeNode::new(&node.name, &whole);
    match proof::out_of_service(proved, &whole, fence, acting.env.clock.wall()) {
        Ok((request, expires)) => acting.means.send(Call::permitted(request), Some(expires)).await.map(drop),
        Err(NotTainted::Unproved) => Err(Outcome::Changed),
        Err(NotTainted::Ready) => Err(Outcome::Heard),
        Err(NotTainted::HasIt) => Ok(()),
    }
}

/// When our taint may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// The node is Ready with another boot, or is another node.
    AnotherLife,
    /// At once: what it says is not true.
    Untrue,
}

/// Takes our taint from the node.
pub(super) async fn remove(
    acting: &Acting<'_>,
    node: &Incarnation,
    fence: &str,
    when: When,
) -> Result<(), Outcome> {
    let whole = match read(acting, &node.name).await {
        Err(Outcome::Gone) => return Ok(()),
        read => read?,
    };
    let whole = WholeNode::new(&node.name, &whole);
    if when == When::AnotherLife && (whole.incarnation() == *node || !whole.is_ready()) {
        return Err(Outcome::Changed);
    }
    let ours = |taint: &Value| taint["key"] == OUT_OF_SERVICE_TAINT && taint["value"] == fence;
    let mut taints = whole.taints();
    if !taints.iter().any(ours) {
        return Ok(());
    }
    taints.retain(|taint| !ours(taint));
    let (uid, version) = (whole.incarnation().uid, whole.version());
    let body =
        json!({ "metadata": { "uid": uid, "resourceVersion": version }, "spec": { "taints": taints } });
    let path = format!("/api/v1/nodes/{}", node.name);
    let kept = whole.keeps(body.clone());
    let call = kept.map_or_else(|| Call::write(Method::Patch, path, &body), Call::permitted);
    acting.means.send(call, None).await.map(drop)
}
