//! The Leases of nodes: the heartbeats of their kubelets.
//!
//! Why the `renewTime` is read, and the metadata alone are not enough: a Lease is also written by others, and a write without a
//! renewal is no sign of life.

use std::sync::Arc;

use super::Inner;
use super::object::{Identity, Object, ProjectError, Tell, Undecodable, identity};
use super::table::{Entry, Table};
use crate::clock::Mono;
use crate::model::{Interner, Kind, NodeLease, Uid, lease_duration};
use crate::wire;

fn project_lease(
    meta: &wire::ObjectMeta,
    spec: &wire::LeaseSpec,
    interner: &mut Interner,
) -> Result<NodeLease, ProjectError> {
    let Identity { uid, rv, name } = identity(meta)?;
    let renewed = spec
        .renew_time
        .map(|time| time.timestamp().ok_or(ProjectError::Time("spec.renewTime")))
        .transpose()?;
    let duration = lease_duration(spec.lease_duration_seconds);
    Ok(NodeLease { name: interner.intern(&name), uid, rv, renewed, duration })
}

impl Object for NodeLease {
    type Wire = wire::Lease;
    type Kept = Self;
    const KIND: Kind = Kind::NodeLeases;

    fn project(wire: wire::Lease, interner: &mut Interner, _now: Mono) -> Result<Self, Undecodable> {
        let meta = wire.metadata.unwrap_or_default();
        project_lease(&meta, &wire.spec.unwrap_or_default(), interner)
            .map_err(|error| Undecodable::from_meta(&meta, &error))
    }

    /// Most that happens in a large cluster is that a Lease is renewed.
    fn glance<'a>(inner: &Inner, raw: &'a wire::Raw) -> Option<(Self, &'a str)> {
        let renewal = raw.renewal()?;
        let uid = Uid::new(renewal.uid)?;
        // The name was looked at when the Lease came.
        let known = inner.leases.known(&uid).filter(|known| *known.name == *renewal.name)?;
        let name = Arc::clone(&known.name);
        let rv = renewal.resource_version.parse().ok()?;
        let renewed = match renewal.renew_time {
            Some(time) => Some(time.timestamp()?),
            None => None,
        };
        let duration = lease_duration(renewal.lease_duration_seconds);
        Some((Self { name, uid, rv, renewed, duration }, renewal.resource_version))
    }

    fn meta(wire: &wire::Lease) -> Option<&wire::ObjectMeta> {
        wire.metadata.as_ref()
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.leases
    }

    fn put(inner: &mut Inner, lease: Self, now: Mono, tell: Tell<'_>) {
        let name = Arc::clone(&lease.name);
        let synced = inner.kinds.state(Kind::NodeLeases).synced;
        let before = inner.leases.put(lease.uid.clone(), Entry::Known(lease.clone()));
        let known = match &before {
            Some(Entry::Known(before)) => Some(before),
            // What we could not read may have moved since: unknown is not unmoved.
            Some(Entry::Undecodable(_)) | None => None,
        };
        if inner.heartbeats.applied(known, &lease, synced, now) {
            inner.renewed(&name, now, tell);
        }
        if !synced {
            // It is no sign of life, but whatever was renewed before this list was not seen.
            inner.listens_since(&name, now);
        }
    }

    fn put_undecodable(inner: &mut Inner, undecodable: Undecodable, now: Mono, tell: Tell<'_>) {
        let (Some(uid), Some(name)) = (undecodable.uid, undecodable.name) else {
            return inner.leases.put_unidentified();
        };
        let name = inner.interner.intern(&name);
        inner.heartbeats.unreadable(&uid, &name, now);
        inner.leases.put(uid, Entry::Undecodable(undecodable.why.into()));
        inner.beat(&name, tell);
    }

    fn missed(inner: &mut Inner, uid: &Uid, now: Mono) {
        let known = inner.leases.known(uid).map(|lease| Arc::clone(&lease.name));
        inner.heartbeats.missed(uid, known, now);
    }

    fn take(inner: &mut Inner, uid: &Uid, now: Mono, tell: Tell<'_>) {
        let name = match inner.leases.take(uid) {
            Some(Entry::Known(lease)) => {
                inner.heartbeats.gone(&lease.name, now);
                Some(lease.name)
            }
            Some(Entry::Undecodable(_)) => inner.heartbeats.unreadable_gone(uid, now),
            None => None,
        };
        if let Some(name) = name {
            inner.beat(&name, tell);
        }
    }
}
