//! The out-of-service taint: added after proof, taken away by its owner only.
//!
//! Danger note: whoever adds it has kube-controller-manager remove the pods of the node and detach its volumes. Its
//! value is the name of our NodeFence; a taint with another value is somebody else's, and is left alone.

use serde_json::{Value, json};

use super::step::Acting;
use crate::api::Incarnation;
use crate::authority::act::Outcome;
use crate::authority::permit::Permit;
use crate::authority::verify::Refusal;
use crate::client::{ApiError, Call, Method};
use crate::clock::Mono;
use crate::model::OUT_OF_SERVICE_TAINT;

/// A node with all of its fields, and the incarnation that it is now.
struct Whole {
    object: Value,
    node: Incarnation,
}

impl Whole {
    fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    fn is_ready(&self) -> bool {
        let conditions = self.object.pointer("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
    }

    fn taints(&self) -> Vec<Value> {
        self.object.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default()
    }
}

fn is_out_of_service(taint: &Value) -> bool {
    taint["key"] == OUT_OF_SERVICE_TAINT
}

async fn read(acting: &Acting<'_>, node: &str) -> Result<Whole, Outcome> {
    let raw = acting.send(Call::get(format!("/api/v1/nodes/{node}")).whole()).await?;
    let object = raw.whole().map_err(|error| Outcome::Failed(ApiError::Undecodable(error)))?;
    let mut whole = Whole { object, node: Incarnation::default() };
    whole.node = Incarnation {
        name: node.to_owned(),
        uid: whole.text("/metadata/uid").to_owned(),
        boot_id: whole.text("/status/nodeInfo/bootID").to_owned(),
    };
    Ok(whole)
}

/// `expires`: when the evidence that asks for these taints ends.
async fn write(
    acting: &Acting<'_>,
    whole: &Whole,
    taints: Vec<Value>,
    expires: Option<Mono>,
) -> Result<(), Outcome> {
    let (uid, version) = (&whole.node.uid, whole.text("/metadata/resourceVersion"));
    let body =
        json!({ "metadata": { "uid": uid, "resourceVersion": version }, "spec": { "taints": taints } });
    let path = format!("/api/v1/nodes/{}", whole.node.name);
    let permit = Permit::danger_new(&path, uid, version);
    acting.means.send(Call::write(Method::Patch, path, &body).permitted(permit), expires).await.map(drop)
}

/// Whether this evidence is there and nobody declared it invalid, nor is its time over, by a quorum read.
pub(super) async fn holds(acting: &Acting<'_>, proof: &str, node: &Incarnation) -> Result<bool, Outcome> {
    match acting.judge().still_holds(proof, node).await.map_err(outcome) {
        Err(Outcome::Gone) => Ok(false),
        holds => holds,
    }
}

/// How a step ends for which there is no evidence.
fn outcome(refusal: Refusal) -> Outcome {
    match refusal {
        Refusal::KubeletAlive(_) | Refusal::NodeInService => Outcome::Heard,
        Refusal::Read(error) => Outcome::of(error),
        refusal => Outcome::Refused(refusal),
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
    let proved = judged.map_err(outcome)?;
    let whole = read(acting, &node.name).await?;
    if whole.node != *node || node.boot_id.is_empty() {
        return Err(Outcome::Changed);
    }
    if whole.is_ready() {
        return Err(Outcome::Heard);
    }
    let mut taints = whole.taints();
    if taints.iter().any(is_out_of_service) {
        return Ok(());
    }
    let wall = acting.env.clock.wall();
    taints.push(json!({
        "key": OUT_OF_SERVICE_TAINT,
        "value": fence,
        "effect": "NoExecute",
        "timeAdded": format!("{wall:.0}"),
    }));
    write(acting, &whole, taints, Some(proved.expires())).await
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
    if when == When::AnotherLife && (whole.node == *node || !whole.is_ready()) {
        return Err(Outcome::Changed);
    }
    let ours = |taint: &Value| is_out_of_service(taint) && taint["value"] == fence;
    let taints = whole.taints();
    if !taints.iter().any(ours) {
        return Ok(());
    }
    write(acting, &whole, taints.into_iter().filter(|taint| !ours(taint)).collect(), None).await
}
