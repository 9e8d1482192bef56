//! Which proof there is that a pod stopped, or its node, and which is missing.

use jiff::Timestamp;
use pod_safety_shared::api::{FenceEvidenceSpec, KindOfEvidence, Phase, SwitchTo};
use pod_safety_shared::authority::{Lack, rehearsal_name};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::model::{Fence, Kind, Node, Own, Pod, Policy, Proof, Readiness};

use super::answer::{Finding, finding, moment, since, span};
use super::scene::Scene;

/// What would prove that this pod stopped.
pub(super) fn of_pod(pod: &Pod, name: &str, scene: &Scene<'_>) -> Vec<Finding> {
    let reported = match (pod.running > 0, pod.phase.is_terminal()) {
        (true, _) => finding(
            "KubeletReported",
            "its kubelet reports it",
            Some(false),
            "the last report has a running container",
        ),
        (false, true) => finding(
            "KubeletReported",
            "its kubelet reports it",
            Some(true),
            "the last report has no running container",
        ),
        (false, false) => {
            finding("KubeletReported", "its kubelet reports it", Some(false), "no report that it terminated")
        }
    };
    let mut all = vec![reported];
    match scene.view.node(name) {
        // Of a node that is heard, its kubelet alone can tell.
        Lookup::Known(Node { readiness: Readiness::Ready, .. }) => {}
        Lookup::Known(node) => {
            all.push(new_boot(node));
            all.extend(of_node(node, scene));
            all.push(finding(
                "NodeGone",
                "the Node is deleted",
                Some(false),
                "it exists. Delete it only if the machine is permanently gone",
            ));
        }
        Lookup::Absent => all.push(node_gone(pod, name, scene)),
        Lookup::Unknown(_) if !scene.has(Kind::Nodes) => {
            all.push(finding("NodeGone", "the Node is deleted", None, "nodes were not read"))
        }
        Lookup::Unknown(why) => all.push(finding("NodeGone", "the Node is deleted", None, why)),
    }
    all
}

/// That its Node is deleted is proof only with a quarantine in which its kubelet is silent, and only where that silence says
/// something ([`silence_is_proof`]).
///
/// [`silence_is_proof`]: pod_safety_shared::cache::View::silence_is_proof
fn node_gone(pod: &Pod, name: &str, scene: &Scene<'_>) -> Finding {
    let Scene { view, now, settings, .. } = scene;
    let (quarantine, seconds) = (settings.pod_gc.quarantine, settings.pod_gc.quarantine.as_secs());
    let witness = view.absence(name).and_then(|absence| absence.witness.as_ref());
    let sign = view.last_sign_of_life(name).map(|sign| sign.at);
    // A first read that is taken now would begin a quarantine that counts.
    let from = pod.unanswered_from(view.reports_deletions(name));
    let silent = pod.is_over() || view.fell_silent_before_its_node_went(name);
    let busy = !silent && view.worker_may_be_busy(pod, name);
    let counts_from_now = silent || !busy && from.is_some_and(|from| from <= *now);
    let (met, detail) = match witness {
        Some(witness) if sign >= Some(witness.asked_at()) => {
            (false, "it does not exist, but its kubelet still runs".to_owned())
        }
        Some(witness)
            if *now >= witness.answered_at() + quarantine && view.silence_is_proof(pod, name, witness) =>
        {
            (true, format!("it does not exist, and its kubelet has not reported for {seconds}s"))
        }
        _ if busy => (
            false,
            "it does not exist, and its kubelet was active until then. By its last report it may be starting or changing a container of this pod, so its silence is no proof".to_owned(),
        ),
        _ if counts_from_now => (
            false,
            format!(
                "it does not exist. That is proof after {seconds}s without a sign of life of its kubelet"
            ),
        ),
        _ => {
            let first = "If its kubelet was active until then, the pod is deleted gracefully first, and its kubelet terminates it";
            (
                false,
                format!(
                    "it does not exist. {first}. Otherwise {seconds}s without a sign of life of that kubelet are proof"
                ),
            )
        }
    };
    finding("NodeGone", "the Node is deleted", Some(met), detail)
}

fn new_boot(node: &Node) -> Finding {
    let boot = node.boot().to_string();
    let detail = match boot.get(..8) {
        Some(short) => format!("still boot {short}…"),
        None => "the node reports no boot ID that is a UUID".to_owned(),
    };
    finding("NewBootID", "its node has rebooted", Some(false), detail)
}

/// What would prove that this life of the node is over: one finding for each piece of evidence. What counts is what decisions take ([`holds_now`]).
///
/// [`holds_now`]: pod_safety_shared::cache::View::holds_now
pub(super) fn of_node(node: &Node, scene: &Scene<'_>) -> Vec<Finding> {
    let names = [("FenceConfirmed", "a fence device reports off"), ("PersonConfirmed", "a person confirmed")];
    if !scene.has(Kind::FenceEvidences) {
        return names
            .map(|(r#type, name)| finding(r#type, name, None, "FenceEvidences were not read"))
            .to_vec();
    }
    let of = |person: bool| {
        let (r#type, name) = names[usize::from(person)];
        let mut found: Vec<Finding> = told(node, person, scene)
            .into_iter()
            .map(|proof| {
                let lack = lack(proof, node, scene);
                finding(r#type, name, Some(lack.is_none()), words(proof, lack))
            })
            .collect();
        // Where no device is believed, what is tried now matters.
        match person {
            true if found.is_empty() => found.push(finding(r#type, name, Some(false), "no confirmation")),
            false if found.iter().all(|one| one.met == Some(false)) => {
                found.push(finding(r#type, name, Some(false), device_words(node, scene)));
            }
            _ => {}
        }
        found
    };
    [of(false), of(true)].concat()
}

/// The evidence of people or of devices that is told, the oldest first: all about this life of the node, or the last about an
/// earlier one. It is kept for months.
fn told<'a>(node: &Node, person: bool, scene: &Scene<'a>) -> Vec<&'a Proof> {
    let mut all: Vec<&Proof> =
        scene.view.proofs_of(&node.name).filter(|proof| is_persons(proof) == person).collect();
    all.sort_by_key(|proof| proof.rv);
    let about = |proof: &&Proof| node.is_in(&proof.spec.node);
    match all.iter().any(about) {
        true => all.retain(about),
        false => drop(all.drain(..all.len().saturating_sub(1))),
    }
    all
}

/// What this evidence lacks, by all that is known without asking its devices anew.
fn lack(proof: &Proof, node: &Node, scene: &Scene<'_>) -> Option<String> {
    match scene.view.holds_now(proof, node, scene.now) {
        Err(lack) => Some(match (&proof.status.invalidated, lack) {
            (Some(invalid), _) => format!("it was withdrawn: {}", invalid.reason),
            (None, Lack::OtherLife) => "about an earlier boot of the node".to_owned(),
            (None, lack) => lack.words().to_owned(),
        }),
        Ok(()) => device_doubts(proof, node, scene),
    }
}

/// Which of its devices was asked since, and did not say off.
fn device_doubts(proof: &Proof, node: &Node, scene: &Scene<'_>) -> Option<String> {
    proof.spec.samples.iter().find_map(|sample| {
        let device = scene.view.device(&sample.device.namespace, &sample.device.name)?;
        let target = device.status.targets.iter().find(|target| target.node == *node.name)?;
        let looked: Timestamp = target.looked.parse().ok()?;
        if target.is_off() || moment(proof.created).is_none_or(|written| looked <= written) {
            return None;
        }
        let ago = span(since(looked, scene.wall));
        let said = if target.message.is_empty() { String::new() } else { format!(": {}", target.message) };
        Some(format!("{} no longer reports off ({} {ago} ago{said})", sample.device, target.power))
    })
}

fn is_persons(proof: &Own<FenceEvidenceSpec>) -> bool {
    proof.spec.kind == KindOfEvidence::Asserted
}

fn words(proof: &Proof, lack: Option<String>) -> String {
    let Proof { name, spec, .. } = proof;
    let said = match (&spec.reason, spec.kind) {
        (Some(reason), KindOfEvidence::Asserted) => format!("{}: {reason}", spec.by),
        (_, kind) => format!("{kind:?}, found by {}", spec.by),
    };
    let but = lack.map_or(String::new(), |lack| format!(", but {lack}"));
    format!("{name} ({said}){but}")
}

/// Why there is no evidence of a device.
fn device_words(node: &Node, scene: &Scene<'_>) -> String {
    if !scene.has(Kind::FencePolicies) {
        return "FencePolicies were not read".to_owned();
    }
    if let Some(fence) = incident(node, scene) {
        return attempt_words(fence, scene.wall);
    }
    if let Some(fence) = dry_run(node, scene) {
        return format!("nothing is switched off, nodefence/{} is a dry run", fence.name);
    }
    let Some(policy) = scene.view.policy_of(node.labels()) else {
        return "no FencePolicy selects this node".to_owned();
    };
    let devices: Vec<String> =
        policy.spec.levels.iter().flat_map(|level| &level.devices).map(ToString::to_string).collect();
    format!("FencePolicy {} with {}: not begun", policy.name, devices.join(", "))
}

/// The incident of the life in which this node is. A dry run is none.
pub(super) fn incident<'a>(node: &Node, scene: &Scene<'a>) -> Option<&'a Fence> {
    let all = of_this_life(node, scene).filter(|fence| !fence.spec.dry_run);
    all.min_by_key(|fence| (fence.status.phase.is_over(), fence.name.clone()))
}

/// The dry run that takes the place of the incident: while it is open, nothing is switched off. A person's `drill` takes no place.
pub(super) fn dry_run<'a>(node: &Node, scene: &Scene<'a>) -> Option<&'a Fence> {
    let stands = |fence: &&Fence| {
        fence.spec.dry_run
            && !fence.status.phase.is_over()
            && !fence.deleting
            && *fence.name != *rehearsal_name(&fence.spec.node)
    };
    of_this_life(node, scene).find(stands)
}

fn of_this_life<'a>(node: &Node, scene: &Scene<'a>) -> impl Iterator<Item = &'a Fence> {
    scene.view.fences_of(&node.name).filter(|fence| node.is_in(&fence.spec.node))
}

fn attempt_words(fence: &Fence, wall: Timestamp) -> String {
    let phase = fence.status.phase;
    let tried = fence.status.attempts.iter().filter(|one| one.act == SwitchTo::Off).count();
    let last = fence.status.attempts.iter().rev().find(|one| one.act == SwitchTo::Off);
    let Some(last) = last else {
        let message = if fence.status.message.is_empty() { "no attempt yet" } else { &fence.status.message };
        return format!("{}: {message}", phase.name());
    };
    let devices: Vec<String> = last.devices.iter().map(ToString::to_string).collect();
    let ago = last.at.parse().ok().map_or(String::new(), |at| format!(" {} ago", span(since(at, wall))));
    let seen = match (&last.verified, &last.outcome) {
        (Some(verified), _) if verified.message.is_empty() => format!("power is {}", verified.power),
        (Some(verified), _) => verified.message.clone(),
        (None, Some(outcome)) => outcome.clone(),
        (None, None) => "in progress".to_owned(),
    };
    let gave_up = if phase == Phase::AwaitingOperator { ", given up" } else { "" };
    format!("{}: {seen} ({tried} tried{gave_up}, the last{ago})", devices.join(" and "))
}

/// The FencePolicy that chooses it.
pub(super) fn policy<'a>(node: &Node, scene: &Scene<'a>) -> Option<&'a Policy> {
    scene.view.policy_of(node.labels())
}
