//! Which Events are written, how often, and with which bytes.

use super::*;
use crate::client::scripted::{Answer, Api, advance, env};
use crate::metrics::Metrics;
use crate::model::{DeviceKey, Uid};

fn event(pod: &str, reason: &'static str) -> Event {
    let pod = PodKey { namespace: "ns".into(), name: pod.into(), uid: Uid::new(pod).unwrap() };
    Event {
        reporter: ReportingController::Own,
        object: InvolvedObject::Pod(pod),
        kind: EventType::Warning,
        reason,
        code: None,
        message: "because".to_owned(),
    }
}

struct Setup {
    api: Api,
    recorder: Recorder,
    metrics: Metrics,
}

fn setup(answer: fn() -> Answer) -> Setup {
    let (env, _wall) = env();
    let api = Api::new(&env, move |_| async move { answer() });
    let metrics = Metrics::new().unwrap();
    let recorder = Recorder::new(env.clone(), metrics.authority.clone());
    let write =
        recorder.clone().worker_loop(api.connection(), Leadership::always(), "pod-safety", "pod-safety-0".to_owned());
    env.spawner.spawn("events", Box::pin(write));
    Setup { api, recorder, metrics }
}

fn created() -> Answer {
    Answer::with_code(201, &json!({}))
}

#[tokio::test(start_paused = true)]
async fn an_event_has_the_uid_of_the_pod() {
    let setup = setup(created);
    setup.recorder.record(event("a", "ForceDeleteRefused"));
    advance(0.1).await;
    let requests = setup.api.requests();
    assert_eq!(requests[0].line(), "POST /api/v1/namespaces/ns/events");
    let noon = "2026-11-21T12:00:00Z";
    let expected = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "name": "a.18ba1d82de2b8000", "namespace": "ns" },
        "involvedObject": { "apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "a", "uid": "a" },
        "type": "Warning", "reason": "ForceDeleteRefused", "message": "because", "action": "ForceDeleteRefused", "count": 1,
        "firstTimestamp": noon, "lastTimestamp": noon, "eventTime": "2026-11-21T12:00:00.000000Z",
        "source": { "component": "pod-safety" }, "reportingComponent": "pod-safety", "reportingInstance": "pod-safety-0",
    });
    let mut body = requests[0].json();
    let name = body["metadata"]["name"].take();
    let nanoseconds = i64::from_str_radix(name.as_str().unwrap().strip_prefix("a.").unwrap(), 16).unwrap();
    assert_eq!(nanoseconds, noon.parse::<jiff::Timestamp>().unwrap().as_nanosecond() as i64);
    body["metadata"]["name"] = expected["metadata"]["name"].clone();
    assert_eq!(body, expected);
}

/// When many Events wait, the time of each is still that of the occurrence; traces are made from it.
#[tokio::test(start_paused = true)]
async fn an_event_has_the_time_of_its_occurrence_and_the_related_node() {
    let (env, wall) = env();
    let api = Api::new(&env, |_| async { created() });
    let metrics = Metrics::new().unwrap();
    let recorder = Recorder::new(env.clone(), metrics.authority);
    let requested = "2026-11-21T10:19:55Z".parse().ok();
    recorder.record_related(event("a", "ForceDeleted"), Related { node: Some("n".into()), requested });
    recorder.record(event("b", "ForceDeleted"));
    wall.set("2026-11-21T12:07:00Z");
    let leads = Leadership::always();
    let write = recorder.worker_loop(api.connection(), leads, "pod-safety", "pod-safety-0".to_owned());
    env.spawner.spawn("events", Box::pin(write));
    advance(0.1).await;
    let bodies: Vec<_> = api.requests().iter().map(|request| request.json()).collect();
    assert_eq!(bodies.len(), 2);
    assert!(bodies.iter().all(|body| body["eventTime"] == "2026-11-21T12:00:00.000000Z"), "{bodies:?}");
    assert_eq!(bodies[0]["related"], json!({ "apiVersion": "v1", "kind": "Node", "name": "n" }));
    assert!(bodies[1].get("related").is_none());
    let requested =
        |body: &serde_json::Value| body["metadata"]["annotations"]["pod-safety.dev/deletion-requested"].clone();
    assert_eq!((requested(&bodies[0]), requested(&bodies[1])), (json!("2026-11-21T10:19:55Z"), json!(null)));
}

#[test]
fn messages_are_capitalised_unless_they_begin_with_a_name() {
    for (text, expected) in [
        ("node n is to be fenced: r", "Node n is to be fenced: r"),
        ("it is off", "It is off"),
        ("lost holds it", "lost holds it"),
        ("pod-safety acts", "pod-safety acts"),
        ("", ""),
    ] {
        assert_eq!(capitalize(text), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_about_a_node_is_in_the_default_namespace() {
    let setup = setup(created);
    let node = NodeKey { name: "n".into(), uid: Uid::new("uid-n").unwrap() };
    setup.recorder.record(Event { object: InvolvedObject::Node(node), ..event("a", "NodeNotReady") });
    advance(0.1).await;
    let requests = setup.api.requests();
    assert_eq!(requests[0].line(), "POST /api/v1/namespaces/default/events");
    let body = requests[0].json();
    assert_eq!(body["metadata"]["namespace"], "default");
    assert_eq!(body["involvedObject"], json!({ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "uid-n" }));
}

#[tokio::test(start_paused = true)]
async fn an_event_about_a_device_is_in_its_namespace() {
    let setup = setup(created);
    let uid = Uid::new("uid-bmc").unwrap();
    let device = DeviceKey { namespace: "fencing".into(), name: "bmc".into(), uid };
    setup.recorder.record(Event { object: InvolvedObject::Device(device), ..event("a", "LoginDenied") });
    advance(0.1).await;
    let requests = setup.api.requests();
    assert_eq!(requests[0].line(), "POST /api/v1/namespaces/fencing/events");
    let about = json!({ "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FenceDevice", "namespace": "fencing",
        "name": "bmc", "uid": "uid-bmc" });
    assert_eq!(requests[0].json()["involvedObject"], about);
}

#[tokio::test(start_paused = true)]
async fn an_event_is_written_once_in_ten_minutes() {
    let setup = setup(created);
    for (what, wait, recorded, total) in [
        ("first", 0.0, event("a", "R"), 1),
        ("the same", 599.0, event("a", "R"), 1),
        ("another reason", 0.0, event("a", "S"), 2),
        ("another pod", 0.0, event("b", "R"), 3),
        ("the same, later", 2.0, event("a", "R"), 4),
    ] {
        advance(wait).await;
        setup.recorder.record(recorded);
        advance(0.01).await;
        assert_eq!(setup.api.lines().len(), total, "{what}");
    }
}

/// Once, a refusal that ended within seconds (`QuarantineNotOver`) suppressed later refusals for ten minutes: the Event,
/// and `explain`, which reads its code, still named the first.
#[tokio::test(start_paused = true)]
async fn bug_a_refusal_suppressed_other_refusals_of_the_object_for_ten_minutes() {
    let setup = setup(created);
    let refused = |(code, message): (&'static str, &str)| Event {
        code: Some(code),
        message: message.to_owned(),
        ..event("a", "ForceDeleteRefused")
    };
    for recorded in [
        ("QuarantineNotOver", "5s"),
        ("ReadsTooSlow", "by 1.0s"),
        ("QuarantineNotOver", "1s"),
        ("ReadsTooSlow", "by 1.1s"),
    ] {
        setup.recorder.record(refused(recorded));
    }
    advance(0.1).await;
    let written: Vec<_> = setup.api.requests().iter().map(|request| request.json()["message"].clone()).collect();
    assert_eq!(written, ["QuarantineNotOver: 5s", "ReadsTooSlow: by 1.0s"]);
}

/// Messages quote devices and other controllers, which could use another word each time.
#[tokio::test(start_paused = true)]
async fn events_with_different_messages_and_no_code_are_repeats() {
    let setup = setup(created);
    for message in ["Unreachable: no route", "Denied: wrong password"] {
        setup.recorder.record(Event { message: message.to_owned(), ..event("a", "R") });
    }
    advance(0.1).await;
    let written: Vec<_> = setup.api.requests().iter().map(|request| request.json()["message"].clone()).collect();
    assert_eq!(written, ["Unreachable: no route"]);
}

#[tokio::test(start_paused = true)]
async fn events_that_do_not_fit_are_dropped_and_counted_without_waiting() {
    let (env, _wall) = env();
    let metrics = Metrics::new().unwrap();
    let recorder = Recorder::new(env.clone(), metrics.authority.clone());
    for number in 0..LIMIT + 3 {
        recorder.record(event(&format!("p{number}"), "R"));
    }
    assert_eq!(metrics.authority.events_dropped.get(), 3);
    assert_eq!(recorder.pending.lock().events.len(), LIMIT);
    let api = Api::new(&env, |_| async { created() });
    let write = recorder.clone().worker_loop(api.connection(), Leadership::always(), "c", "i".to_owned());
    env.spawner.spawn("events", Box::pin(write));
    advance(1.0).await;
    recorder.record(event(&format!("p{LIMIT}"), "R"));
    advance(1.0).await;
    assert_eq!(api.lines().len(), LIMIT + 1, "what was dropped was not said, and may be said now");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_written_is_counted_and_not_repeated() {
    let setup = setup(|| Answer::status(403, "Forbidden", "no"));
    setup.recorder.record(event("a", "R"));
    setup.recorder.record(event("b", "R"));
    advance(60.0).await;
    assert_eq!(setup.api.lines().len(), 2);
    assert_eq!(setup.metrics.authority.events_dropped.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn recorded_events_are_removed_before_they_fill_the_memory() {
    let (env, _wall) = env();
    let recorder = Recorder::new(env.clone(), Metrics::new().unwrap().authority);
    for round in 0..4 {
        for number in 0..LIMIT {
            recorder.record(event(&format!("p{round}-{number}"), "R"));
        }
        recorder.pending.lock().events.clear();
        advance(600.0).await;
    }
    assert!(recorder.pending.lock().recorded_at.len() <= 2 * LIMIT);
}

#[tokio::test(start_paused = true)]
async fn a_standby_writes_no_events() {
    let (env, _wall) = env();
    let api = Api::new(&env, |_| async { created() });
    let (metrics, leadership) = (Metrics::new().unwrap(), Leadership::none());
    let recorder = Recorder::new(env.clone(), metrics.authority.clone());
    let write = recorder.clone().worker_loop(api.connection(), Arc::clone(&leadership), "c", "i".to_owned());
    env.spawner.spawn("events", Box::pin(write));
    recorder.record(event("a", "R"));
    advance(1.0).await;
    leadership.lead_for_tests();
    recorder.record(event("b", "R"));
    recorder.record(event("a", "R"));
    advance(1.0).await;
    let names: Vec<_> = api.requests().iter().map(|request| request.json()["involvedObject"]["name"].clone()).collect();
    assert_eq!(names, ["b", "a"], "what a standby did not write is no repetition");
}

#[tokio::test(start_paused = true)]
async fn events_are_paced_while_pods_are_being_removed() {
    let setup = setup(created);
    let busy = setup.recorder.begin_writing();
    for pod in ["a", "b", "c"] {
        setup.recorder.record(event(pod, "ForceDeleted"));
    }
    advance(1.2).await;
    assert_eq!(setup.api.requests().len(), 2, "one each half second");
    drop(busy);
    for pod in ["d", "e"] {
        setup.recorder.record(event(pod, "ForceDeleted"));
    }
    advance(0.6).await;
    assert_eq!(setup.api.requests().len(), 5, "when nothing is removed any more, they do not wait");
}

#[tokio::test(start_paused = true)]
async fn an_upstream_event_names_the_upstream_controller_and_is_always_written() {
    let setup = setup(created);
    let speaker = ReportingController::Upstream("taint-eviction-controller");
    for message in ["Cancelling", "Marking", "Marking"] {
        setup.recorder.record(Event {
            reporter: speaker,
            message: message.to_owned(),
            ..event("a", "TaintManagerEviction")
        });
    }
    advance(0.1).await;
    let requests = setup.api.requests();
    let recorded: Vec<_> = requests.iter().map(|request| request.json()["message"].clone()).collect();
    assert_eq!(recorded, ["Cancelling", "Marking", "Marking"]);
    let first = requests[0].json();
    assert_eq!(first["source"]["component"], "taint-eviction-controller");
    assert_eq!(first["reportingComponent"], "taint-eviction-controller");
}

/// The map has a maximum size; entries that are no longer needed are removed first.
#[test]
fn the_map_of_recorded_events_is_bounded() {
    let at = |seconds: u64| Mono::from_start(Duration::from_secs(seconds));
    let (again, half) = (REPEAT_AFTER.as_secs(), LIMIT / 2);
    let mut waiting = PendingEvents::default();
    for number in 0..LIMIT {
        let second = if number < half { 0 } else { again / 2 };
        assert!(waiting.should_record(&event(&number.to_string(), "R"), at(second)));
    }
    assert!(!waiting.should_record(&event("0", "R"), at(again - 1)));
    assert!(waiting.should_record(&event("new", "R"), at(again)), "there is room, for half may be said again");
    assert_eq!(waiting.recorded_at.len(), LIMIT - half + 1);
    assert!(waiting.should_record(&event("0", "R"), at(again)), "at that moment it is time");
    for number in 0..half {
        waiting.should_record(&event(&format!("more-{number}"), "R"), at(again));
    }
    assert!(waiting.recorded_at.len() < half, "all of it was young, and is forgotten: {}", waiting.recorded_at.len());
}

#[test]
fn an_event_is_due_again_after_exactly_ten_minutes() {
    let (mut waiting, event) = (PendingEvents::default(), event("a", "R"));
    for (second, is_due) in [(0, true), (599, false), (600, true), (1_199, false)] {
        assert_eq!(waiting.should_record(&event, Mono::from_start(Duration::from_secs(second))), is_due, "{second}");
    }
}
