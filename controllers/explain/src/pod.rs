//! Why a pod is as it is: the words of the controllers that decide about it.

use std::time::Duration;

use pod_safety_shared::authority::Cause;
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::drive::{FORCE_DELETE_HELD, HoldReason as _};
use pod_safety_shared::model::{Kind, Phase, Pod, Readiness};

use super::actors;
use super::answer::{Answer, Judgement, Standing, moment, sentence, since, span};
use super::claimed::{self, REFUSED};
use super::fate::{Fate, Hold, fate};
use super::history::{self, asked_at};
use super::proof;
use super::scene::{Attachment, Said, Scene, pod_object};
use super::sure::{RUNBOOKS, confirm};
use super::{before, soon};
use super::{owner_of, would};

/// A kubelet that is heard reports the end of a pod within seconds after its grace.
const LATE: Duration = Duration::from_secs(60);

/// Answers for one pod.
#[must_use]
pub fn explain_pod(pod: &Pod, scene: &Scene<'_>) -> Answer {
    let object = pod_object(pod);
    let fate = fate(pod, scene);
    let mut answer = Answer::new(object, verdict(pod, &fate, scene));
    answer.facts = facts(pod, scene);
    answer.before = before::of_pod(pod, scene);
    answer.history = history::of_pod(pod, scene);
    answer.history.extend(before::back(pod, answer.before.as_ref(), scene));
    answer.history.sort_by_key(|moment| moment.at);
    if let Some(node) = pod.node.as_ref().filter(|_| pod.deletion.is_some() && !pod.waits_for_finalizers()) {
        answer.evidence = proof::of_pod(pod, node, scene);
        actors::of_pod(&mut answer, pod, node, &fate, scene);
    }
    next(&mut answer, pod, &fate, scene);
    answer
}

fn verdict(pod: &Pod, fate: &Fate, scene: &Scene<'_>) -> Judgement {
    if pod.waits_for_finalizers() {
        return finalizers(pod);
    }
    match fate {
        Fate::Held(hold) => held(pod, hold, scene),
        Fate::Claimed(claim) => claimed::verdict(pod, claim, scene),
        Fate::Witnessed => Judgement::new(
            Standing::Waiting,
            "Quarantine",
            format!(
                "node {} does not exist. Its pods are removed when it has been missing for {}s and its kubelet has not reported in that time.",
                pod.node.as_deref().unwrap_or_default(),
                scene.settings.pod_gc.quarantine.as_secs()
            ),
        ),
        Fate::Ended(cause @ Cause::NodeGone { .. }) => {
            Judgement::new(Standing::Waiting, "NodeGone", format!("{cause}."))
        }
        Fate::Ended(Cause::Taint { .. }) => Judgement::new(
            Standing::Waiting,
            "Intolerant",
            "it does not tolerate a taint of its node, or no longer tolerates it, and is deleted gracefully now.",
        ),
        Fate::Unread(hold) => last_word(pod, scene).unwrap_or_else(|| {
            Judgement::new(
                Standing::Unknown,
                "NotRead",
                format!("{hold}. Too little could be read to say more."),
            )
        }),
        Fate::Left if pod.deletion.is_some() => ending(pod, scene),
        Fate::Left => living(pod, scene),
    }
}

/// What whoever leads said last, where we may not read what it may.
fn last_word(pod: &Pod, scene: &Scene<'_>) -> Option<Judgement> {
    let said = scene.said_of(&pod_object(pod));
    let held = |said: &&&Said| said.reason == FORCE_DELETE_HELD && said.is_about(pod);
    let last = said.iter().rev().find(held).filter(|_| pod.deletion.is_some())?;
    let ago = span(since(last.at, scene.wall));
    Some(Judgement::new(
        Standing::Blocked,
        "ForceDeleteHeld",
        format!("{} (reported by {} {ago} ago)", last.message, last.by),
    ))
}

fn finalizers(pod: &Pod) -> Judgement {
    let hold = pod_safety_pod_gc::Hold::Finalizers {
        finalizers: pod.finalizers.iter().map(ToString::to_string).collect(),
    };
    Judgement::new(
        Standing::Blocked,
        hold.reason(),
        format!("{hold}. Its containers have terminated. Only the owners of the finalizers can let it go."),
    )
}

/// What fencing does about its node without a person, where the pod waits for proof.
fn step(pod: &Pod, hold: &Hold, scene: &Scene<'_>) -> Option<soon::Step> {
    let Hold::PodGc(pod_safety_pod_gc::Hold::NoEvidence { .. }) = hold else { return None };
    match scene.view.node(pod.node.as_deref()?) {
        Lookup::Known(node) => soon::next_step(node, scene),
        Lookup::Unknown(_) | Lookup::Absent => None,
    }
}

fn held(pod: &Pod, hold: &Hold, scene: &Scene<'_>) -> Judgement {
    let step = step(pod, hold, scene);
    let waits = step.is_some()
        || matches!(
            hold,
            Hold::PodGc(
                pod_safety_pod_gc::Hold::Quarantine { .. } | pod_safety_pod_gc::Hold::AwaitsKubelet { .. }
            ) | Hold::Taint(pod_safety_taint_eviction::Hold::Tolerated { .. })
        );
    let standing = if waits { Standing::Waiting } else { Standing::Blocked };
    let mut message = format!("{hold}.");
    if let Some(step) = step {
        let node = pod.node.as_deref().unwrap_or_default();
        message = format!(
            "node {node} is unreachable. It may be off, or cut off with this pod still running. {}. The pod is removed when that proves the node off, or when it reports again.",
            sentence(&step.words)
        );
    }
    if matches!(hold, Hold::PodGc(pod_safety_pod_gc::Hold::NoEvidence { .. })) && pod.keeps_identity() {
        message.push_str(&format!(" Until then a second {} must not start.", pod.key.name));
    }
    Judgement::new(standing, hold.reason(), message)
}

/// It was asked to end, and nobody else has a word in it.
fn ending(pod: &Pod, scene: &Scene<'_>) -> Judgement {
    let Some(ends) = pod.deletion.and_then(|deletion| moment(deletion.at)) else {
        return Judgement::new(Standing::Waiting, "Ending", "it is deleted and terminates.");
    };
    let node = pod.node.as_deref().unwrap_or_default();
    if scene.wall < ends {
        let left = span(since(scene.wall, ends));
        return Judgement::new(
            Standing::Waiting,
            "Ending",
            format!("it was deleted and has {left} left to terminate. The kubelet of {node} reports."),
        );
    }
    let late = since(ends, scene.wall);
    let not_ready =
        matches!(scene.view.node(node), Lookup::Known(node) if node.readiness == Readiness::NotReady);
    if not_ready {
        let message = format!(
            "its grace period ended {} ago. The kubelet of {node} reports that the node is not ready, and has not reported that this pod terminated.",
            span(late)
        );
        return Judgement::new(Standing::Blocked, "NodeNotReady", message);
    }
    if late < LATE {
        return Judgement::new(
            Standing::Waiting,
            "Ending",
            format!("its grace period is over. The kubelet of {node} reports, and is terminating it."),
        );
    }
    let message = format!(
        "its grace period ended {} ago. The kubelet of {node} reports, but not that the pod terminated: the container runtime or a volume hangs there.",
        span(late)
    );
    Judgement::new(Standing::Blocked, "TerminationOverdue", message)
}

/// Nobody asked it to end.
fn living(pod: &Pod, scene: &Scene<'_>) -> Judgement {
    let said = scene.said_of(&pod_object(pod));
    let own = || said.iter().rev().filter(|one| one.is_about(pod));
    let warned = |reason: &str| own().find(|one| one.reason == reason);
    if pod.phase.is_terminal() {
        return Judgement::new(Standing::Free, "Ended", "it has terminated.");
    }
    if pod.node.is_none() {
        let why = warned("FailedScheduling").map_or("it is not scheduled to a node yet", |one| &one.message);
        return Judgement::new(Standing::Waiting, "Unscheduled", format!("it waits for a node: {why}"));
    }
    if pod.phase == Phase::Pending
        && let Some(failed) = warned("FailedAttachVolume")
    {
        return volume(&failed.message, scene);
    }
    let node = pod.node.as_deref().map(|node| scene.view.node(node));
    if let Some(Lookup::Known(node)) = node
        && node.readiness == Readiness::Unknown
    {
        let message = format!(
            "node {} is unreachable, so it is not known whether the pod runs. It is not deleted yet.",
            node.name
        );
        return Judgement::new(Standing::Waiting, "NodeUnreachable", message);
    }
    if pod.ready {
        return Judgement::new(Standing::Free, "Running", "it runs and is Ready. Nothing blocks it.");
    }
    let why =
        own().find(|one| one.warning).map_or(String::new(), |one| format!(" Last warning: {}", one.message));
    let on = pod.node.as_deref().unwrap_or_default();
    let stage = match pod.phase {
        Phase::Pending => format!("it is scheduled on {on}, and its containers start."),
        _ => format!("it runs on {on} and is not Ready yet."),
    };
    Judgement::new(Standing::Waiting, "NotReady", format!("{stage}{why}"))
}

/// Its volume is with another node.
fn volume(message: &str, scene: &Scene<'_>) -> Judgement {
    let Some(held) =
        scene.attachments.iter().find(|one| !one.volume.is_empty() && message.contains(&one.volume))
    else {
        return Judgement::new(
            Standing::Blocked,
            "VolumeNotAttached",
            format!("its volume cannot be attached: {message}"),
        );
    };
    let silent =
        matches!(scene.view.node(&held.node), Lookup::Known(node) if node.readiness == Readiness::Unknown);
    let state = if silent { ", which is unreachable and may still write to it" } else { "" };
    let hold = held.hold.as_deref().map_or(String::new(), |why| format!(" It is held there: {why}."));
    let message = format!(
        "its volume {} is attached to node {}{state}. It can be attached here when that node releases it or is proved off.{hold}",
        held.volume, held.node
    );
    Judgement::new(Standing::Blocked, "VolumeInUse", message)
}

fn facts(pod: &Pod, scene: &Scene<'_>) -> Vec<String> {
    let mut facts = vec![owner_of(pod, &scene.view)];
    facts.push(pod.node.as_ref().map_or("on no node".to_owned(), |node| format!("on {node}")));
    match pod.deletion {
        Some(deletion) => facts.push(match asked_at(deletion) {
            Some(at) => format!("Terminating {}", span(since(at, scene.wall))),
            None => "Terminating".to_owned(),
        }),
        None => facts.push(format!("{:?}", pod.phase)),
    }
    if !pod.finalizers.is_empty() {
        facts.push(format!("finalizers {}", pod.finalizers.join(", ")));
    }
    facts
}

fn next(answer: &mut Answer, pod: &Pod, fate: &Fate, scene: &Scene<'_>) {
    let (namespace, name) = (&pod.key.namespace, &pod.key.name);
    if pod.waits_for_finalizers() {
        answer.next(
            "Find the controller that owns these finalizers and check that it is running",
            format!("kubectl get pod -n {namespace} {name} -o yaml --show-managed-fields"),
        );
        return;
    }
    let node = pod.node.as_deref().unwrap_or_default();
    let explain_node = format!("pod-safety explain node {node}");
    match fate {
        Fate::Held(hold @ Hold::PodGc(pod_safety_pod_gc::Hold::NoEvidence { .. })) => {
            let step = step(pod, hold, scene);
            without_proof(answer, node, step, explain_node, scene);
        }
        Fate::Held(_) if !node.is_empty() => answer.next("Show the node", explain_node),
        Fate::Claimed(_) if answer.verdict.reason == "Observe" => {
            answer.next(
                "Let pod-safety act: switch to the mode guard",
                "helm upgrade pod-safety … --reset-then-reuse-values --set mode=guard",
            );
        }
        Fate::Claimed(_) if answer.verdict.reason == "NoLeader" => {
            answer.next("Find out why there is no leader", "pod-safety doctor")
        }
        Fate::Claimed(claim) if answer.verdict.reason == REFUSED => claimed::next(answer, pod, claim, scene),
        Fate::Claimed(_) => answer.next(
            "Watch the pod until it is gone",
            format!("pod-safety explain pod -n {namespace} {name} -w"),
        ),
        Fate::Unread(_) => answer.next(
            "Ask someone with more rights to run this",
            format!("pod-safety explain pod -n {namespace} {name}"),
        ),
        Fate::Held(_) | Fate::Witnessed | Fate::Ended(_) | Fate::Left => {
            let events = format!("kubectl events -n {namespace} --for pod/{name}");
            left(answer, events, explain_node, scene);
        }
    }
    if answer.verdict.standing == Standing::Free && !pod.phase.is_terminal() && scene.has(Kind::Budgets) {
        let words = would(pod, scene.view.budgets_of_pod(pod)).words();
        answer.notes.push(format!("An eviction would {words}."));
    }
}

/// What can be done about a pod that waits for proof. While fencing goes on by itself it is waited for; where most nodes seem
/// lost, it is found out first who is cut off.
fn without_proof(
    answer: &mut Answer,
    node: &str,
    step: Option<soon::Step>,
    explain_node: String,
    scene: &Scene<'_>,
) {
    let known = match scene.view.node(node) {
        Lookup::Known(node) => Some(node),
        Lookup::Unknown(_) | Lookup::Absent => None,
    };
    let outage = known.is_some_and(|node| soon::is_outage(node, scene));
    if step.is_some() {
        return answer.next("Wait: pod-safety fences the node. To watch it", format!("{explain_node} -w"));
    }
    if outage {
        answer.next(
            format!(
                "Find out first who is cut off, pod-safety or the nodes: {RUNBOOKS}/PodSafetyLargeOutage.md"
            ),
            "pod-safety doctor",
        );
    }
    answer.next("If you can reach the machine: restart its kubelet. The pod then terminates normally.", "");
    answer.next("Show the node and what fencing does about it", explain_node);
    if let Some(node) = known {
        confirm(answer, node, scene);
    }
}

/// What can be done where no controller has a word in it.
fn left(answer: &mut Answer, events: String, explain_node: String, scene: &Scene<'_>) {
    match answer.verdict.reason {
        "VolumeInUse" => {
            let named = |volume: &str| answer.verdict.message.contains(&format!("volume {volume} "));
            let held = scene.attachments.iter().find(|one| named(&one.volume));
            if let Some(Attachment { volume, node, .. }) = held {
                answer.next(
                    "Show what holds the volume, and what would free it",
                    format!("pod-safety explain volume {volume}"),
                );
                answer.next(
                    "Find out why that node does not release it",
                    format!("pod-safety explain node {node}"),
                );
            }
        }
        "NodeUnreachable" => answer.next("Show the node", explain_node),
        "NodeNotReady" | "TerminationOverdue" => {
            answer.next("See what its kubelet reports", events);
            answer.next("Show the node", explain_node);
        }
        "NotReady" | "Unscheduled" | "VolumeNotAttached" => answer.next("See all Events of this pod", events),
        _ => {}
    }
}
