//! L12: at the end no volume is kept without a reason, and no pod waits for a free volume.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::model::{Holder, VOLUME_LEASE_NAMESPACE};
use serde_json::Value;

use super::super::processes::Process;
use super::super::{Checker, Invariant, Shown, State};
use super::{Lease, belongs_to_holder, boot_of, is_gated, is_ready};
use crate::world::{claims_of, moment, str_at};

/// The time from the last change that a pod behind the gate, or the holder of a volume, waits for to its effect: the
/// requests, and the longest backoff of an attacher whose request was refused (122 s; seed 240170).
const FOLLOWS: Duration = Duration::from_secs(130);

/// The objects at the end of the run.
pub(crate) struct Owned<'a> {
    pub(crate) leases: &'a [Arc<Value>],
    pub(crate) pods: &'a [Arc<Value>],
    pub(crate) nodes: &'a [Arc<Value>],
    pub(crate) claims: &'a [Arc<Value>],
    pub(crate) volumes: &'a [Arc<Value>],
}

fn has_claim(pod: &Value, volume: &str) -> bool {
    claims_of(pod).iter().any(|claim| claim == volume)
}

fn named<'a>(objects: &'a [Arc<Value>], name: &str) -> Option<&'a Value> {
    objects.iter().find(|object| str_at(object, "/metadata/name") == name).map(Arc::as_ref)
}

impl Checker {
    /// Checks, when the world has been healthy for long enough, that no volume is held without a reason, and that
    /// whatever could go on has. `holds` are those that the processes under test show.
    pub(crate) fn check_owners(&self, objects: &Owned<'_>, holds: &Shown) {
        let (now, mut state) = self.now_and_state();
        let mut wrong = Vec::new();
        let is_volume_lease = |lease: &&Arc<Value>| str_at(lease, "/metadata/namespace") == VOLUME_LEASE_NAMESPACE;
        for lease in objects.leases.iter().filter(is_volume_lease) {
            let (volume, Lease { holder, held, .. }) = (str_at(lease, "/metadata/name"), Lease::from_object(lease));
            if state.owners.changed.get(volume).is_some_and(|at| now < *at + FOLLOWS) {
                continue;
            }
            match holder {
                Some(holder) => {
                    let which: Vec<&Value> = named(objects.volumes, volume).into_iter().chain([&**lease]).collect();
                    let shown = |reason: &str| holds.holds_volume(volume, &which, reason);
                    wrong.extend(state.check_holder(objects, volume, &holder, held, &shown));
                    wrong.extend(state.held_by_an_ended_life(now, objects, volume, &holder));
                }
                None if named(objects.volumes, volume).is_none() => {
                    wrong.push(format!("{volume} is gone and nobody's, and its Lease is there"));
                }
                None => {}
            }
        }
        for pod in objects.pods.iter().filter(|pod| is_gated(pod)) {
            match state.waits(now, objects, pod, holds) {
                Some(what) => wrong.push(what),
                None => state.probe("a pod waits behind the gate"),
            }
        }
        for what in wrong {
            state.violated(now, Invariant::Free, what);
        }
    }
}

impl State {
    /// Why it is wrong that a volume is still held.
    fn check_holder(
        &self,
        objects: &Owned<'_>,
        volume: &str,
        holder: &Holder,
        held: bool,
        shown: &impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let uses = |pod: &Arc<Value>| has_claim(pod, volume) && str_at(pod, "/spec/nodeName") == &*holder.node;
        let identity = format!("default/{volume}");
        let writes = |process: &Process| belongs_to_holder(process, holder) && self.storage.holds(process, &identity);
        let used = objects.pods.iter().any(uses) || self.processes.running().any(writes);
        let node = named(objects.nodes, &holder.node);
        // Where no UUID distinguishes boots, the UID of the Node must.
        let is_same = |node: &Value| {
            let same_node = *str_at(node, "/metadata/uid") == *holder.node_uid.to_string();
            holder.boot_id.is_known_same(boot_of(node)) || holder.boot_id == boot_of(node) && same_node
        };
        let well = node.is_some_and(|node| is_ready(node) && is_same(node));
        let mut wrong = Vec::new();
        if well && held && !shown("VolumeUnconfirmed") && !shown("WaitsForVolume") {
            wrong.push(format!("{volume} is {}'s, which is well, and nobody may attach it", holder.node));
        }
        if well && !used && !shown("VolumeUnconfirmed") && !shown("WaitsForVolume") {
            wrong.push(format!("{volume} is {}'s, which uses it no more", holder.node));
        }
        if !well && !shown("VolumeUnproved") {
            wrong.push(format!("{volume} is {}'s, which is not well, and nobody is told", holder.node));
        }
        wrong
    }

    /// Why it is wrong that a volume is held by a former incarnation: it is proved to have ended, and it cannot come back.
    fn held_by_an_ended_life(
        &self,
        now: Duration,
        objects: &Owned<'_>,
        volume: &str,
        holder: &Holder,
    ) -> Option<String> {
        let node = named(objects.nodes, &holder.node)?;
        let (uid, boot) = (holder.node_uid.to_string(), holder.boot_id.to_string());
        let replaced = str_at(node, "/metadata/uid") != uid && holder.boot_id.is_known_different(boot_of(node));
        let ended = self.fences.ended_for(now, &(holder.node.to_string(), uid, boot), FOLLOWS);
        (replaced && ended).then(|| format!("{volume} is held by a former life of {}, which is proved", holder.node))
    }

    /// Why it is wrong that a pod waits behind the gate.
    fn waits(&self, now: Duration, objects: &Owned<'_>, pod: &Value, holds: &Shown) -> Option<String> {
        let name = str_at(pod, "/metadata/name");
        let claims = claims_of(pod);
        let is_in_its_way = |volume: &String| {
            let lease = named(objects.leases, volume);
            let is_held = lease.is_some_and(|lease| Lease::from_object(lease).holder.is_some());
            let missing = named(objects.claims, volume).is_none() || named(objects.volumes, volume).is_none();
            let is_other = |other: &Arc<Value>| {
                has_claim(other, volume) && str_at(other, "/metadata/uid") != str_at(pod, "/metadata/uid")
            };
            is_held || missing || objects.pods.iter().any(is_other)
        };
        let changed = claims.iter().filter_map(|volume| self.owners.changed.get(volume).copied()).max();
        let last = moment(str_at(pod, "/metadata/creationTimestamp")).max(changed);
        if last.is_some_and(|at| now < at + FOLLOWS) {
            return None;
        }
        if !claims.iter().any(is_in_its_way) {
            return Some(format!("{name} waits behind the gate, and its volumes are free"));
        }
        (!holds.holds_pod(pod, "WaitsForVolume")).then(|| format!("{name} waits behind the gate, and nobody is told"))
    }
}
