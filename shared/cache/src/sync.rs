//! How far each kind can be believed.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Mono;
use crate::model::Kind;

/// A kind that was silent for longer than this had a break: what came after it says little of what
/// was before. Living kubelets renew their Leases every ten seconds, so with one of them in touch
/// there is none on Leases.
/// docs/assumptions.md: renews-each-quarter
pub const WATCH_GAP: Duration = Duration::from_secs(15);

/// What stands in the way of a feed, in words for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchProblem {
    /// A stable class, for metrics.
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
    /// When it last sent an event, a bookmark, or all of a list. That it opened a watch says nothing of any object.
    pub last_event: Option<Mono>,
    /// Since when it has done so without a break of 15 seconds.
    pub watched_since: Option<Mono>,
    /// Why nothing comes, if nothing comes.
    pub problem: Option<WatchProblem>,
    /// The API server does not serve this kind.
    pub unserved: bool,
}

/// Why a kind cannot be believed now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantNames)]
pub enum FreshnessError {
    /// Not everything was listed yet.
    #[error("{} are not listed yet", kind.resource())]
    NotSynced {
        /// Of which kind.
        kind: Kind,
    },
    /// The API server has said nothing for too long.
    #[error("the API server has sent nothing about {} for {}s. Nothing is decided from data that may be stale", kind.resource(), silent.as_secs())]
    Stale {
        /// On which kind.
        kind: Kind,
        /// For how long.
        silent: Duration,
    },
}

#[derive(Debug, Default)]
pub(super) struct Kinds(BTreeMap<Kind, KindState>);

/// Of a kind that nobody follows.
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

    /// It answered.
    pub(super) fn record_contact(&mut self, kind: Kind, now: Mono) -> &mut KindState {
        let state = self.state_mut(kind);
        state.last_contact = Some(now);
        state.problem = None;
        state
    }

    /// It sent an event, a bookmark, or all of a list.
    pub(super) fn record_event(&mut self, kind: Kind, now: Mono) {
        let state = self.record_contact(kind, now);
        if state.last_event.is_none_or(|last| now.since(last) > WATCH_GAP) {
            state.watched_since = Some(now);
        }
        state.last_event = Some(now);
    }

    /// Since when the API server has spoken of this kind without a break up to `now`; `None`: there is a break now.
    pub(super) fn watched_without_gap_since(&self, kind: Kind, now: Mono) -> Option<Mono> {
        let state = self.state(kind);
        let has_gap = state.last_event.is_none_or(|last| now.since(last) > WATCH_GAP);
        if has_gap { None } else { state.watched_since }
    }

    pub(super) fn record_problem(&mut self, kind: Kind, trouble: WatchProblem) {
        self.state_mut(kind).problem = Some(trouble);
    }

    /// The API server does not serve it.
    pub(super) fn mark_unserved(&mut self, kind: Kind) {
        let state = self.state_mut(kind);
        (state.unserved, state.problem) = (true, None);
    }

    /// Gives back whether this was the first time.
    pub(super) fn mark_listed(&mut self, kind: Kind, now: Mono) -> bool {
        self.record_event(kind, now);
        self.state_mut(kind).unserved = false;
        !std::mem::replace(&mut self.state_mut(kind).synced, true)
    }
}
