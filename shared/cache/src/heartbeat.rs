//! When each kubelet was last seen to renew its Lease, by our own clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use jiff::Timestamp;

use crate::clock::Mono;
use crate::model::{NodeLease, Uid, lease_duration};

/// How long the record of a deleted Lease is kept where its node is not missed: a Lease may go before its Node does.
/// docs/assumptions.md: lease-goes-after-its-node
pub(super) const KEEP_DELETED: Duration = Duration::from_secs(600);

/// What is known of one kubelet's heartbeat.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// When we saw the Lease renewed, or appear anew, or may have missed that.
    /// `None`: it has not moved since we began to look, which says nothing about
    /// before.
    pub renewed_at: Option<Mono>,
    /// When we saw the Lease go.
    pub deleted_at: Option<Mono>,
    /// How long its kubelet promises to be heard again within.
    pub duration: Duration,
    /// Its `renewTime`, if it is there and says so: compared for change, never with our time.
    pub renew_time: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    /// Each renewal looks here: by a hash, for of a hundred thousand names a tree compares seventeen.
    heartbeats: IndexMap<Arc<str>, Heartbeat>,
    /// Whose the Leases are that cannot be read: their end must be seen too.
    unreadable: BTreeMap<Uid, Arc<str>>,
}

impl Heartbeats {
    /// Notes `after`; gives back whether it is a sign of life. `synced`: the
    /// Leases had been listed before, so one that is new to us was just made.
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
        let initial =
            Heartbeat { renewed_at: None, deleted_at: None, duration: after.duration, renew_time: None };
        let heartbeat = self.heartbeats.entry(Arc::clone(&after.name)).or_insert(initial);
        self.unreadable.remove(&after.uid);
        (heartbeat.deleted_at, heartbeat.renew_time, heartbeat.duration) =
            (None, after.renew_time, after.duration);
        if moved {
            heartbeat.renewed_at = Some(now);
        }
        moved
    }

    /// A Lease that cannot be read was written, perhaps by a kubelet: unknown is
    /// not absent.
    pub(super) fn record_unreadable(&mut self, uid: &Uid, name: &Arc<str>, now: Mono) {
        let duration = lease_duration(None);
        let heartbeat = Heartbeat { renewed_at: Some(now), deleted_at: None, duration, renew_time: None };
        self.heartbeats.insert(Arc::clone(name), heartbeat);
        self.unreadable.insert(uid.clone(), Arc::clone(name));
    }

    /// A Lease went between a watch and the list after it: a kubelet may have
    /// renewed it before, and unknown is not silent. `name`: if it could be read.
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

    /// The end of a Lease that could not be read; gives back whose it was.
    pub(super) fn record_unreadable_deleted(&mut self, uid: &Uid, now: Mono) -> Option<Arc<str>> {
        let name = self.unreadable.remove(uid)?;
        self.record_deleted(&name, now);
        Some(name)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Heartbeat> {
        self.heartbeats.get(name)
    }

    /// Of a node that is `missed` it is asked a quarantine later whether its Lease was renewed, however long that is.
    pub(super) fn prune(&mut self, now: Mono, missed: impl Fn(&str) -> bool) {
        let keep = |beat: &Heartbeat| beat.deleted_at.is_none_or(|gone| now.since(gone) < KEEP_DELETED);
        self.heartbeats.retain(|name, beat| keep(beat) || missed(name));
    }
}
