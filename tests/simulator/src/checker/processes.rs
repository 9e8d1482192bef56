//! The record of which processes run where. It is the ground truth: no API object is read for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::audience::{self, Tone};
use super::{Checker, Invariant, State};

/// One process of one pod.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    /// `namespace/name`: at most one process may have it.
    pub(crate) identity: String,
    pub(crate) uid: String,
    pub(crate) node: Arc<str>,
    pub(crate) boot: u32,
    pub(crate) started: Duration,
    /// A person deleted its Node while it ran, its kubelet renewed no Lease for a whole quarantine, and its pod was
    /// removed for that reason: by deleting the Node, the person vouched for the machine. Or its kubelet started from
    /// an outdated list of pods, and started it when its pod was gone. docs/proof.md names both cases.
    pub(crate) vouched_for: bool,
    /// The volumes that another holder may write to, after a false report that could not be detected, or because
    /// upstream attached them twice. That excuses no other pod of its name.
    pub(crate) relieved: BTreeSet<String>,
    /// A person force deleted its pod.
    pub(crate) forced: bool,
}

/// The processes that can write: running, on machines that have power. One on a frozen machine counts, because the
/// machine may thaw.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    running: BTreeMap<u64, Process>,
    next: u64,
}

impl Process {
    /// Whether others may write to this volume although this process does.
    pub(super) fn may_be_displaced(&self, volume: &str) -> bool {
        self.vouched_for || self.relieved.contains(volume)
    }
}

impl Ledger {
    pub(super) fn running(&self) -> impl Iterator<Item = &Process> {
        self.running.values()
    }

    pub(super) fn of_uid<'a>(&'a mut self, uid: &'a str) -> impl Iterator<Item = &'a mut Process> {
        self.running.values_mut().filter(move |process| process.uid == uid)
    }

    /// Others may write to this volume of these processes.
    pub(super) fn relieve(&mut self, uid: &str, volume: &str) {
        for process in self.of_uid(uid) {
            process.relieved.insert(volume.to_owned());
        }
    }
}

/// docs/assumptions.md: others-force-nothing
const RELIEVED_IN_VAIN: &str = "a person did not wait, and the volume's owner was relieved in vain: S1 not owed";
/// docs/assumptions.md: detaches-only-what-is-safe
const ATTACHED_TWICE: &str = "limit: a person did not wait, and upstream had attached the volume twice: S1 not owed";

/// Why `new` may start although `other` of its name runs. An excuse needs a pod that was removed: one that is still
/// there excuses nothing.
/// docs/assumptions.md: others-force-nothing
fn excuse(state: &State, other: &Process, new: &Process) -> Option<&'static str> {
    if other.vouched_for && state.acts.is_removed(&other.uid) {
        return Some("person vouched for a machine that still ran: S1 not owed");
    }
    if !other.forced || !state.acts.is_removed_by_others(&other.uid) {
        return None;
    }
    if other.node == new.node {
        // A volume excludes other nodes, not other pods of the same node.
        return Some("a person did not wait for a process on the same node: S1 not owed");
    }
    // Each of its volumes must exclude one of the two.
    let mut volumes = state.storage.volumes_of(&new.identity).peekable();
    volumes.peek()?;
    let mut twice = false;
    let excused = volumes.all(|volume| {
        // The volume guard had valid evidence.
        let relieved = other.relieved.contains(volume);
        // A detachment that was refused leaves the volume there, and excludes no other process from it.
        twice |= !relieved;
        relieved || state.storage.remained_on(volume, &new.node)
    });
    excused.then_some(if twice { ATTACHED_TWICE } else { RELIEVED_IN_VAIN })
}

impl Checker {
    /// A process starts. Returns its number.
    pub(crate) fn process_starts(&self, identity: &str, uid: &str, node: &Arc<str>, boot: u32) -> u64 {
        let (now, mut state) = self.now_and_state();
        let (identity, uid, node) = (identity.to_owned(), uid.to_owned(), Arc::clone(node));
        // docs/assumptions.md: lists-the-present
        // kubernetes#59848: a kubelet that starts lists its pods from an API server that lags. No evidence about the
        // old process can prevent a new one.
        let from_the_past = state.acts.is_removed(&uid);
        let vouched_for = from_the_past;
        let relieved = BTreeSet::new();
        let new = Process { identity, uid, node, boot, started: now, vouched_for, relieved, forced: false };
        let others: Vec<_> =
            state.processes.running.values().filter(|other| other.identity == new.identity).cloned().collect();
        state.announce(
            now,
            Tone::Other,
            format!("process of {} ({:.8}) starts on {}", new.identity, new.uid, new.node),
            format!("{} starts on {}", audience::pod(&new.identity), new.node),
        );
        if state.storage.volumes_of(&new.identity).count() > 1 {
            state.probe("a process started with two volumes");
        }
        if from_the_past {
            state.probe("limit: a kubelet began with the past and started a pod that was removed");
        }
        for other in others.into_iter().filter(|_| !from_the_past) {
            if let Some(excuse) = excuse(&state, &other, &new) {
                state.probe(excuse);
                if excuse == ATTACHED_TWICE {
                    state.relieve_of_all(&other);
                }
                continue;
            }
            let what = format!(
                "{} runs on {} (boot {}, pod {:.8}, since {:?}) and now on {} (boot {}, pod {:.8}) too",
                new.identity, other.node, other.boot, other.uid, other.started, new.node, new.boot, new.uid
            );
            state.violated_of(now, Invariant::AtMostOne, Some(&new.identity), what);
        }
        let ledger = &mut state.processes;
        ledger.next += 1;
        let number = ledger.next;
        ledger.running.insert(number, new);
        number
    }

    /// A person force deletes the pod with this UID.
    pub(crate) fn is_forced(&self, uid: &str) {
        self.state.lock().processes.of_uid(uid).for_each(|process| process.forced = true);
    }

    pub(crate) fn process_ends(&self, number: u64, why: &str) {
        let (now, mut state) = self.now_and_state();
        if let Some(process) = state.processes.running.remove(&number) {
            let Process { identity, uid, node, .. } = process;
            let text = format!("{} ends on {node}: {why}", audience::pod(&identity));
            let exact = format!("process of {identity} ({uid:.8}) on {node} ends: {why}");
            state.announce(now, Tone::Other, exact, text);
        }
    }

    /// All processes, in the order of their start.
    pub(crate) fn processes(&self) -> Vec<Process> {
        self.state.lock().processes.running.values().cloned().collect()
    }

    /// The number of a pod's process in this boot of a machine.
    pub(crate) fn process_of(&self, node: &str, uid: &str, boot: u32) -> Option<u64> {
        let state = self.state.lock();
        let is_it = |process: &Process| process.uid == uid && process.boot == boot && &*process.node == node;
        state.processes.running.iter().find(|(_, process)| is_it(process)).map(|(number, _)| *number)
    }

    /// The processes of a machine, by number.
    pub(crate) fn processes_on(&self, node: &str) -> Vec<(u64, Process)> {
        let state = self.state.lock();
        let on = state.processes.running.iter().filter(|(_, process)| &*process.node == node);
        on.map(|(number, process)| (*number, process.clone())).collect()
    }
}

impl State {
    /// Others may write to each volume of this process.
    fn relieve_of_all(&mut self, process: &Process) {
        let volumes: Vec<String> = self.storage.volumes_of(&process.identity).map(str::to_owned).collect();
        volumes.iter().for_each(|volume| self.processes.relieve(&process.uid, volume));
    }
}
