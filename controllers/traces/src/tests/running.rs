//! The task, with a fake collector and a scripted API server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pod_safety_otlp::message::WireSpan;
use pod_safety_otlp::testing::Collector;
use pod_safety_shared::clock::Env;
use pod_safety_shared::lease::Leadership;
use pod_safety_shared::record::{Action, Journal, Record};
use pod_safety_shared::testing::{connection, metrics_text};
use prometheus::Registry;

use super::*;

/// Longer than an export of due spans may take.
const SOON: Duration = Duration::from_secs(30);

struct Leader {
    journal: Arc<Journal>,
    registry: Registry,
    lists: Arc<AtomicUsize>,
}

impl Leader {
    /// A leader after one that renewed last at this second, with the Events of that one.
    fn after(second: i64, world: &World, collector: &Collector, events: &[Value]) -> Self {
        let env = Env::real(1);
        let (journal, registry) = (Arc::new(Journal::default()), Registry::new());
        let (events, lists) = (json!({ "items": events }), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&lists);
        let api = connection(
            &env,
            Arc::new(move |_, path: &str, _| {
                counted.fetch_add(1, Ordering::Relaxed);
                if path.starts_with("/api/v1/events") { (200, events.clone()) } else { (200, json!({ "items": [] })) }
            }),
        );
        let sources = Sources {
            cache: Arc::clone(world.cache()),
            journal: Arc::clone(&journal),
            connection: api,
            leadership: Leadership::always_after(moment(second * 1_000)),
        };
        let metrics = TraceMetrics::register(&registry).unwrap();
        let endpoint = collector.url().parse().unwrap();
        let traces = Traces::new(endpoint, "pod-safety-0_1".to_owned(), sources, env.clone(), metrics);
        env.spawner.spawn("traces", Box::pin(traces.run()));
        Self { journal, registry, lists }
    }

    fn metric(&self, line: &str) -> bool {
        metrics_text(&self.registry).lines().any(|one| one == line)
    }
}

async fn until(what: &str, holds: impl Fn() -> bool + Sync) {
    let env = Env::real(1);
    let waits = async {
        while !holds() {
            env.sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(env.timeout_at(env.now() + SOON, waits).await.is_some(), "waiting until {what}");
}

fn force_delete() -> Record {
    Record {
        at: Env::real(1).clock.wall(),
        controller: "pod-gc",
        action: Action::ForceDeleted,
        pod: Some(pod_key()),
        budget: None,
        node: Some("n".into()),
        node_uid: None,
        reason: "PowerOff",
        message: "node n was switched off".to_owned(),
    }
}

fn names(spans: &[WireSpan]) -> Vec<&str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}

/// The accepted spans, by id.
fn accepted(collector: &Collector) -> BTreeMap<(Vec<u8>, Vec<u8>), Vec<WireSpan>> {
    let mut accepted: BTreeMap<_, Vec<WireSpan>> = BTreeMap::new();
    for span in collector.spans() {
        accepted.entry((span.trace_id.clone(), span.span_id.clone())).or_default().push(span);
    }
    accepted
}

#[tokio::test]
async fn each_span_is_exported_once_when_it_is_recorded() {
    let (world, collector) = (lost(), Collector::start(&Env::real(1)).await.unwrap());
    let leader = Leader::after(0, &world, &collector, &[]);
    until("the loss is exported", || collector.spans().len() == 6).await;
    assert_eq!(names(&collector.spans()), ["detect", "gates", "order off", "status checks", "evidence", "taint"]);
    leader.journal.write(force_delete());
    until("the force delete is exported", || collector.spans().len() == 7).await;
    back(&world);
    until("the return is exported", || collector.spans().len() == 10).await;
    assert_eq!(names(&collector.spans())[6..], ["force delete", "order on", "status checks", "incident"]);
    Env::real(1).sleep(Duration::from_secs(6)).await;
    assert!(accepted(&collector).values().all(|times| times.len() == 1), "nothing is exported twice");
    assert_eq!(leader.lists.load(Ordering::Relaxed), 1, "the Events of the last leader, once");
    assert!(leader.metric("pod_safety_trace_spans_total{outcome=\"exported\"} 10"));
}

#[tokio::test]
async fn a_new_leader_exports_only_records_since_the_last_renewal_of_the_former() {
    let (world, collector) = (lost(), Collector::start(&Env::real(1)).await.unwrap());
    let event = json!({
        "reason": "ForceDeleted", "message": "node n was switched off", "eventTime": Env::real(1).clock.wall().to_string(),
        "involvedObject": { "kind": "Pod", "namespace": "shop", "name": "db-0", "uid": "uid-of-the-first" },
        "related": { "kind": "Node", "name": "n" },
    });
    let _first = Leader::after(0, &world, &collector, std::slice::from_ref(&event));
    until("the first leader exports the loss", || collector.spans().len() == 7).await;
    let before = collector.spans();
    // The first leader renewed last after all of that.
    let renewed = 1 + Env::real(1).clock.wall().as_second() - START_SECONDS + 10;
    let second = Collector::start(&Env::real(1)).await.unwrap();
    let _second = Leader::after(renewed, &world, &second, std::slice::from_ref(&event));
    Env::real(1).sleep(Duration::from_secs(1)).await;
    assert_eq!(names(&second.spans()), Vec::<&str>::new(), "all of it was exported before");
    // A third leader cannot know what the second one exported in its last seconds, and exports it again with the same
    // ids.
    let third = Collector::start(&Env::real(1)).await.unwrap();
    let _third = Leader::after(88, &world, &third, &[event]);
    until("the third leader exports what may be missing", || third.spans().len() == 3).await;
    assert_eq!(names(&third.spans()), ["evidence", "taint", "force delete"]);
    for span in third.spans() {
        assert!(before.contains(&span), "{span:#?}");
    }
}

#[tokio::test]
async fn spans_are_exported_after_an_unavailable_collector_returns() {
    let (world, collector) = (lost(), Collector::start(&Env::real(1)).await.unwrap());
    collector.set_response(503, Vec::new());
    let leader = Leader::after(0, &world, &collector, &[]);
    until("the export was retried", || collector.heads().len() > 1).await;
    assert!(leader.metric("pod_safety_trace_spans_total{outcome=\"exported\"} 0"));
    assert!(!leader.metric("pod_safety_trace_export_failures_total 0"));
    collector.set_response(200, Vec::new());
    until("all spans are exported", || collector.spans().len() == 6).await;
    assert!(accepted(&collector).values().all(|times| times.len() == 1));
}

/// Other records displaced it from the journal before the next try.
#[tokio::test]
async fn bug_a_force_delete_during_an_outage_of_the_collector_was_not_exported() {
    let (world, collector) = (lost(), Collector::start(&Env::real(1)).await.unwrap());
    collector.set_response(503, Vec::new());
    let leader = Leader::after(0, &world, &collector, &[]);
    until("the next try is four seconds away", || collector.heads().len() == 3).await;
    leader.journal.write(force_delete());
    Env::real(1).sleep(Duration::from_secs(2)).await;
    for _ in 0..2_000 {
        leader.journal.write(Record { action: Action::Held, ..force_delete() });
    }
    collector.set_response(200, Vec::new());
    until("all spans are exported", || collector.spans().len() == 7).await;
}

#[tokio::test]
async fn rejected_and_dropped_spans_are_counted() {
    let (world, collector) = (lost(), Collector::start(&Env::real(1)).await.unwrap());
    collector.set_response(400, Vec::new());
    let leader = Leader::after(0, &world, &collector, &[]);
    until("the spans were rejected", || leader.metric("pod_safety_trace_spans_total{outcome=\"rejected\"} 6")).await;
    collector.set_response(503, Vec::new());
    back(&world);
    until("more spans wait", || collector.heads().len() > 1).await;
    world.remove(Kind::NodeFences, "uid-n-1", at(300));
    world.remove(Kind::FenceEvidences, "uid-e", at(300));
    until("the spans were dropped", || leader.metric("pod_safety_trace_spans_total{outcome=\"dropped\"} 3")).await;
    assert!(collector.spans().is_empty());
}
