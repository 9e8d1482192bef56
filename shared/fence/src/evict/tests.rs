//! Evictions: the requests that are sent, and the answers.

use pod_safety_cache::testing::objects::{Obj, pod, uid};
use serde_json::{Value, json};

use super::*;
use crate::client::scripted::{Answer, Api, Received, env};

const POD: &str = "/api/v1/namespaces/ns/pods/a";
const EVICT: &str = "POST /api/v1/namespaces/ns/pods/a/eviction";
const SENTENCE: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

type Says = fn() -> Answer;

struct Harness {
    env: Env,
    api: Api,
}

fn harness(script: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Harness {
    let (env, _wall) = env();
    let api = Api::answering(&env, script);
    Harness { env, api }
}

/// An API server that has this pod, and answers evictions like this.
fn harness_with(object: Obj, answer: impl Fn() -> Answer + Send + Sync + 'static) -> Harness {
    harness(move |request| if request.method == "GET" { Answer::json(&object.0) } else { answer() })
}

fn good() -> Answer {
    Answer::with_code(201, &json!({ "kind": "Status", "status": "Success" }))
}

/// The Status that eviction.go returns, with its cause.
fn status(code: u16, message: &str, cause: Option<&str>, seconds: u64) -> Answer {
    let causes: Vec<Value> =
        cause.iter().map(|cause| json!({ "reason": "DisruptionBudget", "message": cause })).collect();
    let body = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message,
        "details": { "causes": causes, "retryAfterSeconds": seconds } });
    Answer::with_code(code, &body)
}

impl Harness {
    async fn run(&self, dry_run: bool) -> Result<Evicted, NotEvicted> {
        let key = PodKey { namespace: "ns".into(), name: "a".into(), uid: uid("uid-a") };
        let deadline = self.env.now() + Duration::from_secs(10);
        evict(&self.api.connection(), &self.env, &Eviction { pod: key, dry_run }, deadline).await
    }

    async fn evict(&self) -> Result<Evicted, NotEvicted> {
        self.run(false).await
    }

    /// The answer, for which no request may have been sent.
    async fn evict_without_request(&self) -> Result<Evicted, NotEvicted> {
        let answer = self.evict().await;
        assert_eq!(self.api.writes(), Vec::<String>::new());
        answer
    }
}

#[tokio::test(start_paused = true)]
async fn an_eviction_has_the_uid_the_version_and_the_grace_period_of_the_pod() {
    let harness = harness_with(pod("a").set("/spec/terminationGracePeriodSeconds", json!(60)), good);
    assert_eq!(harness.evict().await.unwrap(), Evicted::Terminates { grace: 60 });
    assert_eq!(harness.api.lines(), [format!("GET {POD}"), EVICT.to_owned()]);
    let sent = harness.api.requests().pop().unwrap();
    assert_eq!(
        sent.json(),
        json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "namespace": "ns", "name": "a" },
            "deleteOptions": { "gracePeriodSeconds": 60, "preconditions": { "uid": "uid-a", "resourceVersion": "10" } },
        })
    );
    assert!(!sent.permitted, "the guard lets it through without a permit");
}

#[tokio::test(start_paused = true)]
async fn the_grace_period_of_an_eviction_is_never_zero() {
    for (given, sent) in [(json!(0), 1), (json!(-5), 1), (Value::Null, 30), (json!(7), 7)] {
        let harness = harness_with(pod("a").set("/spec/terminationGracePeriodSeconds", given.clone()), good);
        assert_eq!(harness.evict().await.unwrap(), Evicted::Terminates { grace: sent }, "{given}");
        let body = harness.api.requests().pop().unwrap().json();
        assert_eq!(body["deleteOptions"]["gracePeriodSeconds"], sent);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_is_in_query_and_body() {
    let harness = harness_with(pod("a"), good);
    harness.run(true).await.unwrap();
    let sent = harness.api.requests().pop().unwrap();
    assert_eq!(sent.query, "dryRun=All");
    assert_eq!(sent.json()["deleteOptions"]["dryRun"], json!(["All"]));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_replaced_terminating_or_finished_is_not_evicted() {
    for (object, answer) in [
        (pod("a").uid("uid-another"), Evicted::Replaced),
        (pod("a").terminating(), Evicted::AlreadyTerminating),
        (pod("a").phase("Succeeded"), Evicted::Finished),
        (pod("a").phase("Failed"), Evicted::Finished),
    ] {
        assert_eq!(harness_with(object, good).evict_without_request().await.unwrap(), answer);
    }
    assert_eq!(harness(|_| Answer::not_found()).evict_without_request().await.unwrap(), Evicted::Gone);
}

/// The pod had just been listed, and was read again.
#[tokio::test(start_paused = true)]
async fn a_listed_pod_is_checked_like_one_that_is_read() {
    let key = || PodKey { namespace: "ns".into(), name: "a".into(), uid: uid("uid-a") };
    for (object, expected) in [
        (pod("a"), Ok(Evicted::Terminates { grace: 30 })),
        (pod("a").uid("uid-another"), Ok(Evicted::Replaced)),
        (pod("a").terminating(), Ok(Evicted::AlreadyTerminating)),
        (pod("a").phase("Failed").running(), Err("TerminalButRunning")),
    ] {
        let harness = harness_with(object, good);
        let connection = harness.api.connection();
        let read = connection.send(Call::get(POD)).await.unwrap();
        let eviction = Eviction { pod: key(), dry_run: false };
        let deadline = harness.env.now() + Duration::from_secs(10);
        let answer = evict_read_pod(&connection, &harness.env, &eviction, &read, deadline).await;
        let answer = answer.map_err(|why| why.reason());
        let sent = usize::from(answer == Ok(Evicted::Terminates { grace: 30 }));
        assert_eq!((answer, harness.api.lines().len()), (expected, 1 + sent));
    }
}

/// The API server removes a pod with a terminal phase at once, whatever its grace period is.
#[tokio::test(start_paused = true)]
async fn a_pod_with_a_terminal_phase_and_a_running_container_is_never_evicted() {
    for phase in ["Failed", "Succeeded"] {
        let answer = harness_with(pod("a").phase(phase).running(), good).evict_without_request().await;
        assert!(matches!(answer, Err(NotEvicted::Unsafe)), "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_read_is_not_evicted() {
    let answer = harness_with(pod("a").set("/metadata/resourceVersion", json!("")), good).evict_without_request().await;
    let Err(NotEvicted::Unreadable(why)) = answer else { panic!("{answer:?}") };
    assert_eq!(why, "metadata.resourceVersion is missing or empty");
}

#[tokio::test(start_paused = true)]
async fn a_blocking_budget_is_reported_with_its_numbers() {
    const CAUSE: &str = "The disruption budget b needs 3 healthy pods and has 3 currently";
    let answer = harness_with(pod("a"), || status(429, SENTENCE, Some(CAUSE), 0)).evict().await.unwrap_err();
    assert!(matches!(answer, NotEvicted::Blocked { retry_after: None, .. }), "{answer:?}");
    assert_eq!((answer.to_string().as_str(), answer.retry_delay()), (CAUSE, Some(BUDGET_RETRY)));
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_being_processed_is_reported_with_its_retry_after() {
    const CAUSE: &str = "The disruption budget b is still being processed by the server.";
    let answer = harness_with(pod("a"), || status(429, SENTENCE, Some(CAUSE), 10)).evict().await.unwrap_err();
    assert!(matches!(answer, NotEvicted::Processing { .. }), "{answer:?}");
    assert_eq!(answer.retry_delay(), Some(Duration::from_secs(10)));
}

#[tokio::test(start_paused = true)]
async fn status_429_without_a_budget_cause_is_not_a_blocking_budget() {
    let answer = harness_with(pod("a"), || Answer::plain(429, "Too many requests").with_retry_after(4)).evict().await;
    let answer = answer.unwrap_err();
    assert!(matches!(answer, NotEvicted::Failed(_)), "{answer:?}");
    assert_eq!(answer.retry_delay(), Some(Duration::from_secs(4)));
}

#[tokio::test(start_paused = true)]
async fn the_names_of_several_budgets_are_read() {
    let budget = |name: &str, app: &str| json!({ "metadata": { "namespace": "ns", "name": name }, "spec": { "selector": { "matchLabels": { "app": app } } } });
    let budgets = json!({ "metadata": { "resourceVersion": "9" },
        "items": [budget("two", "db"), budget("other", "web"), budget("one", "db")] });
    let labelled = pod("a").set("/metadata/labels", json!({ "app": "db" }));
    let harness = harness(move |request| match request.line().as_str() {
        EVICT => status(
            500,
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            None,
            0,
        ),
        "GET /apis/policy/v1/namespaces/ns/poddisruptionbudgets" => Answer::json(&budgets),
        _ => Answer::json(&labelled.0),
    });
    let answer = harness.evict().await.unwrap_err();
    assert_eq!(
        answer.to_string(),
        "2 PodDisruptionBudgets select the pod (one, two), and the API server evicts no such pod"
    );
    assert_eq!(answer.retry_delay(), None);
}

#[tokio::test(start_paused = true)]
async fn other_refusals_of_the_api_server_are_classified() {
    const FULL: &str = "poddisruptionbudgets.policy \"b\" is forbidden: DisruptedPods map too big - too many evictions not confirmed by PDB controller";
    const RIGHTS: &str =
        "pods \"a\" is forbidden: User \"x\" cannot create resource \"pods/eviction\" in API group \"\"";
    const ENDS: &str =
        "pods \"a\" is forbidden: unable to create new content in namespace ns because it is being terminated";
    const CALLING: &str = "Internal error occurred: failed calling webhook \"w.example.com\": failed to call webhook: Post \"https://10.0.0.9\": context deadline exceeded";
    const DENIED: &str = "admission webhook \"w.example.com\" denied the request: not now";
    let cases: [(Says, &str, bool); 13] = [
        (|| status(403, ENDS, Some("namespace ns is being terminated"), 0), "NamespaceTerminating", true),
        (|| status(403, FULL, None, 0), "TooManyDisrupted", true),
        (|| status(403, RIGHTS, None, 0), "Failed", false),
        (|| status(403, "pdb disruptions allowed is negative", None, 0), "BudgetBlocks", true),
        (
            || status(504, "Timeout: couldn't update PodDisruptionBudget \"b\" due to conflicts", None, 10),
            "Failing",
            true,
        ),
        (|| status(500, "etcd fell over", None, 0), "Failing", true),
        (|| status(500, CALLING, None, 0), "WebhookFails", true),
        (|| Answer::status(409, "Conflict", DENIED), "Failed", false),
        (|| Answer::status(404, "NotFound", DENIED), "Failed", false),
        (|| status(500, DENIED, None, 0), "Failed", false),
        (|| status(429, DENIED, None, 0), "Failed", true),
        (|| Answer::status(409, "Conflict", "the ResourceVersion in the precondition"), "Changed", true),
        (Answer::never, "Unknown", true),
    ];
    for (answer, reason, again) in cases {
        let answer = harness_with(pod("a"), answer).evict().await.unwrap_err();
        assert_eq!((answer.reason(), answer.retry_delay().is_some()), (reason, again), "{answer}");
    }
}

/// A webhook that fails is named, and a failure that may be permanent is retried for a minute.
#[tokio::test(start_paused = true)]
async fn bug_a_permanent_failure_was_retried_without_a_limit() {
    const CALLING: &str =
        "Internal error occurred: failed calling webhook \"w.example.com\": failed to call webhook: no route";
    let answer = harness_with(pod("a"), || status(500, CALLING, None, 0)).evict().await.unwrap_err();
    assert_eq!(
        answer.to_string(),
        "the API server asks the admission webhook w.example.com first, and that fails: failed to call webhook: no route"
    );
    let minute = Some(Duration::from_secs(60));
    assert_eq!(answer.retry_limit(), minute);
    assert_eq!(harness_with(pod("a"), || status(500, "no", None, 0)).evict().await.unwrap_err().retry_limit(), minute);
    // Outages and blocking budgets end.
    assert_eq!(harness(|_| Answer::status(503, "", "")).evict().await.unwrap_err().retry_limit(), None);
    assert_eq!(
        harness_with(pod("a"), || status(429, "", Some("disruption budget"), 0))
            .evict()
            .await
            .unwrap_err()
            .retry_limit(),
        None
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_between_the_read_and_the_eviction_is_gone() {
    let reads = std::sync::atomic::AtomicBool::new(false);
    let harness = harness(move |request| match request.method.as_str() {
        "GET" if !reads.swap(true, std::sync::atomic::Ordering::SeqCst) => Answer::json(&pod("a").0),
        _ => Answer::not_found(),
    });
    assert_eq!(harness.evict().await.unwrap(), Evicted::Gone);
}

#[tokio::test(start_paused = true)]
async fn no_eviction_is_sent_if_the_read_fails() {
    for (code, reason) in [(503, "Unknown"), (403, "Failed")] {
        let harness = harness(move |_| Answer::status(code, "", ""));
        assert_eq!(harness.evict_without_request().await.unwrap_err().reason(), reason);
    }
}
