//! A drain that requests evictions, against an API server with EvictionRequests. A closure acts as its controllers.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pod_safety_shared::authority::operator_requests::eviction_requests::{DRAIN, MAINTAIN};
use pod_safety_shared::model::PodKey;
use pod_safety_shared::testing::connection;
use serde_json::{Value, json};

use super::*;
use crate::plan::EvictionMethod;
use crate::work::tests::planned;

const ALL: &str = "/apis/lifecycle.k8s.io/v1alpha1/evictionrequests";

/// What the controllers do to each request, each time that requests are read; the argument is the seconds since the
/// start.
type Acts = dyn Fn(&mut Value, u64) + Send + Sync;

/// An API server with requests by their names, and the writes that it received.
struct Server {
    requests: Mutex<BTreeMap<String, Value>>,
    writes: Mutex<Vec<String>>,
    /// A request with this method and path prefix is refused with this code.
    refuses: (&'static str, &'static str, u16),
    acts: Box<Acts>,
    env: Env,
}

impl Server {
    fn with_actions(acts: impl Fn(&mut Value, u64) + Send + Sync + 'static) -> Arc<Self> {
        Self::refusing(("", "", 0), acts)
    }

    fn refusing(
        refuses: (&'static str, &'static str, u16),
        acts: impl Fn(&mut Value, u64) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (requests, writes) = (Mutex::default(), Mutex::default());
        Arc::new(Self { requests, writes, refuses, acts: Box::new(acts), env: Env::real(1) })
    }

    fn connection(self: &Arc<Self>) -> Connection {
        let (server, began) = (Arc::clone(self), self.env.now());
        let respond = move |method: &str, path: &str, body: &[u8]| server.respond(method, path, body, began);
        connection(&self.env, Arc::new(respond))
    }

    fn respond(&self, method: &str, path: &str, body: &[u8], began: pod_safety_shared::clock::Mono) -> (u16, Value) {
        let (refused, prefix, code) = self.refuses;
        if method == refused && path.starts_with(prefix) {
            return (code, json!({ "kind": "Status", "code": code, "reason": "Forbidden", "message": "no" }));
        }
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        let mut requests = self.requests.lock();
        if method != "GET" {
            let intent = body["spec"]["intent"].as_str().unwrap_or_default();
            self.writes.lock().push(format!("{method} {intent}").trim().to_owned());
        }
        match method {
            "GET" if path.starts_with(ALL) => {
                let seconds = self.env.now().since(began).as_secs();
                requests.values_mut().for_each(|one| (self.acts)(one, seconds));
                (200, json!({ "items": requests.values().collect::<Vec<_>>() }))
            }
            "GET" => (200, json!({ "items": [], "resources": [{ "name": "evictionrequests" }] })),
            "POST" => {
                let mut object = body;
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                object["metadata"]["uid"] = json!(format!("uid-of-{name}"));
                object["metadata"]["generation"] = json!(1);
                (201, requests.entry(name).or_insert(object).clone())
            }
            "PATCH" => {
                let Some(one) = requests.get_mut(&name) else {
                    return (404, json!({ "reason": "NotFound" }));
                };
                one["spec"]["intent"] = body["spec"]["intent"].clone();
                (200, one.clone())
            }
            _ => {
                requests.remove(&name);
                (200, json!({}))
            }
        }
    }

    fn writes(&self) -> Vec<String> {
        std::mem::take(&mut *self.writes.lock())
    }
}

fn condition(request: &mut Value, kind: &str, reason: &str) {
    request["status"]["conditions"] = json!([{ "type": kind, "status": "True", "reason": reason, "message": "why" }]);
}

fn observe(request: &mut Value) {
    request["status"]["observedGeneration"] = json!(1);
}

fn work() -> DrainProgress {
    let mut work = DrainProgress::with_requests();
    work.add_rows(&planned(&[("db-0", "db"), ("web-0", "web")]).rows, Env::real(1).now());
    work
}

/// Runs rounds for this many seconds; returns the printed lines.
async fn run_rounds(
    server: &Arc<Server>,
    requester: EvictionRequester,
    work: &mut DrainProgress,
    seconds: u64,
) -> Vec<String> {
    let (connection, env) = (server.connection(), &server.env);
    let (deadline, mut printed) = (env.now() + Duration::from_secs(seconds), Vec::new());
    while env.now() < deadline {
        printed.extend(requester.run_round(&connection, env, "n", work).await.into_iter().map(|line| line.text));
        env.sleep(Duration::from_millis(500)).await;
    }
    printed
}

const REQUESTER: EvictionRequester = EvictionRequester { requester: DRAIN, requests_only: false };

fn due(work: &DrainProgress, server: &Server) -> Vec<String> {
    work.due(server.env.now()).iter().map(|(_, pod): &(usize, PodKey)| pod.name.to_string()).collect()
}

/// Without controllers a request stays Pending, without an error.
#[tokio::test(start_paused = true)]
async fn without_a_controller_requests_are_withdrawn_and_pods_are_evicted_directly() {
    let (server, mut work) = (Server::with_actions(|_, _| ()), work());
    let lines = run_rounds(&server, REQUESTER, &mut work, 9).await;
    assert_eq!(lines, ["pod/ns/db-0 eviction requested", "pod/ns/web-0 eviction requested"]);
    assert_eq!((due(&work, &server).len(), work.is_over()), (0, false), "they wait for an answer");
    assert_eq!(server.writes(), ["POST Eviction", "POST Eviction"]);
    let lines = run_rounds(&server, REQUESTER, &mut work, 5).await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("no controller answers EvictionRequests within 10s"), "{lines:?}");
    assert_eq!(due(&work, &server), ["db-0", "web-0"]);
    let mut writes = server.writes();
    writes.sort();
    assert_eq!(writes, ["DELETE", "DELETE", "PATCH Withdrawn", "PATCH Withdrawn"]);
    assert!(server.requests.lock().is_empty(), "nothing is left to be answered later");
    assert!(!work.sends_requests(), "the nodes after it do not wait");
}

#[tokio::test(start_paused = true)]
async fn with_requests_only_no_pod_is_evicted_directly_and_the_notice_is_printed_once() {
    let (server, mut work) = (Server::with_actions(|_, _| ()), work());
    let lines = run_rounds(&server, EvictionRequester { requests_only: true, ..REQUESTER }, &mut work, 60).await;
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[2].starts_with("no controller answers EvictionRequests: kubectl get"), "{lines:?}");
    assert_eq!((due(&work, &server).len(), work.is_requested()), (0, true));
}

/// A user without the right to list or create them drains as on a server without the API.
#[tokio::test(start_paused = true)]
async fn without_the_rights_pods_are_evicted_directly() {
    for (refuses, expected) in [
        (("GET", ALL, 403), "evictions are not requested, and pods are evicted directly"),
        (("POST", "/apis/lifecycle", 403), "evicted directly: it was not requested"),
    ] {
        let (server, mut work) = (Server::refusing(refuses, |_, _| ()), work());
        let lines = run_rounds(&server, REQUESTER, &mut work, 1).await;
        assert!(lines.iter().all(|line| line.contains(expected)) && !lines.is_empty(), "{lines:?}");
        assert_eq!(due(&work, &server), ["db-0", "web-0"], "{expected}");
    }
}

/// Requests to a failing server are retried. The drain does not evict directly, past the responders.
#[tokio::test(start_paused = true)]
async fn errors_of_the_api_server_do_not_cause_direct_evictions() {
    for refuses in [("GET", ALL, 500), ("POST", "/apis/lifecycle", 503), ("POST", "/apis/lifecycle", 429)] {
        let (server, mut work) = (Server::refusing(refuses, |_, _| ()), work());
        let lines = run_rounds(&server, REQUESTER, &mut work, 20).await;
        assert!(lines.iter().all(|line| line.contains("waits")), "{lines:?}");
        assert_eq!((due(&work, &server).len(), work.is_over()), (0, false), "{refuses:?}");
    }
}

/// `PodTerminal` follows from a phase that anyone may have written: the pod is read before it counts as gone.
#[tokio::test(start_paused = true)]
async fn attack_the_condition_target_evicted_is_not_evidence() {
    for reason in ["PodTerminal", "PodDeleted"] {
        let server = Server::with_actions(move |request, _| {
            observe(request);
            condition(request, "TargetEvicted", reason);
        });
        let mut work = work();
        run_rounds(&server, REQUESTER, &mut work, 4).await;
        assert_eq!(due(&work, &server), ["db-0", "web-0"], "{reason}: each is read, and evicted if it is there");
        assert_eq!(work.count().gone, 0, "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_a_request_decides_how_its_pod_is_handled() {
    type Case = (&'static str, &'static str, bool, bool, fn(&mut Value));
    let cases: [Case; 6] = [
        ("invalid", "evicted directly: its EvictionRequest is invalid: why", true, false, |one| {
            condition(one, "Failed", "EvictionInvalid")
        }),
        ("withdrawn", "not evicted: its EvictionRequest was withdrawn", false, true, |one| {
            one["spec"]["intent"] = json!("Withdrawn")
        }),
        ("deleted", "not evicted: its EvictionRequest was deleted", false, true, |one| {
            one["spec"]["target"]["pod"]["uid"] = json!("another")
        }),
        ("no responder is left", "waits: every responder is done", false, false, |one| {
            condition(one, "Failed", "NoFurtherResponder")
        }),
        ("canceled before it was requested again", "eviction requested", false, false, |one| {
            condition(one, "Failed", "CanceledDueToNoRequesters")
        }),
        ("answered", "eviction requested", false, false, |_| ()),
    ];
    for (name, expected, direct, stopped, becomes) in cases {
        let server = Server::with_actions(move |request, seconds| {
            observe(request);
            if seconds >= 1 {
                becomes(request);
            }
        });
        let mut work = work();
        let lines = run_rounds(&server, REQUESTER, &mut work, 12).await;
        assert!(lines.last().is_some_and(|line| line.contains(expected)), "{name}: {lines:?}");
        assert_eq!((due(&work, &server).len() == 2, work.is_over()), (direct, stopped), "{name}");
        assert!(lines.len() <= 4, "{name}: each news is printed once: {lines:?}");
    }
}

/// Pods of a gang or of a DaemonSet: the API evicts neither by request.
#[tokio::test(start_paused = true)]
async fn pods_without_requests_are_evicted_directly_beside_requested_pods() {
    let server = Server::with_actions(|request, _| observe(request));
    let (mut plan, mut work) = (planned(&[("db-0", "db"), ("web-0", "web")]), DrainProgress::with_requests());
    plan.rows[0].method = EvictionMethod::Direct("a member of a gang");
    work.add_rows(&plan.rows, server.env.now());
    run_rounds(&server, REQUESTER, &mut work, 12).await;
    assert_eq!(due(&work, &server), [plan.rows[0].pod.name.to_string()]);
    assert_eq!(server.requests.lock().len(), 1);
}

/// A request that is only deleted lets the garbage collector delete the Eviction before responders see that it is
/// canceled.
#[tokio::test(start_paused = true)]
async fn withdrawn_requests_are_deleted_after_the_controllers_recorded_it() {
    for (name, answers, took, unrecorded) in
        [("at once", Some(0), 0..2, 0), ("after a while", Some(10), 10..13, 0), ("never", None, 30..33, 2)]
    {
        let server = Server::with_actions(move |request, seconds| {
            observe(request);
            if request["spec"]["intent"] == "Withdrawn" && answers.is_some_and(|after| seconds >= after) {
                condition(request, "Failed", "CanceledDueToNoRequesters");
            }
        });
        run_rounds(&server, REQUESTER, &mut work(), 1).await;
        server.writes();
        let (connection, began) = (server.connection(), server.env.now());
        let done = withdraw(&connection, &server.env, "n").await.unwrap();
        let pods = ["ns/db-0", "ns/web-0"].map(str::to_owned).into();
        assert_eq!(done, Withdrawn { pods, unrecorded }, "{name}");
        assert!(took.contains(&server.env.now().since(began).as_secs()), "{name}");
        assert_eq!(server.writes(), ["PATCH Withdrawn", "PATCH Withdrawn", "DELETE", "DELETE"], "{name}");
    }
    let none = withdraw(&Server::with_actions(|_, _| ()).connection(), &Env::real(1), "n").await.unwrap();
    assert_eq!(none, Withdrawn::default());
}

/// Requests for pods that stay, and requests of other requesters, are not deleted.
#[tokio::test(start_paused = true)]
async fn completed_requests_are_deleted_after_the_controllers_recorded_it() {
    let server = Server::with_actions(|request, seconds| {
        observe(request);
        if seconds >= 3 && request["spec"]["target"]["pod"]["name"] == "db-0" {
            condition(request, "TargetEvicted", "PodDeleted");
        }
    });
    let mut work = work();
    run_rounds(&server, REQUESTER, &mut work, 1).await;
    let remaining = work.uids().into_iter().filter(|uid| uid.to_string() == "uid-web-0").collect();
    work.record_present(&remaining);
    let mut other = server.requests.lock()["pod-safety-drain-uid-db-0"].clone();
    (other["metadata"]["name"], other["spec"]["requester"]) = (json!("other"), json!(MAINTAIN));
    server.requests.lock().insert("other".to_owned(), other);
    let (connection, began) = (server.connection(), server.env.now());
    REQUESTER.delete_completed(&connection, &server.env, "n", &work).await;
    assert_eq!(server.env.now().since(began).as_secs(), 3, "its last responder has a moment to report");
    let names: Vec<String> = server.requests.lock().keys().cloned().collect();
    assert_eq!(names, ["other", "pod-safety-drain-uid-web-0"]);
}

/// The line names the responder by what its Eviction reports.
#[test]
fn the_line_names_the_active_responder_with_its_message() {
    let request: EvictionRequest = serde_json::from_value(json!({ "metadata": { "generation": 1 },
        "spec": { "requester": DRAIN, "intent": "Eviction", "target": { "pod": { "uid": "uid-web-0" } } },
        "status": { "observedGeneration": 1 } }))
    .unwrap();
    const MOVER: &str = "example.com/move";
    const EVICTOR: &str = "imperative-eviction.k8s.io/evictor";
    const REPORTED: &str = "2026-11-21T10:03:00Z";
    let now = Env::real(1).now();
    for (name, report, expected) in [
        (
            MOVER,
            json!({ "heartbeatTime": REPORTED, "message": "moves 3 of 9" }),
            "responder example.com/move: moves 3 of 9",
        ),
        (MOVER, json!({ "heartbeatTime": REPORTED }), "responder example.com/move"),
        (
            MOVER,
            json!({}),
            "responder example.com/move, which has not reported: if it stays silent, the next is asked at 2026-11-21T10:20:00Z",
        ),
        (EVICTOR, json!({ "message": "the budget db allows none" }), "the evictor: the budget db allows none"),
    ] {
        let mut report = report;
        report["name"] = json!(name);
        report["startTime"] = json!("2026-11-21T10:00:00Z");
        let eviction = serde_json::from_value(json!({ "spec": { "target": { "pod": { "uid": "uid-web-0" } } },
            "status": { "targetResponders": [{ "name": name, "priority": 1, "state": "Active" }], "responders": [report] } })).unwrap();
        let mut work = DrainProgress::with_requests();
        let plan = planned(&[("web-0", "web")]);
        work.add_rows(&plan.rows, now);
        work.record_request(&plan.rows[0].pod.uid, &Ok(()), false, now);
        let lines = work.apply_requests(std::slice::from_ref(&request), &[eviction], now);
        assert_eq!(
            lines.iter().map(|line| &*line.text).collect::<Vec<_>>(),
            [format!("pod/ns/web-0 waits for {expected}")]
        );
    }
}
