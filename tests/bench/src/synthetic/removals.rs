//! What was written to pods: which were called Failed, and which are gone. Of each pod a byte is kept, and of each change eight.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::watch;

/// One change of a pod, as a watch tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) pod: usize,
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
    /// The change that called the pod Failed, while it is there.
    failed: BTreeMap<usize, usize>,
    log: Vec<(u32, bool)>,
}

pub(crate) struct Removals {
    state: Mutex<State>,
    /// How many changes there were.
    count: watch::Sender<usize>,
}

impl Removals {
    pub(crate) fn new(pods: usize) -> Self {
        let state = State { gone: vec![false; pods], ..State::default() };
        Self { state: Mutex::new(state), count: watch::Sender::new(0) }
    }

    pub(crate) fn is_gone(&self, pod: usize) -> bool {
        self.state.lock().gone[pod]
    }

    /// The number of the change that called this pod Failed.
    pub(crate) fn failed(&self, pod: usize) -> Option<usize> {
        self.state.lock().failed.get(&pod).copied()
    }

    /// A change by its number. The first is 1.
    pub(crate) fn change(&self, number: usize) -> Option<Change> {
        let state = self.state.lock();
        state.log.get(number - 1).map(|(pod, removed)| Change { pod: *pod as usize, removed: *removed })
    }

    pub(crate) fn count(&self) -> usize {
        *self.count.borrow()
    }

    pub(crate) fn follow(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// Writes to a pod whose last change is the one of this number, if it had one. Gives back the number of the new change.
    pub(crate) fn write(&self, change: Change, after: Option<usize>) -> Result<usize, Refused> {
        let Change { pod, removed } = change;
        let mut state = self.state.lock();
        match state.gone.get(pod) {
            Some(false) => {}
            _ => return Err(Refused::NotFound),
        }
        if state.failed.get(&pod).copied() != after {
            return Err(Refused::Conflict);
        }
        state.log.push((u32::try_from(pod).unwrap_or(u32::MAX), removed));
        let number = state.log.len();
        if removed {
            state.gone[pod] = true;
            state.failed.remove(&pod);
        } else {
            state.failed.insert(pod, number);
        }
        self.count.send_replace(number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_written_by_its_version_and_removed_once() {
        let removals = Removals::new(2);
        let (fail, remove) = (Change { pod: 1, removed: false }, Change { pod: 1, removed: true });
        assert_eq!(removals.write(remove, Some(9)), Err(Refused::Conflict));
        assert_eq!(removals.write(fail, None), Ok(1));
        assert_eq!(removals.write(remove, None), Err(Refused::Conflict), "it has another version now");
        assert_eq!(removals.write(remove, Some(1)), Ok(2));
        assert_eq!(removals.write(remove, Some(2)), Err(Refused::NotFound));
        assert_eq!(removals.write(Change { pod: 2, removed: true }, None), Err(Refused::NotFound));
        assert_eq!(
            [removals.change(1), removals.change(2), removals.change(3)],
            [Some(fail), Some(remove), None]
        );
        assert_eq!((removals.is_gone(0), removals.is_gone(1), removals.count()), (false, true, 2));
    }
}
