//! How long no copy of a pod could be reached, and how long two copies of it wrote: the effect on the users of a
//! workload, whatever the API shows.
//!
//! Measured when volumes are written, once a second, until the faults end. A copy can be reached if its machine has
//! power, is not frozen, and reaches an API server. A copy writes if its machine has power and is not frozen: being cut
//! off does not stop it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Checker, State};

/// The pods that must always run; other pods may complete.
const MEMBERS: &str = "default/data-";

/// A time in which a fact held for an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    identity: String,
    from: Duration,
    /// `None`: until the end of the measurement.
    until: Option<Duration>,
}

/// The measurements of all identities of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// The identities that could be reached at least once.
    known: Vec<String>,
    /// When none of its copies could be reached.
    away: Vec<Span>,
    /// When more than one copy wrote.
    twice: Vec<Span>,
    /// The time of the last measurement.
    measured: Duration,
}

/// The identity for which a fact held for the longest time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Longest<'a> {
    /// `namespace/name`.
    pub identity: &'a str,
    /// The total time.
    pub lasted: Duration,
    /// The fact still held at the end.
    pub goes_on: bool,
}

/// The copies of one identity at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Copies {
    reached: bool,
    writing: usize,
}

impl Presence {
    /// The identity that could not be reached for the longest time until `now`; `None`: all could always be reached.
    #[must_use]
    pub fn away(&self, now: Duration) -> Option<Longest<'_>> {
        longest(&self.away, now.min(self.measured))
    }

    /// The identity of which two copies wrote for the longest time until `now`; `None`: no identity had two.
    #[must_use]
    pub fn twice(&self, now: Duration) -> Option<Longest<'_>> {
        longest(&self.twice, now.min(self.measured))
    }

    /// How many identities could not be reached at the last measurement.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.away.iter().filter(|span| span.until.is_none()).count()
    }

    /// The end of the measurement: the end of the faults, or the last measurement before it.
    #[must_use]
    pub const fn measured(&self) -> Duration {
        self.measured
    }

    /// When the last unreachable identity could be reached again; `None`: one never could, or all always could.
    #[must_use]
    pub fn restored(&self) -> Option<Duration> {
        self.away.iter().map(|span| span.until).max_by_key(|until| until.unwrap_or(Duration::MAX)).flatten()
    }

    fn record(&mut self, now: Duration, copies: &BTreeMap<&str, Copies>) {
        self.measured = now;
        for (identity, copies) in copies {
            if copies.reached && !self.known.iter().any(|known| known == identity) {
                self.known.push((*identity).to_owned());
            }
            is_so(&mut self.twice, now, identity, copies.writing > 1);
        }
        for identity in &self.known {
            let copies = copies.get(identity.as_str()).copied().unwrap_or_default();
            is_so(&mut self.away, now, identity, !copies.reached);
            if copies.writing == 0 {
                is_so(&mut self.twice, now, identity, false);
            }
        }
    }
}

/// Records whether a fact holds for an identity now.
fn is_so(spans: &mut Vec<Span>, now: Duration, identity: &str, so: bool) {
    let open = spans.iter_mut().find(|span| span.identity == identity && span.until.is_none());
    match (open, so) {
        (None, true) => spans.push(Span { identity: identity.to_owned(), from: now, until: None }),
        (Some(span), false) => span.until = Some(now),
        (Some(_), true) | (None, false) => {}
    }
}

fn longest(spans: &[Span], now: Duration) -> Option<Longest<'_>> {
    let mut all: BTreeMap<&str, (bool, Duration)> = BTreeMap::new();
    for span in spans.iter().filter(|span| span.from < now) {
        let (goes_on, lasted) = all.entry(&span.identity).or_default();
        let until = span.until.filter(|until| *until <= now);
        *goes_on |= until.is_none();
        *lasted += until.unwrap_or(now).saturating_sub(span.from);
    }
    let (identity, (goes_on, lasted)) = all.into_iter().max_by_key(|(_, so)| *so)?;
    Some(Longest { identity, lasted, goes_on })
}

impl Checker {
    /// Measures which identities can be reached, and of which more than one copy writes.
    pub(crate) fn copies_are_counted(&self, is_frozen: impl Fn(&str) -> bool, is_cut: impl Fn(&str) -> bool) {
        let (now, mut state) = self.now_and_state();
        let State { processes, presence, healed, .. } = &mut *state;
        if healed.is_some() {
            return;
        }
        let mut copies: BTreeMap<&str, Copies> = BTreeMap::new();
        for process in processes.running().filter(|process| process.identity.starts_with(MEMBERS)) {
            let awake = !is_frozen(&process.node);
            let copies = copies.entry(&process.identity).or_default();
            copies.writing += usize::from(awake);
            copies.reached |= awake && !is_cut(&process.node);
        }
        presence.record(now, &copies);
    }

    /// All measurements so far.
    pub(crate) fn presence(&self) -> Presence {
        self.state.lock().presence.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    /// Builds the measurements of one identity, second by second: whether a copy is reached, and how many write.
    fn seen(seconds: &[(bool, usize)]) -> Presence {
        let mut presence = Presence::default();
        for (second, (reached, writing)) in (0..).zip(seconds) {
            let copies = Copies { reached: *reached, writing: *writing };
            presence.record(at(second), &BTreeMap::from([("default/data-0", copies)]));
        }
        presence
    }

    #[test]
    fn an_identity_never_present_is_not_absent() {
        assert_eq!(seen(&[(false, 0), (false, 0), (true, 1)]).away(at(9)), None);
    }

    #[test]
    fn absences_are_summed_and_reported_for_their_moment() {
        let presence = seen(&[(true, 1), (false, 1), (false, 1), (true, 2), (false, 2), (true, 1)]);
        let away = |now| presence.away(at(now)).unwrap();
        let identity = "default/data-0";
        assert_eq!(away(2), Longest { identity, lasted: at(1), goes_on: true });
        assert_eq!(away(3), Longest { identity, lasted: at(2), goes_on: false });
        assert_eq!(away(9), Longest { identity, lasted: at(3), goes_on: false });
        assert_eq!(presence.twice(at(3)), None);
        assert_eq!(presence.twice(at(9)), Some(Longest { identity, lasted: at(2), goes_on: false }));
        assert_eq!((presence.missing(), presence.restored()), (0, Some(at(5))));
    }

    #[test]
    fn an_absence_at_the_end_lasts_until_the_end() {
        let presence = seen(&[(true, 1), (false, 0), (false, 0), (false, 0)]);
        let away = presence.away(Duration::MAX).unwrap();
        assert_eq!((away.lasted, away.goes_on), (at(2), true));
        assert_eq!((presence.missing(), presence.restored()), (1, None));
    }

    #[test]
    fn the_worst_identity_is_one_that_is_still_away() {
        let span = |identity: &str, from, until: Option<u64>| Span {
            identity: identity.to_owned(),
            from: at(from),
            until: until.map(at),
        };
        let spans = [span("a", 0, Some(8)), span("b", 7, None)];
        assert_eq!(longest(&spans, at(9)).unwrap().identity, "b");
        assert_eq!(longest(&spans, at(7)).unwrap().identity, "a");
    }
}
