//! The connection: one attempt, a deadline, and every way in which a request can end.

use parking_lot::Mutex;
use serde_json::json;

use super::scripted::{Answer, Api, advance, env};
use super::*;
use pod_safety_wire as wire;
use prometheus::{Registry, TextEncoder};

fn api(answer: fn() -> Answer) -> (Env, Api) {
    let (env, _wall) = env();
    let api = Api::new(&env, move |_| async move { answer() });
    (env, api)
}

async fn failure(answer: fn() -> Answer) -> ApiError {
    let (_env, api) = api(answer);
    let error = api.connection().send(Call::get("/api/v1/namespaces/ns/pods/a")).await.unwrap_err();
    assert_eq!(api.lines().len(), 1, "a request is sent once: {error:?}");
    error
}

#[tokio::test(start_paused = true)]
async fn answers_are_decoded_by_their_content_type() {
    let (_env, api) = api(|| Answer::json(&json!({ "kind": "Pod", "metadata": { "name": "a" } })));
    let raw = api.connection().send(Call::get("/api/v1/namespaces/ns/pods/a")).await.unwrap();
    assert_eq!(raw.decode::<wire::Pod>().unwrap().metadata.unwrap().name.as_deref(), Some("a"));
}

#[tokio::test]
async fn an_open_connection_names_its_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let text = "clusters: [{ name: c, cluster: { server: 'https://10.0.0.1:6443' } }]\n\
                contexts: [{ name: prod, context: { cluster: c, user: u, namespace: ns } }]\n\
                users: [{ name: u, user: { token: t } }]\ncurrent-context: prod\n";
    std::fs::write(&path, text).unwrap();
    let request_timeout = Some(Duration::from_secs(7));
    let options = ConnectOptions { kubeconfig: Some(path), request_timeout, ..ConnectOptions::default() };
    let metrics = ClientMetrics::register(&Registry::new()).unwrap();
    let connection = Connection::open(&options, Env::real(1), metrics).await.unwrap();
    assert_eq!(connection.target().to_string(), "context prod, https://10.0.0.1:6443");
    assert_eq!((connection.default_namespace(), Some(connection.request_timeout)), ("ns", request_timeout));
}

#[tokio::test(start_paused = true)]
async fn read_text_returns_a_log_or_the_refusal() {
    let (_env, api) = api(|| Answer::plain(200, "one\ntwo\n"));
    assert_eq!(api.connection().read_text("/log").await.unwrap(), "one\ntwo\n");
    let (_env, api) = self::api(|| Answer::status(403, "Forbidden", "no"));
    assert_eq!(api.connection().read_text("/log").await.unwrap_err().code(), Some(403));
}

#[tokio::test(start_paused = true)]
async fn each_failure_has_its_category_and_predicates() {
    // The answer; its category; is_not_found; is_changed; is_outcome_unknown.
    type Row = (fn() -> Answer, &'static str, bool, bool, bool);
    let rows: [Row; 18] = [
        (Answer::not_found, "not_found", true, false, false),
        // Of an API server after 1.37: a kind that is not served was an object that does not exist.
        (|| Answer::status(404, "NotFound", request::NOT_SERVED), "not_found", false, false, false),
        (|| Answer::plain(404, "404 page not found"), "not_found", false, false, false),
        (|| Answer::status(404, "NotFoundAtAll", "x"), "not_found", false, false, false),
        (|| Answer::status(409, "Conflict", "modified"), "conflict", false, true, false),
        (|| Answer::status(409, "AlreadyExists", "there"), "conflict", false, true, false),
        (|| Answer::status(422, "Invalid", "metadata.uid: field is immutable"), "invalid", false, true, false),
        (|| Answer::status(422, "Invalid", "spec: no"), "invalid", false, false, false),
        (|| Answer::status(401, "Unauthorized", "no"), "unauthenticated", false, false, false),
        (|| Answer::status(403, "Forbidden", "no"), "forbidden", false, false, false),
        (|| Answer::plain(403, "<html>"), "transport", false, false, true),
        (|| Answer::status(410, "Expired", "old"), "expired", false, false, false),
        (|| Answer::plain(429, "slow"), "too_many_requests", false, false, false),
        (|| Answer::status(500, "InternalError", "x"), "server", false, false, true),
        (|| Answer::plain(504, "gateway timeout"), "server", false, false, true),
        (Answer::never, "timeout", false, false, true),
        (Answer::broken, "transport", false, false, true),
        (|| Answer::plain(200, "hello"), "undecodable", false, false, true),
    ];
    for (answer, category, not_found, changed, unknown) in rows {
        let error = failure(answer).await;
        let seen = (error.category(), error.is_not_found(), error.is_changed(), error.is_outcome_unknown());
        assert_eq!(seen, (category, not_found, changed, unknown), "{error:?}");
        assert_eq!(error.is_unknown_kind(), error.to_string().contains(" 404: "), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_shows_the_message_of_the_api_server() {
    let causes = || {
        let details = json!({ "causes": [{ "message": "The disruption budget b needs 2 healthy pods" }], "retryAfterSeconds": 3 });
        Answer::with_code(
            429,
            &json!({ "kind": "Status", "reason": "TooManyRequests", "message": "Cannot evict", "details": details }),
        )
    };
    let error = failure(causes).await;
    assert_eq!(
        error_chain(&error),
        "the API server answered 429 TooManyRequests: Cannot evict (The disruption budget b needs 2 healthy pods)"
    );
    let ApiError::Refused { retry_after, .. } = error else { panic!("{error:?}") };
    assert_eq!(retry_after, Some(Duration::from_secs(3)));
    assert_eq!(
        failure(|| Answer::plain(502, "bad gateway\n")).await.to_string(),
        "the API server answered 502: bad gateway"
    );
    let redirect = Response::builder().status(302).header("Location", "https://login.example.com/a?state=secret");
    let head = RefusalHead::from_response(&redirect.body(Body::empty()).unwrap()).unwrap();
    assert_eq!(
        ApiError::from_status(head, Encoding::Json, Bytes::new(), &Target::default()).to_string(),
        "the API server answered 302: it redirects to https://login.example.com/a; check server of the kubeconfig"
    );
    let broken = failure(Answer::broken).await.to_string();
    assert!(broken.starts_with("the connection to the API server broke: "), "{broken}");
}

#[tokio::test(start_paused = true)]
async fn retry_after_without_positive_seconds_is_ignored() {
    for seconds in [0, 5] {
        let (_env, api) = api(if seconds == 0 {
            || Answer::plain(429, "x").with_retry_after(0)
        } else {
            || Answer::plain(429, "x").with_retry_after(5)
        });
        let error = api.connection().send(Call::get("/readyz")).await.unwrap_err();
        let ApiError::Refused { retry_after, .. } = error else { panic!("{error:?}") };
        assert_eq!(retry_after, (seconds > 0).then_some(Duration::from_secs(seconds)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_times_out_at_its_deadline_or_the_read_timeout() {
    for (deadline, waits) in [(None, 30), (Some(4), 4), (Some(500), 30), (Some(0), 0)] {
        let (env, api) = api(Answer::never);
        let mut call = Call::get("/api/v1/nodes/n");
        if let Some(seconds) = deadline {
            call = call.with_deadline(env.now() + Duration::from_secs(seconds));
        }
        let error = api.connection().send(call).await.unwrap_err();
        assert_eq!(error.category(), "timeout");
        assert_eq!(env.now(), Mono::from_start(Duration::from_secs(waits)), "{deadline:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_times_out() {
    let (env, _wall) = env();
    let held = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&held);
    let api = Api::new(&env, move |_| {
        let (events, answer) = Answer::stream();
        events.send_text("{\"metadata\":");
        keep.lock().push(events);
        async move { answer }
    });
    let error = api.connection().send(Call::get("/api/v1/nodes/n")).await.unwrap_err();
    assert_eq!(error.category(), "timeout");
}

#[tokio::test(start_paused = true)]
async fn a_watch_returns_events_as_they_arrive_and_ends_with_the_stream() {
    let (env, _wall) = env();
    let (events, answer) = Answer::stream();
    let answer = Arc::new(Mutex::new(Some(answer)));
    let api = Api::new(&env, move |_| {
        let answer = answer.lock().take().unwrap();
        async move { answer }
    });
    let mut stream = api.connection().watch(Call::get("/api/v1/pods?watch=true")).await.unwrap();
    events.send_text("{\"type\":\"ADDED\",\"obj");
    assert!(tokio::time::timeout(Duration::from_secs(1), stream.next()).await.is_err(), "half an event is none");
    events.send_text("ect\":{}}\n");
    assert!(matches!(stream.next().await, Ok(Some(wire::Event::Applied(_)))));
    drop(events);
    assert!(matches!(stream.next().await, Ok(None)));
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_verb_resource_and_code() {
    let (env, _wall) = env();
    let api = Api::new(&env, |request| async move {
        if request.method == "GET" { Answer::json(&json!({})) } else { Answer::not_found() }
    });
    let registry = Registry::new();
    let connection = api.connection_with(&ClientMetrics::register(&registry).unwrap());
    let lease = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/secret-name";
    drop(connection.send(Call::get(lease)).await);
    drop(connection.send(Call::write(Method::Patch, lease, &json!({}))).await);
    advance(1.0).await;
    let page = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for line in [
        r#"pod_safety_api_requests_total{code="200",resource="leases",verb="get"} 1"#,
        r#"pod_safety_api_requests_total{code="404",resource="leases",verb="patch"} 1"#,
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
    assert!(!page.contains("secret-name"));
}

#[tokio::test(start_paused = true)]
async fn the_default_namespace_is_default_without_a_context() {
    let (_env, api) = api(Answer::not_found);
    assert_eq!(api.connection().default_namespace(), "default");
}

/// A task with its own runtime would wait for connections of a runtime that is blocked.
#[tokio::test(start_paused = true)]
async fn an_isolated_connection_opens_its_own_tcp_connections() {
    let (_env, shared) = api(Answer::not_found);
    let (_env, own) = api(|| Answer::json(&json!({ "items": [] })));
    let kube = own.connection().kube;
    let connection = Connection { new_client: Arc::new(move || kube.clone()), ..shared.connection() };
    connection.isolated().list_items("/api/v1/nodes").await.unwrap();
    assert_eq!((shared.lines().len(), own.lines().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn list_items_returns_the_items_of_a_list() {
    let items = async |answer| api(answer).1.connection().list_items("/api/v1/nodes").await.unwrap();
    assert_eq!(items(|| Answer::json(&json!({ "items": [{ "a": 1 }, { "a": 2 }] }))).await.len(), 2);
    assert!(items(|| Answer::json(&json!({ "items": [] }))).await.is_empty());
    assert!(items(|| Answer::json(&json!({}))).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn writes_pause_after_a_429_except_after_a_429_for_an_eviction() {
    const EVICTION: &str = "/api/v1/namespaces/ns/pods/a/eviction";
    let (env, api) = api(|| Answer::plain(429, "later").with_retry_after(7));
    let connection = api.connection();
    let waited = async || {
        let start = env.now();
        connection.wait_backoff().await;
        env.now().since(start)
    };
    // Only the path counts, and the guard refuses evictions without a permit.
    connection.send(Call::get(EVICTION)).await.unwrap_err();
    assert_eq!(waited().await, Duration::ZERO);
    connection.send(Call::get("/api/v1/nodes")).await.unwrap_err();
    assert_eq!(waited().await, Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn reads_do_not_count_for_the_write_latency() {
    let (_env, api) = api(|| Answer::json(&json!({})).delayed(Duration::from_millis(40)));
    let connection = api.connection();
    connection.send(Call::get("/api/v1/nodes/n")).await.unwrap();
    assert_eq!(connection.pace.baseline(), None);
    connection.send(Call::write(Method::Post, "/api/v1/namespaces/ns/events", &json!({}))).await.unwrap();
    assert_eq!(connection.pace.baseline(), Some(Duration::from_millis(40)));
}

#[tokio::test(start_paused = true)]
async fn the_longest_requested_pause_counts_up_to_30_seconds() {
    let (env, _wall) = env();
    let pauses = Mutex::new(vec![1, 86_400]);
    let api = Api::answering(&env, move |_| Answer::plain(429, "later").with_retry_after(pauses.lock().pop().unwrap()));
    let connection = api.connection();
    for _ in 0..2 {
        connection.send(Call::get("/api/v1/nodes")).await.unwrap_err();
    }
    connection.wait_backoff().await;
    assert_eq!(env.now(), Mono::from_start(Duration::from_secs(30)));
}

/// kubectl reads again; `status` and `explain` ended with an error.
#[tokio::test(start_paused = true)]
async fn bug_reads_of_commands_ended_at_the_first_answer_with_retry_after() {
    let read = || Call::get("/api/v1/nodes");
    let write = || Call::write(Method::Post, "/api/v1/namespaces/ns/events", &json!({}));
    // The call; the timeout; how often which code and Retry-After are answered; the requests, their seconds, and the end.
    type Row = (fn() -> Call, Duration, usize, u16, Option<u64>, (usize, u64, Option<u16>));
    let rows: [Row; 10] = [
        (read, READ_TIMEOUT, 3, 429, Some(1), (4, 3, None)),
        (read, READ_TIMEOUT, 2, 503, Some(2), (3, 4, None)),
        (read, READ_TIMEOUT, 2, 429, Some(0), (3, 0, None)),
        (read, READ_TIMEOUT, 99, 500, Some(1), (11, 10, Some(500))),
        (read, READ_TIMEOUT, 99, 429, Some(20), (2, 20, Some(429))),
        (read, READ_TIMEOUT, 99, 429, Some(30), (1, 0, Some(429))),
        (read, Duration::MAX, 1, 429, Some(86_400), (2, 30, None)),
        (read, READ_TIMEOUT, 99, 429, None, (1, 0, Some(429))),
        (read, READ_TIMEOUT, 99, 404, Some(1), (1, 0, Some(404))),
        (write, READ_TIMEOUT, 99, 429, Some(1), (1, 0, Some(429))),
    ];
    for (call, request_timeout, times, code, seconds, expected) in rows {
        let (env, _wall) = env();
        let left = Mutex::new(times);
        let api = Api::answering(&env, move |_| {
            let mut left = left.lock();
            if *left == 0 {
                return Answer::json(&json!({ "items": [] }));
            }
            *left -= 1;
            seconds.into_iter().fold(Answer::plain(code, "later"), Answer::with_retry_after)
        });
        let waits = Arc::new(Mutex::new(Duration::ZERO));
        let seen = Arc::clone(&waits);
        let connection = Connection { request_timeout, ..api.connection() };
        let connection = connection.with_read_retries(Arc::new(move |_, waited| *seen.lock() = waited));
        let end = connection.send(call()).await.err().and_then(|error| error.code());
        let passed = env.now().since_start();
        assert_eq!((api.lines().len(), passed.as_secs(), end), expected, "{code} {seconds:?}");
        assert_eq!(*waits.lock(), passed, "{code} {seconds:?}");
    }
}

/// A login page was answered with the ClusterRole to ask for. A webhook refuses with a Status without a reason.
#[test]
fn bug_a_403_of_a_proxy_was_taken_for_missing_rights() {
    let (context, server) = (Some("prod".to_owned()), "https://10.0.0.1:6443".to_owned());
    let to = Target { context, server, user: None };
    let stranger = "what answers at https://10.0.0.1:6443 (context prod) is no API server";
    for (body, expected) in [
        ("<!DOCTYPE html>\n<html>Log in", Some("403, an HTML page; check server and proxy-url of the kubeconfig")),
        ("Blocked by\npolicy", Some("403, Blocked by policy;")),
        (r#"{"message":"no"}"#, Some(r#"403, {"message":"no"};"#)),
        (r#"{"kind":"Status","message":"admission webhook denied the request"}"#, None),
        (r#"{"kind":"Status","reason":"Forbidden","message":"pods is forbidden"}"#, None),
    ] {
        let head = RefusalHead { code: http::StatusCode::FORBIDDEN, ..RefusalHead::default() };
        let error = ApiError::from_status(head, Encoding::Json, body.into(), &to);
        assert_eq!(error.code().is_none(), expected.is_some(), "{error:?}");
        let text = error.to_string();
        assert!(expected.is_none_or(|part| text.starts_with(stranger) && text.contains(part)), "{text}");
    }
}
