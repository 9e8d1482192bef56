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
pub(super) const KEEP_GONE: Duration = Duration::from_secs(600);

/// What is known of one kubelet's heartbeat.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// When we saw the Lease renewed, or appear anew, or may have missed that.
    /// `None`: it has not moved since we began to look, which says nothing about
    /// before.
    pub renewed_at: Option<Mono>,
    /// When we saw the Lease go.
    pub gone_at: Option<Mono>,
    /// How long its kubelet promises to be heard again within.
    pub duration: Duration,
    /// Its `renewTime`, if it is there and says so: compared for change, never with our time.
    pub renewed: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    /// Each renewal looks here: by a hash, for of a hundred thousand names a tree compares seventeen.
    beats: IndexMap<Arc<str>, Heartbeat>,
    /// Whose the Leases are that cannot be read: their end must be seen too.
    unreadable: BTreeMap<Uid, Arc<str>>,
}

impl Heartbeats {
    /// Notes `after`; gives back whether it is a sign of life. `synced`: the
    /// Leases had been listed before, so one that is new to us was just made.
    pub(super) fn applied(
        &mut self,
        before: Option<&NodeLease>,
        after: &NodeLease,
        synced: bool,
        now: Mono,
    ) -> bool {
        let moved = match before {
            Some(before) => before.renewed != after.renewed || before.uid != after.uid,
            None => synced,
        };
        let unseen = Heartbeat { renewed_at: None, gone_at: None, duration: after.duration, renewed: None };
        let beat = self.beats.entry(Arc::clone(&after.name)).or_insert(unseen);
        self.unreadable.remove(&after.uid);
        (beat.gone_at, beat.renewed, beat.duration) = (None, after.renewed, after.duration);
        if moved {
            beat.renewed_at = Some(now);
        }
        moved
    }

    /// A Lease that cannot be read was written, perhaps by a kubelet: unknown is
    /// not absent.
    pub(super) fn unreadable(&mut self, uid: &Uid, name: &Arc<str>, now: Mono) {
        let duration = lease_duration(None);
        let beat = Heartbeat { renewed_at: Some(now), gone_at: None, duration, renewed: None };
        self.beats.insert(Arc::clone(name), beat);
        self.unreadable.insert(uid.clone(), Arc::clone(name));
    }

    /// A Lease went between a watch and the list after it: a kubelet may have
    /// renewed it before, and unknown is not silent. `name`: if it could be read.
    pub(super) fn missed(&mut self, uid: &Uid, name: Option<Arc<str>>, now: Mono) {
        let name = name.or_else(|| self.unreadable.get(uid).cloned());
        if let Some(beat) = name.and_then(|name| self.beats.get_mut(&name)) {
            beat.renewed_at = Some(now);
        }
    }

    pub(super) fn gone(&mut self, name: &str, now: Mono) {
        if let Some(beat) = self.beats.get_mut(name) {
            (beat.gone_at, beat.renewed) = (Some(now), None);
        }
    }

    /// The end of a Lease that could not be read; gives back whose it was.
    pub(super) fn unreadable_gone(&mut self, uid: &Uid, now: Mono) -> Option<Arc<str>> {
        let name = self.unreadable.remove(uid)?;
        self.gone(&name, now);
        Some(name)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Heartbeat> {
        self.beats.get(name)
    }

    /// Of a node that is `missed` it is asked a quarantine later whether its Lease was renewed, however long that is.
    pub(super) fn tidy(&mut self, now: Mono, missed: impl Fn(&str) -> bool) {
        let young = |beat: &Heartbeat| beat.gone_at.is_none_or(|gone| now.since(gone) < KEEP_GONE);
        self.beats.retain(|name, beat| young(beat) || missed(name));
    }
}
