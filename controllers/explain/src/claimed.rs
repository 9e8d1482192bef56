//! A pod for which pod-gc claims that its processes ended. Live reads decide: either they confirm the claim and the pod
//! is removed, or they refuse it, which is recorded only in an Event.

use pod_safety_shared::api::FenceEvidenceKind;
use pod_safety_shared::authority::{Claim, FORCE_DELETE_REFUSED, RefusalReason};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::controller_loop::Mode;
use pod_safety_shared::model::{FenceEvidenceObject, Kind, Node, Pod};

use super::answer::{Answer, Judgement, Verdict, elapsed, format_duration, timestamp_from};
use super::context::{EventRecord, ExplainContext, pod_ref};
use super::power_check::offer_confirmation;

/// The reason of a verdict about a pod whose force delete was refused.
pub(super) const REFUSED: &str = "Refused";

/// The judgement of the claim, as far as it is known without live reads.
pub(super) fn judge(pod: &Pod, claim: &Claim, ctx: &ExplainContext<'_>) -> Judgement {
    let why = describe_claim(claim);
    if ctx.running.mode == Some(Mode::Observe) {
        let message = format!("{why}: it would be removed, but pod-safety runs in the mode observe.");
        return Judgement::new(Verdict::Blocked, "Observe", message);
    }
    if ctx.running.has_no_leader() {
        let message = format!("{why}: it would be removed, but pod-safety has no leader.");
        return Judgement::new(Verdict::Blocked, "NoLeader", message);
    }
    let Some(refusal) = latest_refusal(pod, claim, ctx) else {
        let message = format!("{why}: it is removed as soon as live reads confirm that.");
        return Judgement::new(Verdict::Released, "Proved", message);
    };
    let ago = format_duration(elapsed(refusal.at, ctx.wall));
    let message = format!("{why}, but the force delete was refused {ago} ago: {}. It is tried again.", refusal.message);
    Judgement::new(refusal_verdict(refusal_code(refusal)), REFUSED, message)
}

fn describe_claim(claim: &Claim) -> String {
    match claim {
        Claim::NeverScheduled => "it was never scheduled to a node".to_owned(),
        Claim::NodeGone { node } => format!("node {node} does not exist, and its kubelet does not report"),
        Claim::OutOfService { node } => {
            format!("node {node} has the taint out-of-service, and --trust-out-of-service-taint is on")
        }
        Claim::Fenced { node, proof, .. } => format!("the evidence {proof} says that node {node} is off"),
        Claim::PodsEnded { node } => {
            format!("its grace period is over, and the agent of node {node} may report that nothing of it is left")
        }
        Claim::KubeletTerminated => {
            "its kubelet reported that it terminated, and there are more terminated pods than are kept".to_owned()
        }
    }
}

/// The last refusal of this pod's force delete. A refusal that is older than the pod was about an earlier pod of the
/// same name. A refusal that is older than valid evidence is superseded by that evidence.
fn latest_refusal<'a>(pod: &Pod, claim: &Claim, ctx: &'a ExplainContext<'_>) -> Option<&'a EventRecord> {
    let events = ctx.events_of(&pod_ref(pod));
    let refused = |event: &&EventRecord| event.reason == FORCE_DELETE_REFUSED && event.is_about(pod);
    let last = events.into_iter().rev().find(refused)?;
    let since = |created: i64| timestamp_from(created).is_some_and(|created| created >= last.at);
    let answered = valid_evidence(claim, ctx).iter().any(|proof| since(proof.created));
    (!since(pod.created) && !answered).then_some(last)
}

/// The valid evidence about the node of this claim, as far as it is known without its devices.
fn valid_evidence<'a>(claim: &Claim, ctx: &ExplainContext<'a>) -> Vec<&'a FenceEvidenceObject> {
    match claimed_node(claim, ctx) {
        Some(node) if ctx.has_read(Kind::FenceEvidences) => ctx.view.valid_evidence(node, ctx.now).collect(),
        _ => Vec::new(),
    }
}

fn claimed_node<'a>(claim: &Claim, ctx: &ExplainContext<'a>) -> Option<&'a Node> {
    match claim.node().map(|name| ctx.view.node(name)) {
        Some(Lookup::Known(node)) => Some(node),
        _ => None,
    }
}

/// [`VerifyError::reason`], with which the message begins.
///
/// [`VerifyError::reason`]: pod_safety_shared::authority::VerifyError::reason
fn refusal_code(refusal: &EventRecord) -> &str {
    refusal.message.split_once(':').map_or("", |(code, _)| code)
}

/// `Waiting` if the refusal resolves itself, else `Blocked`.
fn refusal_verdict(code: &str) -> Verdict {
    match code.parse() {
        Ok(reason) if resolves_itself(reason) => Verdict::Waiting,
        _ => Verdict::Blocked,
    }
}

/// Whether a refusal ends without an operator.
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

/// Adds the next steps. A confirmation is offered where the evidence was refused and the kubelet does not report: it
/// needs no device.
pub(super) fn add_next_steps(answer: &mut Answer, pod: &Pod, claim: &Claim, ctx: &ExplainContext<'_>) {
    let Some(refusal) = latest_refusal(pod, claim, ctx) else { return };
    let confirmed = || {
        let proofs = valid_evidence(claim, ctx);
        proofs.iter().any(|proof| proof.spec.kind == FenceEvidenceKind::OperatorConfirmed)
    };
    if let Some(node) = claimed_node(claim, ctx)
        && matches!(refusal_code(refusal), "EvidenceInvalid" | "PowerStateUnconfirmed")
        && !confirmed()
    {
        offer_confirmation(answer, node, ctx);
    }
    if let Some(node) = claim.node() {
        answer.add_next_step("Show the node", format!("pod-safety explain node {node}"));
    }
}
