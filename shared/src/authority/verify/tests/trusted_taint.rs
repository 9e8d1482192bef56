//! Evidence Asserted: an out-of-service taint, where the settings trust it.

use super::*;

fn claim() -> ForceDeleteRequest {
    shut_down().force(Claim::OutOfService { node: "n".into() })
}

fn shut_down() -> Obj {
    pod("a").on("n").terminating()
}

fn fixture(trusts: bool) -> Fixture {
    let mut fixture = Fixture::new();
    fixture.policy.trust_out_of_service_taint = trusts;
    fixture.apply(Kind::Pods, &shut_down().0);
    fixture
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
        ("trusted, but unreadable", true, answering(|| Answer::plain(502, "bad gateway")), "ReadFailed"),
        ("not trusted", false, object(tainted()), "TaintNotTrusted"),
    ] {
        let fixture = fixture(trusts);
        fixture.reads_of_node(read);
        let judged = fixture.verify(&claim()).await;
        assert_eq!(reason(judged), expected, "{what}");
        assert_eq!(fixture.api.lines().is_empty(), !trusts, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_shares_the_reads_of_a_tainted_node_until_they_expire() {
    let fixture = fixture(true);
    fixture.reads_of_node(object(node("n").tainted()));
    let mut judge = fixture.judge();
    let first = judge.verify(&claim()).await.unwrap();
    assert_eq!(*first.kind(), EvidenceKind::TrustedTaint { node: "n".into() });
    assert_eq!(first.expires(), fixture.env.now() + VALID_FOR);
    judge.verify(&claim()).await.unwrap();
    assert_eq!(fixture.api.lines().len(), 2);
}

/// Once, evidence from a late answer was valid for two seconds after the answer, and the taint may have been removed since.
#[tokio::test(start_paused = true)]
async fn bug_the_validity_of_taint_evidence_counted_from_the_answer() {
    let fixture = fixture(true);
    let asked_at = fixture.env.now();
    fixture.reads_of_node(answering(|| Answer::json(&node("n").tainted().0).delayed(Duration::from_secs(1))));
    let mut judge = fixture.judge();
    assert_eq!(judge.verify(&claim()).await.unwrap().expires(), asked_at + VALID_FOR);
}
