//! What a relist notifies, and which changes notify nothing.

use super::*;

#[test]
fn a_relist_notifies_of_removed_pods_by_uid() {
    let cache = listed();
    list::<Pod>(&cache, &[pod("a").on("n"), pod("b")], at(1));
    let changes = log_changes(&cache);
    list::<Pod>(&cache, &[pod("b")], at(2));
    assert_eq!(changes.drain(), ["pod uid-a@10 -> nothing", "listed pods"]);
    assert!(cache.read().view().pod(&uid("uid-a")).is_none());
    assert_eq!(cache.read().view().pods_on("n").count(), 0);
}

#[test]
fn a_recreated_pod_is_another_pod_and_the_old_one_is_removed() {
    let cache = listed();
    list::<Pod>(&cache, &[pod("a").uid("old")], at(1));
    let changes = log_changes(&cache);
    list::<Pod>(&cache, &[pod("a").uid("new").rv(20)], at(2));
    assert_eq!(changes.drain(), ["pod nothing -> new@20", "pod old@10 -> nothing", "listed pods"]);
}

#[test]
fn a_relist_removes_missing_nodes_and_leases() {
    let cache = listed();
    list::<Node>(&cache, &[node("n")], at(1));
    list::<NodeLease>(&cache, &[lease("n", 1)], at(1));
    let changes = log_changes(&cache);
    list::<Node>(&cache, &[], at(2));
    list::<NodeLease>(&cache, &[], at(2));
    assert_eq!(changes.drain(), ["node n", "listed nodes", "heartbeat n", "listed leases"]);
}

#[test]
fn an_incomplete_list_removes_nothing() {
    let cache = listed();
    list::<Pod>(&cache, &[pod("a"), pod("b")], at(1));
    cache.begin_list::<Pod>();
    apply::<Pod>(&cache, &pod("a"), at(2));
    assert_eq!(cache.read().view().all_pods().count(), 2);
    list::<Pod>(&cache, &[pod("b")], at(3));
    assert_eq!(uids(cache.read().view().all_pods()), [uid("uid-b")], "named by the broken list only");
}

#[test]
fn a_change_of_only_the_version_notifies_no_subscriber() {
    let cache = listed();
    list::<Pod>(&cache, &[pod("a").on("n")], at(1));
    list::<Node>(&cache, &[node("n")], at(1));
    list::<NodeLease>(&cache, &[lease("n", 1)], at(1));
    let changes = log_changes(&cache);
    apply::<Pod>(&cache, &pod("a").on("n").rv(11), at(2));
    apply::<Node>(&cache, &node("n").rv(11), at(2));
    apply::<NodeLease>(&cache, &lease("n", 1).rv(11), at(2));
    assert_eq!(changes.drain(), [""; 0]);
    assert_eq!(cache.read().view().pod(&uid("uid-a")).unwrap().rv.to_string(), "11", "but the version is kept");
}

#[test]
fn a_change_of_any_projected_field_notifies() {
    let base = || pod("a").on("n");
    for (what, changed) in [
        ("phase", base().phase("Failed")),
        ("running", base().running()),
        ("deletion", base().terminating()),
        ("mirror", base().mirror()),
        ("node", base().on("m")),
        ("generation", base().set("/metadata/generation", json!(4))),
        ("finalizers", base().set("/metadata/finalizers", json!(["f"]))),
        ("eviction", base().set("/status/reason", json!("Evicted"))),
    ] {
        let cache = listed();
        list::<Pod>(&cache, &[base()], at(1));
        let changes = log_changes(&cache);
        apply::<Pod>(&cache, &changed.rv(11), at(2));
        assert_eq!(changes.drain(), ["pod uid-a@10 -> uid-a@11"], "{what}");
    }
    for (what, changed) in [("readiness", node("n").ready("True")), ("taint", node("n").tainted())] {
        let cache = listed();
        list::<Node>(&cache, &[node("n")], at(1));
        let changes = log_changes(&cache);
        apply::<Node>(&cache, &changed, at(2));
        assert_eq!(changes.drain(), ["node n"], "{what}");
    }
}
