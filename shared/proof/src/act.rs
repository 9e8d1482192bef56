//! The acts that evidence permits: force delete a pod, taint a node out of service, revoke the holder of a volume's Lease.
//!
//! Danger note: no other code releases what a process that may still run uses. Each act consumes its evidence. Each request
//! carries the UID and the resourceVersion to which the evidence is bound, so a write by a kubelet in between makes the
//! request fail with a conflict. Each request also carries a [`Permit`], which the guard compares with the bytes that are
//! sent.

use jiff::Timestamp;
use pod_safety_model::{Holder, Incarnation, Kind, Mono, OUT_OF_SERVICE_TAINT, Rv};
use pod_safety_wire as wire;
use serde_json::{Value, json};

use crate::evidence::{Evidence, EvidenceKind, LeaseVersion, PodVersion};
use crate::guard::Permit;

/// A request that carries the permit for itself. Its fields are private: a caller can send it, and cannot change it.
#[derive(Debug)]
pub struct Request {
    verb: Verb,
    path: String,
    body: Value,
    permit: Permit,
}

/// The HTTP method of a request, and the content type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// PATCH, as a strategic merge patch.
    Patch,
    /// PATCH, as a merge patch (RFC 7386).
    Merge,
    /// DELETE.
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
    /// The version at which the phase is terminal; DELETE names it. `None`: the PATCH must be sent first.
    terminal_rv: Option<Rv>,
}

/// What follows a successful answer.
#[derive(Debug)]
pub enum Next {
    /// The PATCH succeeded: DELETE is the next request.
    Delete(ForceDelete),
    /// The DELETE succeeded: the pod is removed, or its finalizers keep the object until their controllers remove them.
    Done {
        /// The kind of evidence that permitted the deletion.
        kind: EvidenceKind,
        /// The object still has finalizers.
        finalizers_remain: bool,
    },
}

/// The answer to the PATCH has no resourceVersion: the act ends, and the controller decides again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pod without a resourceVersion")]
pub struct NoVersion;

/// The message of the condition that kube-controller-manager writes on a pod whose Node does not exist (KEP-3329).
pub const NODE_GONE_MESSAGE: &str = "PodGC: node no longer exists";

impl ForceDelete {
    /// The force deletion of the pod that `evidence` is about.
    #[must_use]
    pub fn new(evidence: Evidence<PodVersion>) -> Self {
        let version = evidence.subject();
        let terminal_rv = version.terminal.then_some(version.rv);
        Self { evidence, terminal_rv }
    }

    /// When the evidence expires. No request is sent from then on.
    #[must_use]
    pub const fn expires(&self) -> Mono {
        self.evidence.expires()
    }

    /// The next request: the PATCH of the status, then the DELETE. No separate read of the pod is needed: the PATCH fails
    /// if anything was written since, and its answer has the version for the DELETE. `wall` only fills
    /// `lastTransitionTime`.
    #[must_use]
    pub fn request(&self, wall: Timestamp) -> Request {
        let PodVersion { pod, rv, .. } = self.evidence.subject();
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        let (uid, send) = (pod.uid.to_string(), |verb, path, rv: Rv, body| {
            Request::new(verb, path, &pod.uid.to_string(), &rv.to_string(), body)
        });
        let Some(terminal_rv) = self.terminal_rv else {
            return send(Verb::Patch, format!("{path}/status"), *rv, self.failed_status(&uid, wall));
        };
        // docs/assumptions.md: compares-and-swaps
        let preconditions = json!({ "uid": uid, "resourceVersion": terminal_rv });
        let body = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "preconditions": preconditions });
        send(Verb::Delete, path, terminal_rv, body)
    }

    /// The patch of kube-controller-manager (`markFailedAndDeletePodWithCondition`), with the resourceVersion as a further
    /// condition. It is a strategic merge patch: server-side apply fails on pods with duplicated ports or variables
    /// (kubernetes#118261).
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

    /// Advances by the metadata of a successful answer.
    ///
    /// # Errors
    /// The answer to the PATCH has no resourceVersion for the DELETE.
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

/// Reason and message of the condition DisruptionTarget. `None`: the pod ended by itself, or was never scheduled.
fn disruption_reason(kind: &EvidenceKind) -> Option<(&'static str, String)> {
    match kind {
        EvidenceKind::NodeGone { .. } => Some(("DeletionByPodGC", NODE_GONE_MESSAGE.to_owned())),
        kind => kind.is_fencing().then(|| ("FencedByPodSafety", kind.to_string())),
    }
}

/// A Node with all of its fields, as a quorum read returned it.
#[derive(Debug)]
pub struct WholeNode<'a> {
    name: &'a str,
    object: &'a Value,
}

/// Why the out-of-service taint is not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaintRefusal {
    /// The evidence is not evidence of fencing, or is about another incarnation of the node.
    WrongEvidence,
    /// The node is Ready.
    Ready,
    /// The node has an out-of-service taint already.
    AlreadyTainted,
}

impl<'a> WholeNode<'a> {
    /// The Node `object`, whose name is `name`.
    #[must_use]
    pub const fn new(name: &'a str, object: &'a Value) -> Self {
        Self { name, object }
    }

    fn text(&self, pointer: &str) -> &'a str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The incarnation: UID and boot ID.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        let (uid, boot) = (self.text("/metadata/uid").to_owned(), self.text("/status/nodeInfo/bootID"));
        Incarnation::new(self.name.to_owned(), uid, boot)
    }

    /// The resourceVersion.
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

    /// The taints, as JSON.
    #[must_use]
    pub fn taints(&self) -> Vec<Value> {
        self.object.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default()
    }

    /// A patch of taints (and of labels, in `body`) that keeps an out-of-service taint and adds none: each out-of-service
    /// taint in `body` is on the node at this version. It needs no evidence. `None`: `body` names no such taint, or would
    /// add one.
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

/// Whether the taint names the key in any field, as the guard searches for it.
fn names_out_of_service(taint: &Value) -> bool {
    taint.to_string().contains(OUT_OF_SERVICE_TAINT)
}

/// Taints a node out of service with `value`: kube-controller-manager then force deletes its pods and detaches its volumes.
/// The request may be sent until the evidence expires.
///
/// # Errors
/// The node is in another state than the evidence requires.
pub fn taint_out_of_service(
    evidence: Evidence<Incarnation>,
    node: &WholeNode<'_>,
    value: &str,
    wall: Timestamp,
) -> Result<(Request, Mono), TaintRefusal> {
    let subject = evidence.subject();
    let same = node.incarnation() == *subject && !subject.boot_id.is_empty();
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
    let body = json!({ "metadata": { "uid": uid, "resourceVersion": version }, "spec": { "taints": taints } });
    let path = format!("/api/v1/nodes/{}", node.name);
    Ok((Request::new(Verb::Patch, path, uid, version, body), evidence.expires()))
}

/// Revokes the holder of a volume's Lease: the Lease then has no holder, or the holder `next`. `body` has the labels,
/// annotations and times of the Lease; this function writes `holderIdentity` and `leaseTransitions`. The request may be
/// sent until the evidence expires.
#[must_use]
pub fn revoke_holder(
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
