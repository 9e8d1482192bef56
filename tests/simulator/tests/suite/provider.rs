//! A cloud that switches its instances, and behaves as documented: it is stale, slow, busy, or lost, and other clients
//! use it too. Many seeds of such clouds are in `campaign`.

use pod_safety_simulator::campaign::{Fault, Fencing, Malfunction, Plan, Plant};
use pod_safety_simulator::checker::Invariant;
use pod_safety_simulator::world::{Subject, run};

use crate::fencing::{BEGIN, BLIND, LONG, plan, seen};
use crate::runs::{seconds_of_lines, well};
use crate::shipped;

/// Its copies are stale by so many seconds at most.
const fn behind(seconds: u32) -> Fencing {
    Fencing { behind_seconds: Some(seconds), ..BLIND }
}

/// The node is lost, and its provider has this malfunction.
fn lost(fencing: Fencing, how: Option<Malfunction>) -> Plan {
    let fails = how.map(|how| (BEGIN - 10, Fault::Malfunction { node: 0, how, seconds: LONG }));
    let cut = (BEGIN, Fault::CutNode { node: 0, seconds: LONG });
    Plan { heal_at: 660, ..plan(fencing, fails.into_iter().chain([cut]).collect()) }
}

#[test]
fn an_instance_is_stopped_its_pods_are_released_and_it_is_started() {
    let outcome = well(&lost(behind(5), None));
    for words in ["ec2-0 switches node-0 off", "writes the evidence node-0", "ec2-0 switches node-0 on", "is Done"] {
        assert!(!seconds_of_lines(&outcome, &[words]).is_empty(), "{words}: {:#?}", outcome.timeline);
    }
}

#[test]
fn an_instance_that_another_actor_terminates_is_evidence_and_is_never_started() {
    let mut gone = lost(behind(60), None);
    gone.faults.push((BEGIN + 20, Fault::Terminate { node: 0 }));
    let outcome = well(&gone);
    assert!(seen(&outcome, "marked terminated on PowerOff") > 0, "{:#?}", outcome.timeline);
    assert!(seconds_of_lines(&outcome, &["ec2-0 switches node-0"]).is_empty(), "{:#?}", outcome.timeline);
}

#[test]
fn an_instance_that_takes_minutes_to_stop_is_no_evidence_before_it_is_stopped() {
    let outcome = well(&lost(behind(60), Some(Malfunction::StopsSlowly(200))));
    let (off, proved) = (
        seconds_of_lines(&outcome, &["ec2-0 switches node-0 off"]),
        seconds_of_lines(&outcome, &["writes the evidence node-0"]),
    );
    assert!(off.len() == 1 && proved.iter().all(|at| *at > off[0]), "{off:?} {proved:?}: {:#?}", outcome.timeline);
}

/// While its region is lost an answer may find no instance. That proves nothing.
#[test]
fn a_lost_region_and_throttled_requests_are_no_evidence() {
    let outcome = well(&lost(behind(5), Some(Malfunction::RegionLost)));
    assert!(seen(&outcome, "the region of a provider was lost") > 2);
    let proved = seconds_of_lines(&outcome, &["writes the evidence node-0"]);
    assert!(proved.iter().all(|at| *at >= BEGIN - 10 + LONG), "{proved:?}");
    let outcome = well(&lost(behind(5), Some(Malfunction::Throttles)));
    assert!(seen(&outcome, "a provider limited the rate of requests") > 2);
}

/// An instance that was stopped and started a moment ago, is lost, and takes long to stop: a copy may still show the
/// earlier stop.
fn stopped_before(seed: u64) -> Plan {
    let slow = Fault::Malfunction { node: 0, how: Malfunction::StopsSlowly(240), seconds: LONG };
    let faults = vec![
        (BEGIN, Fault::PowerOff { node: 0, back: Some(40) }),
        (BEGIN + 70, slow),
        (BEGIN + 80, Fault::CutNode { node: 0, seconds: LONG }),
    ];
    Plan { seed, heal_at: 660, ..plan(behind(300), faults) }
}

/// Amazon advises to ask again for up to five minutes. Two answers about the earlier stop were taken for the present
/// one.
#[test]
fn bug_a_stale_answer_about_the_boot_before_counted_for_the_present_one() {
    let believes = Subject::Shipped(shipped::launch, Some(Plant::BelievesCopies));
    let mut guilty = 0;
    for plan in (38..46).map(stopped_before) {
        guilty += u32::from(run(&plan, believes).broke(Invariant::Evidence));
        well(&plan);
    }
    assert!(guilty > 0, "no copy was behind");
}
