//! Tracks which spans are due, and which were exported.

use std::collections::BTreeSet;

use jiff::Timestamp;
use pod_safety_otlp::{Span, SpanId, TraceId};

use super::incident::Incident;
use super::spans::spans;

/// The number of spans in one request.
const BATCH: usize = 256;

type Id = (TraceId, SpanId);

/// The exports of one leader. It is kept in memory only: the next leader starts with the time of this one's last
/// renewal of the Lease.
#[derive(Debug)]
pub(super) struct ExportQueue {
    /// Records before this time were exported by the previous leader.
    since: Timestamp,
    exported: BTreeSet<Id>,
    waiting: BTreeSet<Id>,
}

/// The spans to export now.
#[derive(Debug)]
pub(super) struct Batch {
    /// The spans of the next request.
    pub(super) spans: Vec<Span>,
    /// How many spans were waiting and cannot be built any more, because their records were deleted.
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
        let recent = incidents.iter().filter(|incident| incident.ended_at().is_none_or(|over| over >= self.since));
        let mut due: Vec<Span> = recent.flat_map(|incident| self.due_spans_of(incident)).collect();
        let waits: BTreeSet<Id> = due.iter().map(id).collect();
        let lost = self.waiting.difference(&waits).count();
        self.waiting = waits;
        due.truncate(BATCH);
        Batch { spans: due, dropped: lost }
    }

    /// A span may end before its incident is opened.
    fn due_spans_of(&self, incident: &Incident<'_>) -> Vec<Span> {
        let opened = incident.opened_at().unwrap_or(Timestamp::MIN);
        let mut spans = spans(incident);
        spans.retain(|span| span.end.max(opened) >= self.since && !self.exported.contains(&id(span)));
        spans
    }

    /// Marks spans that were accepted, or never will be.
    pub(super) fn mark_done(&mut self, spans: &[Span]) {
        for span in spans {
            self.waiting.remove(&id(span));
            self.exported.insert(id(span));
        }
    }
}
