//! A drain that requests evictions, against an API server that keeps EvictionRequests. Its controllers are a closure.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pod_safety_shared::authority::people::requests::DRAIN;
use pod_safety_shared::model::PodKey;
use pod_safety_shared::testing::connection;
use serde_json::{Value, json};

use super::*;
use crate::plan::Way;
use crate::work::tests::planned;

const ALL: &str = "/apis/lifecycle.k8s.io/v1alpha1/evictionrequests";

/// What its controllers do to each request, each time that requests are read; the seconds since the beginning.
type Acts = dyn Fn(&mut Value, u64) + Send + Sync;

/// An API server with requests by their names, and the writes that it got.
struct Server {
    requests: Mutex<BTreeMap<String, Value>>,
    writes: Mutex<Vec<String>>,
    /// A path that begins so, by this method, is refused with this code.
    refuses: (&'static str, &'static str, u16),
    acts: Box<Acts>,
    env: Env,
}

impl Server {
    fn of(acts: impl Fn(&mut Value, u64) + Send + Sync + 'static) -> Arc<Self> {
        Self::that_refuses(("", "", 0), acts)
    }

    fn that_refuses(
        refuses: (&'static str, &'static str, u16),
        acts: impl Fn(&mut Value, u64) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (requests, writes) = (Mutex::default(), Mutex::default());
        Arc::new(Self { requests, writes, refuses, acts: Box::new(acts), env: Env::real(1) })
    }

    fn connection(self: &Arc<Self>) -> Connection {
        let (server, began) = (Arc::clone(self), self.env.now());
        let says = move |method: &str, path: &str, body: &[u8]| server.says(method, path, body, began);
        connection(&self.env, Arc::new(says))
    }

    fn says(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
        began: pod_safety_shared::clock::Mono,
    ) -> (u16, Value) {
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
    request["status"]["conditions"] =
        json!([{ "type": kind, "status": "True", "reason": reason, "message": "why" }]);
}

fn observe(request: &mut Value) {
    request["status"]["observedGeneration"] = json!(1);
}

fn work() -> Work {
    let mut work = Work::by_requests();
    work.take(&planned(&[("db-0", "db"), ("web-0", "web")]).rows, Env::real(1).now());
    work
}

/// Rounds for so many seconds; gives back what was said.
async fn drive(server: &Arc<Server>, asker: Asker, work: &mut Work, seconds: u64) -> Vec<String> {
    let (connection, env) = (server.connection(), &server.env);
    let (ends, mut said) = (env.now() + Duration::from_secs(seconds), Vec::new());
    while env.now() < ends {
        said.extend(asker.round(&connection, env, "n", work).await.into_iter().map(|line| line.text));
        env.sleep(Duration::from_millis(500)).await;
    }
    said
}

const ASKER: Asker = Asker { requester: DRAIN, only: false };

fn due(work: &Work, server: &Server) -> Vec<String> {
    work.due(server.env.now()).iter().map(|(_, pod): &(usize, PodKey)| pod.name.to_string()).collect()
}

/// Without controllers a request stays Pending for ever, without an error.
#[tokio::test(start_paused = true)]
async fn where_nobody_answers_requests_are_withdrawn_and_pods_are_evicted_directly() {
    let (server, mut work) = (Server::of(|_, _| ()), work());
    let said = drive(&server, ASKER, &mut work, 9).await;
    assert_eq!(said, ["pod/ns/db-0 eviction requested", "pod/ns/web-0 eviction requested"]);
    assert_eq!((due(&work, &server).len(), work.is_over()), (0, false), "they wait for an answer");
    assert_eq!(server.writes(), ["POST Eviction", "POST Eviction"]);
    let said = drive(&server, ASKER, &mut work, 5).await;
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("no controller answers EvictionRequests within 10s"), "{said:?}");
    assert_eq!(due(&work, &server), ["db-0", "web-0"]);
    let mut writes = server.writes();
    writes.sort();
    assert_eq!(writes, ["DELETE", "DELETE", "PATCH Withdrawn", "PATCH Withdrawn"]);
    assert!(server.requests.lock().is_empty(), "nothing is left to be answered later");
    assert!(!work.sends_requests(), "the nodes after it do not wait");
}

#[tokio::test(start_paused = true)]
async fn with_requests_always_nothing_is_evicted_directly_and_that_is_said_once() {
    let (server, mut work) = (Server::of(|_, _| ()), work());
    let said = drive(&server, Asker { only: true, ..ASKER }, &mut work, 60).await;
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[2].starts_with("no controller answers EvictionRequests: kubectl get"), "{said:?}");
    assert_eq!((due(&work, &server).len(), work.is_requested()), (0, true));
}

/// Who may not list or create them drains as on a server without the API.
#[tokio::test(start_paused = true)]
async fn without_the_rights_pods_are_evicted_directly() {
    for (refuses, says) in [
        (("GET", ALL, 403), "evictions are not requested, and pods are evicted directly"),
        (("POST", "/apis/lifecycle", 403), "evicted directly: it was not requested"),
    ] {
        let (server, mut work) = (Server::that_refuses(refuses, |_, _| ()), work());
        let said = drive(&server, ASKER, &mut work, 1).await;
        assert!(said.iter().all(|line| line.contains(says)) && !said.is_empty(), "{said:?}");
        assert_eq!(due(&work, &server), ["db-0", "web-0"], "{says}");
    }
}

/// A server that is in trouble is asked again, and is not drained around responders.
#[tokio::test(start_paused = true)]
async fn trouble_with_the_api_server_is_no_reason_to_evict_directly() {
    for refuses in [("GET", ALL, 500), ("POST", "/apis/lifecycle", 503), ("POST", "/apis/lifecycle", 429)] {
        let (server, mut work) = (Server::that_refuses(refuses, |_, _| ()), work());
        let said = drive(&server, ASKER, &mut work, 20).await;
        assert!(said.iter().all(|line| line.contains("waits")), "{said:?}");
        assert_eq!((due(&work, &server).len(), work.is_over()), (0, false), "{refuses:?}");
    }
}

/// `PodTerminal` follows from a phase that somebody wrote: the pod is read before it counts as gone.
#[tokio::test(start_paused = true)]
async fn attack_a_request_that_says_evicted_is_no_evidence() {
    for reason in ["PodTerminal", "PodDeleted"] {
        let server = Server::of(move |request, _| {
            observe(request);
            condition(request, "TargetEvicted", reason);
        });
        let mut work = work();
        drive(&server, ASKER, &mut work, 4).await;
        assert_eq!(
            due(&work, &server),
            ["db-0", "web-0"],
            "{reason}: each is read, and evicted if it is there"
        );
        assert_eq!(work.count().gone, 0, "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_came_of_a_request_decides_what_becomes_of_its_pod() {
    type Case = (&'static str, fn(&mut Value), &'static str, bool, bool);
    let cases: [Case; 6] = [
        (
            "invalid",
            |one| condition(one, "Failed", "EvictionInvalid"),
            "evicted directly: its EvictionRequest is invalid: why",
            true,
            false,
        ),
        (
            "withdrawn",
            |one| one["spec"]["intent"] = json!("Withdrawn"),
            "not evicted: its EvictionRequest was withdrawn",
            false,
            true,
        ),
        (
            "deleted",
            |one| one["spec"]["target"]["pod"]["uid"] = json!("another"),
            "not evicted: its EvictionRequest was deleted",
            false,
            true,
        ),
        (
            "no responder is left",
            |one| condition(one, "Failed", "NoFurtherResponder"),
            "waits: every responder is done",
            false,
            false,
        ),
        (
            "canceled before it was requested again",
            |one| condition(one, "Failed", "CanceledDueToNoRequesters"),
            "eviction requested",
            false,
            false,
        ),
        ("answered", |_| (), "eviction requested", false, false),
    ];
    for (name, becomes, says, direct, stopped) in cases {
        let server = Server::of(move |request, seconds| {
            observe(request);
            if seconds >= 1 {
                becomes(request);
            }
        });
        let mut work = work();
        let said = drive(&server, ASKER, &mut work, 12).await;
        assert!(said.last().is_some_and(|line| line.contains(says)), "{name}: {said:?}");
        assert_eq!((due(&work, &server).len() == 2, work.is_over()), (direct, stopped), "{name}");
        assert!(said.len() <= 4, "{name}: each news is told once: {said:?}");
    }
}

/// A gang, a DaemonSet: the API evicts none of them by request.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_requested_is_evicted_directly_beside_what_is() {
    let server = Server::of(|request, _| observe(request));
    let (mut plan, mut work) = (planned(&[("db-0", "db"), ("web-0", "web")]), Work::by_requests());
    plan.rows[0].way = Way::Direct("a member of a gang");
    work.take(&plan.rows, server.env.now());
    drive(&server, ASKER, &mut work, 12).await;
    assert_eq!(due(&work, &server), [plan.rows[0].pod.name.to_string()]);
    assert_eq!(server.requests.lock().len(), 1);
}

/// Deletion alone lets the garbage collector take the Eviction before responders see that it is canceled.
#[tokio::test(start_paused = true)]
async fn requests_are_withdrawn_and_deleted_when_responders_could_see_it() {
    for (name, answers, took, unrecorded) in
        [("at once", Some(0), 0..2, 0), ("after a while", Some(10), 10..13, 0), ("never", None, 30..33, 2)]
    {
        let server = Server::of(move |request, seconds| {
            observe(request);
            if request["spec"]["intent"] == "Withdrawn" && answers.is_some_and(|after| seconds >= after) {
                condition(request, "Failed", "CanceledDueToNoRequesters");
            }
        });
        drive(&server, ASKER, &mut work(), 1).await;
        server.writes();
        let (connection, began) = (server.connection(), server.env.now());
        let done = withdraw(&connection, &server.env, "n").await.unwrap();
        let pods = ["ns/db-0", "ns/web-0"].map(str::to_owned).into();
        assert_eq!(done, Withdrawn { pods, unrecorded }, "{name}");
        assert!(took.contains(&server.env.now().since(began).as_secs()), "{name}");
        assert_eq!(server.writes(), ["PATCH Withdrawn", "PATCH Withdrawn", "DELETE", "DELETE"], "{name}");
    }
    let none = withdraw(&Server::of(|_, _| ()).connection(), &Env::real(1), "n").await.unwrap();
    assert_eq!(none, Withdrawn::default());
}

/// Those of pods that stay, and of other requesters, stay too.
#[tokio::test(start_paused = true)]
async fn requests_that_are_done_are_deleted_when_that_is_recorded() {
    let server = Server::of(|request, seconds| {
        observe(request);
        if seconds >= 3 && request["spec"]["target"]["pod"]["name"] == "db-0" {
            condition(request, "TargetEvicted", "PodDeleted");
        }
    });
    let mut work = work();
    drive(&server, ASKER, &mut work, 1).await;
    let left = work.all().into_iter().filter(|uid| uid.to_string() == "uid-web-0").collect();
    work.seen(&left);
    let (connection, began) = (server.connection(), server.env.now());
    ASKER.tidy(&connection, &server.env, "n", &work).await;
    assert_eq!(server.env.now().since(began).as_secs(), 3, "its last responder has a moment to report");
    let names: Vec<String> = server.requests.lock().keys().cloned().collect();
    assert_eq!(names, ["pod-safety-drain-uid-web-0"]);
}

/// Who holds it up is said, by what its Eviction says.
#[test]
fn the_active_responder_is_named_with_its_own_words() {
    let request: EvictionRequest = serde_json::from_value(json!({ "metadata": { "generation": 1 },
        "spec": { "requester": DRAIN, "intent": "Eviction", "target": { "pod": { "uid": "uid-web-0" } } },
        "status": { "observedGeneration": 1 } }))
    .unwrap();
    let now = Env::real(1).now();
    for (name, report, says) in [
        (
            "example.com/move",
            json!({ "heartbeatTime": "2026-11-21T10:03:00Z", "message": "moves 3 of 9" }),
            "waits for responder example.com/move: moves 3 of 9",
        ),
        (
            "example.com/move",
            json!({ "heartbeatTime": "2026-11-21T10:03:00Z" }),
            "waits for responder example.com/move",
        ),
        (
            "example.com/move",
            json!({}),
            "waits for responder example.com/move, which has not reported: if it stays silent, the next is asked at 2026-11-21T10:20:00Z",
        ),
        (
            "imperative-eviction.k8s.io/evictor",
            json!({ "message": "the budget db allows none" }),
            "waits for the evictor: the budget db allows none",
        ),
    ] {
        let mut report = report;
        report["name"] = json!(name);
        report["startTime"] = json!("2026-11-21T10:00:00Z");
        let eviction = serde_json::from_value(json!({ "spec": { "target": { "pod": { "uid": "uid-web-0" } } },
            "status": { "targetResponders": [{ "name": name, "priority": 1, "state": "Active" }], "responders": [report] } })).unwrap();
        let mut work = Work::by_requests();
        let plan = planned(&[("web-0", "web")]);
        work.take(&plan.rows, now);
        work.was_requested(&plan.rows[0].pod.uid, &Ok(()), false, now);
        let said = work.hear(std::slice::from_ref(&request), &[eviction], now);
        assert_eq!(said.iter().map(|line| &*line.text).collect::<Vec<_>>(), [format!("pod/ns/web-0 {says}")]);
    }
}
