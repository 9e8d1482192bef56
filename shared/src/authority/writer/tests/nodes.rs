//! Nodes, and the pods of lost nodes: which writes wait for others, which controllers are woken up, and which Events are
//! emitted.

use serde_json::{Value, json};

use super::super::updates::REPORTED_RETRY;
use super::*;
use crate::authority::{Effect, LostNodePodUpdate, NodeUpdate, NotDisruptedUpdate, NotReporting};
use crate::model::{NOT_READY_TAINT, NodeKey};
use crate::testing::Claimed as _;
use crate::testing::objects::{lease, uid};

pub(super) fn taint(name: &str, rv: &str) -> NodeUpdate {
    NodeUpdate {
        node: NodeKey { name: name.into(), uid: uid(&format!("uid-{name}")) },
        rv: rv.parse().unwrap(),
        not_reporting: None,
        unreachable: None,
        add: vec![(NOT_READY_TAINT, Effect::NoSchedule)],
        remove: Vec::new(),
        labels: Vec::new(),
    }
}

pub(super) fn of_node(update: NodeUpdate) -> Intent {
    Intent::Update(Update::Node(Box::new(update)))
}

fn unreachable_update(name: &str) -> NodeUpdate {
    let not_reporting = NotReporting {
        last_report: Mono::default(),
        renewed: Some("2026-01-01T00:00:07Z".parse().unwrap()),
        heartbeat: None,
        never_posted: false,
    };
    NodeUpdate { not_reporting: Some(not_reporting), ..taint(name, "5") }
}

pub(super) fn of_pod(name: &str, not_ready: bool, unreachable: Option<bool>) -> Intent {
    let pod = pod(name).force(Claim::KubeletTerminated).pod;
    let rv = "10".parse().unwrap();
    Intent::Update(Update::PodOfLostNode(LostNodePodUpdate { pod, rv, generation: 3, not_ready, unreachable }))
}

fn not_disrupted(name: &str) -> Intent {
    let pod = pod(name).force(Claim::KubeletTerminated).pod;
    Intent::Update(Update::NotDisrupted(NotDisruptedUpdate { pod, rv: "10".parse().unwrap(), generation: 3 }))
}

/// Nodes are as their kubelets left them, Leases are not renewed, and each write makes the next version.
fn lost(request: &Received) -> Answer {
    let (rest, name) = request.path.trim_end_matches("/status").rsplit_once('/').unwrap();
    if request.method == "POST" {
        return Answer::with_code(201, &json!({}));
    }
    if rest.ends_with("/leases") {
        return Answer::json(&lease(name, 7).0);
    }
    if rest.ends_with("/pods") {
        return Answer::json(&pod(name).rv(11).0);
    }
    if request.method == "PATCH" {
        let over: u64 = request.json()["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        return Answer::json(&node(name).rv(over + 1).0);
    }
    Answer::json(&node(name).0)
}

fn wakes(handler: &RecordingHandler) -> Vec<f64> {
    handler.wakes.lock().iter().map(|at| at.since_start().as_secs_f64()).collect()
}

/// Starts the recorder, with the same API server.
fn start_recorder(pool: &Pool) {
    let (connection, leadership) = (pool.api.connection(), Arc::clone(&pool.leadership));
    let write = pool.authority.events.clone().worker_loop(connection, leadership, "pod-safety", "i".to_owned());
    pool.env.spawner.spawn("events", Box::pin(write));
}

fn event_bodies(pool: &Pool) -> Vec<Value> {
    pool.api.requests().iter().filter(|request| request.method == "POST").map(Received::json).collect()
}

#[tokio::test(start_paused = true)]
async fn a_node_update_is_written_recorded_counted_and_has_one_event() {
    let pool = pool(Leadership::always(), |request| match request.line().as_str() {
        "GET /api/v1/nodes/n" => {
            let ready = json!([{ "type": "Ready", "status": "True" }]);
            Answer::json(&node("n").set("/status/conditions", ready).0)
        }
        _ => lost(request),
    });
    start_recorder(&pool);
    let update = NodeUpdate { unreachable: Some(true), ..unreachable_update("n") };
    pool.submit_accepted(of_node(update));
    advance(1.0).await;
    assert_eq!(pool.completed(), ["uid-n: written"]);
    let records = pool.journal.records();
    let [record] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!((record.action, record.reason), (Action::Marked, "KubeletNotReporting"));
    assert_eq!(
        serde_json::to_value(record).unwrap(),
        json!({
            "at": "2026-11-21T12:00:00Z", "controller": "test", "action": "Marked", "node": "n", "nodeUid": "uid-n",
            "reason": "KubeletNotReporting",
            "message": "Ready and the pressures are Unknown; NodeUnreachable is True; added node.kubernetes.io/not-ready:NoSchedule",
        })
    );
    let events = event_bodies(&pool);
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(
        (&event["type"], &event["reason"], &event["message"]),
        (&json!("Normal"), &json!("NodeNotReady"), &json!("Node n status is now: NodeNotReady"))
    );
    assert_eq!(event["reportingComponent"], "node-controller");
    assert_eq!(event["involvedObject"], json!({ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "uid-n" }));
    assert_eq!(pool.metrics.authority.outcomes.with_label_values(&["written"]).get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_status_write_is_recorded_even_if_the_taints_failed() {
    let pool = pool(Leadership::always(), |request| match request.line().as_str() {
        "PATCH /api/v1/nodes/n" => Answer::status(409, "Conflict", "the object has been modified"),
        _ => lost(request),
    });
    start_recorder(&pool);
    let update = NodeUpdate { unreachable: Some(true), ..unreachable_update("n") };
    pool.submit_intent(of_node(update));
    advance(0.9).await;
    assert_eq!(pool.completed(), ["uid-n: changed"]);
    let records = pool.journal.records();
    assert_eq!((records.len(), records[0].message.as_str()), (1, "NodeUnreachable is True"));
    assert_eq!((event_bodies(&pool).len(), wakes(&pool.handler)), (0, vec![1.0]));
    pool.submit_accepted(of_node(taint("n", "6")));
}

#[tokio::test(start_paused = true)]
async fn a_failed_node_update_is_recorded_and_retried() {
    let pool = pool(Leadership::always(), |request| match request.method.as_str() {
        "PATCH" => Answer::status(403, "Forbidden", "a webhook says no"),
        _ => lost(request),
    });
    pool.submit_intent(of_node(taint("n", "5")));
    advance(0.1).await;
    let records = pool.journal.records();
    assert_eq!((records.len(), records[0].action, records[0].reason), (1, Action::Failed, "forbidden"));
    assert!(records[0].message.contains("a webhook says no"), "{records:?}");
    assert_eq!(wakes(&pool.handler), [1.0]);
}

/// Nothing else wakes up the controller: heartbeats do not, and a node that reported is no failure for which the backoff grows.
#[tokio::test(start_paused = true)]
async fn a_node_that_reported_is_retried_without_backoff() {
    let pool = pool(Leadership::always(), |request| match request.path.contains("/leases/") {
        true => Answer::json(&lease("n", 8).0),
        false => lost(request),
    });
    for round in 0..4 {
        pool.submit_accepted(of_node(unreachable_update("n")));
        advance(0.1).await;
        let again = Mono::from_start(REPORTED_RETRY * (round + 1));
        assert_eq!(pool.woken(), again, "round {round}");
        assert_eq!(pool.submit_intent(of_node(unreachable_update("n"))), Submitted::Later(again));
        advance(again.since(pool.env.now()).as_secs_f64()).await;
    }
    assert_eq!((pool.completed().len(), pool.api.writes().len(), pool.journal.records().len()), (4, 0, 0));
    assert_eq!(pool.metrics.authority.outcomes.with_label_values(&["heard"]).get(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_node_update_without_effect_is_retried_with_backoff() {
    let pool = pool(Leadership::always(), lost);
    let nothing = NodeUpdate { add: Vec::new(), ..taint("n", "5") };
    for pause in [1.0, 2.0, 4.0] {
        pool.submit_accepted(of_node(nothing.clone()));
        advance(0.001).await;
        let again = pool.woken().since(pool.env.now()).as_secs_f64();
        assert!((again - pause).abs() < 0.01, "{again} for {pause}");
        advance(again + 0.001).await;
    }
    assert_eq!((pool.completed()[0].as_str(), pool.api.writes().len()), ("uid-n: no_effect", 0));
}

/// kube-controller-manager marks the pods of one node before it checks the next node: with a hundred lost nodes it takes
/// five minutes until the last one is marked.
#[tokio::test(start_paused = true)]
async fn w_nl1_nodes_do_not_wait_for_pods() {
    let pool =
        pool(
            Leadership::always(),
            |request| {
                if request.path.contains("/pods/") { Answer::never() } else { lost(request) }
            },
        );
    for number in 0..2_000 {
        pool.submit_intent(of_pod(&format!("p{number}"), true, None));
        let elsewhere = pod(&format!("q{number}")).set("/metadata/namespace", format!("ns{number}").into());
        pool.submit_ended(&elsewhere.phase("Failed"));
    }
    advance(1.0).await;
    assert!(pool.completed().is_empty(), "every writer of pods waits");
    for number in 0..100 {
        pool.submit_intent(of_node(unreachable_update(&format!("n{number}"))));
    }
    advance(0.1).await;
    assert_eq!(pool.completed().len(), 100);
    assert!(pool.completed().iter().all(|line| line.ends_with("written")), "{:?}", pool.completed());
}

#[tokio::test(start_paused = true)]
async fn pods_do_not_wait_for_nodes_and_node_writes_are_limited() {
    let pool =
        pool(
            Leadership::always(),
            |request| {
                if request.path.contains("/nodes/") { Answer::never() } else { well(request) }
            },
        );
    for number in 0..100 {
        pool.submit_intent(of_node(taint(&format!("n{number}"), "5")));
    }
    advance(0.1).await;
    assert_eq!(pool.api.lines().len(), NODE_WORKERS);
    pool.submit_ended(&ended_pod("a"));
    advance(0.1).await;
    assert_eq!(pool.completed(), ["a released"]);
}

#[tokio::test(start_paused = true)]
async fn budgets_do_not_wait_for_the_pods_of_lost_nodes() {
    let pool = pool(Leadership::always(), |request| lost(request).delayed(Duration::from_millis(10)));
    for number in 0..5_000 {
        pool.submit_intent(of_pod(&format!("p{number}"), true, None));
    }
    pool.submit_intent(not_disrupted("a"));
    advance(0.5).await;
    assert!(pool.completed().contains(&"uid-a: written".to_owned()), "{} before", pool.completed().len());
}

#[tokio::test(start_paused = true)]
async fn pods_of_lost_nodes_wait_while_nodes_do() {
    let pool = pool(Leadership::always(), |request| lost(request).delayed(Duration::from_millis(10)));
    for number in 0..200 {
        pool.submit_intent(of_node(unreachable_update(&format!("n{number}"))));
    }
    for number in 0..200 {
        pool.submit_intent(of_pod(&format!("p{number}"), true, None));
    }
    advance(0.2).await;
    let ended = pool.completed();
    assert!(ended.iter().filter(|line| line.contains("uid-n")).count() > 50, "{ended:?}");
    assert!(!ended.iter().any(|line| line.contains("uid-p")), "{ended:?}");
    advance(10.0).await;
    assert_eq!(pool.completed().len(), 400, "then they have their turn");
}

/// The workers for pods sleep until then.
#[tokio::test(start_paused = true)]
async fn pods_of_lost_nodes_are_written_as_soon_as_no_node_waits() {
    let pool = pool(Leadership::always(), |request| lost(request).delayed(Duration::from_secs(1)));
    for number in 0..=NODE_WORKERS {
        pool.submit_intent(of_node(taint(&format!("n{number}"), "5")));
    }
    pool.submit_intent(of_pod("p", true, None));
    advance(1.5).await;
    let asked_of_pods = || pool.api.lines().iter().any(|line| line.contains("/pods/"));
    assert!(!asked_of_pods(), "a node waits");
    advance(1.0).await;
    assert!(asked_of_pods(), "it has its turn");
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_update_failed_has_no_event() {
    let pool = pool(Leadership::always(), |request| match request.method.as_str() {
        "PATCH" => Answer::status(409, "Conflict", "the object has been modified"),
        _ => lost(request),
    });
    start_recorder(&pool);
    pool.submit_intent(of_pod("a", true, None));
    advance(0.5).await;
    assert_eq!((pool.completed(), event_bodies(&pool).len()), (vec!["uid-a: changed".to_owned()], 0));
}

#[tokio::test(start_paused = true)]
async fn node_requests_are_abandoned_when_leadership_is_lost() {
    let pool = pool(Leadership::always(), |request| lost(request).delayed(Duration::from_secs(1)));
    for number in 0..2 * NODE_WORKERS {
        pool.submit_intent(of_node(taint(&format!("n{number}"), "5")));
    }
    advance(0.5).await;
    pool.authority.abandon();
    advance(10.0).await;
    assert_eq!(pool.completed().len(), NODE_WORKERS);
    pool.counts("pod_safety_authority_queued_intents 0");
    let last = format!("n{}", 2 * NODE_WORKERS - 1);
    pool.submit_accepted(of_node(taint(&last, "5")));
    advance(10.0).await;
    assert_eq!(pool.completed().len(), NODE_WORKERS + 1, "it may be asked for again");
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_lost_node_is_patched_at_its_version_and_has_an_event() {
    let pool = pool(Leadership::always(), lost);
    start_recorder(&pool);
    pool.submit_intent(of_pod("a", true, None));
    pool.submit_intent(of_pod("b", true, Some(true)));
    pool.submit_intent(of_pod("c", false, Some(false)));
    advance(5.0).await;
    let requests = pool.api.requests();
    let patches: Vec<_> = requests.iter().filter(|request| request.method == "PATCH").collect();
    assert_eq!(patches[0].line(), "PATCH /api/v1/namespaces/ns/pods/a/status");
    assert_eq!(patches[0].content_type, "application/strategic-merge-patch+json");
    assert_eq!(
        patches[0].body,
        concat!(
            r#"{"metadata":{"resourceVersion":"10","uid":"uid-a"},"status":{"conditions":[{"#,
            r#""lastTransitionTime":"2026-11-21T12:00:00Z","observedGeneration":3,"status":"False","type":"Ready"}]}}"#
        ),
        "its reason and message stay"
    );
    let conditions = patches[1].json()["status"]["conditions"].clone();
    assert_eq!((&conditions[0]["type"], conditions.as_array().unwrap().len()), (&json!("Ready"), 2));
    assert_eq!(
        conditions[1],
        json!({
            "type": "pod-safety.dev/NodeUnreachable", "status": "True", "reason": "KubeletNotReporting",
            "message": "the pod is terminating, but its node is unreachable, so it is not known whether the pod still runs. It is removed when the node reports again, when the node is fenced with proof, or when its Node object is deleted after someone has made sure that the machine is off",
            "observedGeneration": 3, "lastTransitionTime": "2026-11-21T12:00:00Z",
        })
    );
    let conditions = patches[2].json()["status"]["conditions"].clone();
    assert_eq!(conditions.as_array().unwrap().len(), 1);
    assert_eq!((&conditions[0]["status"], &conditions[0]["reason"]), (&json!("False"), &json!("KubeletReporting")));
    let events = event_bodies(&pool);
    let said: Vec<_> = events
        .iter()
        .map(|event| (event["involvedObject"]["name"].as_str().unwrap(), event["message"].as_str().unwrap()))
        .collect();
    assert_eq!(said, [("a", "Node is not ready"), ("b", "Node is not ready")]);
    assert_eq!((&events[0]["type"], &events[0]["reason"]), (&json!("Warning"), &json!("NodeNotReady")));
}

#[tokio::test(start_paused = true)]
async fn a_superseded_update_of_the_same_pod_is_woken() {
    let (pool, other) = (pool(Leadership::always(), slow), RecordingHandler::new("other"));
    let others: Arc<dyn CompletionHandler> = Arc::<RecordingHandler>::clone(&other);
    // All workers are busy, so that both requests wait for their turn.
    for number in 0..DEFAULT_WORKERS {
        let object = ended_pod(&format!("p{number}")).set("/metadata/namespace", format!("ns{number}").into());
        pool.submit_ended(&object);
    }
    advance(0.1).await;
    assert_eq!(pool.authority.submit(not_disrupted("a"), &others), Submitted::Accepted);
    pool.submit_accepted(of_pod("a", true, None));
    pool.submit_accepted(of_pod("a", false, Some(true)));
    advance(2.5).await;
    let patches: Vec<_> = pool.api.requests().into_iter().filter(|request| request.method == "PATCH").collect();
    assert_eq!(patches.len(), 1, "what was calculated last is written");
    assert!(patches[0].body.contains("NodeUnreachable"), "{}", patches[0].body);
    assert_eq!((wakes(&other), wakes(&pool.handler)), (vec![2.0], vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_update_of_another_kind_submitted_during_a_write_is_woken() {
    let conflict = |request: &Received| match request.method.as_str() {
        "PATCH" => Answer::status(409, "Conflict", "modified").delayed(Duration::from_secs(1)),
        _ => well(request),
    };
    for script in [slow as fn(&Received) -> Answer, conflict] {
        let (pool, other) = (pool(Leadership::always(), script), RecordingHandler::new("other"));
        let others: Arc<dyn CompletionHandler> = Arc::<RecordingHandler>::clone(&other);
        pool.submit_intent(of_pod("a", true, None));
        advance(0.5).await;
        for _ in 0..3 {
            assert_eq!(pool.authority.submit(not_disrupted("a"), &others), Submitted::Accepted);
        }
        assert_eq!(wakes(&other).len(), 0);
        advance(1.0).await;
        assert_eq!(wakes(&other), [1.0], "once");
    }
}

#[tokio::test(start_paused = true)]
async fn no_controller_is_woken_after_leadership_is_lost() {
    let (pool, other) = (pool(Leadership::always(), slow), RecordingHandler::new("other"));
    let others: Arc<dyn CompletionHandler> = Arc::<RecordingHandler>::clone(&other);
    pool.submit_intent(of_pod("a", true, None));
    pool.authority.submit(not_disrupted("a"), &others);
    pool.leadership.end_for_tests();
    advance(2.0).await;
    assert_eq!(*other.ended.lock(), ["uid-a: not_leader"]);
    assert_eq!((wakes(&pool.handler).len(), wakes(&other).len()), (0, 0));
}
