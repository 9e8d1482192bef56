//! The built-in scenarios, each as a plan without chance in it, and the window in which it is perturbed.

use std::time::Duration;

use super::fencing::{Fencing, Malfunction};
use super::perturb::second;
use super::plan::{Extras, Fault, Keeper, Limit, Plan};
use super::volumes::Guarding;

/// One scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What happens.
    pub plan: Plan,
    /// The start of the perturbation: shortly before the first fault.
    pub from: Duration,
    /// The end of the perturbation: shortly before the end of the faults.
    pub until: Duration,
}

/// When faults begin: all pods run by then.
const BEGIN: u64 = 40;
/// When the faults end.
const HEAL: u64 = 120;

/// All scenarios.
#[must_use]
pub fn scenarios() -> Vec<Scenario> {
    let lost = || (BEGIN, Fault::PowerOff { node: 0, back: None });
    let deleted = |at: u64| (at, Fault::DeleteNode { node: 0 });
    let later = BEGIN + 2;
    let mut all = vec![
        // Without a fault of pod-safety: jobs end, and a pod that never had a node is deleted.
        Scenario { from: Duration::ZERO, until: second(60), ..scenario("terminated and unscheduled pods", vec![]) },
        scenario("orphans of a dead node", vec![lost(), deleted(later)]),
        scenario("a Node is deleted while its kubelet lives", vec![deleted(later)]),
        scenario(
            "a node comes back within the quarantine",
            vec![(BEGIN, Fault::PowerOff { node: 0, back: Some(10) }), deleted(later)],
        ),
        scenario("out-of-service taint", vec![lost(), (later, Fault::Taint { node: 0 })]),
        scenario(
            "the leader stops within the quarantine",
            vec![lost(), deleted(later), (later + 20, Fault::StopReplica { replica: 0, seconds: 1 })],
        ),
        scenario(
            "the leader is paused and wakes",
            vec![lost(), deleted(later), (later + 10, Fault::PauseReplica { replica: 0, seconds: 60 })],
        ),
        scenario(
            "a node is drained under a budget",
            vec![
                (17, deployed()),
                (BEGIN, Fault::Drain { node: 0, careful: true, seconds: 50 }),
                (later, Fault::Scale { workload: 0, replicas: 4 }),
            ],
        ),
        scenario(
            "pods that ended are replaced by name",
            vec![
                (BEGIN, Fault::Evict { pod: 0 }),
                (BEGIN, Fault::Evict { pod: 1 }),
                (later, Fault::LagServer { server: 0, seconds: 40 }),
            ],
        ),
    ];
    all.extend(of_taints());
    all
}

/// Adds the taint for which the toleration times of the pods differ most.
const fn tainted(node: usize) -> Fault {
    Fault::AddTaint { node, key: 0, stamped: true }
}

/// Taints, and faults while the toleration times of pods run.
fn of_taints() -> Vec<Scenario> {
    let both = |at: u64, fault: fn(usize) -> Fault| (0..2).map(move |node| (at, fault(node)));
    let lifted = |node: usize| Fault::LiftTaint { node, key: 0 };
    let later = BEGIN + 2;
    let scenarios = vec![
        // The node is unreachable at 92 s, tainted then, and back before the longest time is over.
        scenario(
            "a node is cut off and its pods bear that for a while",
            vec![(BEGIN, Fault::CutNode { node: 0, seconds: 90 })],
        ),
        scenario(
            "tolerations change and a taint is lifted while times run",
            both(BEGIN, tainted)
                .chain([
                    (later, Fault::Tolerate { pod: 0, key: 0, seconds: Some(60) }),
                    (later + 2, Fault::Tolerate { pod: 3, key: 0, seconds: Some(8) }),
                ])
                .chain(both(BEGIN + 40, lifted))
                .collect(),
        ),
        scenario(
            "a pod is replaced by name while its time runs, and the leader stops",
            vec![
                (BEGIN, tainted(0)),
                (later, Fault::DeletePod { pod: 0 }),
                (later, Fault::DeletePod { pod: 3 }),
                (later + 8, Fault::StopReplica { replica: 0, seconds: 1 }),
            ],
        ),
    ];
    let with = |mut scenario: Scenario| {
        scenario.plan.with.taints = true;
        scenario.plan.pods = 4;
        scenario.plan.heal_at = HEAL + 30;
        scenario.until = second(HEAL + 29);
        scenario
    };
    scenarios.into_iter().map(with).collect()
}

/// Incidents of fencing, in the window from the first attempt to the recovery of the node: one without a fault, one in
/// which the device acts and does not answer while the process that called it dies, one in which the machine does not
/// go off at first.
#[must_use]
pub fn fenced() -> Vec<Scenario> {
    let cut = || (BEGIN, Fault::CutNode { node: 0, seconds: 90 });
    // The device is called fifty-five seconds after the cut, for twenty seconds.
    let dies = |replica| (BEGIN + 60, Fault::CrashReplica { replica, seconds: 1 });
    let fails = |how| (BEGIN, Fault::Malfunction { node: 0, how, seconds: 65 });
    let scenarios = vec![
        scenario("a node is fenced and comes back", vec![cut()]),
        scenario(
            "a device acts and does not answer, and whoever asked it dies",
            vec![fails(Malfunction::DoneButSilent), cut(), dies(0), dies(1)],
        ),
        scenario("a device acknowledges and does not act", vec![fails(Malfunction::AcksOnly), cut()]),
    ];
    let with = |mut scenario: Scenario| {
        scenario.plan.nodes = 3;
        scenario.plan.with =
            Extras { taints: true, nodes: Keeper::Ours, fencing: Some(Fencing::STRICT), ..Extras::default() };
        scenario.plan.heal_at = HEAL + 60;
        (scenario.from, scenario.until) = (second(BEGIN + 50), second(BEGIN + 95));
        scenario
    };
    scenarios.into_iter().map(with).collect()
}

/// Exclusive volumes: one that moves behind the gate while its first user ends late and its claim is created again, and
/// those of a node that is lost and fenced, without the gate, while people force delete pods and the attacher restarts.
#[must_use]
pub fn guarded() -> Vec<Scenario> {
    let stuck = |node| (BEGIN, Fault::StuckProcesses { node, seconds: 15 });
    let later = BEGIN + 1;
    let moves = (0..3).map(stuck).chain([
        (later, Fault::DeletePod { pod: 0 }),
        (later + 1, Fault::MakePod { pod: 0 }),
        (later + 1, Fault::MakeBrief { number: 0 }),
        (later + 2, Fault::RenewVolume { pod: 1, force: false }),
        (later + 8, Fault::DeletePod { pod: 1 }),
    ]);
    let lost = vec![
        (BEGIN, Fault::CutNode { node: 0, seconds: 100 }),
        (BEGIN + 45, Fault::ForceDelete { pod: 0 }),
        (BEGIN + 50, Fault::RestartAttacher),
    ];
    let strictly = Some(Fencing::STRICT);
    let with = |gate: bool, fencing: Option<Fencing>, from: u64, mut scenario: Scenario| {
        let guarding = Guarding { gate, ..Guarding::default() };
        scenario.plan.nodes = 3;
        scenario.plan.with = Extras::guarded(guarding, fencing);
        scenario.plan.heal_at = HEAL + 60;
        (scenario.from, scenario.until) = (second(from), second(from + 50));
        scenario
    };
    vec![
        with(true, None, BEGIN, scenario("volumes move and are made anew behind the gate", moves.collect())),
        with(false, strictly, BEGIN + 42, scenario("a node with volumes is lost and fenced", lost)),
    ]
}

/// A workload that may miss one of its pods.
const fn deployed() -> Fault {
    let limit = Limit::MaxUnavailable(1);
    Fault::Deploy { workload: 0, replicas: 3, keeps_names: true, start_up: 2, limit }
}

fn scenario(name: &'static str, faults: Vec<(u64, Fault)>) -> Scenario {
    let small = Plan { seed: 11, servers: 2, nodes: 2, replicas: 2, pods: 2, ..Plan::default() };
    let plan = Plan { lease_collected_after: 15, heal_at: HEAL, faults, ..small };
    Scenario { name, plan, from: second(BEGIN - 2), until: second(HEAL - 1) }
}
