//! The state of a node, and the pods that wait for it.

use std::sync::Arc;

use pod_safety_shared::api::{FenceEvidenceKind, Phase};
use pod_safety_shared::cache::{Lookup, ZoneCount};
use pod_safety_shared::controller_loop::HoldReason;
use pod_safety_shared::events::EventType;
use pod_safety_shared::model::{Kind, Node, Pod, Readiness, SUSPECT_TAINT, is_or_are};

use super::answer::{Answer, Judgement, Verdict, capitalize, format_duration, pluralize};
use super::context::{ExplainContext, object_ref};
use super::pauses::Paused;
use super::pod::explain_pod;
use super::power_check::{FENCING_PAGE, RUNBOOKS, add_operator_steps, asks_a_person, offer_confirmation};
use super::signals::{heartbeat_signals, missed_reports};
use super::{evidence, fencing_step, history};
use pod_safety_fencing::Hold;

/// Why a node whose incident is a dry run is not fenced.
const DRY_RUN: &str = "there is no evidence that it stopped. Its incident is a dry run.";

/// How many of its pods are listed.
const PODS_SHOWN: usize = 20;

/// Explains the node of this name; `None` if there is neither a Node nor a pod that names it.
#[must_use]
pub fn explain_node(name: &Arc<str>, ctx: &ExplainContext<'_>) -> Option<Answer> {
    let node = match ctx.view.node(name) {
        Lookup::Known(node) => node,
        Lookup::Unknown(why) => return Some(unreadable(name, why)),
        Lookup::Absent => return explain_missing_node(name, ctx),
    };
    let pods = Pods::on_node(name, ctx);
    let mut answer = Answer::new(object_ref("node", "", name), judge(node, &pods, ctx));
    answer.facts = list_facts(node);
    answer.facts.push(pods.describe());
    (answer.history, answer.before) = history::node_history(node, ctx);
    answer.signals = heartbeat_signals(node, ctx);
    if node.readiness != Readiness::Ready {
        answer.evidence = evidence::node_evidence(node, ctx);
    }
    answer.items = pods.items(ctx);
    add_notes(&mut answer, node, &pods, ctx);
    add_next_steps(&mut answer, node, ctx);
    add_pause_notes(&mut answer, node, ctx);
    Some(answer)
}

fn unreadable(name: &str, why: &str) -> Answer {
    let verdict =
        Judgement::new(Verdict::Unknown, "NodeUnreadable", format!("it cannot be read: {why}. It may still exist."));
    Answer::new(object_ref("node", "", name), verdict)
}

/// Explains a node without a Node object that pods name.
fn explain_missing_node(name: &Arc<str>, ctx: &ExplainContext<'_>) -> Option<Answer> {
    let pods = Pods::on_node(name, ctx);
    let first = pods.all.first()?;
    let verdict = explain_pod(first, ctx).judgement;
    let mut answer = Answer::new(object_ref("node", "", name), verdict);
    answer.facts = vec!["there is no such Node".to_owned(), pods.describe()];
    answer.items = pods.items(ctx);
    answer.add_next_step(
        "If the machine still runs: stop its kubelet, or restart it, so that it registers its Node again.",
        "",
    );
    Some(answer)
}

/// The pods of a node, those that are being deleted first.
struct Pods<'a> {
    all: Vec<&'a Pod>,
}

impl<'a> Pods<'a> {
    fn on_node(node: &str, ctx: &ExplainContext<'a>) -> Self {
        let mut all: Vec<&Pod> = ctx.view.pods_on(node).collect();
        all.sort_by_key(|pod| (pod.deletion.is_none(), pod.key.namespace.clone(), pod.key.name.clone()));
        Self { all }
    }

    /// How many of them are being deleted and wait for the node.
    fn waiting(&self) -> usize {
        self.all.iter().filter(|pod| pod.deletion.is_some() && !pod.waits_for_finalizers()).count()
    }

    fn describe(&self) -> String {
        pluralize(self.all.len(), "pod")
    }

    fn items(&self, ctx: &ExplainContext<'_>) -> Vec<super::Item> {
        let answers = self.all.iter().map(|pod| explain_pod(pod, ctx));
        answers
            .filter(|answer| answer.judgement.verdict != Verdict::Free)
            .take(PODS_SHOWN)
            .map(|answer| answer.to_item())
            .collect()
    }
}

/// The state of a node in one word.
#[must_use]
pub fn node_state(node: &Node, ctx: &ExplainContext<'_>) -> &'static str {
    let counts = ctx.view.evidence_for(node, ctx.now).filter(|_| ctx.has_read(Kind::FenceEvidences));
    let incident = evidence::current_incident(node, ctx).map(|fence| fence.status.phase);
    match (node.readiness, counts, incident) {
        (Readiness::Ready, ..) if node.has_no_schedule_taint(SUSPECT_TAINT) => "Suspect",
        (Readiness::Ready, ..) => "Ready",
        (_, Some(proof), _) if proof.spec.kind == FenceEvidenceKind::OperatorConfirmed => "ConfirmedDown",
        (_, Some(_), _) => "Fenced",
        (_, None, Some(Phase::Fencing)) => "Fencing",
        (Readiness::NotReady | Readiness::Missing, None, _) => "NotReady",
        (Readiness::Unknown, None, _) => "Lost",
    }
}

fn judge(node: &Node, pods: &Pods<'_>, ctx: &ExplainContext<'_>) -> Judgement {
    let state = node_state(node, ctx);
    let waiting = pods.waiting();
    let wait = match waiting {
        0 => "No pod waits for it.".to_owned(),
        1 => "1 terminating pod waits for it.".to_owned(),
        count => format!("{count} terminating pods wait for it."),
    };
    let mut fencing = ctx.list_fencing_holds(node);
    if matches!(state, "Fenced" | "ConfirmedDown") {
        fencing.retain(|hold| !is_of_detection(hold));
    }
    // A hold that needs an operator comes first, then one that an operator should know.
    let person = fencing.iter().find(|hold| matches!(hold.event(), Some((EventType::Warning, _))));
    let first = person.or_else(|| fencing.iter().find(|hold| hold.event().is_some())).or(fencing.first());
    let blocked_or = |verdict| if person.is_some() { Verdict::Blocked } else { verdict };
    let with_wait = |text: String| format!("{text} {wait}");
    match state {
        "Ready" => match first {
            Some(hold) => Judgement::new(blocked_or(Verdict::Waiting), hold.reason(), format!("{hold}.")),
            None => judge_ready(node, ctx),
        },
        "Suspect" => Judgement::new(
            Verdict::Waiting,
            "Suspect",
            "its kubelet has not reported for a while. No new pods are scheduled to it.",
        ),
        "Fenced" | "ConfirmedDown" => match first {
            Some(hold) => Judgement::new(blocked_or(Verdict::Released), hold.reason(), describe_proved_off(hold)),
            None if waiting > 0 && ctx.running.has_no_leader() => Judgement::new(
                Verdict::Blocked,
                "NoLeader",
                with_wait("it is proved off, but there is no leader.".to_owned()),
            ),
            None => Judgement::new(
                Verdict::Released,
                "Proved",
                with_wait("it is proved off: its terminating pods are removed.".to_owned()),
            ),
        },
        "NotReady" => judge_not_ready(node, person, verdict_for(waiting), &wait, ctx),
        _ if evidence::open_dry_run(node, ctx).is_some() => {
            Judgement::new(verdict_for(waiting), "DryRun", with_wait(DRY_RUN.to_owned()))
        }
        _ => match fencing_step::next_step(node, ctx) {
            Some(step) => {
                let text = format!("there is no evidence yet that it stopped. {}.", capitalize(&step.message));
                Judgement::new(Verdict::Waiting, step.reason, with_wait(text))
            }
            None => {
                let hold = first.map_or(String::new(), |hold| format!(" {}.", capitalize(&hold.to_string())));
                let reason = first.map_or("NoEvidence", HoldReason::reason);
                let text = format!("there is no evidence that it stopped.{hold}");
                Judgement::new(blocked_or(verdict_for(waiting)), reason, with_wait(text))
            }
        },
    }
}

fn judge_ready(node: &Node, ctx: &ExplainContext<'_>) -> Judgement {
    let Some(age) = missed_reports(node, ctx) else {
        return Judgement::new(Verdict::Free, "Ready", "its kubelet reports that the node is Ready.");
    };
    let (age, grace) = (format_duration(age), format_duration(ctx.settings.node_lifecycle.monitor_grace));
    let text = format!("it was Ready at its last report, {age} ago. It counts as lost after {grace}.");
    Judgement::new(Verdict::Waiting, "NotReporting", text)
}

fn judge_not_ready(
    node: &Node,
    person: Option<&Hold>,
    verdict: Verdict,
    wait: &str,
    ctx: &ExplainContext<'_>,
) -> Judgement {
    let text = match missed_reports(node, ctx) {
        Some(age) => format!("it was not ready at its last report, {} ago.", format_duration(age)),
        None => "its kubelet reports that the node is not ready.".to_owned(),
    };
    let with_wait = |why: &str| format!("{text} {}. {wait}", capitalize(why));
    match (fencing_step::next_step(node, ctx), person) {
        (Some(step), _) => Judgement::new(Verdict::Waiting, step.reason, with_wait(&step.message)),
        (None, Some(hold)) => Judgement::new(Verdict::Blocked, hold.reason(), with_wait(&hold.to_string())),
        (None, None) => Judgement::new(verdict, "NotReady", format!("{text} {wait}")),
    }
}

/// Whether the hold is about why no incident was opened: not relevant for a node that is proved off.
const fn is_of_detection(hold: &Hold) -> bool {
    matches!(hold, Hold::FenceNotNeeded { .. } | Hold::WouldFence { .. } | Hold::NoBootId { .. })
}

fn describe_proved_off(hold: &Hold) -> String {
    let hold_says_so = matches!(hold, Hold::AwaitingOperator { .. } | Hold::MachinePoweredOff { .. });
    if hold_says_so { format!("{hold}.") } else { format!("it is proved off. {}.", capitalize(&hold.to_string())) }
}

const fn verdict_for(waiting: usize) -> Verdict {
    if waiting == 0 { Verdict::Waiting } else { Verdict::Blocked }
}

fn list_facts(node: &Node) -> Vec<String> {
    let mut facts = Vec::new();
    if !node.zone.is_empty() {
        facts.push(describe_zone(&zone_name(&node.zone)));
    }
    if node.unschedulable {
        facts.push("cordoned".to_owned());
    }
    let taints: Vec<&str> =
        node.no_schedule.iter().map(|key| &**key).chain(node.no_execute.iter().map(|taint| &*taint.key)).collect();
    let mut short: Vec<&str> = taints.iter().map(|key| key.rsplit('/').next().unwrap_or(key)).collect();
    short.sort_unstable();
    short.dedup();
    if !short.is_empty() {
        facts.push(format!("taints {}", short.join(", ")));
    }
    facts
}

/// The name of a zone. kube-controller-manager's key is region and zone with a null character between.
pub(super) fn zone_name(zone: &str) -> String {
    match zone.split_once(":\0:") {
        None if zone.is_empty() => "no zone".to_owned(),
        None => zone.to_owned(),
        Some((_, zone)) if !zone.is_empty() => zone.to_owned(),
        Some((region, _)) => region.to_owned(),
    }
}

/// The name with the word "zone", unless the name has it.
fn describe_zone(name: &str) -> String {
    if name.to_lowercase().contains("zone") { name.to_owned() } else { format!("zone {name}") }
}

fn add_notes(answer: &mut Answer, node: &Node, pods: &Pods<'_>, ctx: &ExplainContext<'_>) {
    for (_, hold) in ctx.decide_lifecycle(&node.name).holds {
        answer.notes.push(format!("node-lifecycle: {hold}."));
    }
    let dry = evidence::open_dry_run(node, ctx);
    let proved = ctx.has_read(Kind::FenceEvidences) && ctx.view.evidence_for(node, ctx.now).is_some();
    for hold in ctx.list_fencing_holds(node).into_iter().filter(|hold| !proved || !is_of_detection(hold)) {
        let message = format!("{hold}");
        let dry = if dry.is_some() && !matches!(hold, Hold::DryRun { .. }) { "dry run: " } else { "" };
        if !answer.judgement.message.contains(&message) && !answer.judgement.message.contains(&capitalize(&message)) {
            answer.notes.push(format!("fencing: {dry}{message}."));
        }
    }
    if let Some(fence) = dry {
        answer.notes.push(format!(
            "nodefence/{} is a dry run, and stays one if the mode of its FencePolicy changes.",
            fence.name
        ));
    }
    let ZoneCount { ready, not_ready, excluded: _ } = ctx.view.zone(&node.zone);
    if node.readiness != Readiness::Ready {
        answer.notes.push(format!(
            "{}: {ready} of {} nodes {} Ready.",
            capitalize(&describe_zone(&zone_name(&node.zone))),
            ready + not_ready,
            is_or_are(ready)
        ));
        if ctx.has_read(Kind::FencePolicies) && evidence::policy_for(node, ctx).is_none() {
            answer.notes.push(format!(
                "No FencePolicy selects it, so it is not fenced. {FENCING_PAGE} explains how to set that up."
            ));
        }
    }
    let held = ctx.attachments.iter().filter(|one| one.attached && one.node == *node.name);
    let held: Vec<&str> = held.map(|one| one.volume.as_str()).collect();
    if !held.is_empty() && node.readiness != Readiness::Ready {
        answer.notes.push(format!("Volumes that it holds: {}.", held.join(", ")));
    }
    let lasting = pods.all.iter().filter(|pod| pod.keeps_identity() && pod.deletion.is_some()).count();
    if lasting > 0 && ctx.view.evidence_for(node, ctx.now).is_none() && node.readiness != Readiness::Ready {
        let released = match pods.waiting() {
            1 => "1 pod is released".to_owned(),
            count => format!("{count} pods are released"),
        };
        answer.notes.push(format!("If it is proved off now: {released}, {lasting} with a stable identity."));
    }
}

fn add_next_steps(answer: &mut Answer, node: &Node, ctx: &ExplainContext<'_>) {
    let name = &node.name;
    let proved = ctx.view.evidence_for(node, ctx.now).is_some() && ctx.has_read(Kind::FenceEvidences);
    if let Some(defect) = fencing_step::find_policy_defect(node, ctx).filter(|_| !proved) {
        answer.add_next_step(
            format!("Fencing cannot switch this node off: {defect}. Correct that, then test it"),
            format!("pod-safety devices test --target {name}"),
        );
    }
    if node.readiness != Readiness::Ready {
        add_operator_steps(answer, node, ctx);
    }
    let dry = evidence::open_dry_run(node, ctx);
    if let Some(fence) = dry {
        answer.add_next_step(
            "If the node is to be fenced: set mode: Enforce in its FencePolicy, then delete the dry run",
            format!("kubectl delete nodefence {}", fence.name),
        );
    }
    match (node.readiness, proved) {
        (Readiness::Ready, _) => {}
        (_, true) => {
            if answer.judgement.reason == "MachinePoweredOff" {
                answer.add_next_step("Repair the machine and switch it on.", "");
            }
            answer.add_next_step(
                "Only if the evidence is wrong and the machine runs: withdraw it",
                format!("pod-safety withdraw {name} --reason TEXT"),
            );
        }
        (Readiness::NotReady | Readiness::Missing, false) => {
            answer.add_next_step("See what its kubelet reports", format!("kubectl describe node {name}"));
        }
        (Readiness::Unknown, false) => add_lost_node_steps(answer, node, dry.is_some(), ctx),
    }
}

/// Adds what an operator can do about a lost node that no evidence proves off.
fn add_lost_node_steps(answer: &mut Answer, node: &Node, dry: bool, ctx: &ExplainContext<'_>) {
    let name = &node.name;
    let open = evidence::current_incident(node, ctx).filter(|fence| !fence.status.phase.is_over());
    let goes_on = fencing_step::next_step(node, ctx).is_some();
    if goes_on {
        let watch = open.map_or_else(
            || format!("pod-safety explain node {name} -w"),
            |fence| format!("kubectl get nodefence {} -w", fence.name),
        );
        answer.add_next_step("Wait: pod-safety fences it without a person. To watch it", watch);
    }
    if fencing_step::is_outage(node, ctx) {
        let outage = format!("{RUNBOOKS}/PodSafetyLargeOutage.md");
        answer.add_next_step(
            format!("Find out first who is cut off, pod-safety or the nodes: {outage}"),
            "pod-safety doctor",
        );
    }
    answer.add_next_step("If you can reach the machine: restart its kubelet.", "");
    if let Some(fence) = open.filter(|_| !goes_on) {
        answer.add_next_step("See the progress of fencing", format!("kubectl get nodefence {} -o yaml", fence.name));
    }
    let can_fence = evidence::policy_for(node, ctx).is_some() && fencing_step::find_policy_defect(node, ctx).is_none();
    if open.is_none() && !dry && !goes_on && can_fence {
        add_fence_step(answer, node, ctx);
    }
    offer_confirmation(answer, node, ctx);
}

/// One boot of a node has one NodeFence: the API server refuses another one while it exists.
fn add_fence_step(answer: &mut Answer, node: &Node, ctx: &ExplainContext<'_>) {
    if let Some(over) = evidence::current_incident(node, ctx) {
        let delete = format!("kubectl delete nodefence {}", over.name);
        return answer.add_next_step("Delete its NodeFence, which is over, so that it can be fenced again", delete);
    }
    let what = if asks_a_person(node, ctx) {
        "Record the incident, and ask a person"
    } else {
        "Switch it off through its FencePolicy"
    };
    answer.add_next_step(what, format!("pod-safety fence {} --reason TEXT", node.name));
}

/// Adds notes that the node is not fenced because an operator paused fencing.
fn add_pause_notes(answer: &mut Answer, node: &Node, ctx: &ExplainContext<'_>) {
    for pause in Paused::affecting_node(node, evidence::policy_for(node, ctx), ctx) {
        answer.notes.push(format!(
            "{} is paused, so this node is not fenced: {}.",
            pause.object,
            pause.describe(ctx.wall)
        ));
        answer.history.extend(pause.to_moment());
        if !pause.command.is_empty() {
            answer.add_next_step(format!("To allow fencing again: resume {}", pause.object), pause.command);
        }
    }
    answer.history.sort_by_key(|moment| moment.at);
}
