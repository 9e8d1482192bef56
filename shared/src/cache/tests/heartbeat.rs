//! What is a sign of life.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::testing::at;
use crate::testing::objects::{lease, node, pod};

type Seen = Option<(Sign, Mono)>;

fn sign(cache: &Cache) -> Seen {
    cache.read().view().last_sign_of_life("n").map(|sign| (sign.sign, sign.at))
}

fn renewed(seconds: u64) -> Seen {
    Some((Sign::LeaseRenewed, at(seconds)))
}

/// The Lease of `n` was in the first list, at second 1.
fn known() -> Cache {
    let cache = Cache::default();
    list::<NodeLease>(&cache, &[lease("n", 1)], at(1));
    cache
}

#[test]
fn the_first_list_is_no_sign_of_life() {
    assert_eq!(sign(&known()), None);
}

#[test]
fn what_is_a_sign_of_life_of_a_kubelet() {
    type Act = fn(&Cache);
    let rows: [(&str, Act, Seen); 11] = [
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
        let cache = known();
        act(&cache);
        assert_eq!(sign(&cache), expected, "{what}");
    }
}

/// Its kubelet may have renewed it before it went; a deletion that the watch brings
/// is preceded by every renewal.
#[test]
fn bug_a_lease_that_went_between_a_watch_and_a_relist_may_have_been_renewed() {
    let cache = known();
    list::<NodeLease>(&cache, &[], at(5));
    assert_eq!(sign(&cache), renewed(5));
    let cache = known();
    cache.apply_undecodable::<NodeLease>(unreadable(Some("lease-n"), Some("n")), at(4));
    list::<NodeLease>(&cache, &[], at(5));
    assert_eq!(sign(&cache), renewed(5), "one that could not be read too");
}

#[test]
fn a_lease_that_appears_after_the_list_is_a_sign_of_life() {
    let cache = Cache::default();
    list::<NodeLease>(&cache, &[], at(1));
    apply::<NodeLease>(&cache, &lease("n", 1), at(5));
    assert_eq!(sign(&cache), renewed(5));
}

#[test]
fn a_deleted_lease_keeps_its_last_renewal_until_nobody_can_ask_for_it() {
    let cache = known();
    apply::<NodeLease>(&cache, &lease("n", 2), at(5));
    cache.remove::<NodeLease>(&uid("lease-n"), at(6));
    cache.tidy(at(600));
    assert_eq!(sign(&cache), renewed(5));
    cache.tidy(at(606));
    assert_eq!(sign(&cache), None);
}

#[test]
fn a_lease_that_stands_is_never_tidied_away() {
    let cache = known();
    apply::<NodeLease>(&cache, &lease("n", 2), at(5));
    cache.tidy(at(1_000_000));
    assert_eq!(sign(&cache), renewed(5));
}

#[test]
fn a_renewal_is_told_and_an_unmoved_lease_is_not() {
    let cache = known();
    let heard = listened(&cache);
    apply::<NodeLease>(&cache, &lease("n", 1).rv(9), at(2));
    apply::<NodeLease>(&cache, &lease("n", 2), at(3));
    assert_eq!(heard.take(), ["heartbeat n"]);
}

#[test]
fn a_mirror_pod_is_a_sign_of_life_when_it_appears_and_not_again_when_it_changes() {
    let cache = listed();
    apply::<Pod>(&cache, &pod("static").on("n").mirror(), at(5));
    apply::<Pod>(&cache, &pod("static").on("n").mirror().phase("Failed").rv(11), at(9));
    assert_eq!(sign(&cache), Some((Sign::MirrorPodCreated, at(5))));
}

#[test]
fn the_younger_of_two_signs_counts() {
    let cache = known();
    apply::<NodeLease>(&cache, &lease("n", 2), at(5));
    apply::<Pod>(&cache, &pod("static").on("n").mirror(), at(6));
    assert_eq!(sign(&cache), Some((Sign::MirrorPodCreated, at(6))));
    apply::<NodeLease>(&cache, &lease("n", 3), at(7));
    assert_eq!(sign(&cache), renewed(7));
}

#[test]
fn bug_a_change_of_the_last_pod_of_a_node_forgot_that_a_mirror_pod_had_appeared() {
    let cache = listed();
    apply::<Pod>(&cache, &pod("a").on("n"), at(1));
    apply::<Pod>(&cache, &pod("static").on("n").mirror(), at(5));
    cache.remove::<Pod>(&uid("uid-static"), at(6));
    apply::<Pod>(&cache, &pod("a").on("n").rv(11), at(7));
    assert_eq!(sign(&cache), Some((Sign::MirrorPodCreated, at(5))));
    cache.remove::<Pod>(&uid("uid-a"), at(8));
    assert_eq!(sign(&cache), None, "nobody can ask any more");
}

#[test]
fn the_node_itself_is_no_sign_of_life_of_its_kubelet() {
    let cache = listed();
    apply::<Node>(&cache, &node("n").ready("True"), at(1) + Duration::from_secs(1));
    assert_eq!(sign(&cache), None);
}

/// It kept its node's pods for ever: that a Lease went must have been seen before
/// its absence counts.
#[test]
fn bug_the_end_of_a_lease_that_could_not_be_read_is_seen() {
    let cache = known();
    let gone = |cache: &Cache| cache.read().view().lease_is_gone("n");
    cache.apply_undecodable::<NodeLease>(unreadable(Some("lease-n"), Some("n")), at(5));
    assert!(!gone(&cache));
    cache.remove::<NodeLease>(&uid("lease-n"), at(6));
    assert!(gone(&cache));
    assert_eq!(sign(&cache), renewed(5), "whoever wrote it last lived");
    cache.tidy(at(700));
    assert_eq!(sign(&cache), None);
}
