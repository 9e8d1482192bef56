//! The exporter with a fake collector.

use jiff::Timestamp;
use tokio::net::TcpListener;

use super::super::message::ExportTracePartialSuccess;
use super::super::testing::Collector;
use super::super::{Attribute, SpanEvent, TraceId};
use super::*;

fn span(name: &'static str) -> Span {
    let trace = TraceId::from_parts(&["uid", "boot"]);
    let at = |second: i64| Timestamp::from_second(1_790_000_000 + second).unwrap();
    Span {
        trace,
        id: trace.span(&[name]),
        parent: (name != "incident").then(|| trace.span(&["incident"])),
        name,
        start: at(0),
        end: at(7),
        attributes: vec![Attribute::text("k8s.node.name", "w1"), Attribute::number("n", 3)],
        events: vec![SpanEvent {
            at: at(1),
            name: "status check",
            attributes: vec![Attribute::texts("devices", ["a", "b"].into_iter())],
        }],
        error: Some("why".to_owned()),
    }
}

fn exporter(url: &str) -> Exporter {
    let service = Service { name: "pod-safety", version: "1.2.3", instance: "pod-safety-0_1".to_owned() };
    Exporter::new(Env::real(1), url.parse().unwrap(), service)
}

#[tokio::test]
async fn spans_arrive_with_ids_times_and_attributes() {
    let collector = Collector::start(&Env::real(1)).await.unwrap();
    let sent = exporter(&collector.url()).export(&[span("incident"), span("detect")]).await;
    assert_eq!(sent, Ok(ExportResponse::default()));
    let head = &collector.heads()[0];
    assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
    assert!(head.contains("content-type: application/x-protobuf"), "{head}");
    let process = &collector.requests()[0].resource_spans[0];
    let keys: Vec<_> = process.resource.as_ref().unwrap().attributes.iter().map(|one| &*one.key).collect();
    assert_eq!(keys, ["service.name", "service.version", "service.instance.id"]);
    let arrived = collector.spans();
    let [root, child] = &*arrived else { panic!("{arrived:?}") };
    assert_eq!((root.trace_id.len(), root.span_id.len(), root.parent_span_id.len()), (16, 8, 0));
    assert_eq!((&child.trace_id, &child.parent_span_id), (&root.trace_id, &root.span_id));
    assert_eq!(root.end_time_unix_nano - root.start_time_unix_nano, 7_000_000_000);
    assert_eq!((root.status.as_ref().unwrap().code, root.kind), (2, 1));
    assert_eq!(root.text("k8s.node.name").as_deref(), Some("w1"));
    assert_eq!(root.text("n").as_deref(), Some("3"));
    assert_eq!(root.events[0].name, "status check");
}

/// The bytes of a span, written from the field numbers of opentelemetry/proto.
#[test]
fn a_span_is_encoded_as_in_opentelemetry() {
    let wire = WireSpan { trace_id: vec![1; 16], name: "n".to_owned(), kind: 1, ..WireSpan::default() };
    let mut expected = vec![1 << 3 | 2, 16];
    expected.extend([1; 16]);
    expected.extend([5 << 3 | 2, 1, b'n', 6 << 3, 1]);
    assert_eq!(wire.encode_to_vec(), expected);
}

#[tokio::test]
async fn an_export_error_is_retryable_by_its_code_after_the_pause_that_the_collector_requests() {
    let collector = Collector::start(&Env::real(1)).await.unwrap();
    for (code, retryable, pause) in [(503, true, 0), (429, true, 7), (400, false, 0), (404, false, 0)] {
        collector.set_response(code, b"because".to_vec());
        let refused = exporter(&collector.url()).export(&[span("incident")]).await.unwrap_err();
        assert_eq!((refused.is_retryable(), refused.retry_after().as_secs()), (retryable, pause), "{refused}");
        assert_eq!(refused.to_string(), format!("the collector answered {code}: because"));
    }
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let refused = exporter(&format!("http://{closed}")).export(&[span("incident")]).await.unwrap_err();
    assert!(refused.is_retryable() && refused.to_string().contains("refused"), "{refused}");
}

#[tokio::test]
async fn rejected_spans_of_a_partial_success_are_counted() {
    let partial = ExportTracePartialSuccess { rejected_spans: 1, error_message: "too\nold".to_owned() };
    let body = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    let collector = Collector::start(&Env::real(1)).await.unwrap();
    collector.set_response(200, body);
    let answer = exporter(&collector.url()).export(&[span("incident")]).await;
    assert_eq!(answer, Ok(ExportResponse { rejected: 1, message: "too\u{fffd}old".to_owned() }));
}

#[tokio::test(start_paused = true)]
async fn an_export_to_a_hanging_collector_times_out_after_ten_seconds() {
    let collector = Collector::start(&Env::real(1)).await.unwrap();
    collector.stop_responding();
    let refused = exporter(&collector.url()).export(&[span("incident")]).await.unwrap_err();
    assert_eq!(refused, ExportError::TimedOut);
}
