//! How the four kinds are projected, and put where the others find them.

use std::sync::Arc;

use super::super::Inner;
use super::super::object::{Identity, Object, ProjectError, Tell, Undecodable, identity, name};
use super::super::table::{Entry, Table};
use super::Word;
use crate::clock::Mono;
use crate::model::{
    Attachment, BoundClaim, DETACH_LABEL, HELD_LABEL, Held, Interner, Kind, Sharing, Uid, Volume,
    VolumeClaim, VolumeLease,
};
use crate::wire;

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
            claim: spec.claim_ref.map(|bound| BoundClaim {
                namespace: interner.intern(bound.namespace.as_deref().unwrap_or_default()),
                name: interner.intern(bound.name.as_deref().unwrap_or_default()),
                uid: bound.uid.as_deref().and_then(Uid::new),
            }),
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
        let file = inner.volumes.file(&name);
        (file.volume, file.was) = (Some(uid.clone()), None);
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
        let Some(taken) = inner.volumes.volumes.take(uid) else { return };
        // What cannot be read has no name of its own here.
        let filed = inner.volumes.files.iter().find(|(_, file)| file.volume.as_ref() == Some(uid));
        let Some(name) = filed.map(|(name, _)| Arc::clone(name)) else { return };
        let file = inner.volumes.file(&name);
        file.volume = None;
        if let Entry::Known(volume) = taken {
            file.was = Some(Box::new(volume)).filter(|_| file.lease.is_some());
        }
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
        let before = inner.volumes.named_by(&key).cloned();
        let after = claim.volume.clone();
        let known = inner.volumes.claims.known(&uid).is_some();
        inner.volumes.claim_file(&key).claim = Some(uid.clone());
        inner.volumes.claims.put(uid, Entry::Known(claim));
        if !known || before != after {
            inner.rebind(&key, before, after, tell);
        }
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
            let file = inner.volumes.file(&volume);
            file.attachments.insert(uid);
            file.attaches = true;
            inner.tell_of_volume(&volume, tell);
        }
    }

    fn take(inner: &mut Inner, uid: &Uid, now: Mono, tell: Tell<'_>) {
        let Some(Entry::Known(attachment)) = inner.volumes.attachments.take(uid) else { return };
        if let Some(volume) = attachment.volume {
            inner.volumes.file(&volume).attachments.remove(uid);
            // That it went says nothing of mounts: attachments are also deleted by force. Pods that are there still have
            // words of their own to say.
            let left = inner.volumes.left(&volume, &attachment.node);
            let used = inner.uses(&volume, &attachment.node);
            if left.is_some() || !used {
                let word = left.map_or(Word::None, |left| left.word);
                inner.volumes.leaves(&volume, &attachment.node, word, now);
            }
            inner.tell_of_volume(&volume, tell);
            inner.volumes.tidy(&volume);
        }
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
            held: Held::parse(spec.holder_identity.as_deref().unwrap_or_default()),
            generation: spec.lease_transitions.unwrap_or(0),
            seen: now,
            refused_elsewhere: meta.labels.contains_key(HELD_LABEL),
            detach_from: meta.labels.get(DETACH_LABEL).and_then(|uid| Uid::new(uid)),
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
        unfile(inner, &lease.uid, Some(&lease.held), now);
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

    fn take(inner: &mut Inner, uid: &Uid, now: Mono, tell: Tell<'_>) {
        unfile(inner, uid, None, now);
        let Some(Entry::Known(lease)) = inner.volumes.leases.take(uid) else { return };
        let file = inner.volumes.file(&lease.name);
        if file.lease.as_ref() == Some(uid) {
            file.lease = None;
        }
        inner.tell_of_volume(&lease.name, tell);
        inner.volumes.tidy(&lease.name);
    }
}

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
    let file = inner.volumes.file(&name);
    (file.left, file.removed) = Default::default();
    let node = inner.interner.intern(&holder.node);
    inner.recheck_absence(&node, now);
}
