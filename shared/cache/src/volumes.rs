//! How volumes are kept: by UID, and everything about one of them under its name.

mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::object::Tell;
use super::table::{Entry, Table};
use super::{Change, Inner};
use crate::clock::Mono;
use crate::model::{Attachment, Held, Node, Pod, Uid, Volume, VolumeClaim, VolumeLease};

/// A claim: its namespace and name.
type ClaimKey = (Arc<str>, Arc<str>);

/// That a node's last use of a volume ended, as this process saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// When the last of it went.
    pub at: Mono,
    /// What its kubelet said of each that used it.
    pub word: Word,
}

/// What a kubelet said of the end of a pod's use of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// Nothing.
    None,
    /// That its containers have ended.
    Ended,
    /// That it has unmounted the volume, or all of the pod's: then it removes the pod.
    Unmounted,
}

impl Word {
    /// Its kubelet's word of a pod that used its volumes before, and does not any more.
    const fn of(before: &Pod, after: Option<&Pod>) -> Self {
        match after {
            _ if before.is_over() => Self::Unmounted,
            Some(_) => Self::Ended,
            None => Self::None,
        }
    }
}

/// Pods of one node that were removed before their kubelet reported their end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Removed {
    /// When their processes have terminated, if the kubelet sees the removal. `None`: not known, for its worker may have been busy.
    pub(super) end: Option<Mono>,
    /// Whether the kubelet had fallen silent before its Node went, each time. What is known of a missing node is forgotten with its last
    /// pod.
    pub(super) in_silence: bool,
}

/// Everything about the volume of one name.
#[derive(Debug, Default)]
struct File {
    volume: Option<Uid>,
    lease: Option<Uid>,
    attachments: BTreeSet<Uid>,
    claims: BTreeSet<ClaimKey>,
    left: BTreeMap<Arc<str>, Left>,
    /// By node.
    removed: BTreeMap<Arc<str>, Removed>,
    /// Its driver attaches: an attachment of it was seen.
    attaches: bool,
    /// As it was when its object went, while it has a Lease: kubelets go on to report it by that name.
    was: Option<Box<Volume>>,
}

impl File {
    fn is_empty(&self) -> bool {
        self.volume.is_none() && self.lease.is_none() && self.attachments.is_empty() && self.claims.is_empty()
    }
}

#[derive(Debug, Default)]
struct ClaimFile {
    claim: Option<Uid>,
    pods: BTreeSet<Uid>,
}

/// Volumes, claims, attachments and owners.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    pub(super) volumes: Table<Volume>,
    pub(super) claims: Table<VolumeClaim>,
    pub(super) attachments: Table<Attachment>,
    pub(super) leases: Table<VolumeLease>,
    files: BTreeMap<Arc<str>, File>,
    by_claim: BTreeMap<ClaimKey, ClaimFile>,
    /// The volumes that a node holds by their Leases.
    held_by: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Pods that bear our gate.
    pub(super) gated: BTreeSet<Uid>,
}

impl Volumes {
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.files.keys()
    }

    pub(super) fn volume(&self, name: &str) -> Option<&Entry<Volume>> {
        self.volumes.get(self.files.get(name)?.volume.as_ref()?)
    }

    /// The volume, or as it was when its object went.
    pub(super) fn known(&self, name: &str) -> Option<&Volume> {
        match self.volume(name) {
            Some(Entry::Known(known)) => Some(known),
            Some(Entry::Undecodable(_)) => None,
            None => self.files.get(name)?.was.as_deref(),
        }
    }

    pub(super) fn lease(&self, name: &str) -> Option<&VolumeLease> {
        self.leases.known(self.files.get(name)?.lease.as_ref()?)
    }

    pub(super) fn attachments_of<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Attachment> + use<'a> {
        let uids = self.files.get(name).into_iter().flat_map(|file| &file.attachments);
        uids.filter_map(|uid| self.attachments.known(uid))
    }

    pub(super) fn users_of<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Uid> + use<'a> {
        let volume = self.known(name);
        let claims = self.files.get(name).into_iter().flat_map(|file| &file.claims);
        let files = claims.filter_map(|key| Some((key, self.by_claim.get(key)?)));
        files.filter(move |(key, file)| !is_of_another(volume, key, file)).flat_map(|(_, file)| &file.pods)
    }

    pub(super) fn claim(&self, namespace: &Arc<str>, name: &Arc<str>) -> Option<&Entry<VolumeClaim>> {
        let key = (Arc::clone(namespace), Arc::clone(name));
        self.claims.get(self.by_claim.get(&key)?.claim.as_ref()?)
    }

    pub(super) fn left(&self, name: &str, node: &str) -> Option<Left> {
        self.files.get(name)?.left.get(node).copied()
    }

    /// By node.
    pub(super) fn removed(&self, name: &str) -> impl Iterator<Item = (&Arc<str>, &Removed)> {
        self.files.get(name).into_iter().flat_map(|file| &file.removed)
    }

    pub(super) fn attaches(&self, name: &str) -> bool {
        self.files.get(name).is_some_and(|file| file.attaches)
    }

    /// The nodes that hold a volume.
    pub(super) fn holders(&self) -> impl Iterator<Item = &Arc<str>> {
        self.held_by.keys()
    }

    pub(super) fn held_by(&self, node: &str) -> impl Iterator<Item = &Arc<str>> {
        self.held_by.get(node).into_iter().flatten()
    }

    /// The volume that a claim names, unless it is another claim's.
    pub(super) fn bound(&self, key: &ClaimKey) -> Option<&Arc<str>> {
        let name = self.named_by(key)?;
        let file = self.by_claim.get(key)?;
        Some(name).filter(|name| !is_of_another(self.known(name), key, file))
    }

    /// The volume that a claim names.
    fn named_by(&self, key: &ClaimKey) -> Option<&Arc<str>> {
        self.claims.known(self.by_claim.get(key)?.claim.as_ref()?)?.volume.as_ref()
    }

    fn file(&mut self, name: &Arc<str>) -> &mut File {
        self.files.entry(Arc::clone(name)).or_default()
    }

    fn tidy(&mut self, name: &str) {
        if self.files.get(name).is_some_and(File::is_empty) {
            self.files.remove(name);
        }
    }

    fn claim_file(&mut self, key: &ClaimKey) -> &mut ClaimFile {
        self.by_claim.entry(key.clone()).or_default()
    }

    fn tidy_claim(&mut self, key: &ClaimKey) {
        if self.by_claim.get(key).is_some_and(|file| file.claim.is_none() && file.pods.is_empty()) {
            self.by_claim.remove(key);
        }
    }

    /// A use of the volume on this node ended. Of several pods the least that was said counts.
    fn leaves(&mut self, name: &Arc<str>, node: &Arc<str>, word: Word, now: Mono) {
        let left = self.file(name).left.entry(Arc::clone(node)).or_insert(Left { at: now, word });
        *left = Left { at: now, word: word.min(left.word) };
    }

    /// The kubelet has unmounted it: that is its word for whatever used it.
    fn unmounted(&mut self, name: &Arc<str>, node: &Arc<str>, now: Mono) {
        let file = self.file(name);
        file.left.insert(Arc::clone(node), Left { at: now, word: Word::Unmounted });
        file.removed.remove(node);
    }
}

/// `false` for a volume that is not known.
fn is_of_another(volume: Option<&Volume>, (namespace, name): &ClaimKey, file: &ClaimFile) -> bool {
    volume.is_some_and(|volume| volume.is_of_another((namespace, name), file.claim.as_ref()))
}

fn claims_of(pod: &Pod) -> impl Iterator<Item = ClaimKey> {
    pod.claims.iter().map(|claim| (Arc::clone(&pod.key.namespace), Arc::clone(claim)))
}

impl Inner {
    /// Tells of a volume, and of the pods that wait for it.
    fn tell_of_volume(&self, name: &Arc<str>, tell: Tell<'_>) {
        let gated: Vec<Uid> =
            self.volumes.users_of(name).filter(|uid| self.volumes.gated.contains(*uid)).cloned().collect();
        tell(Change::Volume { name, gated: &gated });
    }

    /// Whether a pod on this node has a claim to the volume.
    fn uses(&self, volume: &str, node: &Arc<str>) -> bool {
        let mut users = self.volumes.users_of(volume).filter_map(|uid| self.pods.known(uid));
        users.any(|pod| pod.node.as_ref() == Some(node))
    }

    /// Tells of every volume that a node holds.
    pub(super) fn tell_of_holder(&self, node: Option<&Arc<str>>, tell: Tell<'_>) {
        let held = node.into_iter().flat_map(|node| self.volumes.held_by(node));
        held.for_each(|volume| self.tell_of_volume(volume, tell));
    }

    /// A pod came, changed or went: which volumes it uses, and where.
    pub(super) fn replace_user(
        &mut self,
        before: Option<&Pod>,
        after: Option<&Pod>,
        now: Mono,
        tell: Tell<'_>,
    ) {
        if !self.guards {
            return;
        }
        if let Some(before) = before {
            self.volumes.gated.remove(before.uid());
            for key in claims_of(before) {
                self.volumes.claim_file(&key).pods.remove(before.uid());
            }
        }
        if let Some(after) = after {
            if after.gated {
                self.volumes.gated.insert(after.uid().clone());
            }
            for key in claims_of(after) {
                self.volumes.claim_file(&key).pods.insert(after.uid().clone());
            }
        }
        let keys: BTreeSet<ClaimKey> = before.into_iter().chain(after).flat_map(claims_of).collect();
        for key in keys {
            if let Some(volume) = self.volumes.bound(&key).cloned() {
                if let Some(before) = before.filter(|before| before.has_volumes())
                    && after.is_none_or(|after| !after.has_volumes())
                    && let Some(node) = &before.node
                {
                    self.volumes.leaves(&volume, node, Word::of(before, after), now);
                }
                self.tell_of_volume(&volume, tell);
            }
            self.volumes.tidy_claim(&key);
        }
    }

    /// A pod was removed. Whether its processes ended is known if its kubelet reported it, or by evidence.
    pub(super) fn removed(&mut self, pod: &Pod, now: Mono) {
        if !self.guards {
            return;
        }
        let proved = self.proved_ended.remove(pod.uid());
        let Some(node) = pod.node.as_ref().filter(|_| !proved && !pod.is_over()) else { return };
        let taken_for = |name: &&Arc<str>| {
            let held = self.volumes.lease(name).map(|lease| &lease.held);
            matches!(held, Some(Held::By(holder)) if holder.pod.as_ref() == Some(pod.uid()))
        };
        let taken = self.volumes.held_by(node).filter(taken_for).cloned();
        let used = claims_of(pod).filter_map(|key| self.volumes.bound(&key).cloned());
        let volumes: BTreeSet<Arc<str>> = taken.chain(used).collect();
        let in_silence = self.fell_silent_before_its_node_went(node);
        for name in volumes {
            let (end, removed) = (pod.ends_if_removed(now), &mut self.volumes.file(&name).removed);
            let new = Removed { end, in_silence };
            let all = removed.entry(Arc::clone(node)).or_insert(new);
            let end = all.end.zip(end).map(|(earlier, end)| earlier.max(end));
            *all = Removed { end, in_silence: all.in_silence && in_silence };
        }
    }

    /// A node came, changed or went: tells the volumes that it holds or that its pods use, each once, and files what it
    /// has unmounted.
    pub(super) fn node_changed(
        &mut self,
        before: Option<&Node>,
        after: Option<&Node>,
        now: Mono,
        tell: Tell<'_>,
    ) {
        if !self.guards {
            return;
        }
        let Some(name) = after.or(before).map(|node| Arc::clone(&node.name)) else { return };
        let held: BTreeSet<Arc<str>> = self.volumes.held_by(&name).cloned().collect();
        let pods = self.pod_index.on_node(&name).filter_map(|uid| self.pods.known(uid));
        let used = pods.flat_map(claims_of).filter_map(|key| self.volumes.bound(&key).cloned());
        let used: BTreeSet<Arc<str>> = used.filter(|volume| !held.contains(volume)).collect();
        used.iter().for_each(|volume| self.tell_of_volume(volume, tell));
        for volume in held {
            let known = self.volumes.known(&volume);
            let mounted = before.is_some_and(|node| node.mounts(known));
            if mounted && after.is_some_and(|node| !node.mounts(known)) {
                self.volumes.unmounted(&volume, &name, now);
            }
            self.tell_of_volume(&volume, tell);
        }
    }

    /// The claim of this key says another thing than before.
    fn rebind(&mut self, key: &ClaimKey, before: Option<Arc<str>>, after: Option<Arc<str>>, tell: Tell<'_>) {
        if before != after {
            if let Some(before) = &before {
                self.volumes.file(before).claims.remove(key);
            }
            if let Some(after) = &after {
                self.volumes.file(after).claims.insert(key.clone());
            }
        }
        for volume in before.iter().chain(after.iter().filter(|after| Some(*after) != before.as_ref())) {
            self.tell_of_volume(volume, tell);
            self.volumes.tidy(volume);
        }
        // Pods that wait for a claim without a volume are under no volume's name.
        let waiting: Vec<Uid> =
            self.volumes.by_claim.get(key).into_iter().flat_map(|file| &file.pods).cloned().collect();
        for pod in waiting.iter().filter_map(|uid| self.pods.known(uid)).filter(|pod| pod.gated) {
            tell(Change::Pod { before: Some(pod), after: Some(pod) });
        }
        self.volumes.tidy_claim(key);
    }
}
