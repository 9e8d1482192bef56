//! Histories that break the rules of fencing.

use std::collections::BTreeMap;

use pod_safety_shared::transport::Act;
use serde_json::json;

use super::known::{Evidence, Incarnation, Incident, Leaving, Node};
use super::*;
use crate::checker::{Assumption, Checker, Promise, tests};

fn state(checker: &Checker) -> parking_lot::MutexGuard<'_, State> {
    checker.state.lock()
}

/// Runs `work` inside a simulation.
fn inside(work: impl FnOnce(&Checker)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let promise = Promise { quarantine: VALID_FOR, terminated_threshold: 1, renew_deadline: Duration::from_secs(10) };
    runtime.unwrap().block_on(async move { work(&Checker::new(promise)) });
}

fn touched() -> Touched {
    Touched { caller: "replica-0.1".to_owned(), device: "bmc-0".to_owned(), node: "node-0".to_owned() }
}

fn incident(attempts: &Value) -> Value {
    json!({ "metadata": { "name": "f" }, "spec": { "node": { "name": "node-0", "uid": "u", "bootID": "b" } },
        "status": { "phase": "Fencing", "attempts": attempts } })
}

fn change(kind: &str, name: &str, after: Value) -> ObservedChange {
    tests::change(kind, name, None, Some(after))
}

fn incarnation() -> Incarnation {
    ("node-0".to_owned(), "u".to_owned(), "b".to_owned())
}

fn not_ready() -> BTreeMap<String, Node> {
    [("node-0".to_owned(), Node { incarnation: incarnation(), ready: false, taint: None })].into()
}

fn attempt(id: i64, act: &str, outcome: Option<&str>) -> Value {
    let mut attempt =
        json!({ "id": id, "act": act, "devices": [{ "namespace": "n", "name": "bmc-0" }], "withinSeconds": 20 });
    if let Some(outcome) = outcome {
        attempt["outcome"] = outcome.into();
    }
    attempt
}

#[test]
fn a_device_gets_the_recorded_order_and_no_other() {
    inside(|checker| {
        let broken = |act| {
            checker.record_order(&touched(), act);
            state(checker).broken.remove(&Invariant::Fence).unwrap_or_default()
        };
        assert_eq!(broken(Act::Off), 1, "nothing is written");
        let learn = |attempts: Value| {
            state(checker).fences.observe(Duration::ZERO, &change("NodeFence", "f", incident(&attempts)));
        };
        learn(json!([attempt(1, "off", None)]));
        assert_eq!(broken(Act::Off), 0);
        assert_eq!(broken(Act::On), 1, "off is not on");
        learn(json!([attempt(1, "off", Some("done"))]));
        assert_eq!(broken(Act::Off), 1, "it is over");
    });
}

/// A person deleted the NodeFence of a boot and requested another one: its first attempt counted as the old one, which
/// was over.
#[test]
fn bug_the_attempt_of_a_nodefence_that_was_created_again_counted_as_the_old_one() {
    inside(|checker| {
        let learn = |uid: &str, outcome: Option<&str>| {
            let mut fence = incident(&json!([attempt(1, "off", outcome)]));
            fence["metadata"]["uid"] = uid.into();
            state(checker).fences.observe(Duration::ZERO, &change("NodeFence", "f", fence));
        };
        learn("first", Some("done"));
        state(checker).fences.observe(Duration::ZERO, &tests::change("NodeFence", "f", Some(json!({})), None));
        let broken = || {
            checker.record_order(&touched(), Act::Off);
            state(checker).broken.remove(&Invariant::Fence).unwrap_or_default()
        };
        assert_eq!(broken(), 1, "nothing is written");
        learn("second", None);
        assert_eq!(broken(), 0);
    });
}

/// An order that was decided before the pause may still be on its way.
#[test]
fn s10_a_device_gets_no_order_while_fencing_is_paused() {
    let broken = |pause: ObservedChange, resume: Option<ObservedChange>, after: u64| {
        let mut violations = 0;
        inside(|checker| {
            let mut state = state(checker);
            let at = Duration::from_secs(after);
            state.fences.observe(Duration::ZERO, &pause);
            resume.iter().for_each(|resume| state.fences.observe(at, resume));
            state.check_pause(at, "an order", "node-0");
            violations = state.broken.get(&Invariant::Fence).copied().unwrap_or_default();
        });
        violations
    };
    let node = |annotations: Value| {
        change("Node", "node-0", json!({ "metadata": { "name": "node-0", "annotations": annotations } }))
    };
    let policy = |after: Option<Value>| tests::change("FencePolicy", "node-0", Some(json!({})), after);
    let paused = || node(json!({ "pod-safety.dev/pause-fencing": "rack b moves" }));
    assert_eq!([25, 26].map(|after| broken(paused(), None, after)), [0, 1]);
    assert_eq!([25, 26].map(|after| broken(policy(None), None, after)), [0, 1]);
    assert_eq!(broken(paused(), Some(node(json!({}))), 26), 0, "it was resumed");
    assert_eq!(broken(policy(None), Some(policy(Some(json!({})))), 26), 0, "there is one again");
}

#[test]
fn an_attempt_waits_for_the_one_before() {
    inside(|checker| {
        let open = incident(&json!([attempt(1, "off", None)]));
        state(checker).fences.observe(Duration::ZERO, &change("NodeFence", "f", open.clone()));
        let next = incident(&json!([attempt(1, "off", None), attempt(2, "off", None)]));
        let broken = |at: u64| {
            let mut state = state(checker);
            state.check_phase(Duration::from_secs(at), "replica-0.1", "f", Some(&open), &next);
            state.broken.remove(&Invariant::Fence).unwrap_or_default()
        };
        assert_eq!(broken(19), 1);
        assert_eq!(broken(20), 0);
    });
}

/// The kubelet reads its Node at these seconds.
fn reads(state: &mut State, seconds: impl IntoIterator<Item = u64>) {
    let request = ApiRequest::new("node-0", http::Method::GET, "/api/v1/nodes/node-0");
    seconds.into_iter().for_each(|second| state.record_report(Duration::from_secs(second), &request));
}

fn leaving(since: u64) -> BTreeMap<String, Leaving> {
    let pod = Leaving { name: "a".to_owned(), node: "node-0".to_owned(), since: Duration::from_secs(since) };
    [("uid-a".to_owned(), pod)].into()
}

fn status_check(at: u64, power: Power, identity: Identity) -> StatusCheck {
    StatusCheck { at: Duration::from_secs(at), device: "bmc-0".to_owned(), power, identity, lied: false, reached: true }
}

/// Guarded seed 22694: a person switched the machine on, and it was cut off.
#[test]
fn pods_of_a_fenced_node_are_released_unless_its_device_reports_on_again() {
    inside(|checker| {
        let fenced = Incident {
            incarnation: incarnation(),
            phase: "Fenced".to_owned(),
            since: Duration::from_secs(100),
            held: false,
            waits_for_others: None,
        };
        let late = |looks: Vec<StatusCheck>| {
            let mut state = state(checker);
            let fences = &mut state.fences;
            fences.nodes = not_ready();
            fences.leaving = leaving(0);
            let proof = Evidence {
                confirmation: None,
                incarnation: incarnation(),
                by_status_checks: true,
                by_controller: false,
                corroborated: false,
                devices: [].into(),
                created: Duration::from_secs(99),
                lease: None,
                invalid: None,
            };
            fences.evidence = [("e".to_owned(), proof)].into();
            fences.checks = [(("replica-0.1".to_owned(), "node-0".to_owned()), looks)].into();
            state.stays(Duration::from_secs(400), Duration::ZERO, &fenced, true)
        };
        let before = || status_check(90, Power::On, Identity::Match);
        assert!(late(vec![before()]).is_some_and(|told| told.contains("a is not released")));
        assert_eq!(late(vec![before(), status_check(150, Power::On, Identity::Match)]), None);
    });
}

#[test]
fn evidence_needs_two_separate_status_checks_of_the_right_machine() {
    inside(|checker| {
        let stranger = || Identity::Mismatch { found: "node-1".to_owned() };
        let off = Power::Off;
        for (looks, strict, wanted) in [
            (vec![], false, false),
            (vec![status_check(10, off, Identity::Unknown)], false, false),
            (vec![status_check(10, off, Identity::Unknown), status_check(14, off, Identity::Unknown)], false, false),
            (vec![status_check(10, off, Identity::Unknown), status_check(15, off, Identity::Unknown)], false, true),
            (vec![status_check(10, off, Identity::Unknown), status_check(15, off, Identity::Unknown)], true, false),
            (vec![status_check(10, off, Identity::Match), status_check(15, off, Identity::Match)], true, true),
            (vec![status_check(10, off, Identity::Match), status_check(15, off, stranger())], false, false),
            (vec![status_check(10, Power::On, Identity::Match), status_check(15, off, Identity::Match)], false, false),
        ] {
            let mut state = state(checker);
            let description = format!("{looks:?}");
            state.fences.required = strict.then(|| "bmc-0".to_owned()).into_iter().collect();
            state.fences.checks = [(("replica-0.1".to_owned(), "node-0".to_owned()), looks)].into();
            let is_off = state.was_off_twice("replica-0.1", "node-0", ("bmc-0", APART), Duration::from_secs(16));
            assert_eq!(is_off, wanted, "{description}");
        }
    });
}

fn node_evidence(lease: &str) -> Value {
    json!({ "metadata": { "name": "e" }, "spec": { "kind": "PowerOff", "leaseRenewed": lease,
        "node": { "name": "node-0", "uid": "u", "bootID": "b" },
        "samples": [{ "device": { "name": "bmc-0" } }] } })
}

/// Not checked before: evidence by a process that never read the Lease counted as proved.
#[test]
fn bug_evidence_needs_a_lease_read_after_the_status_checks() {
    inside(|checker| {
        let key = || ("replica-0.1".to_owned(), "node-0".to_owned());
        let renewed = "2026-11-21T00:00:10Z";
        for (read, proved) in [(None, false), (Some(9), false), (Some(14), false), (Some(15), true), (Some(100), true)]
        {
            let mut state = state(checker);
            let checks = [10, 15].map(|at| status_check(at, Power::Off, Identity::Match));
            state.fences.checks = [(key(), checks.to_vec())].into();
            state.acts.lease_reads = read.map(|at| (key(), vec![Duration::from_secs(at)])).into_iter().collect();
            state.fences.renewals = [("node-0".to_owned(), vec![(Duration::ZERO, known::time_of(renewed))])].into();
            let now = Duration::from_secs(read.unwrap_or(15) + 1);
            let wrong = state.evidence_defect(now, "replica-0.1", &node_evidence(renewed));
            assert_eq!(wrong.is_none(), proved, "read at {read:?}: {wrong:?}");
        }
    });
}

#[test]
fn l2_evidence_is_used_immediately() {
    inside(|checker| {
        let mut state = state(checker);
        state.fences.nodes = not_ready();
        let evidence = change("FenceEvidence", "e", node_evidence("2026-11-21T00:00:10Z"));
        state.fences.observe(Duration::from_secs(99), &evidence);
        state.fences.leaving = leaving(10);
        let late = |state: &State, now: u64, calm: u64| {
            state.unused(Duration::from_secs(now), Duration::from_secs(calm)).len()
        };
        assert_eq!([late(&state, 114, 0), late(&state, 115, 0)], [0, 1]);
        assert_eq!(late(&state, 115, 101), 0, "there was trouble");
        state.fences.leaving = leaving(102);
        assert_eq!(late(&state, 115, 0), 0, "it was asked to end later");
    });
}

/// A confirmation, given at 100 s for a minute; the Lease as it was then and as it is now; the pod is released at
/// `sent`.
#[derive(Clone, Copy)]
struct ConfirmationCase {
    wrong: bool,
    runs: bool,
    lease: &'static str,
    sent: u64,
    jumped: bool,
}

#[test]
fn a_confirmation_releases_while_valid_and_the_kubelet_is_unreachable() {
    const THEN: &str = "2026-11-21T00:00:10Z";
    let right = ConfirmationCase { wrong: false, runs: false, lease: THEN, sent: 150, jumped: false };
    for (what, said, expected) in [
        ("in its time", right, Ok(0)),
        ("when it has expired", ConfirmationCase { sent: 163, ..right }, Err("had expired")),
        ("when it has expired, by another clock", ConfirmationCase { sent: 163, jumped: true, ..right }, Ok(0)),
        ("after a renewal", ConfirmationCase { lease: "2026-11-21T00:00:20Z", ..right }, Err("was renewed")),
        ("of what runs, of another machine", ConfirmationCase { runs: true, ..right }, Err("was right")),
        ("wrongly", ConfirmationCase { runs: true, wrong: true, ..right }, Ok(1)),
    ] {
        inside(|checker| {
            checker.record_confirmation("node-0", said.wrong);
            if said.runs {
                checker.process_starts("default/a", "uid-a", &"node-0".into(), 1);
            }
            let mut state = state(checker);
            // The kubelet can report its present boot.
            reads(&mut state, (0..150).step_by(10));
            state.clocks_jumped = said.jumped;
            state.fences.nodes = not_ready();
            let spec = json!({ "kind": "Asserted", "leaseRenewed": THEN, "validSeconds": 60,
                "node": { "name": "node-0", "uid": "u", "bootID": "b" } });
            let evidence = json!({ "metadata": { "name": "e" }, "spec": spec });
            state.fences.observe(Duration::from_secs(100), &change("FenceEvidence", "e", evidence));
            let sent = Duration::from_secs(said.sent);
            let key = ("replica-0.1".to_owned(), "node-0".to_owned());
            state.acts.lease_reads = [(key, vec![sent])].into();
            state.fences.renewals = [("node-0".to_owned(), vec![(Duration::ZERO, known::time_of(said.lease))])].into();
            let pod = json!({ "metadata": { "uid": "uid-a" }, "spec": { "nodeName": "node-0" } });
            let result = state.check_release("replica-0.1", &pod, sent).map(|()| state.fences.deceived.len());
            match (result, expected) {
                (Ok(excused), Ok(wanted)) => assert_eq!(excused, wanted, "{what}"),
                (Err(why), Err(wanted)) => assert!(why.contains(wanted), "{what}: {why}"),
                (result, expected) => panic!("released {what}: {result:?}, and not {expected:?}"),
            }
        });
    }
}

/// A device that cannot answer is no excuse where a person has confirmed the node.
#[test]
fn l2_a_confirmation_is_used_though_the_device_fails() {
    inside(|checker| {
        checker.record_confirmation("node-0", false);
        let mut state = state(checker);
        state.fences.nodes = not_ready();
        state.fences.failing = [("node-0".to_owned(), Duration::from_secs(900))].into();
        state.fences.leaving = leaving(0);
        let mut learn = |at: u64, kind: &str, valid: Option<u64>| {
            let mut evidence = node_evidence("2026-11-21T00:00:10Z");
            (evidence["spec"]["kind"], evidence["spec"]["validSeconds"]) = (kind.into(), json!(valid));
            state.fences.observe(Duration::from_secs(at), &change("FenceEvidence", kind, evidence));
            let late = |now: u64| state.unused(Duration::from_secs(now), Duration::ZERO).len();
            [late(at + 15), late(at + 16), late(at + 61)]
        };
        assert_eq!(learn(100, "PowerOff", None), [0, 0, 0], "its device fails");
        assert_eq!(learn(200, "Asserted", Some(60)), [0, 1, 0], "then it expires");
    });
}

fn asked_to_end() -> ObservedChange {
    let metadata = json!({ "name": "a", "uid": "uid-a", "generation": 2, "deletionGracePeriodSeconds": 30,
        "deletionTimestamp": "t" });
    change("Pod", "a", json!({ "metadata": metadata, "spec": { "nodeName": "node-0" }, "status": {} }))
}

/// An assumption that was broken for another node, or before the pod was deleted gracefully, excuses nothing.
#[test]
fn a_connected_kubelet_is_excused_by_faults_since_the_deletion() {
    let at = Duration::from_secs;
    for (what, node, from, until, excused) in [
        ("since", "node-0", 110, 120, true),
        ("while it was asked", "node-0", 90, 101, true),
        ("before", "node-0", 80, 99, false),
        ("after the release", "node-0", 141, 150, false),
        ("for another node", "node-1", 110, 120, false),
    ] {
        inside(|checker| {
            let mut state = state(checker);
            state.fences.observe(at(100), &asked_to_end());
            reads(&mut state, [90, 104, 118, 132, 139]);
            assert_eq!(state.excuse_of_release(at(140), "uid-a", "node-0"), None, "{what}");
            state.record_broken(Assumption::WatchDelivers, Some(node), at(from), at(until));
            assert_eq!(state.excuse_of_release(at(140), "uid-a", "node-0").is_some(), excused, "{what}");
            assert!(state.excuse_of_release(at(155), "uid-a", "node-0").is_some(), "nobody could hear it");
            reads(&mut state, [171]);
            let back = state.excuse_of_release(at(172), "uid-a", "node-0");
            assert!(back.is_some(), "it is back since the reads of that release");
        });
    }
}

/// The kubelet is cut off when the pod is deleted gracefully, and back at 125 s.
#[test]
fn a_kubelet_back_within_the_quarantine_counts_only_if_it_reports() {
    let at = Duration::from_secs;
    let excused = |reports_at: Option<u64>, released_at: u64| {
        let mut excused = false;
        inside(|checker| {
            let mut state = state(checker);
            state.fences.observe(at(100), &asked_to_end());
            reads(&mut state, [125, 139, 153, 166]);
            let report = ApiRequest::new("node-0", http::Method::PATCH, "/x");
            reports_at.iter().for_each(|second| state.observe(at(*second), &report, &asked_to_end()));
            excused = state.excuse_of_release(at(released_at), "uid-a", "node-0").is_some();
        });
        excused
    };
    assert_eq!([excused(None, 166), excused(None, 167)], [true, false]);
    assert_eq!([excused(Some(124), 166), excused(Some(126), 166)], [true, false]);
}

/// Seed 7691: a pod was checked, its Node was deleted, and its release counted as one because of the missing Node.
#[test]
fn a_node_read_counts_for_two_seconds_after_the_deletion() {
    inside(|checker| {
        let mut state = state(checker);
        state.fences.nodes = not_ready();
        let at = Duration::from_secs(100);
        let gone = ObservedChange { after: None, ..change("Node", "node-0", json!({})) };
        state.fences.observe(at, &gone);
        assert_eq!(state.fences.gone_lately("node-0", at + VALID_FOR - Duration::from_millis(1)), Some(incarnation()));
        assert_eq!(state.fences.gone_lately("node-0", at + VALID_FOR), None);
        assert_eq!(state.fences.gone_lately("node-1", at), None);
    });
}
