//! Who holds a volume, and what would free it.

use std::sync::Arc;

use pod_safety_shared::cache::Lookup;
use pod_safety_shared::model::{HELD_LABEL, Held, Phase, Pod, Readiness, Uid};
use serde_json::Value;

use super::answer::{Answer, Item, Judgement, Standing};
use super::history;
use super::node::explain_node;
use super::pod::explain_pod;
use super::scene::{Attachment, Scene, object, pod_object, text};

/// A volume and all that is about it, as the API has it. What nobody could read is not there.
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
    /// Whose it is, as the volume guard wrote down; none where it does not run.
    pub lease: Option<Value>,
}

impl Volume {
    /// Whether a pod names its claim.
    #[must_use]
    pub fn is_used_by(&self, pod: &Value) -> bool {
        let Some(claim) = &self.claim else { return false };
        let name = text(claim, "/metadata/name");
        let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
        volumes.into_iter().flatten().any(|one| {
            let own = || format!("{}-{}", text(pod, "/metadata/name"), text(one, "/name"));
            text(one, "/persistentVolumeClaim/claimName") == name
                || (!one["ephemeral"].is_null() && own() == name)
        })
    }

    /// Whose it is, by the guard's Lease.
    fn owner(&self) -> Option<Held> {
        let identity = text(self.lease.as_ref()?, "/spec/holderIdentity");
        Some(Held::parse(identity))
    }

    /// Why nobody else may attach it, by the guard's Lease. Who lost it, and does not get it back, keeps nobody waiting.
    fn refused(&self) -> Option<&str> {
        let lease = self.lease.as_ref()?;
        let labels = lease["metadata"]["labels"].as_object()?;
        let held = labels.contains_key(HELD_LABEL) && self.lost_by().is_none();
        held.then(|| text(lease, "/metadata/annotations/pod-safety.dev~1hold"))
    }

    /// The node from which it may be detached, or was, by the guard's Lease.
    fn detach_from(&self) -> Option<&str> {
        let from = text(self.lease.as_ref()?, "/metadata/annotations/pod-safety.dev~1detach-from");
        Some(from).filter(|from| !from.is_empty())
    }

    /// The node that lost it by being detached.
    fn lost_by(&self) -> Option<&str> {
        let from = self.detach_from()?;
        match self.owner()? {
            Held::By(holder) => Some(from).filter(|from| **from != *holder.node),
            Held::Free => Some(from),
            Held::Unreadable(_) => None,
        }
    }

    /// The name of the PersistentVolume; empty while there is none.
    #[must_use]
    pub fn name(&self) -> &str {
        match (&self.volume, &self.claim) {
            (Some(volume), _) => text(volume, "/metadata/name"),
            (None, Some(claim)) => text(claim, "/spec/volumeName"),
            (None, None) => "",
        }
    }
}

fn item(attachment: &Attachment) -> Item {
    let Attachment { name, node, attached, ends, error, hold, .. } = attachment;
    let judged = |standing, reason, message: String| Judgement::new(standing, reason, message);
    let verdict = match (hold, ends, attached, error.is_empty()) {
        (Some(why), ..) => judged(Standing::Blocked, "Held", format!("{node} keeps it: {why}")),
        (None, true, _, false) => judged(Standing::Blocked, "DetachFailed", error.clone()),
        (None, true, _, true) => judged(Standing::Waiting, "Detaching", format!("{node} lets it go")),
        (None, false, true, _) => judged(Standing::Free, "Attached", format!("to {node}")),
        (None, false, false, false) => judged(Standing::Blocked, "AttachFailed", error.clone()),
        (None, false, false, true) => judged(Standing::Waiting, "Attaching", format!("to {node}")),
    };
    Item { object: object("volumeattachment", "", name), verdict }
}

/// What is known of it, in the shape that the verdict asks for.
struct Facts<'a> {
    /// The pods that use it, those that ended left out.
    users: Vec<&'a Pod>,
    held: Vec<&'a Attachment>,
    /// The nodes whose last report has it mounted.
    mounted: Vec<String>,
    modes: Vec<String>,
}

impl<'a> Facts<'a> {
    fn of(volume: &Volume, scene: &Scene<'a>) -> Self {
        let mut users: Vec<&Pod> = volume
            .pods
            .iter()
            .flatten()
            .filter(|pod| volume.is_used_by(pod))
            .filter_map(|pod| known(pod, scene))
            .collect();
        users.retain(|pod| pod.has_volumes());
        users.sort_by_key(|pod| pod.key.clone());
        let name = volume.name();
        let mut held: Vec<&Attachment> =
            scene.attachments.iter().filter(|one| !name.is_empty() && one.volume == name).collect();
        held.sort_by(|one, other| one.name.cmp(&other.name));
        Self { users, held, mounted: mounted(volume), modes: modes(volume) }
    }

    /// One node at a time may hold it.
    fn is_exclusive(&self) -> bool {
        !self.modes.is_empty() && self.modes.iter().all(|mode| mode.starts_with("ReadWriteOnce"))
    }

    /// The nodes that hold it: attached, or mounted by their own word.
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
        // Who was not asked to end keeps it longest.
        all.sort_by_key(|pod| pod.deletion.is_some());
        all.first().copied()
    }

    /// The pod that wants it on a node that does not hold it, and who holds it.
    fn wanted(&self) -> Option<(&'a Pod, &str)> {
        let begins = |pod: &&&Pod| pod.phase == Phase::Pending && pod.deletion.is_none();
        self.users.iter().filter(begins).find_map(|pod| {
            let on = pod.node.as_deref()?;
            let holder = self.holders().into_iter().find(|holder| *holder != on)?;
            Some((*pod, holder))
        })
    }
}

fn known<'a>(pod: &Value, scene: &Scene<'a>) -> Option<&'a Pod> {
    scene.view.pod(&Uid::new(text(pod, "/metadata/uid"))?)
}

/// The nodes that report it as mounted, by the name that the kubelet gives it.
fn mounted(volume: &Volume) -> Vec<String> {
    let csi = volume.volume.as_ref().and_then(|volume| volume.pointer("/spec/csi"));
    let Some(csi) = csi else { return Vec::new() };
    let name = format!("kubernetes.io/csi/{}^{}", text(csi, "/driver"), text(csi, "/volumeHandle"));
    let has = |node: &&Value| {
        let in_use = node.pointer("/status/volumesInUse").and_then(Value::as_array);
        in_use.is_some_and(|all| all.iter().any(|one| *one == *name))
    };
    volume.nodes.iter().filter(has).map(|node| text(node, "/metadata/name").to_owned()).collect()
}

fn modes(volume: &Volume) -> Vec<String> {
    let of = |object: &Option<Value>| {
        object.as_ref().and_then(|one| one["spec"]["accessModes"].as_array().cloned())
    };
    let modes = of(&volume.volume).or_else(|| of(&volume.claim)).unwrap_or_default();
    modes.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Answers for a volume.
#[must_use]
pub fn explain_volume(volume: &Volume, scene: &Scene<'_>) -> Answer {
    let facts = Facts::of(volume, scene);
    let mut answer = Answer::new(named(volume), verdict(volume, &facts, scene));
    answer.facts = words(volume, &facts);
    answer.history = history::said(&answer.object, scene);
    answer.history.sort_by_key(|moment| moment.at);
    answer.items = facts.users.iter().map(|pod| explain_pod(pod, scene).item()).collect();
    answer.items.extend(facts.held.iter().map(|one| item(one)));
    for node in facts.holders() {
        answer.items.extend(explain_node(&Arc::from(node), scene).map(|answer| answer.item()));
    }
    notes(&mut answer, volume, &facts, scene);
    next(&mut answer, volume, &facts);
    answer
}

/// By its claim, for that is what people know; without one by its own name.
fn named(volume: &Volume) -> String {
    let by =
        |kind: &str, one: &Value| object(kind, text(one, "/metadata/namespace"), text(one, "/metadata/name"));
    match (&volume.claim, &volume.volume) {
        (Some(claim), _) => by("persistentvolumeclaim", claim),
        (None, Some(volume)) => by("persistentvolume", volume),
        (None, None) => "volume".to_owned(),
    }
}

fn words(volume: &Volume, facts: &Facts<'_>) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(claim) = &volume.claim {
        let bound = text(claim, "/spec/volumeName");
        all.push(if bound.is_empty() {
            "not bound".to_owned()
        } else {
            format!("bound to persistentvolume/{bound}")
        });
    }
    all.push(facts.modes.join(", "));
    if let Some(volume) = &volume.volume {
        all.push(text(volume, "/spec/capacity/storage").to_owned());
        all.push(text(volume, "/spec/csi/driver").to_owned());
    }
    match volume.owner() {
        Some(Held::By(holder)) => {
            all.push(format!("owned by node {} (boot {})", holder.node, holder.boot_id))
        }
        Some(Held::Free) => all.push("no owner".to_owned()),
        Some(Held::Unreadable(_)) | None => {}
    }
    all.retain(|word| !word.is_empty());
    all
}

fn verdict(volume: &Volume, facts: &Facts<'_>, scene: &Scene<'_>) -> Judgement {
    let unbound = volume.claim.as_ref().filter(|claim| text(claim, "/status/phase") != "Bound");
    if let Some(claim) = unbound {
        return not_bound(claim, scene);
    }
    if let Some(why) = volume.refused() {
        return Judgement::new(Standing::Blocked, "VolumeHeld", format!("{why}."));
    }
    if let Some(Held::Unreadable(identity)) = volume.owner() {
        let message = format!(
            "its Lease names the holder {identity:?}, which is not a node and its boot. No node gets the volume until the Lease is deleted."
        );
        return Judgement::new(Standing::Blocked, "VolumeHeld", message);
    }
    if volume.claim.is_none() {
        return Judgement::new(Standing::Free, "Unclaimed", "no claim is bound to it, so no pod uses it.");
    }
    if volume.pods.is_none() {
        return Judgement::new(Standing::Unknown, "NotRead", "which pods use it could not be read.");
    }
    let holders = facts.holders();
    if let ([one, other, ..], true) = (holders.as_slice(), facts.is_exclusive()) {
        let message = format!(
            "{one} and {other} hold it at once, although only one node at a time may. Both may write to it."
        );
        return Judgement::new(Standing::Blocked, "HeldTwice", message);
    }
    if let (Some((pod, holder)), true) = (facts.wanted(), facts.is_exclusive()) {
        return kept_from(Some(pod), holder, facts, scene);
    }
    if let Some(verdict) = one_pod_only(facts) {
        return verdict;
    }
    if let Some(failed) = facts.held.iter().find(|one| one.hold.is_some() || !one.error.is_empty()) {
        return item(failed).verdict;
    }
    if !facts.is_exclusive() {
        let message = format!("several nodes may hold it, and {} do.", holders.len());
        return Judgement::new(Standing::Free, "Shared", message);
    }
    match (holders.first(), facts.users.first()) {
        (Some(holder), _) => kept_from(None, holder, facts, scene),
        (None, Some(pod)) if pod.deletion.is_some() => of_user(pod, None, scene),
        (None, Some(pod)) => {
            Judgement::new(Standing::Free, "Used", format!("pod {} uses it, and no other pod does.", pod.key))
        }
        (None, None) => Judgement::new(Standing::Free, "Unused", "no node holds it, and no pod uses it."),
    }
}

fn not_bound(claim: &Value, scene: &Scene<'_>) -> Judgement {
    let object =
        object("persistentvolumeclaim", text(claim, "/metadata/namespace"), text(claim, "/metadata/name"));
    if text(claim, "/status/phase") == "Lost" {
        let message = format!(
            "the PersistentVolume {} that it was bound to does not exist any more: its data may be lost.",
            text(claim, "/spec/volumeName")
        );
        return Judgement::new(Standing::Blocked, "ClaimLost", message);
    }
    let said = scene.said_of(&object);
    let why = said.last().map_or(String::new(), |said| format!(": {}", said.message));
    Judgement::new(Standing::Waiting, "Unbound", format!("it has no PersistentVolume yet{why}"))
}

/// A second pod wants what one pod may have.
fn one_pod_only(facts: &Facts<'_>) -> Option<Judgement> {
    let one_pod = facts.modes.iter().any(|mode| mode == "ReadWriteOncePod");
    let begins = facts.users.iter().find(|pod| pod.phase == Phase::Pending && pod.node.is_none())?;
    let other = facts.users.iter().find(|pod| pod.uid() != begins.uid()).filter(|_| one_pod)?;
    let message = format!(
        "one pod at a time may use it (ReadWriteOncePod): {} does, and {} waits.",
        other.key, begins.key
    );
    Some(Judgement::new(Standing::Blocked, "OnePodOnly", message))
}

/// A node holds it; `wants` is the pod that begins elsewhere and needs it.
fn kept_from(wants: Option<&Pod>, holder: &str, facts: &Facts<'_>, scene: &Scene<'_>) -> Judgement {
    let waits = wants.map_or(String::new(), |pod| format!(" Pod {} waits for it.", pod.key));
    let attachment = facts.held.iter().find(|one| one.node == holder).copied();
    if let Some(why) = attachment.and_then(|one| one.hold.as_ref()) {
        return Judgement::new(Standing::Blocked, "Held", format!("{holder} keeps it: {why}.{waits}"));
    }
    match facts.users_on(holder) {
        Some(pod) if pod.deletion.is_some() => of_user(pod, wants, scene),
        Some(pod) => {
            let (standing, reason) =
                if wants.is_some() { (Standing::Blocked, "InUse") } else { (Standing::Free, "Used") };
            let end = if wants.is_some() { " That pod is not being deleted." } else { "" };
            Judgement::new(standing, reason, format!("{holder} holds it for pod {}.{end}{waits}", pod.key))
        }
        None => left_behind(holder, attachment, !waits.is_empty(), facts, scene, &waits),
    }
}

/// The pod that has it was asked to end: what keeps the pod keeps the volume.
fn of_user(pod: &Pod, wants: Option<&Pod>, scene: &Scene<'_>) -> Judgement {
    let waits = wants.map_or(String::new(), |pod| format!(" Pod {} waits for it.", pod.key));
    let node = pod.node.as_deref().unwrap_or("no node");
    let verdict = explain_pod(pod, scene).verdict;
    let message = format!("{node} holds it for {}: {}{waits}", pod_object(pod), verdict.message);
    Judgement { message, ..verdict }
}

/// No pod uses it on the node that holds it.
fn left_behind(
    holder: &str,
    attachment: Option<&Attachment>,
    is_wanted: bool,
    facts: &Facts<'_>,
    scene: &Scene<'_>,
    waits: &str,
) -> Judgement {
    if let Some(failed) = attachment.filter(|one| one.ends && !one.error.is_empty()) {
        let message = format!("{holder} does not release it: {}.{waits}", failed.error.trim_end_matches('.'));
        return Judgement::new(Standing::Blocked, "DetachFailed", message);
    }
    let mounted = facts.mounted.iter().any(|node| node == holder);
    let silent = is_silent(holder, scene);
    match (silent, mounted) {
        (true, _) => {
            let standing = if is_wanted { Standing::Blocked } else { Standing::Waiting };
            let message = format!(
                "{holder} holds it without a pod, is unreachable, and may still write to it. It is released when that node reports again or is proved off.{waits}"
            );
            Judgement::new(standing, "NodeUnreachable", message)
        }
        (false, true) => Judgement::new(
            Standing::Waiting,
            "Unmounting",
            format!(
                "no pod uses it on {holder} any more, but the kubelet there reports that it is still mounted.{waits}"
            ),
        ),
        (false, false) => Judgement::new(
            Standing::Waiting,
            "Detaching",
            format!("no pod uses it on {holder} any more. The attach-detach controller detaches it.{waits}"),
        ),
    }
}

/// Whether the kubelet of this node is not heard, so that it may still write.
fn is_silent(node: &str, scene: &Scene<'_>) -> bool {
    matches!(scene.view.node(node), Lookup::Known(node) if node.readiness == Readiness::Unknown)
}

fn notes(answer: &mut Answer, volume: &Volume, facts: &Facts<'_>, scene: &Scene<'_>) {
    if let Some(node) = volume.lost_by() {
        answer.notes.push(format!("It was detached from {node}, which had not unmounted it. It is not attached there again while pods that use it are bound to that node."));
    }
    for node in &facts.mounted {
        answer.notes.push(format!("By its last report {node} has it mounted (volumesInUse)."));
    }
    if facts.is_exclusive() && facts.holders().iter().any(|node| is_silent(node, scene)) {
        answer.notes.push("kube-controller-manager detaches it without proof after 6 minutes, unless it runs with --disable-force-detach-on-timeout. pod-safety doctor shows whether it does (ForceDetach).".to_owned());
    }
    if facts.held.is_empty() && !facts.users.is_empty() && facts.is_exclusive() {
        answer.notes.push("No VolumeAttachment is about it: its driver attaches nothing, or they could not be read. Without an attachment, only the termination of a pod keeps a second node from writing.".to_owned());
    }
    let finalizers = volume.claim.as_ref().filter(|claim| !claim["metadata"]["deletionTimestamp"].is_null());
    if finalizers.is_some() {
        answer.notes.push(
            "The claim is being deleted. It stays until no pod uses it (kubernetes.io/pvc-protection)."
                .to_owned(),
        );
    }
}

fn next(answer: &mut Answer, volume: &Volume, facts: &Facts<'_>) {
    let claim = volume.claim.as_ref();
    match answer.verdict.reason {
        "VolumeHeld" => {
            let from = volume.detach_from();
            for held in facts.held.iter().filter(|held| from == Some(&held.node)) {
                let what = "Detach the volume from that node, which then cannot write to it";
                answer.next(what, format!("kubectl delete volumeattachment {}", held.name));
            }
        }
        "Unbound" | "ClaimLost" => {
            let (namespace, name) =
                claim.map_or(("", ""), |one| (text(one, "/metadata/namespace"), text(one, "/metadata/name")));
            answer.next(
                "See all Events of this claim",
                format!("kubectl events -n {namespace} --for pvc/{name}"),
            );
        }
        "DetachFailed" | "AttachFailed" | "Held" => {
            let failed = |one: &&&Attachment| one.hold.is_some() || !one.error.is_empty();
            for held in facts.held.iter().filter(failed) {
                answer.next(
                    "Show the attachment",
                    format!("kubectl get volumeattachment {} -o yaml", held.name),
                );
            }
        }
        _ => {}
    }
    if matches!(answer.verdict.standing, Standing::Free) {
        return;
    }
    for pod in facts.users.iter().filter(|pod| pod.node.is_some() && pod.phase != Phase::Pending) {
        let (namespace, name) = (&pod.key.namespace, &pod.key.name);
        answer.next(
            format!("Find out what blocks pod {name}"),
            format!("pod-safety explain pod -n {namespace} {name}"),
        );
    }
    for node in facts.holders() {
        answer.next("Show the node that holds it", format!("pod-safety explain node {node}"));
    }
}
