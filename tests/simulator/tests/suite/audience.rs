//! A live run with a viewer, who can intervene.

use std::collections::BTreeSet;
use std::time::Duration;

use pod_safety_simulator::campaign::{Fault, Plan, draw};
use pod_safety_simulator::checker::{News, Tone};
use pod_safety_simulator::comparison::compare;
use pod_safety_simulator::scenario::{self, Contender};
use pod_safety_simulator::world::{Intervention, LiveRun, Machine, Pace, Snapshot, run};

use crate::runs;
use crate::shipped::{self, SHIPPED};

const PATIENCE: Duration = Duration::from_secs(60);

fn pace(each: u64, ends: bool) -> Pace {
    Pace { each: Duration::from_millis(each), speed: None, from: Duration::ZERO, ends }
}

fn quiet() -> Plan {
    Plan { servers: 1, lease_collected_after: 600, heal_at: 1_000, ..runs::plan(Vec::new()) }
}

/// The first snapshot for which the condition holds.
fn until(stage: &LiveRun, condition: impl Fn(&Snapshot) -> bool) -> Snapshot {
    for _ in 0..100_000 {
        let snapshot = stage.next_snapshot(PATIENCE).unwrap();
        if condition(&snapshot) {
            return snapshot;
        }
    }
    panic!("it never came to that");
}

#[test]
fn a_live_run_breaks_no_rule_and_each_line_is_sent_once() {
    // A snapshot each 70 ms makes a run several times as long: only one run is shown so closely.
    for (seed, each) in [(0, 70), (0, 1_000), (1, 1_000), (2, 1_000), (3, 1_000)] {
        let plan = draw(seed);
        assert!(run(&plan, SHIPPED).violations.is_empty());
        let stage = LiveRun::open(&plan, SHIPPED, pace(each, true)).unwrap();
        let mut lines = Vec::new();
        while let Some(snapshot) = stage.wait() {
            lines.extend(snapshot.news);
        }
        let seen = stage.end().unwrap();
        assert!(seen.violations.is_empty(), "seed {seed}, looked at each {each} ms: {:?}", seen.violations);
        assert_eq!(lines, seen.news, "every line is told once");
    }
}

/// A viewer sets timers of its own, and these influence the order of events at the same instant: a run that is shown
/// differs from the unshown one, but is the same each time.
#[test]
fn a_live_run_is_the_same_each_time() {
    let plan = draw(2);
    let seen = || {
        let stage = LiveRun::open(&plan, SHIPPED, pace(1_000, true)).unwrap();
        while stage.wait().is_some() {}
        stage.end().unwrap().hash
    };
    assert_eq!(seen(), seen());
}

#[test]
fn a_viewer_can_apply_the_faults_of_a_plan() {
    let stage = LiveRun::open(&quiet(), SHIPPED, pace(500, false)).unwrap();
    let calm = until(&stage, |now| now.processes.len() >= 4 && now.replicas.iter().any(|replica| replica.leads));
    assert!(calm.nodes.iter().all(|node| node.machine == Machine::On && node.registered));
    stage.intervene(Intervention::Fault(Fault::CutNode { node: 0, seconds: 10_000 }));
    until(&stage, |now| now.nodes[0].machine == Machine::Cut && now.nodes[0].lease_age > Some(Duration::from_secs(12)));
    stage.intervene(Intervention::Reconnect(0));
    stage.intervene(Intervention::Fault(Fault::Freeze { node: 1, seconds: 10_000 }));
    until(&stage, |now| now.nodes[0].machine == Machine::On && now.nodes[1].machine == Machine::Frozen);
    stage.intervene(Intervention::Thaw(1));
    stage.intervene(Intervention::Fault(Fault::PowerOff { node: 2, back: None }));
    let off = until(&stage, |now| now.nodes[1].machine == Machine::On && now.nodes[2].machine == Machine::Off);
    assert!(off.processes.iter().all(|process| process.node != "node-2"), "power takes the processes along");
    stage.intervene(Intervention::PowerOn(2));
    until(&stage, |now| now.nodes[2].machine == Machine::On);
    let outcome = stage.close().unwrap();
    assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
}

#[test]
fn a_hold_is_shown_with_its_reason() {
    let stage = LiveRun::open(&quiet(), SHIPPED, pace(500, false)).unwrap();
    until(&stage, |now| now.processes.len() >= 4 && now.nodes.iter().all(|node| node.registered));
    let busy = until(&stage, |now| now.processes.iter().any(|process| process.identity.contains("data")));
    let node = busy.processes.iter().find(|process| process.identity.contains("data")).unwrap().node.clone();
    let index = busy.nodes.iter().position(|known| known.name == node).unwrap();
    stage.intervene(Intervention::Fault(Fault::DeleteNode { node: index }));
    let held = until(&stage, |now| now.holds.iter().any(|hold| hold.reason == "KubeletAlive"));
    let hold = held.holds.iter().find(|hold| hold.reason == "KubeletAlive").unwrap();
    assert!(hold.message.contains(&node) && hold.message.contains("Stop that kubelet"), "{hold:?}");
    drop(stage.close());
}

#[test]
fn time_stands_still_in_a_pause_and_tasks_run_inside() {
    let stage = LiveRun::open(&quiet(), SHIPPED, pace(100, false)).unwrap();
    until(&stage, |now| now.at > Duration::from_secs(30));
    stage.pause(true);
    let (sender, receiver) = std::sync::mpsc::channel();
    stage.run_inside(Box::new(move |world, _| sender.send(format!("{world:?}")).unwrap()));
    // Orders are carried out one after another; a viewer that does not read makes the world wait.
    while !receiver.try_recv().is_ok_and(|world: String| world.contains("now")) {
        let _older = stage.next_snapshot(Duration::from_millis(50));
    }
    // The snapshots that were on their way when the pause began, and the one after the visit.
    while stage.next_snapshot(Duration::from_millis(300)).is_some() {}
    let still = || {
        stage.run_inside(Box::new(|_, _| ()));
        stage.next_snapshot(PATIENCE).unwrap()
    };
    let (first, second) = (still(), still());
    assert_eq!(first.at, second.at);
    stage.pause(false);
    until(&stage, |now| now.at > first.at);
    drop(stage.close());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the pace is one of real time")]
fn the_world_keeps_the_requested_pace() {
    const SPEED: f64 = 20.0;
    let began = std::time::Instant::now();
    let stage = LiveRun::open(&quiet(), SHIPPED, Pace { speed: Some(SPEED), ..pace(100, false) }).unwrap();
    // A busy machine is slower than requested, and never faster.
    for _ in 0..100 {
        let at = stage.next_snapshot(PATIENCE).unwrap().at;
        let passed = began.elapsed().mul_f64(SPEED);
        assert!(at <= passed + Duration::from_secs(1), "{at:?} when {passed:?} were due");
    }
    drop(stage.close());
}

#[test]
fn a_dropped_live_run_ends() {
    let stage = LiveRun::open(&quiet(), SHIPPED, pace(100, false)).unwrap();
    let visitors = stage.task_sender();
    stage.pause(true);
    drop(stage.close());
    assert!(!visitors.run_inside(Box::new(|_, _| ())), "nobody is there to be visited");
}

/// The figures of the table are those of the runs.
#[test]
fn the_comparison_table_shows_the_measurements_of_the_runs() {
    let all = scenario::shipped().unwrap();
    let scenario = all.iter().find(|scenario| scenario.name == "partition").unwrap();
    let comparison = compare(&scenario.plan, shipped::launch);
    let rows = comparison.rows();
    for (column, contender) in Contender::ALL.into_iter().enumerate() {
        let outcome = run(&scenario.plan, contender.subject(shipped::launch));
        assert_eq!(comparison.outcome(contender).unwrap().hash, outcome.hash, "{}", contender.name());
        let cell = |name: &str| &rows.iter().find(|row| row[0] == name).unwrap()[column + 1];
        let count = |name: &str| outcome.broken.iter().find(|(rule, _)| rule.to_string().starts_with(name));
        let broken = |name: &str| count(name).map_or(0, |(_, count)| *count).to_string();
        assert_eq!(cell("removed without proof"), &broken("S2"));
        assert_eq!(cell("wrong pod removed"), &broken("S4"));
        assert_eq!(cell("still away at the end"), &outcome.presence.missing().to_string());
        assert_eq!(cell("two copies wrote") == "never", outcome.presence.twice(Duration::MAX).is_none());
    }
}

/// The default scenario: the effect of each set of rules on a database whose node is cut off for fifteen minutes.
#[test]
fn the_database_recovers_with_pod_safety_not_with_kcm_and_is_written_twice_with_a_script() {
    let all = scenario::shipped().unwrap();
    let comparison = compare(&all[0].plan, shipped::launch);
    let presence = |contender| &comparison.outcome(contender).unwrap().presence;
    let (pod_safety, kcm, script) =
        (presence(Contender::PodSafety), presence(Contender::KubeControllerManager), presence(Contender::Script));
    let end = Duration::MAX;
    let away = pod_safety.away(end).unwrap();
    assert!(
        !away.goes_on && away.lasted < Duration::from_secs(150) && pod_safety.twice(end).is_none(),
        "{pod_safety:?}"
    );
    assert!(kcm.away(end).unwrap().goes_on && kcm.twice(end).is_none(), "{kcm:?}");
    assert!(kcm.away(end).unwrap().lasted >= Duration::from_secs(900), "{kcm:?}");
    assert!(!script.away(end).unwrap().goes_on, "{script:?}");
    assert!(script.twice(end).unwrap().lasted > Duration::from_secs(600), "{script:?}");
    let sentences = comparison.sentences();
    assert!(sentences[0].ends_with("and no pod ran twice."), "{sentences:?}");
    assert!(sentences[1].contains("data-0 is still away after 15 min"), "{sentences:?}");
    assert!(sentences[2].contains("two copies of data-0 wrote for"), "{sentences:?}");
}

/// A person added the taint, and there is no evidence that the machine is off.
#[test]
fn a_stuck_pod_is_shown_with_its_reason() {
    let all = scenario::shipped().unwrap();
    let mut plan = all.iter().find(|scenario| scenario.name == "partition").unwrap().plan.clone();
    plan.faults = vec![(30, Fault::PowerOff { node: 0, back: None }), (31, Fault::Taint { node: 0 })];
    plan.faults.extend((0..plan.pods).map(|pod| (32, Fault::DeletePod { pod })));
    let text = compare(&plan, shipped::launch).to_string();
    assert!(text.contains("stuck: pod-safety: default/data-3") && text.contains("OutOfServiceButReady"), "{text}");
}

#[test]
fn every_shipped_scenario_has_its_expected_result() {
    for scenario in scenario::shipped().unwrap() {
        let outcome = run(&scenario.plan, scenario.subject.subject(shipped::launch));
        let missed = scenario.expect.missed(&outcome);
        let comparison = compare(&scenario.plan, shipped::launch);
        println!("{}\n{comparison}", scenario.name);
        for (_, outcome) in comparison.outcomes() {
            check_plain_text(&scenario.name, &outcome.news);
        }
        assert!(missed.is_empty(), "{}: {missed:?}", scenario.name);
    }
}

/// No UID, path, kind of evidence, rule of the checker or Debug text; and no violation is shown twice.
fn check_plain_text(scenario: &str, news: &[News]) {
    const NOT_PLAIN: [&str; 13] = [
        "/api",
        "default/",
        "replica-0/",
        "kcm",
        "VIOLATION",
        "ProvedBefore",
        "NodeGone",
        "PowerOff",
        "{ ",
        "Some(",
        "None",
        "fault:",
        "0 s:",
    ];
    assert!(news.len() > 10, "{scenario}: {news:?}");
    let mut broken = BTreeSet::new();
    for News { tone, text, .. } in news {
        assert!(NOT_PLAIN.iter().all(|word| !text.contains(word)), "{scenario}: {text}");
        let uid = |word: &str| word.len() == 8 && word.chars().all(|letter| letter.is_ascii_hexdigit());
        assert!(!text.split(|at: char| !at.is_alphanumeric()).any(uid), "{scenario}: {text}");
        assert!(*tone != Tone::Broken || broken.insert(text), "{scenario}: told twice: {text}");
    }
}
