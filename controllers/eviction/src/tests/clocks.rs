//! Clocks of this process that differ from those that wrote the times. What happens while it watches, it measures itself.

use super::evictor::{refused, with_message};
use super::*;

/// How far the clock is ahead, from the start.
const CLOCKS: [i64; 7] = [-3_600, -31, -29, 0, 29, 31, 3_600];

/// A process whose clock is `ahead`, and that saw this Eviction change to the second version at second 100.
fn changed(before: &Obj, after: &Obj, pod: Obj, ahead: i64) -> World {
    let world = World::listed();
    world.set_wall_time(START_SECONDS + ahead, at(0));
    for (kind, object) in [(Kind::Pods, pod), request_object(), (Kind::Evictions, before.clone())] {
        world.apply(kind, &object, at(0));
    }
    world.apply(Kind::Evictions, &after.clone().rv(9), at(100));
    world
}

/// The first second, from 100, at which this is written.
#[track_caller]
fn first_second(world: &World, ahead: i64, expected: &str) -> u64 {
    let writes =
        |second: &u64| describe(&decide_by_clock(world, *second, ahead)).iter().any(|one| one.contains(expected));
    (100..2_000).find(writes).unwrap_or_else(|| panic!("with a clock {ahead} s ahead, {expected:?} is never written"))
}

#[test]
fn bug_a_wrong_clock_stopped_reports_and_attempts_or_repeated_them_without_pause() {
    let once = refused("BudgetBlocks", 1, 100, 0);
    let accepted = "the API server accepted the eviction: the pod has 30s to terminate";
    for ahead in CLOCKS {
        let second = |before: &Obj, after: &Obj, pod: Obj, expected: &str| {
            first_second(&changed(before, after, pod, ahead), ahead, expected)
        };
        let (new, waits) = (with_message("", 10), with_message("the pod is terminating", 100));
        assert_eq!(second(&new, &waits, pod("p").terminating(), "is terminating"), 280, "a heartbeat, {ahead}");
        assert_eq!(second(&new, &with_message("x", 100), pod("p").terminating(), "is terminating"), 120, "{ahead}");
        assert_eq!(second(&new, &with_message(&once, 100), pod("p"), "attempt 2"), 120, "an attempt, {ahead}");
        assert_eq!(second(&new, &with_message(accepted, 100), pod("p"), "attempt 1"), 220, "after acceptance, {ahead}");
    }
}

#[test]
fn bug_a_clock_that_was_behind_let_a_responder_keep_its_turn() {
    for ahead in CLOCKS {
        let before = active_eviction(&[(APP, 10_000, "Active"), (EVICTOR, 100, "Inactive")]);
        // By a clock that is 20 s ahead.
        let after = reports(before.clone(), 0, "heartbeatTime", &json!(timestamp(120)));
        let lost = first_second(&changed(&before, &after, pod("p"), ahead), ahead, "example.com/app Interrupted");
        assert_eq!(lost, u64::try_from((1_320 - ahead).clamp(1_300, 1_330)).unwrap(), "{ahead}");
    }
}

#[test]
fn bug_a_wrong_clock_stopped_the_next_eviction_or_created_it_without_pause() {
    for ahead in CLOCKS {
        let before = active_eviction(&[(EVICTOR, 100, "Active")]);
        let failed = active_eviction(&[(EVICTOR, 100, "Interrupted")]).verdict("Failed", "True", "NoFurtherResponder");
        let failed = failed.modify(|object| {
            for condition in object["status"]["conditions"].as_array_mut().unwrap() {
                condition["lastTransitionTime"] = json!(timestamp(100));
            }
        });
        let next = first_second(&changed(&before, &failed, pod("p"), ahead), ahead, "create 2");
        assert_eq!(next, 120, "{ahead}");
    }
}

/// Its own backoff was over when that message was written.
#[test]
fn bug_a_pod_that_waited_for_others_began_its_backoff_again() {
    let message = refused("BudgetBlocks", 6, 0, 0);
    let refused = with_message(&message, 0);
    let waits = message.replace("BudgetBlocks: no", "other pods of PodDisruptionBudget b are evicted first");
    let waits = with_message(&waits, 100);
    for ahead in CLOCKS {
        assert_eq!(first_second(&changed(&refused, &waits, pod("p"), ahead), ahead, "attempt 7"), 100, "{ahead}");
    }
}

/// A process that begins reads from the times how old the values are, by a clock that is right.
#[test]
fn what_was_written_before_this_process_began_counts() {
    let refused = refused("BudgetBlocks", 6, 0, 0);
    let world = World::listed();
    world.set_wall_time(START_SECONDS + 500, at(500));
    for (kind, object) in [running_pod(), request_object(), (Kind::Evictions, with_message(&refused, 400))] {
        world.apply(kind, &object, at(500));
    }
    let attempts = |second| describe(&decide_at(&world, second)).iter().any(|one| one.contains("attempt 7"));
    assert_eq!((attempts(599), attempts(600)), (false, true));
}
