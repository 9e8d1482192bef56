//! How volumes are kept: by UID, and everything about one of them under its name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::object::{Identity, Object, ProjectError, Tell, Undecodable, identity, name};
use super::table::{Entry, Table};
use super::{Change, Inner};
use crate::clock::Mono;
use crate::model::{
    Attachment, HELD_LABEL, Held, Holder, Interner, Kind, Node, Pod, Sharing, Uid, VOLUME_UID_LABEL, Volume,
    VolumeClaim, VolumeLease,
};
use crate::wire;

/// A claim: its namespace and name.
type ClaimKey = (Arc<str>, Arc<str>);

/// That a node's last use of a volume ended, as this process saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// When the last of it went.
    pub at: Mono,
    /// Its kubelet said so: it reported the end of each pod, or that it has unmounted the volume.
    pub told: bool,
}

/// Everything about the volume of one name.
#[derive(Debug, Default)]
struct File {
    volume: Option<Uid>,
    lease: Option<Uid>,
    attachments: BTreeSet<Uid>,
    claims: BTreeSet<ClaimKey>,
    left: BTreeMap<Arc<str>, Left>,
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

    pub(super) fn lease(&self, name: &str) -> Option<&VolumeLease> {
        self.leases.known(self.files.get(name)?.lease.as_ref()?)
    }

    pub(super) fn attachments_of<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Attachment> + use<'a> {
        let uids = self.files.get(name).into_iter().flat_map(|file| &file.attachments);
        uids.filter_map(|uid| self.attachments.known(uid))
    }

    pub(super) fn users_of<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Uid> + use<'a> {
        let claims = self.files.get(name).into_iter().flat_map(|file| &file.claims);
        claims.filter_map(|key| self.by_claim.get(key)).flat_map(|file| &file.pods)
    }

    pub(super) fn claim(&self, namespace: &Arc<str>, name: &Arc<str>) -> Option<&Entry<VolumeClaim>> {
        let key = (Arc::clone(namespace), Arc::clone(name));
        self.claims.get(self.by_claim.get(&key)?.claim.as_ref()?)
    }

    pub(super) fn left(&self, name: &str, node: &str) -> Option<Left> {
        self.files.get(name)?.left.get(node).copied()
    }

    /// The nodes that hold a volume.
    pub(super) fn holders(&self) -> impl Iterator<Item = &Arc<str>> {
        self.held_by.keys()
    }

    pub(super) fn held_by(&self, node: &str) -> impl Iterator<Item = &Arc<str>> {
        self.held_by.get(node).into_iter().flatten()
    }

    /// The volume that a claim is bound to.
    fn volume_of(&self, key: &ClaimKey) -> Option<&Arc<str>> {
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

    /// A use of the volume on this node ended. What was not told stays so: of several pods each must have been.
    fn leaves(&mut self, name: &Arc<str>, node: &Arc<str>, told: bool, now: Mono) {
        let left = self.file(name).left.entry(Arc::clone(node)).or_insert(Left { at: now, told });
        *left = Left { at: now, told: told && left.told };
    }

    /// The kubelet has unmounted it: that is its word for whatever used it.
    fn unmounted(&mut self, name: &Arc<str>, node: &Arc<str>, now: Mono) {
        self.file(name).left.insert(Arc::clone(node), Left { at: now, told: true });
    }
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
        let over = |pod: &Pod| pod.phase.is_terminal() && !pod.running;
        for key in keys {
            if let Some(volume) = self.volumes.volume_of(&key).cloned() {
                match (before, after) {
                    (Some(before), None) => {
                        if let Some(node) = &before.node {
                            self.volumes.leaves(&volume, node, over(before), now);
                        }
                    }
                    (Some(before), Some(after)) if over(after) && !over(before) => {
                        if let Some(node) = &after.node {
                            self.volumes.leaves(&volume, node, true, now);
                        }
                    }
                    _ => {}
                }
                self.tell_of_volume(&volume, tell);
            }
            self.volumes.tidy_claim(&key);
        }
    }

    /// A node came, changed or went: what it holds, and what it has unmounted.
    pub(super) fn replace_holder(
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
        let held: Vec<Arc<str>> = self.volumes.held_by(&name).cloned().collect();
        for volume in held {
            let unique = match self.volumes.volume(&volume) {
                Some(Entry::Known(known)) => known.unique_name.clone(),
                Some(Entry::Undecodable(_)) | None => None,
            };
            let mounts = |node: Option<&Node>| {
                node.is_some_and(|node| unique.as_ref().is_some_and(|unique| node.in_use.contains(unique)))
            };
            if mounts(before) && after.is_some() && !mounts(after) {
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

impl Object for Volume {
    type Wire = wire::PersistentVolume;
    type Kept = Self;
    const KIND: Kind = Kind::Volumes;

    fn project(wire: Self::Wire, interner: &mut Interner, _now: Mono) -> Result<Self, Undecodable> {
        let meta = wire.metadata.unwrap_or_default();
        let spec = wire.spec.unwrap_or_default();
        let Identity { uid, rv, name } =
            identity(&meta).map_err(|error| Undecodable::from_meta(&meta, &error))?;
        let csi = spec.source.and_then(|source| source.csi);
        let unique = csi.as_ref().and_then(|csi| Some((csi.driver.as_ref()?, csi.volume_handle.as_ref()?)));
        Ok(Self {
            unique_name: unique.map(|(driver, handle)| format!("kubernetes.io/csi/{driver}^{handle}").into()),
            driver: csi.and_then(|csi| csi.driver).map(|driver| interner.intern(&driver)),
            name: interner.intern(&name),
            uid,
            rv,
            sharing: Sharing::of(spec.access_modes.iter().map(String::as_str)),
            class: interner.intern(spec.storage_class_name.as_deref().unwrap_or_default()),
        })
    }

    fn meta(wire: &Self::Wire) -> Option<&wire::ObjectMeta> {
        wire.metadata.as_ref()
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.volumes.volumes
    }

    fn put(inner: &mut Inner, volume: Self, _now: Mono, tell: Tell<'_>) {
        let (name, uid) = (Arc::clone(&volume.name), volume.uid.clone());
        inner.volumes.file(&name).volume = Some(uid.clone());
        let before = inner.volumes.volumes.put(uid, Entry::Known(volume.clone()));
        let noise =
            matches!(before, Some(Entry::Known(before)) if before == Self { rv: before.rv, ..volume });
        if !noise {
            inner.tell_of_volume(&name, tell);
        }
    }

    fn put_undecodable(inner: &mut Inner, undecodable: Undecodable, _now: Mono, tell: Tell<'_>) {
        let (Some(uid), Some(name)) = (undecodable.uid, undecodable.name) else {
            return inner.volumes.volumes.put_unidentified();
        };
        let name = inner.interner.intern(&name);
        inner.volumes.file(&name).volume = Some(uid.clone());
        inner.volumes.volumes.put(uid, Entry::Undecodable(undecodable.why.into()));
        inner.tell_of_volume(&name, tell);
    }

    fn take(inner: &mut Inner, uid: &Uid, _now: Mono, tell: Tell<'_>) {
        if inner.volumes.volumes.take(uid).is_none() {
            return;
        }
        // What cannot be read has no name of its own here.
        let filed = inner.volumes.files.iter().find(|(_, file)| file.volume.as_ref() == Some(uid));
        let Some(name) = filed.map(|(name, _)| Arc::clone(name)) else { return };
        inner.volumes.file(&name).volume = None;
        inner.tell_of_volume(&name, tell);
        inner.volumes.tidy(&name);
    }
}

impl Object for VolumeClaim {
    type Wire = wire::PersistentVolumeClaim;
    type Kept = Self;
    const KIND: Kind = Kind::Claims;

    fn project(wire: Self::Wire, interner: &mut Interner, _now: Mono) -> Result<Self, Undecodable> {
        let meta = wire.metadata.unwrap_or_default();
        let read = || {
            let Identity { uid, rv, name } = identity(&meta)?;
            let namespace = self::name(meta.namespace.as_deref(), "metadata.namespace")?;
            Ok((uid, rv, name, namespace))
        };
        let (uid, rv, name, namespace) =
            read().map_err(|error: ProjectError| Undecodable::from_meta(&meta, &error))?;
        let volume = wire.spec.and_then(|spec| spec.volume_name).filter(|volume| !volume.is_empty());
        Ok(Self {
            namespace: interner.intern(&namespace),
            name: interner.intern(&name),
            uid,
            rv,
            volume: volume.map(|volume| interner.intern(&volume)),
        })
    }

    fn meta(wire: &Self::Wire) -> Option<&wire::ObjectMeta> {
        wire.metadata.as_ref()
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.volumes.claims
    }

    fn put(inner: &mut Inner, claim: Self, _now: Mono, tell: Tell<'_>) {
        let (key, uid) = ((Arc::clone(&claim.namespace), Arc::clone(&claim.name)), claim.uid.clone());
        let before = inner.volumes.volume_of(&key).cloned();
        let after = claim.volume.clone();
        let known = inner.volumes.claims.known(&uid).is_some();
        inner.volumes.claim_file(&key).claim = Some(uid.clone());
        inner.volumes.claims.put(uid, Entry::Known(claim));
        if !known || before != after {
            inner.rebind(&key, before, after, tell);
        }
    }

    fn put_undecodable(inner: &mut Inner, undecodable: Undecodable, now: Mono, tell: Tell<'_>) {
        let Some(uid) = undecodable.uid else { return inner.volumes.claims.put_unidentified() };
        Self::take(inner, &uid, now, tell);
        inner.volumes.claims.put(uid, Entry::Undecodable(undecodable.why.into()));
    }

    fn take(inner: &mut Inner, uid: &Uid, _now: Mono, tell: Tell<'_>) {
        let Some(Entry::Known(claim)) = inner.volumes.claims.take(uid) else { return };
        let key = (claim.namespace, claim.name);
        let file = inner.volumes.claim_file(&key);
        if file.claim.as_ref() == Some(uid) {
            file.claim = None;
            inner.rebind(&key, claim.volume, None, tell);
        }
    }
}

impl Object for Attachment {
    type Wire = wire::VolumeAttachment;
    type Kept = Self;
    const KIND: Kind = Kind::Attachments;

    fn project(wire: Self::Wire, interner: &mut Interner, _now: Mono) -> Result<Self, Undecodable> {
        let meta = wire.metadata.unwrap_or_default();
        let spec = wire.spec.unwrap_or_default();
        let read = || {
            let Identity { uid, rv, name } = identity(&meta)?;
            let node = self::name(spec.node_name.as_deref(), "spec.nodeName")?;
            Ok((uid, rv, name, node))
        };
        let (uid, rv, name, node) =
            read().map_err(|error: ProjectError| Undecodable::from_meta(&meta, &error))?;
        let volume = spec.source.and_then(|source| source.persistent_volume_name);
        Ok(Self {
            name: interner.intern(&name),
            uid,
            rv,
            volume: volume.filter(|volume| !volume.is_empty()).map(|volume| interner.intern(&volume)),
            node: interner.intern(&node),
            attached: wire.status.is_some_and(|status| status.attached),
        })
    }

    fn meta(wire: &Self::Wire) -> Option<&wire::ObjectMeta> {
        wire.metadata.as_ref()
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.volumes.attachments
    }

    fn put(inner: &mut Inner, attachment: Self, _now: Mono, tell: Tell<'_>) {
        let (volume, uid) = (attachment.volume.clone(), attachment.uid.clone());
        inner.volumes.attachments.put(uid.clone(), Entry::Known(attachment));
        if let Some(volume) = volume {
            inner.volumes.file(&volume).attachments.insert(uid);
            inner.tell_of_volume(&volume, tell);
        }
    }

    fn put_undecodable(inner: &mut Inner, undecodable: Undecodable, now: Mono, tell: Tell<'_>) {
        let Some(uid) = undecodable.uid else { return inner.volumes.attachments.put_unidentified() };
        Self::take(inner, &uid, now, tell);
        inner.volumes.attachments.put(uid, Entry::Undecodable(undecodable.why.into()));
    }

    fn take(inner: &mut Inner, uid: &Uid, now: Mono, tell: Tell<'_>) {
        let Some(Entry::Known(attachment)) = inner.volumes.attachments.take(uid) else { return };
        if let Some(volume) = attachment.volume {
            inner.volumes.file(&volume).attachments.remove(uid);
            // That it went says nothing of mounts: attachments are also deleted by force.
            let told = inner.volumes.left(&volume, &attachment.node).is_some_and(|left| left.told);
            inner.volumes.leaves(&volume, &attachment.node, told, now);
            inner.tell_of_volume(&volume, tell);
            inner.volumes.tidy(&volume);
        }
    }
}

fn held(identity: Option<&str>) -> Held {
    match identity {
        None | Some("") => Held::Free,
        Some(identity) => Holder::parse(identity).map_or_else(|| Held::Unreadable(identity.into()), Held::By),
    }
}

impl Object for VolumeLease {
    type Wire = wire::Lease;
    type Kept = Self;
    const KIND: Kind = Kind::VolumeLeases;

    fn project(wire: Self::Wire, interner: &mut Interner, now: Mono) -> Result<Self, Undecodable> {
        let meta = wire.metadata.unwrap_or_default();
        let spec = wire.spec.unwrap_or_default();
        let Identity { uid, rv, name } =
            identity(&meta).map_err(|error| Undecodable::from_meta(&meta, &error))?;
        Ok(Self {
            name: interner.intern(&name),
            uid,
            rv,
            volume_uid: meta.labels.get(VOLUME_UID_LABEL).and_then(|uid| Uid::new(uid)),
            held: held(spec.holder_identity.as_deref()),
            generation: spec.lease_transitions.unwrap_or(0),
            seen: now,
            refused_elsewhere: meta.labels.contains_key(HELD_LABEL),
        })
    }

    fn meta(wire: &Self::Wire) -> Option<&wire::ObjectMeta> {
        wire.metadata.as_ref()
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.volumes.leases
    }

    fn put(inner: &mut Inner, mut lease: Self, now: Mono, tell: Tell<'_>) {
        if let Some(before) =
            inner.volumes.leases.known(&lease.uid).filter(|before| before.held == lease.held)
        {
            lease.seen = before.seen;
        }
        Self::unfile(inner, &lease.uid, Some(&lease.held), now);
        let (name, uid) = (Arc::clone(&lease.name), lease.uid.clone());
        if let Held::By(holder) = &lease.held {
            let node = inner.interner.intern(&holder.node);
            inner.volumes.held_by.entry(Arc::clone(&node)).or_default().insert(Arc::clone(&name));
            inner.recheck_absence(&node, now);
        }
        inner.volumes.file(&name).lease = Some(uid.clone());
        inner.volumes.leases.put(uid, Entry::Known(lease));
        inner.tell_of_volume(&name, tell);
    }

    fn put_undecodable(inner: &mut Inner, undecodable: Undecodable, now: Mono, tell: Tell<'_>) {
        let Some(uid) = undecodable.uid else { return inner.volumes.leases.put_unidentified() };
        Self::take(inner, &uid, now, tell);
        inner.volumes.leases.put(uid, Entry::Undecodable(undecodable.why.into()));
    }

    fn take(inner: &mut Inner, uid: &Uid, now: Mono, tell: Tell<'_>) {
        Self::unfile(inner, uid, None, now);
        let Some(Entry::Known(lease)) = inner.volumes.leases.take(uid) else { return };
        let file = inner.volumes.file(&lease.name);
        if file.lease.as_ref() == Some(uid) {
            file.lease = None;
        }
        inner.tell_of_volume(&lease.name, tell);
        inner.volumes.tidy(&lease.name);
    }
}

impl VolumeLease {
    /// Its holder is another one from now on: what was seen of the old one's use is of no meaning any more.
    fn unfile(inner: &mut Inner, uid: &Uid, after: Option<&Held>, now: Mono) {
        let Some(before) = inner.volumes.leases.known(uid) else { return };
        let (name, Held::By(holder)) = (Arc::clone(&before.name), before.held.clone()) else { return };
        let still = matches!(after, Some(Held::By(after)) if *after == holder);
        if still {
            return;
        }
        if let Some(names) = inner.volumes.held_by.get_mut(&holder.node) {
            names.remove(&name);
            if names.is_empty() {
                inner.volumes.held_by.remove(&holder.node);
            }
        }
        inner.volumes.file(&name).left.clear();
        let node = inner.interner.intern(&holder.node);
        inner.recheck_absence(&node, now);
    }
}
