//! S20, S21 and L13 can be broken, and what could not be known breaks none.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::checker::Shown;
use crate::checker::tests::{ME, broken, change, seconds};

const NAME: &str = "default/pod-1-p";
const APP: &str = "example.com/app";

fn pod(phase: &str) -> Value {
    json!({ "metadata": { "name": "p", "namespace": "default", "uid": "u" },
        "spec": { "nodeName": "n" }, "status": { "phase": phase } })
}

fn request() -> Value {
    json!({ "metadata": { "name": "r", "namespace": "default", "generation": 1 },
        "spec": { "intent": "Eviction", "target": { "pod": { "name": "p", "uid": "u" } } },
        "status": { "observedGeneration": 1 } })
}

/// An Eviction in which these responders have these states.
fn eviction(states: [&str; 2]) -> Value {
    let target = |name: &str, state: &str| json!({ "name": name, "state": state });
    json!({ "metadata": { "name": "pod-1-p", "namespace": "default", "generation": 1 },
        "spec": { "target": { "pod": { "name": "p", "uid": "u" } } },
        "status": { "targetResponders": [target(APP, states[0]), target(IMPERATIVE_EVICTOR, states[1])],
            "responders": [{ "name": APP, "startTime": "t" }, { "name": IMPERATIVE_EVICTOR }] } })
}

fn with_condition(mut object: Value, kind: &str, reason: &str) -> Value {
    object["status"]["conditions"] = json!([{ "type": kind, "status": "True", "reason": reason }]);
    object
}

fn observes(checker: &Checker, kind: &str, name: &str, before: Option<Value>, after: Option<Value>) {
    let asked = ApiRequest::new("client", Method::PATCH, "/x");
    checker.executed(&asked, 200, &[change(kind, name, before, after)]);
}

/// A process under test writes an Eviction or a request.
fn writes(checker: &Checker, kind: &str, name: &str, before: Option<Value>, after: Option<Value>) {
    let path = format!("{LIFECYCLE}/evictions/pod-1-p/status");
    let body = json!({ "metadata": { "uid": "e", "resourceVersion": "1" } }).to_string();
    let asked = ApiRequest { body: body.into(), ..ApiRequest::new(ME, Method::PATCH, &path) };
    checker.executed(&asked, 200, &[change(kind, name, before, after)]);
}

/// A pod whose eviction is requested, and its Eviction.
fn well(checker: &Checker) {
    checker.gate_switched(true);
    observes(checker, "Pod", "default/p", None, Some(pod("Running")));
    observes(checker, "EvictionRequest", "default/r", None, Some(request()));
    observes(checker, "Eviction", NAME, None, Some(eviction(["Active", "Inactive"])));
}

fn ends(after: Value, first: impl Fn(&Checker)) -> Vec<Invariant> {
    let (after, first) = (&after, &first);
    broken(async move |checker: &Arc<Checker>| {
        well(checker);
        first(checker);
        seconds(6).await;
        writes(checker, "Eviction", NAME, Some(eviction(["Active", "Inactive"])), Some(after.clone()));
    })
    .into_iter()
    .filter(|rule| matches!(rule, Invariant::Verdict | Invariant::Turn))
    .collect()
}

#[test]
fn s20_an_end_is_true_or_was_read() {
    let gone = |checker: &Checker| observes(checker, "Pod", "default/p", Some(pod("Running")), None);
    let terminal = |checker: &Checker| {
        observes(checker, "Pod", "default/p", Some(pod("Running")), Some(pod("Failed")));
    };
    let lists = |checker: &Checker| {
        let asked = ApiRequest::new(ME, Method::GET, &format!("{LIFECYCLE}/evictionrequests"));
        checker.executed(&asked, 200, &[]);
    };
    let withdrawn = |checker: &Checker| {
        observes(checker, "EvictionRequest", "default/r", Some(request()), None);
        lists(checker);
    };
    let nothing = |_: &Checker| {};
    let of = |kind: &str, reason: &str| with_condition(eviction(["Completed", "Inactive"]), kind, reason);
    let verdict = [Invariant::Verdict];
    assert_eq!(ends(of("TargetEvicted", "PodDeleted"), gone), []);
    assert_eq!(ends(of("TargetEvicted", "PodDeleted"), nothing), verdict);
    assert_eq!(ends(of("TargetEvicted", "PodDeleted"), terminal), verdict);
    assert_eq!(ends(of("TargetEvicted", "PodTerminal"), terminal), []);
    assert_eq!(ends(of("Failed", CANCELED), withdrawn), []);
    assert_eq!(ends(of("Failed", CANCELED), nothing), verdict, "nothing was read");
    assert_eq!(ends(of("Failed", CANCELED), lists), verdict, "somebody requests it");
    assert_eq!(ends(of("Failed", EVICTION_INVALID), nothing), verdict, "there is no other");
    assert_eq!(ends(of("Failed", "NoFurtherResponder"), nothing), []);
}

#[test]
fn s21_a_turn_lasts_and_a_report_is_its_responders_own() {
    let gone = |checker: &Checker| observes(checker, "Pod", "default/p", Some(pod("Running")), None);
    let nothing = |_: &Checker| {};
    let interrupted = eviction(["Interrupted", "Active"]);
    assert_eq!(ends(interrupted.clone(), nothing), [Invariant::Turn], "after six seconds");
    let evicted = with_condition(eviction(["Interrupted", "Inactive"]), "TargetEvicted", "PodDeleted");
    assert_eq!(ends(evicted, gone), []);
    let mut reported = eviction(["Active", "Inactive"]);
    reported["status"]["responders"][0]["completionTime"] = json!("t");
    assert_eq!(ends(reported, nothing), [Invariant::Turn]);
    let late = broken(async |checker: &Arc<Checker>| {
        well(checker);
        seconds(1_200).await;
        writes(checker, "Eviction", NAME, Some(eviction(["Active", "Inactive"])), Some(interrupted.clone()));
    });
    assert!(!late.contains(&Invariant::Turn));
}

#[test]
fn s21_one_eviction_of_a_pod_goes_on() {
    let second = |first: Value| {
        broken(async move |checker: &Arc<Checker>| {
            well(checker);
            observes(checker, "Eviction", NAME, Some(eviction(["Active", "Inactive"])), Some(first.clone()));
            writes(checker, "Eviction", "default/pod-2-p", None, Some(eviction(["Active", "Inactive"])));
        })
        .contains(&Invariant::Turn)
    };
    assert!(second(eviction(["Active", "Inactive"])));
    assert!(!second(with_condition(eviction(["Canceled", "Inactive"]), "Failed", CANCELED)));
}

#[test]
fn s21_a_pod_is_evicted_in_the_turn_of_the_evictor_alone() {
    let evicts = |states: [&'static str; 2]| {
        broken(async move |checker: &Arc<Checker>| {
            well(checker);
            let before = eviction(["Active", "Inactive"]);
            observes(checker, "Eviction", NAME, Some(before), Some(eviction(states)));
            let options = json!({ "gracePeriodSeconds": 1,
                "preconditions": { "uid": "u", "resourceVersion": "1" } });
            let body = json!({ "deleteOptions": options }).to_string().into();
            let path = "/api/v1/namespaces/default/pods/p/eviction";
            checker.executed(&ApiRequest { body, ..ApiRequest::new(ME, Method::POST, path) }, 201, &[]);
        })
    };
    assert_eq!(evicts(["Completed", "Active"]), []);
    assert_eq!(evicts(["Active", "Inactive"]), [Invariant::Turn]);
}

#[test]
fn l13_what_is_requested_is_answered() {
    let rests = |request: Value, eviction: Option<Value>, pods: Vec<Value>| {
        broken(async move |checker: &Arc<Checker>| {
            checker.gate_switched(true);
            observes(checker, "Pod", "default/p", None, Some(pod("Running")));
            observes(checker, "EvictionRequest", "default/r", None, Some(request.clone()));
            observes(checker, "Eviction", NAME, None, eviction.clone());
            let lease = json!({ "spec": { "holderIdentity": ME } });
            observes(checker, "Lease", "kube-system/pod-safety", None, Some(lease));
            checker.healed();
            tokio::time::sleep(Duration::from_secs(300)).await;
            let pods: Vec<Arc<Value>> = pods.iter().cloned().map(Arc::new).collect();
            checker.check_evictions(&pods, &Shown::default());
        })
    };
    let running = || vec![pod("Running")];
    let waits = eviction(["Active", "Inactive"]);
    assert_eq!(rests(request(), Some(waits.clone()), running()), [], "its responder has 20 minutes");
    assert_eq!(rests(request(), None, running()), [Invariant::Answered]);
    assert_eq!(rests(with_condition(request(), "TargetEvicted", "PodDeleted"), None, Vec::new()), []);
    assert_eq!(rests(request(), None, Vec::new()), [Invariant::Answered]);
    let mut unseen = request();
    unseen["metadata"]["generation"] = json!(2);
    assert_eq!(rests(unseen, Some(waits), running()), [Invariant::Answered]);
    let silent = eviction(["Completed", "Active"]);
    assert_eq!(rests(request(), Some(silent), running()), [Invariant::Answered], "the evictor says nothing");
}
