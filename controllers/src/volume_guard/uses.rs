//! What nodes do with volumes, as the cluster shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::model::{Holder, Node, Pod, Readiness, Volume, VolumeLease};

/// What a node does with a volume.
#[derive(Debug, Default)]
pub(super) struct Use<'a> {
    /// Its kubelet says that it is mounted, or the attacher that it is attached.
    pub(super) writes: bool,
    /// An attachment is wanted.
    pub(super) attachment: bool,
    /// The pods that use it, or will.
    pub(super) pods: Vec<&'a Pod>,
}

/// Whether a node that is heard has no more of a volume than an attachment, by its own word: a kubelet says what it
/// uses before it does.
pub(super) fn is_idle(node: &Node, used: &Use<'_>, volume: Option<&Volume>) -> bool {
    let says = volume.is_some_and(|volume| volume.unique_name.is_some());
    says && node.readiness == Readiness::Ready && used.pods.is_empty() && !node.mounts(volume)
}

/// Whether the volume of this Lease was detached from the node, which had not given it back, and is not attached there.
pub(super) fn lost_it(lease: Option<&VolumeLease>, node: &Node, view: &View<'_>) -> bool {
    lease.is_some_and(|lease| {
        lease.detach_from.as_ref() == Some(&node.uid)
            && view.attachments_of(&lease.name).all(|attachment| attachment.node != node.name)
    })
}

/// Whether the storage of the volume takes nothing from this life of the node, by evidence.
pub(super) fn is_fenced_from(volume: Option<&Volume>, node: &Node, view: &View<'_>) -> bool {
    let Some(driver) = volume.and_then(|volume| volume.driver.as_ref()) else { return false };
    view.storage_proof(&Holder::of(node, None), driver).is_some()
}

/// Whether a node only waits for a volume: a kubelet says that it uses one before that is attached.
fn is_about_to(node: &Node, used: &Use<'_>) -> bool {
    let starts = !used.pods.is_empty() && used.pods.iter().all(|pod| !pod.running);
    node.readiness == Readiness::Ready && !used.attachment && starts
}

/// What each node does with a volume.
pub(super) fn uses<'a>(name: &str, volume: Option<&Volume>, view: &View<'a>) -> BTreeMap<Arc<str>, Use<'a>> {
    let mut uses: BTreeMap<Arc<str>, Use<'a>> = BTreeMap::new();
    for attachment in view.attachments_of(name) {
        let used = uses.entry(Arc::clone(&attachment.node)).or_default();
        used.attachment = true;
        used.writes |= attachment.attached;
    }
    for pod in view.users_of(name).filter(|pod| !pod.is_over()) {
        if let Some(node) = &pod.node {
            uses.entry(Arc::clone(node)).or_default().pods.push(pod);
        }
    }
    for (node, used) in &mut uses {
        if let Lookup::Known(node) = view.node(node) {
            used.writes |= node.mounts(volume) && !is_about_to(node, used);
        }
    }
    uses
}
