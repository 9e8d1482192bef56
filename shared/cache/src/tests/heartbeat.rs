//! What counts as a report of a kubelet.

use super::*;

type HeartbeatAt = Option<(ReportKind, Mono)>;

fn last_heartbeat(cache: &Cache) -> HeartbeatAt {
    cache.read().view().last_heartbeat("n").map(|heartbeat| (heartbeat.kind, heartbeat.at))
}

fn renewed(seconds: u64) -> HeartbeatAt {
    Some((ReportKind::LeaseRenewed, at(seconds)))
}

/// The Lease of `n` was in the first list, at second 1.
fn cache_with_lease() -> Cache {
    let cache = Cache::default();
    list::<NodeLease>(&cache, &[lease("n", 1)], at(1));
    cache
}

/// Another Lease of the node, created at this second.
fn lease_created(node: &str, second: u64) -> Obj {
    lease(node, second).uid("another").set("/metadata/creationTimestamp", json!(timestamp(second)))
}

#[test]
fn which_changes_of_a_lease_count_as_a_report() {
    type Act = fn(&Cache);
    let rows: [(&str, HeartbeatAt, Act); 13] = [
        ("its Lease was in the first list", None, |_| ()),
        ("its Lease was renewed", renewed(5), |cache| apply::<NodeLease>(cache, &lease("n", 2), at(5))),
        ("its Lease was set back", renewed(5), |cache| apply::<NodeLease>(cache, &lease("n", 0), at(5))),
        ("another client wrote its Lease without a renewal", None, |cache| {
            apply::<NodeLease>(cache, &lease("n", 1).rv(9), at(5))
        }),
        ("its Lease lost its renewal time", renewed(5), |cache| {
            apply::<NodeLease>(cache, &lease("n", 1).set("/spec/renewTime", json!(null)), at(5))
        }),
        ("its Lease was made again with the same time", renewed(5), |cache| {
            cache.remove::<NodeLease>(&uid("lease-n"), at(4));
            apply::<NodeLease>(cache, &lease("n", 1).uid("another"), at(5));
        }),
        ("a relist found its Lease renewed", renewed(5), |cache| list::<NodeLease>(cache, &[lease("n", 2)], at(5))),
        ("a relist found its Lease unchanged", None, |cache| list::<NodeLease>(cache, &[lease("n", 1)], at(5))),
        ("its Lease was deleted", None, |cache| cache.remove::<NodeLease>(&uid("lease-n"), at(5))),
        ("its Lease became unreadable", renewed(5), |cache| {
            cache.apply_undecodable::<NodeLease>(unreadable(Some("lease-n"), Some("n")), at(5))
        }),
        ("bug: its Lease was unreadable and can be read again, renewed or not", renewed(6), |cache| {
            cache.apply_undecodable::<NodeLease>(unreadable(Some("lease-n"), Some("n")), at(5));
            apply::<NodeLease>(cache, &lease("n", 2), at(6));
        }),
        ("the Lease of another node was renewed", None, |cache| apply::<NodeLease>(cache, &lease("m", 2), at(5))),
        ("its Node appeared", None, |cache| apply::<Node>(cache, &node("n").ready("True"), at(2))),
    ];
    for (what, expected, act) in rows {
        let cache = cache_with_lease();
        act(&cache);
        assert_eq!(last_heartbeat(&cache), expected, "{what}");
    }
}

/// Its kubelet may have renewed it before it was removed; before a deletion on the watch every renewal is delivered.
#[test]
fn bug_a_lease_removed_between_a_watch_and_a_relist_counted_as_not_renewed() {
    let cache = cache_with_lease();
    list::<NodeLease>(&cache, &[], at(5));
    assert_eq!(last_heartbeat(&cache), renewed(5));
    let cache = cache_with_lease();
    cache.apply_undecodable::<NodeLease>(unreadable(Some("lease-n"), Some("n")), at(4));
    list::<NodeLease>(&cache, &[], at(5));
    assert_eq!(last_heartbeat(&cache), renewed(5), "one that could not be read too");
}

#[test]
fn a_lease_created_after_the_first_list_is_a_report() {
    let cache = Cache::default();
    list::<NodeLease>(&cache, &[], at(1));
    apply::<NodeLease>(&cache, &lease("n", 1), at(5));
    assert_eq!(last_heartbeat(&cache), renewed(5));
}

#[test]
fn the_renewal_of_a_deleted_lease_is_pruned_after_ten_minutes() {
    let cache = cache_with_lease();
    apply::<NodeLease>(&cache, &lease("n", 2), at(5));
    cache.prune(at(1_000_000));
    assert_eq!(last_heartbeat(&cache), renewed(5), "its Lease is there");
    cache.remove::<NodeLease>(&uid("lease-n"), at(6));
    cache.prune(at(600));
    assert_eq!(last_heartbeat(&cache), renewed(5));
    cache.prune(at(606));
    assert_eq!(last_heartbeat(&cache), None);
}

#[test]
fn a_renewal_notifies_and_an_unchanged_lease_does_not() {
    let cache = cache_with_lease();
    let changes = log_changes(&cache);
    apply::<NodeLease>(&cache, &lease("n", 1).rv(9), at(2));
    apply::<NodeLease>(&cache, &lease("n", 2), at(3));
    assert_eq!(changes.drain(), ["heartbeat n"]);
}

/// Fields that only a kubelet writes, and fields that other clients write, too. A kubelet before Kubernetes 1.34
/// reported that a container had terminated which it had never reported running: no count of running containers
/// changed, so the node's other pods were released. Another reported the end of the main container beside a sidecar.
#[test]
fn a_pod_status_by_its_kubelet_is_a_report_and_writes_of_others_are_not() {
    let a = || pod("a").on("n");
    let reports = |state: &str, restarts: u32| {
        a().set("/status/containerStatuses", json!([{ "state": { state: {} }, "restartCount": restarts }]))
    };
    let beside =
        |state: &str| reports(state, 0).set("/status/initContainerStatuses", json!([{ "state": { "running": {} } }]));
    for (what, before, after, is_sign) in [
        ("it appears", pod("x").on("n"), a().running(), false),
        ("a container starts", a(), a().running(), true),
        ("a container ends", a().running(), a(), true),
        ("it turns ready", a().ready("False"), a().ready("True"), true),
        ("node lifecycle calls it unready", a().ready("True"), a().ready("False"), false),
        ("its deletion was seen", a().observed(2), a().terminating().observed(3), true),
        ("it is deleted", a().observed(2), a().terminating().observed(2), false),
        ("another client sets the phase Failed", a().observed(2), a().phase("Failed").observed(3), false),
        ("its labels change", a(), a().labels(json!({ "a": "b" })), false),
        ("it is bound", pod("a"), a().running(), false),
        ("nothing", a().running().observed(3), a().running().observed(3), false),
        ("bug: a container is there", a(), reports("waiting", 0), true),
        ("bug: a container ran between two reports", a(), reports("terminated", 0), true),
        ("bug: it ran after it waited", reports("waiting", 0), reports("terminated", 0), true),
        ("bug: it waits again", reports("terminated", 0), reports("waiting", 0), true),
        ("bug: it was restarted", reports("running", 1), reports("running", 2), true),
        ("bug: it waits on", reports("waiting", 1), reports("waiting", 1), false),
        ("bug: a container ended beside a running one", beside("running"), beside("terminated"), true),
        ("bug: a container started beside a running one", beside("terminated"), beside("running"), true),
    ] {
        let cache = listed();
        apply::<Pod>(&cache, &before, at(5));
        apply::<Pod>(&cache, &after.rv(11), at(9));
        assert_eq!(last_heartbeat(&cache), is_sign.then_some((ReportKind::PodReported, at(9))), "{what}");
    }
}

#[test]
fn the_later_of_two_reports_counts() {
    let cache = cache_with_lease();
    apply::<Pod>(&cache, &pod("a").on("n"), at(4));
    apply::<NodeLease>(&cache, &lease("n", 2), at(5));
    apply::<Pod>(&cache, &pod("a").on("n").rv(11).running(), at(6));
    assert_eq!(last_heartbeat(&cache), Some((ReportKind::PodReported, at(6))));
    apply::<NodeLease>(&cache, &lease("n", 3), at(7));
    assert_eq!(last_heartbeat(&cache), renewed(7));
}

#[test]
fn bug_a_change_of_the_last_pod_of_a_node_dropped_its_last_report() {
    let cache = listed();
    apply::<Pod>(&cache, &pod("a").on("n"), at(1));
    apply::<Pod>(&cache, &pod("b").on("n"), at(4));
    apply::<Pod>(&cache, &pod("b").on("n").rv(11).running(), at(5));
    cache.remove::<Pod>(&uid("uid-b"), at(6));
    apply::<Pod>(&cache, &pod("a").on("n").rv(11), at(7));
    assert_eq!(last_heartbeat(&cache), Some((ReportKind::PodReported, at(5))));
    cache.remove::<Pod>(&uid("uid-a"), at(8));
    assert_eq!(last_heartbeat(&cache), None, "no pod names the node any more");
}

/// The record of a deleted Lease was pruned after ten minutes: with a longer quarantine the renewal was lost.
#[test]
fn bug_a_renewal_was_pruned_before_the_end_of_a_long_quarantine() {
    let cache = listed();
    apply::<Pod>(&cache, &pod("a").on("n"), at(1));
    apply::<NodeLease>(&cache, &lease("n", 1), at(4));
    apply::<NodeLease>(&cache, &lease("n", 2), at(5));
    cache.remove::<NodeLease>(&uid("lease-n"), at(6));
    cache.prune(at(6_000));
    assert_eq!(last_heartbeat(&cache), renewed(5), "a pod names the node, which is missing");
    cache.remove::<Pod>(&uid("uid-a"), at(6_001));
    cache.prune(at(6_002));
    assert_eq!(last_heartbeat(&cache), None);
}

/// How long a kubelet did not report before its Node was deleted, as this process saw it.
#[test]
fn a_kubelet_is_unreachable_only_after_a_whole_lease_duration_was_observed() {
    let ready = |status: &str, rv: u64, second: u64| (Kind::Nodes, node("n").ready(status).rv(rv), second);
    let seen = |second: u64| ready("Unknown", 5, second);
    let renewed = |renewed: u64, second: u64| (Kind::NodeLeases, lease("n", renewed), second);
    let brief = (Kind::NodeLeases, lease("n", 1).set("/spec/leaseDurationSeconds", json!(8)), 1);
    let report = (Kind::Pods, pod("a").on("n").rv(11).running(), 30);
    for (what, before, gone, expected) in [
        ("the Node was never seen", vec![], 60, false),
        ("no report for 54 s", vec![seen(10)], 64, false),
        ("no report for 55 s", vec![seen(10)], 65, true),
        ("it renewed 54 s before", vec![seen(1), renewed(1, 1), renewed(2, 11)], 65, false),
        ("it renewed 55 s before", vec![seen(1), renewed(1, 1), renewed(2, 10)], 65, true),
        ("no report for 22 s, with a lease duration of 8 s", vec![seen(1), brief.clone()], 23, false),
        ("no report for 23 s, with a lease duration of 8 s", vec![seen(1), brief], 24, true),
        ("it reported on a pod", vec![seen(1), report], 65, false),
        ("its Node reported", vec![seen(1), ready("True", 20, 30)], 65, false),
        ("its Node reported after its Lease", vec![seen(1), renewed(1, 5), ready("True", 20, 30)], 65, false),
        ("the Ready condition became Unknown", vec![ready("True", 5, 1), ready("Unknown", 20, 30)], 65, true),
    ] {
        let world = World::listed();
        (0..gone).step_by(10).for_each(|second| world.confirm_all(at(second)));
        let unreachable = || world.read().view().unreachable_before_node_deleted("n");
        world.apply(Kind::Pods, &pod("a").on("n"), at(0));
        world.apply(Kind::NodeLeases, &lease("n", 0), at(0));
        before.iter().for_each(|(kind, object, second)| world.apply(*kind, object, at(*second)));
        assert!(!unreachable(), "{what}: its Node is there");
        world.remove(Kind::Nodes, "uid-n", at(gone));
        assert_eq!(unreachable(), expected, "{what}");
        world.apply(Kind::NodeLeases, &lease("n", 40), at(gone + 1));
        assert!(!unreachable(), "{what}, and its Lease was written after its Node went");
    }
}

/// A leader that was cut off from the API server for 18 s saw the deletion of a Node late, and counted its own gap as
/// missing reports of the kubelet. The pods of a running kubelet were force deleted without a shutdown signal.
#[test]
fn bug_a_gap_of_the_watch_counted_as_missing_reports_of_the_kubelet() {
    for (what, events, expected) in [
        ("an event each ten seconds", &[0, 10, 20, 30, 40, 50, 60, 70][..], true),
        ("a gap of 18 s at the end", &[0, 10, 20, 30, 40, 52], false),
        ("a gap of 18 s, then an event", &[0, 10, 20, 30, 40, 52, 70], false),
        ("a gap before, and then no gap for long enough", &[0, 16, 30, 40, 50, 60, 71], true),
        ("a gap before, and then no gap for less than that", &[0, 17, 30, 40, 50, 60, 71], false),
    ] {
        let world = World::listed();
        world.apply(Kind::Pods, &pod("a").on("n"), at(0));
        world.apply(Kind::Nodes, &node("n"), at(0));
        world.apply(Kind::NodeLeases, &lease("n", 0), at(0));
        events.iter().for_each(|second| world.confirm_all(at(*second)));
        world.remove(Kind::Nodes, "uid-n", at(71));
        assert_eq!(world.read().view().unreachable_before_node_deleted("n"), expected, "{what}");
    }
}

/// The watch of Nodes hung while that of Leases went on: the Lease was collected with its Node, and the kubelet had
/// nothing to renew any more.
#[test]
fn bug_time_after_a_lease_was_collected_counted_as_missing_reports() {
    for (collected, expected) in [(54, false), (55, true), (200, true)] {
        let world = World::listed();
        world.apply(Kind::Pods, &pod("a").on("n"), at(0));
        world.apply(Kind::Nodes, &node("n"), at(0));
        world.apply(Kind::NodeLeases, &lease("n", 1), at(0));
        (0..200).step_by(10).for_each(|second| world.confirm_all(at(second)));
        if collected < 200 {
            world.remove(Kind::NodeLeases, "lease-n", at(collected));
        }
        world.remove(Kind::Nodes, "uid-n", at(200));
        let unreachable = world.read().view().unreachable_before_node_deleted("n");
        assert_eq!(unreachable, expected, "collected at {collected} s");
    }
}

/// A relist that lacks the Node: reports between the watches are unknown.
#[test]
fn a_node_removed_during_a_relist_was_not_unreachable_before() {
    let cache = listed();
    apply::<Pod>(&cache, &pod("a").on("n"), at(0));
    apply::<Node>(&cache, &node("n"), at(1));
    list::<Node>(&cache, &[], at(500));
    assert!(!cache.read().view().unreachable_before_node_deleted("n"));
}

/// The list of Leases came seconds after that of Nodes, and contained a renewal of these seconds. The kubelet counted
/// as unreachable from the list of Nodes on, and was marked Unknown after 46 s instead of 50.
#[test]
fn bug_a_kubelet_counted_as_unreachable_before_its_lease_was_listed() {
    let world = World::listed_except(&[Kind::NodeLeases]);
    world.apply(Kind::Nodes, &node("n"), at(1));
    let last_report = || {
        let guard = world.read();
        let Lookup::Known(node) = guard.view().node("n") else { panic!("the Node is there") };
        guard.view().last_report(node)
    };
    assert_eq!(last_report(), at(1));
    world.apply(Kind::NodeLeases, &lease("n", 1), at(5));
    world.mark_listed(Kind::NodeLeases, at(6));
    assert_eq!(last_report(), at(5), "what was renewed until now is not known");
    assert_eq!(world.read().view().renewal("n"), None, "and is no report");
    world.apply(Kind::NodeLeases, &lease("n", 1), at(7));
    assert_eq!(last_report(), at(5), "nothing is new");
    world.apply(Kind::NodeLeases, &lease("n", 2), at(8));
    assert_eq!(last_report(), at(8));
}

/// It held back its node's pods for ever: the removal of a Lease must have been seen before its absence counts.
#[test]
fn bug_the_removal_of_an_unreadable_lease_was_not_recorded() {
    let cache = cache_with_lease();
    let gone = |cache: &Cache| cache.read().view().lease_is_gone("n");
    cache.apply_undecodable::<NodeLease>(unreadable(Some("lease-n"), Some("n")), at(5));
    assert!(!gone(&cache));
    cache.remove::<NodeLease>(&uid("lease-n"), at(6));
    assert!(gone(&cache));
    assert_eq!(last_heartbeat(&cache), renewed(5), "its last writer was running");
    cache.prune(at(700));
    assert_eq!(last_heartbeat(&cache), None);
}

/// For example a virtual node: no Lease, and a status once a minute. Nothing shows that it would have reported within
/// 40 s.
#[test]
fn bug_a_node_without_a_lease_counted_as_unreachable() {
    let world = World::listed();
    world.apply(Kind::Nodes, &node("other").ready("True"), at(0));
    world.apply(Kind::Pods, &pod("a").on("n").running(), at(0));
    let status = |second: u64| {
        let heartbeat_time = json!(timestamp(second));
        node("n").ready("True").set("/status/conditions/0/lastHeartbeatTime", heartbeat_time).rv(100 + second)
    };
    for second in 0..=356 {
        world.confirm_all(at(second));
        if second % 10 == 0 {
            world.apply(Kind::NodeLeases, &lease("other", second), at(second));
        }
        if second % 60 == 0 {
            world.apply(Kind::Nodes, &status(second), at(second));
        }
    }
    world.remove(Kind::Nodes, "uid-n", at(356));
    world.confirm_all(at(356));
    assert!(!world.read().view().unreachable_before_node_deleted("n"), "it reported on time, 56 s ago");
}

/// A kubelet looks for its Node once a second before it watches pods. Real kubelets in `make histories` whose Node was
/// deleted in that second ran their pods beside the replacements for 32 s.
#[test]
fn bug_a_kubelet_that_had_just_started_counted_as_one_that_watches_its_pods() {
    let steady = || (1..=8).map(|step| 1 + 10 * step).collect::<Vec<u64>>();
    let brief = |second: u64| lease("n", second).set("/spec/leaseDurationSeconds", json!(20));
    type Act<'a> = &'a dyn Fn(&Cache);
    let renew = |times: Vec<u64>| {
        move |cache: &Cache| times.iter().for_each(|time| apply::<NodeLease>(cache, &lease("n", *time), at(*time)))
    };
    let rows: [(&str, Act<'_>, u64, bool); 15] = [
        ("nothing since the first list", &|_| (), 2, false),
        ("each ten seconds", &renew(steady()), 82, false),
        ("eleven seconds", &renew(vec![11, 22, 32]), 33, false),
        ("twelve seconds", &renew(vec![11, 23, 33]), 34, true),
        ("seven seconds", &renew(vec![11, 21, 28]), 28, true),
        ("seven seconds, 30 s before", &renew(vec![11, 18, 28, 38]), 48, true),
        ("seven seconds, 31 s before", &renew(vec![11, 18, 28, 38]), 49, false),
        ("its clock was set back", &renew(vec![11, 5]), 12, true),
        (
            "five of twenty seconds",
            &|cache| [6, 11].into_iter().for_each(|second| apply::<NodeLease>(cache, &brief(second), at(second))),
            42,
            false,
        ),
        ("another duration", &|cache| apply::<NodeLease>(cache, &brief(11), at(11)), 12, true),
        (
            "its Lease was created again",
            &|cache| {
                cache.remove::<NodeLease>(&uid("lease-n"), at(4));
                apply::<NodeLease>(cache, &lease_created("n", 11), at(11));
            },
            12,
            true,
        ),
        ("a list found another Lease", &|cache| list::<NodeLease>(cache, &[lease_created("n", 11)], at(11)), 12, true),
        ("a list missed renewals", &|cache| list::<NodeLease>(cache, &[lease("n", 31)], at(31)), 32, true),
        ("a list missed its end", &|cache| list::<NodeLease>(cache, &[], at(31)), 32, false),
        (
            "it was unreadable",
            &|cache| {
                cache.apply_undecodable::<NodeLease>(unreadable(Some("lease-n"), Some("n")), at(5));
                apply::<NodeLease>(cache, &lease("n", 6), at(6));
            },
            36,
            true,
        ),
    ];
    for (what, renewals, gone, expected) in rows {
        let cache = cache_with_lease();
        list::<Pod>(&cache, &[pod("a").on("n")], at(1));
        list::<Node>(&cache, &[node("n")], at(1));
        renewals(&cache);
        let may_have = || {
            let guard = cache.read();
            guard.view().may_have_just_started(guard.view().pod(&uid("uid-a")).unwrap(), "n")
        };
        assert!(!may_have(), "{what}: its Node is there");
        cache.remove::<Node>(&uid("uid-n"), at(gone));
        assert_eq!(may_have(), expected, "{what}");
    }
}

/// It was started again before it had a Lease. Real kubelets in `make histories` ran their pods beside the replacements.
#[test]
fn bug_a_kubelet_that_created_its_lease_counted_as_one_that_knows_earlier_pods() {
    for (bound, gone, expected) in [(39, 70, true), (40, 70, false), (39, 71, false)] {
        let cache = listed();
        apply::<Pod>(&cache, &pod("a").on("n").set("/metadata/creationTimestamp", json!(timestamp(bound))), at(1));
        apply::<Node>(&cache, &node("n"), at(1));
        apply::<NodeLease>(&cache, &lease_created("n", 40), at(40));
        cache.remove::<Node>(&uid("uid-n"), at(gone));
        let guard = cache.read();
        let pod = guard.view().pod(&uid("uid-a")).unwrap();
        assert_eq!(guard.view().may_have_just_started(pod, "n"), expected, "bound at {bound}, gone at {gone}");
    }
}

/// It was restarted after its Node had been deleted, so it registered again, and had no Lease to renew before ten seconds.
#[test]
fn bug_a_kubelet_that_had_just_registered_counted_as_one_that_knows_earlier_pods() {
    for (bound, gone, expected) in [(39, 34, true), (40, 34, false), (39, 35, false)] {
        let cache = listed();
        let created = |object: Obj, second: u64| object.set("/metadata/creationTimestamp", json!(timestamp(second)));
        apply::<Pod>(&cache, &created(pod("a").on("n"), bound), at(1));
        apply::<Node>(&cache, &created(node("n"), 40), at(5));
        cache.remove::<Node>(&uid("uid-n"), at(gone));
        let guard = cache.read();
        let pod = guard.view().pod(&uid("uid-a")).unwrap();
        assert_eq!(guard.view().may_have_just_started(pod, "n"), expected, "bound at {bound}, gone at {gone}");
    }
}
