//! A strike: one fault that happens exactly at one call of a process, or at one event of its watches, and nowhere else.
//!
//! A reference run records every call and every event with a hash of everything before it. The same plan with a strike
//! is the same run up to there, byte for byte; the runs assert that.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use pod_safety_shared::clock::Env;
use serde::{Deserialize, Serialize};

use super::run::World;
use crate::campaign::Fault;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Occasion {
    /// A request that a process sends.
    Call,
    /// An event of a watch, as it arrives at a process.
    Event,
}

/// What happens to a process right there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "each kind says what its fields are; times are in seconds")]
pub enum Blow {
    /// It dies before it sends, and starts again.
    CrashBefore { back: u64 },
    /// It dies when the request is on the wire, and starts again.
    CrashSent { back: u64 },
    /// It dies when the answer is there and not yet read, and starts again.
    CrashAnswered { back: u64 },
    /// The request does not arrive, and the process gets no error.
    Drop,
    /// The request is applied, and its answer is lost.
    LoseAnswer,
    /// It is refused and not applied.
    Error { code: u16 },
    /// The process stops for a while with the request prepared.
    Pause { seconds: u64 },
    /// Another process, which was paused, goes on.
    Wake { replica: usize },
    /// Something else happens at this moment.
    Meanwhile(Vec<Fault>),
}

/// A moment of a run, and the fault that happens there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Strike {
    /// The place of the process.
    pub replica: usize,
    /// What is counted.
    pub occasion: Occasion,
    /// The number of the call or event, from zero, over all processes of the replica.
    pub number: usize,
    /// What happens.
    pub blow: Blow,
}

/// One moment of a run at which something can strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The place of the process.
    pub replica: usize,
    /// A call or an event.
    pub occasion: Occasion,
    /// Since the start of the run.
    pub at: Duration,
    /// Whether the call writes.
    pub write: bool,
    /// Whether it writes to a pod.
    pub of_pod: bool,
    /// Whether it writes an object with consequences: all but Events and Leases.
    pub of_weight: bool,
    /// A hash of everything before.
    pub hash: u64,
}

#[derive(Default)]
struct State {
    moments: Vec<Moment>,
    /// How many calls and events were seen, by replica.
    counts: Vec<(usize, usize)>,
    strike: Option<Strike>,
    /// The hash before the strike, when it came.
    struck: Option<u64>,
}

/// Records the moments of a run, and strikes at one of them.
#[derive(Default)]
pub(crate) struct Tape {
    runs: bool,
    env: OnceLock<Env>,
    state: Mutex<State>,
}

impl Tape {
    /// Records, and applies the strike if there is one.
    pub(super) fn new(strike: Option<Strike>) -> Self {
        Self { runs: true, env: OnceLock::new(), state: Mutex::new(State { strike, ..State::default() }) }
    }

    pub(super) fn runs(&self) -> bool {
        self.runs
    }

    /// Where what it does runs.
    pub(super) fn start(&self, env: Env) {
        drop(self.env.set(env));
    }

    pub(super) fn reached(&self, moment: Moment) -> Option<Blow> {
        let mut state = self.state.lock();
        if state.counts.len() <= moment.replica {
            state.counts.resize(moment.replica + 1, (0, 0));
        }
        let (calls, events) = state.counts.get_mut(moment.replica)?;
        let counter = if moment.occasion == Occasion::Call { calls } else { events };
        let number = *counter;
        *counter += 1;
        let here = state.strike.as_ref().is_some_and(|strike| {
            (strike.replica, strike.occasion, strike.number) == (moment.replica, moment.occasion, number)
        });
        if state.strike.is_none() && state.struck.is_none() {
            state.moments.push(moment);
        }
        if !here {
            return None;
        }
        state.struck = Some(moment.hash);
        state.strike.take().map(|strike| strike.blow)
    }

    /// Starts faults now, concurrently with the run.
    pub(super) fn inject(&self, world: &Arc<World>, faults: Vec<Fault>) {
        let Some(env) = self.env.get() else { return };
        for fault in faults {
            world.checker.note(format!("strike: {fault}"));
            let world = Arc::clone(world);
            env.spawner.spawn("strike", Box::pin(async move { world.inject(&fault).await }));
        }
    }

    /// The moments of the run, and the hash before the strike if there was one.
    pub(super) fn finish(&self) -> (Vec<Moment>, Option<u64>) {
        let mut state = self.state.lock();
        (std::mem::take(&mut state.moments), state.struck)
    }
}
