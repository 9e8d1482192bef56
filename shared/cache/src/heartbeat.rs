//! When each kubelet was last seen to renew its Lease, by this process's clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use jiff::Timestamp;

use crate::clock::Mono;
use crate::model::{NodeLease, Uid, lease_duration};

/// How long the record of a deleted Lease is kept if its node is not missing: a Lease may be removed before its Node.
/// docs/assumptions.md: lease-goes-after-its-node
pub(super) const KEEP_DELETED: Duration = Duration::from_secs(600);

/// The heartbeat of one kubelet.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// When this process saw the Lease renewed or created again, or may have missed that. `None`: it has not changed
    /// since this process began to watch, which shows nothing about the time before.
    pub renewed_at: Option<Mono>,
    /// The last sign that the kubelet may have started.
    pub started: Option<StartSign>,
    /// When this process saw the Lease removed.
    pub deleted_at: Option<Mono>,
    /// The lease duration, within which the kubelet renews.
    pub duration: Duration,
    /// Its `renewTime`, if the Lease exists and has one: only compared for change, never with this process's time.
    pub renew_time: Option<Timestamp>,
}

/// A renewal sooner or later than a kubelet that runs renews, or a new Lease.
/// docs/assumptions.md: renews-when-it-starts
#[derive(Clone, Copy, Debug)]
pub struct StartSign {
    /// When this process saw it.
    pub seen_at: Mono,
    /// The creation time of the new Lease, in seconds of the API server's clock: it shows nothing about pods that were bound
    /// later. `i64::MAX` for a renewal.
    pub pods_bound_before: i64,
}

impl Heartbeat {
    /// Of a Lease that no kubelet has renewed yet.
    const fn initial(duration: Duration) -> Self {
        Self { renewed_at: None, started: None, deleted_at: None, duration, renew_time: None }
    }
}

/// Whether a kubelet that ran before and after may have written both, by its own clock. It renews each quarter of the
/// duration, at most 4 % later; a tenth is granted for its requests, and 1 % for a clock that is adjusted. A kubelet reads the
/// duration only when it starts.
fn is_next_renewal(before: &NodeLease, after: &NodeLease) -> bool {
    let quarter = after.duration / 4;
    let (earliest, latest) = (quarter * 99 / 100, quarter * 114 / 100);
    let times = before.renew_time.zip(after.renew_time).filter(|_| before.duration == after.duration);
    let apart = times.and_then(|(before, after)| Duration::try_from(after.duration_since(before)).ok());
    apart.is_some_and(|apart| (earliest..=latest).contains(&apart))
}

#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    /// A hash map: each renewal is a lookup, and a tree of a hundred thousand names compares seventeen.
    heartbeats: IndexMap<Arc<str>, Heartbeat>,
    /// The names of the Leases that cannot be read: their removal must be recorded, too.
    unreadable: BTreeMap<Uid, Arc<str>>,
}

impl Heartbeats {
    /// Records `after`; returns whether that counts as a report of the kubelet. `synced`: the Leases had been listed
    /// before, so a Lease that is not in the cache was just created.
    pub(super) fn record_lease(
        &mut self,
        before: Option<&NodeLease>,
        after: &NodeLease,
        synced: bool,
        now: Mono,
    ) -> bool {
        let moved = match before {
            Some(before) => before.renew_time != after.renew_time || before.uid != after.uid,
            None => synced,
        };
        let initial = Heartbeat::initial(after.duration);
        let heartbeat = self.heartbeats.entry(Arc::clone(&after.name)).or_insert(initial);
        let was_unreadable = self.unreadable.remove(&after.uid).is_some();
        (heartbeat.deleted_at, heartbeat.renew_time, heartbeat.duration) = (None, after.renew_time, after.duration);
        if moved {
            heartbeat.renewed_at = Some(now);
        }
        let pods_bound_before = match before.filter(|before| before.uid == after.uid) {
            Some(before) => Some(i64::MAX).filter(|_| !is_next_renewal(before, after)),
            None if was_unreadable => Some(i64::MAX),
            // A kubelet that registers has a Lease ten seconds later, and in the meantime it may have started again.
            None => Some(after.created),
        };
        if moved && let Some(pods_bound_before) = pods_bound_before {
            heartbeat.started = Some(StartSign { seen_at: now, pods_bound_before });
        }
        moved
    }

    /// Records a Lease that cannot be read. A kubelet may have written it, so it counts as renewed.
    pub(super) fn record_unreadable(&mut self, uid: &Uid, name: &Arc<str>, now: Mono) {
        let initial = Heartbeat::initial(lease_duration(None));
        let started = Some(StartSign { seen_at: now, pods_bound_before: i64::MAX });
        let heartbeat = Heartbeat { renewed_at: Some(now), started, ..initial };
        self.heartbeats.insert(Arc::clone(name), heartbeat);
        self.unreadable.insert(uid.clone(), Arc::clone(name));
    }

    /// Records a Lease that was removed between a watch and the list after it: a kubelet may have renewed it before,
    /// and unknown does not count as unreachable. `name`: if it could be read.
    pub(super) fn record_missed_renewal(&mut self, uid: &Uid, name: Option<Arc<str>>, now: Mono) {
        let name = name.or_else(|| self.unreadable.get(uid).cloned());
        if let Some(heartbeat) = name.and_then(|name| self.heartbeats.get_mut(&name)) {
            heartbeat.renewed_at = Some(now);
        }
    }

    pub(super) fn record_deleted(&mut self, name: &str, now: Mono) {
        if let Some(heartbeat) = self.heartbeats.get_mut(name) {
            (heartbeat.deleted_at, heartbeat.renew_time) = (Some(now), None);
        }
    }

    /// Records the removal of an unreadable Lease; returns its node's name.
    pub(super) fn record_unreadable_deleted(&mut self, uid: &Uid, now: Mono) -> Option<Arc<str>> {
        let name = self.unreadable.remove(uid)?;
        self.record_deleted(&name, now);
        Some(name)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Heartbeat> {
        self.heartbeats.get(name)
    }

    /// Drops old records of deleted Leases. That of a `missing` node is kept: after its quarantine, however long, it
    /// is read whether the Lease was renewed.
    pub(super) fn prune(&mut self, now: Mono, missing: impl Fn(&str) -> bool) {
        let keep =
            |heartbeat: &Heartbeat| heartbeat.deleted_at.is_none_or(|deleted_at| now.since(deleted_at) < KEEP_DELETED);
        self.heartbeats.retain(|name, heartbeat| keep(heartbeat) || missing(name));
    }
}
