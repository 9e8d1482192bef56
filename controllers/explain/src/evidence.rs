//! Which evidence there is that a pod or its node stopped, and which is missing.

use jiff::Timestamp;
use pod_safety_shared::api::{DesiredPower, FenceEvidenceKind, FenceEvidenceSpec, Phase};
use pod_safety_shared::authority::{EvidenceDefect, dry_run_name};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::model::{
    CustomObject, FenceEvidenceObject, FencePolicyObject, Kind, Node, NodeFenceObject, Pod, Readiness,
};

use super::answer::{Finding, elapsed, finding, format_duration, timestamp_from};
use super::context::ExplainContext;

/// What would prove that this pod stopped.
pub(super) fn pod_evidence(pod: &Pod, name: &str, ctx: &ExplainContext<'_>) -> Vec<Finding> {
    let reported = match (pod.running_containers > 0, pod.phase.is_terminal()) {
        (true, _) => {
            finding("KubeletReported", "its kubelet reports it", Some(false), "the last report has a running container")
        }
        (false, true) => {
            finding("KubeletReported", "its kubelet reports it", Some(true), "the last report has no running container")
        }
        (false, false) => {
            finding("KubeletReported", "its kubelet reports it", Some(false), "no report that it terminated")
        }
    };
    let mut all = vec![reported];
    match ctx.view.node(name) {
        // While the node reports, only the report of its kubelet is evidence.
        Lookup::Known(Node { readiness: Readiness::Ready, .. }) => {}
        Lookup::Known(node) => {
            all.push(new_boot(node));
            all.extend(node_evidence(node, ctx));
            all.push(finding(
                "NodeGone",
                "the Node is deleted",
                Some(false),
                "it exists. Delete it only if the machine is permanently gone",
            ));
        }
        Lookup::Absent => all.push(node_absence(pod, name, ctx)),
        Lookup::Unknown(_) if !ctx.has_read(Kind::Nodes) => {
            all.push(finding("NodeGone", "the Node is deleted", None, "nodes were not read"))
        }
        Lookup::Unknown(why) => all.push(finding("NodeGone", "the Node is deleted", None, why)),
    }
    all
}

/// That its Node is deleted is evidence only after a quarantine in which its kubelet does not report, and only where
/// that proves something ([`unreachable_is_proof`]).
///
/// [`unreachable_is_proof`]: pod_safety_shared::cache::View::unreachable_is_proof
fn node_absence(pod: &Pod, name: &str, ctx: &ExplainContext<'_>) -> Finding {
    let ExplainContext { view, now, settings, .. } = ctx;
    let (quarantine, seconds) = (settings.pod_gc.quarantine, settings.pod_gc.quarantine.as_secs());
    let first_read = view.absence(name).and_then(|absence| absence.first_read.as_ref());
    let last_heartbeat = view.last_heartbeat(name).map(|last_heartbeat| last_heartbeat.at);
    // A first read that is made now would begin a quarantine that counts.
    let from = pod.report_due_at(view.reports_deletions(name));
    let was_unreachable = pod.has_terminated() || view.unreachable_before_node_deleted(name);
    let unable = view.why_unable_to_report(pod, name).filter(|_| !was_unreachable);
    let counts_from_now = was_unreachable || unable.is_none() && from.is_some_and(|from| from <= *now);
    let (met, detail) = match first_read {
        Some(first_read) if last_heartbeat >= Some(first_read.requested_at()) => {
            (false, "it does not exist, but its kubelet still runs".to_owned())
        }
        Some(first_read)
            if *now >= first_read.answered_at() + quarantine && view.unreachable_is_proof(pod, name, first_read) =>
        {
            (true, format!("it does not exist, and its kubelet has not reported for {seconds}s"))
        }
        _ if let Some(why) = unable => {
            (false, format!("it does not exist, and its kubelet was active until then. {why}. Its silence is no proof"))
        }
        _ if counts_from_now => {
            (false, format!("it does not exist. That is proof after {seconds}s without a sign of life of its kubelet"))
        }
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

/// What would prove that this incarnation of the node has ended: one finding for each piece of evidence. Evidence is
/// valid by the function that decisions call ([`check_evidence`]).
///
/// [`check_evidence`]: pod_safety_shared::cache::View::check_evidence
pub(super) fn node_evidence(node: &Node, ctx: &ExplainContext<'_>) -> Vec<Finding> {
    let names = [("FenceConfirmed", "a fence device reports off"), ("PersonConfirmed", "a person confirmed")];
    if !ctx.has_read(Kind::FenceEvidences) {
        return names.map(|(r#type, name)| finding(r#type, name, None, "FenceEvidences were not read")).to_vec();
    }
    let of = |person: bool| {
        let (r#type, name) = names[usize::from(person)];
        let mut findings: Vec<Finding> = stated_evidence(node, person, ctx)
            .into_iter()
            .map(|proof| {
                let defect = find_defect(proof, node, ctx);
                finding(r#type, name, Some(defect.is_none()), describe(proof, defect))
            })
            .collect();
        // Where no evidence of a device is valid, the current attempts are listed.
        match person {
            true if findings.is_empty() => findings.push(finding(r#type, name, Some(false), "no confirmation")),
            false if findings.iter().all(|one| one.met == Some(false)) => {
                findings.push(finding(r#type, name, Some(false), describe_devices(node, ctx)));
            }
            _ => {}
        }
        findings
    };
    [of(false), of(true)].concat()
}

/// The evidence to list, of operators or of devices, the oldest first: all about this incarnation of the node, or else
/// the last about an earlier one. FenceEvidences are kept for months.
fn stated_evidence<'a>(node: &Node, person: bool, ctx: &ExplainContext<'a>) -> Vec<&'a FenceEvidenceObject> {
    let mut all: Vec<&FenceEvidenceObject> =
        ctx.view.fence_evidence_of(&node.name).filter(|proof| is_confirmation(proof) == person).collect();
    all.sort_by_key(|proof| proof.rv);
    let about = |proof: &&FenceEvidenceObject| node.matches_incarnation(&proof.spec.node);
    match all.iter().any(about) {
        true => all.retain(about),
        false => drop(all.drain(..all.len().saturating_sub(1))),
    }
    all
}

/// Why this evidence is not valid, as far as it is known without a new check of its devices.
fn find_defect(proof: &FenceEvidenceObject, node: &Node, ctx: &ExplainContext<'_>) -> Option<String> {
    match ctx.view.check_evidence(proof, node, ctx.now) {
        Err(defect) => Some(match (&proof.status.invalidated, defect) {
            (Some(invalid), _) => format!("it was withdrawn: {}", invalid.reason),
            (None, EvidenceDefect::OtherIncarnation) => "about an earlier boot of the node".to_owned(),
            (None, defect) => defect.describe().to_owned(),
        }),
        Ok(()) => find_device_doubt(proof, node, ctx),
    }
}

/// The device of this evidence that was checked since and did not report off.
fn find_device_doubt(proof: &FenceEvidenceObject, node: &Node, ctx: &ExplainContext<'_>) -> Option<String> {
    proof.spec.samples.iter().find_map(|sample| {
        let device = ctx.view.device(&sample.device.namespace, &sample.device.name)?;
        let target = device.status.targets.iter().find(|target| target.node == *node.name)?;
        let checked: Timestamp = target.looked.parse().ok()?;
        if target.power.is_off() || timestamp_from(proof.created).is_none_or(|written| checked <= written) {
            return None;
        }
        let ago = format_duration(elapsed(checked, ctx.wall));
        let message = if target.message.is_empty() { String::new() } else { format!(": {}", target.message) };
        Some(format!("{} no longer reports off ({} {ago} ago{message})", sample.device, target.power))
    })
}

fn is_confirmation(proof: &CustomObject<FenceEvidenceSpec>) -> bool {
    proof.spec.kind == FenceEvidenceKind::OperatorConfirmed
}

fn describe(proof: &FenceEvidenceObject, defect: Option<String>) -> String {
    let FenceEvidenceObject { name, spec, .. } = proof;
    let source = match (&spec.reason, spec.kind) {
        (Some(reason), FenceEvidenceKind::OperatorConfirmed) => format!("{}: {reason}", spec.by),
        (_, kind) => format!("{}, found by {}", kind.name(), spec.by),
    };
    let but = defect.map_or(String::new(), |defect| format!(", but {defect}"));
    format!("{name} ({source}){but}")
}

/// Why there is no evidence of a device.
fn describe_devices(node: &Node, ctx: &ExplainContext<'_>) -> String {
    if !ctx.has_read(Kind::FencePolicies) {
        return "FencePolicies were not read".to_owned();
    }
    if let Some(fence) = current_incident(node, ctx) {
        return describe_attempts(fence, ctx.wall);
    }
    if let Some(fence) = open_dry_run(node, ctx) {
        return format!("nothing is switched off, nodefence/{} is a dry run", fence.name);
    }
    let Some(policy) = ctx.view.policy_of(node.labels()) else {
        return "no FencePolicy selects this node".to_owned();
    };
    let devices: Vec<String> =
        policy.spec.levels.iter().flat_map(|level| &level.devices).map(ToString::to_string).collect();
    format!("FencePolicy {} with {}: not begun", policy.name, devices.join(", "))
}

/// The incident of this incarnation of the node. A dry run is no incident.
pub(super) fn current_incident<'a>(node: &Node, ctx: &ExplainContext<'a>) -> Option<&'a NodeFenceObject> {
    let all = fences_of_incarnation(node, ctx).filter(|fence| !fence.spec.dry_run);
    all.min_by_key(|fence| (fence.status.phase.is_over(), fence.name.clone()))
}

/// The dry run that takes the place of the incident: while it is open, nothing is switched off. The dry run of an
/// operator's `drill` does not.
pub(super) fn open_dry_run<'a>(node: &Node, ctx: &ExplainContext<'a>) -> Option<&'a NodeFenceObject> {
    let replaces_incident = |fence: &&NodeFenceObject| {
        fence.spec.dry_run
            && !fence.status.phase.is_over()
            && !fence.deleting
            && *fence.name != *dry_run_name(&fence.spec.node)
    };
    fences_of_incarnation(node, ctx).find(replaces_incident)
}

fn fences_of_incarnation<'a>(node: &Node, ctx: &ExplainContext<'a>) -> impl Iterator<Item = &'a NodeFenceObject> {
    ctx.view.node_fences_of(&node.name).filter(|fence| node.matches_incarnation(&fence.spec.node))
}

fn describe_attempts(fence: &NodeFenceObject, wall: Timestamp) -> String {
    let phase = fence.status.phase;
    let tried = fence.status.attempts.iter().filter(|one| one.act == DesiredPower::Off).count();
    let last = fence.status.attempts.iter().rev().find(|one| one.act == DesiredPower::Off);
    let Some(last) = last else {
        let message = if fence.status.message.is_empty() { "no attempt yet" } else { &fence.status.message };
        return format!("{}: {message}", phase.name());
    };
    let devices: Vec<String> = last.devices.iter().map(ToString::to_string).collect();
    let ago = last.at.parse().ok().map_or(String::new(), |at| format!(" {} ago", format_duration(elapsed(at, wall))));
    let seen = match (&last.verified, &last.outcome) {
        (Some(verified), _) if verified.message.is_empty() => format!("power is {}", verified.power),
        (Some(verified), _) => verified.message.clone(),
        (None, Some(outcome)) => outcome.clone(),
        (None, None) => "in progress".to_owned(),
    };
    let gave_up = if phase == Phase::AwaitingOperator { ", given up" } else { "" };
    format!("{}: {seen} ({tried} tried{gave_up}, the last{ago})", devices.join(" and "))
}

/// The FencePolicy that selects the node.
pub(super) fn policy_for<'a>(node: &Node, ctx: &ExplainContext<'a>) -> Option<&'a FencePolicyObject> {
    ctx.view.policy_of(node.labels())
}
