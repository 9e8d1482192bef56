//! The writes to the objects of a kind: which pods were marked Failed, which nodes Unknown, and which are removed. Needs one byte for each
//! object, and eight for each change.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::watch;

/// One change of an object, for a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) number: usize,
    pub(crate) removed: bool,
}

/// Why a write is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    NotFound,
    Conflict,
}

#[derive(Default)]
struct State {
    gone: Vec<bool>,
    /// The last change of each existing object that has one.
    changed: BTreeMap<usize, usize>,
    log: Vec<(u32, bool)>,
}

pub(crate) struct Writes {
    state: Mutex<State>,
    /// The number of changes.
    count: watch::Sender<usize>,
}

impl Writes {
    pub(crate) fn new(objects: usize) -> Self {
        let state = State { gone: vec![false; objects], ..State::default() };
        Self { state: Mutex::new(state), count: watch::Sender::new(0) }
    }

    pub(crate) fn is_gone(&self, number: usize) -> bool {
        self.state.lock().gone[number]
    }

    /// The number of the last change of this object.
    pub(crate) fn changed(&self, number: usize) -> Option<usize> {
        self.state.lock().changed.get(&number).copied()
    }

    /// A change by its number. The first is 1.
    pub(crate) fn change(&self, number: usize) -> Option<Change> {
        let state = self.state.lock();
        state.log.get(number - 1).map(|(number, removed)| Change { number: *number as usize, removed: *removed })
    }

    pub(crate) fn count(&self) -> usize {
        *self.count.borrow()
    }

    pub(crate) fn follow(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// Writes an object whose last change must be `after`. Returns the number of the new change.
    pub(crate) fn write(&self, change: Change, after: Option<usize>) -> Result<usize, Refused> {
        let Change { number, removed } = change;
        let mut state = self.state.lock();
        match state.gone.get(number) {
            Some(false) => {}
            _ => return Err(Refused::NotFound),
        }
        if state.changed.get(&number).copied() != after {
            return Err(Refused::Conflict);
        }
        state.log.push((u32::try_from(number).unwrap_or(u32::MAX), removed));
        let change = state.log.len();
        if removed {
            state.gone[number] = true;
            state.changed.remove(&number);
        } else {
            state.changed.insert(number, change);
        }
        self.count.send_replace(change);
        Ok(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_written_by_its_version_and_removed_once() {
        let writes = Writes::new(2);
        let (fail, remove) = (Change { number: 1, removed: false }, Change { number: 1, removed: true });
        assert_eq!(writes.write(remove, Some(9)), Err(Refused::Conflict));
        assert_eq!(writes.write(fail, None), Ok(1));
        assert_eq!(writes.write(remove, None), Err(Refused::Conflict), "it has another version now");
        assert_eq!(writes.write(remove, Some(1)), Ok(2));
        assert_eq!(writes.write(remove, Some(2)), Err(Refused::NotFound));
        assert_eq!(writes.write(Change { number: 2, removed: true }, None), Err(Refused::NotFound));
        assert_eq!([writes.change(1), writes.change(2), writes.change(3)], [Some(fail), Some(remove), None]);
        assert_eq!((writes.is_gone(0), writes.is_gone(1), writes.count()), (false, true, 2));
    }
}
