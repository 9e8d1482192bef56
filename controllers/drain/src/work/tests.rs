//! The next step of a drain, by the answers so far.

use std::collections::BTreeMap;

use pod_safety_shared::client::ApiError;
use pod_safety_shared::model::Kind;
use pod_safety_shared::testing::objects::{budget, pod};
use pod_safety_shared::testing::{World, at};
use serde_json::json;

use super::*;
use crate::{Cluster, Consent, Needs, Plan, plan};

/// Two pods of one budget and one of none, on a node.
pub(crate) fn planned(names: &[(&str, &str)]) -> Plan {
    let world = World::listed();
    let mut needs = BTreeMap::new();
    for (name, app) in names {
        let pod = pod(name).on("n").ready("True").owned_by("apps/v1", "StatefulSet", app);
        world.apply(Kind::Pods, &pod.labels(json!({ "app": app })), at(0));
        needs.insert(Uid::new(&format!("uid-{name}")).unwrap(), Needs::default());
    }
    let status = json!({ "observedGeneration": 2, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2, "disruptionsAllowed": 1 });
    let budget = budget("b", "db", &json!({ "maxUnavailable": 1 })).set("/status", status);
    world.apply(Kind::Budgets, &budget, at(0));
    let guard = world.read();
    let cluster = Cluster {
        view: guard.view(),
        needs: &needs,
        capacities: &[],
        daemon_sets: &BTreeMap::new(),
        budgets_unread: false,
        now: at(60),
    };
    plan("n", &cluster, &Consent::default())
}

fn work() -> DrainProgress {
    let mut work = DrainProgress::default();
    work.add_rows(&planned(&[("db-0", "db"), ("db-1", "db"), ("web-0", "web")]).rows, at(0));
    work
}

fn due(work: &DrainProgress, seconds: u64) -> Vec<String> {
    work.due(at(seconds)).iter().map(|(_, pod)| pod.name.to_string()).collect()
}

fn answer(work: &mut DrainProgress, name: &str, answer: &Result<Evicted, NotEvicted>, seconds: u64) -> Option<String> {
    let index = work.items.iter().position(|item| &*item.pod.name == name).unwrap();
    work.record_answer(index, answer, at(seconds)).map(|line| line.text)
}

fn texts(lines: Vec<Line>) -> Vec<String> {
    lines.into_iter().map(|line| line.text).collect()
}

fn blocked(retry_after: Option<Duration>) -> Result<Evicted, NotEvicted> {
    Err(NotEvicted::Blocked { why: "b needs 1 and has 1".to_owned(), retry_after })
}

const ENDS: Result<Evicted, NotEvicted> = Ok(Evicted::Terminates { grace: 7 });

#[test]
fn one_pod_of_a_budget_is_tried_at_a_time() {
    let mut work = work();
    assert_eq!(due(&work, 0), ["db-0", "web-0"]);
    assert_eq!(answer(&mut work, "db-0", &ENDS, 0).unwrap(), "pod/ns/db-0 evicted, terminates within 7s");
    assert_eq!(due(&work, 0), ["web-0", "db-1"], "the budget may allow two");
}

#[test]
fn a_blocked_eviction_is_retried_with_growing_pauses_and_reported_once() {
    let mut work = work();
    answer(&mut work, "web-0", &ENDS, 0);
    assert_eq!(answer(&mut work, "db-0", &blocked(None), 0).unwrap(), "pod/ns/db-0 waits: b needs 1 and has 1");
    assert_eq!(due(&work, 0), ["db-1"], "what waits stands before no other: db-1 may be not Ready, and go");
    answer(&mut work, "db-1", &ENDS, 0);
    let mut now = 0;
    let mut pauses = Vec::new();
    for _ in 0..5 {
        let next = work.next_due().unwrap().since(at(0)).as_secs();
        pauses.push(next - now);
        now = next;
        assert_eq!(due(&work, now), ["db-0"]);
        assert_eq!(answer(&mut work, "db-0", &blocked(None), now), None, "nothing new");
    }
    assert_eq!(pauses, [1, 2, 4, 5, 5]);
}

#[test]
fn retry_after_of_the_api_server_is_kept() {
    let mut work = work();
    answer(&mut work, "web-0", &ENDS, 0);
    answer(&mut work, "db-0", &blocked(Some(Duration::from_secs(10))), 0);
    answer(&mut work, "db-1", &ENDS, 0);
    assert_eq!(due(&work, 9), Vec::<String>::new());
    assert_eq!(due(&work, 10), ["db-0"]);
}

#[test]
fn a_drain_is_done_when_pods_are_gone_and_not_when_they_are_terminating() {
    let mut work = work();
    for name in ["db-0", "db-1", "web-0"] {
        answer(&mut work, name, &ENDS, 0);
    }
    assert!(work.has_terminating() && work.next_due().is_none());
    let present = ["uid-db-1", "uid-other"].iter().filter_map(|uid| Uid::new(uid)).collect();
    assert_eq!(texts(work.record_present(&present)), ["pod/ns/db-0 gone", "pod/ns/web-0 gone"]);
    assert!(work.has_terminating());
    assert_eq!(texts(work.record_present(&BTreeSet::new())), ["pod/ns/db-1 gone"]);
    assert_eq!(work.count(), Count { total: 3, gone: 3, ..Count::default() });
    assert!(!work.has_terminating() && work.describe_remaining(true).is_empty());
}

/// A second read of the node must neither forget a pod nor start again.
#[test]
fn a_stopped_pod_is_not_added_again() {
    let mut work = work();
    let forbidden = ApiError::Refused {
        code: 403,
        reason: "Forbidden".to_owned(),
        message: "no".to_owned(),
        causes: Vec::new(),
        retry_after: None,
    };
    let line = answer(&mut work, "web-0", &Err(NotEvicted::Failed(forbidden)), 0).unwrap();
    assert!(line.starts_with("pod/ns/web-0 not evicted: the API server does not evict it"), "{line}");
    answer(&mut work, "db-0", &ENDS, 0);
    assert_eq!(work.outcome(), Outcome::Incomplete);
    let again = [("db-0", "db"), ("db-1", "db"), ("web-0", "web")];
    work.add_rows(&planned(&again).rows, at(1));
    assert_eq!(work.count(), Count { total: 3, ending: 1, waiting: 1, stopped: 1, ..Count::default() });
    work.add_rows(&planned(&[("late-0", "late")]).rows, at(1));
    assert_eq!(work.describe_remaining(true).len(), 4);
}

#[test]
fn a_refusal_for_safety_is_remembered() {
    let mut work = work();
    answer(&mut work, "web-0", &Err(NotEvicted::Unsafe), 0);
    assert_eq!(work.outcome(), Outcome::Refused);
    assert_eq!(due(&work, 100), ["db-0"]);
    answer(&mut work, "db-0", &Err(NotEvicted::Unreadable("no".to_owned())), 100);
    assert_eq!(work.outcome(), Outcome::Refused, "another pod was not evicted either");
}

/// A webhook that always answers 500 kept a drain without `--timeout` running.
#[test]
fn bug_an_eviction_that_keeps_failing_is_stopped_after_a_minute() {
    let failure = || Err(NotEvicted::WebhookFails { name: "w".to_owned(), why: "500".to_owned() });
    let mut work = work();
    let line = answer(&mut work, "web-0", &failure(), 0).unwrap();
    let why = "the API server asks the admission webhook w first, and that fails: 500";
    assert_eq!(line, format!("pod/ns/web-0 waits, tried for 60s: {why}"));
    assert_eq!(answer(&mut work, "web-0", &failure(), 40), None);
    // Another answer in between starts the minute again.
    answer(&mut work, "web-0", &blocked(None), 50);
    answer(&mut work, "web-0", &failure(), 61);
    answer(&mut work, "web-0", &failure(), 120);
    assert_eq!(work.count().waiting, 3);
    let line = answer(&mut work, "web-0", &failure(), 121).unwrap();
    assert_eq!(line, format!("pod/ns/web-0 not evicted, after 60s of trying: {why}"));
    assert_eq!(work.outcome(), Outcome::Incomplete);
}

/// A pod whose eviction a webhook delays by half a minute held up the drain of other pods.
#[test]
fn bug_an_eviction_in_flight_delays_only_pods_of_its_budget() {
    let mut work = work();
    let first = work.due(at(0));
    work.mark_sent(first[0].0);
    assert_eq!(due(&work, 0), ["web-0"]);
    assert!(!work.is_over());
    answer(&mut work, "db-0", &blocked(None), 0);
    assert_eq!(due(&work, 0), ["web-0", "db-1"]);
}

/// It was reported to exist nine seconds after it was gone.
#[test]
fn bug_a_stopped_pod_was_reported_to_exist_after_it_was_gone() {
    let mut work = work();
    answer(&mut work, "web-0", &Err(NotEvicted::Unreadable("no".to_owned())), 0);
    let present = ["uid-db-0", "uid-db-1"].iter().filter_map(|uid| Uid::new(uid)).collect();
    assert_eq!(texts(work.record_present(&present)), ["pod/ns/web-0 gone"]);
    assert_eq!(work.outcome(), Outcome::Gone);
    assert_eq!(texts(work.describe_remaining(false))[0], "pod/ns/db-0 existed when it was read last: not tried yet");
}

/// The API server refuses evictions there, and deletes the pod itself.
#[test]
fn bug_a_pod_of_a_terminating_namespace_was_stopped() {
    let mut work = work();
    let terminating = Err(NotEvicted::NamespaceTerminating { why: "namespace ns is being terminated".to_owned() });
    let line = answer(&mut work, "web-0", &terminating, 0).unwrap();
    assert_eq!(line, "pod/ns/web-0 waits: namespace ns is being terminated");
    answer(&mut work, "db-0", &ENDS, 0);
    answer(&mut work, "db-1", &ENDS, 0);
    assert_eq!(due(&work, 2), ["web-0"]);
    answer(&mut work, "web-0", &Ok(Evicted::AlreadyTerminating), 2);
    assert!(work.has_terminating());
}

/// An operator who stops a drain must know what continues without it.
#[test]
fn evictions_in_flight_at_the_end_are_reported() {
    let mut work = work();
    answer(&mut work, "web-0", &ENDS, 0);
    for (index, _) in work.due(at(0)) {
        work.mark_sent(index);
    }
    assert_eq!(
        texts(work.describe_remaining(true)),
        [
            "pod/ns/db-0 still exists: its eviction was in progress, so it may terminate",
            "pod/ns/web-0 still exists: evicted, terminates within 7s",
            "pod/ns/db-1 still exists: not tried yet",
        ]
    );
    let gone = texts(work.clone().record_present(&BTreeSet::new()));
    assert_eq!(gone, ["pod/ns/web-0 gone", "pod/ns/db-1 gone"], "the eviction of db-0 is not answered yet");
    answer(&mut work, "db-0", &blocked(None), 0);
    answer(&mut work, "db-0", &Err(NotEvicted::Unsafe), 1);
    let bad = |line: &Line| line.tone == Tone::Bad;
    assert_eq!(work.describe_remaining(true).iter().map(bad).collect::<Vec<_>>(), [true, false, false]);
    let remaining = work.describe_remaining(true);
    assert!(remaining[0].text.contains("not evicted: its phase says"), "{remaining:?}");
}
