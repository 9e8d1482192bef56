//! Statuses: one write of each object at a time, and none forgotten.

use super::*;

/// A status that rests on this version.
fn status(rv: &str) -> Intent {
    let pod = pod("a").force(Claim::KubeletTerminated).pod;
    Intent::Update(Update::NotDisrupted { pod, rv: rv.parse().unwrap(), generation: 1 })
}

fn conflict(asked: &Asked) -> Answer {
    match asked.method.as_str() {
        "PATCH" => {
            Answer::status(409, "Conflict", "the object has been modified").late(Duration::from_secs(1))
        }
        _ => Answer::not_found(),
    }
}

/// It takes every write, and everything stays as it was.
fn unmoved(_: &Asked) -> Answer {
    Answer::json(&pod("a").rv(1).0)
}

/// Found beside kube-controller-manager: the watch brought a budget's new spec while a status for the old one was
/// on its way. The write ended in a conflict, the watch had nothing more to bring, and nobody looked at the budget
/// until the next sweep.
#[tokio::test(start_paused = true)]
async fn whoever_is_turned_away_during_a_write_is_woken_at_its_end() {
    for (script, outcome) in [(conflict as fn(&Asked) -> Answer, "changed"), (slow, "written")] {
        let pool = pool(Leadership::alone(), script);
        pool.accepts(status("1"));
        pass(0.5).await;
        pool.accepts(status("2"));
        assert_eq!(pool.wakes().len(), 0, "{outcome}: the write is on its way");
        pass(1.0).await;
        assert!(pool.ended()[0].ends_with(outcome), "{:?}", pool.ended());
        let wakes = pool.wakes();
        assert_eq!(wakes, [Mono::from_start(Duration::from_secs(1))], "{outcome}");
        pool.accepts(status("2"));
        pass(0.1).await;
        assert_eq!(pool.api.writes().len(), 2, "{outcome}: the new version may be written over at once");
    }
}

/// A conflict need not have a cause that the watch still brings: a strike in the simulator answered 409 to a first
/// write, the budget waited for an event that nobody sent, and was looked at in the next sweep.
#[tokio::test(start_paused = true)]
async fn bug_a_conflict_without_a_cause_left_a_budget_unexamined() {
    let pool = pool(Leadership::alone(), conflict);
    pool.accepts(status("1"));
    pass(1.5).await;
    assert!(pool.ended()[0].ends_with("changed"), "{:?}", pool.ended());
    assert_eq!(pool.wakes(), [Mono::from_start(Duration::from_secs(2))], "nobody else would");
    pass(0.5).await;
    pool.accepts(status("1"));
}

/// The API server keeps the version of what a write did not change, so no event comes. A budget was then turned away
/// for half a minute as being written, nobody was woken at the end of that, and it stayed as it was until the next sweep.
#[tokio::test(start_paused = true)]
async fn bug_a_write_that_changed_nothing_left_a_budget_unexamined() {
    let pool = pool(Leadership::alone(), unmoved);
    pool.accepts(status("1"));
    pass(0.5).await;
    assert!(pool.ended()[0].ends_with("no_effect"), "{:?}", pool.ended());
    let woken = Mono::from_start(Duration::from_secs(1));
    assert_eq!(pool.wakes(), [woken], "nobody else would");
    let early = pool.asks(status("1"));
    assert_eq!(early, Submitted::Later(woken), "who comes before is told when to come again");
    for (at, writes) in [(1.1, 2), (3.2, 3), (7.3, 4)] {
        pass(at - pool.env.now().since_start().as_secs_f64()).await;
        assert_eq!(pool.asks(status("1")), Submitted::Accepted, "at {at}");
        pass(0.05).await;
        assert_eq!(pool.api.writes().len(), writes, "tried ever more rarely");
    }
    assert_eq!(pool.asks(status("2")), Submitted::Accepted, "a new version waits for nobody");
}

/// The same where the answer does not say which version there is.
#[tokio::test(start_paused = true)]
async fn bug_whoever_was_turned_away_after_a_write_was_not_woken_at_the_end_of_the_pause() {
    let pool = pool(Leadership::alone(), |_| Answer::garbage());
    pool.accepts(status("1"));
    pass(0.5).await;
    assert!(pool.ended()[0].ends_with("written"), "{:?}", pool.ended());
    let until = Mono::from_start(Duration::from_secs(30));
    assert_eq!(pool.asks(status("1")), Submitted::Later(until));
    pass(30.0).await;
    pool.accepts(status("1"));
}
