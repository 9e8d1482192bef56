//! Writes about evictions: final conditions rest on quorum reads, and each write on its version.

use serde_json::{Value, json};

use super::*;
use crate::authority::{
    ConditionChange, ConditionChanges, EvictionChange, EvictionUpdate, OwnerRequest, Precondition, Report, StatusChange,
};
use crate::client::scripted::FAILURES;
use crate::model::{EvictionIntent, EvictionRole, IMPERATIVE_EVICTOR, PodKey, Requester, ResponderState};
use crate::testing::objects::{eviction, eviction_request, uid};

const EVICTIONS: &str = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/ns/evictions";
const REQUESTS: &str = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/ns/evictionrequests";
const POD: &str = "/api/v1/namespaces/ns/pods/p";

fn update(name: &str, change: EvictionChange) -> Intent {
    let pod = PodKey { namespace: "ns".into(), name: "p".into(), uid: uid("uid-p") };
    let (name, uid, rv) = (name.into(), uid("uid-e"), "7".parse().unwrap());
    Intent::Update(Update::Eviction(Box::new(EvictionUpdate { pod, name, uid, rv, change })))
}

fn stated(holds: bool, reason: &str) -> ConditionChange {
    ConditionChange { is_true: holds, reason: reason.to_owned(), message: String::new(), transition: holds }
}

/// The status of an Eviction that ends, with this precondition.
fn ends(check: Precondition) -> EvictionChange {
    let stand = ConditionChanges { failed: stated(true, "R"), evicted: stated(false, "EvictionFailed") };
    EvictionChange::Status(Box::new(StatusChange {
        observed: 1,
        conditions: Some(stand),
        check,
        ..StatusChange::default()
    }))
}

fn evict() -> EvictionChange {
    EvictionChange::Evict { attempt: 3, floor: 0, heartbeat: true }
}

/// The objects of the API server.
#[derive(Clone, Default)]
struct There {
    pod: Option<Obj>,
    requests: Vec<Obj>,
    evictions: Vec<Obj>,
    /// The answer to an eviction; by default it is accepted.
    refuses: Option<(u16, &'static str)>,
}

impl There {
    fn answer(&self, request: &Received) -> Answer {
        let list = |all: &[Obj]| {
            let items: Vec<&Value> = all.iter().map(|one| &one.0).collect();
            Answer::json(&json!({ "metadata": { "resourceVersion": "9" }, "items": items }))
        };
        let named = |name: &str| self.evictions.iter().find(|one| one["metadata"]["name"] == *name);
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", POD) => self.pod.as_ref().map_or_else(Answer::not_found, |pod| Answer::json(&pod.0)),
            ("GET", REQUESTS) => list(&self.requests),
            ("GET", EVICTIONS) => list(&self.evictions),
            ("GET", path) => {
                let name = path.rsplit('/').next().unwrap_or_default();
                named(name).map_or_else(Answer::not_found, |one| Answer::json(&one.0))
            }
            ("POST", path) if path.ends_with("/eviction") => match self.refuses {
                Some((code, message)) => Answer::status(code, "TooManyRequests", message),
                None => Answer::json(&json!({ "kind": "Status", "status": "Success" })),
            },
            ("POST", EVICTIONS) => {
                let name = request.json()["metadata"]["name"].as_str().unwrap().to_owned();
                match named(&name) {
                    Some(_) => Answer::status(409, "AlreadyExists", "already exists"),
                    None => Answer::json(&eviction(&name, "p").0),
                }
            }
            _ => Answer::json(&eviction("e", "p").rv(8).0),
        }
    }
}

/// Executes the intent. Returns the outcome, and the writes.
async fn done(there: &There, intent: Intent) -> (String, Vec<Received>) {
    let there = there.clone();
    let pool = pool(Leadership::always(), move |request| there.answer(request));
    pool.submit_accepted(intent);
    advance(1.0).await;
    let outcome = pool.completed().pop().unwrap().split(": ").nth(1).unwrap().to_owned();
    (
        outcome,
        pool.api
            .requests()
            .into_iter()
            .filter(|request| request.method != "GET" && !request.path.contains("/events"))
            .collect(),
    )
}

fn e() -> Obj {
    eviction("e", "p").rv(7)
}

/// Each precondition with the objects that fulfil it, and with objects that do not: unknown, stale, or of another pod.
#[tokio::test(start_paused = true)]
async fn a_final_condition_is_written_only_after_quorum_reads() {
    let asks = || eviction_request("r", "p", "example.com/asks");
    let withdrawn = || asks().set("/spec/intent", json!("Withdrawn"));
    let invalid = || asks().verdict("Failed", "True", "EvictionInvalid");
    let deleted = || asks().set("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let of = |pod: Obj| There { pod: Some(pod), ..There::default() };
    let requested = |requests: &[Obj]| There { requests: requests.to_vec(), ..There::default() };
    let beside = |older: Obj| There { evictions: vec![older], ..There::default() };
    let duplicate = || Precondition::Duplicate { of: "old".into(), uid: uid("uid-old") };
    let old = || eviction("old", "p");
    let unreadable = asks().set("/spec", json!({ "intent": "Eviction" }));
    let rows = [
        ("gone", Precondition::PodGone, There::default(), true),
        ("a successor has the name", Precondition::PodGone, of(pod("p").uid("uid-q")), true),
        ("the cache was ahead", Precondition::PodGone, of(pod("p")), false),
        ("it ended", Precondition::PodTerminal, of(pod("p").terminated()), true),
        ("it runs", Precondition::PodTerminal, of(pod("p")), false),
        ("its successor ended", Precondition::PodTerminal, of(pod("p").uid("uid-q").terminated()), false),
        ("it is left", Precondition::PodRunning, of(pod("p")), true),
        ("it went meanwhile", Precondition::PodRunning, There::default(), false),
        ("nobody asks", Precondition::NotRequested, requested(&[withdrawn(), deleted(), invalid()]), true),
        (
            "a request that failed for another reason",
            Precondition::NotRequested,
            requested(&[asks().verdict("Failed", "True", "NoFurtherResponder")]),
            false,
        ),
        (
            "others are asked for",
            Precondition::NotRequested,
            requested(&[eviction_request("r", "q", "example.com/asks")]),
            true,
        ),
        ("a request that the cache has not", Precondition::NotRequested, requested(&[asks()]), false),
        ("one that cannot be read", Precondition::NotRequested, requested(&[unreadable]), false),
        ("an older one goes on", duplicate(), beside(old()), true),
        ("it ended", duplicate(), beside(old().verdict("Failed", "True", "R")), false),
        ("it is of another pod", duplicate(), beside(eviction("old", "q")), false),
        ("another one has its name", duplicate(), beside(old().uid("uid-new")), false),
    ];
    for (sentence, check, there, writes) in rows {
        let (outcome, written) = done(&there, update("e", ends(check.clone()))).await;
        let wanted = if writes { ("written", 1) } else { ("changed", 0) };
        assert_eq!((outcome.as_str(), written.len()), wanted, "{sentence} {check:?}");
    }
}

/// The messages are those of kubernetes#137133.
#[tokio::test(start_paused = true)]
async fn a_request_is_marked_invalid_only_after_a_quorum_read() {
    let refuse = || update("r", EvictionChange::Refuse { observed: 4, transitions: (true, false) });
    let of = |pod: Obj, evictions: &[Obj]| There { pod: Some(pod), evictions: evictions.to_vec(), ..There::default() };
    let group = || pod("p").set("/spec/schedulingGroup", json!({ "podGroupName": "g" }));
    for (there, message) in [
        (There::default(), Some("Target pod not found.")),
        (of(pod("p").uid("uid-q"), &[]), Some("Target pod UID mismatch: expected uid-p, got uid-q.")),
        (of(group(), &[e()]), Some("Target pod references a SchedulingGroup. Eviction is currently not supported.")),
        (of(pod("p"), &[]), None),
        // An Eviction that is not in the cache yet records the pod's outcome.
        (There { evictions: vec![e()], ..There::default() }, None),
    ] {
        let (outcome, written) = done(&there, refuse()).await;
        let Some(message) = message else {
            assert_eq!((outcome.as_str(), written.len()), ("changed", 0));
            continue;
        };
        let body = written[0].json();
        assert_eq!((outcome.as_str(), written[0].path.as_str()), ("written", &*format!("{REQUESTS}/r/status")));
        let [failed, evicted] = [0, 1].map(|at| body["status"]["conditions"][at].clone());
        assert_eq!((&failed["reason"], &failed["message"]), (&json!("EvictionInvalid"), &json!(message)));
        assert_eq!([&failed, &evicted].map(|one| one.get("lastTransitionTime").is_some()), [true, false]);
        assert_eq!((&evicted["status"], &body["status"]["observedGeneration"]), (&json!("False"), &json!(4)));
    }
}

/// The first status of an Eviction.
fn begins() -> StatusChange {
    StatusChange {
        observed: 1,
        responders: vec![("a.com/a".into(), 10_000), (IMPERATIVE_EVICTOR.into(), 100)],
        states: vec![("a.com/a".into(), ResponderState::Active)],
        starts: Some("a.com/a".into()),
        requesters: vec![Requester { name: "b.com/b".into(), intent: EvictionIntent::Eviction }],
        dropped: vec!["c.com/c".into()],
        ..StatusChange::default()
    }
}

#[tokio::test(start_paused = true)]
async fn each_write_carries_uid_and_version_and_only_changed_entries() {
    let owner = || vec![OwnerRequest { name: "r".into(), uid: uid("uid-r") }];
    let identity = json!({ "uid": "uid-e", "resourceVersion": "7" });
    let now = "2026-11-21T12:00:00Z";
    let says = Report {
        responder: "pod-safety.dev/lost-node",
        message: "m".to_owned(),
        heartbeat: true,
        expected: Some(1),
        complete: true,
        floor: 0,
    };
    let entry = json!({ "name": "pod-safety.dev/lost-node", "message": "m", "heartbeatTime": now, "expectedCompletionTime": now, "completionTime": now });
    let rows: Vec<(EvictionChange, &str, Value)> = vec![
        (
            EvictionChange::Status(Box::new(begins())),
            "PATCH /e/status",
            json!({ "metadata": identity, "status": {
            "observedGeneration": 1,
            "targetResponders": [{ "name": "a.com/a", "state": "Active", "priority": 10_000 }, { "name": IMPERATIVE_EVICTOR, "priority": 100, "state": "Inactive" }],
            "responders": [{ "name": "a.com/a", "startTime": now }, { "name": IMPERATIVE_EVICTOR }],
            "requesters": [{ "name": "b.com/b", "intent": "Eviction" }, { "$patch": "delete", "name": "c.com/c" }],
        } }),
        ),
        (
            EvictionChange::Report(Box::new(says)),
            "PATCH /e/status",
            json!({ "metadata": identity, "status": { "responders": [entry] } }),
        ),
        (
            EvictionChange::Mark {
                owners: owner(),
                labels: vec![("a.com/a".into(), Some(EvictionRole::RequesterResponder)), ("b.com/b".into(), None)],
            },
            "PATCH /e",
            json!({ "metadata": {
            "uid": "uid-e", "resourceVersion": "7", "labels": { "a.com/a": "requester-responder", "b.com/b": null },
            "ownerReferences": [{ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest", "name": "r", "uid": "uid-r" }],
        } }),
        ),
        (
            EvictionChange::Collect,
            "DELETE /e",
            json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": identity }),
        ),
    ];
    for (change, line, body) in rows {
        let (outcome, written) = done(&There::default(), update("e", change)).await;
        let line = line.replace(" /", &format!(" {EVICTIONS}/"));
        assert_eq!((outcome.as_str(), written[0].line(), written[0].json()), ("written", line, body));
    }
}

/// Other clients may have created Evictions of pods with the same name. An Eviction of this pod shows that the cache is behind.
#[tokio::test(start_paused = true)]
async fn a_new_eviction_gets_the_next_free_name() {
    let create = || {
        update(
            "",
            EvictionChange::Create {
                number: 1,
                owners: Vec::new(),
                labels: vec![("a.com/a".into(), EvictionRole::Requester)],
            },
        )
    };
    for (taken, outcome, names) in [
        (vec![], "written", vec!["pod-1-p"]),
        (vec![eviction("pod-1-p", "q"), eviction("pod-2-p", "q")], "written", vec!["pod-1-p", "pod-2-p", "pod-3-p"]),
        (vec![eviction("pod-1-p", "p")], "changed", vec!["pod-1-p"]),
    ] {
        let (found, written) = done(&There { evictions: taken, ..There::default() }, create()).await;
        let tried: Vec<String> =
            written.iter().map(|one| one.json()["metadata"]["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!((found.as_str(), tried), (outcome, names.into_iter().map(str::to_owned).collect::<Vec<_>>()));
        let labels = &written[0].json()["metadata"]["labels"];
        assert_eq!(
            (&labels["app.kubernetes.io/managed-by"], &labels["a.com/a"]),
            (&json!("pod-safety"), &json!("requester"))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_an_eviction_is_reported() {
    let there = |pod: Option<Obj>| There { pod, evictions: vec![e()], ..There::default() };
    let running = || pod("p").phase("Running");
    let refused = There { refuses: Some((429, "no budget")), ..there(Some(running())) };
    let rows: Vec<(&str, There, &str, bool)> = vec![
        (
            "accepted",
            there(Some(running())),
            "the API server accepted the eviction: the pod has 30s to terminate",
            false,
        ),
        ("terminating", there(Some(running().terminating())), "the pod is terminating", false),
        ("gone", there(None), "the pod does not exist any more", true),
        ("another", there(Some(running().uid("uid-q"))), "another pod has its name", true),
        ("finished", there(Some(pod("p").terminated())), "the pod ran to its end: there is nothing to evict", true),
        (
            "refused",
            refused,
            "Failed: the API server does not evict it: the API server answered 429 TooManyRequests: no budget (attempts=3, last=2026-11-21T12:00:00Z, retryAfter=2s)",
            false,
        ),
    ];
    for (sentence, there, message, complete) in rows {
        let (outcome, written) = done(&there, update("e", evict())).await;
        let entry = written.last().unwrap().json()["status"]["responders"][0].clone();
        let said = (outcome.as_str(), entry["message"].as_str().unwrap(), entry.get("completionTime").is_some());
        assert_eq!(said, ("written", message, complete), "{sentence}");
        let times = ["heartbeatTime", "expectedCompletionTime"].map(|field| entry[field].as_str());
        let expected = (sentence == "accepted").then_some("2026-11-21T12:00:30Z");
        assert_eq!(times, [Some("2026-11-21T12:00:00Z"), expected], "{sentence}");
    }
}

/// It was canceled after the decision: a client that withdraws its request must not lose the pod.
#[tokio::test(start_paused = true)]
async fn an_eviction_that_changed_since_the_decision_evicts_nothing() {
    for evictions in [vec![e().rv(8)], vec![e().uid("uid-other")], vec![]] {
        let there = There { pod: Some(pod("p")), evictions, ..There::default() };
        let (outcome, written) = done(&there, update("e", evict())).await;
        assert!(["changed", "gone"].contains(&outcome.as_str()) && written.is_empty(), "{outcome} {written:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_eviction_times_out_when_the_term_ends() {
    let there = There { pod: Some(pod("p")), evictions: vec![e()], ..There::default() };
    let late = move |request: &Received| match request.method.as_str() {
        "POST" => there.answer(request).delayed(Duration::from_secs(5)),
        _ => there.answer(request),
    };
    let pool = pool(Leadership::for_tests(Mono::default() + Duration::from_secs(2)), late);
    pool.submit_accepted(update("e", evict()));
    advance(2.1).await;
    assert_eq!(pool.completed(), ["uid-e: not_leader"]);
}

/// The API server refuses times that are half a minute off, however often they are sent: the times are written by its clock.
#[tokio::test(start_paused = true)]
async fn attack_a_clock_that_is_31_seconds_off_stops_no_eviction() {
    let refuses = |request: &Received| match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/version") => {
            Answer::json(&json!({ "gitVersion": "v1.37.2" })).with_date("Sat, 21 Nov 2026 12:00:31 GMT")
        }
        ("PATCH", _) if request.body.contains("12:00:00Z") => {
            Answer::status(422, "Invalid", "startTime: must be set to the present time")
        }
        _ => Answer::json(&eviction("e", "p").rv(8).0),
    };
    let pool = pool(Leadership::always(), refuses);
    let begins = || StatusChange { observed: 1, starts: Some("a.com/a".into()), ..StatusChange::default() };
    for (version, tries) in [("7", 3), ("9", 1)] {
        let Intent::Update(Update::Eviction(mut wanted)) = update("e", EvictionChange::Status(Box::new(begins())))
        else {
            panic!()
        };
        wanted.rv = version.parse().unwrap();
        let before = pool.api.requests().len();
        pool.submit_accepted(Intent::Update(Update::Eviction(wanted)));
        advance(1.0).await;
        assert_eq!(pool.completed().pop().unwrap(), "uid-e: written");
        let requests = pool.api.requests();
        assert_eq!(requests.len() - before, tries, "it is learnt once");
        assert!(requests.last().unwrap().body.contains("2026-11-21T12:00:31Z"), "{requests:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn bug_the_expected_end_of_an_eviction_was_by_our_own_clock() {
    let there = There { pod: Some(pod("p").phase("Running")), evictions: vec![e()], ..There::default() };
    let pool = pool(Leadership::always(), move |request| match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/version") => {
            Answer::json(&json!({ "gitVersion": "v1.37.2" })).with_date("Sat, 21 Nov 2026 13:00:00 GMT")
        }
        ("PATCH", _) if request.body.contains("12:00:00Z") => {
            Answer::status(422, "Invalid", "heartbeatTime: must be set to the present time")
        }
        _ => there.answer(request),
    });
    pool.submit_accepted(update("e", evict()));
    advance(1.0).await;
    let requests = pool.api.requests();
    let report = requests.iter().rfind(|request| request.path.contains("evictions/e/status")).unwrap().json();
    let entry = &report["status"]["responders"][0];
    let times = ["heartbeatTime", "expectedCompletionTime"].map(|field| entry[field].as_str().unwrap());
    assert_eq!(times, ["2026-11-21T13:00:00Z", "2026-11-21T13:00:30Z"]);
}

#[tokio::test(start_paused = true)]
async fn every_write_failure_has_its_outcome_and_is_not_retried() {
    for (what, answer, expected) in FAILURES {
        // The write was accepted, and the watch delivers its result.
        let expected = if what == "an unreadable answer" { "written" } else { expected };
        for change in [EvictionChange::Collect, ends(Precondition::Nothing)] {
            let pool = pool(Leadership::always(), move |_| answer());
            pool.submit_accepted(update("e", change));
            advance(40.0).await;
            assert!(pool.completed()[0].ends_with(expected), "{what}: {:?}", pool.completed());
            assert_eq!(pool.api.writes().len(), 1, "{what}");
        }
    }
}

/// The API server hangs on evictions, for instance behind a webhook: force deletions do not wait for it.
#[tokio::test(start_paused = true)]
async fn attack_evictions_that_hang_delay_no_force_deletion() {
    let pool = pool(Leadership::always(), |request| match request.path.contains("lifecycle.k8s.io") {
        true => Answer::never(),
        false => well(request),
    });
    for number in 0..1_000 {
        let Intent::Update(Update::Eviction(mut one)) = update("e", evict()) else { panic!() };
        one.uid = uid(&format!("uid-{number}"));
        pool.submit_accepted(Intent::Update(Update::Eviction(one)));
    }
    advance(1.0).await;
    pool.submit_ended(&ended_pod("a"));
    advance(1.0).await;
    assert_eq!(pool.completed(), ["a released"]);
}

/// A thousand requests of one namespace that are withdrawn at once: their lists are shared, and other requests get their turn.
#[tokio::test(start_paused = true)]
async fn attack_a_thousand_withdrawn_requests_share_few_lists_and_block_no_other() {
    let pool = pool(Leadership::always(), |request| There::default().answer(request).delayed(Duration::from_millis(5)));
    let of = |namespace: &str, number: usize| {
        let Intent::Update(Update::Eviction(mut one)) = update("e", ends(Precondition::NotRequested)) else { panic!() };
        (one.uid, one.pod.namespace) = (uid(&format!("uid-{namespace}-{number}")), namespace.into());
        Intent::Update(Update::Eviction(one))
    };
    (0..1_000).for_each(|number| pool.submit_accepted(of("ns", number)));
    pool.submit_accepted(of("other", 0));
    advance(0.2).await;
    assert!(pool.completed().iter().any(|line| line.starts_with("uid-other-0")), "{:?}", pool.completed().len());
    advance(30.0).await;
    assert_eq!(pool.completed().len(), 1_001);
    let lists = pool.api.lines().iter().filter(|line| **line == format!("GET {REQUESTS}")).count();
    assert!(lists <= 30, "{lists}");
}

#[tokio::test(start_paused = true)]
async fn a_list_is_reused_only_within_a_second_of_its_request_and_for_its_kind_and_namespace() {
    let pool = pool(Leadership::always(), |request| match request.path.as_str() {
        path if path.ends_with("/pods/p") => Answer::not_found(),
        path => Answer::json(&json!({ "metadata": { "resourceVersion": "9" }, "items": [] }))
            .delayed(Duration::from_secs(if path == REQUESTS { 2 } else { 0 })),
    });
    let (canceled, refused) =
        (|| ends(Precondition::NotRequested), ("b", EvictionChange::Refuse { observed: 4, transitions: (true, true) }));
    for (number, (namespace, change)) in
        [("ns", canceled()), ("ns", canceled()), ("b", canceled()), refused, ("c", canceled())].into_iter().enumerate()
    {
        let Intent::Update(Update::Eviction(mut one)) = update("e", change) else { panic!() };
        (one.uid, one.pod.namespace) = (uid(&format!("uid-{number}")), namespace.into());
        pool.submit_accepted(Intent::Update(Update::Eviction(one)));
        advance(if namespace == "ns" { 2.1 } else { 0.1 }).await;
    }
    let lists: Vec<String> = pool.api.lines().into_iter().filter(|line| line.starts_with("GET /apis")).collect();
    let expected =
        ["ns/evictionrequests", "ns/evictionrequests", "b/evictionrequests", "b/evictions", "c/evictionrequests"];
    assert_eq!(lists, expected.map(|list| format!("GET /apis/lifecycle.k8s.io/v1alpha1/namespaces/{list}")));
}
