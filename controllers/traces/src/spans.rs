//! Builds the spans of an incident. Pure.
//!
//! ```text
//! incident                      last report → over
//! ├─ detect                     last report → its Node is not Ready
//! ├─ gates                      NodeFence created → first order
//! ├─ order off, order on        recorded → last status check after it
//! │  └─ status checks           first → last
//! ├─ evidence                   last status check → FenceEvidence created
//! ├─ taint                      evidence → the taint out-of-service is there
//! └─ force delete               evidence → a pod is force deleted
//!    └─ successor ready         created → Ready
//! ```

use jiff::Timestamp;
use pod_safety_otlp::{Attribute, Span, SpanEvent, SpanId, TraceId, sanitize_text};
use pod_safety_shared::api::{Attempt, DesiredPower, Power, Sample};
use pod_safety_shared::model::{FenceEvidenceObject, OUT_OF_SERVICE_TAINT};

use super::incident::{Incident, to_timestamp};
use super::release::{Release, Successor};

/// The number of pods of one node that get a span; a node has 110 by default.
pub(super) const MAX_RELEASES: usize = 250;
/// The number of samples of one attempt: devices report twice each.
const MAX_SAMPLES: usize = 32;
/// The number of evidence objects: each kind may have one, and a confirmation may be renewed.
const MAX_EVIDENCE: usize = 16;

const NODE: &str = "k8s.node.name";

/// The completed spans of this incident, in the order of their ends.
#[must_use]
pub fn spans(incident: &Incident<'_>) -> Vec<Span> {
    let builder = SpanBuilder { incident, trace: incident.trace() };
    let mut spans: Vec<Span> =
        [builder.detect(), builder.gates(), builder.taint(), builder.root()].into_iter().flatten().collect();
    for attempt in incident.fence.iter().flat_map(|fence| &fence.status.attempts).take(Attempt::MAX_ATTEMPTS) {
        spans.extend(builder.order(attempt));
    }
    spans.extend(incident.evidence.iter().take(MAX_EVIDENCE).filter_map(|proof| builder.evidence(proof)));
    spans.extend(incident.releases.iter().take(MAX_RELEASES).filter_map(|release| builder.release(release)));
    spans.extend(incident.successors.iter().take(MAX_RELEASES).map(|successor| builder.successor(successor)));
    spans.sort_by_key(|span| (span.end, span.parent.is_none()));
    spans
}

struct SpanBuilder<'a> {
    incident: &'a Incident<'a>,
    trace: TraceId,
}

impl SpanBuilder<'_> {
    fn root_id(&self) -> SpanId {
        self.trace.span(&["incident"])
    }

    fn release_id(&self, uid: &str) -> SpanId {
        self.trace.span(&["force delete", uid])
    }

    /// A span of the incident. Some timestamps are rounded to seconds, so the end is at least the start.
    fn span(&self, name: &'static str, key: &str, from: Timestamp, to: Timestamp) -> Span {
        Span {
            trace: self.trace,
            id: if key.is_empty() { self.trace.span(&[name]) } else { self.trace.span(&[name, key]) },
            parent: Some(self.root_id()),
            name,
            start: from,
            end: to.max(from),
            attributes: vec![Attribute::text(NODE, &self.incident.incarnation.name)],
            events: Vec::new(),
            error: None,
        }
    }

    /// When the kubelet last reported, as recorded; else when the incident was opened.
    fn began_at(&self) -> Option<Timestamp> {
        let attempts = self.incident.fence.iter().flat_map(|fence| &fence.status.attempts);
        let renewed = attempts.filter_map(|attempt| attempt.verified.as_ref()?.lease_renewed.as_deref());
        let renewed =
            renewed.chain(self.incident.evidence.iter().filter_map(|proof| proof.spec.lease_renewed.as_deref()));
        let written = renewed.filter_map(|at| at.parse().ok()).min();
        let last_report = self.incident.lost.and_then(|(_, last_report)| last_report);
        written.or(last_report).into_iter().chain(self.incident.opened_at()).min()
    }

    fn root(&self) -> Option<Span> {
        let Incident { incarnation, fence, .. } = self.incident;
        // The end is rounded to a second; the orders within are not.
        let over = self.incident.ended_at()?;
        let orders = fence.iter().flat_map(|fence| &fence.status.attempts).filter_map(Attempt::last_checked_at);
        let mut span = self.span("incident", "", self.began_at()?, orders.fold(over, Timestamp::max));
        span.parent = None;
        span.attributes.push(Attribute::text("k8s.node.uid", &incarnation.uid));
        if let Some(fence) = fence {
            span.attributes.extend([
                Attribute::text("pod_safety.node_fence", &fence.name),
                Attribute::text("pod_safety.policy", &fence.spec.policy),
                Attribute::text("pod_safety.phase", fence.status.phase.name()),
                Attribute::text("pod_safety.reason", &fence.spec.trigger.reason),
                Attribute::text("pod_safety.message", &fence.status.message),
            ]);
        }
        Some(span)
    }

    /// A Node that boots again renews its Lease, and may change from False to Unknown, before it shows its new incarnation: times after the
    /// incident was opened do not count.
    fn detect(&self) -> Option<Span> {
        let (node, last_report) = self.incident.lost?;
        last_report?;
        let noticed = to_timestamp(node.ready_since?)?.min(self.incident.opened_at()?);
        Some(self.span("detect", "", self.began_at()?, noticed))
    }

    /// From the creation of the NodeFence to the first order, or to evidence without an order.
    fn gates(&self) -> Option<Span> {
        let fence = self.incident.fence?;
        let first = fence.status.attempts.first();
        let passed = match first {
            Some(first) => first.started_at().filter(|_| first.id == 1)?,
            None => to_timestamp(self.incident.evidence.first()?.created)?,
        };
        let mut span = self.span("gates", "", to_timestamp(fence.created)?, passed);
        let gates = fence.status.gates.iter().map(|gate| gate.name.as_str()).take(MAX_SAMPLES);
        span.attributes.push(Attribute::texts("pod_safety.gates", gates));
        Some(span)
    }

    /// The spans of an order to devices that was verified, and of its status checks.
    fn order(&self, attempt: &Attempt) -> Vec<Span> {
        let (Some(begun), Some(checked), Some(verified)) =
            (attempt.started_at(), attempt.last_checked_at(), &attempt.verified)
        else {
            return Vec::new();
        };
        let (name, expected) =
            if attempt.act == DesiredPower::On { ("order on", Power::On) } else { ("order off", Power::Off) };
        let key = attempt.id.to_string();
        let mut order = self.span(name, &key, begun, checked);
        let devices: Vec<String> = attempt.devices.iter().take(MAX_SAMPLES).map(ToString::to_string).collect();
        order.attributes.extend([
            Attribute::number("pod_safety.attempt", attempt.id.into()),
            Attribute::number("pod_safety.level", attempt.level.into()),
            Attribute::texts("pod_safety.devices", devices.iter().map(String::as_str)),
            Attribute::text("pod_safety.outcome", attempt.outcome.as_deref().unwrap_or("none was recorded")),
            Attribute::text("pod_safety.by", &attempt.by),
        ]);
        order.error = (verified.power != expected).then(|| sanitize_text(&verified.message));
        let samples: Vec<(Timestamp, &Sample)> = (verified.samples.iter().take(MAX_SAMPLES))
            .filter_map(|sample| Some((sample.at.parse().ok()?, sample)))
            .collect();
        let first = samples.iter().map(|(at, _)| *at).min().unwrap_or(begun);
        let mut checks = self.span("status checks", &key, first, checked);
        checks.parent = Some(order.id);
        checks.attributes.push(Attribute::text("pod_safety.power", verified.power.name()));
        checks.events = samples.into_iter().map(|(at, sample)| status_check(at, sample)).collect();
        vec![order, checks]
    }

    fn evidence(&self, evidence: &FenceEvidenceObject) -> Option<Span> {
        let created = to_timestamp(evidence.created)?;
        let samples = evidence.spec.samples.iter().filter_map(|sample| sample.at.parse().ok());
        let mut span = self.span("evidence", &evidence.name, samples.max().unwrap_or(created), created);
        let kind = evidence.spec.kind.name().to_owned();
        span.attributes.extend([
            Attribute::text("pod_safety.evidence", &evidence.name),
            Attribute::text("pod_safety.evidence.kind", &kind),
            Attribute::text("pod_safety.by", &evidence.spec.by),
        ]);
        span.attributes.extend(evidence.spec.reason.iter().map(|why| Attribute::text("pod_safety.reason", why)));
        Some(span)
    }

    /// When the first evidence that ends the incarnation was created.
    fn evidence_created_at(&self) -> Option<Timestamp> {
        let mut ends = self.incident.evidence.iter().filter(|proof| proof.spec.kind.ends_incarnation());
        ends.next().and_then(|proof| to_timestamp(proof.created))
    }

    fn taint(&self) -> Option<Span> {
        let (fence, (node, _)) = (self.incident.fence?, self.incident.lost?);
        let is_own_taint = |key: &str, value: &str| key == OUT_OF_SERVICE_TAINT && value == &*fence.name;
        let taint = node.no_execute.iter().find(|taint| is_own_taint(&taint.key, &taint.value))?;
        let added = to_timestamp(taint.time_added?)?;
        Some(self.span("taint", "", self.evidence_created_at()?, added))
    }

    fn release(&self, release: &Release) -> Option<Span> {
        let uid = release.pod.uid.to_string();
        let mut span = self.span("force delete", &uid, self.evidence_created_at()?, release.at);
        span.id = self.release_id(&uid);
        span.attributes.extend(pod(&release.pod.namespace, &release.pod.name, &uid));
        span.attributes.push(Attribute::text("pod_safety.reason", &release.message));
        Some(span)
    }

    fn successor(&self, successor: &Successor) -> Span {
        let mut span = self.span("successor ready", &successor.uid, successor.created, successor.ready);
        span.parent = Some(self.release_id(&successor.predecessor.uid.to_string()));
        // The successor runs on another node.
        span.attributes = vec![Attribute::text(NODE, &successor.node)];
        span.attributes.extend(pod(&successor.predecessor.namespace, &successor.predecessor.name, &successor.uid));
        span
    }
}

fn pod(namespace: &str, name: &str, uid: &str) -> [Attribute; 3] {
    [
        Attribute::text("k8s.namespace.name", namespace),
        Attribute::text("k8s.pod.name", name),
        Attribute::text("k8s.pod.uid", uid),
    ]
}

fn status_check(at: Timestamp, sample: &Sample) -> SpanEvent {
    let attributes = vec![
        Attribute::text("pod_safety.device", &sample.device.to_string()),
        Attribute::text("pod_safety.power", sample.power.name()),
        Attribute::text("pod_safety.identity", sample.identity.name()),
        Attribute::text("pod_safety.message", &sample.said),
    ];
    SpanEvent { at, name: "status check", attributes }
}
