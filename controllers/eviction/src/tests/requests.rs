//! Requests, and which Evictions should exist.

use super::*;

const AWAITS: &str = "Failed=False/AwaitingEviction TargetEvicted=False/AwaitingEviction";

fn invalid(name: &str) -> Obj {
    eviction_request(name, "p", "example.com/asks")
        .set("/status", json!({ "observedGeneration": 1, "conditions": [] }))
        .verdict("Failed", "True", "EvictionInvalid")
        .verdict("TargetEvicted", "False", "EvictionFailed")
}

#[test]
fn a_request_gets_an_eviction_or_is_refused() {
    let (requests, pods) = (Kind::EvictionRequests, Kind::Pods);
    let group = json!({ "podGroupName": "g" });
    let withdrawn = || eviction_request("r", "p", "example.com/asks").set("/spec/intent", json!("Withdrawn"));
    let deleted = || request_object().1.set("/metadata/deletionTimestamp", json!(timestamp(1)));
    let create = "create 1 of r with example.com/asks=requester";
    let awaits = format!("r at 1: {AWAITS}");
    type Case<'a> = (&'a str, Objects, Vec<&'a str>);
    let cases: Vec<Case<'_>> = vec![
        ("it asks for a pod that is there", vec![running_pod(), request_object()], vec![&awaits, create]),
        ("no pod", vec![request_object()], vec!["r at 1: refused"]),
        ("another pod of the name", vec![(pods, pod("p").uid("uid-q")), request_object()], vec!["r at 1: refused"]),
        (
            "a pod of another name",
            vec![running_pod(), (requests, request_object().1.set("/spec/target/pod/name", json!("q")))],
            vec!["r at 1: refused"],
        ),
        (
            "of a group",
            vec![(pods, pod("p").set("/spec/schedulingGroup", group)), request_object()],
            vec!["r at 1: refused"],
        ),
        ("withdrawn", vec![running_pod(), (requests, withdrawn())], vec![&awaits]),
        ("deleted with a finalizer", vec![running_pod(), (requests, deleted())], vec![&awaits]),
        ("already invalid", vec![running_pod(), (requests, invalid("r"))], vec![]),
        (
            "two of one requester",
            vec![running_pod(), request_object(), (requests, eviction_request("s", "p", "example.com/asks"))],
            vec![
                &awaits,
                "s at 1: Failed=False/AwaitingEviction TargetEvicted=False/AwaitingEviction",
                "create 1 of r, s with example.com/asks=requester",
            ],
        ),
    ];
    for (sentence, objects, wanted) in cases {
        assert_eq!(describe(&decide_at(&world(&objects), 1)), wanted, "{sentence}");
    }
}

/// The status was written once, and is seen again: nothing more is written.
#[test]
fn a_request_with_the_right_status_is_left_alone() {
    let of_it = active_eviction(&[(EVICTOR, 100, "Active")]);
    let request = request_object().1.set("/status", json!({ "observedGeneration": 1, "conditions": [] }));
    let request =
        request.verdict("Failed", "False", "AwaitingEviction").verdict("TargetEvicted", "False", "AwaitingEviction");
    let unsaid = |object: Obj| {
        object.modify(|object| {
            for condition in object["status"]["conditions"].as_array_mut().unwrap() {
                condition["message"] = json!("");
            }
        })
    };
    let world =
        world(&[running_pod(), (Kind::EvictionRequests, unsaid(request.clone())), (Kind::Evictions, unsaid(of_it))]);
    assert_eq!(describe(&decide_at(&world, 1)), ["evict, attempt 1"]);
    let changed = unsaid(request).set("/metadata/generation", json!(2));
    world.apply(Kind::EvictionRequests, &changed, at(2));
    assert_eq!(describe(&decide_at(&world, 2)), ["r at 2: as before", "evict, attempt 1"]);
}

/// A request of an ended Eviction gets a new one; when depends on how the former one ended.
#[test]
fn after_a_failed_eviction_the_next_one_comes() {
    let ended = |name: &str, reason: &str| {
        let one = active_eviction(&[(EVICTOR, 100, "Completed")])
            .set("/metadata/name", json!(name))
            .uid(&format!("uid-{name}"));
        one.verdict("Failed", "True", reason).verdict("TargetEvicted", "False", "EvictionFailed")
    };
    let evictions = |names: &[&str], reason: &str| -> Vec<(Kind, Obj)> {
        let failed = names.iter().map(|name| (Kind::Evictions, ended(name, reason)));
        [running_pod(), request_object()].into_iter().chain(failed).collect()
    };
    let created = |objects: &[(Kind, Obj)], second: u64| -> Option<String> {
        describe(&decide_at(&world(objects), second)).into_iter().find(|word| word.starts_with("create"))
    };
    let second = || Some("create 2 of r with example.com/asks=requester".to_owned());
    let canceled = evictions(&["pod-1-p"], "CanceledDueToNoRequesters");
    assert_eq!(created(&canceled, 1), second(), "at once");
    let vain = evictions(&["pod-1-p"], "NoFurtherResponder");
    assert_eq!((created(&vain, 19), created(&vain, 20)), (None, second()));
    assert_eq!(held(&decide_at(&world(&vain), 19)), ["NoFurtherResponder"]);
    let twice = evictions(&["pod-1-p", "pod-2-p"], "NoFurtherResponder");
    assert!(created(&twice, 39).is_none() && created(&twice, 40).is_some());
    // If more than three failed, only the name shows how many there were.
    let often = evictions(&["pod-10-p", "pod-11-p", "pod-12-p"], "NoFurtherResponder");
    assert!(created(&often, 899).is_none() && created(&often, 900).is_some());
}

/// While the cache of pods is stale no request is refused because of it.
#[test]
fn an_unreadable_or_stale_object_is_not_absent() {
    let unlisted = World::listed_except(&[Kind::Pods]);
    unlisted.apply(Kind::EvictionRequests, &request_object().1, at(0));
    assert_eq!(held(&decide_at(&unlisted, 1)), ["NotSynced"]);
    let stale = world(&[request_object()]);
    stale.confirm_kinds(&[Kind::EvictionRequests], at(200));
    let decision = decide(&Key::Target(target()), &stale.read().view(), at(200));
    assert_eq!((held(&decision), describe(&decision).len()), (vec!["Stale"], 0));
    let broken = world(&[request_object()]);
    let raw = json!({ "metadata": { "name": "p", "namespace": "ns", "uid": "uid-p" } }).to_string();
    let raw = pod_safety_shared::wire::Raw::from_body(pod_safety_shared::wire::Encoding::Json, raw.into()).unwrap();
    broken.apply_wire(Kind::Pods, &raw, at(1));
    let decision = decide_at(&broken, 1);
    assert_eq!((held(&decision), describe(&decision).len()), (vec!["PodUnreadable"], 0));
}

#[test]
fn the_oldest_eviction_stays_active_and_the_others_are_duplicates() {
    let older = active_eviction(&[(EVICTOR, 100, "Active")]).set("/metadata/creationTimestamp", json!(timestamp(1)));
    let younger = eviction("other", "p")
        .responders(&[(EVICTOR, 100, "Active")])
        .set("/metadata/creationTimestamp", json!(timestamp(2)));
    let world = world(&[running_pod(), request_object(), (Kind::Evictions, older), (Kind::Evictions, younger)]);
    let said = describe(&decide_at(&world, 3));
    let expected = "other: imperative-eviction.k8s.io/evictor Canceled; Failed=True/EvictionInvalid (Active Eviction already exists for the same target.) TargetEvicted=False/EvictionFailed; if Duplicate { of: \"pod-1-p\", uid: uid-pod-1-p }";
    assert!(said.iter().any(|word| word == expected), "{said:#?}");
}

#[test]
fn the_newest_three_failed_evictions_of_ours_are_kept() {
    let failed = |number: u32, ours: bool| {
        let name = format!("pod-{number}-p");
        let one = active_eviction(&[(EVICTOR, 100, "Canceled")])
            .set("/metadata/name", json!(name))
            .uid(&format!("uid-{name}"));
        let one = one.set("/metadata/creationTimestamp", json!(timestamp(number))).verdict(
            "Failed",
            "True",
            "CanceledDueToNoRequesters",
        );
        (Kind::Evictions, if ours { one } else { one.labels(json!({})) })
    };
    let withdrawn = (Kind::EvictionRequests, request_object().1.set("/spec/intent", json!("Withdrawn")));
    let all = [
        running_pod(),
        withdrawn,
        failed(1, true),
        failed(2, false),
        failed(3, true),
        failed(4, true),
        failed(5, true),
    ];
    let said = describe(&decide_at(&world(&all), 9));
    assert_eq!(said.iter().filter(|word| word.starts_with("collect")).collect::<Vec<_>>(), ["collect pod-1-p"]);
}

#[test]
fn labels_and_owners_follow_requests_and_responders() {
    let second = eviction_request("s", "p", APP).uid("uid-s");
    let world = world(&[
        running_pod(),
        request_object(),
        (Kind::EvictionRequests, second),
        (Kind::Evictions, active_eviction(&[(APP, 10_000, "Active"), (EVICTOR, 100, "Inactive")])),
    ]);
    let said = describe(&decide_at(&world, 1));
    // The status names the requesters before the labels do.
    assert!(
        said.iter()
            .any(|word| word == "pod-1-p: example.com/app asks for Eviction; example.com/asks asks for Eviction"),
        "{said:#?}"
    );
    let known = active_eviction(&[(APP, 10_000, "Active"), (EVICTOR, 100, "Inactive")]).set(
        "/status/requesters",
        json!([{ "name": APP, "intent": "Eviction" }, { "name": "example.com/asks", "intent": "Eviction" }]),
    );
    world.apply(Kind::Evictions, &known, at(1));
    let said = describe(&decide_at(&world, 2));
    assert!(said.iter().any(|word| word == "mark pod-1-p: s example.com/app=requester-responder"), "{said:#?}");
    world.remove(Kind::EvictionRequests, "uid-r", at(3));
    let said = describe(&decide_at(&world, 3));
    assert!(said.iter().any(|word| word.ends_with("example.com/asks asks for Withdrawn")), "{said:#?}");
}

/// Another controller gives the turns in the namespace: only the responders of pod-safety write there. The pod is on no node, so
/// lost-node completes at once.
#[test]
fn only_own_responders_write_where_another_controller_gives_turns() {
    let fields = json!({ "f:status": { "f:targetResponders": {} } });
    let decide_beside = |manager: &str, responder: &str| {
        let managed = json!([{ "manager": manager, "fieldsV1": fields }]);
        let turn = active_eviction(&[(responder, 20_000, "Active")]).set("/metadata/managedFields", managed);
        decide_at(&world(&[running_pod(), request_object(), (Kind::Evictions, turn)]), 1)
    };
    let is_done = "pod-1-p: pod-safety.dev/lost-node says \"the pod is on no node\" and is done";
    for (responder, write) in [(APP, None), (EVICTOR, Some("evict, attempt 1")), (LOST_NODE_RESPONDER, Some(is_done))] {
        let decision = decide_beside("evictionrequest-controller", responder);
        assert_eq!(held(&decision), ["AnotherController"], "{responder}");
        assert_eq!(describe(&decision), Vec::from_iter(write), "{responder}");
    }
    let decision = decide_beside("kubectl-edit", EVICTOR);
    assert_eq!((held(&decision).len(), describe(&decision).len()), (0, 2));
}

/// Another client may create an Eviction of a pod in a gang, and a pod of a gang may have had one.
#[test]
fn a_request_for_a_pod_of_a_gang_is_refused_beside_an_eviction_too() {
    let gang = || (Kind::Pods, pod("p").set("/spec/schedulingGroup", json!({ "podGroupName": "g" })));
    let active = || active_eviction(&[(EVICTOR, 100, "Active")]);
    let failed = active().verdict("Failed", "True", "CanceledDueToNoRequesters");
    for (sentence, one) in [("it is active", active()), ("it failed", failed)] {
        let writes = describe(&decide_at(&world(&[gang(), request_object(), (Kind::Evictions, one)]), 1));
        assert!(writes.contains(&"r at 1: refused".to_owned()), "{sentence}: {writes:?}");
        assert!(!writes.iter().any(|word| word.starts_with("create")), "{sentence}: {writes:?}");
    }
}

/// The number after it overflowed.
#[test]
fn bug_an_eviction_with_the_highest_number_had_none_after_it() {
    let last = eviction("pod-4294967295-p", "p").verdict("Failed", "True", "CanceledDueToNoRequesters");
    let writes = describe(&decide_at(&world(&[running_pod(), request_object(), (Kind::Evictions, last)]), 1));
    assert!(writes.iter().any(|word| word.starts_with("create 1 of r")), "{writes:?}");
}

/// It may be one of this pod.
#[test]
fn no_eviction_is_created_while_one_cannot_be_read() {
    let world = world(&[running_pod(), request_object()]);
    let raw = json!({ "metadata": { "name": "e", "namespace": "ns", "uid": "uid-e" } }).to_string();
    let raw = pod_safety_shared::wire::Raw::from_body(pod_safety_shared::wire::Encoding::Json, raw.into()).unwrap();
    world.apply_wire(Kind::Evictions, &raw, at(1));
    let decision = decide_at(&world, 1);
    assert_eq!(held(&decision), ["EvictionsUnreadable"]);
    assert!(!describe(&decision).iter().any(|word| word.starts_with("create")));
}
