//! One incident, and the present state of its node. Pure.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::api::{Attempt, DesiredPower, NodeFenceStatus, Phase, PolicyMode, Trigger, Unhealthy};
use pod_safety_shared::authority::{
    FenceKey, FenceStepRequest, Intent, Step, Target, dry_run_name, storage_evidence_name,
};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::{Backoff, Mono};
use pod_safety_shared::controller_loop::Subject;
use pod_safety_shared::model::{
    FenceEvidenceObject, FencePolicyObject, Kind, LeaseHolder, Node, NodeFenceObject, Pod, Readiness, Uid,
};

use super::config::Config;
use super::unhealthy::{is_still_unhealthy, is_unhealthy};

/// How often to check what waits for other controllers, or for numbers that no watch event brings.
pub(super) const RECHECK_AFTER: Duration = Duration::from_secs(5);

/// Added to the time of an attempt: the executor stops at its end by a clock that may be slower than ours.
const MARGIN: Duration = Duration::from_secs(2);

/// The pauses between attempts: a device that is busy, or that locks logins for a while after wrong ones, is not helped
/// by quick retries.
const BACKOFF: Backoff = Backoff { initial: Duration::from_secs(5), maximum: Duration::from_secs(60) };

/// How the Node in the API matches the incident's incarnation.
#[derive(Clone, Copy, Debug)]
pub(super) enum NodeMatch<'a> {
    /// The Node does not exist.
    Gone,
    /// The Node reports no boot ID.
    UnknownBoot(&'a Node),
    /// The Node has the incident's UID and boot ID.
    SameIncarnation(&'a Node),
    /// The Node was recreated, and the machine has not booted since.
    SameBoot,
    /// The machine has booted since.
    NewIncarnation(&'a Node),
}

/// Whether the node is Ready, and its kubelet reported recently.
pub(super) fn is_reporting(node: &Node, view: &View<'_>, now: Mono, measures: &Unhealthy) -> bool {
    let unreachable_for = now.since(view.last_report(node));
    node.readiness == Readiness::Ready && unreachable_for < Duration::from_secs(measures.silent_seconds.into())
}

/// Whether the node reports, and shows nothing that the policy calls unhealthy. The quorum of the control plane
/// counts only such nodes.
pub(super) fn is_healthy(node: &Node, policy: &FencePolicyObject, view: &View<'_>, now: Mono) -> bool {
    is_reporting(node, view, now, &policy.spec.unhealthy) && !is_unhealthy(node, now, &policy.spec.unhealthy)
}

/// An object that cannot be decoded may be the policy that pauses fencing, or an incident that is in flight.
pub(super) fn check_readable(view: &View<'_>, kinds: &[Kind]) -> Option<Hold> {
    let count = |kind: &Kind| (*kind, view.count(*kind).1);
    kinds.iter().map(count).find(|(_, count)| *count > 0).map(|(kind, count)| Hold::FencingUnreadable { kind, count })
}

/// One incident as observed now.
#[derive(Clone, Debug)]
pub(super) struct Incident<'a> {
    pub(super) fence: &'a NodeFenceObject,
    pub(super) node_match: NodeMatch<'a>,
    pub(super) name: Arc<str>,
    pub(super) view: View<'a>,
    pub(super) now: Mono,
    pub(super) config: &'a Config,
}

/// Whether the incident is about the node's present incarnation.
pub(super) fn is_about(fence: &NodeFenceObject, node: &Node) -> bool {
    node.matches_incarnation(&fence.spec.node)
}

/// Whether a person requested it as a dry run only: it does not keep a real incident from being opened.
pub(super) fn is_dry_run_incident(fence: &NodeFenceObject) -> bool {
    fence.spec.dry_run && *fence.name == *dry_run_name(&fence.spec.node)
}

/// Whether it only records what it would do.
pub(super) fn is_dry_run(fence: &NodeFenceObject, policy: &FencePolicyObject) -> bool {
    fence.spec.dry_run || policy.spec.mode == PolicyMode::DryRun
}

/// The subject of a hold about fencing this node.
pub(super) fn incident_subject(node: &Node) -> Subject {
    Subject::Fencing { node: Arc::clone(&node.name), uid: node.uid.clone() }
}

/// The NodeFence as observed, with the status that it should have.
pub(super) fn step_target(fence: &NodeFenceObject, status: NodeFenceStatus) -> Target {
    Target {
        fence: FenceKey { name: Arc::clone(&fence.name), uid: fence.uid.clone(), rv: fence.rv },
        spec: Box::new(fence.spec.clone()),
        status: Box::new(status),
    }
}

/// One step.
pub(super) fn fence_step(node: &Arc<str>, step: Step) -> Decision {
    let fencing = FenceStepRequest { node: Arc::clone(node), step };
    Decision { intents: vec![Intent::Fence(Box::new(fencing))], ..Decision::default() }
}

impl<'a> Incident<'a> {
    pub(super) fn new(
        fence: &'a NodeFenceObject,
        node: Option<&'a Node>,
        view: &View<'a>,
        now: Mono,
        config: &'a Config,
    ) -> Self {
        let spec = &fence.spec.node;
        let node_match = match node {
            None => NodeMatch::Gone,
            Some(node) => {
                let boot_id = node.boot();
                match (node.uid.to_string() == spec.uid, boot_id.is_known_same(spec.boot()), boot_id.is_unknown()) {
                    (_, _, true) => NodeMatch::UnknownBoot(node),
                    (true, true, false) => NodeMatch::SameIncarnation(node),
                    (false, true, false) => NodeMatch::SameBoot,
                    (_, false, false) => NodeMatch::NewIncarnation(node),
                }
            }
        };
        Self { fence, node_match, name: spec.name.as_str().into(), view: *view, now, config }
    }

    /// The policy that the incident names.
    pub(super) fn policy(&self) -> Option<&'a FencePolicyObject> {
        self.view.policies().find(|policy| *policy.name == *self.fence.spec.policy)
    }

    pub(super) const fn status(&self) -> &'a NodeFenceStatus {
        &self.fence.status
    }

    /// The Node, if it is in the incident's incarnation.
    pub(super) const fn node(&self) -> Option<&'a Node> {
        match self.node_match {
            NodeMatch::SameIncarnation(node) => Some(node),
            NodeMatch::Gone | NodeMatch::UnknownBoot(_) | NodeMatch::SameBoot | NodeMatch::NewIncarnation(_) => None,
        }
    }

    /// The node was fenced because it was lost or unhealthy, not on request, and it has recovered: the message.
    pub(super) fn recovery_message(&self) -> Option<&'static str> {
        let node = self.node()?;
        let measures = self.policy().map(|policy| policy.spec.unhealthy.clone()).unwrap_or_default();
        let trigger = &self.fence.spec.trigger;
        let (well, message) = match trigger.kind {
            Trigger::Detected => {
                (is_reporting(node, &self.view, self.now, &measures), "the node reports again, with the same boot")
            }
            // If the node does not report by now, it is fenced as lost, in an incident of its own.
            Trigger::Unhealthy => (
                !is_still_unhealthy(node, trigger.condition.as_ref(), self.now, &measures),
                "the node no longer shows what its policy calls unhealthy",
            ),
            Trigger::Person | Trigger::External => return None,
        };
        well.then_some(message)
    }

    /// The number of its pods that are being deleted and still exist.
    pub(super) fn count_pods_waiting(&self) -> usize {
        let waits = |pod: &&Pod| pod.deletion.is_some() && !pod.waits_for_finalizers();
        self.view.pods_on(&self.name).filter(waits).count()
    }

    /// The number of pods for which a kubelet that came back has not yet reported that it observed their deletion.
    /// Pods that arrived in this boot are not part of the incident.
    pub(super) fn pods_of_previous_boot(&self, node: &Node) -> usize {
        let boot_seen = node.details.as_ref().map_or(self.now, |details| details.boot_first_seen);
        let waits = |pod: &&Pod| {
            pod.deletion.is_some()
                && !pod.waits_for_finalizers()
                && pod.placed_at <= boot_seen
                && pod.observed_generation < pod.generation.max(1)
        };
        self.view.pods_on(&self.name).filter(waits).count()
    }

    /// Valid evidence about this incarnation that the policy accepts.
    pub(super) fn valid_evidence(&self) -> Option<&'a FenceEvidenceObject> {
        match self.node_match {
            NodeMatch::SameIncarnation(node) => self.view.evidence_for(node, self.now),
            NodeMatch::Gone => self.view.evidence_for_deleted(&self.fence.spec.node, self.policy(), self.now),
            NodeMatch::UnknownBoot(_) | NodeMatch::SameBoot | NodeMatch::NewIncarnation(_) => None,
        }
    }

    /// Adopts evidence that the status does not name: from another source, or our own. While the node is Ready, the
    /// incident waits.
    pub(super) fn adopt_evidence(&self) -> Option<Decision> {
        let proof = self.valid_evidence().filter(|proof| self.status().evidence.as_deref() != Some(&*proof.name))?;
        if self.node().is_some_and(|node| node.readiness == Readiness::Ready) {
            return Some(self.hold_and_recheck(Hold::NodeStillReady { node: Arc::clone(&self.name) }));
        }
        let message = format!("{:?} by {}", proof.spec.kind, proof.spec.by);
        let status = NodeFenceStatus {
            evidence: Some(proof.name.to_string()),
            gates: Vec::new(),
            ..self.status_with(Phase::Fenced, message)
        };
        Some(self.step(Step::Write, status))
    }

    /// Adopts other valid evidence about this incarnation in place of evidence that is no longer valid, if the node
    /// is not Ready.
    pub(super) fn adopt_if_not_ready(&self) -> Option<Decision> {
        let is_lost = self.node().is_none_or(|node| node.readiness != Readiness::Ready);
        self.adopt_evidence().filter(|_| is_lost)
    }

    /// The last attempt if it has no outcome yet, and the time after which it can take effect no more. The time
    /// counts from when this process first saw the status, because another replica may have begun the attempt.
    pub(super) fn in_flight_attempt(&self) -> Option<(&'a Attempt, Mono)> {
        let last = self.status().attempts.last()?;
        let open = last.outcome.is_none() && last.verified.is_none();
        let within = Duration::from_secs(last.within_seconds.into());
        open.then(|| (last, self.fence.status_seen + within + MARGIN))
    }

    /// The hold while [`Incident::in_flight_attempt`] may still take effect.
    pub(super) fn wait_for_attempt(&self) -> Option<Decision> {
        let (attempt, due) = self.in_flight_attempt().filter(|(_, due)| self.now < *due)?;
        let (node, act, left) = (Arc::clone(&self.name), attempt.act, due.since(self.now));
        Some(self.hold(Hold::AttemptUnderWay { node, act, left }).and_requeue_at(due))
    }

    /// The number of consecutive last attempts of this act, and when the next one may begin.
    pub(super) fn backoff(&self, act: DesiredPower) -> (usize, Mono) {
        let tried = self.status().attempts.iter().rev().take_while(|attempt| attempt.act == act).count();
        let pause = BACKOFF.after(u32::try_from(tried).unwrap_or(u32::MAX));
        (tried, self.fence.status_seen + pause)
    }

    pub(super) fn subject(&self) -> Subject {
        let node = Arc::clone(&self.name);
        match Uid::new(&self.fence.spec.node.uid) {
            Some(uid) => Subject::Fencing { node, uid },
            None => Subject::Node(node),
        }
    }

    pub(super) fn hold(&self, hold: Hold) -> Decision {
        Decision::hold(self.subject(), hold)
    }

    /// A hold that no watch event need end.
    pub(super) fn hold_and_recheck(&self, hold: Hold) -> Decision {
        self.hold(hold).and_requeue_at(self.now + RECHECK_AFTER)
    }

    /// A step with this status.
    pub(super) fn step(&self, step: fn(Target) -> Step, status: NodeFenceStatus) -> Decision {
        fence_step(&self.name, step(step_target(self.fence, status)))
    }

    /// The status with another phase and another message.
    pub(super) fn status_with(&self, phase: Phase, message: impl Into<String>) -> NodeFenceStatus {
        NodeFenceStatus { phase, message: message.into(), ..self.status().clone() }
    }

    /// Writes another phase and another message; a gate that held the last phase does not hold this one.
    pub(super) fn change_phase(&self, phase: Phase, message: impl Into<String>) -> Decision {
        let status = NodeFenceStatus { gates: Vec::new(), ..self.status_with(phase, message) };
        self.step(Step::Write, status)
    }

    /// Ends the incident and lifts its storage fencing, as soon as nothing depends on it.
    pub(super) fn finish(&self, phase: Phase, message: impl Into<String>) -> Decision {
        self.keep_fenced().unwrap_or_else(|| self.change_phase(phase, message))
    }

    /// The name of the evidence that this attempt fenced storage.
    pub(super) fn evidence_name_for_storage(&self, attempt: &Attempt) -> String {
        storage_evidence_name(&self.fence.spec.node, &self.fence.uid, attempt.id)
    }

    /// Whether volumes may have been given to other nodes because this attempt fenced their storage. That is
    /// possible, too, where the evidence was written and the status was not.
    pub(super) fn is_storage_fenced_by(&self, attempt: &Attempt) -> bool {
        let name = self.evidence_name_for_storage(attempt);
        let mut proofs = self.view.fence_evidence_of(&self.name);
        attempt.has_fenced_storage() && !proofs.any(|proof| *proof.name == *name && proof.status.invalidated.is_some())
    }

    /// What keeps the storage fenced: the node is not Ready, or a pod there is being deleted or uses a volume that
    /// another node holds by now. Lifted before, two nodes would write to it. `None`: nothing does.
    pub(super) fn keep_fenced(&self) -> Option<Decision> {
        if !self.status().attempts.iter().any(|attempt| self.is_storage_fenced_by(attempt)) {
            return None;
        }
        let node = Arc::clone(&self.name);
        let is_ready = match self.view.node(&self.name) {
            Lookup::Known(node) => node.readiness == Readiness::Ready,
            Lookup::Absent | Lookup::Unknown(_) => false,
        };
        if !is_ready {
            return Some(self.hold_and_recheck(Hold::AwaitingNodeReady { node }));
        }
        let lost = |pod: &&Pod| !pod.has_terminated() && self.has_lost_volume(pod);
        let pods = self.count_pods_waiting().max(self.view.pods_on(&self.name).filter(lost).count());
        (pods > 0).then(|| self.hold_and_recheck(Hold::WaitsForPods { node, pods }))
    }

    /// Whether another node holds one of the pod's volumes by now. Unknown claims count as such.
    fn has_lost_volume(&self, pod: &Pod) -> bool {
        let is_held_elsewhere = |claim: &Arc<str>| match self.view.claim(&pod.key.namespace, claim) {
            Lookup::Known(claim) => self.view.volume_of(claim).is_some_and(|volume| {
                let held = self.view.volume_lease(volume).map(|lease| &lease.holder);
                matches!(held, Some(LeaseHolder::By(holder)) if holder.node != self.name)
            }),
            Lookup::Unknown(_) => true,
            Lookup::Absent => !self.config.guards_volumes,
        };
        pod.claims.iter().any(is_held_elsewhere)
    }

    /// A step that begins one more attempt.
    pub(super) fn begin_attempt(&self, mut status: NodeFenceStatus, attempt: Attempt) -> Decision {
        let id = status.attempts.last().map_or(0, |last| last.id).saturating_add(1);
        status.attempts.push(Attempt { id, ..attempt });
        while status.attempts.len() > Attempt::MAX_ATTEMPTS {
            // Storage fencing that is still in force is lifted by what its attempt records: such attempts are kept.
            let oldest = status.attempts.iter().position(|attempt| !attempt.has_fenced_storage());
            status.attempts.remove(oldest.unwrap_or(0));
        }
        self.step(Step::Attempt, status)
    }
}
