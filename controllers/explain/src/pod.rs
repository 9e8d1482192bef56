//! The state of a pod, by the decisions of the controllers.

use std::time::Duration;

use pod_safety_shared::authority::DeleteCause;
use pod_safety_shared::cache::{Lookup, ReportKind};
use pod_safety_shared::controller_loop::{FORCE_DELETE_HELD, HoldReason as _};
use pod_safety_shared::model::{Kind, Phase, Pod, Readiness};

use super::actors;
use super::answer::{Answer, Judgement, Verdict, capitalize, elapsed, format_duration, timestamp_from};
use super::claimed::{self, REFUSED};
use super::context::{Attachment, EventRecord, ExplainContext, pod_ref};
use super::disposition::{Disposition, Hold, decide_disposition};
use super::evidence;
use super::history::{self, deletion_requested_at};
use super::power_check::{RUNBOOKS, offer_confirmation};
use super::signals::missed_reports;
use super::{fencing_step, predecessors};
use super::{owner_of, predict_eviction};

/// A kubelet that reports, reports the termination of a pod within seconds after its grace period.
const TERMINATION_OVERDUE: Duration = Duration::from_secs(60);

/// The holds of a pod whose Node does not exist that only who watches its kubelet knows.
const HELD_BY_KUBELET: [&str; 2] = ["KubeletAlive", "KubeletMayNotReport"];

/// Explains one pod.
#[must_use]
pub fn explain_pod(pod: &Pod, ctx: &ExplainContext<'_>) -> Answer {
    let object = pod_ref(pod);
    let disposition = decide_disposition(pod, ctx);
    let mut answer = Answer::new(object, judge(pod, &disposition, ctx));
    answer.facts = list_facts(pod, ctx);
    answer.before = predecessors::find_predecessors(pod, ctx);
    answer.history = history::pod_history(pod, ctx);
    answer.history.extend(predecessors::recovery_moments(pod, answer.before.as_ref(), ctx));
    answer.history.sort_by_key(|moment| moment.at);
    if let Some(node) = pod.node.as_ref().filter(|_| pod.deletion.is_some() && !pod.waits_for_finalizers()) {
        answer.evidence = evidence::pod_evidence(pod, node, ctx);
        actors::add_actors(&mut answer, pod, node, &disposition, ctx);
    }
    add_next_steps(&mut answer, pod, &disposition, ctx);
    answer
}

fn judge(pod: &Pod, disposition: &Disposition, ctx: &ExplainContext<'_>) -> Judgement {
    if pod.waits_for_finalizers() {
        return judge_finalizers(pod);
    }
    match disposition {
        Disposition::Held(hold) => judge_held(pod, hold, ctx),
        Disposition::Claimed(claim) => claimed::judge(pod, claim, ctx),
        Disposition::AbsenceRead => judge_missing_node(pod, ctx),
        Disposition::DeletedGracefully(cause @ DeleteCause::NodeGone { .. }) => {
            Judgement::new(Verdict::Waiting, "NodeGone", format!("{cause}."))
        }
        Disposition::DeletedGracefully(DeleteCause::Taint { .. }) => Judgement::new(
            Verdict::Waiting,
            "Intolerant",
            "it does not tolerate a taint of its node, or no longer tolerates it, and is deleted gracefully now.",
        ),
        Disposition::Undecided(hold) => {
            let recorded = last_recorded_hold(pod, ctx).map(|event| judge_recorded(event, "ForceDeleteHeld", ctx));
            recorded.unwrap_or_else(|| {
                Judgement::new(Verdict::Unknown, "NotRead", format!("{hold}. Too little could be read to say more."))
            })
        }
        Disposition::NoAction if pod.deletion.is_some() => judge_terminating(pod, ctx),
        Disposition::NoAction => judge_running(pod, ctx),
    }
}

/// A command has not watched the kubelet since its Node was deleted. What it can know is whether the Lease was renewed, and
/// what the leader recorded.
fn judge_missing_node(pod: &Pod, ctx: &ExplainContext<'_>) -> Judgement {
    let node = pod.node.clone().unwrap_or_default();
    let quarantine = ctx.settings.pod_gc.quarantine;
    let renewed = ctx.view.lease(&node).flatten().map(|at| elapsed(at, ctx.wall));
    if let Some(ago) = renewed.filter(|ago| *ago < quarantine) {
        let hold = pod_safety_pod_gc::Hold::KubeletAlive { node, sign: ReportKind::LeaseRenewed, ago };
        return Judgement::new(Verdict::Blocked, hold.reason(), format!("{hold}."));
    }
    let recorded = last_recorded_hold(pod, ctx).and_then(|event| {
        let (code, _) = history::parse_hold(event)?;
        let code = HELD_BY_KUBELET.into_iter().find(|known| *known == code)?;
        Some(judge_recorded(event, code, ctx))
    });
    recorded.unwrap_or_else(|| {
        Judgement::new(
            Verdict::Waiting,
            "Quarantine",
            format!(
                "node {node} does not exist. Its pods are removed when it has been missing for {}s and its kubelet has not reported in that time.",
                quarantine.as_secs()
            ),
        )
    })
}

/// The last hold that the leader recorded in an Event: used where this command cannot know what the leader knows.
fn last_recorded_hold<'a>(pod: &Pod, ctx: &'a ExplainContext<'_>) -> Option<&'a EventRecord> {
    let events = ctx.events_of(&pod_ref(pod));
    let held = |event: &&EventRecord| event.reason == FORCE_DELETE_HELD && event.is_about(pod);
    events.into_iter().rev().find(held).filter(|_| pod.deletion.is_some())
}

fn judge_recorded(event: &EventRecord, reason: &'static str, ctx: &ExplainContext<'_>) -> Judgement {
    let ago = format_duration(elapsed(event.at, ctx.wall));
    Judgement::new(Verdict::Blocked, reason, format!("{} (reported by {} {ago} ago)", event.message, event.by))
}

fn judge_finalizers(pod: &Pod) -> Judgement {
    let hold =
        pod_safety_pod_gc::Hold::Finalizers { finalizers: pod.finalizers.iter().map(ToString::to_string).collect() };
    let containers = if pod.has_terminated() {
        "Its containers have terminated"
    } else {
        "Containers ran when its kubelet last reported, so make sure that they have ended first"
    };
    Judgement::new(
        Verdict::Blocked,
        hold.reason(),
        format!("{hold}. {containers}. Only the owners of the finalizers can let it go."),
    )
}

/// What fencing does about its node without an operator, where the pod waits for evidence.
fn next_fencing_step(pod: &Pod, hold: &Hold, ctx: &ExplainContext<'_>) -> Option<fencing_step::Step> {
    let Hold::PodGc(pod_safety_pod_gc::Hold::NoEvidence { .. }) = hold else { return None };
    match ctx.view.node(pod.node.as_deref()?) {
        Lookup::Known(node) => fencing_step::next_step(node, ctx),
        Lookup::Unknown(_) | Lookup::Absent => None,
    }
}

fn judge_held(pod: &Pod, hold: &Hold, ctx: &ExplainContext<'_>) -> Judgement {
    let step = next_fencing_step(pod, hold, ctx);
    let waits = step.is_some()
        || matches!(
            hold,
            Hold::PodGc(pod_safety_pod_gc::Hold::Quarantine { .. } | pod_safety_pod_gc::Hold::AwaitsKubelet { .. })
                | Hold::Taint(pod_safety_taint_eviction::Hold::Tolerated { .. })
        );
    let verdict = if waits { Verdict::Waiting } else { Verdict::Blocked };
    let mut message = format!("{hold}.");
    if let Some(step) = step {
        let node = pod.node.as_deref().unwrap_or_default();
        message = format!(
            "node {node} is unreachable. It may be off, or cut off with this pod still running. {}. The pod is removed when that proves the node off, or when it reports again.",
            capitalize(&step.message)
        );
    }
    if matches!(hold, Hold::PodGc(pod_safety_pod_gc::Hold::NoEvidence { .. })) && pod.keeps_identity() {
        message.push_str(&format!(" Until then a second {} must not start.", pod.key.name));
    }
    Judgement::new(verdict, hold.reason(), message)
}

/// Its deletion is requested, and no other controller acts on it.
fn judge_terminating(pod: &Pod, ctx: &ExplainContext<'_>) -> Judgement {
    let Some(deadline) = pod.deletion.and_then(|deletion| timestamp_from(deletion.at)) else {
        return Judgement::new(Verdict::Waiting, "Ending", "it is deleted and terminates.");
    };
    let node = pod.node.as_deref().unwrap_or_default();
    let missed = match ctx.view.node(node) {
        Lookup::Known(node) => missed_reports(node, ctx),
        Lookup::Unknown(_) | Lookup::Absent => None,
    };
    let reports = missed.map_or("reports".to_owned(), |age| format!("last reported {} ago", format_duration(age)));
    if ctx.wall < deadline {
        let overdue = format_duration(elapsed(ctx.wall, deadline));
        return Judgement::new(
            Verdict::Waiting,
            "Ending",
            format!("it was deleted and has {overdue} left to terminate. The kubelet of {node} {reports}."),
        );
    }
    let late = elapsed(deadline, ctx.wall);
    let not_ready = matches!(ctx.view.node(node), Lookup::Known(node) if node.readiness == Readiness::NotReady);
    if not_ready {
        let message = format!(
            "its grace period ended {} ago. The kubelet of {node} {reports} that the node is not ready, and has not reported that this pod terminated.",
            format_duration(late)
        );
        return Judgement::new(Verdict::Blocked, "NodeNotReady", message);
    }
    if missed.is_some() {
        let message =
            format!("its grace period is over. The kubelet of {node} {reports}, and not that the pod terminated.");
        return Judgement::new(Verdict::Waiting, "NotReporting", message);
    }
    if late < TERMINATION_OVERDUE {
        return Judgement::new(
            Verdict::Waiting,
            "Ending",
            format!("its grace period is over. The kubelet of {node} reports, and is terminating it."),
        );
    }
    let message = format!(
        "its grace period ended {} ago. The kubelet of {node} reports, but not that the pod terminated: the container runtime or a volume hangs there.",
        format_duration(late)
    );
    Judgement::new(Verdict::Blocked, "TerminationOverdue", message)
}

/// Its deletion is not requested.
fn judge_running(pod: &Pod, ctx: &ExplainContext<'_>) -> Judgement {
    let events = ctx.events_of(&pod_ref(pod));
    let own_events = || events.iter().rev().filter(|one| one.is_about(pod));
    let warned = |reason: &str| own_events().find(|one| one.reason == reason);
    if pod.phase.is_terminal() {
        return Judgement::new(Verdict::Free, "Ended", "it has terminated.");
    }
    if pod.node.is_none() {
        let why = warned("FailedScheduling").map_or("it is not scheduled to a node yet", |one| &one.message);
        return Judgement::new(Verdict::Waiting, "Unscheduled", format!("it waits for a node: {why}"));
    }
    if pod.phase == Phase::Pending
        && let Some(failed) = warned("FailedAttachVolume")
    {
        return judge_volume(&failed.message, pod, ctx);
    }
    let node = pod.node.as_deref().map(|node| ctx.view.node(node));
    if let Some(Lookup::Known(node)) = node
        && node.readiness == Readiness::Unknown
    {
        let message = format!(
            "node {} is unreachable, so it is not known whether the pod runs. It is not deleted yet.",
            node.name
        );
        return Judgement::new(Verdict::Waiting, "NodeUnreachable", message);
    }
    if pod.ready {
        return Judgement::new(Verdict::Free, "Running", "it runs and is Ready. Nothing blocks it.");
    }
    let why =
        own_events().find(|one| one.warning).map_or(String::new(), |one| format!(" Last warning: {}", one.message));
    let on = pod.node.as_deref().unwrap_or_default();
    let fixture = match pod.phase {
        Phase::Pending => format!("it is scheduled on {on}, and its containers start."),
        _ => format!("it runs on {on} and is not Ready yet."),
    };
    Judgement::new(Verdict::Waiting, "NotReady", format!("{fixture}{why}"))
}

/// Its volume is attached to another node. Kubernetes quotes the name of the volume.
fn judge_volume(message: &str, pod: &Pod, ctx: &ExplainContext<'_>) -> Judgement {
    let names = |volume: &str| !volume.is_empty() && message.contains(&format!("\"{volume}\""));
    let mut elsewhere = ctx.attachments.iter().filter(|one| one.attached && pod.node.as_deref() != Some(&one.node));
    let Some(held) = elsewhere.find(|one| names(&one.volume)) else {
        return Judgement::new(
            Verdict::Blocked,
            "VolumeNotAttached",
            format!("its volume cannot be attached: {message}"),
        );
    };
    let unreachable = matches!(ctx.view.node(&held.node), Lookup::Known(node) if node.readiness == Readiness::Unknown);
    let state = if unreachable { ", which is unreachable and may still write to it" } else { "" };
    let hold = held.hold.as_deref().map_or(String::new(), |why| format!(" It is held there: {why}."));
    let message = format!(
        "its volume {} is attached to node {}{state}. It can be attached here when that node releases it or is proved off.{hold}",
        held.volume, held.node
    );
    Judgement::new(Verdict::Blocked, "VolumeInUse", message)
}

fn list_facts(pod: &Pod, ctx: &ExplainContext<'_>) -> Vec<String> {
    let mut facts = vec![owner_of(pod, &ctx.view)];
    facts.push(pod.node.as_ref().map_or("on no node".to_owned(), |node| format!("on {node}")));
    match pod.deletion {
        Some(deletion) => facts.push(match deletion_requested_at(deletion) {
            Some(at) => format!("Terminating {}", format_duration(elapsed(at, ctx.wall))),
            None => "Terminating".to_owned(),
        }),
        None => facts.push(format!("{:?}", pod.phase)),
    }
    if !pod.finalizers.is_empty() {
        facts.push(format!("finalizers {}", pod.finalizers.join(", ")));
    }
    facts
}

fn add_next_steps(answer: &mut Answer, pod: &Pod, disposition: &Disposition, ctx: &ExplainContext<'_>) {
    let (namespace, name) = (&pod.key.namespace, &pod.key.name);
    if pod.waits_for_finalizers() {
        answer.add_next_step(
            "Find the controller that owns these finalizers and check that it is running",
            format!("kubectl get pod -n {namespace} {name} -o yaml --show-managed-fields"),
        );
        return;
    }
    let node = pod.node.as_deref().unwrap_or_default();
    let explain_node = format!("pod-safety explain node {node}");
    match disposition {
        Disposition::Held(hold @ Hold::PodGc(pod_safety_pod_gc::Hold::NoEvidence { .. })) => {
            let step = next_fencing_step(pod, hold, ctx);
            add_evidence_steps(answer, node, step, explain_node, ctx);
        }
        Disposition::Held(_) if !node.is_empty() => answer.add_next_step("Show the node", explain_node),
        Disposition::Claimed(_) if answer.judgement.reason == "Observe" => {
            answer.add_next_step(
                "Let pod-safety act: switch to the mode guard",
                ctx.running.installation.helm_command("mode=guard"),
            );
        }
        Disposition::Claimed(_) if answer.judgement.reason == "NoLeader" => {
            answer.add_next_step("Find out why there is no leader", "pod-safety doctor")
        }
        Disposition::Claimed(claim) if answer.judgement.reason == REFUSED => {
            claimed::add_next_steps(answer, pod, claim, ctx)
        }
        Disposition::Claimed(_) => answer.add_next_step(
            "Watch the pod until it is gone",
            format!("pod-safety explain pod -n {namespace} {name} -w"),
        ),
        Disposition::Undecided(_) => answer.add_next_step(
            "Ask someone with more rights to run this",
            format!("pod-safety explain pod -n {namespace} {name}"),
        ),
        Disposition::Held(_) | Disposition::AbsenceRead | Disposition::DeletedGracefully(_) | Disposition::NoAction => {
            let events = format!("kubectl events -n {namespace} --for pod/{name}");
            add_event_steps(answer, events, explain_node, ctx);
        }
    }
    if answer.judgement.verdict == Verdict::Free && !pod.phase.is_terminal() && ctx.has_read(Kind::Budgets) {
        let eviction = predict_eviction(pod, ctx.view.budgets_of_pod(pod)).describe();
        answer.notes.push(format!("An eviction would {eviction}."));
    }
}

/// What an operator can do about a pod that waits for evidence. While fencing proceeds, the advice is to wait. Where
/// most nodes seem lost, the first step is to find out whether pod-safety or the nodes are cut off.
fn add_evidence_steps(
    answer: &mut Answer,
    node: &str,
    step: Option<fencing_step::Step>,
    explain_node: String,
    ctx: &ExplainContext<'_>,
) {
    let cached = match ctx.view.node(node) {
        Lookup::Known(node) => Some(node),
        Lookup::Unknown(_) | Lookup::Absent => None,
    };
    let outage = cached.is_some_and(|node| fencing_step::is_outage(node, ctx));
    if step.is_some() {
        return answer.add_next_step("Wait: pod-safety fences the node. To watch it", format!("{explain_node} -w"));
    }
    if outage {
        answer.add_next_step(
            format!("Find out first who is cut off, pod-safety or the nodes: {RUNBOOKS}/PodSafetyLargeOutage.md"),
            "pod-safety doctor",
        );
    }
    answer.add_next_step("If you can reach the machine: restart its kubelet. The pod then terminates normally.", "");
    answer.add_next_step("Show the node and what fencing does about it", explain_node);
    if let Some(node) = cached {
        offer_confirmation(answer, node, ctx);
    }
}

/// What an operator can do where no controller acts.
fn add_event_steps(answer: &mut Answer, events: String, explain_node: String, ctx: &ExplainContext<'_>) {
    match answer.judgement.reason {
        "VolumeInUse" => {
            let named = |volume: &str| answer.judgement.message.contains(&format!("volume {volume} "));
            let held = ctx.attachments.iter().find(|one| named(&one.volume));
            if let Some(Attachment { volume, node, .. }) = held {
                answer.add_next_step(
                    "Show what holds the volume, and what would free it",
                    format!("pod-safety explain volume {volume}"),
                );
                answer.add_next_step(
                    "Find out why that node does not release it",
                    format!("pod-safety explain node {node}"),
                );
            }
        }
        "NodeUnreachable" => answer.add_next_step("Show the node", explain_node),
        "NodeNotReady" | "TerminationOverdue" => {
            answer.add_next_step("See what its kubelet reports", events);
            answer.add_next_step("Show the node", explain_node);
        }
        "NotReady" | "Unscheduled" | "VolumeNotAttached" => answer.add_next_step("See all Events of this pod", events),
        _ => {}
    }
}
