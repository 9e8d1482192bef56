//! Which spans are due, and which were exported.

use std::collections::BTreeSet;

use jiff::Timestamp;
use pod_safety_otlp::{Span, SpanId, TraceId};

use super::incident::Incident;
use super::spans::spans;

/// So many spans go into one request.
const BATCH: usize = 256;

type Id = (TraceId, SpanId);

/// What one leader told. It is in memory alone: the next leader begins where this one last renewed the Lease.
#[derive(Debug)]
pub(super) struct Telling {
    /// What was recorded before was told by the leader before.
    since: Timestamp,
    exported: BTreeSet<Id>,
    waiting: BTreeSet<Id>,
}

/// What is to be exported now.
#[derive(Debug)]
pub(super) struct Due {
    /// The spans of the next request.
    pub(super) spans: Vec<Span>,
    /// How many waited, and can be made no more: their records are gone.
    pub(super) lost: usize,
}

fn id(span: &Span) -> Id {
    (span.trace, span.id)
}

impl Telling {
    pub(super) const fn new(since: Timestamp) -> Self {
        Self { since, exported: BTreeSet::new(), waiting: BTreeSet::new() }
    }

    pub(super) fn due(&mut self, incidents: &[Incident<'_>]) -> Due {
        let traces: BTreeSet<TraceId> = incidents.iter().map(Incident::trace).collect();
        self.exported.retain(|(trace, _)| traces.contains(trace));
        let recent =
            incidents.iter().filter(|incident| incident.over().is_none_or(|over| over >= self.since));
        let mut due: Vec<Span> = recent.flat_map(|incident| self.due_of(incident)).collect();
        let waits: BTreeSet<Id> = due.iter().map(id).collect();
        let lost = self.waiting.difference(&waits).count();
        self.waiting = waits;
        due.truncate(BATCH);
        Due { spans: due, lost }
    }

    /// A span may end before anybody knows that there is an incident.
    fn due_of(&self, incident: &Incident<'_>) -> Vec<Span> {
        let opened = incident.opened().unwrap_or(Timestamp::MIN);
        let mut spans = spans(incident);
        spans.retain(|span| span.end.max(opened) >= self.since && !self.exported.contains(&id(span)));
        spans
    }

    /// These were taken, or never will be.
    pub(super) fn done(&mut self, spans: &[Span]) {
        for span in spans {
            self.waiting.remove(&id(span));
            self.exported.insert(id(span));
        }
    }
}
