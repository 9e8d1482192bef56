//! When a request may be submitted again: after leadership was lost, long after a failure, and while the API server is
//! overloaded.

use super::deletions::graceful_delete;
use super::fences::{attempt, look_through, remediation, step, target};
use super::nodes::{of_node, taint};
use super::updates::status;
use super::*;
use crate::authority::PolicyStatusUpdate;
use crate::testing::objects::uid;

fn progress() -> Intent {
    step("n", Step::Write(target("n", Default::default())))
}

fn review() -> Intent {
    let (name, rv, status) = ("p".into(), "1".parse().unwrap(), Default::default());
    Intent::Review(Box::new(PolicyStatusUpdate { name, uid: uid("uid-p"), rv, status }))
}

/// Every worker sleeps until its own pool has work.
#[tokio::test(start_paused = true)]
async fn abandoned_requests_are_executed_when_submitted_again() {
    for (what, intent) in [
        ("a deletion", graceful_delete("a", "10")),
        ("a status", status("1")),
        ("progress of an incident", progress()),
        ("an attempt", step("n", attempt("n"))),
        ("a look through a device", look_through("bmc")),
        ("a remediation", remediation(Default::default())),
        ("a review", review()),
    ] {
        let pool = pool(Leadership::always(), well);
        advance(0.1).await;
        pool.submit_accepted(intent.clone());
        pool.authority.abandon();
        advance(0.1).await;
        assert_eq!(pool.api.lines(), [""; 0], "{what}");
        pool.submit_accepted(intent);
        advance(0.1).await;
        assert_ne!(pool.api.lines(), [""; 0], "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_forgotten_after_ten_minutes_without_another() {
    let force = Intent::Force(ended_pod("a").force(Claim::KubeletTerminated));
    for (what, intent) in [
        ("a force deletion", force),
        ("a deletion", graceful_delete("a", "10")),
        ("a status", status("1")),
        ("progress of an incident", progress()),
    ] {
        let pool = pool(Leadership::always(), |_| Answer::status(500, "InternalError", "etcd"));
        pool.world.apply(Kind::Pods, &ended_pod("a").0, pool.env.now());
        let mut pauses = Vec::new();
        for wait in [0.0, 1.1, 700.0] {
            advance(wait).await;
            pool.authority.tidy();
            let now = pool.env.now();
            pool.submit_accepted(intent.clone());
            advance(0.01).await;
            pauses.push(pool.woken().since(now).as_secs());
        }
        assert_eq!(pauses, [1, 2, 1], "{what}");
    }
}

/// A quarantine starts at the first read, and a machine that is being fenced must not be left half way.
#[tokio::test(start_paused = true)]
async fn an_overloaded_api_server_gets_only_first_reads_and_fencing() {
    for (what, intent, at_once) in [
        ("a first read", Intent::ReadMissingNode { node: "n".into() }, true),
        ("progress of an incident", progress(), true),
        ("a node", of_node(taint("n", "5")), false),
        ("a status", status("1"), false),
    ] {
        let (pool, _overloaded) = overloaded(9);
        pool.submit_ended(&ended_pod("b"));
        advance(0.1).await;
        let before = pool.api.lines().len();
        pool.submit_accepted(intent);
        advance(0.1).await;
        assert_eq!(pool.api.lines().len() > before, at_once, "{what}");
    }
}
