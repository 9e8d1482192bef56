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

/// Found beside kube-controller-manager: the watch brought a budget's new spec while a status for the old one was
/// on its way. The write ended in a conflict, the watch had nothing more to bring, and nobody looked at the budget
/// until the next sweep.
#[tokio::test(start_paused = true)]
async fn whoever_is_turned_away_during_a_write_is_woken_at_its_end() {
    for (script, outcome) in [(conflict as fn(&Asked) -> Answer, "changed"), (slow, "written")] {
        let pool = pool(Leadership::alone(), script);
        assert_eq!(pool.authority.submit(status("1"), &pool.owner), Submitted::Accepted);
        pass(0.5).await;
        assert_eq!(pool.authority.submit(status("2"), &pool.owner), Submitted::Accepted);
        assert_eq!(pool.heard.wakes.lock().len(), 0, "{outcome}: the write is on its way");
        pass(1.0).await;
        assert!(pool.ended()[0].ends_with(outcome), "{:?}", pool.ended());
        let wakes = pool.heard.wakes.lock().clone();
        assert_eq!(wakes, [Mono::from_start(Duration::from_secs(1))], "{outcome}");
        assert_eq!(pool.authority.submit(status("2"), &pool.owner), Submitted::Accepted);
        pass(0.1).await;
        assert_eq!(pool.api.writes().len(), 2, "{outcome}: the new version may be written over at once");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_was_not_turned_away_waits_for_the_watch() {
    let pool = pool(Leadership::alone(), conflict);
    assert_eq!(pool.authority.submit(status("1"), &pool.owner), Submitted::Accepted);
    pass(2.0).await;
    assert!(pool.ended()[0].ends_with("changed"), "{:?}", pool.ended());
    assert_eq!(pool.heard.wakes.lock().len(), 0);
}
