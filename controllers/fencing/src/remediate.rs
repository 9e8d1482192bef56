//! Others who want nodes fenced: medik8s' NodeHealthCheck, and whoever keeps its contract. Pure.
//!
//! A PodSafetyRemediation is about one life of a node: the one in which it first found it. Else a node that came back
//! would be fenced anew for as long as nobody took the wish away. The name of the incident is written into its status
//! before the incident begins; an incident that nobody names any more is called off.

use std::sync::Arc;

use crate::holds::{Decision, Hold};
use pod_safety_shared::api::{
    Condition, FenceTrigger, Phase, PodSafetyRemediationStatus, REMEDIATION_FINALIZER, TIMED_OUT_ANNOTATION,
    Trigger,
};
use pod_safety_shared::authority::{Intent, Remediate, Reply, incident_name};
use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::Mode;
use pod_safety_shared::model::{Fence, Kind, Node, Proof, Readiness, Remediation};

use super::config::Config;
use super::detect::{open, reopen};
use super::incident::Incident;

/// What is wanted for one of them.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Of its node.
    pub(super) step: Decision,
    /// Of itself.
    pub(super) reply: Option<Intent>,
}

/// How far it is, in the words of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// It is being done.
    Works,
    /// It is done.
    Succeeded,
    /// It will not be: whoever asked may try another way at once.
    Failed,
}

struct Word {
    fence: Option<String>,
    progress: Progress,
    reason: &'static str,
    message: String,
    /// The node will never return under its name.
    is_gone: bool,
}

fn is_timed_out(remediation: &Remediation) -> bool {
    remediation.annotations.contains_key(TIMED_OUT_ANNOTATION)
}

/// Those that ask for this incident now.
fn askers<'a>(incident: &Incident<'a>) -> impl Iterator<Item = &'a Remediation> + use<'a> {
    let name: &'a str = &incident.fence.name;
    let asks = move |one: &&Remediation| !one.deleting && one.status.fence.as_deref() == Some(name);
    incident.view.remediations_of(&incident.name).filter(asks)
}

/// The gate: all who asked for it were told that their time is over.
pub(super) fn timed_out(incident: &Incident<'_>) -> Option<Hold> {
    if incident.fence.spec.trigger.kind != Trigger::External {
        return None;
    }
    let last = askers(incident).last().filter(|_| askers(incident).all(is_timed_out))?;
    Some(Hold::RemediationTimedOut { node: Arc::clone(&incident.name), remediation: named(last) })
}

/// Whether nobody asks any more for what was begun only because somebody did. What cannot be seen was not taken back.
pub(super) fn is_taken_back(incident: &Incident<'_>) -> bool {
    incident.fence.spec.trigger.kind == Trigger::External
        && incident.view.fresh(Kind::Remediations, incident.now).is_ok()
        && incident.view.count(Kind::Remediations).1 == 0
        && askers(incident).next().is_none()
}

fn named(remediation: &Remediation) -> String {
    format!("PodSafetyRemediation {}/{}", remediation.namespace, remediation.name)
}

/// Decides about one of them. `node`: as it is now, if it is there.
pub(super) fn remediate(
    remediation: &Remediation,
    node: Option<&Node>,
    view: &View<'_>,
    now: Mono,
    config: &Config,
) -> Wanted {
    if config.mode == Mode::Observe || view.fresh(Kind::Remediations, now).is_err() {
        return Wanted::default();
    }
    let ours = remediation.finalizers.iter().any(|one| one == REMEDIATION_FINALIZER);
    let reply = |reply| Some(replied(remediation, node, reply));
    let about = remediation.node().unwrap_or_default();
    let named = remediation.status.fence.as_deref();
    let fence = view.fences_of(about).find(|fence| Some(&*fence.name) == named);
    if remediation.deleting {
        return match ours && !fence.is_some_and(may_still_begin) {
            true => Wanted { reply: reply(Reply::LetGo), ..Wanted::default() },
            false => Wanted::default(),
        };
    }
    if !ours {
        return Wanted { reply: reply(Reply::Keep), ..Wanted::default() };
    }
    let (step, word) = match (fence, named) {
        (Some(fence), _) => followed(remediation, fence, node, view),
        (None, Some(named)) => begun(remediation, named, node, view),
        (None, None) => (Decision::default(), first(remediation, node, view)),
    };
    let wanted = word.map(|word| status(&remediation.status, word));
    let news = wanted.filter(|wanted| *wanted != remediation.status);
    Wanted { step, reply: news.and_then(|status| reply(Reply::Say(Box::new(status)))) }
}

fn replied(remediation: &Remediation, node: Option<&Node>, reply: Reply) -> Intent {
    Intent::Remediate(Box::new(Remediate {
        namespace: Arc::clone(&remediation.namespace),
        name: Arc::clone(&remediation.name),
        uid: remediation.uid.clone(),
        rv: remediation.rv,
        node: node.map(Node::key),
        reply,
    }))
}

/// Whether something may be begun for it, and will not be once it was called off.
fn may_still_begin(fence: &Fence) -> bool {
    fence.spec.trigger.kind == Trigger::External
        && matches!(fence.status.phase, Phase::Pending | Phase::Fencing)
        && !fence.deleting
}

fn failed(reason: &'static str, message: String) -> Word {
    Word { fence: None, progress: Progress::Failed, reason, message, is_gone: false }
}

/// It is new: which incident it is about, before that begins.
fn first(remediation: &Remediation, node: Option<&Node>, view: &View<'_>) -> Option<Word> {
    let about = remediation.node().unwrap_or_default();
    let Some(node) = node else {
        return Some(failed("NodeNotFound", format!("there is no node {about}")));
    };
    let Some(life) = node.incarnation() else {
        let hold = Hold::NoBootId { node: Arc::clone(&node.name) };
        return Some(failed("NoBootId", hold.to_string()));
    };
    if is_timed_out(remediation) {
        return Some(failed("TimedOut", "it timed out before fencing began".to_owned()));
    }
    if view.policy_of(node.labels()).is_none() {
        return Some(failed("NoPolicy", format!("no FencePolicy selects node {about}")));
    }
    let name = incident_name(&life);
    let message = format!("fencing {about}: NodeFence {name}");
    let (progress, reason) = (Progress::Works, "Fencing");
    Some(Word { fence: Some(name), progress, reason, message, is_gone: false })
}

/// Its incident is not there: it begins, if the node is still in that life.
fn begun(
    remediation: &Remediation,
    named: &str,
    node: Option<&Node>,
    view: &View<'_>,
) -> (Decision, Option<Word>) {
    if remediation.status.says("Processing") == Some("False") {
        return (Decision::default(), None);
    }
    let over = |progress, reason, message: String| {
        let fence = Some(named.to_owned());
        (Decision::default(), Some(Word { fence, progress, reason, message, is_gone: false }))
    };
    let life = node.and_then(|node| Some((node, node.incarnation()?)));
    let Some((node, life)) = life else {
        return over(Progress::Failed, "NodeNotFound", "the node no longer exists".to_owned());
    };
    if incident_name(&life) != named {
        let message = "the machine rebooted by itself".to_owned();
        return over(Progress::Succeeded, "Superseded", message);
    }
    if is_timed_out(remediation) {
        let message = "it timed out before fencing began".to_owned();
        return over(Progress::Failed, "TimedOut", message);
    }
    let Some(policy) = view.policy_of(node.labels()) else {
        let message = format!("no FencePolicy selects node {}", node.name);
        return over(Progress::Failed, "NoPolicy", message);
    };
    let by = self::named(remediation);
    let trigger = FenceTrigger {
        kind: Trigger::External,
        reason: format!("requested by {by}"),
        by: Some(by),
        condition: None,
    };
    (open(life, policy, trigger), None)
}

/// It is as far as its incident is.
fn followed(
    remediation: &Remediation,
    fence: &Fence,
    node: Option<&Node>,
    view: &View<'_>,
) -> (Decision, Option<Word>) {
    let phase = fence.status.phase;
    let is_lost = node.is_some_and(|node| {
        node.readiness != Readiness::Ready && node.incarnation().as_ref() == Some(&fence.spec.node)
    });
    let again = phase == Phase::Cancelled && !fence.spec.cancelled && !fence.deleting && is_lost;
    let (progress, reason) = match phase {
        Phase::Pending | Phase::Fencing if is_timed_out(remediation) => (Progress::Failed, "TimedOut"),
        Phase::Cancelled if again && !is_timed_out(remediation) => {
            let step = reopen(fence, &format!("requested by {}", named(remediation)));
            return (step, None);
        }
        Phase::Pending | Phase::Fencing => (Progress::Works, "Fencing"),
        Phase::Fenced | Phase::Recovering | Phase::Done => (Progress::Succeeded, "Fenced"),
        Phase::Superseded => (Progress::Succeeded, "Superseded"),
        Phase::AwaitingOperator => (Progress::Failed, "AwaitingOperator"),
        Phase::Cancelled => (Progress::Failed, "Cancelled"),
    };
    let message = format!("NodeFence {} is {}: {}", fence.name, phase.name(), fence.status.message);
    let is_its = |proof: &&Proof| Some(&*proof.name) == fence.status.evidence.as_deref();
    let proof = view.proofs_of(&fence.spec.node.name).find(is_its);
    let is_gone = proof.is_some_and(|proof| proof.spec.kind.ends_machine());
    let word = Word { fence: Some(fence.name.to_string()), progress, reason, message, is_gone };
    (Decision::default(), Some(word))
}

fn status(before: &PodSafetyRemediationStatus, word: Word) -> PodSafetyRemediationStatus {
    let Word { fence, progress, reason, message, is_gone } = word;
    let gone = if is_gone { "True" } else { "False" };
    let (processing, succeeded) = match progress {
        Progress::Works => ("True", "Unknown"),
        Progress::Succeeded => ("False", "True"),
        Progress::Failed => ("False", "False"),
    };
    let condition =
        |kind: &str, word: &str| Condition::after(&before.conditions, kind, word, reason, &message, "");
    PodSafetyRemediationStatus {
        fence: fence.or_else(|| before.fence.clone()),
        conditions: vec![
            condition("Processing", processing),
            condition("Succeeded", succeeded),
            condition("PermanentNodeDeletionExpected", gone),
        ],
    }
}
