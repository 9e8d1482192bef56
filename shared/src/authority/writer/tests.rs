//! The worker pools: the order of requests, how many run at once, and when they are retried.

mod deletions;
mod evictions;
mod fences;
mod limits;
mod messages;
mod nodes;
mod resubmission;
mod storage;
mod updates;
mod volumes;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use serde_json::json;

use super::*;
use crate::authority::Claim;
use crate::authority::queue::BATCH;
use crate::client::scripted::{Answer, Api, Received, advance, env, unused};
use crate::metrics::Metrics;
use crate::model::Kind;
use crate::record::Action;
use crate::testing::Claimed as _;
use crate::testing::objects::{Obj, node, pod};
use crate::testing::{World, parts};

/// A handler that records its calls.
struct RecordingHandler {
    controller: &'static str,
    ended: Mutex<Vec<String>>,
    wakes: Mutex<Vec<Mono>>,
    changed_its_mind: AtomicBool,
}

impl RecordingHandler {
    fn new(controller: &'static str) -> Arc<Self> {
        let (ended, wakes, changed_its_mind) = Default::default();
        Arc::new(Self { controller, ended, wakes, changed_its_mind })
    }

    /// The last requested wake-up time.
    fn woken(&self) -> Option<Mono> {
        self.wakes.lock().last().copied()
    }
}

impl CompletionHandler for RecordingHandler {
    fn controller(&self) -> &'static str {
        self.controller
    }
    fn completed(&self, force: &ForceDeleteRequest, outcome: &ForceOutcome) {
        self.ended.lock().push(format!("{} {}", force.pod.name, outcome.name()));
    }
    fn update_completed(&self, update: &Update, outcome: &UpdateOutcome) {
        self.ended.lock().push(format!("{}: {}", update.uid(), outcome.name()));
    }
    fn redecide(&self, delete: &GracefulDeleteRequest) -> Option<GracefulDeleteRequest> {
        (!self.changed_its_mind.load(Ordering::SeqCst)).then(|| delete.clone())
    }
    fn delete_completed(&self, delete: &GracefulDeleteRequest, outcome: &DeleteOutcome, _at: Mono) {
        self.ended.lock().push(format!("{} {}", delete.pod.name, outcome.name()));
    }
    fn wake_at(&self, when: Mono) {
        self.wakes.lock().push(when);
    }
}

struct Pool {
    env: Env,
    api: Api,
    world: World,
    leadership: Arc<Leadership>,
    journal: Arc<Journal>,
    metrics: Metrics,
    authority: Arc<Authority>,
    handler: Arc<RecordingHandler>,
    owner: Arc<dyn CompletionHandler>,
}

fn pool(leadership: Arc<Leadership>, script: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Pool {
    let (env, _wall) = env();
    let api = Api::answering(&env, script);
    pool_over(leadership, env, api)
}

fn pool_over(leadership: Arc<Leadership>, env: Env, api: Api) -> Pool {
    let (world, metrics) = (World::listed(), Metrics::new().unwrap());
    let parts = parts(&world, &env, api.connection_with(&metrics.client), &leadership, &metrics);
    let journal = Arc::clone(&parts.journal);
    let authority = Authority::start(parts);
    let handler = RecordingHandler::new("test");
    let owner: Arc<dyn CompletionHandler> = Arc::<RecordingHandler>::clone(&handler);
    Pool { env, api, world, leadership, journal, metrics, authority, handler, owner }
}

impl Pool {
    fn submit(&self, object: &Obj, claim: Claim) -> Submitted {
        self.submit_intent(Intent::Force(object.force(claim)))
    }

    /// Adds a terminated pod to the cache, and submits its force deletion.
    fn submit_ended(&self, object: &Obj) -> Submitted {
        self.world.apply(Kind::Pods, &object.0, self.env.now());
        self.submit(object, Claim::KubeletTerminated)
    }

    fn submit_intent(&self, intent: Intent) -> Submitted {
        self.authority.submit(intent, &self.owner)
    }

    fn submit_accepted(&self, intent: Intent) {
        assert_eq!(self.submit_intent(intent), Submitted::Accepted);
    }

    fn wakes(&self) -> Vec<Mono> {
        self.handler.wakes.lock().clone()
    }

    /// The last requested wake-up time of the owner.
    fn woken(&self) -> Mono {
        self.handler.woken().unwrap()
    }

    fn page(&self) -> String {
        String::from_utf8(self.metrics.encode().unwrap()).unwrap()
    }

    fn counts(&self, line: &str) {
        let page = self.page();
        assert!(page.contains(line), "{line} in {page}");
    }

    fn submit_first_read(&self, node: &str) -> Submitted {
        self.submit_intent(Intent::ReadMissingNode { node: node.into() })
    }

    fn completed(&self) -> Vec<String> {
        self.handler.ended.lock().clone()
    }

    fn has_first_read(&self) -> bool {
        self.world.read().view().absence("n").is_some_and(|absence| absence.first_read.is_some())
    }
}

fn ended_pod(name: &str) -> Obj {
    pod(name).phase("Failed")
}

fn well(request: &Received) -> Answer {
    match request.method.as_str() {
        "GET" => Answer::not_found(),
        _ => Answer::json(&pod("a").rv(77).0),
    }
}

fn slow(request: &Received) -> Answer {
    well(request).delayed(Duration::from_secs(1))
}

#[tokio::test(start_paused = true)]
async fn a_force_deletion_is_sent_recorded_counted_and_has_one_event() {
    let pool = pool(Leadership::always(), well);
    assert_eq!(pool.submit_ended(&ended_pod("a")), Submitted::Accepted);
    advance(0.1).await;
    assert_eq!(pool.completed(), ["a released"]);
    assert_eq!(pool.api.lines(), ["DELETE /api/v1/namespaces/ns/pods/a"]);
    let records = pool.journal.records();
    assert_eq!(records.len(), 1);
    assert_eq!(
        (records[0].action, records[0].reason, records[0].controller),
        (Action::ForceDeleted, "KubeletTerminated", "test")
    );
    for line in [
        r#"pod_safety_force_deletes_total{evidence="KubeletTerminated"} 1"#,
        r#"pod_safety_authority_outcomes_total{outcome="released"} 1"#,
        "pod_safety_authority_intents_in_flight 0",
        "pod_safety_authority_queued_intents 0",
    ] {
        pool.counts(line);
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_lead_sends_nothing() {
    let (env, _wall) = env();
    let pool = pool_over(Leadership::none(), env.clone(), unused(&env));
    assert_eq!(pool.submit_ended(&ended_pod("a")), Submitted::NotLeading);
    advance(100.0).await;
    assert_eq!((pool.completed(), pool.api.lines()), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_lost_leadership_before_the_turn_sends_nothing() {
    let pool = pool(Leadership::always(), well);
    assert_eq!(pool.submit_ended(&ended_pod("a")), Submitted::Accepted);
    pool.leadership.end_for_tests();
    advance(1.0).await;
    assert_eq!((pool.completed(), pool.api.lines()), (vec!["a not_leader".to_owned()], vec![]));
    assert_eq!(pool.wakes().len(), 0, "whoever leads decides");
}

#[tokio::test(start_paused = true)]
async fn a_standby_makes_first_reads() {
    let pool = pool(Leadership::none(), well);
    pool.world.apply(Kind::Pods, &pod("a").on("n").0, pool.env.now());
    assert_eq!(pool.submit_first_read("n"), Submitted::Accepted);
    advance(0.1).await;
    assert!(pool.has_first_read());
    assert_eq!(pool.wakes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_first_read_without_a_result_is_retried_after_one_second() {
    type Script = fn(&Received) -> Answer;
    let rows: [(&str, Script); 3] = [
        ("the node is there", |request| {
            if request.path.contains("/nodes/") { Answer::json(&node("n").0) } else { Answer::not_found() }
        }),
        ("a proxy answers", |_| Answer::plain(404, "404 page not found")),
        ("nobody answers", |_| Answer::broken()),
    ];
    for (what, script) in rows {
        let pool = pool(Leadership::always(), script);
        pool.world.apply(Kind::Pods, &pod("a").on("n").0, pool.env.now());
        pool.submit_first_read("n");
        advance(0.1).await;
        assert!(!pool.has_first_read(), "{what}");
        let wakes = pool.wakes();
        assert_eq!(wakes, [Mono::default() + READ_RETRY], "{what}");
        assert_eq!(pool.submit_first_read("n"), Submitted::Accepted);
        advance(0.1).await;
        assert_eq!(pool.api.lines().len(), 4, "{what}: it may be asked for again");
    }
}

/// Once, the volume guard requested the read of a node, pod GC's own request was accepted as in flight, and only the volume
/// guard was woken up. The orphans waited for the next resync, and no hold showed them.
#[tokio::test(start_paused = true)]
async fn bug_of_two_controllers_that_requested_a_first_read_only_one_was_woken() {
    let pool = pool(Leadership::always(), slow);
    pool.world.apply(Kind::Pods, &pod("a").on("n").0, pool.env.now());
    let second: Arc<dyn CompletionHandler> = RecordingHandler::new("second");
    let now = pool.env.now();
    assert_eq!(pool.submit_first_read("n"), Submitted::Accepted);
    let turned_away = pool.authority.submit(Intent::ReadMissingNode { node: "n".into() }, &second);
    assert_eq!(turned_away, Submitted::Later(now + READ_RETRY));
}

#[tokio::test(start_paused = true)]
async fn one_pod_and_one_node_have_one_request_in_flight() {
    let pool = pool(Leadership::always(), slow);
    for round in 0..5 {
        assert_eq!(pool.submit_ended(&ended_pod("a")), Submitted::Accepted);
        let turned_away = Submitted::Later(pool.env.now() + READ_RETRY);
        assert_eq!(pool.submit_first_read("n"), if round == 0 { Submitted::Accepted } else { turned_away });
        advance(0.1).await;
    }
    advance(2.0).await;
    let again = pool.submit(&ended_pod("a").rv(11), Claim::KubeletTerminated);
    assert!(matches!(again, Submitted::Later(_)), "the watch is behind");
    advance(2.0).await;
    assert_eq!(pool.api.writes().len(), 1);
    assert_eq!(pool.api.lines().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn all_default_workers_write_at_once_and_no_more() {
    let (env, _wall) = env();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (busy, peak) = (Arc::clone(&now), Arc::clone(&most));
    let api = Api::new(&env, move |request| {
        let (busy, peak) = (Arc::clone(&busy), Arc::clone(&peak));
        async move {
            peak.fetch_max(busy.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            advance(0.01).await;
            busy.fetch_sub(1, Ordering::SeqCst);
            well(&request)
        }
    });
    let pool = pool_over(Leadership::always(), env, api);
    for number in 0..DEFAULT_WORKERS * BATCH * 2 {
        // Some forty namespaces, so that there are enough flows for all workers.
        let name = format!("p{number}");
        pool.submit_ended(&ended_pod(&name).set("/metadata/namespace", format!("ns{}", number % 40).into()));
    }
    advance(60.0).await;
    assert_eq!(pool.completed().len(), DEFAULT_WORKERS * BATCH * 2);
    assert_eq!(most.load(Ordering::SeqCst), DEFAULT_WORKERS);
    pool.counts("pod_safety_authority_intents_in_flight 0");
}

/// On its two cores, sixteen writes at once would take eight times as long, and so would requests of other clients.
#[tokio::test(start_paused = true)]
async fn concurrent_writes_are_reduced_if_the_api_server_slows_down() {
    let (env, _wall) = env();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (busy, peak) = (Arc::clone(&now), Arc::clone(&most));
    let api = Api::new(&env, move |request| {
        let (busy, peak) = (Arc::clone(&busy), Arc::clone(&peak));
        async move {
            let beside = busy.fetch_add(1, Ordering::SeqCst) + 1;
            peak.fetch_max(beside, Ordering::SeqCst);
            advance(0.0035 * f64::from(u32::try_from(beside.max(2)).unwrap())).await;
            busy.fetch_sub(1, Ordering::SeqCst);
            well(&request)
        }
    });
    let pool = pool_over(Leadership::always(), env, api);
    pool.submit_ended(&ended_pod("alone"));
    advance(1.0).await;
    for number in 0..2_000 {
        pool.submit_ended(&ended_pod(&format!("p{number}")));
    }
    advance(2.0).await;
    assert_eq!(most.swap(0, Ordering::SeqCst), DEFAULT_WORKERS, "until it shows");
    advance(1.0).await;
    let beside = most.load(Ordering::SeqCst);
    assert!((5..=8).contains(&beside), "{beside} at once");
    advance(20.0).await;
    assert_eq!(pool.completed().len(), 2_001);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_pods_of_one_flow_do_not_delay_another_flow() {
    let pool = pool(Leadership::always(), |request| well(request).delayed(Duration::from_millis(10)));
    for number in 0..10_000 {
        pool.submit_ended(&ended_pod(&format!("big{number}")));
    }
    pool.submit_ended(&ended_pod("small").set("/metadata/namespace", "other".into()));
    advance(0.5).await;
    let ended = pool.completed();
    let place = ended.iter().position(|line| line == "small released").expect("served within two turns");
    assert!(place <= (DEFAULT_WORKERS + 1) * BATCH, "at place {place}");
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_cannot_be_read_do_not_delay_terminated_pods() {
    let pool =
        pool(Leadership::always(), |request| if request.method == "GET" { Answer::never() } else { well(request) });
    for number in 0..200 {
        let object = pod(&format!("orphan{number}")).on("n");
        pool.world.apply(Kind::Pods, &object.0, pool.env.now());
    }
    pool.world.set_unreachable_before_node_deleted("n");
    pool.world.record_absence_read("n", pool.env.now());
    advance(41.0).await;
    pool.world.confirm_all(pool.env.now());
    for number in 0..200 {
        pool.submit(&pod(&format!("orphan{number}")).on("n"), Claim::NodeGone { node: "n".into() });
    }
    pool.submit_ended(&ended_pod("ended"));
    advance(1.0).await;
    assert_eq!(pool.completed(), ["ended released"]);
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_with_backoff_and_a_new_version_at_once() {
    let pool = pool(Leadership::always(), |_| Answer::status(500, "InternalError", "etcd"));
    let object = ended_pod("a");
    for pause in [1, 2, 4, 8] {
        assert_eq!(pool.submit_ended(&object), Submitted::Accepted);
        advance(0.001).await;
        let again = pool.woken();
        let left = again.since(pool.env.now()).as_secs_f64();
        assert!((left - f64::from(pause)).abs() < 0.01, "{left} for {pause}");
        assert_eq!(pool.submit(&object, Claim::KubeletTerminated), Submitted::Later(again));
        advance(left + 0.001).await;
    }
    pool.submit_ended(&object);
    advance(0.1).await;
    assert_eq!(pool.submit_ended(&object.rv(11)), Submitted::Accepted);
    advance(0.1).await;
    assert_eq!(pool.completed().len(), 6);
    assert!(pool.journal.records().iter().all(|record| record.action == Action::Failed && record.reason == "server"));
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_for_the_requested_retry_after() {
    let pool = pool(Leadership::always(), |_| Answer::plain(429, "slow down").with_retry_after(9));
    pool.submit_ended(&ended_pod("a"));
    advance(0.1).await;
    assert_eq!(pool.wakes(), [Mono::from_start(Duration::from_secs(9))]);
}

/// A pool with an overloaded API server that requests a pause of so many seconds, until the flag is cleared.
fn overloaded(seconds: u64) -> (Pool, Arc<AtomicBool>) {
    let overloaded = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&overloaded);
    let pool = pool(Leadership::always(), move |request| {
        if flag.load(Ordering::SeqCst) {
            Answer::plain(429, "slow down").with_retry_after(seconds)
        } else {
            well(request)
        }
    });
    (pool, overloaded)
}

#[tokio::test(start_paused = true)]
async fn bug_queued_pods_were_sent_during_a_requested_pause() {
    let (pool, overloaded) = overloaded(9);
    for number in 0..500 {
        pool.submit_ended(&ended_pod(&format!("p{number}")));
    }
    advance(8.9).await;
    let sent = pool.api.writes().len();
    assert!((1..=DEFAULT_WORKERS).contains(&sent), "{sent} writes");
    overloaded.store(false, Ordering::SeqCst);
    advance(1.0).await;
    let released = pool.completed().iter().filter(|line| line.ends_with("released")).count();
    assert_eq!(released, 500 - sent, "the others went on");
}

#[tokio::test(start_paused = true)]
async fn attack_a_retry_after_of_a_day_pauses_writes_for_half_a_minute() {
    let (pool, overloaded) = overloaded(86_400);
    pool.submit_ended(&ended_pod("a"));
    advance(0.1).await;
    overloaded.store(false, Ordering::SeqCst);
    pool.submit_ended(&ended_pod("b"));
    advance(29.8).await;
    assert_eq!(pool.completed(), ["a failed"]);
    advance(0.2).await;
    assert_eq!(pool.completed(), ["a failed", "b released"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_an_identity_does_not_wait_for_other_pods_of_its_node() {
    let pool = pool(Leadership::always(), |request| well(request).delayed(Duration::from_millis(10)));
    for number in 0..10_000 {
        pool.submit_ended(&ended_pod(&format!("web-{number}")));
    }
    let owner =
        json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "db", "controller": true }]);
    pool.submit_ended(&ended_pod("db-0").set("/metadata/ownerReferences", owner));
    advance(0.5).await;
    let ended = pool.completed();
    let place = ended.iter().position(|line| line == "db-0 released").expect("served within two turns");
    assert!(place <= (DEFAULT_WORKERS + 1) * BATCH, "at place {place}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_recorded_counted_and_retried() {
    let pool = pool(Leadership::always(), well);
    pool.world.apply(Kind::Pods, &pod("a").0, pool.env.now());
    pool.submit(&pod("a"), Claim::NeverScheduled);
    pool.submit(&pod("unknown"), Claim::NeverScheduled);
    advance(0.1).await;
    assert_eq!(pool.completed(), ["a refused", "unknown changed"]);
    let reasons: BTreeMap<_, _> =
        pool.journal.records().into_iter().map(|record| (record.reason, record.action)).collect();
    assert_eq!(reasons, BTreeMap::from([("ClaimMismatch", Action::Refused), ("Changed", Action::Dropped)]));
    assert_eq!(pool.api.lines(), [""; 0]);
    pool.counts(r#"pod_safety_evidence_refusals_total{reason="ClaimMismatch"} 1"#);
}

/// A device failed after it had proved a node off, and a person confirmed the node. The refusal because of the device
/// delayed the pods for another minute.
#[tokio::test(start_paused = true)]
async fn bug_new_evidence_waited_for_the_backoff_of_a_refusal() {
    let pool = pool(Leadership::always(), well);
    let on = pod("a").on("n").terminating();
    pool.world.apply(Kind::Pods, &on.0, pool.env.now());
    let seen = |newest: &str| Claim::Fenced { node: "n".into(), proof: "e".into(), newest: newest.parse().unwrap() };
    let refused = async |newest: &str| {
        pool.submit(&on, seen(newest));
        advance(0.1).await;
        pool.completed().len()
    };
    assert_eq!(refused("1").await, 1);
    assert_eq!(refused("1").await, 1, "it waits before it is tried again");
    assert_eq!(refused("2").await, 2, "there is newer evidence");
}

#[tokio::test(start_paused = true)]
async fn queued_requests_are_abandoned_when_leadership_is_lost_and_may_be_submitted_again() {
    let pool = pool(Leadership::always(), slow);
    let count = DEFAULT_WORKERS * 2;
    let object =
        |number: usize| ended_pod(&format!("p{number}")).set("/metadata/namespace", format!("ns{number}").into());
    for number in 0..count {
        pool.submit_ended(&object(number));
    }
    pool.world.apply(Kind::Pods, &pod("o").on("n").0, pool.env.now());
    advance(0.5).await;
    pool.submit_first_read("n");
    pool.authority.abandon();
    advance(5.0).await;
    assert_eq!(pool.completed().len(), DEFAULT_WORKERS, "those that were under way end; no other begins");
    assert_eq!(pool.api.writes().len(), DEFAULT_WORKERS);
    assert!(!pool.has_first_read());
    let again: Vec<_> = (0..count).map(|number| pool.submit_ended(&object(number))).collect();
    let accepted = again.iter().filter(|submitted| **submitted == Submitted::Accepted).count();
    assert_eq!(accepted, DEFAULT_WORKERS, "those that ended were just done");
    pool.submit_first_read("n");
    advance(5.0).await;
    assert_eq!(pool.completed().len(), count, "the others are taken on anew");
    assert!(pool.has_first_read());
}

#[tokio::test(start_paused = true)]
async fn wait_idle_waits_for_requests_in_flight_only() {
    let pool = pool(Leadership::always(), slow);
    pool.authority.wait_idle().await;
    assert_eq!(pool.env.now(), Mono::default());
    pool.submit_ended(&ended_pod("a"));
    advance(0.1).await;
    pool.authority.abandon();
    pool.authority.wait_idle().await;
    assert_eq!(pool.env.now(), Mono::from_start(Duration::from_secs(1)));
    assert_eq!(pool.completed(), ["a released"]);
}

#[tokio::test(start_paused = true)]
async fn after_resigning_the_rest_of_a_batch_writes_nothing() {
    let pool = pool(Leadership::always(), slow);
    for number in 0..10 {
        pool.submit_ended(&ended_pod(&format!("p{number}")));
    }
    advance(0.5).await;
    pool.leadership.end_for_tests();
    pool.authority.abandon();
    pool.authority.wait_idle().await;
    advance(30.0).await;
    assert_eq!(pool.api.writes().len(), 1, "one turn of one namespace: one was under way");
    assert_eq!(pool.completed().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn pods_of_one_missing_node_share_two_reads_and_need_two_writes_each() {
    let pool = pool(Leadership::always(), well);
    let claim = || Claim::NodeGone { node: "n".into() };
    for name in ["a", "b", "c"] {
        pool.world.apply(Kind::Pods, &pod(name).on("n").0, pool.env.now());
    }
    pool.world.set_unreachable_before_node_deleted("n");
    pool.world.record_absence_read("n", pool.env.now());
    advance(40.0).await;
    for name in ["a", "b", "c"] {
        pool.submit(&pod(name).on("n"), claim());
    }
    advance(0.1).await;
    assert_eq!(pool.completed(), ["a released", "b released", "c released"]);
    assert_eq!(pool.api.lines().len(), 2 + 3 * 2);
    let message = &pool.journal.records()[0].message;
    assert_eq!(
        message,
        "node n does not exist: two quorum reads 40s apart did not find it, and its Lease was not renewed since"
    );
}

/// Once, with eight nodes whose devices hang, no pod of any node was released for minutes.
#[tokio::test(start_paused = true)]
async fn bug_devices_that_do_not_answer_delayed_pods_of_other_nodes() {
    let pool = pool(Leadership::always(), |request| match request.path.contains("/fenceevidences/") {
        true => Answer::not_found().delayed(Duration::from_secs(20)),
        false => well(request),
    });
    for node in 0..2 * EVIDENCE_CHECK_WORKERS {
        for place in 0..4 {
            let object = pod(&format!("p-{node}-{place}")).on(&format!("n-{node}")).terminating();
            pool.world.apply(Kind::Pods, &object.0, pool.env.now());
            let node = format!("n-{node}");
            let claim = Claim::Fenced { node: node.into(), proof: "e".into(), newest: "1".parse().unwrap() };
            assert_eq!(pool.submit(&object, claim), Submitted::Accepted);
        }
    }
    advance(1.0).await;
    pool.submit_ended(&ended_pod("a"));
    advance(1.0).await;
    assert_eq!(pool.completed(), ["a released"]);
}
