//! A pod that is claimed to have ended. Live reads decide: they confirm it and the pod is removed, or they refuse, which only
//! an Event tells.

use pod_safety_shared::api::KindOfEvidence;
use pod_safety_shared::authority::{Claim, FORCE_DELETE_REFUSED, RefusalReason};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::drive::Mode;
use pod_safety_shared::model::{Kind, Node, Pod, Proof};

use super::answer::{Answer, Judgement, Standing, moment, since, span};
use super::scene::{Said, Scene, pod_object};
use super::sure::confirm;

/// The reason of a verdict about a pod whose force delete was refused.
pub(super) const REFUSED: &str = "Refused";

/// Whether it is removed, as far as can be said without live reads.
pub(super) fn verdict(pod: &Pod, claim: &Claim, scene: &Scene<'_>) -> Judgement {
    let why = why(claim);
    if scene.running.mode == Some(Mode::Observe) {
        let message = format!("{why}: it would be removed, but pod-safety runs in the mode observe.");
        return Judgement::new(Standing::Blocked, "Observe", message);
    }
    if !scene.running.unread && scene.running.leader.is_none() {
        let message = format!("{why}: it would be removed, but pod-safety has no leader.");
        return Judgement::new(Standing::Blocked, "NoLeader", message);
    }
    let Some(refusal) = refusal(pod, claim, scene) else {
        let message = format!("{why}: it is removed as soon as live reads confirm that.");
        return Judgement::new(Standing::Released, "Proved", message);
    };
    let ago = span(since(refusal.at, scene.wall));
    let message =
        format!("{why}, but the force delete was refused {ago} ago: {}. It is tried again.", refusal.message);
    Judgement::new(standing(code(refusal)), REFUSED, message)
}

fn why(claim: &Claim) -> String {
    match claim {
        Claim::NeverScheduled => "it was never scheduled to a node".to_owned(),
        Claim::NodeGone { node } => format!("node {node} does not exist, and its kubelet does not report"),
        Claim::OutOfService { node } => {
            format!("node {node} has the taint out-of-service, and --trust-out-of-service-taint is on")
        }
        Claim::Fenced { node, proof, .. } => format!("the evidence {proof} says that node {node} is off"),
        Claim::PodsEnded { node } => {
            format!(
                "its grace period is over, and the agent of node {node} may report that nothing of it is left"
            )
        }
        Claim::KubeletTerminated => {
            "its kubelet reported that it terminated, and there are more terminated pods than are kept"
                .to_owned()
        }
    }
}

/// The last refusal of this pod's force delete. One that is older than the pod was about another of its name, and one that
/// is older than evidence that holds was answered by that evidence.
fn refusal<'a>(pod: &Pod, claim: &Claim, scene: &'a Scene<'_>) -> Option<&'a Said> {
    let said = scene.said_of(&pod_object(pod));
    let refused = |said: &&Said| said.reason == FORCE_DELETE_REFUSED && said.is_about(pod);
    let last = said.into_iter().rev().find(refused)?;
    let since = |created: i64| moment(created).is_some_and(|created| created >= last.at);
    let answered = proofs(claim, scene).iter().any(|proof| since(proof.created));
    (!since(pod.created) && !answered).then_some(last)
}

/// The evidence about the node of this claim that holds, as far as can be said without its devices.
fn proofs<'a>(claim: &Claim, scene: &Scene<'a>) -> Vec<&'a Proof> {
    match node(claim, scene) {
        Some(node) if scene.has(Kind::FenceEvidences) => {
            scene.view.proofs_that_hold(node, scene.now).collect()
        }
        _ => Vec::new(),
    }
}

fn node<'a>(claim: &Claim, scene: &Scene<'a>) -> Option<&'a Node> {
    match claim.node().map(|name| scene.view.node(name)) {
        Some(Lookup::Known(node)) => Some(node),
        _ => None,
    }
}

/// [`Unproved::reason`], with which the message begins.
///
/// [`Unproved::reason`]: pod_safety_shared::authority::Unproved::reason
fn code(refusal: &Said) -> &str {
    refusal.message.split_once(':').map_or("", |(code, _)| code)
}

/// Whether the next try settles it, or the pod waits until somebody does something.
fn standing(code: &str) -> Standing {
    match code.parse() {
        Ok(reason) if resolves_itself(reason) => Standing::Waiting,
        _ => Standing::Blocked,
    }
}

/// Whether a refusal ends without anybody's act.
const fn resolves_itself(reason: RefusalReason) -> bool {
    match reason {
        RefusalReason::PodChanged
        | RefusalReason::ClaimMismatch
        | RefusalReason::NoWitness
        | RefusalReason::QuarantineNotOver
        | RefusalReason::KubeletNotAsked
        | RefusalReason::HeardLately
        | RefusalReason::AgentMustLookAgain => true,
        // The kubelet runs: it terminates the pod.
        RefusalReason::NodeExists | RefusalReason::KubeletAlive | RefusalReason::NodeInService => true,
        RefusalReason::HeartbeatsUnseen
        | RefusalReason::TaintNotTrusted
        | RefusalReason::EvidenceInvalid
        | RefusalReason::PodsNotEnded
        | RefusalReason::PowerStateUnconfirmed => false,
    }
}

/// What can be done. A confirmation is offered where the evidence was refused and no kubelet was heard: it needs no device.
pub(super) fn next(answer: &mut Answer, pod: &Pod, claim: &Claim, scene: &Scene<'_>) {
    let Some(refusal) = refusal(pod, claim, scene) else { return };
    let confirmed = || {
        let proofs = proofs(claim, scene);
        proofs.iter().any(|proof| proof.spec.kind == KindOfEvidence::Asserted)
    };
    if let Some(node) = node(claim, scene)
        && matches!(code(refusal), "EvidenceInvalid" | "PowerStateUnconfirmed")
        && !confirmed()
    {
        confirm(answer, node, scene);
    }
    if let Some(node) = claim.node() {
        answer.next("Show the node", format!("pod-safety explain node {node}"));
    }
}
