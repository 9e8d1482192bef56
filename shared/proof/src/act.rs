//! The acts that evidence permits: force delete a pod, declare a node out of service, break the Lease of a volume.
//!
//! Danger note: nothing else frees what a process that may still run holds. Each act consumes its evidence. Its requests carry the
//! UID and the resourceVersion to which the evidence is bound, so a kubelet that still writes breaks the act; and a [`Permit`]
//! each, which the guard compares with the bytes.

use jiff::Timestamp;
use pod_safety_model::{Holder, Incarnation, Kind, Mono, OUT_OF_SERVICE_TAINT, Rv};
use pod_safety_wire as wire;
use serde_json::{Value, json};

use crate::evidence::{Evidence, EvidenceKind, LeaseVersion, PodVersion};
use crate::guard::Permit;

/// A request that the guard lets through. Its fields are private: it is sent as it is, or not at all.
#[derive(Debug)]
pub struct Request {
    verb: Verb,
    path: String,
    body: Value,
    permit: Permit,
}

/// How it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Strategic merge patch.
    Patch,
    /// Merge patch (RFC 7386).
    Merge,
    /// Delete.
    Delete,
}

impl Request {
    fn new(verb: Verb, path: String, uid: &str, version: &str, body: Value) -> Self {
        let permit = Permit { path: path.clone(), uid: uid.to_owned(), version: version.to_owned() };
        Self { verb, path, body, permit }
    }

    /// Verb, path, body, and the permit for them.
    #[must_use]
    pub fn into_parts(self) -> (Verb, String, Value, Permit) {
        (self.verb, self.path, self.body, self.permit)
    }
}

/// The force deletion of one pod: PATCH of its status, then DELETE. A state machine without IO.
#[derive(Debug)]
pub struct ForceDelete {
    evidence: Evidence<PodVersion>,
    /// The version that DELETE names, once it is known.
    terminal_rv: Option<Rv>,
}

/// What follows an answer.
#[derive(Debug)]
pub enum Next {
    /// The other request of the pair.
    Delete(ForceDelete),
    /// The pod is removed; or finalizers keep the object, and it was removed as far as we may.
    Done {
        /// What it rested on.
        kind: EvidenceKind,
        /// Finalizers keep the object.
        finalizers_remain: bool,
    },
}

/// An answer that names no version: the act ends, and the decision starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pod without a resourceVersion")]
pub struct NoVersion;

/// KCM's condition on a pod whose node is gone (KEP-3329).
pub const NODE_GONE_MESSAGE: &str = "PodGC: node no longer exists";

impl ForceDelete {
    /// Of the pod that `evidence` is about.
    #[must_use]
    pub fn new(evidence: Evidence<PodVersion>) -> Self {
        let version = evidence.subject();
        let terminal_rv = version.terminal.then_some(version.rv);
        Self { evidence, terminal_rv }
    }

    /// From then on no request may be sent.
    #[must_use]
    pub const fn expires(&self) -> Mono {
        self.evidence.expires()
    }

    /// The request that is due. The PATCH is the re-read of the pod: it fails if anything was written since, and its answer has
    /// the version for the DELETE. `wall` is for people.
    #[must_use]
    pub fn request(&self, wall: Timestamp) -> Request {
        let PodVersion { pod, rv, .. } = self.evidence.subject();
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        let (uid, send) = (pod.uid.to_string(), |verb, path, rv: Rv, body| {
            Request::new(verb, path, &pod.uid.to_string(), &rv.to_string(), body)
        });
        let Some(ended) = self.terminal_rv else {
            return send(Verb::Patch, format!("{path}/status"), *rv, self.failed_status(&uid, wall));
        };
        let preconditions = json!({ "uid": uid, "resourceVersion": ended });
        let body = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "preconditions": preconditions });
        send(Verb::Delete, path, ended, body)
    }

    /// KCM's patch (`markFailedAndDeletePodWithCondition`), made conditional on the resourceVersion too. A strategic merge patch,
    /// for server-side apply fails on pods with duplicated ports or variables (kubernetes#118261).
    fn failed_status(&self, uid: &str, wall: Timestamp) -> Value {
        let PodVersion { rv, generation, .. } = self.evidence.subject();
        let mut status = json!({ "phase": "Failed", "observedGeneration": generation });
        if let Some((reason, message)) = disruption_reason(self.evidence.kind()) {
            status["conditions"] = json!([{
                "type": "DisruptionTarget",
                "status": "True",
                "reason": reason,
                "message": message,
                "observedGeneration": generation,
                "lastTransitionTime": format!("{wall:.0}"),
            }]);
        }
        json!({ "metadata": { "uid": uid, "resourceVersion": rv }, "status": status })
    }

    /// Takes the metadata of a successful answer.
    ///
    /// # Errors
    /// It has no version for the DELETE.
    pub fn advance(self, answer: &wire::ObjectMeta) -> Result<Next, NoVersion> {
        if self.terminal_rv.is_some() {
            let Self { evidence, .. } = self;
            let finalizers_remain = !answer.finalizers.is_empty();
            return Ok(Next::Done { kind: evidence.into_kind(), finalizers_remain });
        }
        let version = answer.resource_version.as_deref().and_then(|version| version.parse().ok());
        Ok(Next::Delete(Self { terminal_rv: Some(version.ok_or(NoVersion)?), ..self }))
    }
}

/// Why the pod is disrupted, where that is not its own doing.
fn disruption_reason(kind: &EvidenceKind) -> Option<(&'static str, String)> {
    match kind {
        EvidenceKind::NodeGone { .. } => Some(("DeletionByPodGC", NODE_GONE_MESSAGE.to_owned())),
        kind => kind.is_fencing().then(|| ("FencedByPodSafety", kind.to_string())),
    }
}

/// A Node with all of its fields, as a quorum read showed it.
#[derive(Debug)]
pub struct WholeNode<'a> {
    name: &'a str,
    object: &'a Value,
}

/// Why a taint is not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaintRefusal {
    /// The evidence is of another kind than fencing, or the node is in another incarnation than it is about.
    WrongEvidence,
    /// It is Ready.
    Ready,
    /// It has such a taint already.
    AlreadyTainted,
}

impl<'a> WholeNode<'a> {
    /// The node of this name.
    #[must_use]
    pub const fn new(name: &'a str, object: &'a Value) -> Self {
        Self { name, object }
    }

    fn text(&self, pointer: &str) -> &'a str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Its incarnation.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        let (uid, boot) = (self.text("/metadata/uid").to_owned(), self.text("/status/nodeInfo/bootID"));
        Incarnation::new(self.name.to_owned(), uid, boot)
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> &'a str {
        self.text("/metadata/resourceVersion")
    }

    /// Whether its condition Ready is True.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let conditions = self.object.pointer("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
    }

    /// Its taints.
    #[must_use]
    pub fn taints(&self) -> Vec<Value> {
        self.object.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default()
    }

    /// A write of its taints (and of labels, in `body`) that names the out-of-service taint and declares nothing: each such taint
    /// is one that the node has at this version. It needs no evidence. `None`: it names none, or would declare one.
    #[must_use]
    pub fn permit_kept_taints(&self, mut body: Value) -> Option<Request> {
        let has = self.taints();
        let written = body["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let mut named = written.iter().filter(|taint| names_out_of_service(taint)).peekable();
        if named.peek().is_none() || !named.all(|taint| has.contains(taint)) {
            return None;
        }
        let (uid, version) = (self.text("/metadata/uid"), self.version());
        body["metadata"]["uid"] = json!(uid);
        body["metadata"]["resourceVersion"] = json!(version);
        Some(Request::new(Verb::Patch, format!("/api/v1/nodes/{}", self.name), uid, version, body))
    }
}

fn is_out_of_service(taint: &Value) -> bool {
    taint["key"] == OUT_OF_SERVICE_TAINT
}

/// As the guard reads it: in whatever place.
fn names_out_of_service(taint: &Value) -> bool {
    taint.to_string().contains(OUT_OF_SERVICE_TAINT)
}

/// Declares a node out of service by the taint `key=value`: kube-controller-manager removes its pods and detaches its volumes.
/// The request may be sent until the evidence expires.
///
/// # Errors
/// The node is not as the evidence says.
pub fn taint_out_of_service(
    evidence: Evidence<Incarnation>,
    node: &WholeNode<'_>,
    value: &str,
    wall: Timestamp,
) -> Result<(Request, Mono), TaintRefusal> {
    let about = evidence.subject();
    let same = node.incarnation() == *about && !about.boot_id.is_empty();
    if !same || !evidence.kind().is_fencing() {
        return Err(TaintRefusal::WrongEvidence);
    }
    if node.is_ready() {
        return Err(TaintRefusal::Ready);
    }
    let mut taints = node.taints();
    if taints.iter().any(is_out_of_service) {
        return Err(TaintRefusal::AlreadyTainted);
    }
    taints.push(json!({ "key": OUT_OF_SERVICE_TAINT, "value": value, "effect": "NoExecute",
        "timeAdded": format!("{wall:.0}") }));
    let (uid, version) = (node.text("/metadata/uid"), node.version());
    let body =
        json!({ "metadata": { "uid": uid, "resourceVersion": version }, "spec": { "taints": taints } });
    let path = format!("/api/v1/nodes/{}", node.name);
    Ok((Request::new(Verb::Patch, path, uid, version, body), evidence.expires()))
}

/// Breaks the Lease of a volume: it has no holder any more, or `next`. `body` has the labels, annotations and times of the Lease; the
/// identity and the end of the hold are written here. The request may be sent until the evidence expires.
#[must_use]
pub fn break_volume(
    evidence: Evidence<LeaseVersion>,
    generation: i32,
    next: Option<&Holder>,
    mut body: Value,
) -> (Request, Mono) {
    let LeaseVersion { volume, uid, rv } = evidence.subject();
    let (uid, version) = (uid.to_string(), rv.to_string());
    body["metadata"]["uid"] = json!(uid);
    body["metadata"]["resourceVersion"] = json!(version);
    body["spec"]["holderIdentity"] = json!(next.map(Holder::to_string));
    body["spec"]["leaseTransitions"] = json!(generation);
    let path = format!("{}/{volume}", Kind::VolumeLeases.path());
    (Request::new(Verb::Merge, path, &uid, &version, body), evidence.expires())
}

#[cfg(test)]
mod tests;
