//! Since when a node is missing, and what a witness is worth.

use super::*;
use crate::testing::at;
use crate::testing::objects::{node, pod};

fn since(cache: &Cache) -> Option<Mono> {
    cache.read().view().absence("n").map(|absence| absence.since)
}

fn first_read_at(cache: &Cache) -> Option<Mono> {
    cache
        .read()
        .view()
        .absence("n")
        .and_then(|absence| absence.first_read.as_ref().map(AbsenceRead::requested_at))
}

fn missing_since(seconds: u64) -> Cache {
    let cache = listed();
    apply::<Pod>(&cache, &pod("a").on("n"), at(seconds));
    cache
}

#[test]
fn an_absence_starts_when_nodes_are_listed_not_when_pods_are() {
    let cache = Cache::default();
    list::<Pod>(&cache, &[pod("a").on("n")], at(1));
    assert_eq!(since(&cache), None);
    list::<Node>(&cache, &[], at(5));
    assert_eq!(since(&cache), Some(at(5)));
}

#[test]
fn an_absence_starts_when_a_pod_first_names_the_node() {
    assert_eq!(since(&missing_since(7)), Some(at(7)));
}

#[test]
fn more_news_of_an_absent_node_does_not_start_it_anew() {
    let cache = missing_since(1);
    apply::<Pod>(&cache, &pod("a").on("n").rv(11), at(2));
    apply::<Pod>(&cache, &pod("b").on("n"), at(3));
    list::<Pod>(&cache, &[pod("b").on("n")], at(4));
    list::<Node>(&cache, &[], at(5));
    assert_eq!(since(&cache), Some(at(1)));
}

#[test]
fn an_absence_ends_with_the_nodes_return_and_the_next_one_has_no_witness() {
    let cache = missing_since(1);
    cache.record_absence_read("n", AbsenceRead::for_decide_tests(at(2), at(2)));
    assert_eq!(first_read_at(&cache), Some(at(2)));
    apply::<Node>(&cache, &node("n"), at(3));
    assert_eq!(since(&cache), None);
    cache.remove::<Node>(&uid("uid-n"), at(4));
    assert_eq!(since(&cache), Some(at(4)));
    assert_eq!(first_read_at(&cache), None);
}

#[test]
fn a_node_that_comes_and_goes_between_two_lists_of_a_relist_is_another_absence_only_if_it_was_seen() {
    let cache = missing_since(1);
    list::<Node>(&cache, &[node("n")], at(3));
    list::<Node>(&cache, &[], at(4));
    assert_eq!(since(&cache), Some(at(4)));
}

#[test]
fn an_absence_ends_when_no_pod_names_the_node_any_more() {
    let cache = missing_since(1);
    cache.record_absence_read("n", AbsenceRead::for_decide_tests(at(2), at(2)));
    cache.remove::<Pod>(&uid("uid-a"), at(3));
    assert_eq!(since(&cache), None);
    apply::<Pod>(&cache, &pod("b").on("n"), at(4));
    assert_eq!((since(&cache), first_read_at(&cache)), (Some(at(4)), None));
}

#[test]
fn a_witness_is_kept_only_if_it_was_asked_for_during_the_absence() {
    for (what, asked, answered, kept) in [
        ("before the absence began", at(4), at(4), None),
        ("before it began, and answered after that", at(4), at(6), None),
        ("at the moment it began", at(5), at(5), Some(at(5))),
        ("after it began", at(6), at(6), Some(at(6))),
    ] {
        let cache = missing_since(5);
        cache.record_absence_read("n", AbsenceRead::for_decide_tests(asked, answered));
        assert_eq!(first_read_at(&cache), kept, "{what}");
    }
}

#[test]
fn a_witness_of_a_node_that_is_there_is_dropped() {
    let cache = listed();
    cache.record_absence_read("n", AbsenceRead::for_decide_tests(at(2), at(2)));
    apply::<Pod>(&cache, &pod("a").on("n"), at(3));
    assert_eq!(first_read_at(&cache), None);
}

#[test]
fn a_refuted_witness_is_forgotten_while_the_absence_goes_on() {
    let cache = missing_since(1);
    cache.record_absence_read("n", AbsenceRead::for_decide_tests(at(2), at(2)));
    cache.discard_absence_read("n");
    assert_eq!((since(&cache), first_read_at(&cache)), (Some(at(1)), None));
}
