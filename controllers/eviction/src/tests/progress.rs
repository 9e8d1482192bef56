//! Which responder is active, and how an Eviction ends.

use super::*;

fn three(states: [&'static str; 3]) -> Obj {
    let [app, other, evictor] = states;
    active_eviction(&[(APP, 10_000, app), ("example.com/other", 5_000, other), (EVICTOR, 100, evictor)])
}

/// The writes to the Eviction, without its requesters.
fn of_eviction(objects: &[(Kind, Obj)], second: u64) -> Vec<String> {
    let all = describe(&decide_at(&world(objects), second));
    let own = all.into_iter().filter(|word| word.starts_with("pod-1-p: "));
    own.map(|word| {
        word.replace("; example.com/asks asks for Eviction", "").replace("example.com/asks asks for Eviction; ", "")
    })
    .collect()
}

#[test]
fn responders_begin_by_their_names_alone_and_the_first_is_active() {
    let asks = json!([{ "name": "b.com/low", "priority": 1_000 }, { "name": APP, "priority": 10_000 }]);
    let bare = eviction("pod-1-p", "p");
    let objects =
        [(Kind::Pods, pod("p").set("/spec/evictionResponders", asks)), request_object(), (Kind::Evictions, bare)];
    assert_eq!(
        of_eviction(&objects, 1),
        ["pod-1-p: responders example.com/app 10000, b.com/low 1000, imperative-eviction.k8s.io/evictor 100; \
          example.com/app Active; example.com/app starts; Failed=False/AwaitingEviction TargetEvicted=False/AwaitingEviction"]
    );
}

#[test]
fn an_eviction_progresses_and_ends_by_the_rules() {
    let done = json!(timestamp(60));
    let active = || three(["Active", "Inactive", "Inactive"]);
    let last = || three(["Completed", "Interrupted", "Active"]);
    let reported = |one: Obj, number| reports(one, number, "completionTime", &done);
    let on = |one: Obj| vec![running_pod(), request_object(), (Kind::Evictions, one)];
    let gone = |one: Obj| vec![request_object(), (Kind::Evictions, one)];
    let ended = |one: Obj| vec![(Kind::Pods, pod("p").terminated()), request_object(), (Kind::Evictions, one)];
    let alone = |one: Obj| vec![running_pod(), (Kind::Evictions, one)];
    let succeeded = "Failed=False/Succeeded TargetEvicted=True";
    type Case<'a> = (&'a str, Objects, u64, Vec<String>);
    let cases: Vec<Case<'_>> = vec![
        ("silent", on(active()), 1_199, vec![]),
        ("silent for 20 minutes", on(active()), 1_200, vec!["pod-1-p: example.com/app Interrupted; example.com/other Active; example.com/other starts".to_owned()]),
        ("reported in between", on(reports(active(), 0, "heartbeatTime", &json!(timestamp(600)))), 1_200, vec![]),
        ("done", on(reported(active(), 0)), 61, vec!["pod-1-p: example.com/app Completed; example.com/other Active; example.com/other starts".to_owned()]),
        ("the last one is done, and the pod is there", on(reported(last(), 2)), 61, vec![format!("pod-1-p: {EVICTOR} Completed; Failed=True/NoFurtherResponder TargetEvicted=False/EvictionFailed; if PodRunning")]),
        ("the pod is gone, since this process began", gone(active()), 4, vec![]),
        ("for five seconds", gone(active()), 5, vec![format!("pod-1-p: example.com/app Interrupted; {succeeded}/PodDeleted; if PodGone")]),
        ("and it reported", gone(reported(active(), 0)), 1, vec![format!("pod-1-p: example.com/app Completed; {succeeded}/PodDeleted; if PodGone")]),
        ("its phase is terminal", ended(active()), 5, vec![format!("pod-1-p: example.com/app Interrupted; {succeeded}/PodTerminal; if PodTerminal")]),
        ("nobody asks", alone(active()), 1, vec!["pod-1-p: example.com/app Canceled; example.com/asks asks for Withdrawn; Failed=True/CanceledDueToNoRequesters TargetEvicted=False/EvictionFailed; if NotRequested".to_owned()]),
        ("nobody asks, and it is done", alone(reported(active(), 0)), 61, vec!["pod-1-p: example.com/app Completed; example.com/asks asks for Withdrawn; Failed=True/CanceledDueToNoRequesters TargetEvicted=False/EvictionFailed; if NotRequested".to_owned()]),
        ("never initialized, and the pod is gone", gone(eviction("pod-1-p", "p")), 1, vec![format!("pod-1-p: {succeeded}/PodDeleted; if PodGone")]),
    ];
    for (sentence, objects, second, wanted) in cases {
        assert_eq!(of_eviction(&objects, second), wanted, "{sentence}");
    }
}

/// A new leader, or a clock that is ahead: its own twenty minutes count from when it saw the last heartbeat.
#[test]
fn a_deadline_expires_by_our_own_clock_too() {
    let world = world(&[running_pod(), request_object()]);
    world.confirm_all(at(1_000));
    world.apply(Kind::Evictions, &three(["Active", "Inactive", "Inactive"]), at(1_000));
    let interrupted = |second| describe(&decide_at(&world, second)).iter().any(|word| word.contains("Interrupted"));
    assert!(!interrupted(2_199) && interrupted(2_200));
}

/// kubernetes#140804: a client that initializes an Eviction may write that all responders are completed, and in
/// seconds all are passed over: a pod with responders that protect it is evicted at once.
#[test]
fn attack_a_tenant_that_reports_for_responders_before_their_turn_stops_the_chain() {
    for field in ["completionTime", "startTime", "heartbeatTime", "expectedCompletionTime"] {
        let forged = reports(three(["Active", "Inactive", "Inactive"]), 1, field, &json!(timestamp(0)));
        let forged = reports(forged, 0, "completionTime", &json!(timestamp(0)));
        let objects = [running_pod(), request_object(), (Kind::Evictions, forged.clone())];
        assert_eq!(held(&decide_at(&world(&objects), 61)), ["ResponderPrefilled"], "{field}");
        assert_eq!(of_eviction(&objects, 61), Vec::<String>::new(), "{field}");
        // It can still be withdrawn, and ends with its pod.
        assert!(of_eviction(&[running_pod(), (Kind::Evictions, forged)], 61)[0].contains("CanceledDueToNoRequesters"));
    }
}

/// A request that cannot be decoded may be an open one.
#[test]
fn no_eviction_is_canceled_while_a_request_cannot_be_decoded() {
    let world = world(&[running_pod(), (Kind::Evictions, three(["Active", "Inactive", "Inactive"]))]);
    let raw = json!({ "metadata": { "name": "r", "namespace": "ns", "uid": "uid-r" } }).to_string();
    let raw = pod_safety_shared::wire::Raw::from_body(pod_safety_shared::wire::Encoding::Json, raw.into()).unwrap();
    world.apply_wire(Kind::EvictionRequests, &raw, at(1));
    let decision = decide_at(&world, 1);
    assert_eq!(held(&decision), ["RequestsUnreadable"]);
    assert!(!describe(&decision).iter().any(|word| word.contains("Failed=True")));
}

/// Rule 11: requesters without an open request are withdrawn, and above a hundred they are not named.
#[test]
fn a_hundred_requesters_are_named_and_those_with_open_requests_come_first() {
    let past: Value =
        (0..100).map(|number| json!({ "name": format!("past.com/{number:0>3}"), "intent": "Withdrawn" })).collect();
    let one = three(["Active", "Inactive", "Inactive"]).set("/status/requesters", past);
    let all = describe(&decide_at(&world(&[running_pod(), request_object(), (Kind::Evictions, one)]), 1));
    let said: Vec<&String> = all.iter().filter(|word| word.starts_with("pod-1-p: ")).collect();
    assert!(said[0].starts_with("pod-1-p: example.com/asks asks for Eviction; past.com/000"), "{said:?}");
    assert!(said[0].ends_with("; without past.com/099"), "{said:?}");
}
