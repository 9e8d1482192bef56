//! Graceful deletions: decided again when their turn comes, one at a time for each pod, and retried.

use std::sync::OnceLock;

use serde_json::json;

use super::*;
use crate::authority::DeleteCause;
use crate::testing::Claimed as _;
use crate::testing::objects::uid;

pub(super) fn graceful_delete(name: &str, rv: &str) -> Intent {
    let pod = pod(name).force(Claim::KubeletTerminated).pod;
    let cause = DeleteCause::Taint { node: "n".into(), taint: "k:NoExecute".into() };
    let due = Mono::default();
    Intent::Delete(GracefulDeleteRequest {
        pod,
        rv: rv.parse().unwrap(),
        generation: 1,
        disrupted_since: None,
        cause,
        due,
    })
}

/// The node `n` with the taint `k` and this value.
fn tainted(value: &str) -> Obj {
    let taint = json!([{ "key": "k", "value": value, "effect": "NoExecute", "timeAdded": "2026-11-21T11:00:00Z" }]);
    node("n").set("/spec/taints", taint)
}

fn with_node(script: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Pool {
    let pool = pool(Leadership::always(), script);
    pool.world.apply(Kind::Nodes, &tainted("").0, pool.env.now());
    pool
}

fn ending(request: &Received) -> Answer {
    match request.method.as_str() {
        "GET" => Answer::json(&tainted("").0),
        _ => Answer::json(&pod("a").on("n").rv(77).0),
    }
}

fn denied(request: &Received) -> Answer {
    match request.method.as_str() {
        "DELETE" => Answer::status(403, "Forbidden", "admission webhook \"guard\" denied the request"),
        _ => ending(request),
    }
}

fn methods(pool: &Pool) -> Vec<String> {
    pool.api.requests().into_iter().map(|request| request.method).collect()
}

#[tokio::test(start_paused = true)]
async fn a_graceful_deletion_is_sent_recorded_counted_and_has_one_event() {
    let pool = with_node(ending);
    pool.submit_accepted(graceful_delete("a", "10"));
    pool.submit_accepted(graceful_delete("a", "10"));
    advance(0.1).await;
    assert_eq!(pool.completed(), ["a ending"]);
    assert_eq!(methods(&pool), ["GET", "PATCH", "DELETE"]);
    let records = pool.journal.records();
    let [record] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!((record.action, record.reason), (Action::Deleted, "TaintNotTolerated"));
    assert!(record.message.contains("k:NoExecute"), "{}", record.message);
    assert!(
        matches!(pool.submit_intent(graceful_delete("a", "77")), Submitted::Later(_)),
        "the watch has yet to show it"
    );
    advance(1.0).await;
    assert_eq!(methods(&pool).len(), 3);
    assert_eq!(pool.metrics.authority.outcomes.with_label_values(&["ending"]).get(), 1);
}

/// etcd was restored to a state before the deletion: the pod existed again and did not terminate. A request within half a
/// minute was accepted as in flight, and the next one came with the next sweep, after five minutes.
#[tokio::test(start_paused = true)]
async fn bug_a_deletion_undone_by_an_etcd_restore_waited_for_the_next_sweep() {
    let pool = with_node(ending);
    pool.submit_accepted(graceful_delete("a", "10"));
    advance(10.0).await;
    let Submitted::Later(until) = pool.submit_intent(graceful_delete("a", "10")) else { panic!("it was just done") };
    assert!(until.since(pool.env.now()) <= Duration::from_secs(20));
    advance(20.1).await;
    pool.submit_accepted(graceful_delete("a", "10"));
    advance(1.0).await;
    assert_eq!(pool.completed(), ["a ending", "a ending"]);
}

#[tokio::test(start_paused = true)]
async fn one_read_of_the_node_is_used_for_all_pods_of_a_turn() {
    let pool = with_node(ending);
    for number in 0..BATCH {
        pool.submit_intent(graceful_delete(&format!("p{number}"), "10"));
    }
    advance(0.1).await;
    assert_eq!(pool.completed().len(), BATCH);
    let reads = methods(&pool).iter().filter(|method| *method == "GET").count();
    assert!(reads <= 2, "{reads} reads");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_if_the_node_differs_from_the_cache() {
    type Case = (&'static str, fn() -> Answer, &'static str);
    let others: [Case; 5] = [
        ("the taint is gone", || Answer::json(&node("n").0), "a changed"),
        ("it has another value", || Answer::json(&tainted("other").0), "a changed"),
        ("it is another node", || Answer::json(&tainted("").uid("another").0), "a changed"),
        ("it is not there", Answer::not_found, "a changed"),
        ("the read fails", || Answer::status(500, "InternalError", "etcd"), "a failed"),
    ];
    for (sentence, answer, ended) in others {
        let pool = with_node(move |request| if request.method == "GET" { answer() } else { ending(request) });
        pool.submit_intent(graceful_delete("a", "10"));
        advance(0.1).await;
        assert_eq!((pool.completed(), methods(&pool)), (vec![ended.to_owned()], vec!["GET".to_owned()]), "{sentence}");
        assert_eq!(pool.wakes().len(), 1, "{sentence}: it is decided again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_deleted_node_is_not_deleted_if_the_node_exists_again() {
    let pool = with_node(ending);
    let Intent::Delete(mut delete) = graceful_delete("a", "10") else { panic!() };
    delete.cause = DeleteCause::NodeGone { node: "n".into() };
    pool.submit_accepted(Intent::Delete(delete));
    advance(0.1).await;
    assert_eq!((pool.completed(), methods(&pool)), (vec!["a changed".to_owned()], vec!["GET".to_owned()]));
}

/// The read did not find the Node, and the cache has one of that name that cannot be decoded: one of them is old.
#[tokio::test(start_paused = true)]
async fn a_pod_of_a_deleted_node_is_not_deleted_if_the_cache_has_an_unreadable_node() {
    for (unreadable, ended) in [(true, "a changed"), (false, "a ending")] {
        let pool = pool(Leadership::always(), |request| match request.method.as_str() {
            "GET" => Answer::not_found(),
            _ => ending(request),
        });
        if unreadable {
            pool.world.apply(Kind::Nodes, &node("n").set("/metadata/resourceVersion", json!("x")).0, pool.env.now());
        }
        let Intent::Delete(mut delete) = graceful_delete("a", "10") else { panic!() };
        delete.cause = DeleteCause::NodeGone { node: "n".into() };
        pool.submit_accepted(Intent::Delete(delete));
        advance(0.1).await;
        assert_eq!(pool.completed(), [ended]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_not_needed_when_its_turn_comes_is_dropped() {
    let pool = with_node(ending);
    pool.handler.changed_its_mind.store(true, Ordering::SeqCst);
    pool.submit_intent(graceful_delete("a", "10"));
    advance(0.1).await;
    assert_eq!((pool.completed(), methods(&pool).len()), (vec!["a withdrawn".to_owned()], 0));
    pool.handler.changed_its_mind.store(false, Ordering::SeqCst);
    pool.submit_intent(graceful_delete("a", "10"));
    advance(0.1).await;
    assert_eq!(pool.completed()[1], "a ending", "it may be wished for again");
}

/// The first request is withdrawn when its turn comes, because the node with the taint is gone. The second request, for
/// pods of a missing node, was rejected meanwhile, and waited for the next resync.
#[tokio::test(start_paused = true)]
async fn bug_a_controller_whose_deletion_was_superseded_was_not_woken() {
    let pool = with_node(ending);
    pool.handler.changed_its_mind.store(true, Ordering::SeqCst);
    let second = RecordingHandler::new("second");
    let owner: Arc<dyn CompletionHandler> = Arc::<RecordingHandler>::clone(&second);
    let now = pool.env.now();
    assert_eq!(pool.submit_intent(graceful_delete("a", "10")), Submitted::Accepted);
    assert_eq!(pool.authority.submit(graceful_delete("a", "10"), &owner), Submitted::Accepted);
    advance(0.1).await;
    assert_eq!(pool.completed(), ["a withdrawn"]);
    assert_eq!(second.woken(), Some(now));
    assert_eq!(pool.authority.submit(graceful_delete("a", "10"), &owner), Submitted::Accepted);
    advance(0.1).await;
    assert_eq!(*second.ended.lock(), ["a ending"]);
}

/// kubernetes#140639: five attempts within 50 ms, and then none. Once, the taint was removed while its node was read, and
/// the cache was updated before the answer came. Both agreed that there was no taint, and the pod was deleted.
#[tokio::test(start_paused = true)]
async fn bug_a_pod_was_deleted_for_a_taint_that_was_removed_during_the_read() {
    let handler: Arc<OnceLock<Arc<RecordingHandler>>> = Arc::default();
    let mind = Arc::clone(&handler);
    let pool = with_node(move |request| {
        if let Some(handler) = mind.get().filter(|_| request.method == "GET") {
            handler.changed_its_mind.store(true, Ordering::SeqCst);
        }
        ending(request)
    });
    assert!(handler.set(Arc::clone(&pool.handler)).is_ok());
    pool.submit_intent(graceful_delete("a", "10"));
    advance(0.1).await;
    assert_eq!((pool.completed(), methods(&pool)), (vec!["a withdrawn".to_owned()], vec!["GET".to_owned()]));
}

/// A process that was stopped for seven seconds while its node was read used the old answer.
#[tokio::test(start_paused = true)]
async fn bug_a_pod_was_deleted_by_a_late_answer_about_its_node() {
    for seconds in [2, 3] {
        let pool = with_node(move |request| match request.method.as_str() {
            "GET" => ending(request).delayed(Duration::from_secs(seconds)),
            _ => ending(request),
        });
        pool.submit_intent(graceful_delete("a", "10"));
        advance(4.0).await;
        let (ended, sent) = (vec!["a expired".to_owned()], vec!["GET".to_owned()]);
        assert_eq!((pool.completed(), methods(&pool)), (ended, sent), "after {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn w_te1_a_denied_deletion_is_retried_with_backoff_and_has_one_event() {
    let pool = with_node(denied);
    pool.submit_accepted(graceful_delete("a", "10"));
    advance(0.1).await;
    assert_eq!(pool.completed(), ["a failed"]);
    let first = pool.woken();
    assert_eq!(first, Mono::from_start(Duration::from_secs(1)));
    // The watch has delivered the version of pod-safety's own condition: no reason to retry at once.
    assert_eq!(pool.submit_intent(graceful_delete("a", "77")), Submitted::Later(first));
    advance(1.0).await;
    pool.submit_accepted(graceful_delete("a", "77"));
    advance(0.1).await;
    let second = pool.woken();
    assert!(second.since(first) >= Duration::from_secs(2), "{second:?}");
    let records = pool.journal.records();
    assert!(records.iter().all(|record| record.action == Action::Failed), "{records:?}");
    assert!(records[0].message.contains("admission webhook"), "{records:?}");
    assert!(pool.world.read().view().pod(&uid("uid-a")).is_none());
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_deletes() {
    let pool = pool(Leadership::none(), ending);
    assert_eq!(pool.submit_intent(graceful_delete("a", "10")), Submitted::NotLeading);
    advance(0.1).await;
    assert!(pool.api.requests().is_empty());
}
