//! EvictionRequests and Evictions.

use crate::model::{Eviction, EvictionRequest, EvictionTarget, ResponderState};
use crate::testing::objects::{eviction, eviction_request};

use super::*;

const EVICTOR: &str = "imperative-eviction.k8s.io/evictor";

fn target() -> EvictionTarget {
    EvictionTarget { namespace: "ns".into(), uid: uid("uid-p") }
}

/// A cache that follows evictions, with a request and an Eviction of the pod `p`.
fn cache_with_request() -> Cache {
    let cache = listed();
    cache.enable_evictions();
    cache.enable_budgets();
    apply::<EvictionRequest>(&cache, &eviction_request("r", "p", "a.com/a"), at(1));
    apply::<Eviction>(
        &cache,
        &eviction("e", "p").responders(&[("a.com/a", 10_000, "Active"), (EVICTOR, 100, "Inactive")]),
        at(1),
    );
    cache
}

#[test]
fn responders_of_a_pod_are_kept_only_if_evictions_are_enabled() {
    let all: serde_json::Value =
        (0..12).map(|number| json!({ "name": format!("a.com/{number}"), "priority": 1_000 })).collect();
    let object = pod("p").set("/spec/evictionResponders", all).set("/spec/schedulingGroup", json!({}));
    for follows in [false, true] {
        let cache = listed();
        if follows {
            cache.enable_evictions();
        }
        apply::<Pod>(&cache, &object, at(0));
        let guard = cache.read();
        let kept = guard.view().pod(&uid("uid-p")).unwrap();
        assert_eq!((kept.eviction_responders.len(), kept.in_group), if follows { (10, true) } else { (0, false) });
        assert_eq!(kept.uncommon.is_some(), follows, "others do not grow");
    }
}

/// A budget notifies only when it allows more disruptions than before and more than none.
#[test]
fn a_change_of_a_pod_notifies_only_evictions_of_that_pod() {
    let cache = cache_with_request();
    apply::<Pod>(&cache, &pod("p").labels(json!({ "app": "db" })), at(1));
    let changes = log_changes(&cache);
    apply::<Pod>(&cache, &pod("q"), at(2));
    assert!(!changes.drain().iter().any(|line| line.starts_with("eviction")));
    apply::<Pod>(&cache, &pod("p").labels(json!({ "app": "db" })).terminating(), at(2));
    assert!(changes.drain().contains(&"eviction of uid-p".to_owned()));
    let allows = |count: i32, rv: u64| {
        budget("b", "db", &json!({ "maxUnavailable": 1 })).rv(rv).set("/status", json!({ "disruptionsAllowed": count }))
    };
    for (count, rv, wakes) in [(0, 8, false), (1, 9, true), (1, 10, false), (0, 11, false), (2, 12, true)] {
        apply::<Budget>(&cache, &allows(count, rv), at(3));
        assert_eq!(changes.drain().contains(&"eviction of uid-p".to_owned()), wakes, "{count} {rv}");
    }
    cache.remove::<EvictionRequest>(&uid("uid-r"), at(4));
    cache.remove::<Eviction>(&uid("uid-e"), at(4));
    assert_eq!(changes.drain(), ["eviction of uid-p", "eviction of uid-p"]);
    assert_eq!(cache.read().view().eviction_targets().count(), 0, "nothing is kept of it");
    cache.remove::<Pod>(&uid("uid-p"), at(5));
    assert!(!changes.drain().iter().any(|line| line.starts_with("eviction")));
}

#[test]
fn the_end_of_an_eviction_target_is_recorded_when_seen_and_cleared_when_it_runs_again() {
    let cache = cache_with_request();
    let ended = || cache.read().view().target_ended_at(&target());
    apply::<Pod>(&cache, &pod("p"), at(2));
    assert_eq!(ended(), None);
    apply::<Pod>(&cache, &pod("p").phase("Failed"), at(3));
    apply::<Pod>(&cache, &pod("p").phase("Succeeded"), at(4));
    assert_eq!(ended(), Some(at(3)));
    apply::<Pod>(&cache, &pod("p"), at(5));
    assert_eq!(ended(), None, "it runs all the same");
    cache.remove::<Pod>(&uid("uid-p"), at(6));
    assert_eq!(ended(), Some(at(6)));
}

/// The responder of a pod that was gone lost the 5 s in which it may report, when the only object about that pod changed.
#[test]
fn bug_a_change_of_the_only_object_about_a_pod_forgot_when_that_ended() {
    let only_eviction = cache_with_request();
    only_eviction.remove::<EvictionRequest>(&uid("uid-r"), at(2));
    let only_request = cache_with_request();
    only_request.remove::<Eviction>(&uid("uid-e"), at(2));
    for cache in [only_eviction, only_request] {
        apply::<Pod>(&cache, &pod("p"), at(3));
        cache.remove::<Pod>(&uid("uid-p"), at(4));
        let is_request = cache.read().view().evictions_of(&target()).next().is_none();
        if is_request {
            apply::<EvictionRequest>(&cache, &eviction_request("r", "p", "a.com/a").rv(9), at(5));
        } else {
            apply::<Eviction>(&cache, &eviction("e", "p").rv(9), at(5));
        }
        assert_eq!(cache.read().view().target_ended_at(&target()), Some(at(4)), "{is_request}");
    }
}

/// Deadlines and pauses count from when a value was first seen, across versions.
#[test]
fn each_value_of_a_responder_keeps_the_time_when_it_was_first_seen() {
    let cache = cache_with_request();
    let seen = |second: u64, field: &str, value: serde_json::Value| {
        let one =
            eviction("e", "p").rv(second).responders(&[("a.com/a", 10_000, "Active"), (EVICTOR, 100, "Inactive")]);
        apply::<Eviction>(&cache, &one.set(&format!("/status/responders/0/{field}"), value), at(second));
        let guard = cache.read();
        let one = guard.view().evictions_of(&target()).next().unwrap();
        let active = one.active().unwrap();
        assert_eq!((active.state, &*active.name), (ResponderState::Active, "a.com/a"));
        [active.seen.start, active.seen.heartbeat, active.seen.message]
    };
    assert_eq!(seen(5, "message", json!("m")), [1, 1, 5].map(at));
    assert_eq!(seen(6, "heartbeatTime", json!(timestamp(6))), [1, 6, 6].map(at));
    assert_eq!(seen(7, "heartbeatTime", json!(timestamp(6))), [1, 6, 6].map(at));
    assert_eq!(seen(8, "startTime", json!(timestamp(8))), [8, 8, 6].map(at));
    let ended = [9, 10].map(|second| {
        apply::<Eviction>(&cache, &eviction("e", "p").rv(second).verdict("Failed", "True", "R"), at(second));
        cache.read().view().evictions_of(&target()).next().map(|one| (one.first_seen, one.ended_seen))
    });
    assert_eq!(ended, [Some((at(1), at(9))); 2]);
}

#[test]
fn a_foreign_eviction_controller_is_known_while_it_has_an_active_eviction() {
    let cache = cache_with_request();
    let managed = |manager: &str| {
        let fields = json!({ "f:status": { "f:targetResponders": {} } });
        eviction("e", "p").set("/metadata/managedFields", json!([{ "manager": manager, "fieldsV1": fields }]))
    };
    let is_own = |object: Obj| {
        apply::<Eviction>(&cache, &object, at(2));
        !cache.read().view().has_foreign_evictions("ns")
    };
    assert!(is_own(managed("pod-safety")));
    assert!(!is_own(managed("kube-controller-manager")));
    assert!(!cache.read().view().has_foreign_evictions("other"), "other namespaces are not affected");
    assert!(is_own(managed("evictionrequest-controller").verdict("Failed", "True", "R")));
    assert!(!is_own(managed("evictionrequest-controller")));
    cache.remove::<Eviction>(&uid("uid-e"), at(3));
    assert!(!cache.read().view().has_foreign_evictions("ns"));
}

/// An alpha API that most clusters do not serve: requested once a minute, logged once, and no problem.
#[tokio::test(start_paused = true)]
async fn an_unserved_kind_is_retried_each_minute_without_an_error() {
    let (env, _wall) = env();
    let served = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let serves = Arc::clone(&served);
    let api = Api::answering(&env, move |request| {
        match (serves.load(std::sync::atomic::Ordering::SeqCst), request.is_watch()) {
            (false, _) => Answer::plain(404, "404 page not found"),
            (true, false) => {
                Answer::json(&json!({ "metadata": { "resourceVersion": "9" }, "items": [eviction("e", "p").0] }))
            }
            (true, true) => Answer::stream().1,
        }
    });
    let (cache, registry) = (Arc::new(Cache::default()), Registry::new());
    let metrics = CacheMetrics::register(&registry).unwrap();
    start_feeds(&[Kind::Evictions], &api.connection(), &cache, &env, &metrics);
    advance(300.0).await;
    let requests = api.lines().len();
    assert!((3..=6).contains(&requests), "{requests}");
    let page = || TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    assert!(!page().contains("pod_safety_cache_synced{") && !page().contains("watch_failures_total{"), "{}", page());
    {
        let guard = cache.read();
        let state = guard.view().state(Kind::Evictions);
        assert!(state.unserved && !state.synced && state.problem.is_none(), "{state:?}");
    }
    served.store(true, std::sync::atomic::Ordering::SeqCst);
    advance(95.0).await;
    assert!(page().contains("pod_safety_cache_synced{resource=\"evictions\"} 1"), "{}", page());
    let guard = cache.read();
    assert!(!guard.view().state(Kind::Evictions).unserved);
    assert_eq!(guard.view().evictions().count(), 1);
}
