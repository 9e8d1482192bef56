//! Claims about the pod itself: the pod is looked up by UID, and the evidence is bound to its version.

use super::*;

fn claim(name: &str) -> Claim {
    match name {
        "never scheduled" => Claim::NeverScheduled,
        "ended" => Claim::KubeletTerminated,
        "gone" => Claim::NodeGone { node: "n".into() },
        _ => Claim::OutOfService { node: "n".into() },
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_does_not_match_its_pod_is_refused() {
    let on = |name| pod("a").on(name);
    for (name, object, expected) in [
        ("never scheduled", pod("a").terminating(), "NeverScheduled"),
        ("never scheduled", pod("a"), "ClaimMismatch"),
        ("never scheduled", on("n").terminating(), "ClaimMismatch"),
        ("ended", on("n").phase("Failed"), "KubeletTerminated"),
        ("ended", on("n").phase("Succeeded"), "KubeletTerminated"),
        ("ended", on("n").phase("Succeeded").running(), "ClaimMismatch"),
        ("ended", on("n").phase("Running"), "ClaimMismatch"),
        ("ended", on("n").phase(""), "ClaimMismatch"),
        ("ended", on("n").phase("Unknown"), "ClaimMismatch"),
        ("gone", on("n"), "NoWitness"),
        ("gone", on("m"), "ClaimMismatch"),
        ("gone", pod("a"), "ClaimMismatch"),
        ("out of service", on("n").terminating(), "TaintNotTrusted"),
        ("out of service", on("n"), "ClaimMismatch"),
        ("out of service", on("m").terminating(), "ClaimMismatch"),
        ("out of service", on("n").phase("Failed").running(), "ClaimMismatch"),
    ] {
        let fixture = Fixture::new();
        fixture.apply(Kind::Pods, &object.0);
        let judged = fixture.verify(&object.force(claim(name))).await;
        assert_eq!(reason(judged), expected, "{name}: {}", object.0);
        assert_eq!(fixture.api.lines(), [""; 0], "the cache suffices to say so");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_changed_since_the_claim_is_refused() {
    let seen = || pod("a").terminating();
    for (what, now) in [
        ("at another version", Some(seen().rv(11))),
        ("another incarnation", Some(seen().uid("another"))),
        ("under another name", Some(seen().set("/metadata/name", "b".into()))),
        ("in another namespace", Some(seen().set("/metadata/namespace", "other".into()))),
        ("gone", None),
    ] {
        let fixture = Fixture::new();
        fixture.world.remove(Kind::Pods, "uid-a", fixture.env.now());
        if let Some(now) = now {
            fixture.apply(Kind::Pods, &now.0);
        }
        assert_eq!(reason(fixture.verify(&seen().force(Claim::NeverScheduled)).await), "PodChanged", "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn evidence_records_a_terminal_phase_and_expires_soon() {
    for (object, name, terminal) in
        [(pod("a").terminating(), "never scheduled", false), (pod("a").phase("Failed"), "ended", true)]
    {
        let fixture = Fixture::new();
        fixture.apply(Kind::Pods, &object.0);
        let evidence = fixture.verify(&object.force(claim(name))).await.unwrap();
        assert_eq!((evidence.subject().terminal, evidence.expires()), (terminal, fixture.env.now() + VALID_FOR));
    }
}
