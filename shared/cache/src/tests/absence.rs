//! When the absence of a node starts and ends, and which quorum read counts for it.

use super::*;

fn since(cache: &Cache) -> Option<Mono> {
    cache.read().view().absence("n").map(|absence| absence.since)
}

fn first_read_at(cache: &Cache) -> Option<Mono> {
    cache.read().view().absence("n").and_then(|absence| absence.first_read.as_ref().map(AbsenceRead::requested_at))
}

fn missing_since(seconds: u64) -> Cache {
    let cache = listed();
    apply::<Pod>(&cache, &pod("a").on("n"), at(seconds));
    cache
}

#[test]
fn an_absence_starts_with_the_first_list_of_nodes() {
    let cache = Cache::default();
    list::<Pod>(&cache, &[pod("a").on("n")], at(1));
    assert_eq!(since(&cache), None);
    list::<Node>(&cache, &[], at(5));
    assert_eq!(since(&cache), Some(at(5)));
}

#[test]
fn an_absence_starts_when_a_pod_is_first_bound_to_the_node() {
    assert_eq!(since(&missing_since(7)), Some(at(7)));
}

#[test]
fn more_pods_and_relists_do_not_restart_an_absence() {
    let cache = missing_since(1);
    apply::<Pod>(&cache, &pod("a").on("n").rv(11), at(2));
    apply::<Pod>(&cache, &pod("b").on("n"), at(3));
    list::<Pod>(&cache, &[pod("b").on("n")], at(4));
    list::<Node>(&cache, &[], at(5));
    assert_eq!(since(&cache), Some(at(1)));
}

#[test]
fn an_absence_ends_when_the_node_returns_and_the_next_has_no_first_read() {
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
fn an_absence_restarts_after_a_list_that_contained_the_node() {
    let cache = missing_since(1);
    list::<Node>(&cache, &[node("n")], at(3));
    list::<Node>(&cache, &[], at(4));
    assert_eq!(since(&cache), Some(at(4)));
}

#[test]
fn an_absence_ends_when_no_pod_is_bound_to_the_node() {
    let cache = missing_since(1);
    cache.record_absence_read("n", AbsenceRead::for_decide_tests(at(2), at(2)));
    cache.remove::<Pod>(&uid("uid-a"), at(3));
    assert_eq!(since(&cache), None);
    apply::<Pod>(&cache, &pod("b").on("n"), at(4));
    assert_eq!((since(&cache), first_read_at(&cache)), (Some(at(4)), None));
}

#[test]
fn a_first_read_is_kept_only_if_it_was_requested_during_the_absence() {
    for (what, requested, answered, kept) in [
        ("before the absence began", at(4), at(4), None),
        ("before it began, and answered after that", at(4), at(6), None),
        ("at the moment it began", at(5), at(5), Some(at(5))),
        ("after it began", at(6), at(6), Some(at(6))),
    ] {
        let cache = missing_since(5);
        cache.record_absence_read("n", AbsenceRead::for_decide_tests(requested, answered));
        assert_eq!(first_read_at(&cache), kept, "{what}");
    }
}

#[test]
fn a_first_read_of_a_node_that_exists_is_dropped() {
    let cache = listed();
    cache.record_absence_read("n", AbsenceRead::for_decide_tests(at(2), at(2)));
    apply::<Pod>(&cache, &pod("a").on("n"), at(3));
    assert_eq!(first_read_at(&cache), None);
}

#[test]
fn a_refuted_first_read_is_discarded_and_the_absence_continues() {
    let cache = missing_since(1);
    cache.record_absence_read("n", AbsenceRead::for_decide_tests(at(2), at(2)));
    cache.discard_absence_read("n");
    assert_eq!((since(&cache), first_read_at(&cache)), (Some(at(1)), None));
}
