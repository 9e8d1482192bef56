//! The loop, with a test controller.

mod deletions;

use std::collections::BTreeMap;

use super::*;
use crate::authority::Claim;
use crate::client::scripted::{Answer, Api, advance, env};
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::testing::Claimed as _;
use crate::testing::example_hold::Hold;
use crate::testing::objects::{Obj, pod, uid};
use crate::testing::{World, parts};

type Decide = Arc<dyn Fn(&str, Mono) -> Decision<Hold> + Send + Sync>;

/// A controller that decides about pods by name with a given function, and records when it decided.
#[derive(Clone)]
struct Toy {
    decide: Decide,
    decided: Arc<Mutex<Vec<(String, Mono)>>>,
    ended: Arc<Mutex<Vec<&'static str>>>,
}

impl Controller for Toy {
    type Key = String;
    type Hold = Hold;
    const NAME: &'static str = "toy";
    const KINDS: &'static [Kind] = &[Kind::Pods, Kind::Nodes];
    fn keys_for(&self, change: &Change<'_>, mark: &mut dyn FnMut(String)) {
        // This controller ignores events of the pod `lost`.
        if let Change::Pod { before, after } = change
            && let Some(pod) = after.or(*before)
            && &*pod.key.name != "lost"
        {
            mark(pod.key.name.to_string());
        }
    }
    fn list_keys(&self, view: &View<'_>, mark: &mut dyn FnMut(String)) {
        view.all_pods().for_each(|pod| mark(pod.key.name.to_string()));
    }
    fn decide(&self, key: &String, _view: &View<'_>, now: Mono) -> Decision<Hold> {
        self.decided.lock().push((key.clone(), now));
        (self.decide)(key, now)
    }
    fn completed(&self, _force: &ForceDeleteRequest, outcome: &ForceOutcome) {
        self.ended.lock().push(outcome.name());
    }
}

struct Loop {
    world: World,
    env: Env,
    api: Api,
    metrics: Metrics,
    journal: Arc<Journal>,
    holds: Arc<Holds>,
    leadership: Arc<Leadership>,
    toy: Toy,
    stop: watch::Sender<bool>,
    beats: LoopHeartbeats,
    ended: Arc<Mutex<bool>>,
}

fn nothing(_: &str, _: Mono) -> Decision<Hold> {
    Decision::default()
}

/// The parts of a loop, with an authority.
fn context(
    world: &World,
    mode: Mode,
    leadership: &Arc<Leadership>,
    env: &Env,
    api: &Api,
) -> (ControllerContext, Metrics) {
    let metrics = Metrics::new().unwrap();
    let parts = parts(world, env, api.connection(), leadership, &metrics);
    let journal = Arc::clone(&parts.journal);
    let holds = Holds::new(Arc::clone(&journal), parts.events.clone(), metrics.registry()).unwrap();
    let authority = Authority::start(parts);
    let (cache, env) = (Arc::clone(world.cache()), env.clone());
    let queues = metrics.queues.clone();
    (ControllerContext { cache, authority, env, mode, journal, holds, queues }, metrics)
}

/// Starts a loop in this mode. The world may be listed already.
fn start(
    world: World,
    mode: Mode,
    leadership: Arc<Leadership>,
    decide: impl Fn(&str, Mono) -> Decision<Hold> + Send + Sync + 'static,
) -> Loop {
    let (env, _wall) = env();
    let api = Api::answering(&env, |request| {
        if request.method == "GET" { Answer::not_found() } else { Answer::json(&pod("a").rv(77)) }
    });
    let (context, metrics) = context(&world, mode, &leadership, &env, &api);
    let (journal, holds) = (Arc::clone(&context.journal), Arc::clone(&context.holds));
    let toy = Toy { decide: Arc::new(decide), decided: Arc::default(), ended: Arc::default() };
    let (beats, stop, ended) = (LoopHeartbeats::default(), watch::Sender::new(false), Arc::new(Mutex::new(false)));
    let drive = ControllerLoop::new(toy.clone(), context);
    let (run, over) =
        (drive.run(beats.register("toy", env.now()), leadership.subscribe(), stop.subscribe()), Arc::clone(&ended));
    env.spawner.spawn(
        "toy",
        Box::pin(async move {
            run.await;
            *over.lock() = true;
        }),
    );
    Loop { world, env, api, metrics, journal, holds, leadership, toy, stop, beats, ended }
}

fn guarding(decide: impl Fn(&str, Mono) -> Decision<Hold> + Send + Sync + 'static) -> Loop {
    start(World::listed(), Mode::Guard, Leadership::always(), decide)
}

impl Loop {
    fn apply(&self, object: &Obj) {
        self.world.apply(Kind::Pods, &object.0, self.env.now());
    }

    /// The keys that were decided since the last call, sorted.
    fn decided(&self) -> Vec<String> {
        let mut keys: Vec<_> = self.toy.decided.lock().drain(..).map(|(key, _)| key).collect();
        keys.sort();
        keys
    }

    fn written(&self) -> Vec<(Action, &'static str)> {
        self.journal.records().iter().map(|record| (record.action, record.reason)).collect()
    }

    fn gauge(&self, reason: &str) -> i64 {
        let page = String::from_utf8(self.metrics.encode().unwrap()).unwrap();
        let head = format!(r#"pod_safety_holds{{controller="toy",reason="{reason}"}} "#);
        page.lines().find_map(|line| line.strip_prefix(&head)).map_or(0, |value| value.parse().unwrap())
    }
}

fn no_keys() -> Vec<String> {
    Vec::new()
}

#[tokio::test(start_paused = true)]
async fn thirty_events_of_one_pod_are_one_decision() {
    let fixture = guarding(nothing);
    advance(1.0).await;
    fixture.decided();
    for version in 10..40 {
        fixture.apply(&pod("a").rv(version).phase(if version % 2 == 0 { "Running" } else { "Pending" }));
    }
    advance(1.0).await;
    assert_eq!(fixture.decided(), ["a"]);
    advance(100.0).await;
    assert_eq!(fixture.decided(), no_keys(), "nothing happens, nothing is decided");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_decided_before_all_kinds_are_listed() {
    let fixture = start(World::default(), Mode::Guard, Leadership::always(), nothing);
    fixture.apply(&pod("a"));
    fixture.apply(&pod("lost"));
    fixture.world.mark_listed(Kind::Pods, fixture.env.now());
    advance(400.0).await;
    assert_eq!(fixture.decided(), no_keys());
    fixture.world.mark_listed(Kind::Nodes, fixture.env.now());
    advance(1.0).await;
    assert_eq!(fixture.decided(), ["a", "lost"], "NodeLeases are not this controller's");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_decided_again_at_its_requeue_time() {
    let fixture = guarding(|_, now| {
        let first = now < Mono::from_start(Duration::from_secs(10));
        if first {
            Decision::default().and_requeue_at(Mono::from_start(Duration::from_secs(40)))
        } else {
            Decision::default()
        }
    });
    fixture.apply(&pod("a"));
    advance(299.0).await;
    let decided = fixture.toy.decided.lock().clone();
    assert_eq!(decided.len(), 2, "{decided:?}");
    let late = decided[1].1.since(Mono::from_start(Duration::from_secs(40)));
    assert!(
        decided[1].1 >= Mono::from_start(Duration::from_secs(40)) && late < Duration::from_millis(20),
        "{decided:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_sweep_decides_keys_whose_event_was_lost() {
    let fixture = guarding(nothing);
    advance(1.0).await;
    fixture.apply(&pod("lost"));
    advance(298.0).await;
    assert_eq!(fixture.decided(), no_keys());
    advance(2.0).await;
    assert_eq!(fixture.decided(), ["lost"]);
    advance(301.0).await;
    assert_eq!(fixture.decided(), ["lost"], "and again");
}

#[tokio::test(start_paused = true)]
async fn bug_leadership_gained_while_the_loop_slept_decided_nothing() {
    let fixture = start(World::listed(), Mode::Guard, Leadership::none(), nothing);
    fixture.apply(&pod("a"));
    fixture.apply(&pod("lost"));
    advance(5.0).await;
    fixture.decided();
    fixture.leadership.lead_for_tests();
    advance(1.0).await;
    assert_eq!(fixture.decided(), ["a", "lost"]);
    fixture.leadership.end_for_tests();
    advance(1.0).await;
    assert_eq!(fixture.decided(), no_keys(), "a loss decides nothing");
    fixture.leadership.lead_for_tests();
    advance(1.0).await;
    assert_eq!(fixture.decided(), ["a", "lost"], "each gain counts");
}

#[tokio::test(start_paused = true)]
async fn the_loop_does_not_spin_after_the_election_ends() {
    let fixture = start(World::listed(), Mode::Guard, Leadership::none(), nothing);
    let (stop, (_, closed)) = (watch::Sender::new(false), watch::channel(false));
    let (context, _metrics) = context(&fixture.world, Mode::Guard, &fixture.leadership, &fixture.env, &fixture.api);
    let run = ControllerLoop::new(fixture.toy.clone(), context).run(
        fixture.beats.register("other", fixture.env.now()),
        closed,
        stop.subscribe(),
    );
    // The paused test clock advances only if no task spins.
    assert!(tokio::time::timeout(Duration::from_secs(60), run).await.is_err());
}

fn force_delete_decision(name: &str) -> Decision<Hold> {
    let force = pod(name).terminating().force(Claim::NeverScheduled);
    Decision { intents: vec![Intent::Force(force)], ..Decision::default() }
}

#[tokio::test(start_paused = true)]
async fn an_intent_is_executed_and_its_outcome_is_delivered() {
    for mode in [Mode::Guard, Mode::Replace] {
        let fixture = start(World::listed(), mode, Leadership::always(), |key, _| force_delete_decision(key));
        fixture.apply(&pod("a").terminating());
        advance(1.0).await;
        assert_eq!(*fixture.toy.ended.lock(), ["released"]);
        assert_eq!(fixture.api.writes().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_requested_many_pods_is_deferred_while_they_leave() {
    let many = |_: &str, _| {
        let intents = (0..500).flat_map(|number| force_delete_decision(&format!("p{number}")).intents).collect();
        Decision { intents, ..Decision::default() }
    };
    let fixture = start(World::listed(), Mode::Observe, Leadership::always(), many);
    for version in 10..60 {
        fixture.apply(&pod("a").rv(version).phase(if version % 2 == 0 { "Running" } else { "Pending" }));
        advance(0.02).await;
    }
    advance(1.0).await;
    assert_eq!(fixture.decided().len(), 3, "at once, after half a second, and after the last event");
}

#[tokio::test(start_paused = true)]
async fn observe_mode_writes_nothing_and_records_the_dry_run_once() {
    let fixture = start(World::listed(), Mode::Observe, Leadership::always(), |key, _| force_delete_decision(key));
    fixture.apply(&pod("a").terminating());
    advance(1.0).await;
    fixture.apply(&pod("a").terminating().running().rv(11));
    advance(400.0).await;
    assert!(fixture.api.lines().is_empty());
    assert_eq!(fixture.written(), [(Action::WouldForceDelete, "ObserveMode")]);
    fixture.world.remove(Kind::Pods, "uid-a", fixture.env.now());
    advance(301.0).await;
    fixture.apply(&pod("a").terminating());
    advance(1.0).await;
    let again = fixture.written().into_iter().filter(|(action, _)| *action == Action::WouldForceDelete).count();
    assert!(again >= 2, "a pod that came back is news: {again}");
}

#[tokio::test(start_paused = true)]
async fn observe_mode_still_makes_first_reads() {
    let fixture = start(World::listed(), Mode::Observe, Leadership::none(), |_, _| Decision {
        intents: vec![Intent::ReadMissingNode { node: "n".into() }],
        ..Decision::default()
    });
    fixture.apply(&pod("a").on("n"));
    advance(0.5).await;
    assert!(fixture.api.writes().is_empty() && !fixture.api.lines().is_empty());
    assert!(fixture.world.read().view().absence("n").unwrap().first_read.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_failed_request_is_decided_again_at_the_requested_time() {
    // The cache has another version than the request, so that the request is refused each time.
    let fixture = guarding(|key, _| force_delete_decision(key));
    fixture.apply(&pod("a").terminating().rv(99));
    advance(20.0).await;
    let at: Vec<f64> =
        fixture.toy.decided.lock().iter().map(|(_, at)| at.since_start().as_secs_f64().round()).collect();
    assert_eq!(at, [0.0, 1.0, 3.0, 7.0, 15.0]);
    assert_eq!(fixture.toy.ended.lock().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_recorded_once_per_reason_and_counted_in_the_gauge() {
    let held: Arc<Mutex<Option<Hold>>> = Arc::default();
    let now = Arc::clone(&held);
    let fixture = guarding(move |key, _| match &*now.lock() {
        Some(hold) => Decision::hold(Subject::Node(key.into()), hold.clone()),
        None => Decision::default(),
    });
    let quarantine = |left| Some(Hold::Quarantine { node: "n".into(), left: Duration::from_secs(left) });
    let mut version = 10;
    for (what, hold, records, quarantined, unreadable) in [
        ("a first hold", quarantine(40), 1, 1, 0),
        ("the same reason with other numbers", quarantine(20), 1, 1, 0),
        ("another reason", Some(Hold::PhaseUnreadable), 2, 0, 1),
        ("none", None, 2, 0, 0),
        ("none, again", None, 2, 0, 0),
        ("the first reason again", quarantine(10), 3, 1, 0),
    ] {
        *held.lock() = hold;
        version += 1;
        fixture.apply(&pod("a").rv(version).phase(if version % 2 == 0 { "Running" } else { "Pending" }));
        advance(1.0).await;
        assert_eq!(fixture.written().len(), records, "{what}");
        assert_eq!(
            (fixture.gauge("Quarantine"), fixture.gauge("PhaseUnreadable")),
            (quarantined, unreadable),
            "{what}"
        );
        assert_eq!(i64::try_from(fixture.holds.current().len()).unwrap(), quarantined + unreadable, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_has_the_latest_message_and_the_first_start_time() {
    let left = Arc::new(Mutex::new(40));
    let now = Arc::clone(&left);
    let fixture = guarding(move |_, _| {
        let hold = Hold::Quarantine { node: "n".into(), left: Duration::from_secs(*now.lock()) };
        Decision::hold(Subject::Everything, hold)
    });
    fixture.apply(&pod("a"));
    advance(1.0).await;
    let first = fixture.holds.current();
    *left.lock() = 30;
    fixture.apply(&pod("a").phase("Pending").rv(11));
    advance(1.0).await;
    let second = fixture.holds.current();
    assert_eq!(first[0].since, second[0].since);
    assert!(first[0].message.contains("in 40s") && second[0].message.contains("in 30s"), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn two_keys_with_the_same_reason_count_twice() {
    let fixture = guarding(|key, _| Decision::hold(Subject::Node(key.into()), Hold::PhaseUnreadable));
    fixture.apply(&pod("a"));
    fixture.apply(&pod("b"));
    advance(1.0).await;
    assert_eq!(fixture.gauge("PhaseUnreadable"), 2);
    let subjects: BTreeMap<_, _> =
        fixture.holds.current().into_iter().map(|held| (held.subject, held.reason)).collect();
    assert_eq!(subjects.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_loop_records_heartbeats_when_idle_and_ends_when_stopped() {
    let fixture = guarding(nothing);
    advance(1_000.0).await;
    assert!(fixture.beats.stuck(fixture.env.now()).is_empty());
    assert!(!*fixture.ended.lock());
    fixture.stop.send_replace(true);
    advance(0.1).await;
    assert!(*fixture.ended.lock());
}

#[tokio::test(start_paused = true)]
async fn more_keys_than_fit_into_a_round_are_all_decided() {
    let fixture = guarding(nothing);
    for number in 0..1_000 {
        fixture.apply(&pod(&format!("p{number}")));
    }
    advance(1.0).await;
    assert_eq!(fixture.decided().len(), 1_000);
    assert!(fixture.world.read().view().pod(&uid("uid-p999")).is_some());
}

/// Once, the loop paused for 10 ms between rounds of 128 keys. A new leader of 130,000 nodes decided for ten seconds, and
/// must be done within 15 s of the failure of the previous leader.
#[tokio::test(start_paused = true)]
async fn bug_a_new_leader_paused_between_full_rounds() {
    let fixture = start(World::listed(), Mode::Guard, Leadership::none(), nothing);
    (0..10 * ROUND_KEYS).for_each(|number| fixture.apply(&pod(&format!("p{number}"))));
    advance(5.0).await;
    fixture.decided();
    fixture.leadership.lead_for_tests();
    let led = fixture.env.now();
    advance(1.0).await;
    let decided = fixture.toy.decided.lock().clone();
    assert_eq!(decided.len(), 10 * ROUND_KEYS);
    let last = decided.iter().map(|(_, at)| *at).max().unwrap();
    assert!(last.since(led) < COALESCE * 5, "{:?}", last.since(led));
}

/// Once, a new leader decided about 130,000 nodes in the order of their names, although it knew as a standby which were
/// unreachable.
#[tokio::test(start_paused = true)]
async fn bug_a_new_leader_did_not_decide_refused_keys_first() {
    let fixture = start(World::listed(), Mode::Guard, Leadership::none(), |key, _| {
        if key == "p999" { force_delete_decision(key) } else { Decision::default() }
    });
    (0..1_000).for_each(|number| fixture.apply(&pod(&format!("p{number}"))));
    advance(5.0).await;
    fixture.decided();
    fixture.leadership.lead_for_tests();
    advance(1.0).await;
    assert_eq!(fixture.toy.decided.lock()[0].0, "p999");
}
