//! Pods whose evictions are requested by EvictionRequests.
//!
//! The condition `TargetEvicted` of a request is a hint: the pod is read next, as after every direct eviction. So a
//! phase that anyone may have written has no effect.

use std::collections::BTreeSet;
use std::time::Duration;

use pod_safety_shared::authority::operator_requests::eviction_requests::{EvictionOfPod, EvictionRequest};
use pod_safety_shared::client::ApiError;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{PodKey, Uid};
use pod_safety_shared::record::error_chain;

use super::{DrainProgress, Item, Line, State, Tone};

/// A controller that handles requests has observed one within this time.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// After this time the operator is informed that a request waits, although other requests are handled.
const LATE: Duration = Duration::from_secs(60);

/// The state of the requests of a drain.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestState {
    /// Evictions are requested.
    pub(super) are_sent: bool,
    /// A controller has observed one.
    is_answered: bool,
    /// The notice that no controller handles requests was printed.
    is_reported: bool,
    /// When they are read again, at the earliest.
    next: Option<Mono>,
}

/// What happens to a pod whose request was read.
enum NextStep {
    /// Its request remains; the message about it.
    Stays(Option<String>),
    /// It is read, and evicted directly if it exists.
    Direct(Option<String>),
    /// It stays.
    Stops(&'static str),
}

impl DrainProgress {
    /// A drain that requests evictions where that is possible.
    #[must_use]
    pub fn with_requests() -> Self {
        Self { requests: RequestState { are_sent: true, ..RequestState::default() }, ..Self::default() }
    }

    /// Whether evictions are requested; no longer if no controller handles requests, or if requests cannot be read.
    #[must_use]
    pub const fn sends_requests(&self) -> bool {
        self.requests.are_sent
    }

    /// The pods whose evictions are to be requested now.
    #[must_use]
    pub fn pods_to_request(&self, now: Mono) -> Vec<PodKey> {
        if self.requests.next.is_some_and(|next| now < next) {
            return Vec::new();
        }
        let waits = |item: &&Item| item.by_request && matches!(item.state, State::Pending(_));
        self.items.iter().filter(waits).map(|item| item.pod.clone()).collect()
    }

    /// Whether some request remains.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.items.iter().any(|item| matches!(item.state, State::Requested(..)))
    }

    /// When requests are sent or read next; `None`: none remains.
    #[must_use]
    pub fn next_request(&self, now: Mono) -> Option<Mono> {
        let waits = self.items.iter().any(|item| item.by_request && matches!(item.state, State::Pending(_)));
        (waits || self.is_requested()).then(|| self.requests.next.unwrap_or(now))
    }

    /// Requests are sent or read again at this time.
    pub fn defer_requests(&mut self, until: Mono) {
        self.requests.next = Some(until);
    }

    /// Records that a request was sent. Returns a line about it.
    pub fn record_request(&mut self, pod: &Uid, sent: &Result<(), ApiError>, only: bool, now: Mono) -> Option<Line> {
        let item = self.items.iter_mut().find(|item| item.pod.uid == *pod)?;
        let (tone, message) = match sent {
            Ok(()) => {
                item.state = State::Requested(now, false);
                (Tone::Good, "eviction requested".to_owned())
            }
            Err(error) if error.is_outcome_unknown() || error.code() == Some(429) => {
                (Tone::Attention, format!("waits: its eviction was not requested: {}", error_chain(error)))
            }
            Err(error) if only => {
                item.state = State::Stopped(false);
                (Tone::Bad, format!("not evicted: its eviction was not requested: {}", error_chain(error)))
            }
            Err(error) => {
                item.by_request = false;
                (Tone::Attention, format!("evicted directly: it was not requested: {}", error_chain(error)))
            }
        };
        item.update_message(tone, message)
    }

    /// Nothing more is requested: requested pods, and those to be requested, are evicted directly.
    pub fn switch_to_direct(&mut self, now: Mono) {
        self.requests.are_sent = false;
        for item in self.items.iter_mut().filter(|item| item.by_request) {
            item.by_request = false;
            if matches!(item.state, State::Requested(..)) {
                item.state = State::Pending(now);
            }
        }
    }

    /// Whether no controller has observed any request in time.
    #[must_use]
    pub fn is_unanswered(&self, now: Mono) -> bool {
        let late = |item: &Item| matches!(item.state, State::Requested(at, false) if now.since(at) >= ANSWERED_WITHIN);
        !self.requests.is_answered && self.items.iter().any(late)
    }

    /// Whether the notice about that is still to be printed; later calls return false.
    pub fn take_unanswered_notice(&mut self) -> bool {
        !std::mem::replace(&mut self.requests.is_reported, true)
    }

    /// Applies the requests of this requester and the Evictions that follow from them, as they were just read. Returns
    /// a line for each pod that has news.
    pub fn apply_requests(
        &mut self,
        requests: &[EvictionRequest],
        evictions: &[EvictionOfPod],
        now: Mono,
    ) -> Vec<Line> {
        let (mut lines, mut answered) = (Vec::new(), self.requests.is_answered);
        for item in &mut self.items {
            let State::Requested(at, _) = item.state else { continue };
            let uid = item.pod.uid.to_string();
            let request = requests.iter().find(|one| one.spec.target.pod.uid == uid);
            let observed = request.is_some_and(EvictionRequest::is_observed);
            answered |= observed;
            item.state = State::Requested(at, observed);
            let of_pod = |one: &&EvictionOfPod| one.spec.target.pod.uid == uid;
            let line = match next_step(request, evictions.iter().filter(of_pod), now.since(at)) {
                NextStep::Stays(message) => message.and_then(|text| item.update_message(Tone::Attention, text)),
                NextStep::Direct(text) => {
                    (item.state, item.by_request) = (State::Pending(now), false);
                    text.and_then(|text| item.update_message(Tone::Attention, text))
                }
                NextStep::Stops(why) => {
                    item.state = State::Stopped(false);
                    item.update_message(Tone::Bad, format!("not evicted: {why}"))
                }
            };
            lines.extend(line);
        }
        self.requests.is_answered = answered;
        lines
    }

    /// The pods that are gone.
    #[must_use]
    pub fn gone_pods(&self) -> BTreeSet<String> {
        let gone = self.items.iter().filter(|item| item.state == State::Gone);
        gone.map(|item| item.pod.uid.to_string()).collect()
    }
}

impl Item {
    /// A line, if its message is new.
    fn update_message(&mut self, tone: Tone, message: String) -> Option<Line> {
        let text = (message != self.last_message).then(|| format!("pod/{} {message}", self.pod));
        self.last_message = message;
        text.map(|text| Line { tone, text })
    }
}

/// What happens to a pod by its request, which was sent `for_so_long` ago.
fn next_step<'a>(
    request: Option<&EvictionRequest>,
    evictions: impl Iterator<Item = &'a EvictionOfPod>,
    elapsed: Duration,
) -> NextStep {
    let Some(request) = request else { return NextStep::Stops("its EvictionRequest was deleted") };
    if request.evicted_condition().is_some() {
        return NextStep::Direct(None);
    }
    if !request.is_active() {
        return NextStep::Stops("its EvictionRequest was withdrawn");
    }
    match request.failed_condition() {
        Some(failed) if failed.reason == "EvictionInvalid" => {
            return NextStep::Direct(Some(format!(
                "evicted directly: its EvictionRequest is invalid: {}",
                failed.message
            )));
        }
        Some(failed) if failed.reason == "NoFurtherResponder" => {
            let message = "waits: every responder is done and the pod is still there; a new Eviction follows";
            return NextStep::Stays(Some(message.to_owned()));
        }
        Some(_) | None => {}
    }
    if !request.is_observed() && elapsed >= LATE {
        let message = "waits: no controller has looked at its EvictionRequest for a minute";
        return NextStep::Stays(Some(message.to_owned()));
    }
    let mut active =
        evictions.filter(|one| one.failed_condition().is_none()).filter_map(EvictionOfPod::active_responder);
    NextStep::Stays(active.next().map(|(turn, report)| {
        let responder = turn.title();
        match (&*report.message, report.heartbeat_time) {
            ("", None) => {
                let until = report.deadline().map(|at| format!(": if it stays silent, the next is asked at {at:.0}"));
                format!("waits for {responder}, which has not reported{}", until.unwrap_or_default())
            }
            ("", Some(_)) => format!("waits for {responder}"),
            (message, _) => format!("waits for {responder}: {message}"),
        }
    }))
}
