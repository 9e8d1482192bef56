//! The disks: each volume records which pod wrote to it. In worlds with attachments it also records where it was
//! attached while others wrote.
//!
//! A process writes while it runs, cut off or not; one on a frozen machine writes again when the machine thaws. Two
//! processes that write in turns have corrupted the data.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::processes::Process;
use super::{Checker, Invariant, State};

/// Each pod of the `StatefulSet` has a volume with its own name, unless other volumes were recorded for it.
const WITH_VOLUME: &str = "default/data-";

#[derive(Debug, Default)]
struct Volume {
    /// The node of its process.
    node: String,
    /// The pod whose process wrote last.
    writer: String,
    /// Pods that another pod has displaced.
    displaced: BTreeSet<String>,
    /// Displaced pods that wrote again, each with the pod that had written since: each pair is reported once.
    reported: BTreeSet<(String, String)>,
}

#[derive(Debug, Default)]
pub(super) struct Storage {
    /// Volumes are guarded: a Lease names the node that may write.
    pub(super) guarded: bool,
    /// The storage refuses writes from any node but the one where a volume was attached last.
    excludes: bool,
    /// Each volume is ReadWriteOncePod.
    pub(super) one_pod: bool,
    volumes: BTreeMap<String, Volume>,
    /// The volumes of pods that have others than the one with their own name.
    of_pods: BTreeMap<String, Vec<String>>,
    /// Where each volume was attached last, and when.
    attached: BTreeMap<String, (String, Duration)>,
    /// Volumes and nodes whose attachment remained when upstream attached the volume to another node as well.
    remained: BTreeSet<(String, String)>,
}

impl Storage {
    /// The volumes of a process.
    pub(super) fn volumes_of<'a>(&'a self, identity: &'a str) -> impl Iterator<Item = &'a str> {
        let recorded = self.of_pods.get(identity);
        let named = recorded.is_none() && identity.starts_with(WITH_VOLUME);
        recorded.into_iter().flatten().map(String::as_str).chain(named.then_some(identity))
    }

    /// Whether a process has this volume.
    pub(super) fn holds(&self, process: &Process, volume: &str) -> bool {
        self.volumes_of(&process.identity).any(|one| one == volume)
    }

    /// Whether upstream has attached this volume to another node without detaching it from this one.
    pub(super) fn remained_on(&self, volume: &str, node: &str) -> bool {
        self.remained.contains(&(volume.to_owned(), node.to_owned()))
    }

    fn shuts_out(&self, volume: &str, process: &Process) -> bool {
        self.excludes && self.attached.get(volume).is_some_and(|(node, _)| *node != *process.node)
    }
}

impl Checker {
    /// Volumes are guarded; the storage itself may exclude all other nodes, and each volume may be ReadWriteOncePod.
    pub(crate) fn volumes_are_guarded(&self, excludes: bool, one_pod: bool) {
        let storage = &mut self.state.lock().storage;
        (storage.guarded, storage.excludes, storage.one_pod) = (true, excludes, one_pod);
    }

    /// A pod will be created with these volumes.
    pub(crate) fn has_volumes(&self, identity: &str, volumes: Vec<String>) {
        self.state.lock().storage.of_pods.insert(identity.to_owned(), volumes);
    }

    /// The names of the volumes of a process.
    pub(crate) fn volumes_of(&self, identity: &str) -> Vec<String> {
        let state = self.state.lock();
        let volumes = state.storage.volumes_of(identity);
        volumes.filter_map(|volume| volume.rsplit('/').next()).map(str::to_owned).collect()
    }

    /// A volume was attached to a node: no process on another node may write to it.
    pub(crate) fn volume_is_attached(&self, identity: &str, node: &str) {
        let (now, mut state) = self.now_and_state();
        let before = state.storage.attached.insert(identity.to_owned(), (node.to_owned(), now));
        if before.is_some_and(|(before, _)| before != node) {
            state.probe("a volume was attached to its next node");
        }
        let storage = &state.storage;
        let elsewhere = |process: &&Process| storage.holds(process, identity) && *process.node != *node;
        let others: Vec<_> = state.processes.running().filter(elsewhere).cloned().collect();
        for process in others {
            if process.may_be_displaced(identity) {
                state.probe("person vouched for a machine that still had a volume: S8 not owed");
                continue;
            }
            if state.storage.excludes {
                state.probe("the storage shut a writer out");
                continue;
            }
            let what = format!(
                "the volume of {identity} was attached to {node}, and {:.8} on {} writes to it",
                process.uid, process.node
            );
            state.violated(now, Invariant::Storage, what);
        }
    }

    /// The attachment of this volume to this node remains while another one is made, or it is removed.
    pub(crate) fn attachment_remains(&self, identity: &str, node: &str, remains: bool) {
        let place = (identity.to_owned(), node.to_owned());
        let remained = &mut self.state.lock().storage.remained;
        let _changed = if remains { remained.insert(place) } else { remained.remove(&place) };
    }

    /// A person added the out-of-service taint while no process under test led, without the gate: a process on the node
    /// whose pod was force deleted may be displaced (docs/volume-guard.md names it).
    /// docs/assumptions.md: detaches-only-what-is-safe
    pub(crate) fn record_unguarded_detach(&self, identity: &str, node: &str) {
        let mut state = self.state.lock();
        let forced = |process: &&Process| {
            state.storage.holds(process, identity)
                && *process.node == *node
                && process.forced
                && state.acts.is_removed_by_others(&process.uid)
        };
        let forced: Vec<_> = state.processes.running().filter(forced).map(|one| one.uid.clone()).collect();
        for uid in forced {
            state.probe("limit: a person detached by force, and no process of ours was there");
            state.processes.relieve(&uid, identity);
        }
    }

    /// Since when a volume is attached to this node.
    pub(crate) fn attached_since(&self, identity: &str, node: &str) -> Option<Duration> {
        let state = self.state.lock();
        state.storage.attached.get(identity).filter(|(at, _)| at == node).map(|(_, since)| *since)
    }

    /// Every process with a volume writes to it, except those on frozen machines.
    pub(crate) fn volumes_are_written(&self, is_frozen: impl Fn(&str) -> bool) {
        let (now, mut state) = self.now_and_state();
        let awake = state.processes.running().filter(|process| !is_frozen(&process.node));
        let writers: Vec<(Process, String)> = awake
            .flat_map(|process| {
                let volumes = state.storage.volumes_of(&process.identity);
                volumes.map(|volume| (process.clone(), volume.to_owned()))
            })
            .collect();
        for (process, volume) in writers {
            state.writes(now, process, &volume);
        }
    }
}

impl State {
    /// A process writes to one of its volumes.
    fn writes(&mut self, now: Duration, process: Process, identity: &str) {
        if self.storage.shuts_out(identity, &process) {
            self.probe("the storage refused a write");
            return;
        }
        let may_share = self.storage.guarded && !self.storage.one_pod;
        let displaced = process.may_be_displaced(identity);
        let volume = self.storage.volumes.entry(identity.to_owned()).or_default();
        if volume.writer == process.uid {
            return;
        }
        // A pod that was released while it ran, and had not written before, does not count as the next writer.
        let is_late = displaced && !volume.writer.is_empty();
        if !is_late && !volume.displaced.contains(&process.uid) {
            let before = std::mem::replace(&mut volume.writer, process.uid);
            volume.node = process.node.to_string();
            volume.displaced.insert(before);
            return self.probe("a volume got its next writer");
        }
        if !volume.reported.insert((process.uid.clone(), volume.writer.clone())) {
            return;
        }
        if may_share && volume.node == *process.node {
            self.probe("two pods of one node share a volume");
        } else if displaced {
            self.probe("person vouched for a machine that still wrote: S8 not owed");
        } else {
            let what = format!(
                "{:.8} on {} wrote to the volume {identity}, which {:.8} had written to since",
                process.uid, process.node, volume.writer
            );
            self.violated(now, Invariant::Storage, what);
        }
    }
}
