//! Volumes: their users, their holders, and the kubelet's report when a use ended.

use crate::LastUse;
use crate::model::{Attachment, FenceEvidenceObject, LeaseHolder, VOLUME_GATE};

use super::*;

fn volume(name: &str) -> Obj {
    objects::volume(name, &["ReadWriteOnce"])
}

fn claim(name: &str, id: &str, volume: Option<&str>) -> Obj {
    objects::claim(name, volume).uid(id)
}

fn lease(volume: &str, holder: &str) -> Obj {
    objects::volume_lease(volume, Some(holder))
}

fn user(name: &str, node: &str, claim: &str) -> Obj {
    pod(name).on(node).using_claim(claim)
}

/// A volume `v` by the claim `c`, used by `a` on `n`, which holds it.
fn used() -> Cache {
    let cache = listed();
    cache.enable_volume_guard();
    list::<Node>(&cache, &[node("n")], at(1));
    list::<Volume>(&cache, &[volume("v")], at(1));
    list::<VolumeClaim>(&cache, &[claim("c", "uid-c", Some("v"))], at(1));
    list::<VolumeLease>(&cache, &[lease("v", "n/uid-n/b/uid-a")], at(1));
    apply::<Pod>(&cache, &user("a", "n", "c").running(), at(1));
    cache
}

fn users(cache: &Cache) -> Vec<Uid> {
    uids(cache.read().view().pods_using("v"))
}

fn last_use(cache: &Cache) -> Option<LastUse> {
    cache.read().view().last_use("v", "n")
}

#[test]
fn pod_claim_and_volume_are_joined_in_any_order() {
    let cache = listed();
    cache.enable_volume_guard();
    apply::<Pod>(&cache, &user("a", "n", "c"), at(1));
    assert_eq!(users(&cache), []);
    let changes = log_changes(&cache);
    apply::<VolumeClaim>(&cache, &claim("c", "uid-c", None), at(1));
    apply::<VolumeClaim>(&cache, &claim("c", "uid-c", Some("v")), at(1));
    assert_eq!(users(&cache), [uid("uid-a")]);
    apply::<Volume>(&cache, &volume("v"), at(1));
    assert_eq!(changes.drain(), ["volume v, awaited by 0", "volume v, awaited by 0"]);
    assert!(matches!(cache.read().view().volume("v"), Lookup::Known(_)));
}

#[test]
fn a_recreated_claim_is_another_claim() {
    let cache = used();
    list::<VolumeClaim>(&cache, &[claim("c", "uid-new", Some("w"))], at(2));
    assert_eq!(users(&cache), []);
    assert_eq!(uids(cache.read().view().pods_using("w")), [uid("uid-a")]);
    list::<VolumeClaim>(&cache, &[], at(3));
    assert_eq!(cache.read().view().pods_using("w").count(), 0);
}

#[test]
fn claims_of_pods_are_kept_only_if_the_volume_guard_is_enabled() {
    let cache = listed();
    apply::<Pod>(&cache, &user("a", "n", "c"), at(1));
    assert!(cache.read().view().pod(&uid("uid-a")).unwrap().claims.is_empty());
}

#[test]
fn which_reports_of_a_kubelet_end_a_use() {
    let cache = used();
    assert_eq!(last_use(&cache), None);
    cache.remove::<Pod>(&uid("uid-a"), at(2));
    assert_eq!(last_use(&cache), Some(LastUse { at: at(2), report: UseReport::None }), "it ran when it was last seen");
    let cache = used();
    apply::<Pod>(&cache, &user("a", "n", "c").phase("Failed"), at(2));
    cache.remove::<Pod>(&uid("uid-a"), at(3));
    assert_eq!(last_use(&cache), Some(LastUse { at: at(2), report: UseReport::Terminated }), "it was not deleted");
    let cache = used();
    let dying = user("a", "n", "c").terminating().set("/metadata/deletionGracePeriodSeconds", json!(30));
    apply::<Pod>(&cache, &dying.phase("Failed"), at(2));
    assert_eq!(last_use(&cache), None, "its kubelet removes it when it has unmounted its volumes");
    cache.remove::<Pod>(&uid("uid-a"), at(3));
    assert_eq!(last_use(&cache), Some(LastUse { at: at(3), report: UseReport::Unmounted }));
    // A removed attachment is no report: attachments are also force deleted. The kubelet's report on the pod counts.
    let cache = used();
    let attachment = Obj(json!({ "metadata": { "name": "x", "uid": "uid-x", "resourceVersion": "10" },
        "spec": { "nodeName": "n", "source": { "persistentVolumeName": "v" } } }));
    apply::<Attachment>(&cache, &attachment, at(2));
    cache.remove::<Attachment>(&uid("uid-x"), at(2));
    assert_eq!(last_use(&cache), None);
    apply::<Attachment>(&cache, &attachment, at(3));
    cache.remove::<Pod>(&uid("uid-a"), at(3));
    cache.remove::<Attachment>(&uid("uid-x"), at(4));
    assert_eq!(last_use(&cache), Some(LastUse { at: at(4), report: UseReport::None }));
}

#[test]
fn an_unmounted_volume_counts_for_every_pod_of_the_node() {
    let cache = used();
    let mounted = |names: &[&str]| node("n").set("/status/volumesInUse", json!(names));
    apply::<Node>(&cache, &mounted(&["kubernetes.io/csi/d^v"]).rv(11), at(2));
    cache.remove::<Pod>(&uid("uid-a"), at(3));
    apply::<Node>(&cache, &mounted(&[]).rv(12), at(4));
    assert_eq!(last_use(&cache), Some(LastUse { at: at(4), report: UseReport::Unmounted }));
}

#[test]
fn a_removed_node_has_unmounted_nothing() {
    let cache = used();
    apply::<Node>(&cache, &node("n").set("/status/volumesInUse", json!(["kubernetes.io/csi/d^v"])).rv(11), at(2));
    cache.remove::<Pod>(&uid("uid-a"), at(3));
    let removed = last_use(&cache);
    cache.remove::<Node>(&uid("uid-n"), at(4));
    assert_eq!(last_use(&cache), removed);
    assert_eq!(removed.map(|left| left.report), Some(UseReport::None));
}

#[test]
fn the_least_report_of_two_pods_counts() {
    let cache = used();
    apply::<Pod>(&cache, &user("b", "n", "c").running(), at(1));
    cache.remove::<Pod>(&uid("uid-a"), at(2));
    let dying = user("b", "n", "c").terminating().set("/metadata/deletionGracePeriodSeconds", json!(30));
    apply::<Pod>(&cache, &dying.phase("Failed").rv(12), at(3));
    cache.remove::<Pod>(&uid("uid-b"), at(4));
    assert_eq!(last_use(&cache), Some(LastUse { at: at(4), report: UseReport::None }));
}

#[test]
fn a_new_holder_does_not_inherit_the_last_use_of_the_former() {
    let cache = used();
    apply::<Pod>(&cache, &user("a", "n", "c").phase("Failed"), at(2));
    assert!(last_use(&cache).is_some());
    apply::<VolumeLease>(&cache, &lease("v", "n/uid-n/b/uid-other").rv(11), at(3));
    assert_eq!(last_use(&cache), None);
    let cache = used();
    let seen = |cache: &Cache| cache.read().view().volume_lease("v").unwrap().holder_since;
    apply::<VolumeLease>(&cache, &lease("v", "n/uid-n/b/uid-a").rv(11), at(3));
    assert_eq!(seen(&cache), at(1), "the same holder");
}

#[test]
fn a_node_that_is_named_only_by_a_volume_lease_is_missing() {
    let cache = used();
    cache.remove::<Pod>(&uid("uid-a"), at(2));
    cache.remove::<Node>(&uid("uid-n"), at(2));
    assert!(cache.read().view().absence("n").is_some());
    apply::<VolumeLease>(&cache, &lease("v", "").rv(11), at(3));
    assert_eq!(cache.read().view().volume_lease("v").unwrap().holder, LeaseHolder::Free);
    apply::<Pod>(&cache, &pod("z").on("n"), at(4));
    cache.remove::<Pod>(&uid("uid-z"), at(4));
    assert!(cache.read().view().absence("n").is_none(), "nothing names it any more");
}

/// Changes of nodes that use the volume without holding it matter, too. A volume that no other node could attach
/// stayed so for minutes after the node of the next pod was Ready again.
#[test]
fn bug_a_node_change_notified_only_volumes_that_the_node_held() {
    let cache = used();
    list::<Node>(&cache, &[node("n"), node("m").ready("True")], at(2));
    apply::<Pod>(&cache, &user("b", "m", "c"), at(2));
    let changes = log_changes(&cache);
    apply::<Node>(&cache, &node("m").ready("Unknown").rv(20), at(3));
    assert_eq!(changes.drain(), ["node m", "volume v, awaited by 0"]);
    apply::<Node>(&cache, &node("m").ready("Unknown").rv(21), at(4));
    assert_eq!(changes.drain(), [""; 0], "nothing is new");
    cache.remove::<Node>(&uid("uid-m"), at(5));
    assert_eq!(changes.drain(), ["node m", "volume v, awaited by 0"]);
}

#[test]
fn readable_objects_of_each_volume_kind_are_found() {
    let cache = used();
    cache.enable_budgets();
    apply::<Budget>(&cache, &objects::budget("b", "db", &json!({})), at(2));
    apply::<Pod>(&cache, &pod("waits").set("/spec/schedulingGates", json!([{ "name": VOLUME_GATE }])), at(2));
    let guard = cache.read();
    let view = guard.view();
    assert_eq!(view.budgets().map(|budget| budget.key.uid.clone()).collect::<Vec<_>>(), [uid("uid-b")]);
    assert_eq!(view.volume_names().map(|name| &**name).collect::<Vec<_>>(), ["v"]);
    assert_eq!(uids(view.gated()), [uid("uid-waits")]);
}

#[test]
fn a_volume_entry_is_dropped_with_the_last_object_that_names_it() {
    let cache = used();
    let names = || cache.read().view().volume_names().count();
    cache.remove::<Volume>(&uid("uid-v"), at(2));
    cache.remove::<VolumeLease>(&uid("uid-lease-v"), at(2));
    assert_eq!(names(), 1, "a claim is bound to it");
    cache.remove::<VolumeClaim>(&uid("uid-c"), at(2));
    assert_eq!(names(), 0);
    apply::<VolumeLease>(&cache, &lease("v", "n/uid-n/b/uid-a"), at(3));
    apply::<VolumeLease>(&cache, &lease("v", "n/uid-n/b/uid-a").uid("uid-again"), at(3));
    cache.remove::<VolumeLease>(&uid("uid-lease-v"), at(4));
    assert!(cache.read().view().volume_lease("v").is_some(), "it was made again before the end of the first was seen");
}

/// The holder's own pod, and other pods that may still write from its node.
#[test]
fn a_volume_is_used_on_a_missing_node_only_by_pods_of_that_node() {
    let holder = Holder { node: "n".into(), node_uid: uid("uid-n"), boot_id: "b".into(), pod: None };
    let on_missing = |cache: &Cache| cache.read().view().is_used_on_missing_node("v", &holder);
    let cache = used();
    assert!(on_missing(&cache));
    apply::<Pod>(&cache, &user("a", "n", "c").phase("Failed"), at(2));
    assert!(!on_missing(&cache), "it ended");
    apply::<Pod>(&cache, &user("b", "m", "c").running(), at(3));
    assert!(!on_missing(&cache), "the other is elsewhere");
}

#[test]
fn a_removed_attachment_ends_a_use_only_if_no_pod_of_the_node_uses_the_volume() {
    let cache = used();
    apply::<Pod>(&cache, &user("b", "m", "c"), at(2));
    cache.remove::<Pod>(&uid("uid-a"), at(2));
    let attachment = Obj(json!({ "metadata": { "name": "x", "uid": "uid-x", "resourceVersion": "10" },
        "spec": { "nodeName": "l", "source": { "persistentVolumeName": "v" } } }));
    apply::<Attachment>(&cache, &attachment, at(3));
    cache.remove::<Attachment>(&uid("uid-x"), at(4));
    let last_use = cache.read().view().last_use("v", "l");
    assert_eq!(last_use, Some(LastUse { at: at(4), report: UseReport::None }), "its pods are on other nodes");
}

#[test]
fn evidence_about_a_node_notifies_the_volumes_that_it_holds() {
    let cache = used();
    cache.enable_fencing();
    let changes = log_changes(&cache);
    apply::<FenceEvidenceObject>(&cache, &objects::evidence("e", "n", "b", "PowerOff"), at(2));
    assert_eq!(changes.drain(), ["fencing of n", "volume v, awaited by 0"]);
}

#[test]
fn an_unchanged_claim_notifies_nothing() {
    let cache = used();
    let changes = log_changes(&cache);
    apply::<VolumeClaim>(&cache, &claim("c", "uid-c", Some("v")).rv(2), at(2));
    assert_eq!(changes.drain(), [""; 0]);
}

/// KCM's pod garbage collector removed the pod while its kubelet terminated it, and the volume had no user any more.
#[test]
fn bug_a_pod_removed_before_it_terminated_did_not_use_its_volume() {
    let holder = Holder { node: "n".into(), node_uid: uid("uid-n"), boot_id: "b".into(), pod: None };
    let graced = |own: i64| user("a", "n", "c").running().set("/spec/terminationGracePeriodSeconds", json!(own));
    let dying =
        |own: i64, grace: i64| graced(own).terminating().set("/metadata/deletionGracePeriodSeconds", json!(grace));
    let over = || dying(60, 60).phase("Failed").set("/status/containerStatuses", json!([]));
    for (what, pod, proved, ends) in [
        ("without a grace of its own", user("a", "n", "c").running(), false, Some(33)),
        ("with its own grace", graced(600), false, Some(603)),
        ("whose kubelet may not know of the deletion", dying(60, 60), false, Some(63)),
        ("that is to end at once, and whose kubelet may not know", dying(600, 0), false, Some(603)),
        ("whose kubelet reports generations, and not this one", dying(600, 60).observed(2), false, Some(603)),
        ("whose kubelet knows", dying(600, 60).observed(3), false, Some(62)),
        ("of which its kubelet reported the end", over(), false, None),
        ("of which there is evidence", dying(600, 600), true, None),
        ("whose kubelet may be busy with it", dying(60, 60).starting(), false, None),
    ] {
        let cache = used();
        cache.remove::<Node>(&uid("uid-n"), at(2));
        apply::<Pod>(&cache, &pod.rv(11), at(2));
        if proved {
            cache.record_proved_terminated(&uid("uid-a"));
        }
        cache.remove::<Pod>(&uid("uid-a"), at(3));
        let terminates_at = cache.read().view().removed_pods_terminate_at("v", &holder);
        assert_eq!(terminates_at, ends.map(at), "a pod {what}");
        let used = cache.read().view().is_used_on_missing_node("v", &holder);
        assert_eq!(used, what.contains("busy"), "a pod {what}");
        assert!(cache.inner.read().proved_terminated.is_empty(), "a pod {what}");
    }
}

#[test]
fn one_removed_pod_that_may_run_delays_the_volume_of_a_missing_node() {
    let cache = used();
    apply::<Pod>(&cache, &user("b", "n", "c").running(), at(1));
    cache.remove::<Node>(&uid("uid-n"), at(2));
    cache.remove::<Pod>(&uid("uid-a"), at(3));
    cache.set_unreachable_before_node_deleted("n");
    cache.remove::<Pod>(&uid("uid-b"), at(4));
    assert!(cache.read().view().last_termination_on_missing_node("v").is_some());
}

#[test]
fn the_last_removed_pod_to_terminate_keeps_the_volume_of_a_missing_node() {
    let holder = Holder { node: "n".into(), node_uid: uid("uid-n"), boot_id: "b".into(), pod: None };
    let graced = user("a", "n", "c").running().set("/spec/terminationGracePeriodSeconds", json!(600));
    for (what, first, ends, uses) in [
        ("has the longer grace", graced, Some(at(603)), false),
        ("may be worked on by its kubelet", user("a", "n", "c").running().starting(), None, true),
        ("is of a kubelet that started", user("a", "n", "c").running(), None, true),
    ] {
        let cache = used();
        if what.contains("started") {
            [1, 2].into_iter().for_each(|second| apply::<NodeLease>(&cache, &super::lease("n", second), at(1)));
        }
        apply::<Pod>(&cache, &user("b", "n", "c").running(), at(1));
        apply::<Pod>(&cache, &first.rv(11), at(1));
        cache.remove::<Node>(&uid("uid-n"), at(2));
        cache.remove::<Pod>(&uid("uid-a"), at(3));
        cache.remove::<Pod>(&uid("uid-b"), at(4));
        let guard = cache.read();
        let view = guard.view();
        let state = (view.removed_pods_terminate_at("v", &holder), view.is_used_on_missing_node("v", &holder));
        assert_eq!(state, (ends, uses), "the first {what}");
        let last = view.last_termination_on_missing_node("v").map(|(_, end)| end);
        assert_eq!(last, Some(ends), "the first {what}");
    }
}

#[test]
fn each_missing_node_keeps_a_volume_until_its_own_removed_pods_terminate() {
    let cache = used();
    let graced = user("a", "n", "c").running().set("/spec/terminationGracePeriodSeconds", json!(600));
    apply::<Pod>(&cache, &graced.rv(11), at(1));
    apply::<Pod>(&cache, &user("b", "m", "c").running(), at(1));
    ["uid-a", "uid-b"].iter().for_each(|id| cache.remove::<Pod>(&uid(id), at(3)));
    cache.remove::<Node>(&uid("uid-n"), at(4));
    let holder = |node: &str| Holder { node: node.into(), node_uid: uid("uid-n"), boot_id: "b".into(), pod: None };
    let guard = cache.read();
    let ends = ["m", "n"].map(|node| guard.view().removed_pods_terminate_at("v", &holder(node)));
    assert_eq!(ends, [Some(at(33)), Some(at(603))]);
    let last = guard.view().last_termination_on_missing_node("v").map(|(node, end)| (&**node, end));
    assert_eq!(last, Some(("n", Some(at(603)))));
}

#[test]
fn evidence_of_termination_is_kept_while_the_pod_exists_if_volumes_are_guarded() {
    let unguarded = listed();
    apply::<Pod>(&unguarded, &pod("a").on("n"), at(1));
    for (what, cache, ended, kept) in [
        ("a pod that uses a volume", used(), "uid-a", 1),
        ("a pod that was removed before", used(), "uid-gone", 0),
        ("no volume is guarded", unguarded, "uid-a", 0),
    ] {
        cache.record_proved_terminated(&uid(ended));
        assert_eq!(cache.inner.read().proved_terminated.len(), kept, "{what}");
    }
}

/// The cache may list Leases before nodes.
#[test]
fn a_holder_without_a_node_is_missing_from_the_first_list_of_nodes() {
    let cache = Cache::default();
    cache.enable_volume_guard();
    list::<VolumeLease>(&cache, &[lease("v", "n/uid-n/b/uid-a")], at(1));
    let since = || cache.read().view().absence("n").map(|absence| absence.since);
    assert_eq!(since(), None);
    list::<Node>(&cache, &[], at(5));
    assert_eq!(since(), Some(at(5)));
}

/// The claim may be removed before the pod, or be created again.
#[test]
fn the_pod_of_a_volume_lease_uses_the_volume_even_without_its_claim() {
    let pod = Some(uid("uid-a"));
    let holder = Holder { node: "n".into(), node_uid: uid("uid-n"), boot_id: "b".into(), pod };
    let cache = used();
    cache.remove::<Node>(&uid("uid-n"), at(2));
    cache.remove::<VolumeClaim>(&uid("uid-c"), at(2));
    assert!(cache.read().view().is_used_on_missing_node("v", &holder));
    cache.remove::<Pod>(&uid("uid-a"), at(3));
    assert_eq!(cache.read().view().removed_pods_terminate_at("v", &holder), Some(at(33)));
}

/// Evidence was found, and the force delete failed. Then the kubelet reported, and after that another client removed
/// the pod.
#[test]
fn bug_a_pod_counted_as_terminated_after_its_kubelet_reported_again() {
    let holder = Holder { node: "n".into(), node_uid: uid("uid-n"), boot_id: "b".into(), pod: None };
    let world = World::listed();
    world.put(Kind::Volumes, objects::volume("v", &["ReadWriteOnce"]), at(0));
    world.put(Kind::Claims, objects::claim("c", Some("v")), at(0));
    let dying = |version: u64| {
        let dying = pod("a").on("n").using_claim("c").running().terminating().rv(version);
        let grace = |dying: Obj, field: &str| dying.set(field, json!(600));
        grace(grace(dying, "/spec/terminationGracePeriodSeconds"), "/metadata/deletionGracePeriodSeconds")
    };
    world.apply(Kind::Pods, &dying(11), at(1));
    crate::CacheWriter::record_proved_terminated(&**world.cache(), &uid("uid-a"));
    world.apply(Kind::Pods, &dying(50).observed(9), at(2));
    world.remove(Kind::Pods, "uid-a", at(3));
    let ends = world.read().view().removed_pods_terminate_at("v", &holder);
    assert!(ends.is_some(), "its processes have their grace still");
}
