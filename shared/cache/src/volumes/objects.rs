//! How the four kinds are projected and indexed.

use std::sync::Arc;

use super::super::Inner;
use super::super::index::forget;
use super::super::object::{Identity, Notify, Object, ProjectError, Undecodable, parse_identity, parse_name};
use super::super::table::{Entry, Table};
use super::UseReport;
use crate::clock::Mono;
use crate::model::{
    Attachment, BoundClaim, DETACH_LABEL, HELD_LABEL, Interner, Kind, LeaseHolder, Sharing, Uid, Volume, VolumeClaim,
    VolumeLease,
};
use crate::wire;

impl Object for Volume {
    type Wire = wire::PersistentVolume;
    type Stored = Self;
    const KIND: Kind = Kind::Volumes;

    fn project(wire: Self::Wire, interner: &mut Interner, _now: Mono) -> Result<Self, Undecodable> {
        let meta = wire.metadata.unwrap_or_default();
        let spec = wire.spec.unwrap_or_default();
        let Identity { uid, rv, name } =
            parse_identity(&meta).map_err(|error| Undecodable::from_meta(&meta, &error))?;
        let csi = spec.source.and_then(|source| source.csi);
        let unique = csi.as_ref().and_then(|csi| Some((csi.driver.as_ref()?, csi.volume_handle.as_ref()?)));
        Ok(Self {
            unique_name: unique.map(|(driver, handle)| format!("kubernetes.io/csi/{driver}^{handle}").into()),
            driver: csi.and_then(|csi| csi.driver).map(|driver| interner.intern(&driver)),
            name: interner.intern(&name),
            uid,
            rv,
            sharing: Sharing::from_access_modes(spec.access_modes.iter().map(String::as_str)),
            class: interner.intern(spec.storage_class_name.as_deref().unwrap_or_default()),
            claim: spec.claim_ref.map(|bound| BoundClaim {
                namespace: interner.intern(bound.namespace.as_deref().unwrap_or_default()),
                name: interner.intern(bound.name.as_deref().unwrap_or_default()),
                uid: bound.uid.as_deref().and_then(Uid::new),
            }),
        })
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.volumes.volumes
    }

    fn put(inner: &mut Inner, volume: Self, _now: Mono, notify: Notify<'_>) {
        let (name, uid) = (Arc::clone(&volume.name), volume.uid.clone());
        let entry = inner.volumes.entry(&name);
        (entry.volume, entry.last_seen) = (Some(uid.clone()), None);
        let before = inner.volumes.volumes.put(uid, Entry::Known(volume.clone()));
        let unchanged = matches!(before, Some(Entry::Known(before)) if before == Self { rv: before.rv, ..volume });
        if !unchanged {
            inner.notify_volume(&name, notify);
        }
    }

    fn put_undecodable(inner: &mut Inner, undecodable: Undecodable, _now: Mono, notify: Notify<'_>) {
        let (Some(uid), Some(name)) = (undecodable.uid, undecodable.name) else {
            return inner.volumes.volumes.count_unidentified();
        };
        let name = inner.interner.intern(&name);
        inner.volumes.entry(&name).volume = Some(uid.clone());
        inner.volumes.volumes.put(uid, Entry::Undecodable(undecodable.reason.into()));
        inner.notify_volume(&name, notify);
    }

    fn remove(inner: &mut Inner, uid: &Uid, _now: Mono, notify: Notify<'_>) {
        let Some(removed) = inner.volumes.volumes.remove(uid) else { return };
        // An undecodable volume has its name in this index only.
        let indexed = inner.volumes.entries.iter().find(|(_, entry)| entry.volume.as_ref() == Some(uid));
        let Some(name) = indexed.map(|(name, _)| Arc::clone(name)) else { return };
        let entry = inner.volumes.entry(&name);
        entry.volume = None;
        if let Entry::Known(volume) = removed {
            entry.last_seen = Some(Box::new(volume)).filter(|_| entry.lease.is_some());
        }
        inner.notify_volume(&name, notify);
        inner.volumes.drop_if_empty(&name);
    }
}

impl Object for VolumeClaim {
    type Wire = wire::PersistentVolumeClaim;
    type Stored = Self;
    const KIND: Kind = Kind::Claims;

    fn project(wire: Self::Wire, interner: &mut Interner, _now: Mono) -> Result<Self, Undecodable> {
        let meta = wire.metadata.unwrap_or_default();
        let read = || {
            let Identity { uid, rv, name } = parse_identity(&meta)?;
            let namespace = self::parse_name(meta.namespace.as_deref(), "metadata.namespace")?;
            Ok((uid, rv, name, namespace))
        };
        let (uid, rv, name, namespace) = read().map_err(|error: ProjectError| Undecodable::from_meta(&meta, &error))?;
        let volume = wire.spec.map(|spec| spec.volume_name).filter(|volume| !volume.is_empty());
        Ok(Self {
            namespace: interner.intern(&namespace),
            name: interner.intern(&name),
            uid,
            rv,
            volume: volume.map(|volume| interner.intern(&String::from_utf8_lossy(&volume))),
        })
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.volumes.claims
    }

    fn put(inner: &mut Inner, claim: Self, _now: Mono, notify: Notify<'_>) {
        let (key, uid) = ((Arc::clone(&claim.namespace), Arc::clone(&claim.name)), claim.uid.clone());
        let before = inner.volumes.volume_named_by(&key).cloned();
        let after = claim.volume.clone();
        let is_known = inner.volumes.claims.get_known(&uid).is_some();
        inner.volumes.claim_entry(&key).claim = Some(uid.clone());
        inner.volumes.claims.put(uid, Entry::Known(claim));
        if !is_known || before != after {
            inner.update_claim_volume(&key, before, after, notify);
        }
    }

    fn remove(inner: &mut Inner, uid: &Uid, _now: Mono, notify: Notify<'_>) {
        let Some(Entry::Known(claim)) = inner.volumes.claims.remove(uid) else { return };
        let key = (claim.namespace, claim.name);
        let entry = inner.volumes.claim_entry(&key);
        if entry.claim.as_ref() == Some(uid) {
            entry.claim = None;
            inner.update_claim_volume(&key, claim.volume, None, notify);
        }
    }
}

impl Object for Attachment {
    type Wire = wire::VolumeAttachment;
    type Stored = Self;
    const KIND: Kind = Kind::Attachments;

    fn project(wire: Self::Wire, interner: &mut Interner, _now: Mono) -> Result<Self, Undecodable> {
        let meta = wire.metadata.unwrap_or_default();
        let spec = wire.spec.unwrap_or_default();
        let read = || {
            let Identity { uid, rv, name } = parse_identity(&meta)?;
            let node = self::parse_name(spec.node_name.as_deref(), "spec.nodeName")?;
            Ok((uid, rv, name, node))
        };
        let (uid, rv, name, node) = read().map_err(|error: ProjectError| Undecodable::from_meta(&meta, &error))?;
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

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.volumes.attachments
    }

    fn put(inner: &mut Inner, attachment: Self, _now: Mono, notify: Notify<'_>) {
        let (volume, uid) = (attachment.volume.clone(), attachment.uid.clone());
        inner.volumes.attachments.put(uid.clone(), Entry::Known(attachment));
        if let Some(volume) = volume {
            let entry = inner.volumes.entry(&volume);
            entry.attachments.insert(uid);
            entry.driver_attaches = true;
            inner.notify_volume(&volume, notify);
        }
    }

    fn remove(inner: &mut Inner, uid: &Uid, now: Mono, notify: Notify<'_>) {
        let Some(Entry::Known(attachment)) = inner.volumes.attachments.remove(uid) else { return };
        if let Some(volume) = attachment.volume {
            inner.volumes.entry(&volume).attachments.remove(uid);
            // A removed attachment does not show that the volume is unmounted: attachments are also force deleted.
            // Pods that exist still get a report of their own.
            let last_use = inner.volumes.last_use(&volume, &attachment.node);
            let used = inner.has_pod_using(&volume, &attachment.node);
            if last_use.is_some() || !used {
                let report = last_use.map_or(UseReport::None, |last| last.report);
                inner.volumes.record_use_ended(&volume, &attachment.node, report, now);
            }
            inner.notify_volume(&volume, notify);
            inner.volumes.drop_if_empty(&volume);
        }
    }
}

impl Object for VolumeLease {
    type Wire = wire::Lease;
    type Stored = Self;
    const KIND: Kind = Kind::VolumeLeases;

    fn project(wire: Self::Wire, interner: &mut Interner, now: Mono) -> Result<Self, Undecodable> {
        let meta = wire.metadata.unwrap_or_default();
        let spec = wire.spec.unwrap_or_default();
        let Identity { uid, rv, name } =
            parse_identity(&meta).map_err(|error| Undecodable::from_meta(&meta, &error))?;
        Ok(Self {
            name: interner.intern(&name),
            uid,
            rv,
            holder: LeaseHolder::parse(spec.holder_identity.as_deref().unwrap_or_default()),
            generation: spec.lease_transitions.unwrap_or(0),
            holder_since: now,
            attach_and_detach_denied: meta.labels.contains_key(HELD_LABEL),
            detach_from: meta.labels.get(DETACH_LABEL).and_then(|uid| Uid::new(uid)),
        })
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.volumes.leases
    }

    fn put(inner: &mut Inner, mut lease: Self, now: Mono, notify: Notify<'_>) {
        if let Some(before) = inner.volumes.leases.get_known(&lease.uid).filter(|before| before.holder == lease.holder)
        {
            lease.holder_since = before.holder_since;
        }
        clear_former_holder(inner, &lease.uid, Some(&lease.holder), now);
        let (name, uid) = (Arc::clone(&lease.name), lease.uid.clone());
        if let LeaseHolder::By(holder) = &lease.holder {
            let node = inner.interner.intern(&holder.node);
            inner.volumes.held_by.entry(Arc::clone(&node)).or_default().insert(Arc::clone(&name));
            inner.update_absence(&node, now);
        }
        inner.volumes.entry(&name).lease = Some(uid.clone());
        inner.volumes.leases.put(uid, Entry::Known(lease));
        inner.notify_volume(&name, notify);
    }

    fn remove(inner: &mut Inner, uid: &Uid, now: Mono, notify: Notify<'_>) {
        clear_former_holder(inner, uid, None, now);
        let Some(Entry::Known(lease)) = inner.volumes.leases.remove(uid) else { return };
        let entry = inner.volumes.entry(&lease.name);
        if entry.lease.as_ref() == Some(uid) {
            entry.lease = None;
        }
        inner.notify_volume(&lease.name, notify);
        inner.volumes.drop_if_empty(&lease.name);
    }
}

/// Clears the records of the former holder when the Lease gets another holder or is removed.
fn clear_former_holder(inner: &mut Inner, uid: &Uid, after: Option<&LeaseHolder>, now: Mono) {
    let Some(before) = inner.volumes.leases.get_known(uid) else { return };
    let (name, LeaseHolder::By(holder)) = (Arc::clone(&before.name), before.holder.clone()) else { return };
    let still = matches!(after, Some(LeaseHolder::By(after)) if *after == holder);
    if still {
        return;
    }
    forget(&mut inner.volumes.held_by, &holder.node, &name);
    let entry = inner.volumes.entry(&name);
    (entry.last_uses, entry.removed) = Default::default();
    let node = inner.interner.intern(&holder.node);
    inner.update_absence(&node, now);
}
