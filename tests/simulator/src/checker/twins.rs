//! S3: two worlds that look the same are treated the same.
//!
//! A tape holds what could be seen of a cluster (every request that was executed,
//! with its answer's code and all that it changed) and what the processes under
//! test sent. Of two runs with equal tapes up to a moment the acts up to it are
//! equal; if the first difference is an act, its sender knew what it cannot know.

use std::time::Duration;

use super::{Checker, State};
use crate::api::ObservedChange;

/// Something that was seen or done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub at: Duration,
    /// Whether a process under test did it; otherwise everybody could see it.
    pub act: bool,
    /// What, for people.
    pub what: String,
    /// Bodies and changed objects, as a number.
    pub sum: u64,
}

/// Bytes as a number.
pub(super) fn sum(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().copied().flatten();
    bytes.fold(0xCBF2_9CE4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}

impl Checker {
    /// From now on what is seen and done is kept: few runs are compared, and each would pay for it.
    pub(crate) fn keeps_tape(&self) {
        self.state.lock().keeps_tape = true;
    }
}

impl State {
    pub(super) fn acted(
        &mut self,
        at: Duration,
        caller: &str,
        method: &http::Method,
        path: &str,
        body: &[u8],
    ) {
        if self.keeps_tape && self.healed.is_none() {
            let what = format!("{caller} sends {method} {path}");
            self.tape.push(Moment { at, act: true, what, sum: sum(&[body]) });
        }
    }

    /// What a request changes follows from what was there, which is on the tape
    /// before it, and from its body.
    pub(super) fn record_on_tape(
        &mut self,
        at: Duration,
        request: &str,
        body: &[u8],
        changes: &[ObservedChange],
    ) {
        if self.keeps_tape && self.healed.is_none() {
            let revision = changes.last().map_or(0, |change| change.revision).to_le_bytes();
            let what = format!("executed: {request}");
            self.tape.push(Moment { at, act: false, what, sum: sum(&[body, &revision]) });
        }
    }
}

/// The first moment at which two tapes differ, with its number.
#[must_use]
pub fn first_difference<'a>(
    one: &'a [Moment],
    other: &'a [Moment],
) -> Option<(usize, Option<&'a Moment>, Option<&'a Moment>)> {
    let length = one.len().max(other.len());
    let differ = (0..length).find(|at| one.get(*at) != other.get(*at))?;
    Some((differ, one.get(differ), other.get(differ)))
}
