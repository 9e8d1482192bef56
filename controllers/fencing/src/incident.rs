//! One incident, and what is there of its node now. Pure.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::api::{Attempt, NodeFenceStatus, Phase, PolicyMode, SwitchTo, Trigger, Unhealthy};
use pod_safety_shared::authority::{
    FenceKey, Fencing, Intent, Step, Target, rehearsal_name, storage_evidence_name,
};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::Subject;
use pod_safety_shared::model::{Fence, Held, Kind, Node, Pod, Policy, Proof, Readiness, Uid};

use super::config::Config;
use super::unwell::{shows_any, still_shows};

/// What waits for others, or for numbers that no event brings, is looked at this often.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Beyond the time of an attempt: whoever acts is told to stop at its end by a clock that may be slower than ours.
const MARGIN: Duration = Duration::from_secs(2);

/// The first pause between attempts, doubled each time up to the last: a device that was busy, or is locked for a
/// while after wrong logins, is not helped by haste.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What the API has of the node now.
#[derive(Clone, Copy, Debug)]
pub(super) enum Machine<'a> {
    /// Nothing.
    Gone,
    /// It does not say which life it is in.
    Unsaid(&'a Node),
    /// It is in the life that the incident is about.
    SameLife(&'a Node),
    /// Its Node is another one, and its machine has not booted since.
    SameBoot,
    /// It booted since.
    OtherLife(&'a Node),
}

/// Whether its kubelet reports that it is well, or did a moment ago.
pub(super) fn reports(node: &Node, view: &View<'_>, now: Mono, measures: &Unhealthy) -> bool {
    let silent = now.since(view.last_heard(node));
    node.readiness == Readiness::Ready && silent < Duration::from_secs(measures.silent_seconds.into())
}

/// What the control plane must do without is not counted on, though it reports.
pub(super) fn is_well(node: &Node, policy: &Policy, view: &View<'_>, now: Mono) -> bool {
    reports(node, view, now, &policy.spec.unhealthy) && !shows_any(node, now, &policy.spec.unhealthy)
}

/// One that cannot be read may be the policy that pauses, or an incident that is under way.
pub(super) fn unreadable(view: &View<'_>, kinds: &[Kind]) -> Option<Hold> {
    let count = |kind: &Kind| (*kind, view.count(*kind).1);
    kinds
        .iter()
        .map(count)
        .find(|(_, count)| *count > 0)
        .map(|(kind, count)| Hold::FencingUnreadable { kind, count })
}

/// One incident as seen now.
#[derive(Clone, Debug)]
pub(super) struct Incident<'a> {
    pub(super) fence: &'a Fence,
    pub(super) machine: Machine<'a>,
    pub(super) name: Arc<str>,
    pub(super) view: View<'a>,
    pub(super) now: Mono,
    pub(super) config: &'a Config,
}

/// Whether it is about the life in which this node is.
pub(super) fn is_about(fence: &Fence, node: &Node) -> bool {
    node.is_in(&fence.spec.node)
}

/// Whether a person only wanted to see it written down: it is in nobody's way.
pub(super) fn is_rehearsal(fence: &Fence) -> bool {
    fence.spec.dry_run && *fence.name == *rehearsal_name(&fence.spec.node)
}

/// Whether it only writes down what it would do.
pub(super) fn is_dry(fence: &Fence, policy: &Policy) -> bool {
    fence.spec.dry_run || policy.spec.mode == PolicyMode::DryRun
}

/// What a hold about fencing this node is about.
pub(super) fn about(node: &Node) -> Subject {
    Subject::Fencing { node: Arc::clone(&node.name), uid: node.uid.clone() }
}

/// The fence as it was seen, with the status that it should have.
pub(super) fn target(fence: &Fence, status: NodeFenceStatus) -> Target {
    Target {
        fence: FenceKey { name: Arc::clone(&fence.name), uid: fence.uid.clone(), rv: fence.rv },
        spec: Box::new(fence.spec.clone()),
        status: Box::new(status),
    }
}

/// One step.
pub(super) fn take(node: &Arc<str>, step: Step) -> Decision {
    let fencing = Fencing { node: Arc::clone(node), step };
    Decision { intents: vec![Intent::Fence(Box::new(fencing))], ..Decision::default() }
}

impl<'a> Incident<'a> {
    pub(super) fn new(
        fence: &'a Fence,
        node: Option<&'a Node>,
        view: &View<'a>,
        now: Mono,
        config: &'a Config,
    ) -> Self {
        let spec = &fence.spec.node;
        let machine = match node {
            None => Machine::Gone,
            Some(node) => {
                let boot_id = node.boot();
                match (node.uid.to_string() == spec.uid, boot_id.is(spec.boot()), boot_id.is_unknown()) {
                    (_, _, true) => Machine::Unsaid(node),
                    (true, true, false) => Machine::SameLife(node),
                    (false, true, false) => Machine::SameBoot,
                    (_, false, false) => Machine::OtherLife(node),
                }
            }
        };
        Self { fence, machine, name: spec.name.as_str().into(), view: *view, now, config }
    }

    /// The policy that it names.
    pub(super) fn policy(&self) -> Option<&'a Policy> {
        self.view.policies().find(|policy| *policy.name == *self.fence.spec.policy)
    }

    pub(super) const fn status(&self) -> &'a NodeFenceStatus {
        &self.fence.status
    }

    /// The node, in the life that it is about.
    pub(super) const fn node(&self) -> Option<&'a Node> {
        match self.machine {
            Machine::SameLife(node) => Some(node),
            Machine::Gone | Machine::Unsaid(_) | Machine::SameBoot | Machine::OtherLife(_) => None,
        }
    }

    /// Somebody saw it lost or unhealthy, nobody asked for it, and it is well again: what is said of that.
    pub(super) fn is_well_again(&self) -> Option<&'static str> {
        let node = self.node()?;
        let measures = self.policy().map(|policy| policy.spec.unhealthy.clone()).unwrap_or_default();
        let trigger = &self.fence.spec.trigger;
        let (well, words) = match trigger.kind {
            Trigger::Detected => {
                (reports(node, &self.view, self.now, &measures), "the node reports again, with the same boot")
            }
            // If it does not report by now, it is fenced for that, in an incident of its own.
            Trigger::Unhealthy => (
                !still_shows(node, trigger.condition.as_ref(), self.now, &measures),
                "the node no longer shows what its policy calls unhealthy",
            ),
            Trigger::Person | Trigger::External => return None,
        };
        well.then_some(words)
    }

    /// How many of its pods were asked to end and are still there.
    pub(super) fn pods_waiting(&self) -> usize {
        let waits = |pod: &&Pod| pod.deletion.is_some() && !pod.waits_for_finalizers();
        self.view.pods_on(&self.name).filter(waits).count()
    }

    /// How many pods wait for a kubelet that came back to report that it saw their deletion. Those that arrived in this boot are
    /// not the incident's.
    pub(super) fn pods_of_former_boot(&self, node: &Node) -> usize {
        let boot_seen = node.life.as_ref().map_or(self.now, |life| life.boot_seen);
        let waits = |pod: &&Pod| {
            pod.deletion.is_some()
                && !pod.waits_for_finalizers()
                && pod.arrived <= boot_seen
                && pod.observed < pod.generation.max(1)
        };
        self.view.pods_on(&self.name).filter(waits).count()
    }

    /// Evidence about this life that holds, and that the policy takes.
    pub(super) fn proof(&self) -> Option<&'a Proof> {
        match self.machine {
            Machine::SameLife(node) => self.view.proof_of(node, self.now),
            Machine::Gone => self.view.proof_of_gone(&self.fence.spec.node, self.policy(), self.now),
            Machine::Unsaid(_) | Machine::SameBoot | Machine::OtherLife(_) => None,
        }
    }

    /// Evidence that the status does not name: from another source, or our own. While the node is Ready, the incident waits.
    pub(super) fn adopted(&self) -> Option<Decision> {
        let proof = self.proof().filter(|proof| self.status().evidence.as_deref() != Some(&*proof.name))?;
        if self.node().is_some_and(|node| node.readiness == Readiness::Ready) {
            return Some(self.hold_for_now(Hold::NodeStillReady { node: Arc::clone(&self.name) }));
        }
        let message = format!("{:?} by {}", proof.spec.kind, proof.spec.by);
        let status = NodeFenceStatus {
            evidence: Some(proof.name.to_string()),
            gates: Vec::new(),
            ..self.with(Phase::Fenced, message)
        };
        Some(self.step(Step::Write, status))
    }

    /// Other evidence about this life that holds takes the place of what is over.
    pub(super) fn renewed(&self) -> Option<Decision> {
        let is_lost = self.node().is_none_or(|node| node.readiness != Readiness::Ready);
        self.adopted().filter(|_| is_lost)
    }

    /// If the last attempt has no outcome: when nothing of it can land any more. Counted from when this process first
    /// saw the status as it is, for whoever began it may have been another one.
    pub(super) fn under_way(&self) -> Option<(&'a Attempt, Mono)> {
        let last = self.status().attempts.last()?;
        let open = last.outcome.is_none() && last.verified.is_none();
        let within = Duration::from_secs(last.within_seconds.into());
        open.then(|| (last, self.fence.status_seen + within + MARGIN))
    }

    /// As [`Incident::under_way`]: what is waited for, while there is something.
    pub(super) fn waits_for_attempt(&self) -> Option<Decision> {
        let (attempt, due) = self.under_way().filter(|(_, due)| self.now < *due)?;
        let (node, act, left) = (Arc::clone(&self.name), attempt.act, due.since(self.now));
        Some(self.hold(Hold::AttemptUnderWay { node, act, left }).and_recheck_at(due))
    }

    /// How many attempts of this act were the last ones, and when the next one may begin.
    pub(super) fn pause(&self, act: SwitchTo) -> (usize, Mono) {
        let tried = self.status().attempts.iter().rev().take_while(|attempt| attempt.act == act).count();
        let doublings = u32::try_from(tried.saturating_sub(1)).unwrap_or(u32::MAX).min(10);
        let pause = FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE);
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

    /// A hold that no event need end.
    pub(super) fn hold_for_now(&self, hold: Hold) -> Decision {
        self.hold(hold).and_recheck_at(self.now + LOOK_AGAIN)
    }

    /// A step that leaves this status.
    pub(super) fn step(&self, step: fn(Target) -> Step, status: NodeFenceStatus) -> Decision {
        take(&self.name, step(target(self.fence, status)))
    }

    /// The status as it is, with another phase and other words.
    pub(super) fn with(&self, phase: Phase, message: impl Into<String>) -> NodeFenceStatus {
        NodeFenceStatus { phase, message: message.into(), ..self.status().clone() }
    }

    /// Writes another phase and other words; what held the last phase back does not hold this one.
    pub(super) fn turn(&self, phase: Phase, message: impl Into<String>) -> Decision {
        let status = NodeFenceStatus { gates: Vec::new(), ..self.with(phase, message) };
        self.step(Step::Write, status)
    }

    /// Nothing more comes of it, and what it fenced is lifted: when nobody relies on that.
    pub(super) fn ends(&self, phase: Phase, message: impl Into<String>) -> Decision {
        self.keeps_fenced().unwrap_or_else(|| self.turn(phase, message))
    }

    /// The name of the evidence that this attempt fenced storage.
    pub(super) fn storage_evidence(&self, attempt: &Attempt) -> String {
        storage_evidence_name(&self.fence.spec.node, &self.fence.uid, attempt.id)
    }

    /// Whether volumes may have been given to others because this attempt fenced their storage. It may, too, where the
    /// evidence was written and the status was not.
    pub(super) fn is_relied_on(&self, attempt: &Attempt) -> bool {
        let name = self.storage_evidence(attempt);
        let mut proofs = self.view.proofs_of(&self.name);
        attempt.fenced_storage()
            && !proofs.any(|proof| *proof.name == *name && proof.status.invalidated.is_some())
    }

    /// What keeps the storage fenced: the node is not heard, or a pod there was asked to end or uses a volume that is
    /// another node's by now. Lifted before, it would be written to by two. `None`: nothing does.
    pub(super) fn keeps_fenced(&self) -> Option<Decision> {
        if !self.status().attempts.iter().any(|attempt| self.is_relied_on(attempt)) {
            return None;
        }
        let node = Arc::clone(&self.name);
        let heard = match self.view.node(&self.name) {
            Lookup::Known(node) => node.readiness == Readiness::Ready,
            Lookup::Absent | Lookup::Unknown(_) => false,
        };
        if !heard {
            return Some(self.hold_for_now(Hold::AwaitingNodeReady { node }));
        }
        let lost = |pod: &&Pod| !pod.is_over() && self.lost_a_volume(pod);
        let pods = self.pods_waiting().max(self.view.pods_on(&self.name).filter(lost).count());
        (pods > 0).then(|| self.hold_for_now(Hold::WaitsForPods { node, pods }))
    }

    /// Whether one of its volumes is another node's by now, for all that is known.
    fn lost_a_volume(&self, pod: &Pod) -> bool {
        let away = |claim: &Arc<str>| match self.view.claim(&pod.key.namespace, claim) {
            Lookup::Known(claim) => self.view.volume_of(claim).is_some_and(|volume| {
                let held = self.view.volume_lease(volume).map(|lease| &lease.held);
                matches!(held, Some(Held::By(holder)) if holder.node != self.name)
            }),
            Lookup::Unknown(_) => true,
            Lookup::Absent => !self.config.guards_volumes,
        };
        pod.claims.iter().any(away)
    }

    /// A step that begins one more attempt.
    pub(super) fn begin(&self, mut status: NodeFenceStatus, attempt: Attempt) -> Decision {
        let id = status.attempts.last().map_or(0, |last| last.id).saturating_add(1);
        status.attempts.push(Attempt { id, ..attempt });
        while status.attempts.len() > Attempt::KEPT {
            // What is in force still is lifted by what is written there.
            let oldest = status.attempts.iter().position(|attempt| !attempt.fenced_storage());
            status.attempts.remove(oldest.unwrap_or(0));
        }
        self.step(Step::Attempt, status)
    }
}
