//! S3: pod-safety acts the same way in two worlds that it cannot tell apart.
//!
//! A tape holds what could be observed of a cluster (every executed request, with its answer's code and all its
//! changes) and what the processes under test sent. Of two runs whose tapes are equal up to a moment, the acts up to
//! that moment must be equal; if the first difference is an act, its sender used information that it cannot have.

use std::time::Duration;

use super::{Checker, State};
use crate::api::ObservedChange;

/// An observation or an act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub at: Duration,
    /// Whether a process under test did it; otherwise it could be observed by all.
    pub act: bool,
    /// A description for messages.
    pub what: String,
    /// A hash of bodies and changed objects.
    pub sum: u64,
}

/// A hash of bytes.
pub(super) fn sum(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().copied().flatten();
    bytes.fold(0xCBF2_9CE4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}

impl Checker {
    /// Records observations and acts from now on: few runs are compared, and the record costs time.
    pub(crate) fn keeps_tape(&self) {
        self.state.lock().keeps_tape = true;
    }
}

impl State {
    pub(super) fn acted(&mut self, at: Duration, caller: &str, method: &http::Method, path: &str, body: &[u8]) {
        if self.keeps_tape && self.healed.is_none() {
            let what = format!("{caller} sends {method} {path}");
            self.tape.push(Moment { at, act: true, what, sum: sum(&[body]) });
        }
    }

    /// The changes of a request follow from the state before it, which is on the tape, and from its body.
    pub(super) fn record_on_tape(&mut self, at: Duration, request: &str, body: &[u8], changes: &[ObservedChange]) {
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
