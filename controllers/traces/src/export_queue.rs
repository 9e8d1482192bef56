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
pub(super) struct ExportQueue {
    /// What was recorded before was told by the leader before.
    since: Timestamp,
    exported: BTreeSet<Id>,
    waiting: BTreeSet<Id>,
}

/// What is to be exported now.
#[derive(Debug)]
pub(super) struct Batch {
    /// The spans of the next request.
    pub(super) spans: Vec<Span>,
    /// How many waited, and can be made no more: their records are gone.
    pub(super) dropped: usize,
}

fn id(span: &Span) -> Id {
    (span.trace, span.id)
}

impl ExportQueue {
    pub(super) const fn new(since: Timestamp) -> Self {
        Self { since, exported: BTreeSet::new(), waiting: BTreeSet::new() }
    }

    pub(super) fn next_batch(&mut self, incidents: &[Incident<'_>]) -> Batch {
        let traces: BTreeSet<TraceId> = incidents.iter().map(Incident::trace).collect();
        self.exported.retain(|(trace, _)| traces.contains(trace));
        let recent =
            incidents.iter().filter(|incident| incident.ended_at().is_none_or(|over| over >= self.since));
        let mut due: Vec<Span> = recent.flat_map(|incident| self.due_spans_of(incident)).collect();
        let waits: BTreeSet<Id> = due.iter().map(id).collect();
        let lost = self.waiting.difference(&waits).count();
        self.waiting = waits;
        due.truncate(BATCH);
        Batch { spans: due, dropped: lost }
    }

    /// A span may end before anybody knows that there is an incident.
    fn due_spans_of(&self, incident: &Incident<'_>) -> Vec<Span> {
        let opened = incident.opened_at().unwrap_or(Timestamp::MIN);
        let mut spans = spans(incident);
        spans.retain(|span| span.end.max(opened) >= self.since && !self.exported.contains(&id(span)));
        spans
    }

    /// These were taken, or never will be.
    pub(super) fn mark_done(&mut self, spans: &[Span]) {
        for span in spans {
            self.waiting.remove(&id(span));
            self.exported.insert(id(span));
        }
    }
}
