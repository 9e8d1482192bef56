//! Unknown is not absent, and stale is not current.

use crate::FreshnessError;

use super::*;

fn answer(cache: &Cache, name: &str) -> &'static str {
    match cache.read().view().node(name) {
        Lookup::Known(_) => "known",
        Lookup::Unknown(_) => "unknown",
        Lookup::Absent => "absent",
    }
}

#[test]
fn a_node_is_absent_only_after_the_first_list_of_nodes() {
    let cache = Cache::default();
    assert_eq!(answer(&cache, "n"), "unknown");
    cache.begin_list::<Node>();
    assert_eq!(answer(&cache, "n"), "unknown");
    cache.end_list::<Node>(at(1));
    assert_eq!(answer(&cache, "n"), "absent");
}

#[test]
fn a_node_that_becomes_unreadable_is_unknown_and_not_absent() {
    let cache = listed();
    apply::<Node>(&cache, &node("n"), at(1));
    apply::<Pod>(&cache, &pod("a").on("n"), at(1));
    let changes = log_changes(&cache);
    cache.apply_undecodable::<Node>(unreadable(Some("uid-n"), Some("n")), at(2));
    assert_eq!(answer(&cache, "n"), "unknown");
    assert!(cache.read().view().absence("n").is_none());
    assert_eq!(changes.drain(), ["node n"]);
    cache.remove::<Node>(&uid("uid-n"), at(3));
    assert_eq!(answer(&cache, "n"), "absent", "its removal was understood");
    assert!(cache.read().view().absence("n").is_some());
}

#[test]
fn one_readable_incarnation_does_not_hide_an_unreadable_one() {
    for id in ["another", "z-another"] {
        let cache = listed();
        apply::<Node>(&cache, &node("n"), at(1));
        cache.apply_undecodable::<Node>(unreadable(Some(id), Some("n")), at(2));
        assert_eq!(answer(&cache, "n"), "unknown", "{id}");
    }
}

#[test]
fn the_node_of_a_name_is_the_one_with_the_higher_version() {
    for (old, new) in [("z-old", "a-new"), ("a-old", "z-new")] {
        let cache = listed();
        apply::<Node>(&cache, &node("n").uid(old).rv(9), at(1));
        apply::<Node>(&cache, &node("n").uid(new).rv(10), at(1));
        let guard = cache.read();
        let Lookup::Known(node) = guard.view().node("n") else { panic!("known") };
        assert_eq!(node.uid, uid(new));
    }
}

#[test]
fn a_node_without_identity_makes_every_missing_node_unknown_until_the_next_list() {
    for (what, id, name) in [("neither", None, None), ("no UID", None, Some("x")), ("no name", Some("uid-x"), None)] {
        let cache = listed();
        apply::<Node>(&cache, &node("other"), at(1));
        cache.apply_undecodable::<Node>(unreadable(id, name), at(1));
        assert_eq!(answer(&cache, "n"), "unknown", "{what}");
        assert_eq!(answer(&cache, "other"), "known", "{what}");
        assert_eq!(cache.read().view().count(Kind::Nodes), (1, 1), "{what}");
        cache.begin_list::<Node>();
        assert_eq!(answer(&cache, "n"), "unknown", "{what}: bug: while the next list was under way it was absent");
        cache.end_list::<Node>(at(2));
        assert_eq!(answer(&cache, "n"), "absent", "{what}");
    }
}

#[test]
fn an_unreadable_pod_is_counted_but_not_returned() {
    let cache = listed();
    apply::<Pod>(&cache, &pod("a").on("n").phase("Failed"), at(1));
    let changes = log_changes(&cache);
    cache.apply_undecodable::<Pod>(unreadable(Some("uid-a"), Some("a")), at(2));
    let guard = cache.read();
    let view = guard.view();
    assert!(view.pod(&uid("uid-a")).is_none());
    assert_eq!((view.terminated_count(), view.pods_on("n").count()), (0, 0));
    assert_eq!(view.count(Kind::Pods), (1, 1));
    assert_eq!(changes.drain(), ["pod uid-a@10 -> nothing"]);
    drop(guard);
    apply::<Pod>(&cache, &pod("a").on("n").rv(11), at(3));
    assert_eq!(cache.read().view().count(Kind::Pods), (1, 0), "readable again");
}

#[test]
fn an_object_without_uid_version_or_name_is_undecodable() {
    for (field, value) in [
        ("/metadata/uid", json!("")),
        ("/metadata/uid", json!(null)),
        ("/metadata/resourceVersion", json!("0")),
        ("/metadata/resourceVersion", json!("abc")),
        ("/metadata/resourceVersion", json!(null)),
        ("/metadata/name", json!("")),
        ("/metadata/namespace", json!("")),
    ] {
        let cache = listed();
        apply::<Pod>(&cache, &pod("a").set(field, value.clone()), at(1));
        assert_eq!(cache.read().view().all_pods().count(), 0, "{field} = {value}");
        assert_eq!(cache.read().view().count(Kind::Pods).1, 1, "{field} = {value}");
    }
}

#[test]
fn a_kind_is_fresh_if_it_is_listed_and_had_contact_within_the_limit() {
    let limit = STALE_AFTER.as_secs();
    let contact_at_10 = || {
        let cache = listed();
        cache.record_event(Kind::Pods, at(10));
        cache
    };
    let stale = |elapsed| Err(FreshnessError::Stale { kind: Kind::Pods, silent: elapsed });
    for (what, cache, now, expected) in [
        ("never listed", Cache::default(), at(0), Err(FreshnessError::NotSynced { kind: Kind::Pods })),
        ("contact a moment ago", contact_at_10(), at(10), Ok(())),
        ("contact exactly at the limit", contact_at_10(), at(10 + limit), Ok(())),
        (
            "contact before the limit",
            contact_at_10(),
            at(10 + limit) + Duration::from_nanos(1),
            stale(STALE_AFTER + Duration::from_nanos(1)),
        ),
        ("contact long ago", contact_at_10(), at(100_000), stale(Duration::from_secs(100_000 - 10))),
    ] {
        let got = cache.read().view().check_fresh(Kind::Pods, now);
        assert_eq!(got, expected, "{what}");
    }
}

#[test]
fn a_kind_that_had_contact_but_no_complete_list_is_not_synced() {
    let cache = Cache::default();
    cache.record_event(Kind::Pods, at(1));
    let unfresh = cache.read().view().check_fresh(Kind::Pods, at(1)).unwrap_err();
    assert_eq!(unfresh, FreshnessError::NotSynced { kind: Kind::Pods });
}

#[test]
fn the_error_of_a_stale_kind_contains_the_time_since_contact() {
    let cache = listed();
    let unfresh = cache.read().view().check_fresh(Kind::Nodes, at(200)).unwrap_err();
    assert_eq!(unfresh, FreshnessError::Stale { kind: Kind::Nodes, silent: Duration::from_secs(200) });
}
