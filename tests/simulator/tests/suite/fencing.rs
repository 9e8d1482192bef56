//! Fencing in the simulated cluster: the shipped controller and authority, pod-safety's own kinds, and devices that
//! work, fail and report falsely. Many seeds of them are in `campaign`, strikes at each of their writes in `perturbed`.

use pod_safety_simulator::campaign::{Extras, Fault, Fencing, Keeper, Lack, Malfunction, OddKubelet, Plan};
use pod_safety_simulator::world::Outcome;

use crate::runs::{self, seconds_of_lines, well};

/// When faults begin, in seconds.
pub(crate) const BEGIN: u64 = 40;
/// From the cut to the first attempt: the node is marked as lost, then its policy waits a little longer.
const FOUND: u64 = 70;
/// The longest fault of a plan.
pub(crate) const LONG: u64 = 340;

const STRICT: Fencing = Fencing::STRICT;
/// No device reports which machine it reaches, and the policy does not require it.
pub(crate) const BLIND: Fencing = Fencing { tells: false, required: false, ..STRICT };

pub(crate) fn plan(fencing: Fencing, faults: Vec<(u64, Fault)>) -> Plan {
    let with = Extras { taints: true, nodes: Keeper::Ours, fencing: Some(fencing), ..Extras::default() };
    Plan { heal_at: 400, with, ..runs::plan(faults) }
}

/// `node-0` is cut off, and its device fails so from before the first attempt.
fn cut(fencing: Fencing, seconds: u64, how: Option<Malfunction>) -> Plan {
    let fails = how.map(|how| (BEGIN - 10, Fault::Malfunction { node: 0, how, seconds: LONG }));
    let cut = (BEGIN, Fault::CutNode { node: 0, seconds });
    plan(fencing, fails.into_iter().chain([cut]).collect())
}

/// How often the probes with this prefix were hit.
pub(crate) fn seen(outcome: &Outcome, probe: &str) -> u64 {
    outcome.probes.iter().filter(|(name, _)| name.starts_with(probe)).map(|(_, count)| count).sum()
}

const RELEASED: &[&str] = &["marked terminated by replica", "on evidence PowerOff"];
const LIED: &str = "limit: a device lied of a machine that ran";

#[test]
fn a_node_that_is_cut_off_is_switched_off_its_pods_are_released_and_it_comes_back() {
    let outcome = well(&cut(STRICT, LONG, None));
    let order = ["bmc-0 switches node-0 off", "writes the evidence node-0", "adds the out-of-service taint to node-0"]
        .into_iter()
        .chain([
            "marked terminated by replica",
            "bmc-0 switches node-0 on",
            "takes the out-of-service taint",
            "is Done",
        ]);
    let mut last = 0;
    for words in order {
        let at = seconds_of_lines(&outcome, &[words, ""]);
        let first = at.iter().copied().find(|at| *at >= last.max(BEGIN));
        assert!(first.is_some(), "{words:?} after {last}: {:#?}", outcome.timeline);
        last = first.unwrap_or_default();
    }
    let off = seconds_of_lines(&outcome, &["bmc-0 switches node-0 off"]);
    assert!(off.len() == 1 && off[0] <= BEGIN + FOUND, "{off:?}");
}

#[test]
fn a_node_whose_device_cannot_be_used_is_never_released() {
    for how in [Malfunction::Unreachable, Malfunction::Silent, Malfunction::AcksOnly] {
        let outcome = well(&cut(STRICT, LONG, Some(how)));
        assert!(seen(&outcome, "a device was told off") > 1, "{how:?}: it is tried again");
        assert_eq!(seen(&outcome, "evidence was written"), 0, "{how:?}");
        assert!(seconds_of_lines(&outcome, RELEASED).is_empty(), "{how:?}");
    }
}

/// A person works on the machine: they paused fencing, or deleted the policy, before the first attempt.
#[test]
fn no_device_is_switched_while_fencing_is_paused_and_the_incident_continues_after() {
    let (begin, seconds) = (BEGIN + 5, FOUND + 100);
    for fault in [Fault::PauseFencing { node: 0, seconds }, Fault::RemovePolicy { node: 0, seconds }] {
        let mut plan = cut(STRICT, LONG, None);
        plan.faults.push((begin, fault.clone()));
        let outcome = well(&plan);
        let off = seconds_of_lines(&outcome, &["bmc-0 switches node-0 off"]);
        assert!(off.len() == 1 && off[0] >= begin + seconds, "{fault}: {off:?}");
        assert_eq!(seen(&outcome, "an incident became Done"), 1, "{fault}");
    }
}

/// As on Windows: no evidence could be about this boot and no other.
#[test]
fn a_node_whose_boot_id_is_no_uuid_is_not_fenced() {
    for lacks in [Lack::BootUuid, Lack::BootId] {
        let mut plan = cut(STRICT, LONG, None);
        plan.with.odd_kubelet = Some(OddKubelet { node: 0, lacks });
        let outcome = well(&plan);
        assert_eq!(seen(&outcome, "a device was told"), 0, "{lacks:?}: {:#?}", outcome.timeline);
        assert!(seconds_of_lines(&outcome, RELEASED).is_empty(), "{lacks:?}");
    }
}

#[test]
fn status_checks_prove_the_order_of_a_device_that_did_not_answer() {
    let outcome = well(&cut(BLIND, LONG, Some(Malfunction::DoneButSilent)));
    assert_eq!(seconds_of_lines(&outcome, &["bmc-0 switches node-0 off"]).len(), 1, "{:#?}", outcome.timeline);
    assert_eq!(seen(&outcome, "evidence was written"), 1);
}

#[test]
fn a_second_level_is_tried_when_the_first_one_fails() {
    let outcome = well(&cut(Fencing { backup: true, ..STRICT }, LONG, Some(Malfunction::Unreachable)));
    assert_eq!(seconds_of_lines(&outcome, &["pdu-0 switches node-0 off"]).len(), 1, "{:#?}", outcome.timeline);
    assert_eq!(seen(&outcome, "an incident became Done"), 1);
}

/// Five minutes late, on a machine that was proved off and switched on meanwhile: it goes off once more, and the
/// incident switches it on once more.
#[test]
fn an_order_that_takes_effect_minutes_late_ends_no_process_twice() {
    let fails = Fault::Malfunction { node: 0, how: Malfunction::LateAfterFailure(120), seconds: 75 };
    let cut = (BEGIN, Fault::CutNode { node: 0, seconds: 100 });
    let outcome = well(&plan(STRICT, vec![(BEGIN - 10, fails), cut]));
    assert!(seen(&outcome, "a device acted after it had said that it failed") > 0, "{:#?}", outcome.timeline);
}

#[test]
fn a_device_that_reports_another_machine_switches_none_off() {
    for fencing in [STRICT, Fencing { required: false, ..STRICT }] {
        let outcome = well(&cut(fencing, LONG, Some(Malfunction::WrongMachine(1))));
        assert!(seconds_of_lines(&outcome, &["bmc-0 switches"]).is_empty(), "{:#?}", outcome.timeline);
        assert_eq!(seen(&outcome, "evidence was written"), 0);
    }
}

/// A device that does not report which machine it reaches proves nothing where that is required.
#[test]
fn with_identity_check_required_a_device_without_identity_releases_no_pod() {
    for how in [None, Some(Malfunction::WrongMachine(1))] {
        let outcome = well(&cut(Fencing { required: true, ..BLIND }, LONG, how));
        assert_eq!(seen(&outcome, "evidence was written"), 0, "{how:?}");
        assert!(seconds_of_lines(&outcome, RELEASED).is_empty(), "{how:?}");
    }
}

/// Not a promise but a limit, as docs/proof.md describes: a device that reports off for a machine that runs cannot be
/// detected while its kubelet does not report. Once it reports, everything is withdrawn: no release, no evidence, no
/// trust, no taint.
#[test]
fn limit_a_false_off_report_is_detected_when_the_kubelet_reports() {
    for (fencing, how) in
        [(STRICT, Malfunction::StaleOff), (BLIND, Malfunction::StaleOff), (BLIND, Malfunction::WrongMachine(1))]
    {
        let outcome = well(&cut(fencing, 150, Some(how)));
        assert!(seen(&outcome, LIED) > 0, "{how:?}: {:#?}", outcome.timeline);
        let doubted = seconds_of_lines(&outcome, &["takes the out-of-service taint from node-0"]);
        let reports_at = BEGIN + 150;
        let within = reports_at..=reports_at + 60;
        assert!(doubted.len() == 1 && within.contains(&doubted[0]), "{how:?}: {doubted:?}");
        let last = seconds_of_lines(&outcome, RELEASED);
        assert!(!last.is_empty(), "{how:?}: {:#?}", outcome.timeline);
        assert!(last.iter().all(|at| *at < reports_at), "{how:?}: {last:?}");
        assert!(seen(&outcome, "our taint was contradicted") > 0, "{how:?}");
    }
}

/// The machine runs, and its kubelet is dead.
fn lies(fencing: Fencing) -> Plan {
    let fails = Fault::Malfunction { node: 0, how: Malfunction::StaleOff, seconds: LONG };
    plan(fencing, vec![(BEGIN - 10, fails), (BEGIN, Fault::KillKubelet { node: 0, seconds: 250 })])
}

/// The limit above, with a second fact: a machine that runs answers at the port of its kubelet, even if the kubelet is
/// dead.
#[test]
fn with_a_second_fact_required_a_false_off_report_of_an_answering_machine_releases_no_pod() {
    let alone = well(&lies(BLIND));
    assert!(seen(&alone, LIED) > 0, "{:#?}", alone.timeline);
    let outcome = well(&lies(Fencing { corroborated: true, ..BLIND }));
    assert!(seen(&outcome, "something answered at the port of a kubelet") > 0, "{:#?}", outcome.timeline);
    assert_eq!((seen(&outcome, LIED), seen(&outcome, "evidence was written")), (0, 0), "{:#?}", outcome.timeline);
    assert!(seconds_of_lines(&outcome, RELEASED).is_empty(), "{:#?}", outcome.timeline);
}

/// Nor does the second fact prevent the release of a machine that is off.
#[test]
fn with_a_second_fact_required_pods_of_a_machine_that_is_off_are_released() {
    let fencing = Fencing { corroborated: true, ..STRICT };
    let outcome = well(&plan(fencing, vec![(BEGIN, Fault::PowerOff { node: 0, back: None })]));
    assert!(seen(&outcome, "released on a second fact, too") > 0, "{:#?}", outcome.timeline);
    assert!(!seconds_of_lines(&outcome, RELEASED).is_empty());
}
