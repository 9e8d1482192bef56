//! The disks: each volume knows who wrote to it, and cannot be told otherwise.
//!
//! A process writes while it runs, cut off or not; one on a frozen machine writes
//! again when that thaws. Two that write in turns have broken what is stored.

use std::collections::{BTreeMap, BTreeSet};

use super::{Checker, Invariant};

/// The pods of the `StatefulSet` have a volume each.
const WITH_VOLUME: &str = "default/data-";

#[derive(Debug, Default)]
struct Volume {
    /// The pod whose process wrote last.
    writer: String,
    /// Pods whose place another has taken.
    displaced: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(super) struct Storage(BTreeMap<String, Volume>);

impl Checker {
    /// Every process with a volume writes to it, but for those on frozen machines.
    pub(crate) fn volumes_are_written(&self, is_frozen: impl Fn(&str) -> bool) {
        let now = self.now();
        let mut state = self.state.lock();
        let writers: Vec<_> = state
            .processes
            .running()
            .filter(|process| process.identity.starts_with(WITH_VOLUME) && !is_frozen(&process.node))
            .cloned()
            .collect();
        for process in writers {
            let volume = state.storage.0.entry(process.identity.clone()).or_default();
            if volume.writer == process.uid {
                continue;
            }
            if !volume.displaced.contains(&process.uid) {
                let before = std::mem::replace(&mut volume.writer, process.uid);
                volume.displaced.insert(before);
                state.probe("a volume got its next writer");
            } else if process.vouched_for {
                state.probe("person vouched for a machine that still wrote: S8 not owed");
            } else {
                let what = format!(
                    "{:.8} on {} wrote to the volume of {}, which {:.8} had written to since",
                    process.uid, process.node, process.identity, volume.writer
                );
                state.violated(now, Invariant::Storage, what);
            }
        }
    }
}
