//! Which node or pod holds a volume, and what would free it.

use std::sync::Arc;

use pod_safety_shared::cache::Lookup;
use pod_safety_shared::model::{HELD_LABEL, LeaseHolder, Phase, Pod, Readiness, Uid};
use serde_json::Value;

use super::answer::{Answer, Item, Judgement, Verdict};
use super::context::{Attachment, ExplainContext, object_ref, pod_ref, str_at};
use super::history;
use super::node::explain_node;
use super::pod::explain_pod;

/// A volume and the API objects about it. What could not be read is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// The PersistentVolumeClaim.
    pub claim: Option<Value>,
    /// The PersistentVolume.
    pub volume: Option<Value>,
    /// The pods of the claim's namespace.
    pub pods: Option<Vec<Value>>,
    /// The nodes that hold it, or have pods that use it.
    pub nodes: Vec<Value>,
    /// The volume Lease of volume-guard; `None` where volume-guard does not run.
    pub lease: Option<Value>,
}

impl Volume {
    /// Whether a pod names its claim.
    #[must_use]
    pub fn is_used_by(&self, pod: &Value) -> bool {
        let Some(claim) = &self.claim else { return false };
        let name = str_at(claim, "/metadata/name");
        let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
        volumes.into_iter().flatten().any(|one| {
            let own = || format!("{}-{}", str_at(pod, "/metadata/name"), str_at(one, "/name"));
            str_at(one, "/persistentVolumeClaim/claimName") == name || (!one["ephemeral"].is_null() && own() == name)
        })
    }

    /// The owner of the volume, by its volume Lease.
    fn owner(&self) -> Option<LeaseHolder> {
        let identity = str_at(self.lease.as_ref()?, "/spec/holderIdentity");
        Some(LeaseHolder::parse(identity))
    }

    /// Why no other node may attach it, by its volume Lease. A node that was detached, and does not get the volume
    /// back, blocks no other.
    fn refusal(&self) -> Option<&str> {
        let lease = self.lease.as_ref()?;
        let labels = lease["metadata"]["labels"].as_object()?;
        let held = labels.contains_key(HELD_LABEL) && self.detached_node().is_none();
        held.then(|| str_at(lease, "/metadata/annotations/pod-safety.dev~1hold"))
    }

    /// The node from which it may be detached, or was, by its volume Lease.
    fn detach_from(&self) -> Option<&str> {
        let from = str_at(self.lease.as_ref()?, "/metadata/annotations/pod-safety.dev~1detach-from");
        Some(from).filter(|from| !from.is_empty())
    }

    /// The node that lost the volume by detachment.
    fn detached_node(&self) -> Option<&str> {
        let from = self.detach_from()?;
        match self.owner()? {
            LeaseHolder::By(holder) => Some(from).filter(|from| **from != *holder.node),
            LeaseHolder::Free => Some(from),
            LeaseHolder::Unreadable(_) => None,
        }
    }

    /// The name of the PersistentVolume; empty while there is none.
    #[must_use]
    pub fn volume_name(&self) -> &str {
        match (&self.volume, &self.claim) {
            (Some(volume), _) => str_at(volume, "/metadata/name"),
            (None, Some(claim)) => str_at(claim, "/spec/volumeName"),
            (None, None) => "",
        }
    }
}

fn to_item(attachment: &Attachment) -> Item {
    let Attachment { name, node, attached, deleting, error, hold, .. } = attachment;
    let judged = |state, reason, message: String| Judgement::new(state, reason, message);
    let verdict = match (hold, deleting, attached, error.is_empty()) {
        (Some(why), ..) => judged(Verdict::Blocked, "Held", format!("{node} keeps it: {why}")),
        (None, true, _, false) => judged(Verdict::Blocked, "DetachFailed", error.clone()),
        (None, true, _, true) => judged(Verdict::Waiting, "Detaching", format!("{node} lets it go")),
        (None, false, true, _) => judged(Verdict::Free, "Attached", format!("to {node}")),
        (None, false, false, false) => judged(Verdict::Blocked, "AttachFailed", error.clone()),
        (None, false, false, true) => judged(Verdict::Waiting, "Attaching", format!("to {node}")),
    };
    Item { object: object_ref("volumeattachment", "", name), judgement: verdict }
}

/// What is known of the volume, in the form that the verdict needs.
struct Facts<'a> {
    /// The pods that use it, without those that have terminated.
    users: Vec<&'a Pod>,
    held: Vec<&'a Attachment>,
    /// The nodes whose last report lists it in `volumesInUse`.
    mounted: Vec<String>,
    modes: Vec<String>,
}

impl<'a> Facts<'a> {
    fn collect(volume: &Volume, ctx: &ExplainContext<'a>) -> Self {
        let mut users: Vec<&Pod> = volume
            .pods
            .iter()
            .flatten()
            .filter(|pod| volume.is_used_by(pod))
            .filter_map(|pod| cached_pod(pod, ctx))
            .collect();
        users.retain(|pod| pod.may_mount_volumes());
        users.sort_by_key(|pod| pod.key.clone());
        let name = volume.volume_name();
        let mut held: Vec<&Attachment> =
            ctx.attachments.iter().filter(|one| !name.is_empty() && one.volume == name).collect();
        held.sort_by(|one, other| one.name.cmp(&other.name));
        Self { users, held, mounted: mounting_nodes(volume), modes: access_modes(volume) }
    }

    /// Whether only one node at a time may hold it.
    fn is_exclusive(&self) -> bool {
        !self.modes.is_empty() && self.modes.iter().all(|mode| mode.starts_with("ReadWriteOnce"))
    }

    /// The nodes that hold it: it is attached to them, or they report it in `volumesInUse`.
    fn holders(&self) -> Vec<&str> {
        let attached = self.held.iter().filter(|one| one.attached).map(|one| one.node.as_str());
        let mut all: Vec<&str> = attached.chain(self.mounted.iter().map(String::as_str)).collect();
        all.sort();
        all.dedup();
        all
    }

    fn users_on(&self, node: &str) -> Option<&'a Pod> {
        let on = |pod: &&&Pod| pod.node.as_deref() == Some(node);
        let mut all: Vec<&'a Pod> = self.users.iter().filter(on).copied().collect();
        // A pod that is not being deleted keeps it longest.
        all.sort_by_key(|pod| pod.deletion.is_some());
        all.first().copied()
    }

    /// The pod that needs it on a node that does not hold it, and the node that holds it.
    fn waiting_pod(&self) -> Option<(&'a Pod, &str)> {
        let is_starting = |pod: &&&Pod| pod.phase == Phase::Pending && pod.deletion.is_none();
        self.users.iter().filter(is_starting).find_map(|pod| {
            let on = pod.node.as_deref()?;
            let holder = self.holders().into_iter().find(|holder| *holder != on)?;
            Some((*pod, holder))
        })
    }
}

fn cached_pod<'a>(pod: &Value, ctx: &ExplainContext<'a>) -> Option<&'a Pod> {
    ctx.view.pod(&Uid::new(str_at(pod, "/metadata/uid"))?)
}

/// The nodes that report it as mounted, by the name that the kubelet gives it.
fn mounting_nodes(volume: &Volume) -> Vec<String> {
    let csi = volume.volume.as_ref().and_then(|volume| volume.pointer("/spec/csi"));
    let Some(csi) = csi else { return Vec::new() };
    let name = format!("kubernetes.io/csi/{}^{}", str_at(csi, "/driver"), str_at(csi, "/volumeHandle"));
    let has = |node: &&Value| {
        let in_use = node.pointer("/status/volumesInUse").and_then(Value::as_array);
        in_use.is_some_and(|all| all.iter().any(|one| *one == *name))
    };
    volume.nodes.iter().filter(has).map(|node| str_at(node, "/metadata/name").to_owned()).collect()
}

fn access_modes(volume: &Volume) -> Vec<String> {
    let of = |object: &Option<Value>| object.as_ref().and_then(|one| one["spec"]["accessModes"].as_array().cloned());
    let modes = of(&volume.volume).or_else(|| of(&volume.claim)).unwrap_or_default();
    modes.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Explains a volume.
#[must_use]
pub fn explain_volume(volume: &Volume, ctx: &ExplainContext<'_>) -> Answer {
    let facts = Facts::collect(volume, ctx);
    let mut answer = Answer::new(display_name(volume), judge(volume, &facts, ctx));
    answer.facts = describe(volume, &facts);
    answer.history = history::event_moments(&answer.object, ctx);
    answer.history.sort_by_key(|moment| moment.at);
    answer.items = facts.users.iter().map(|pod| explain_pod(pod, ctx).to_item()).collect();
    answer.items.extend(facts.held.iter().map(|one| to_item(one)));
    for node in facts.holders() {
        answer.items.extend(explain_node(&Arc::from(node), ctx).map(|answer| answer.to_item()));
    }
    add_notes(&mut answer, volume, &facts, ctx);
    add_next_steps(&mut answer, volume, &facts);
    answer
}

/// The name of its claim, because that is what operators know; without a claim its own name.
fn display_name(volume: &Volume) -> String {
    let by =
        |kind: &str, one: &Value| object_ref(kind, str_at(one, "/metadata/namespace"), str_at(one, "/metadata/name"));
    match (&volume.claim, &volume.volume) {
        (Some(claim), _) => by("persistentvolumeclaim", claim),
        (None, Some(volume)) => by("persistentvolume", volume),
        (None, None) => "volume".to_owned(),
    }
}

fn describe(volume: &Volume, facts: &Facts<'_>) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(claim) = &volume.claim {
        let bound = str_at(claim, "/spec/volumeName");
        all.push(if bound.is_empty() { "not bound".to_owned() } else { format!("bound to persistentvolume/{bound}") });
    }
    all.push(facts.modes.join(", "));
    if let Some(volume) = &volume.volume {
        all.push(str_at(volume, "/spec/capacity/storage").to_owned());
        all.push(str_at(volume, "/spec/csi/driver").to_owned());
    }
    match volume.owner() {
        Some(LeaseHolder::By(holder)) => all.push(format!("owned by node {} (boot {})", holder.node, holder.boot_id)),
        Some(LeaseHolder::Free) => all.push("no owner".to_owned()),
        Some(LeaseHolder::Unreadable(_)) | None => {}
    }
    all.retain(|word| !word.is_empty());
    all
}

fn judge(volume: &Volume, facts: &Facts<'_>, ctx: &ExplainContext<'_>) -> Judgement {
    let unbound = volume.claim.as_ref().filter(|claim| str_at(claim, "/status/phase") != "Bound");
    if let Some(claim) = unbound {
        return judge_unbound(claim, ctx);
    }
    if let Some(why) = volume.refusal() {
        return Judgement::new(Verdict::Blocked, "VolumeHeld", format!("{why}."));
    }
    if let Some(LeaseHolder::Unreadable(identity)) = volume.owner() {
        let message = format!(
            "its Lease names the holder {identity:?}, which is not a node and its boot. No node gets the volume until the Lease is deleted."
        );
        return Judgement::new(Verdict::Blocked, "VolumeHeld", message);
    }
    if volume.claim.is_none() {
        return Judgement::new(Verdict::Free, "Unclaimed", "no claim is bound to it, so no pod uses it.");
    }
    if volume.pods.is_none() {
        return Judgement::new(Verdict::Unknown, "NotRead", "which pods use it could not be read.");
    }
    let holders = facts.holders();
    if let ([one, other, ..], true) = (holders.as_slice(), facts.is_exclusive()) {
        let message =
            format!("{one} and {other} hold it at once, although only one node at a time may. Both may write to it.");
        return Judgement::new(Verdict::Blocked, "HeldTwice", message);
    }
    if let (Some((pod, holder)), true) = (facts.waiting_pod(), facts.is_exclusive()) {
        return judge_held_elsewhere(Some(pod), holder, facts, ctx);
    }
    if let Some(verdict) = judge_single_pod(facts) {
        return verdict;
    }
    if let Some(failed) = facts.held.iter().find(|one| one.hold.is_some() || !one.error.is_empty()) {
        return to_item(failed).judgement;
    }
    if !facts.is_exclusive() {
        let message = format!("several nodes may hold it, and {} do.", holders.len());
        return Judgement::new(Verdict::Free, "Shared", message);
    }
    match (holders.first(), facts.users.first()) {
        (Some(holder), _) => judge_held_elsewhere(None, holder, facts, ctx),
        (None, Some(pod)) if pod.deletion.is_some() => judge_user(pod, None, ctx),
        (None, Some(pod)) => {
            Judgement::new(Verdict::Free, "Used", format!("pod {} uses it, and no other pod does.", pod.key))
        }
        (None, None) => Judgement::new(Verdict::Free, "Unused", "no node holds it, and no pod uses it."),
    }
}

fn judge_unbound(claim: &Value, ctx: &ExplainContext<'_>) -> Judgement {
    let object =
        object_ref("persistentvolumeclaim", str_at(claim, "/metadata/namespace"), str_at(claim, "/metadata/name"));
    if str_at(claim, "/status/phase") == "Lost" {
        let message = format!(
            "the PersistentVolume {} that it was bound to does not exist any more: its data may be lost.",
            str_at(claim, "/spec/volumeName")
        );
        return Judgement::new(Verdict::Blocked, "ClaimLost", message);
    }
    let events = ctx.events_of(&object);
    let why = events.last().map_or(String::new(), |event| format!(": {}", event.message));
    Judgement::new(Verdict::Waiting, "Unbound", format!("it has no PersistentVolume yet{why}"))
}

/// A second pod needs a volume that only one pod may use.
fn judge_single_pod(facts: &Facts<'_>) -> Option<Judgement> {
    let one_pod = facts.modes.iter().any(|mode| mode == "ReadWriteOncePod");
    let pending = facts.users.iter().find(|pod| pod.phase == Phase::Pending && pod.node.is_none())?;
    let other = facts.users.iter().find(|pod| pod.uid() != pending.uid() && pod.node.is_some()).filter(|_| one_pod)?;
    let message =
        format!("one pod at a time may use it (ReadWriteOncePod): {} does, and {} waits.", other.key, pending.key);
    Some(Judgement::new(Verdict::Blocked, "OnePodOnly", message))
}

/// A node holds it; `waiting` is the pod that starts on another node and needs it.
fn judge_held_elsewhere(waiting: Option<&Pod>, holder: &str, facts: &Facts<'_>, ctx: &ExplainContext<'_>) -> Judgement {
    let waits = waiting.map_or(String::new(), |pod| format!(" Pod {} waits for it.", pod.key));
    let attachment = facts.held.iter().find(|one| one.node == holder).copied();
    if let Some(why) = attachment.and_then(|one| one.hold.as_ref()) {
        return Judgement::new(Verdict::Blocked, "Held", format!("{holder} keeps it: {why}.{waits}"));
    }
    match facts.users_on(holder) {
        Some(pod) if pod.deletion.is_some() => judge_user(pod, waiting, ctx),
        Some(pod) => {
            let (verdict, reason) =
                if waiting.is_some() { (Verdict::Blocked, "InUse") } else { (Verdict::Free, "Used") };
            let end = if waiting.is_some() { " That pod is not being deleted." } else { "" };
            Judgement::new(verdict, reason, format!("{holder} holds it for pod {}.{end}{waits}", pod.key))
        }
        None => judge_leftover(holder, attachment, !waits.is_empty(), facts, ctx, &waits),
    }
}

/// The deletion of the pod that uses it is requested: what blocks the pod blocks the volume.
fn judge_user(pod: &Pod, waiting: Option<&Pod>, ctx: &ExplainContext<'_>) -> Judgement {
    let waits = waiting.map_or(String::new(), |pod| format!(" Pod {} waits for it.", pod.key));
    let node = pod.node.as_deref().unwrap_or("no node");
    let verdict = explain_pod(pod, ctx).judgement;
    let message = format!("{node} holds it for {}: {}{waits}", pod_ref(pod), verdict.message);
    Judgement { message, ..verdict }
}

/// No pod uses it on the node that holds it.
fn judge_leftover(
    holder: &str,
    attachment: Option<&Attachment>,
    is_needed: bool,
    facts: &Facts<'_>,
    ctx: &ExplainContext<'_>,
    waits: &str,
) -> Judgement {
    if let Some(failed) = attachment.filter(|one| one.deleting && !one.error.is_empty()) {
        let message = format!("{holder} does not release it: {}.{waits}", failed.error.trim_end_matches('.'));
        return Judgement::new(Verdict::Blocked, "DetachFailed", message);
    }
    let mounted = facts.mounted.iter().any(|node| node == holder);
    let unreachable = is_unreachable(holder, ctx);
    match (unreachable, mounted) {
        (true, _) => {
            let verdict = if is_needed { Verdict::Blocked } else { Verdict::Waiting };
            let message = format!(
                "{holder} holds it without a pod, is unreachable, and may still write to it. It is released when that node reports again or is proved off.{waits}"
            );
            Judgement::new(verdict, "NodeUnreachable", message)
        }
        (false, true) => Judgement::new(
            Verdict::Waiting,
            "Unmounting",
            format!(
                "no pod uses it on {holder} any more, but the kubelet there reports that it is still mounted.{waits}"
            ),
        ),
        (false, false) => Judgement::new(
            Verdict::Waiting,
            "Detaching",
            format!("no pod uses it on {holder} any more. The attach-detach controller detaches it.{waits}"),
        ),
    }
}

/// Whether the kubelet of this node does not report, so that it may still write.
fn is_unreachable(node: &str, ctx: &ExplainContext<'_>) -> bool {
    matches!(ctx.view.node(node), Lookup::Known(node) if node.readiness == Readiness::Unknown)
}

fn add_notes(answer: &mut Answer, volume: &Volume, facts: &Facts<'_>, ctx: &ExplainContext<'_>) {
    if let Some(node) = volume.detached_node() {
        answer.notes.push(format!("It was detached from {node}, which had not unmounted it. It is not attached there again while pods that use it are bound to that node."));
    }
    for node in &facts.mounted {
        answer.notes.push(format!("By its last report {node} has it mounted (volumesInUse)."));
    }
    if facts.is_exclusive() && facts.holders().iter().any(|node| is_unreachable(node, ctx)) {
        answer.notes.push("kube-controller-manager detaches it without proof after 6 minutes, unless it runs with --disable-force-detach-on-timeout. pod-safety doctor shows whether it does (ForceDetach).".to_owned());
    }
    if facts.held.is_empty() && !facts.users.is_empty() && facts.is_exclusive() {
        answer.notes.push("No VolumeAttachment is about it: its driver attaches nothing, or they could not be read. Without an attachment, only the termination of a pod keeps a second node from writing.".to_owned());
    }
    let finalizers = volume.claim.as_ref().filter(|claim| !claim["metadata"]["deletionTimestamp"].is_null());
    if finalizers.is_some() {
        answer.notes.push(
            "The claim is being deleted. It stays until no pod uses it (kubernetes.io/pvc-protection).".to_owned(),
        );
    }
}

fn add_next_steps(answer: &mut Answer, volume: &Volume, facts: &Facts<'_>) {
    let claim = volume.claim.as_ref();
    match answer.judgement.reason {
        "VolumeHeld" => {
            let from = volume.detach_from();
            for held in facts.held.iter().filter(|held| from == Some(&held.node)) {
                let what = "Detach the volume from that node, which then cannot write to it";
                answer.add_next_step(what, format!("kubectl delete volumeattachment {}", held.name));
            }
        }
        "Unbound" | "ClaimLost" => {
            let (namespace, name) =
                claim.map_or(("", ""), |one| (str_at(one, "/metadata/namespace"), str_at(one, "/metadata/name")));
            answer.add_next_step(
                "See all Events of this claim",
                format!("kubectl events -n {namespace} --for pvc/{name}"),
            );
        }
        "DetachFailed" | "AttachFailed" | "Held" => {
            let failed = |one: &&&Attachment| one.hold.is_some() || !one.error.is_empty();
            for held in facts.held.iter().filter(failed) {
                answer.add_next_step(
                    "Show the attachment",
                    format!("kubectl get volumeattachment {} -o yaml", held.name),
                );
            }
        }
        _ => {}
    }
    if matches!(answer.judgement.verdict, Verdict::Free) {
        return;
    }
    for pod in facts.users.iter().filter(|pod| pod.node.is_some() && pod.phase != Phase::Pending) {
        let (namespace, name) = (&pod.key.namespace, &pod.key.name);
        answer.add_next_step(
            format!("Find out what blocks pod {name}"),
            format!("pod-safety explain pod -n {namespace} {name}"),
        );
    }
    for node in facts.holders() {
        answer.add_next_step("Show the node that holds it", format!("pod-safety explain node {node}"));
    }
}
