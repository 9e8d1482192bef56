//! The Leases of nodes: the heartbeats of their kubelets.
//!
//! The `renewTime` is needed, the metadata alone are not enough: other clients write Leases, too, and a write without
//! a renewal is no report of the kubelet.

use std::sync::Arc;

use super::Inner;
use super::object::{Identity, Notify, Object, ProjectError, Undecodable, parse_identity};
use super::table::{Entry, Table};
use crate::clock::Mono;
use crate::model::{Interner, Kind, NodeLease, Uid, lease_duration};
use crate::wire;

fn project_lease(
    meta: &wire::ObjectMeta,
    spec: &wire::LeaseSpec,
    interner: &mut Interner,
) -> Result<NodeLease, ProjectError> {
    let Identity { uid, rv, name } = parse_identity(meta)?;
    let renew_time =
        spec.renew_time.map(|time| time.timestamp().ok_or(ProjectError::Time("spec.renewTime"))).transpose()?;
    let duration = lease_duration(spec.lease_duration_seconds);
    let created = meta.creation_timestamp.map_or(0, wire::Time::whole_seconds);
    Ok(NodeLease { name: interner.intern(&name), uid, rv, created, renew_time, duration })
}

impl Object for NodeLease {
    type Wire = wire::Lease;
    type Stored = Self;
    const KIND: Kind = Kind::NodeLeases;

    fn project(wire: wire::Lease, interner: &mut Interner, _now: Mono) -> Result<Self, Undecodable> {
        let meta = wire.metadata.unwrap_or_default();
        project_lease(&meta, &wire.spec.unwrap_or_default(), interner)
            .map_err(|error| Undecodable::from_meta(&meta, &error))
    }

    /// Most events of a large cluster are renewals of Leases.
    fn decode_partial<'a>(inner: &Inner, raw: &'a wire::Raw) -> Option<(Self, &'a str)> {
        let renewal = raw.renewal()?;
        let uid = Uid::new(renewal.uid)?;
        // The name was checked when the Lease was first stored.
        let cached = inner.leases.get_known(&uid).filter(|cached| *cached.name == *renewal.name)?;
        let (name, created) = (Arc::clone(&cached.name), cached.created);
        let rv = renewal.resource_version.parse().ok()?;
        let renew_time = match renewal.renew_time {
            Some(time) => Some(time.timestamp()?),
            None => None,
        };
        let duration = lease_duration(renewal.lease_duration_seconds);
        Some((Self { name, uid, rv, created, renew_time, duration }, renewal.resource_version))
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.leases
    }

    fn put(inner: &mut Inner, lease: Self, now: Mono, notify: Notify<'_>) {
        let name = Arc::clone(&lease.name);
        let synced = inner.kinds.state(Kind::NodeLeases).synced;
        let before = inner.leases.put(lease.uid.clone(), Entry::Known(lease.clone()));
        let former = match &before {
            Some(Entry::Known(before)) => Some(before),
            // The Lease may have been renewed while it was unreadable: it does not count as unchanged.
            Some(Entry::Undecodable(_)) | None => None,
        };
        if inner.heartbeats.record_lease(former, &lease, synced, now) {
            inner.record_renewal(&name, now, notify);
        }
        if !synced {
            // This is no report, but renewals before this list were not seen.
            inner.reset_last_report(&name, now);
        }
    }

    fn put_undecodable(inner: &mut Inner, undecodable: Undecodable, now: Mono, notify: Notify<'_>) {
        let (Some(uid), Some(name)) = (undecodable.uid, undecodable.name) else {
            return inner.leases.count_unidentified();
        };
        let name = inner.interner.intern(&name);
        inner.heartbeats.record_unreadable(&uid, &name, now);
        inner.leases.put(uid, Entry::Undecodable(undecodable.reason.into()));
        inner.record_report(&name, notify);
    }

    fn note_missed_changes(inner: &mut Inner, uid: &Uid, now: Mono) {
        let name = inner.leases.get_known(uid).map(|lease| Arc::clone(&lease.name));
        inner.heartbeats.record_missed_renewal(uid, name, now);
    }

    fn remove(inner: &mut Inner, uid: &Uid, now: Mono, notify: Notify<'_>) {
        let name = match inner.leases.remove(uid) {
            Some(Entry::Known(lease)) => {
                inner.heartbeats.record_deleted(&lease.name, now);
                Some(lease.name)
            }
            Some(Entry::Undecodable(_)) => inner.heartbeats.record_unreadable_deleted(uid, now),
            None => None,
        };
        if let Some(name) = name {
            inner.record_report(&name, notify);
        }
    }
}
