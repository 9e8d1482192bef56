//! How nodes use volumes, as the cluster shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use pod_safety_shared::cache::{Lookup, UseReport, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Holder, Node, Pod, Readiness, Uid, Volume, VolumeLease};

/// How a node uses a volume.
#[derive(Debug, Default)]
pub(super) struct Use<'a> {
    /// Its kubelet reports the volume as mounted, or the attacher as attached.
    pub(super) writes: bool,
    /// There is a VolumeAttachment.
    pub(super) attachment: bool,
    /// The pods that use it, or will.
    pub(super) pods: Vec<&'a Pod>,
}

/// Whether a Ready node has no more than an attachment of a volume, by its own report: a kubelet reports a volume in
/// use before it uses it.
pub(super) fn is_idle(node: &Node, used: &Use<'_>, volume: Option<&Volume>) -> bool {
    let is_reported = volume.is_some_and(|volume| volume.unique_name.is_some());
    is_reported && node.readiness == Readiness::Ready && used.pods.is_empty() && !node.reports_in_use(volume)
}

/// Whether the node's kubelet reports the volume as mounted, though no pod uses it there and the kubelet did not
/// report the end of such pods: they were force deleted, and their processes may write. A kubelet that terminates a
/// pod normally unmounts its volumes before it removes the pod. After a restart of this process earlier reports are
/// unknown.
pub(super) fn is_left_mounted(volume: Option<&Volume>, name: &str, node: &Node, view: &View<'_>) -> bool {
    let was_reported = || view.last_use(name, &node.name).is_some_and(|last_use| last_use.report != UseReport::None);
    let used = || find_uses(name, volume, view).get(&node.name).is_some_and(|used| !used.pods.is_empty());
    node.reports_in_use(volume) && !was_reported() && !used()
}

/// Whether it is attached to this node, is being attached, or is not yet detached.
pub(super) fn is_attached(volume: &str, node: &str, view: &View<'_>) -> bool {
    view.attachments_of(volume).any(|attachment| *attachment.node == *node)
}

/// Whether the volume of this Lease was detached from the node, which had not released it, and is not attached there.
pub(super) fn has_lost(lease: Option<&VolumeLease>, node: &Node, view: &View<'_>) -> bool {
    let detached = |lease: &VolumeLease| !is_attached(&lease.name, &node.name, view);
    lease.is_some_and(|lease| lease.detach_from.as_ref() == Some(&node.uid) && detached(lease))
}

/// Whether the node's writes cannot reach the volume: it was detached from the node, or its storage is fenced.
pub(super) fn is_kept_out(
    volume: Option<&Volume>,
    lease: Option<&VolumeLease>,
    node: &Node,
    view: &View<'_>,
    now: Mono,
) -> bool {
    has_lost(lease, node, view) || is_fenced_from(volume, node, view, now)
}

/// Whether the storage of the volume accepts no writes from this incarnation of the node, by evidence.
fn is_fenced_from(volume: Option<&Volume>, node: &Node, view: &View<'_>, now: Mono) -> bool {
    let Some(driver) = volume.and_then(|volume| volume.driver.as_ref()) else { return false };
    view.storage_evidence(&Holder::for_node(node, None), driver, now).is_some()
}

/// Whether a node only waits for a volume: a kubelet reports a volume in use before it is attached.
fn is_about_to_mount(node: &Node, used: &Use<'_>) -> bool {
    let starts = !used.pods.is_empty() && used.pods.iter().all(|pod| pod.running_containers == 0);
    node.readiness == Readiness::Ready && !used.attachment && starts
}

/// How each node uses a volume.
pub(super) fn find_uses<'a>(name: &str, volume: Option<&Volume>, view: &View<'a>) -> BTreeMap<Arc<str>, Use<'a>> {
    let mut uses: BTreeMap<Arc<str>, Use<'a>> = BTreeMap::new();
    for attachment in view.attachments_of(name) {
        let used = uses.entry(Arc::clone(&attachment.node)).or_default();
        used.attachment = true;
        used.writes |= attachment.attached;
    }
    for pod in view.pods_using(name).filter(|pod| pod.may_mount_volumes()) {
        if let Some(node) = &pod.node {
            uses.entry(Arc::clone(node)).or_default().pods.push(pod);
        }
    }
    for (node, used) in &mut uses {
        if let Lookup::Known(node) = view.node(node) {
            used.writes |= node.reports_in_use(volume) && !is_about_to_mount(node, used);
        }
    }
    uses
}

/// When the first pod was bound, and its UID.
pub(super) fn first_bound(used: &Use<'_>) -> Option<(i64, Uid)> {
    used.pods.iter().map(|pod| (pod.bound_at, pod.uid().clone())).min()
}

pub(super) fn first_pod(used: &Use<'_>) -> Option<Uid> {
    first_bound(used).map(|(_, uid)| uid)
}

/// Whether the node is proved off, as far as the cache shows.
pub(super) fn is_proved_off(node: &Node, view: &View<'_>, now: Mono) -> bool {
    node.readiness != Readiness::Ready && view.evidence_for(node, now).is_some()
}
