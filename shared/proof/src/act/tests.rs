//! Which evidence permits which act, and for which object.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_model::{FenceEvidenceKind, Holder, Uid};

use super::*;
use crate::{HolderFacts, Refusal, RevocationBasis, check, verify_volume};

const BOOT: &str = "b0000000-0000-4000-8000-000000000001";
const NEXT_BOOT: &str = "b0000000-0000-4000-8000-000000000002";

const WALL: &str = "2026-11-25T12:00:00Z";

fn incarnation(boot: &str) -> Incarnation {
    Incarnation { name: "n".to_owned(), uid: "uid-n".to_owned(), boot_id: boot.to_owned() }
}

fn later() -> Mono {
    Mono::from_start(Duration::from_secs(60))
}

fn node(boot: &str, ready: &str, taints: &Value) -> Value {
    json!({
        "metadata": { "name": "n", "uid": "uid-n", "resourceVersion": "7" },
        "spec": { "taints": taints },
        "status": { "nodeInfo": { "bootID": boot }, "conditions": [{ "type": "Ready", "status": ready }] },
    })
}

fn every_kind() -> [EvidenceKind; 13] {
    let (node, proof): (Arc<str>, Arc<str>) = ("n".into(), "e".into());
    let two = || (Arc::clone(&node), Arc::clone(&proof));
    let fenced = |kind, (node, proof)| EvidenceKind::Fenced { node, proof, kind };
    let confirmed = |(node, proof)| EvidenceKind::Confirmed { node, proof, by: "ada".into() };
    let how = crate::Barrier::Detached { driver: "d".into() };
    [
        fenced(FenceEvidenceKind::PowerOff, two()),
        fenced(FenceEvidenceKind::Decommissioned, two()),
        fenced(FenceEvidenceKind::InstanceStopped, two()),
        fenced(FenceEvidenceKind::InstanceGone, two()),
        fenced(FenceEvidenceKind::WatchdogLease, two()),
        fenced(FenceEvidenceKind::Remediated, two()),
        confirmed(two()),
        EvidenceKind::NodeGone { node: Arc::clone(&node), apart: Duration::from_secs(40) },
        EvidenceKind::NeverScheduled,
        EvidenceKind::KubeletTerminated,
        EvidenceKind::TrustedTaint { node: Arc::clone(&node) },
        EvidenceKind::BootChanged { node: Arc::clone(&node) },
        EvidenceKind::StorageFenced { volume: "v".into(), node, how },
    ]
}

fn tainted(kind: EvidenceKind, about: Incarnation, whole: &Value) -> Result<Request, TaintRefusal> {
    let evidence = Evidence::for_act_tests(kind, about, later());
    let (request, expires) = taint_out_of_service(evidence, &WholeNode::new("n", whole), "n-1", WALL.parse().unwrap())?;
    assert_eq!(expires, later());
    Ok(request)
}

#[test]
fn an_out_of_service_taint_is_only_added_in_the_fenced_incarnation() {
    let others = json!([{ "key": "example.com/mine", "effect": "NoSchedule" }]);
    let has_it = json!([{ "key": OUT_OF_SERVICE_TAINT, "value": "theirs", "effect": "NoExecute" }]);
    for (whole, about, verdict) in [
        (node(BOOT, "Unknown", &others), incarnation(BOOT), None),
        (node(NEXT_BOOT, "Unknown", &others), incarnation(BOOT), Some(TaintRefusal::WrongEvidence)),
        (node("", "Unknown", &others), incarnation(""), Some(TaintRefusal::WrongEvidence)),
        (node(BOOT, "True", &others), incarnation(BOOT), Some(TaintRefusal::Ready)),
        (node(BOOT, "Unknown", &has_it), incarnation(BOOT), Some(TaintRefusal::AlreadyTainted)),
    ] {
        let [power_off, ..] = every_kind();
        assert_eq!(tainted(power_off, about, &whole).err(), verdict, "{whole}");
    }
    for (at, kind) in every_kind().into_iter().enumerate() {
        let done = tainted(kind.clone(), incarnation(BOOT), &node(BOOT, "Unknown", &others));
        assert_eq!(done.is_ok(), at < 7, "{kind:?}");
    }
}

#[test]
fn act_requests_pass_the_guard_only_unchanged_and_with_their_permit() {
    let [power_off, ..] = every_kind();
    let taint = tainted(power_off.clone(), incarnation(BOOT), &node(BOOT, "Unknown", &json!([]))).unwrap();
    let lease = LeaseVersion { volume: "v".into(), uid: Uid::new("u").unwrap(), rv: "7".parse().unwrap() };
    let next = Holder::parse("n/u/b0000000-0000-4000-8000-000000000002/p");
    let [freed, passed] = [None, next.as_ref()].map(|next| {
        let evidence = Evidence::for_act_tests(power_off.clone(), lease.clone(), later());
        revoke_holder(evidence, 2, next, json!({ "metadata": { "labels": { "a": null } } })).0
    });
    for (verb, request) in [("PATCH", taint), ("PATCH", freed), ("PATCH", passed)] {
        let (_, path, body, permit) = request.into_parts();
        let body = body.to_string();
        assert_eq!(check(verb, &path, None, Some(body.as_bytes()), Some(&permit)), Ok(()));
        assert!(check(verb, &path, None, Some(body.as_bytes()), None).is_err(), "{body}");
        let other = body.replace("\"7\"", "\"8\"");
        assert!(check(verb, &path, None, Some(other.as_bytes()), Some(&permit)).is_err(), "{other}");
    }
}

#[test]
fn keeping_taints_needs_no_evidence_and_adds_no_out_of_service_taint() {
    let theirs = json!({ "key": OUT_OF_SERVICE_TAINT, "value": "theirs", "effect": "NoExecute" });
    let new = json!({ "key": OUT_OF_SERVICE_TAINT, "value": "new", "effect": "NoExecute" });
    let mine = json!({ "key": "example.com/mine", "effect": "NoSchedule" });
    let hidden = json!({ "key": "example.com/mine", "value": OUT_OF_SERVICE_TAINT });
    let whole = node(BOOT, "True", &json!([theirs, mine]));
    for (taints, permitted) in [
        (json!([theirs, mine]), true),
        (json!([theirs]), true),
        (json!([mine]), false),
        (json!([theirs, new]), false),
        (json!([new]), false),
        (json!([hidden]), false),
    ] {
        let kept = WholeNode::new("n", &whole).permit_kept_taints(json!({ "spec": { "taints": taints } }));
        assert_eq!(kept.is_some(), permitted, "{taints}");
        if let Some(request) = kept {
            let (_, path, body, permit) = request.into_parts();
            let body = body.to_string();
            assert_eq!(check("PATCH", &path, None, Some(body.as_bytes()), Some(&permit)), Ok(()));
        }
    }
}

/// A trusted out-of-service taint is evidence about an incarnation. Once it was accepted for revoking a volume's Lease.
#[test]
fn bug_a_trusted_taint_revoked_the_holder_of_a_volume() {
    let holder = Holder { node: "n".into(), node_uid: Uid::new("uid-n").unwrap(), boot_id: BOOT.into(), pod: None };
    let by = RevocationBasis::Evidence { proof: "e".into(), newest: "1".parse().unwrap() };
    for (at, kind) in every_kind().into_iter().enumerate() {
        let lease = LeaseVersion { volume: "v".into(), uid: Uid::new("u").unwrap(), rv: "7".parse().unwrap() };
        let evidence = Evidence::for_act_tests(kind.clone(), incarnation(BOOT), later());
        let judged = verify_volume(lease, &holder, &by, &HolderFacts::Fenced(&evidence));
        assert_eq!(judged.is_ok(), at < 7, "{kind:?}");
        let refusal = judged.err();
        assert!(refusal.is_none_or(|refusal| matches!(refusal, Refusal::EvidenceInvalid(_))), "{kind:?}");
    }
}

/// Evidence about another node, or of another kind, does not show that a volume's holder is gone.
#[test]
fn a_volume_holder_is_gone_only_by_node_gone_evidence_about_its_node() {
    let holder = Holder { node: "n".into(), node_uid: Uid::new("uid-n").unwrap(), boot_id: BOOT.into(), pod: None };
    let other = Incarnation { name: "m".to_owned(), ..incarnation(BOOT) };
    for (at, kind) in every_kind().into_iter().enumerate() {
        for (about, is_used) in [(incarnation(BOOT), false), (incarnation(BOOT), true), (other.clone(), false)] {
            let lease = LeaseVersion { volume: "v".into(), uid: Uid::new("u").unwrap(), rv: "7".parse().unwrap() };
            let evidence = Evidence::for_act_tests(kind.clone(), about, later());
            let counts = at == 7 && evidence.subject().name == "n" && !is_used;
            let judged =
                verify_volume(lease, &holder, &RevocationBasis::NodeGone, &HolderFacts::Gone(&evidence, is_used));
            assert_eq!(judged.is_ok(), counts, "{evidence:?}, used {is_used}");
        }
    }
}
