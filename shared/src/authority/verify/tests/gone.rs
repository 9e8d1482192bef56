//! Evidence NodeGone: two quorum reads, a quarantine apart, and no report in between.

use serde_json::json;

use super::*;
use crate::testing::Claimed as _;
use crate::testing::at;
use crate::testing::objects::{node, uid};

#[tokio::test(start_paused = true)]
async fn two_reads_a_quarantine_apart_are_evidence_bound_to_one_version_of_one_pod() {
    let fixture = Fixture::after_quarantine().await;
    let before = fixture.env.now();
    let evidence = fixture.verify_gone().await.unwrap();
    assert_eq!(*evidence.kind(), EvidenceKind::NodeGone { node: "n".into(), apart: QUARANTINE });
    assert_eq!(
        (evidence.subject().pod.uid.to_string(), evidence.subject().rv.to_string()),
        ("uid-a".to_owned(), "10".to_owned())
    );
    assert_eq!((evidence.subject().terminal, evidence.subject().generation), (false, 3));
    assert_eq!(evidence.expires(), before + VALID_FOR);
    assert_eq!(fixture.api.lines().len(), 4, "node and Lease, twice: {:?}", fixture.api.lines());
}

#[tokio::test(start_paused = true)]
async fn evidence_counts_from_when_its_reads_were_sent() {
    let fixture = Fixture::after_quarantine().await;
    fixture.reads_of_node(answering(|| Answer::not_found().delayed(Duration::from_secs(1))));
    let sent = fixture.env.now();
    assert_eq!(fixture.verify_gone().await.unwrap().expires(), sent + VALID_FOR);
}

#[tokio::test(start_paused = true)]
async fn the_quarantine_is_over_exactly_at_its_end() {
    for (early, expected) in [(Duration::from_millis(1), "QuarantineNotOver"), (Duration::ZERO, "NodeGone")] {
        let fixture = Fixture::new();
        fixture.make_first_read().await;
        advance((QUARANTINE - early).as_secs_f64()).await;
        assert_eq!(reason(fixture.verify_gone().await), expected, "{early:?} early");
        assert!(fixture.has_first_read());
    }
}

#[tokio::test(start_paused = true)]
async fn the_quarantine_counts_from_the_answer_of_the_first_read() {
    let fixture = Fixture::new();
    fixture.reads_of_node(answering(|| Answer::not_found().delayed(Duration::from_secs(10))));
    fixture.make_first_read().await;
    fixture.reads_of_node(absent());
    advance(35.0).await;
    let Err(VerifyError::Refused(Refusal::QuarantineNotOver { left })) = fixture.verify_gone().await else {
        panic!("too early")
    };
    assert_eq!(left, Duration::from_secs(5));
    assert_eq!(fixture.api.lines().len(), 2, "no read is spent before the quarantine is over");
}

#[tokio::test(start_paused = true)]
async fn without_a_first_read_nothing_is_read_and_nothing_is_evidence() {
    let fixture = Fixture::new();
    assert_eq!(reason(fixture.verify_gone().await), "NoWitness");
    assert_eq!(fixture.api.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_node_found_by_the_second_read_restarts_the_quarantine() {
    let fixture = Fixture::after_quarantine().await;
    fixture.reads_of_node(object(node("n")));
    assert_eq!(reason(fixture.verify_gone().await), "NodeExists");
    assert!(!fixture.has_first_read());
    fixture.reads_of_node(absent());
    assert_eq!(reason(fixture.verify_gone().await), "NoWitness");
    fixture.make_first_read().await;
    assert_eq!(reason(fixture.verify_gone().await), "QuarantineNotOver");
    advance(QUARANTINE.as_secs_f64()).await;
    assert_eq!(reason(fixture.verify_gone().await), "NodeGone");
}

#[tokio::test(start_paused = true)]
async fn a_second_read_without_not_found_is_a_refusal() {
    let rows: [(&str, Responder); 10] = [
        ("404 without a reason, as a proxy says it", answering(|| Answer::plain(404, "404 page not found"))),
        (
            "404 with another reason",
            answering(|| Answer::status(404, "", "the server could not find the requested resource")),
        ),
        ("410", answering(|| Answer::status(410, "Gone", "gone"))),
        ("403", answering(|| Answer::status(403, "Forbidden", "no"))),
        ("429", answering(|| Answer::plain(429, "Too many requests").with_retry_after(1))),
        ("500", answering(|| Answer::status(500, "InternalError", "etcd"))),
        ("503", answering(|| Answer::plain(503, "no healthy upstream"))),
        ("no answer in time", answering(Answer::never)),
        ("a broken connection", answering(Answer::broken)),
        ("an answer that cannot be read", answering(Answer::garbage)),
    ];
    for (what, answer) in rows {
        let fixture = Fixture::after_quarantine().await;
        fixture.reads_of_node(Arc::clone(&answer));
        assert_eq!(reason(fixture.verify_gone().await), "ReadFailed", "node: {what}");
        assert!(fixture.has_first_read(), "{what} refutes nothing");
        let fixture = Fixture::after_quarantine().await;
        fixture.reads_of_lease(answer);
        assert_eq!(reason(fixture.verify_gone().await), "ReadFailed", "Lease: {what}");
    }
}

/// Once, the reads were repeated indefinitely, and only a metric showed it.
#[tokio::test(start_paused = true)]
async fn bug_evidence_that_expired_during_its_reads_had_no_event() {
    for (late, expected) in [(1.9, "NodeGone"), (2.0, "ReadsTooSlow"), (9.0, "ReadsTooSlow")] {
        let fixture = Fixture::after_quarantine().await;
        fixture.reads_of_node(answering(move || Answer::not_found().delayed(Duration::from_secs_f64(late))));
        assert_eq!(reason(fixture.verify_gone().await), expected, "{late} s");
        assert!(fixture.has_first_read(), "{late} s refute nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_changed_between_the_reads_refutes_node_gone() {
    let renewed = |second| Some(lease("n", second));
    let another = || Some(lease("n", 1).uid("another"));
    let timeless = || Some(lease("n", 1).set("/spec/renewTime", Value::Null));
    for (what, first, second, expected) in [
        ("it was there and did not move", renewed(1), renewed(1), "NodeGone"),
        ("it was collected with its node", renewed(1), None, "NodeGone"),
        ("there never was one", None, None, "NodeGone"),
        ("it was renewed", renewed(1), renewed(2), "KubeletAlive"),
        ("it was renewed by a clock that was set back", renewed(2), renewed(1), "KubeletAlive"),
        ("it appeared", None, renewed(1), "KubeletAlive"),
        ("it was made again", renewed(1), another(), "KubeletAlive"),
        ("it lost its renewal time", renewed(1), timeless(), "KubeletAlive"),
    ] {
        let answering = |sample: Option<Obj>| sample.map_or_else(absent, object);
        let fixture = Fixture::new();
        if let Some(first) = &first {
            fixture.world.apply(Kind::NodeLeases, &first.0, fixture.env.now());
            advance(1.0).await;
        }
        if second.is_none() {
            fixture.world.remove(Kind::NodeLeases, "lease-n", fixture.env.now());
            advance(1.0).await;
        }
        fixture.reads_of_lease(answering(first));
        fixture.make_first_read().await;
        advance(QUARANTINE.as_secs_f64()).await;
        fixture.reads_of_lease(answering(second));
        assert_eq!(reason(fixture.verify_gone().await), expected, "{what}");
        assert_eq!(fixture.has_first_read(), expected == "NodeGone", "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn bug_a_deleted_lease_that_the_watch_had_not_shown_counted_as_not_renewed() {
    let fixture = Fixture::new();
    fixture.apply(Kind::NodeLeases, &lease("n", 1).uid("lease").0);
    fixture.reads_of_lease(object(lease("n", 1)));
    advance(1.0).await;
    fixture.make_first_read().await;
    advance(QUARANTINE.as_secs_f64()).await;
    fixture.reads_of_lease(absent());
    assert_eq!(reason(fixture.verify_gone().await), "HeartbeatsUnseen");
    fixture.world.remove(Kind::NodeLeases, "lease", fixture.env.now());
    assert_eq!(reason(fixture.verify_gone().await), "NodeGone");
}

#[tokio::test(start_paused = true)]
async fn a_report_on_the_watch_since_the_first_read_was_sent_refutes_it() {
    for (what, when, expected) in
        [("before", 9_u64, "NodeGone"), ("at that moment", 10, "KubeletAlive"), ("later", 11, "KubeletAlive")]
    {
        for kind in ["lease", "report"] {
            let fixture = Fixture::new();
            fixture.world.apply(Kind::NodeLeases, &lease("n", 1).0, at(5));
            fixture.world.apply(Kind::Pods, &pod("b").on("n").0, at(5));
            let sign = || match kind {
                "lease" => fixture.world.apply(Kind::NodeLeases, &lease("n", 2).0, at(when)),
                _ => fixture.world.apply(Kind::Pods, &pod("b").on("n").rv(11).running().0, at(when)),
            };
            advance(9.0).await;
            if when == 9 {
                sign()
            }
            advance(1.0).await;
            fixture.make_first_read().await;
            if when >= 10 {
                sign()
            }
            advance(QUARANTINE.as_secs_f64()).await;
            assert_eq!(reason(fixture.verify_gone().await), expected, "{kind} {what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_the_watch_has_not_delivered_prevents_evidence() {
    for (what, brought) in [("none", None), ("an older one", Some(1))] {
        let fixture = Fixture::new();
        if let Some(second) = brought {
            fixture.apply(Kind::NodeLeases, &lease("n", second).0);
            advance(1.0).await;
        }
        fixture.reads_of_lease(object(lease("n", 2)));
        fixture.make_first_read().await;
        advance(QUARANTINE.as_secs_f64()).await;
        assert_eq!(reason(fixture.verify_gone().await), "HeartbeatsUnseen", "the watch has {what}");
    }
}

/// The kubelet may have written, after the API server answered, what the watch delivers later.
#[tokio::test(start_paused = true)]
async fn a_report_during_the_first_read_refutes_it() {
    type Act = fn(&Fixture);
    let dying = || pod("a").on("n").observed(3).terminating().set("/metadata/generation", json!(4)).rv(12);
    let rows: [(&str, Act, &str); 2] = [
        (
            "a report on another pod",
            |fixture| fixture.apply(Kind::Pods, &pod("b").on("n").rv(11).running().0),
            "KubeletAlive",
        ),
        (
            "the deletion of the pod",
            |fixture| {
                let dying = pod("a").on("n").observed(3).terminating().set("/metadata/generation", json!(4)).rv(12);
                fixture.apply(Kind::Pods, &dying.0);
            },
            "KubeletNotAsked",
        ),
    ];
    for (what, act, expected) in rows {
        let fixture = Fixture::connected();
        fixture.apply(Kind::Nodes, &node("n").0);
        fixture.apply(Kind::Pods, &pod("a").on("n").observed(3).rv(11).0);
        fixture.apply(Kind::Pods, &pod("b").on("n").0);
        fixture.world.remove(Kind::Nodes, "uid-n", fixture.env.now());
        advance(1.0).await;
        fixture.reads_of_node(answering(|| Answer::not_found().delayed(Duration::from_secs(1))));
        let act = async {
            advance(0.5).await;
            act(&fixture);
        };
        futures::future::join(fixture.make_first_read(), act).await;
        fixture.reads_of_node(absent());
        advance(QUARANTINE.as_secs_f64()).await;
        let pod = if expected == "KubeletNotAsked" { dying() } else { pod("a").on("n").observed(3).rv(11) };
        let judged = fixture.verify(&pod.force(Claim::NodeGone { node: "n".into() })).await;
        assert_eq!(reason(judged), expected, "{what}");
    }
}

/// Runs `act` while the reads are in flight.
async fn meanwhile(fixture: &Fixture, act: impl FnOnce(&Fixture)) -> Result<Evidence<PodVersion>, VerifyError> {
    fixture.reads_of_node(answering(|| Answer::not_found().delayed(Duration::from_secs(1))));
    let force = gone();
    let act = async {
        advance(0.5).await;
        act(fixture);
    };
    futures::future::join(fixture.verify(&force), act).await.0
}

#[tokio::test(start_paused = true)]
async fn a_report_on_the_watch_during_the_reads_refutes_node_gone() {
    type Act = fn(&Fixture);
    let rows: [(&str, Act, &str); 5] = [
        ("nothing", |_| {}, "NodeGone"),
        ("a renewed Lease", |fixture| fixture.apply(Kind::NodeLeases, &lease("n", 9).0), "KubeletAlive"),
        (
            "a report on a pod",
            |fixture| fixture.apply(Kind::Pods, &pod("b").on("n").rv(11).running().0),
            "KubeletAlive",
        ),
        ("the node", |fixture| fixture.apply(Kind::Nodes, &node("n").0), "NoWitness"),
        (
            "the node, and its removal",
            |fixture| {
                fixture.apply(Kind::Nodes, &node("n").0);
                fixture.world.remove(Kind::Nodes, "uid-n", fixture.env.now());
            },
            "NoWitness",
        ),
    ];
    for (what, act, expected) in rows {
        let fixture = Fixture::after_quarantine().await;
        fixture.apply(Kind::Pods, &pod("b").on("n").0);
        assert_eq!(reason(meanwhile(&fixture, act).await), expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn bug_a_first_read_of_the_next_absence_was_used_for_the_previous_one() {
    let mut fixture = Fixture::new();
    fixture.policy.quarantine = Duration::from_secs(5);
    fixture.make_first_read().await;
    advance(5.0).await;
    fixture.reads_of_node(answering(|| Answer::not_found().delayed(Duration::from_secs(20))));
    let force = gone();
    let act = async {
        advance(1.0).await;
        fixture.apply(Kind::Nodes, &node("n").0);
        fixture.world.remove(Kind::Nodes, "uid-n", fixture.env.now());
        fixture.world.record_absence_read("n", fixture.env.now());
    };
    let judged = futures::future::join(fixture.verify(&force), act).await.0;
    assert_eq!(reason(judged), "NoWitness");
}

#[tokio::test(start_paused = true)]
async fn without_current_watches_nothing_is_evidence() {
    let (leases, pods) = (Kind::NodeLeases, Kind::Pods);
    for (heard, expected) in [
        (&[][..], "HeartbeatsUnseen"),
        (&[leases], "HeartbeatsUnseen"),
        (&[pods], "HeartbeatsUnseen"),
        (&[leases, pods], "NodeGone"),
    ] {
        let fixture = Fixture::new();
        fixture.make_first_read().await;
        advance(151.0).await;
        fixture.world.confirm_kinds(heard, fixture.env.now());
        assert_eq!(reason(fixture.verify_gone().await), expected, "{heard:?} are heard of");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_shares_the_reads_of_one_node_until_they_expire() {
    let fixture = Fixture::after_quarantine().await;
    fixture.apply(Kind::Pods, &pod("b").on("n").0);
    let claim = || Claim::NodeGone { node: "n".into() };
    let mut judge = fixture.judge();
    let first = judge.verify(&gone()).await.unwrap();
    advance(1.9).await;
    let second = judge.verify(&pod("b").on("n").force(claim())).await.unwrap();
    assert_eq!((first.expires(), second.subject().pod.uid.clone()), (second.expires(), uid("uid-b")));
    assert_eq!(fixture.api.lines().len(), 4);
    advance(0.1).await;
    let third = judge.verify(&gone()).await.unwrap();
    assert_eq!(third.expires(), fixture.env.now() + VALID_FOR);
    assert_eq!(fixture.api.lines().len(), 6, "expired: read again");
}

#[tokio::test(start_paused = true)]
async fn bug_a_report_between_two_pods_of_a_batch_was_ignored() {
    type Act = fn(&Fixture);
    let rows: [(&str, Act, &str); 2] = [
        ("a renewed Lease", |fixture| fixture.apply(Kind::NodeLeases, &lease("n", 9).0), "KubeletAlive"),
        ("the node", |fixture| fixture.apply(Kind::Nodes, &node("n").0), "NoWitness"),
    ];
    for (what, act, expected) in rows {
        let fixture = Fixture::after_quarantine().await;
        let mut judge = fixture.judge();
        assert_eq!(reason(judge.verify(&gone()).await), "NodeGone");
        act(&fixture);
        assert_eq!(reason(judge.verify(&gone()).await), expected, "{what}");
        assert!(!fixture.has_first_read(), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_pod_of_a_batch_is_not_judged_by_a_first_read_of_another_absence() {
    let fixture = Fixture::after_quarantine().await;
    let mut judge = fixture.judge();
    assert_eq!(reason(judge.verify(&gone()).await), "NodeGone");
    fixture.apply(Kind::Nodes, &node("n").0);
    fixture.world.remove(Kind::Nodes, "uid-n", fixture.env.now());
    fixture.world.set_unreachable_before_node_deleted("n");
    fixture.world.record_absence_read("n", fixture.env.now());
    assert_eq!(reason(judge.verify(&gone()).await), "NoWitness");
}

#[tokio::test(start_paused = true)]
async fn a_refused_batch_reads_again_for_the_next_pod() {
    let fixture = Fixture::after_quarantine().await;
    fixture.reads_of_node(answering(|| Answer::status(500, "InternalError", "etcd")));
    let mut judge = fixture.judge();
    assert_eq!(reason(judge.verify(&gone()).await), "ReadFailed");
    fixture.reads_of_node(absent());
    assert_eq!(reason(judge.verify(&gone()).await), "NodeGone");
}

/// A mutant of the judge released these pods, and no test failed.
#[tokio::test(start_paused = true)]
async fn a_kubelet_active_until_its_node_was_deleted_needs_time_to_terminate_the_pod() {
    let alive = |observed: i64| pod("a").on("n").observed(observed).rv(11);
    let dying = |observed| alive(observed).terminating().set("/metadata/generation", json!(4)).rv(12);
    // How many seconds before the first read the pod was deleted.
    for (what, observed, deleted, expected) in [
        ("that nobody asked to end", 3, None, "KubeletNotAsked"),
        ("that was asked to end before the first read, by a kubelet that answers at once", 3, Some(1.0), "NodeGone"),
        ("that was asked to end after it", 3, Some(-1.0), "KubeletNotAsked"),
        ("of which an older kubelet speaks at the end of its grace alone", 0, Some(29.0), "KubeletNotAsked"),
        ("whose grace was over at the first read", 0, Some(30.0), "NodeGone"),
    ] {
        let fixture = Fixture::connected();
        fixture.apply(Kind::Nodes, &node("n").0);
        fixture.apply(Kind::Pods, &alive(observed).0);
        fixture.world.remove(Kind::Nodes, "uid-n", fixture.env.now());
        advance(1.0).await;
        if let Some(before) = deleted.filter(|before| *before > 0.0) {
            fixture.apply(Kind::Pods, &dying(observed).0);
            advance(before).await;
        }
        fixture.make_first_read().await;
        advance(1.0).await;
        if deleted.is_some_and(|before| before < 0.0) {
            fixture.apply(Kind::Pods, &dying(observed).0);
        }
        advance(QUARANTINE.as_secs_f64()).await;
        let pod = if deleted.is_some() { dying(observed) } else { alive(observed) };
        let judged = fixture.verify(&pod.force(Claim::NodeGone { node: "n".into() })).await;
        assert_eq!(reason(judged), expected, "a pod {what}");
    }
    let fixture = Fixture::connected();
    let ended = pod("a").on("n").phase("Failed").rv(11);
    fixture.apply(Kind::Pods, &ended.0);
    advance(1.0).await;
    fixture.make_first_read().await;
    advance(QUARANTINE.as_secs_f64()).await;
    let judged = fixture.verify(&ended.force(Claim::NodeGone { node: "n".into() })).await;
    assert_eq!(reason(judged), "NodeGone", "a pod of a terminal phase cannot be asked to end");
}
