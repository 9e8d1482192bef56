//! What is a sign of life.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::testing::objects::{Obj, lease, node, pod, timestamp};
use crate::testing::{World, at};

type HeartbeatAt = Option<(ReportKind, Mono)>;

fn last_heartbeat(cache: &Cache) -> HeartbeatAt {
    cache.read().view().last_heartbeat("n").map(|sign| (sign.kind, sign.at))
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

#[test]
fn the_first_list_is_no_sign_of_life() {
    assert_eq!(last_heartbeat(&cache_with_lease()), None);
}

#[test]
fn what_is_a_sign_of_life_of_a_kubelet() {
    type Act = fn(&Cache);
    let rows: [(&str, Act, HeartbeatAt); 11] = [
        ("its Lease was renewed", |cache| apply::<NodeLease>(cache, &lease("n", 2), at(5)), renewed(5)),
        ("its Lease was set back", |cache| apply::<NodeLease>(cache, &lease("n", 0), at(5)), renewed(5)),
        (
            "its Lease was written by somebody without a renewal",
            |cache| apply::<NodeLease>(cache, &lease("n", 1).rv(9), at(5)),
            None,
        ),
        (
            "its Lease lost its renewal time",
            |cache| apply::<NodeLease>(cache, &lease("n", 1).set("/spec/renewTime", json!(null)), at(5)),
            renewed(5),
        ),
        (
            "its Lease was made again with the same time",
            |cache| {
                cache.remove::<NodeLease>(&uid("lease-n"), at(4));
                apply::<NodeLease>(cache, &lease("n", 1).uid("another"), at(5));
            },
            renewed(5),
        ),
        (
            "its Lease was found renewed by a relist",
            |cache| list::<NodeLease>(cache, &[lease("n", 2)], at(5)),
            renewed(5),
        ),
        (
            "its Lease was found unmoved by a relist",
            |cache| list::<NodeLease>(cache, &[lease("n", 1)], at(5)),
            None,
        ),
        ("its Lease was deleted", |cache| cache.remove::<NodeLease>(&uid("lease-n"), at(5)), None),
        (
            "its Lease became unreadable",
            |cache| cache.apply_undecodable::<NodeLease>(unreadable(Some("lease-n"), Some("n")), at(5)),
            renewed(5),
        ),
        (
            "bug: its Lease was unreadable and can be read again, renewed or not",
            |cache| {
                cache.apply_undecodable::<NodeLease>(unreadable(Some("lease-n"), Some("n")), at(5));
                apply::<NodeLease>(cache, &lease("n", 2), at(6));
            },
            renewed(6),
        ),
        (
            "the Lease of another node was renewed",
            |cache| apply::<NodeLease>(cache, &lease("m", 2), at(5)),
            None,
        ),
    ];
    for (what, act, expected) in rows {
        let cache = cache_with_lease();
        act(&cache);
        assert_eq!(last_heartbeat(&cache), expected, "{what}");
    }
}

/// Its kubelet may have renewed it before it went; a deletion that the watch brings
/// is preceded by every renewal.
#[test]
fn bug_a_lease_that_went_between_a_watch_and_a_relist_may_have_been_renewed() {
    let cache = cache_with_lease();
    list::<NodeLease>(&cache, &[], at(5));
    assert_eq!(last_heartbeat(&cache), renewed(5));
    let cache = cache_with_lease();
    cache.apply_undecodable::<NodeLease>(unreadable(Some("lease-n"), Some("n")), at(4));
    list::<NodeLease>(&cache, &[], at(5));
    assert_eq!(last_heartbeat(&cache), renewed(5), "one that could not be read too");
}

#[test]
fn a_lease_that_appears_after_the_list_is_a_sign_of_life() {
    let cache = Cache::default();
    list::<NodeLease>(&cache, &[], at(1));
    apply::<NodeLease>(&cache, &lease("n", 1), at(5));
    assert_eq!(last_heartbeat(&cache), renewed(5));
}

#[test]
fn a_deleted_lease_keeps_its_last_renewal_until_nobody_can_ask_for_it() {
    let cache = cache_with_lease();
    apply::<NodeLease>(&cache, &lease("n", 2), at(5));
    cache.remove::<NodeLease>(&uid("lease-n"), at(6));
    cache.prune(at(600));
    assert_eq!(last_heartbeat(&cache), renewed(5));
    cache.prune(at(606));
    assert_eq!(last_heartbeat(&cache), None);
}

#[test]
fn a_lease_that_stands_is_never_tidied_away() {
    let cache = cache_with_lease();
    apply::<NodeLease>(&cache, &lease("n", 2), at(5));
    cache.prune(at(1_000_000));
    assert_eq!(last_heartbeat(&cache), renewed(5));
}

#[test]
fn a_renewal_is_told_and_an_unmoved_lease_is_not() {
    let cache = cache_with_lease();
    let changes = log_changes(&cache);
    apply::<NodeLease>(&cache, &lease("n", 1).rv(9), at(2));
    apply::<NodeLease>(&cache, &lease("n", 2), at(3));
    assert_eq!(changes.drain(), ["heartbeat n"]);
}

/// What only a kubelet writes, and what others write too.
#[test]
fn a_report_on_a_pod_is_a_sign_of_life_and_what_others_write_is_none() {
    let table: [(&str, Obj, Obj, bool); 11] = [
        ("it appears", pod("x").on("n"), pod("a").on("n").running(), false),
        ("a container starts", pod("a").on("n"), pod("a").on("n").running(), true),
        ("a container ends", pod("a").on("n").running(), pod("a").on("n"), true),
        ("it turns ready", pod("a").on("n").ready("False"), pod("a").on("n").ready("True"), true),
        (
            "node lifecycle calls it unready",
            pod("a").on("n").ready("True"),
            pod("a").on("n").ready("False"),
            false,
        ),
        (
            "its deletion was seen",
            pod("a").on("n").observed(2),
            pod("a").on("n").terminating().observed(3),
            true,
        ),
        ("it is deleted", pod("a").on("n").observed(2), pod("a").on("n").terminating().observed(2), false),
        (
            "somebody calls it Failed",
            pod("a").on("n").observed(2),
            pod("a").on("n").phase("Failed").observed(3),
            false,
        ),
        ("its labels change", pod("a").on("n"), pod("a").on("n").labels(json!({ "a": "b" })), false),
        ("it is bound", pod("a"), pod("a").on("n").running(), false),
        ("nothing", pod("a").on("n").running().observed(3), pod("a").on("n").running().observed(3), false),
    ];
    for (what, before, after, is_sign) in table {
        let cache = listed();
        apply::<Pod>(&cache, &before, at(5));
        apply::<Pod>(&cache, &after.rv(11), at(9));
        let expected = is_sign.then_some((ReportKind::PodReported, at(9)));
        assert_eq!(last_heartbeat(&cache), expected, "{what}");
    }
}

/// Seeds 14283 and 15885: a kubelet before Kubernetes 1.34 reported that a pod had ended which it had never reported running. No
/// count of running containers changed, so its other pods were released.
#[test]
fn bug_a_container_that_ran_between_two_reports_was_no_sign_of_life() {
    let reports = |state: &str, restarts: u32| {
        let status = json!([{ "state": { state: {} }, "restartCount": restarts }]);
        pod("a").on("n").set("/status/containerStatuses", status)
    };
    for (before, after, is_sign) in [
        (pod("a").on("n"), reports("waiting", 0), true),
        (pod("a").on("n"), reports("terminated", 0), true),
        (reports("waiting", 0), reports("terminated", 0), true),
        (reports("terminated", 0), reports("waiting", 0), true),
        (reports("running", 1), reports("running", 2), true),
        (reports("waiting", 1), reports("waiting", 1), false),
    ] {
        let cache = listed();
        apply::<Pod>(&cache, &before, at(5));
        apply::<Pod>(&cache, &after.clone().rv(11), at(9));
        let expected = is_sign.then_some((ReportKind::PodReported, at(9)));
        assert_eq!(last_heartbeat(&cache), expected, "{:?}", after["status"]);
    }
}

/// Seed 28140: the kubelet of a missing node said that the main container ended. The sidecar ran on, so the report was no sign
/// of life.
#[test]
fn bug_a_container_that_ended_beside_one_that_runs_was_no_sign_of_life() {
    let sidecar = json!([{ "state": { "running": {} } }]);
    let both = pod("a").on("n").running().set("/status/initContainerStatuses", sidecar);
    let one = both.clone().set("/status/containerStatuses", json!([{ "state": { "terminated": {} } }]));
    for (before, after) in [(&both, &one), (&one, &both)] {
        let cache = listed();
        apply::<Pod>(&cache, before, at(5));
        apply::<Pod>(&cache, &after.clone().rv(11), at(9));
        assert_eq!(last_heartbeat(&cache), Some((ReportKind::PodReported, at(9))));
    }
}

#[test]
fn the_younger_of_two_signs_counts() {
    let cache = cache_with_lease();
    apply::<Pod>(&cache, &pod("a").on("n"), at(4));
    apply::<NodeLease>(&cache, &lease("n", 2), at(5));
    apply::<Pod>(&cache, &pod("a").on("n").rv(11).running(), at(6));
    assert_eq!(last_heartbeat(&cache), Some((ReportKind::PodReported, at(6))));
    apply::<NodeLease>(&cache, &lease("n", 3), at(7));
    assert_eq!(last_heartbeat(&cache), renewed(7));
}

#[test]
fn bug_a_change_of_the_last_pod_of_a_node_forgot_that_its_kubelet_had_reported() {
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

/// The record of a deleted Lease went after ten minutes: a longer quarantine forgot that it had been renewed.
#[test]
fn bug_a_quarantine_longer_than_the_memory_of_deleted_leases_forgot_a_renewal() {
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

/// What a kubelet was silent for before its Node went, as this process saw it.
#[test]
fn a_kubelet_fell_silent_first_only_if_this_process_saw_a_whole_duration_of_its_lease_pass() {
    let ready = |status: &str, rv: u64, second: u64| (Kind::Nodes, node("n").ready(status).rv(rv), second);
    let seen = |second: u64| ready("Unknown", 5, second);
    let renewed = |renewed: u64, second: u64| (Kind::NodeLeases, lease("n", renewed), second);
    let brief = (Kind::NodeLeases, lease("n", 1).set("/spec/leaseDurationSeconds", json!(8)), 1);
    let report = (Kind::Pods, pod("a").on("n").rv(11).running(), 30);
    for (what, before, gone, expected) in [
        ("nobody saw the Node", vec![], 60, false),
        ("it was silent for 54 s", vec![seen(10)], 64, false),
        ("it was silent for 55 s", vec![seen(10)], 65, true),
        ("it renewed 54 s before", vec![seen(1), renewed(1, 1), renewed(2, 11)], 65, false),
        ("it renewed 55 s before", vec![seen(1), renewed(1, 1), renewed(2, 10)], 65, true),
        ("its Lease promises 8 s", vec![seen(1), brief.clone()], 23, false),
        ("its Lease promised 8 s", vec![seen(1), brief], 24, true),
        ("it reported on a pod", vec![seen(1), report], 65, false),
        ("its Node says something", vec![seen(1), ready("True", 20, 30)], 65, false),
        ("somebody calls it Unknown", vec![ready("True", 5, 1), ready("Unknown", 20, 30)], 65, true),
    ] {
        let world = World::listed();
        (0..gone).step_by(10).for_each(|second| world.confirm_all(at(second)));
        let silent = || world.read().view().unreachable_before_node_deleted("n");
        world.apply(Kind::Pods, &pod("a").on("n"), at(0));
        world.apply(Kind::NodeLeases, &lease("n", 0), at(0));
        before.iter().for_each(|(kind, object, second)| world.apply(*kind, object, at(*second)));
        assert!(!silent(), "{what}: its Node is there");
        world.remove(Kind::Nodes, "uid-n", at(gone));
        assert_eq!(silent(), expected, "{what}");
        world.apply(Kind::NodeLeases, &lease("n", 40), at(gone + 1));
        assert!(!silent(), "{what}, and its Lease was written after its Node went");
    }
}

/// The simulator found it: a leader that was cut from the API server for 18 s saw the end of a Node late, and counted its
/// own silence as the kubelet's. The pods of a running kubelet were deleted by force without a signal.
#[test]
fn bug_the_silence_of_a_watch_that_was_cut_counted_as_silence_of_the_kubelet() {
    for (what, heard, expected) in [
        ("the watch spoke each ten seconds", &[0, 10, 20, 30, 40, 50, 60, 70][..], true),
        ("it was cut for 18 s, and has not spoken since", &[0, 10, 20, 30, 40, 52], false),
        ("it was cut for 18 s, and spoke again", &[0, 10, 20, 30, 40, 52, 70], false),
        ("it was cut before, and then spoke for long enough", &[0, 16, 30, 40, 50, 60, 71], true),
        ("it was cut before, and then spoke for less than that", &[0, 17, 30, 40, 50, 60, 71], false),
    ] {
        let world = World::listed();
        world.apply(Kind::Pods, &pod("a").on("n"), at(0));
        world.apply(Kind::Nodes, &node("n"), at(0));
        world.apply(Kind::NodeLeases, &lease("n", 0), at(0));
        heard.iter().for_each(|second| world.confirm_all(at(*second)));
        world.remove(Kind::Nodes, "uid-n", at(71));
        assert_eq!(world.read().view().unreachable_before_node_deleted("n"), expected, "{what}");
    }
}

/// A watch of Nodes that hung beside a living one of Leases: the Lease went with its Node, and what the kubelet could not
/// renew was no silence.
#[test]
fn bug_a_kubelet_whose_lease_was_collected_counted_as_silent_until_the_end_of_its_node_was_seen() {
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
        let silent = world.read().view().unreachable_before_node_deleted("n");
        assert_eq!(silent, expected, "collected at {collected} s");
    }
}

/// A relist that lacks the Node: what its kubelet said while nobody watched is not known.
#[test]
fn a_node_that_went_while_nobody_watched_did_not_fall_silent_first() {
    let cache = listed();
    apply::<Pod>(&cache, &pod("a").on("n"), at(0));
    apply::<Node>(&cache, &node("n"), at(1));
    list::<Node>(&cache, &[], at(500));
    assert!(!cache.read().view().unreachable_before_node_deleted("n"));
}

/// The simulator found it: the list of Leases came seconds after that of Nodes, and brought a renewal of these seconds. The
/// kubelet counted as silent from the list of Nodes on, and was called Unknown after 46 s instead of 50.
#[test]
fn bug_a_kubelet_counted_as_silent_before_its_lease_was_listed() {
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
    assert_eq!(world.read().view().renewal("n"), None, "and is no sign of life");
    world.apply(Kind::NodeLeases, &lease("n", 1), at(7));
    assert_eq!(last_report(), at(5), "nothing is new");
    world.apply(Kind::NodeLeases, &lease("n", 2), at(8));
    assert_eq!(last_report(), at(8));
}

#[test]
fn the_node_itself_is_no_sign_of_life_of_its_kubelet() {
    let cache = listed();
    apply::<Node>(&cache, &node("n").ready("True"), at(1) + Duration::from_secs(1));
    assert_eq!(last_heartbeat(&cache), None);
}

/// It kept its node's pods for ever: that a Lease went must have been seen before
/// its absence counts.
#[test]
fn bug_the_end_of_a_lease_that_could_not_be_read_is_seen() {
    let cache = cache_with_lease();
    let gone = |cache: &Cache| cache.read().view().lease_is_gone("n");
    cache.apply_undecodable::<NodeLease>(unreadable(Some("lease-n"), Some("n")), at(5));
    assert!(!gone(&cache));
    cache.remove::<NodeLease>(&uid("lease-n"), at(6));
    assert!(gone(&cache));
    assert_eq!(last_heartbeat(&cache), renewed(5), "whoever wrote it last lived");
    cache.prune(at(700));
    assert_eq!(last_heartbeat(&cache), None);
}

/// A virtual node, say: no Lease, and a status once a minute. Nothing says that it would have been heard within 40 s.
#[test]
fn bug_a_node_without_a_lease_fell_silent_because_it_renewed_none() {
    let world = World::listed();
    world.apply(Kind::Nodes, &node("other").ready("True"), at(0));
    world.apply(Kind::Pods, &pod("a").on("n").running(), at(0));
    let status = |second: u64| {
        let beat = json!(timestamp(second));
        node("n").ready("True").set("/status/conditions/0/lastHeartbeatTime", beat).rv(100 + second)
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
