//! Why a node is as it is, and what waits for it.

use std::sync::Arc;

use pod_safety_shared::api::{KindOfEvidence, Phase};
use pod_safety_shared::cache::{Lookup, ZoneCount};
use pod_safety_shared::drive::HoldReason;
use pod_safety_shared::model::{Kind, Node, Pod, Readiness, SUSPECT_TAINT, are};

use super::answer::{Answer, Judgement, Standing, plural, sentence};
use super::pauses::Paused;
use super::pod::explain_pod;
use super::scene::{Scene, object};
use super::signals::signals;
use super::sure::{RUNBOOKS, awaits, confirm};
use super::{history, proof, soon};
use pod_safety_fencing::Hold;

/// Why a node is not fenced whose incident is a dry run.
const DRY_RUN: &str = "there is no evidence that it stopped. Its incident is a dry run.";

/// So many of its pods are listed.
const PODS_SHOWN: usize = 20;

/// Answers for the node of this name; none if nobody knows it, not even a pod.
#[must_use]
pub fn explain_node(name: &Arc<str>, scene: &Scene<'_>) -> Option<Answer> {
    let node = match scene.view.node(name) {
        Lookup::Known(node) => node,
        Lookup::Unknown(why) => return Some(unreadable(name, why)),
        Lookup::Absent => return gone(name, scene),
    };
    let pods = Pods::of(name, scene);
    let mut answer = Answer::new(object("node", "", name), verdict(node, &pods, scene));
    answer.facts = facts(node);
    answer.facts.push(pods.words());
    answer.history = history::of_node(node, scene);
    answer.signals = signals(node, scene);
    if node.readiness != Readiness::Ready {
        answer.evidence = proof::of_node(node, scene);
    }
    answer.items = pods.items(scene);
    notes(&mut answer, node, &pods, scene);
    next(&mut answer, node, scene);
    paused(&mut answer, node, scene);
    Some(answer)
}

fn unreadable(name: &str, why: &str) -> Answer {
    let verdict = Judgement::new(
        Standing::Unknown,
        "NodeUnreadable",
        format!("it cannot be read: {why}. It may still exist."),
    );
    Answer::new(object("node", "", name), verdict)
}

/// Its Node does not exist, and pods name it.
fn gone(name: &Arc<str>, scene: &Scene<'_>) -> Option<Answer> {
    let pods = Pods::of(name, scene);
    let first = pods.all.first()?;
    let verdict = explain_pod(first, scene).verdict;
    let mut answer = Answer::new(object("node", "", name), verdict);
    answer.facts = vec!["there is no such Node".to_owned(), pods.words()];
    answer.items = pods.items(scene);
    answer.next(
        "If the machine still runs: stop its kubelet, or restart it, so that it registers its Node again.",
        "",
    );
    Some(answer)
}

/// The pods of a node, the ones that end first.
struct Pods<'a> {
    all: Vec<&'a Pod>,
}

impl<'a> Pods<'a> {
    fn of(node: &str, scene: &Scene<'a>) -> Self {
        let mut all: Vec<&Pod> = scene.view.pods_on(node).collect();
        all.sort_by_key(|pod| (pod.deletion.is_none(), pod.key.namespace.clone(), pod.key.name.clone()));
        Self { all }
    }

    /// Those that were asked to end and wait for the node.
    fn waiting(&self) -> usize {
        self.all.iter().filter(|pod| pod.deletion.is_some() && !pod.waits_for_finalizers()).count()
    }

    fn words(&self) -> String {
        plural(self.all.len(), "pod")
    }

    fn items(&self, scene: &Scene<'_>) -> Vec<super::Item> {
        let answers = self.all.iter().map(|pod| explain_pod(pod, scene));
        answers
            .filter(|answer| answer.verdict.standing != Standing::Free)
            .take(PODS_SHOWN)
            .map(|answer| answer.item())
            .collect()
    }
}

/// The state of a node in one word.
#[must_use]
pub fn state(node: &Node, scene: &Scene<'_>) -> &'static str {
    let counts = scene.view.proof_of(node, scene.now).filter(|_| scene.has(Kind::FenceEvidences));
    let incident = proof::incident(node, scene).map(|fence| fence.status.phase);
    match (node.readiness, counts, incident) {
        (Readiness::Ready, ..) if node.turns_away(SUSPECT_TAINT) => "Suspect",
        (Readiness::Ready, ..) => "Ready",
        (_, Some(proof), _) if proof.spec.kind == KindOfEvidence::Asserted => "ConfirmedDown",
        (_, Some(_), _) => "Fenced",
        (_, None, Some(Phase::Fencing)) => "Fencing",
        (Readiness::NotReady | Readiness::Missing, None, _) => "NotReady",
        (Readiness::Unknown, None, _) => "Lost",
    }
}

fn verdict(node: &Node, pods: &Pods<'_>, scene: &Scene<'_>) -> Judgement {
    let state = state(node, scene);
    let waiting = pods.waiting();
    let wait = match waiting {
        0 => "No pod waits for it.".to_owned(),
        1 => "1 terminating pod waits for it.".to_owned(),
        count => format!("{count} terminating pods wait for it."),
    };
    let mut fencing = scene.fencing_holds(node);
    if matches!(state, "Fenced" | "ConfirmedDown") {
        fencing.retain(|hold| !is_of_detection(hold));
    }
    // What needs a person is said first.
    let person = fencing.iter().find(|hold| hold.event().is_some());
    let first = person.or(fencing.first());
    let word = |text: String| format!("{text} {wait}");
    match state {
        "Ready" => match first {
            Some(hold) => Judgement::new(Standing::Waiting, hold.reason(), format!("{hold}.")),
            None => Judgement::new(Standing::Free, "Ready", "its kubelet reports that the node is Ready."),
        },
        "Suspect" => Judgement::new(
            Standing::Waiting,
            "Suspect",
            "its kubelet has not reported for a while. No new pods are scheduled to it.",
        ),
        "Fenced" | "ConfirmedDown" => match first {
            Some(hold) => {
                let standing = if person.is_some() { Standing::Blocked } else { Standing::Released };
                Judgement::new(standing, hold.reason(), proved_off(hold))
            }
            None => Judgement::new(
                Standing::Released,
                "Proved",
                word("it is proved off: its terminating pods are removed.".to_owned()),
            ),
        },
        "NotReady" => not_ready(node, waiting, &wait, scene),
        _ if proof::dry_run(node, scene).is_some() => {
            Judgement::new(standing(waiting), "DryRun", word(DRY_RUN.to_owned()))
        }
        _ => match soon::next_step(node, scene) {
            Some(step) => {
                let text = format!("there is no evidence yet that it stopped. {}.", sentence(&step.words));
                Judgement::new(Standing::Waiting, step.reason, word(text))
            }
            None => {
                let hold = first.map_or(String::new(), |hold| format!(" {}.", sentence(&hold.to_string())));
                let reason = first.map_or("NoEvidence", HoldReason::reason);
                let text = format!("there is no evidence that it stopped.{hold}");
                Judgement::new(standing(waiting), reason, word(text))
            }
        },
    }
}

fn not_ready(node: &Node, waiting: usize, wait: &str, scene: &Scene<'_>) -> Judgement {
    let text = "its kubelet reports that the node is not ready.";
    match soon::next_step(node, scene) {
        Some(step) => {
            let text = format!("{text} {}. {wait}", sentence(&step.words));
            Judgement::new(Standing::Waiting, step.reason, text)
        }
        None => Judgement::new(standing(waiting), "NotReady", format!("{text} {wait}")),
    }
}

/// Whether it says why no incident was begun: of no interest about a node that is proved off.
const fn is_of_detection(hold: &Hold) -> bool {
    matches!(hold, Hold::FenceNotNeeded { .. } | Hold::WouldFence { .. } | Hold::NoBootId { .. })
}

fn proved_off(hold: &Hold) -> String {
    let hold_says_so = matches!(hold, Hold::AwaitingOperator { .. } | Hold::MachinePoweredOff { .. });
    if hold_says_so {
        format!("{hold}.")
    } else {
        format!("it is proved off. {}.", sentence(&hold.to_string()))
    }
}

const fn standing(waiting: usize) -> Standing {
    if waiting == 0 { Standing::Waiting } else { Standing::Blocked }
}

fn facts(node: &Node) -> Vec<String> {
    let mut facts = Vec::new();
    if !node.zone.is_empty() {
        facts.push(zone_words(&zone_name(&node.zone)));
    }
    if node.unschedulable {
        facts.push("cordoned".to_owned());
    }
    let taints: Vec<&str> = node
        .no_schedule
        .iter()
        .map(|key| &**key)
        .chain(node.no_execute.iter().map(|taint| &*taint.key))
        .collect();
    let mut short: Vec<&str> = taints.iter().map(|key| key.rsplit('/').next().unwrap_or(key)).collect();
    short.sort_unstable();
    short.dedup();
    if !short.is_empty() {
        facts.push(format!("taints {}", short.join(", ")));
    }
    facts
}

/// KCM's key is region and zone with a null character between.
pub(super) fn zone_name(zone: &str) -> String {
    match zone.split_once(":\0:") {
        None if zone.is_empty() => "no zone".to_owned(),
        None => zone.to_owned(),
        Some((_, zone)) if !zone.is_empty() => zone.to_owned(),
        Some((region, _)) => region.to_owned(),
    }
}

/// A zone is called one.
fn zone_words(name: &str) -> String {
    if name.to_lowercase().contains("zone") { name.to_owned() } else { format!("zone {name}") }
}

fn notes(answer: &mut Answer, node: &Node, pods: &Pods<'_>, scene: &Scene<'_>) {
    for (_, hold) in scene.lost(&node.name).holds {
        answer.notes.push(format!("node-lifecycle: {hold}."));
    }
    let dry = proof::dry_run(node, scene);
    let proved = scene.has(Kind::FenceEvidences) && scene.view.proof_of(node, scene.now).is_some();
    for hold in scene.fencing_holds(node).into_iter().filter(|hold| !proved || !is_of_detection(hold)) {
        let said = format!("{hold}");
        let dry = if dry.is_some() && !matches!(hold, Hold::DryRun { .. }) { "dry run: " } else { "" };
        if !answer.verdict.message.contains(&said) && !answer.verdict.message.contains(&sentence(&said)) {
            answer.notes.push(format!("fencing: {dry}{said}."));
        }
    }
    if let Some(fence) = dry {
        answer.notes.push(format!(
            "nodefence/{} is a dry run, and stays one if the mode of its FencePolicy changes.",
            fence.name
        ));
    }
    let ZoneCount { ready, not_ready, excluded: _ } = scene.view.zone(&node.zone);
    if node.readiness != Readiness::Ready {
        answer.notes.push(format!(
            "{}: {ready} of {} nodes {} Ready.",
            sentence(&zone_words(&zone_name(&node.zone))),
            ready + not_ready,
            are(ready)
        ));
        if scene.has(Kind::FencePolicies) && proof::policy(node, scene).is_none() {
            answer.notes.push("No FencePolicy selects it, so it is not fenced. docs/fencing.md explains how to set that up.".to_owned());
        }
    }
    let held: Vec<&str> = scene
        .attachments
        .iter()
        .filter(|one| one.node == *node.name)
        .map(|one| one.volume.as_str())
        .collect();
    if !held.is_empty() && node.readiness != Readiness::Ready {
        answer.notes.push(format!("Volumes that it holds: {}.", held.join(", ")));
    }
    let lasting = pods.all.iter().filter(|pod| pod.keeps_identity() && pod.deletion.is_some()).count();
    if lasting > 0 && scene.view.proof_of(node, scene.now).is_none() && node.readiness != Readiness::Ready {
        let released = match pods.waiting() {
            1 => "1 pod is released".to_owned(),
            count => format!("{count} pods are released"),
        };
        answer.notes.push(format!("If it is proved off now: {released}, {lasting} with a stable identity."));
    }
}

fn next(answer: &mut Answer, node: &Node, scene: &Scene<'_>) {
    let name = &node.name;
    let proved = scene.view.proof_of(node, scene.now).is_some() && scene.has(Kind::FenceEvidences);
    if let Some(lack) = soon::lack(node, scene).filter(|_| !proved) {
        answer.next(
            format!("Fencing cannot switch this node off: {lack}. Correct that, then test it"),
            format!("pod-safety devices test --target {name}"),
        );
    }
    if node.readiness != Readiness::Ready {
        awaits(answer, node, scene);
    }
    let dry = proof::dry_run(node, scene);
    if let Some(fence) = dry {
        answer.next(
            "If the node is to be fenced: set mode: Enforce in its FencePolicy, then delete the dry run",
            format!("kubectl delete nodefence {}", fence.name),
        );
    }
    match (node.readiness, proved) {
        (Readiness::Ready, _) => {}
        (_, true) => {
            if answer.verdict.reason == "MachinePoweredOff" {
                answer.next("Repair the machine and switch it on.", "");
            }
            answer.next(
                "Only if the evidence is wrong and the machine runs: withdraw it",
                format!("pod-safety withdraw {name} --reason TEXT"),
            );
        }
        (Readiness::NotReady | Readiness::Missing, false) => {
            answer.next("See what its kubelet reports", format!("kubectl describe node {name}"));
        }
        (Readiness::Unknown, false) => lost(answer, node, dry.is_some(), scene),
    }
}

/// What can be done about a lost node that nothing proves off.
fn lost(answer: &mut Answer, node: &Node, dry: bool, scene: &Scene<'_>) {
    let name = &node.name;
    let open = proof::incident(node, scene).filter(|fence| !fence.status.phase.is_over());
    let goes_on = soon::next_step(node, scene).is_some();
    if goes_on {
        let watch = open.map_or_else(
            || format!("pod-safety explain node {name} -w"),
            |fence| format!("kubectl get nodefence {} -w", fence.name),
        );
        answer.next("Wait: pod-safety fences it without a person. To watch it", watch);
    }
    if soon::is_outage(node, scene) {
        let outage = format!("{RUNBOOKS}/PodSafetyLargeOutage.md");
        answer.next(
            format!("Find out first who is cut off, pod-safety or the nodes: {outage}"),
            "pod-safety doctor",
        );
    }
    answer.next("If you can reach the machine: restart its kubelet.", "");
    if let Some(fence) = open.filter(|_| !goes_on) {
        answer.next("See the progress of fencing", format!("kubectl get nodefence {} -o yaml", fence.name));
    }
    let can_fence = proof::policy(node, scene).is_some() && soon::lack(node, scene).is_none();
    if open.is_none() && !dry && !goes_on && can_fence {
        answer
            .next("Switch it off through its FencePolicy", format!("pod-safety fence {name} --reason TEXT"));
    }
    confirm(answer, node, scene);
}

/// That it is not fenced, as somebody asked for.
fn paused(answer: &mut Answer, node: &Node, scene: &Scene<'_>) {
    for pause in Paused::about(node, proof::policy(node, scene), scene) {
        answer.notes.push(format!(
            "{} is paused, so this node is not fenced: {}.",
            pause.object,
            pause.words(scene.wall)
        ));
        answer.history.extend(pause.moment());
        if !pause.command.is_empty() {
            answer.next(format!("To allow fencing again: resume {}", pause.object), pause.command);
        }
    }
    answer.history.sort_by_key(|moment| moment.at);
}
