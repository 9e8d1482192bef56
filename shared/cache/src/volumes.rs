//! How volumes are kept: by UID, with an index by the name of the volume.

mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::object::Notify;
use super::table::{Entry, Table};
use super::{Change, Inner};
use crate::clock::Mono;
use crate::model::{Attachment, LeaseHolder, Node, Pod, Uid, Volume, VolumeClaim, VolumeLease};

/// A claim: its namespace and name.
type ClaimKey = (Arc<str>, Arc<str>);

/// How a node's last use of a volume ended, as this process saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastUse {
    /// When the last pod stopped using it, or its attachment was removed.
    pub at: Mono,
    /// The least that the kubelet reported about any pod that used it.
    pub report: UseReport,
}

/// What a kubelet reported about the end of a pod's use of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UseReport {
    /// No report.
    None,
    /// The pod's containers have terminated.
    Terminated,
    /// The volume is unmounted, or all volumes of the pod: after that the kubelet removes the pod.
    Unmounted,
}

impl UseReport {
    /// The report about a pod that used its volumes before the change and does not after it.
    const fn from_pod_change(before: &Pod, after: Option<&Pod>) -> Self {
        match after {
            _ if before.has_terminated() => Self::Unmounted,
            Some(_) => Self::Terminated,
            None => Self::None,
        }
    }
}

/// Pods of one node that were removed before their kubelet reported their termination.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemovedPods {
    /// When their processes have terminated, if the kubelet sees the removal. `None`: unknown, because its worker may
    /// have been busy, or because the kubelet may have just started.
    pub(super) terminates_at: Option<Mono>,
    /// Whether the kubelet was unreachable before its Node was deleted, at each removal. The record of a missing
    /// node's kubelet is dropped with its last pod, so it is copied here.
    pub(super) all_unreachable: bool,
}

/// All state of the volume of one name.
#[derive(Debug, Default)]
struct VolumeEntry {
    volume: Option<Uid>,
    lease: Option<Uid>,
    attachments: BTreeSet<Uid>,
    claims: BTreeSet<ClaimKey>,
    last_uses: BTreeMap<Arc<str>, LastUse>,
    /// By node.
    removed: BTreeMap<Arc<str>, RemovedPods>,
    /// Whether its driver attaches it: an attachment of the volume was seen.
    driver_attaches: bool,
    /// Its last state after its object was removed, while it has a Lease: kubelets continue to report it by that
    /// name.
    last_seen: Option<Box<Volume>>,
}

impl VolumeEntry {
    fn is_empty(&self) -> bool {
        self.volume.is_none() && self.lease.is_none() && self.attachments.is_empty() && self.claims.is_empty()
    }
}

#[derive(Debug, Default)]
struct ClaimEntry {
    claim: Option<Uid>,
    pods: BTreeSet<Uid>,
}

/// PersistentVolumes, claims, attachments and volume Leases.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    pub(super) volumes: Table<Volume>,
    pub(super) claims: Table<VolumeClaim>,
    pub(super) attachments: Table<Attachment>,
    pub(super) leases: Table<VolumeLease>,
    entries: BTreeMap<Arc<str>, VolumeEntry>,
    by_claim: BTreeMap<ClaimKey, ClaimEntry>,
    /// The volumes that a node holds by their Leases.
    held_by: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Pods that have pod-safety's scheduling gate.
    pub(super) gated: BTreeSet<Uid>,
}

impl Volumes {
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.entries.keys()
    }

    pub(super) fn volume(&self, name: &str) -> Option<&Entry<Volume>> {
        self.volumes.get(self.entries.get(name)?.volume.as_ref()?)
    }

    /// The volume, or its last state if its object was removed.
    pub(super) fn volume_or_last_seen(&self, name: &str) -> Option<&Volume> {
        match self.volume(name) {
            Some(Entry::Known(known)) => Some(known),
            Some(Entry::Undecodable(_)) => None,
            None => self.entries.get(name)?.last_seen.as_deref(),
        }
    }

    pub(super) fn lease(&self, name: &str) -> Option<&VolumeLease> {
        self.leases.get_known(self.entries.get(name)?.lease.as_ref()?)
    }

    pub(super) fn attachments_of<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Attachment> + use<'a> {
        let uids = self.entries.get(name).into_iter().flat_map(|entry| &entry.attachments);
        uids.filter_map(|uid| self.attachments.get_known(uid))
    }

    pub(super) fn pods_using<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Uid> + use<'a> {
        let volume = self.volume_or_last_seen(name);
        let claims = self.entries.get(name).into_iter().flat_map(|entry| &entry.claims);
        let entries = claims.filter_map(|key| Some((key, self.by_claim.get(key)?)));
        entries.filter(move |(key, entry)| !is_bound_to_another(volume, key, entry)).flat_map(|(_, entry)| &entry.pods)
    }

    pub(super) fn claim(&self, namespace: &Arc<str>, name: &Arc<str>) -> Option<&Entry<VolumeClaim>> {
        let key = (Arc::clone(namespace), Arc::clone(name));
        self.claims.get(self.by_claim.get(&key)?.claim.as_ref()?)
    }

    pub(super) fn last_use(&self, name: &str, node: &str) -> Option<LastUse> {
        self.entries.get(name)?.last_uses.get(node).copied()
    }

    /// By node.
    pub(super) fn removed(&self, name: &str) -> impl Iterator<Item = (&Arc<str>, &RemovedPods)> {
        self.entries.get(name).into_iter().flat_map(|entry| &entry.removed)
    }

    pub(super) fn driver_attaches(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(|entry| entry.driver_attaches)
    }

    /// The nodes that hold a volume.
    pub(super) fn holders(&self) -> impl Iterator<Item = &Arc<str>> {
        self.held_by.keys()
    }

    pub(super) fn held_by(&self, node: &str) -> impl Iterator<Item = &Arc<str>> {
        self.held_by.get(node).into_iter().flatten()
    }

    /// The volume that a claim names, unless that is bound to another claim.
    pub(super) fn bound_volume(&self, key: &ClaimKey) -> Option<&Arc<str>> {
        let name = self.volume_named_by(key)?;
        let entry = self.by_claim.get(key)?;
        Some(name).filter(|name| !is_bound_to_another(self.volume_or_last_seen(name), key, entry))
    }

    /// The volume that a claim names.
    fn volume_named_by(&self, key: &ClaimKey) -> Option<&Arc<str>> {
        self.claims.get_known(self.by_claim.get(key)?.claim.as_ref()?)?.volume.as_ref()
    }

    fn entry(&mut self, name: &Arc<str>) -> &mut VolumeEntry {
        self.entries.entry(Arc::clone(name)).or_default()
    }

    fn drop_if_empty(&mut self, name: &str) {
        if self.entries.get(name).is_some_and(VolumeEntry::is_empty) {
            self.entries.remove(name);
        }
    }

    fn claim_entry(&mut self, key: &ClaimKey) -> &mut ClaimEntry {
        self.by_claim.entry(key.clone()).or_default()
    }

    fn drop_claim_if_empty(&mut self, key: &ClaimKey) {
        if self.by_claim.get(key).is_some_and(|entry| entry.claim.is_none() && entry.pods.is_empty()) {
            self.by_claim.remove(key);
        }
    }

    /// Records that a use of the volume on this node ended. Of several pods the least report counts.
    fn record_use_ended(&mut self, name: &Arc<str>, node: &Arc<str>, report: UseReport, now: Mono) {
        let last_use = self.entry(name).last_uses.entry(Arc::clone(node)).or_insert(LastUse { at: now, report });
        *last_use = LastUse { at: now, report: report.min(last_use.report) };
    }

    /// Records that the kubelet has unmounted the volume, which counts for every pod that used it.
    fn record_unmounted(&mut self, name: &Arc<str>, node: &Arc<str>, now: Mono) {
        let entry = self.entry(name);
        entry.last_uses.insert(Arc::clone(node), LastUse { at: now, report: UseReport::Unmounted });
        entry.removed.remove(node);
    }
}

/// `false` for an unknown volume.
fn is_bound_to_another(volume: Option<&Volume>, (namespace, name): &ClaimKey, entry: &ClaimEntry) -> bool {
    volume.is_some_and(|volume| volume.is_bound_to_another((namespace, name), entry.claim.as_ref()))
}

fn claims_of(pod: &Pod) -> impl Iterator<Item = ClaimKey> {
    pod.claims.iter().map(|claim| (Arc::clone(&pod.key.namespace), Arc::clone(claim)))
}

impl Inner {
    /// Notifies of a volume, and of the pods that wait for it.
    fn notify_volume(&self, name: &Arc<str>, notify: Notify<'_>) {
        let gated: Vec<Uid> =
            self.volumes.pods_using(name).filter(|uid| self.volumes.gated.contains(*uid)).cloned().collect();
        notify(Change::Volume { name, gated: &gated });
    }

    /// Whether a pod on this node has a claim bound to the volume.
    fn has_pod_using(&self, volume: &str, node: &Arc<str>) -> bool {
        let mut users = self.volumes.pods_using(volume).filter_map(|uid| self.pods.get_known(uid));
        users.any(|pod| pod.node.as_ref() == Some(node))
    }

    /// Notifies of every volume that a node holds.
    pub(super) fn notify_held_volumes(&self, node: Option<&Arc<str>>, notify: Notify<'_>) {
        let held = node.into_iter().flat_map(|node| self.volumes.held_by(node));
        held.for_each(|volume| self.notify_volume(volume, notify));
    }

    /// Updates which volumes a pod uses, and where, after the pod was added, changed or removed.
    pub(super) fn update_pod_volumes(
        &mut self,
        before: Option<&Pod>,
        after: Option<&Pod>,
        now: Mono,
        notify: Notify<'_>,
    ) {
        if !self.volume_guard_enabled {
            return;
        }
        if let Some(before) = before {
            self.volumes.gated.remove(before.uid());
            for key in claims_of(before) {
                self.volumes.claim_entry(&key).pods.remove(before.uid());
            }
        }
        if let Some(after) = after {
            if after.gated {
                self.volumes.gated.insert(after.uid().clone());
            }
            for key in claims_of(after) {
                self.volumes.claim_entry(&key).pods.insert(after.uid().clone());
            }
        }
        let keys: BTreeSet<ClaimKey> = before.into_iter().chain(after).flat_map(claims_of).collect();
        for key in keys {
            if let Some(volume) = self.volumes.bound_volume(&key).cloned() {
                if let Some(before) = before.filter(|before| before.may_mount_volumes())
                    && after.is_none_or(|after| !after.may_mount_volumes())
                    && let Some(node) = &before.node
                {
                    self.volumes.record_use_ended(&volume, node, UseReport::from_pod_change(before, after), now);
                }
                self.notify_volume(&volume, notify);
            }
            self.volumes.drop_claim_if_empty(&key);
        }
    }

    /// Records a removed pod whose processes may run: its kubelet did not report their termination, and there is no
    /// evidence.
    pub(super) fn record_removed_pod(&mut self, pod: &Pod, now: Mono) {
        if !self.volume_guard_enabled {
            return;
        }
        let proved = self.proved_terminated.remove(pod.uid());
        let Some(node) = pod.node.as_ref().filter(|_| !proved && !pod.has_terminated()) else { return };
        let taken_for = |name: &&Arc<str>| {
            let held = self.volumes.lease(name).map(|lease| &lease.holder);
            matches!(held, Some(LeaseHolder::By(holder)) if holder.pod.as_ref() == Some(pod.uid()))
        };
        let taken = self.volumes.held_by(node).filter(taken_for).cloned();
        let used = claims_of(pod).filter_map(|key| self.volumes.bound_volume(&key).cloned());
        let volumes: BTreeSet<Arc<str>> = taken.chain(used).collect();
        let unreachable = self.unreachable_before_node_deleted(node);
        let sees_it = pod.has_answered() || !self.may_have_just_started(pod, node);
        let terminates_at = pod.terminates_at_if_removed(now).filter(|_| sees_it);
        for name in volumes {
            let removed = &mut self.volumes.entry(&name).removed;
            let new = RemovedPods { terminates_at, all_unreachable: unreachable };
            let all = removed.entry(Arc::clone(node)).or_insert(new);
            let latest = all.terminates_at.zip(terminates_at).map(|(earlier, end)| earlier.max(end));
            *all = RemovedPods { terminates_at: latest, all_unreachable: all.all_unreachable && unreachable };
        }
    }

    /// Handles an added, changed or removed node: notifies once of each volume that it holds or that its pods use,
    /// and records what it has unmounted.
    pub(super) fn update_node_volumes(
        &mut self,
        before: Option<&Node>,
        after: Option<&Node>,
        now: Mono,
        notify: Notify<'_>,
    ) {
        if !self.volume_guard_enabled {
            return;
        }
        let Some(name) = after.or(before).map(|node| Arc::clone(&node.name)) else { return };
        let held: BTreeSet<Arc<str>> = self.volumes.held_by(&name).cloned().collect();
        let pods = self.pod_index.on_node(&name).filter_map(|uid| self.pods.get_known(uid));
        let used = pods.flat_map(claims_of).filter_map(|key| self.volumes.bound_volume(&key).cloned());
        let used: BTreeSet<Arc<str>> = used.filter(|volume| !held.contains(volume)).collect();
        used.iter().for_each(|volume| self.notify_volume(volume, notify));
        for volume in held {
            let known = self.volumes.volume_or_last_seen(&volume);
            let mounted = before.is_some_and(|node| node.reports_in_use(known));
            if mounted && after.is_some_and(|node| !node.reports_in_use(known)) {
                self.volumes.record_unmounted(&volume, &name, now);
            }
            self.notify_volume(&volume, notify);
        }
    }

    /// Updates the volume of a claim, and notifies of both volumes and of the gated pods.
    fn update_claim_volume(
        &mut self,
        key: &ClaimKey,
        before: Option<Arc<str>>,
        after: Option<Arc<str>>,
        notify: Notify<'_>,
    ) {
        if before != after {
            if let Some(before) = &before {
                self.volumes.entry(before).claims.remove(key);
            }
            if let Some(after) = &after {
                self.volumes.entry(after).claims.insert(key.clone());
            }
        }
        for volume in before.iter().chain(after.iter().filter(|after| Some(*after) != before.as_ref())) {
            self.notify_volume(volume, notify);
            self.volumes.drop_if_empty(volume);
        }
        // Pods that wait for a claim without a volume are in no volume's entry.
        let waiting: Vec<Uid> =
            self.volumes.by_claim.get(key).into_iter().flat_map(|entry| &entry.pods).cloned().collect();
        for pod in waiting.iter().filter_map(|uid| self.pods.get_known(uid)).filter(|pod| pod.gated) {
            notify(Change::Pod { before: Some(pod), after: Some(pod) });
        }
        self.volumes.drop_claim_if_empty(key);
    }
}
