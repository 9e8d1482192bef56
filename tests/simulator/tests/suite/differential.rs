//! The same requests to the simulated API server and the real one: the answers must be the same.
//!
//! `POD_SAFETY_DIFFERENTIAL_OPS=200000` runs that many operations, `POD_SAFETY_DIFFERENTIAL_SEED` draws other ones,
//! `POD_SAFETY_DIFFERENTIAL_FIRST` begins at that sequence, and `POD_SAFETY_DIFFERENTIAL_SHOW` prints all answers of
//! that sequence. `POD_SAFETY_DIFFERENTIAL_ROUNDS=500` repeats the test of four clients so often on each side.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::client::Body;
use pod_safety_control_plane::{ControlPlane, Options};
use pod_safety_shared::clock::Env;
use pod_safety_simulator::api::{ApiRequest, ApiServer, Conduct, Course, Etcd, Fate, Kind, Prompt, Transport};
use pod_safety_simulator::chance::Chance;
use pod_safety_simulator::differential::{
    DIVERGENCES, Difference, Generator, Session, Side, compare, disorder, met_each_other, together, watch_targets,
};
use serde_json::{Value, json};

use crate::asked;

/// Enough for every run of the tests; more by the environment.
const FEW: usize = 1_500;

/// How many sequences run at the same time: most of each is waiting. A long run on an otherwise idle machine may have
/// more (`POD_SAFETY_DIFFERENTIAL_AT_ONCE`).
const AT_ONCE: usize = 16;

/// For how many seconds watches are read: one, and longer if they differ. On a busy machine the real server may not have begun to
/// send within a second.
const WATCHED: [u32; 3] = [1, 8, 30];

fn number(name: &str, otherwise: usize) -> usize {
    asked::number(name).map_or(otherwise, |number| usize::try_from(number).unwrap())
}

/// Installs the shipped definitions of pod-safety's own kinds.
async fn serve_ours(plane: &ControlPlane) {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for crd in pod_safety_shared::api::crds() {
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(Body::from(crd.to_string().into_bytes()))
            .unwrap();
        assert!(plane.admin().send(request).await.unwrap().status().is_success());
    }
    for kind in Kind::custom_resources() {
        let path = format!("/apis/{}/{}", kind.api_version(), kind.plural);
        let mut served = false;
        for _ in 0..200 {
            let request = http::Request::get(&path).body(Body::empty()).unwrap();
            served = plane.admin().send(request).await.unwrap().status().is_success();
            if served {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(served, "{path} is not served");
    }
}

fn simulated(number: u64) -> (Side, Arc<Etcd>) {
    let etcd = Etcd::new(Chance::new(number), &Kind::custom_resources(), Timestamp::now());
    let server = ApiServer::start("api", &etcd, Env::real(number), Arc::new(Prompt));
    (Side::new(Transport::new(&server, "test").client(), false), etcd)
}

#[derive(Default)]
struct Sum {
    operations: usize,
    watches: usize,
    codes: BTreeMap<u16, usize>,
    shapes: BTreeMap<String, usize>,
    differences: Vec<(u64, Difference)>,
}

async fn sequence(real: &Side, chance: Chance, number: u64) -> Sum {
    let mut generator = Generator::new(chance, number);
    let operations = generator.operations();
    let name = generator.sequence().to_owned();
    let (simulated, etcd) = simulated(number);
    let began = Timestamp::now();
    // Step by step, so that the times of both sides can be compared.
    let (mut left, mut right) = (Session::new(real, &name), Session::new(&simulated, &name));
    for operation in &operations {
        left.step(operation).await;
        right.step(operation).await;
    }
    let (mut left, mut right) = (left.end(), right.end());
    let (here, there) = (watch_targets(&name, &left.watch_versions()), watch_targets(&name, &right.watch_versions()));
    let mut differences = Vec::new();
    for seconds in WATCHED {
        (left.watches, right.watches) = futures::join!(real.watch(&here, seconds), simulated.watch(&there, seconds));
        differences = compare((&left, began), (&right, began));
        if differences.iter().all(|difference| difference.answer.is_some()) {
            break;
        }
    }
    let mut sum = Sum { operations: operations.len(), watches: left.watches.len(), ..Sum::default() };
    for (operation, reply) in operations.iter().zip(&left.replies) {
        *sum.codes.entry(reply.code).or_default() += 1;
        *sum.shapes.entry(operation.shape()).or_default() += 1;
    }
    sum.differences = differences.into_iter().map(|one| (number, one)).collect();
    for what in etcd.unimplemented() {
        let messages = Difference { answer: None, place: what, left: json!("known"), right: json!("unimplemented") };
        sum.differences.push((number, messages));
    }
    if number == self::number("POD_SAFETY_DIFFERENTIAL_SHOW", 0) as u64 {
        for ((operation, one), other) in operations.iter().zip(&left.replies).zip(&right.replies) {
            println!("{operation:?}\n  real      {} {}\n  simulated {} {}", one.code, one.body, other.code, other.body);
        }
    }
    // Differences after the first one of a sequence may be its consequences.
    if let Some((_, first)) = sum.differences.first_mut()
        && let Some(operation) = first.answer.and_then(|index| operations.get(index))
    {
        first.place = format!("{:?} {} {operation:?}", first.answer, first.place);
    }
    sum
}

/// A difference in three lines.
fn brief(difference: &(u64, Difference)) -> String {
    let (number, Difference { place, left, right, .. }) = difference;
    format!("sequence {number}, {place}\n  real      {left}\n  simulated {right}")
}

/// The answers about history that the server does not have: a watch from before its start, and a list of a version that
/// was compacted.
async fn of_the_past(side: &Side, name: &str, restart: impl AsyncFnOnce() -> Side) -> Vec<Value> {
    let namespace = json!({ "metadata": { "name": name } });
    let first = side.request("POST", "/api/v1/namespaces", &namespace).await;
    let version: u64 = first.body["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    for label in ["a", "b"] {
        let patch = json!({ "metadata": { "labels": { "l": label } } });
        side.request("PATCH", &format!("/api/v1/namespaces/{name}"), &patch).await;
    }
    let side = restart().await;
    let watches = side.watch(&[("/api/v1/namespaces?".to_owned(), version.to_string())], 1).await;
    let events = watches.iter().flat_map(|watch| &watch.events);
    let mut answers: Vec<Value> =
        events.map(|(kind, object)| json!([kind, object["code"], object["reason"]])).collect();
    let path = format!("/api/v1/namespaces?resourceVersion={version}&resourceVersionMatch=Exact");
    let list = side.request("GET", &path, &Value::Null).await;
    answers.push(json!([list.code, list.body["reason"]]));
    let future = "/api/v1/namespaces?resourceVersion=99999999&resourceVersionMatch=Exact";
    let list = side.request("GET", future, &Value::Null).await;
    answers.push(json!([list.code, list.body["reason"], list.body["details"]]));
    answers
}

#[tokio::test]
async fn both_servers_answer_alike_for_compacted_history() {
    let mut plane = ControlPlane::start(Options::default()).await.unwrap();
    let real = Side::new(plane.admin(), true);
    let real = of_the_past(&real, "past", async || {
        plane.compact().await.unwrap();
        plane.restart_apiserver().await.unwrap();
        Side::new(plane.admin(), true)
    })
    .await;
    let (simulated, etcd) = simulated(1);
    let simulated = of_the_past(&simulated, "past", async || {
        etcd.compact(etcd.revision());
        let server = ApiServer::start("api-2", &etcd, Env::real(2), Arc::new(Prompt));
        Side::new(Transport::new(&server, "test").client(), false)
    })
    .await;
    println!("{real:?}");
    assert_eq!(real, simulated);
}

#[tokio::test]
async fn the_simulated_api_server_answers_as_the_real_one() {
    let operations = number("POD_SAFETY_DIFFERENTIAL_OPS", FEW);
    let chance = Chance::new(number("POD_SAFETY_DIFFERENTIAL_SEED", 1) as u64);
    // A long run would outlast the history that its sequences read.
    let keeps_history = vec!["--etcd-compaction-interval=0".to_owned()];
    let options = Options { apiserver_args: keeps_history, ..Options::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    serve_ours(&plane).await;
    let real = Side::new(plane.admin(), true);
    let began = Instant::now();
    let at_once = number("POD_SAFETY_DIFFERENTIAL_AT_ONCE", AT_ONCE) as u64;
    let (mut sum, mut next) = (Sum::default(), number("POD_SAFETY_DIFFERENTIAL_FIRST", 1) as u64);
    while sum.operations < operations && sum.differences.len() < 2_000 {
        let batch = (next..next + at_once).map(|number| sequence(&real, chance, number));
        for one in futures::future::join_all(batch).await {
            sum.operations += one.operations;
            sum.watches += one.watches;
            sum.differences.extend(one.differences);
            for (code, count) in one.codes {
                *sum.codes.entry(code).or_default() += count;
            }
            for (shape, count) in one.shapes {
                *sum.shapes.entry(shape).or_default() += count;
            }
        }
        next += at_once;
    }
    for divergence in DIVERGENCES {
        println!("not compared: {} ({})", divergence.what, divergence.why);
    }
    println!("answers of the real server by code: {:?}", sum.codes);
    println!("{} shapes of requests", sum.shapes.len());
    let mut reported = 0;
    for difference in &sum.differences {
        if reported != difference.0 {
            println!("{}", brief(difference));
        }
        reported = difference.0;
    }
    println!(
        "differential: {} operations, {} watch comparisons, {} differences, {:.0} s",
        sum.operations,
        sum.watches,
        sum.differences.len(),
        began.elapsed().as_secs_f64()
    );
    assert!(sum.differences.is_empty(), "{} differences", sum.differences.len());
}

/// Requests take some milliseconds there and back, so that those of several clients overtake each other.
struct Slow(Chance, std::sync::atomic::AtomicU64);

impl Conduct for Slow {
    fn course(&self, _server: &str, _asked: &ApiRequest) -> Course {
        let number = self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let span = |way: &str| Duration::from_millis(self.0.below(4, "road", way, number));
        Course { before: span("there"), after: span("back"), fate: Fate::Deliver, reset: false, sent: None }
    }
    fn executed(&self, _server: &str, _asked: &ApiRequest, _code: u16, _revision_before: u64) {}
}

#[tokio::test]
async fn the_answers_to_four_concurrent_clients_fit_one_order_on_both_sides() {
    let rounds = number("POD_SAFETY_DIFFERENTIAL_ROUNDS", 10) as u64;
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let real = Side::new(plane.admin(), true);
    for round in 0..rounds {
        let etcd = Etcd::new(Chance::new(round), &[], Timestamp::now());
        let slow = Slow(Chance::new(round), std::sync::atomic::AtomicU64::new(0));
        let server = ApiServer::start("api", &etcd, Env::real(round), Arc::new(slow));
        let simulated = Side::new(Transport::new(&server, "test").client(), false);
        for (side, what) in [(&real, "real"), (&simulated, "simulated")] {
            let name = format!("together-{round}");
            let made = side.request("POST", "/api/v1/namespaces", &json!({ "metadata": { "name": name } })).await;
            assert_eq!(made.code, 201, "{what}: {}", made.body);
            let history = together(side, &name, Chance::new(round)).await.unwrap();
            assert_eq!(disorder(&history), Vec::<String>::new(), "{what}, round {round}");
            assert!(met_each_other(&history), "{what}, round {round}: nobody was in anybody's way");
        }
    }
    println!("{rounds} rounds of four clients fit one order on both sides");
}
