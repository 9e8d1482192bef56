//! How current each kind is.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Mono;
use crate::model::Kind;

/// A longer time without an event is a gap in the watch: events after it show little about the time before. Running
/// kubelets renew their Leases every ten seconds, so while one of them is connected the watch of Leases has no gap.
/// docs/assumptions.md: renews-each-quarter
pub const WATCH_GAP: Duration = Duration::from_secs(15);

/// What stops a feed, as a message for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchProblem {
    /// A stable category, for metrics.
    pub category: &'static str,
    /// The error with its causes.
    pub message: String,
}

/// The state of one kind.
#[derive(Clone, Debug, Default)]
pub struct KindState {
    /// Listed in full at least once.
    pub synced: bool,
    /// When the API server last answered for this kind, also by only opening a watch.
    pub last_contact: Option<Mono>,
    /// When it last sent an event, a bookmark, or all of a list. An opened watch alone shows nothing about any
    /// object.
    pub last_event: Option<Mono>,
    /// Since when events have come without a gap of `WATCH_GAP`.
    pub watched_since: Option<Mono>,
    /// The last error, until the API server answers again.
    pub problem: Option<WatchProblem>,
    /// The API server does not serve this kind.
    pub unserved: bool,
}

/// Why decisions may not use a kind now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantNames)]
pub enum FreshnessError {
    /// The first list is not complete.
    #[error("{} are not listed yet", kind.resource())]
    NotSynced {
        /// The kind.
        kind: Kind,
    },
    /// The API server has sent nothing for too long.
    #[error("the API server has sent nothing about {} for {}s. Nothing is decided from data that may be stale", kind.resource(), silent.as_secs())]
    Stale {
        /// The kind.
        kind: Kind,
        /// For how long.
        silent: Duration,
    },
}

#[derive(Debug, Default)]
pub(super) struct Kinds(BTreeMap<Kind, KindState>);

/// The state of a kind that is not followed.
static NOT_FOLLOWED: KindState = KindState {
    synced: false,
    last_contact: None,
    last_event: None,
    watched_since: None,
    problem: None,
    unserved: false,
};

impl Kinds {
    pub(super) fn state(&self, kind: Kind) -> &KindState {
        self.0.get(&kind).unwrap_or(&NOT_FOLLOWED)
    }

    fn state_mut(&mut self, kind: Kind) -> &mut KindState {
        self.0.entry(kind).or_default()
    }

    /// Records an answer of the API server.
    pub(super) fn record_contact(&mut self, kind: Kind, now: Mono) -> &mut KindState {
        let state = self.state_mut(kind);
        state.last_contact = Some(now);
        state.problem = None;
        state
    }

    /// Records an event, a bookmark, or the end of a list.
    pub(super) fn record_event(&mut self, kind: Kind, now: Mono) {
        let state = self.record_contact(kind, now);
        if state.last_event.is_none_or(|last| now.since(last) > WATCH_GAP) {
            state.watched_since = Some(now);
        }
        state.last_event = Some(now);
    }

    /// Since when events of this kind have come without a gap up to `now`; `None`: there is a gap now.
    pub(super) fn watched_without_gap_since(&self, kind: Kind, now: Mono) -> Option<Mono> {
        let state = self.state(kind);
        let has_gap = state.last_event.is_none_or(|last| now.since(last) > WATCH_GAP);
        if has_gap { None } else { state.watched_since }
    }

    pub(super) fn record_problem(&mut self, kind: Kind, problem: WatchProblem) {
        self.state_mut(kind).problem = Some(problem);
    }

    /// Records that the API server does not serve the kind.
    pub(super) fn mark_unserved(&mut self, kind: Kind) {
        let state = self.state_mut(kind);
        (state.unserved, state.problem) = (true, None);
    }

    /// Marks the kind as listed; returns whether this was the first list.
    pub(super) fn mark_listed(&mut self, kind: Kind, now: Mono) -> bool {
        self.record_event(kind, now);
        self.state_mut(kind).unserved = false;
        !std::mem::replace(&mut self.state_mut(kind).synced, true)
    }
}
