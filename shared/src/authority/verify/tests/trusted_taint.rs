//! Evidence Asserted: an out-of-service taint, where the settings trust it.

use super::*;

fn claim() -> ForceDeleteRequest {
    shut_down().force(Claim::OutOfService { node: "n".into() })
}

fn shut_down() -> Obj {
    pod("a").on("n").terminating()
}

fn court(trusts: bool) -> Fixture {
    let mut court = Fixture::new();
    court.policy.trust_out_of_service_taint = trusts;
    court.apply(Kind::Pods, &shut_down().0);
    court
}

#[tokio::test(start_paused = true)]
async fn a_taint_is_evidence_only_where_it_is_trusted_and_the_node_is_not_ready() {
    let tainted = || node("n").tainted();
    let unsaid = || tainted().set("/status/conditions", Value::Null);
    for (what, trusts, read, expected) in [
        ("trusted, tainted and unknown", true, object(tainted()), "Asserted"),
        ("trusted, tainted and not ready", true, object(tainted().ready("False")), "Asserted"),
        ("trusted, tainted and without a condition", true, object(unsaid()), "Asserted"),
        ("trusted, tainted and ready", true, object(tainted().ready("True")), "NodeInService"),
        ("trusted, but without the taint", true, object(node("n")), "NodeInService"),
        ("trusted, but gone", true, absent(), "NodeInService"),
        ("trusted, but unreadable", true, says(|| Answer::plain(502, "bad gateway")), "ReadFailed"),
        ("not trusted", false, object(tainted()), "TaintNotTrusted"),
    ] {
        let court = court(trusts);
        court.reads_of_node(read);
        let judged = court.verify(&claim()).await;
        assert_eq!(reason(judged), expected, "{what}");
        assert_eq!(court.api.lines().is_empty(), !trusts, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_shares_the_reads_of_a_tainted_node_until_they_expire() {
    let court = court(true);
    court.reads_of_node(object(node("n").tainted()));
    let mut judge = court.judge();
    let first = judge.verify(&claim()).await.unwrap();
    assert_eq!(*first.kind(), EvidenceKind::TrustedTaint { node: "n".into() });
    assert_eq!(first.expires(), court.env.now() + VALID_FOR);
    judge.verify(&claim()).await.unwrap();
    assert_eq!(court.api.lines().len(), 2);
}

/// Once, evidence from a late answer was valid for two seconds after the answer, and the taint may have been removed since.
#[tokio::test(start_paused = true)]
async fn bug_the_validity_of_taint_evidence_counted_from_the_answer() {
    let court = court(true);
    let asked_at = court.env.now();
    court.reads_of_node(says(|| Answer::json(&node("n").tainted().0).delayed(Duration::from_secs(1))));
    let mut judge = court.judge();
    assert_eq!(judge.verify(&claim()).await.unwrap().expires(), asked_at + VALID_FOR);
}
