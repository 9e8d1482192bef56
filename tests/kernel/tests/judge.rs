//! The kernel's checks for arbitrary input: each request names the subject of its evidence, and the guard accepts exactly that request.
#![expect(clippy::unwrap_used, reason = "what the strategies draw is well formed")]

use std::time::Duration;

use jiff::Timestamp;
use pod_safety_model::{
    ConditionState, Deletion, FenceEvidenceKind, Grade, Labels, Mono, OUT_OF_SERVICE_TAINT, Phase, Pod, PodKey,
    Tolerations, Uid, Uncommon,
};
use pod_safety_proof::{
    AbsenceRead, Claim, DeviceCheck, EvidenceRead, ForceDelete, ForceDeleteRequest, LastHeartbeat, LeaseVersion,
    Liveness, Next, NodeEvidence, Permit, QuorumRead, Refusal, Renewal, Request, Verb, WholeNode, check, revoke_holder,
    taint_out_of_service, verify_fenced, verify_pod,
};
use pod_safety_proof::{HolderFacts, RevocationBasis, verify_volume};
use pod_safety_wire::{Encoding, ObjectMeta, Raw};
use proptest::prelude::*;
use serde_json::{Value, json};

/// An empty cache.
struct EmptyCache;

impl Liveness for EmptyCache {
    fn is_current(&self, _now: Mono) -> bool {
        true
    }
    fn first_read(&self, _node: &str) -> Option<&AbsenceRead> {
        None
    }
    fn last_heartbeat(&self, _node: &str) -> Option<LastHeartbeat> {
        None
    }
    fn lease(&self, _node: &str) -> Option<Option<Timestamp>> {
        None
    }
    fn lease_is_gone(&self, _node: &str) -> bool {
        true
    }
    fn renewal(&self, _node: &str) -> Option<Renewal> {
        None
    }
    fn unreachable_before_node_deleted(&self, _node: &str) -> bool {
        false
    }
    fn reports_deletions(&self, _node: &str) -> bool {
        false
    }
    fn may_have_just_started(&self, _pod: &Pod, _node: &str) -> bool {
        false
    }
}

fn at(seconds: u64) -> Mono {
    Mono::from_start(Duration::from_secs(seconds))
}

fn raw(value: &Value) -> Raw {
    Raw::from_body(Encoding::Json, value.to_string().into()).unwrap()
}

prop_compose! {
    fn pods()(name in "[a-z]{1,3}", uid in "[a-f0-9]{1,8}", rv in 1_u64..99, generation in 1_i64..4, bound in any::<bool>(),
        phase in prop::sample::select(vec![Phase::Pending, Phase::Running, Phase::Succeeded, Phase::Failed, Phase::Unknown, Phase::Other]),
        running in 0_u16..2, deleted in any::<bool>(), busy in any::<bool>()) -> Pod {
        let key = PodKey { namespace: "ns".into(), name: name.as_str().into(), uid: Uid::new(&uid).unwrap() };
        let mut pod = Pod { key, rv: rv.to_string().parse().unwrap(), generation, created: 0, node: bound.then(|| "a".into()),
            bound_at: 0, phase, evicted: false, observed_generation: 0, running_containers: running, container_states: 0, worker_may_be_busy: busy, mirror: false, ready: false, unreachable: ConditionState::default(),
            labels: Labels::default(), tolerations: Tolerations::default(), gated: false, unschedulable: false, controller: None,
            uncommon: None, first_seen: at(0), placed_at: at(0), became_ready: None };
        let deletion = deleted.then_some(Deletion { at: 0, grace: Some(30), first_seen: at(0), kubelet_may_know: false });
        pod.set_uncommon(Uncommon { deletion, ..Uncommon::default() });
        pod
    }
}

fn claims() -> impl Strategy<Value = Claim> {
    prop::sample::select(vec![
        Claim::NeverScheduled,
        Claim::KubeletTerminated,
        Claim::NodeGone { node: "a".into() },
        Claim::OutOfService { node: "a".into() },
        Claim::Fenced { node: "a".into(), proof: "e".into(), newest: Default::default() },
        Claim::Fenced { node: "b".into(), proof: "e".into(), newest: Default::default() },
    ])
}

/// The facts about a node and its evidence: UIDs, boot IDs and the rest.
#[derive(Clone, Debug)]
struct EvidenceCase {
    node: (u8, u8, bool),
    evidence: (u8, u8, bool),
    kind: FenceEvidenceKind,
    shown: Option<FenceEvidenceKind>,
}

fn evidence_cases() -> impl Strategy<Value = EvidenceCase> {
    let kinds = || {
        prop::sample::select(vec![
            FenceEvidenceKind::PowerOff,
            FenceEvidenceKind::InstanceStopped,
            FenceEvidenceKind::InstanceGone,
            FenceEvidenceKind::WatchdogLease,
            FenceEvidenceKind::Remediated,
            FenceEvidenceKind::StorageFenced,
        ])
    };
    let incarnation = || (0_u8..2, 0_u8..3, prop::bool::weighted(0.3));
    // Half of the cases have devices that report what the evidence states.
    let shown = (kinds(), prop::option::of(kinds()), any::<bool>());
    (incarnation(), incarnation(), shown).prop_map(|(node, evidence, (kind, shown, same))| {
        let shown = if same { Some(kind) } else { shown };
        EvidenceCase { node, evidence, kind, shown }
    })
}

/// Boot 0 means that no boot ID is reported.
fn boot(boot: u8) -> String {
    if boot == 0 { String::new() } else { format!("b0000000-0000-4000-8000-{boot:012}") }
}

fn node(case: &EvidenceCase) -> Value {
    let (uid, booted, ready) = case.node;
    let status = if ready { "True" } else { "Unknown" };
    json!({ "metadata": { "name": "a", "uid": format!("u{uid}"), "resourceVersion": "7" },
        "status": { "nodeInfo": { "bootID": boot(booted) }, "conditions": [{ "type": "Ready", "status": status }] } })
}

fn verify_case(case: &EvidenceCase) -> Option<NodeEvidence> {
    verify_case_with(case, 100, 100).ok()
}

/// The Node is read at 100, and its devices are checked at `shown`.
fn verify_case_with(case: &EvidenceCase, answered: u64, shown: u64) -> Result<NodeEvidence, Refusal> {
    let (uid, booted, invalidated) = case.evidence;
    let mut object = json!({ "metadata": { "name": "e" }, "spec": { "kind": case.kind, "samples": [{}],
        "node": { "name": "a", "uid": format!("u{uid}"), "bootID": boot(booted) } } });
    if invalidated {
        object["status"] = json!({ "invalidated": {} });
    }
    let read = EvidenceRead::decode("e", &raw(&object), Timestamp::UNIX_EPOCH).unwrap();
    let quorum_read = QuorumRead::decode("a", (at(100), at(answered)), Some(&raw(&node(case))), None).unwrap();
    let shown = case.shown.map(|kind| DeviceCheck { kind, requested_at: at(shown) });
    verify_fenced(&read, shown, &quorum_read, Grade::Asserted, &EmptyCache)
}

/// A kubelet that reports after its Node was read, while the devices are checked, would be missed.
#[test]
fn device_checks_sent_after_the_node_read_are_no_evidence() {
    let (node, evidence) = ((1, 1, false), (1, 1, false));
    let kind = FenceEvidenceKind::PowerOff;
    let case = EvidenceCase { node, evidence, kind, shown: Some(kind) };
    assert!(verify_case_with(&case, 102, 100).is_ok());
    for shown in [101, 103] {
        let refusal = verify_case_with(&case, 102, shown).unwrap_err();
        assert!(matches!(refusal, Refusal::EvidenceInvalid(_)), "{refusal}");
    }
}

/// The guard accepts the request unchanged, and in no other form.
fn accepts_exactly_the_valid_cases(
    request: Request,
    uid: &str,
    version: &str,
) -> Result<(Verb, String, Value), TestCaseError> {
    let (verb, path, body, permit) = request.into_parts();
    let method = if verb == Verb::Delete { "DELETE" } else { "PATCH" };
    let place = if verb == Verb::Delete { "preconditions" } else { "metadata" };
    let sent = |path: &str, body: &Value, permit: Option<&Permit>| {
        check(method, path, None, Some(body.to_string().as_bytes()), permit).is_ok()
    };
    prop_assert_eq!(&body[place]["uid"], uid);
    prop_assert_eq!(&body[place]["resourceVersion"], version);
    prop_assert!(sent(&path, &body, Some(&permit)));
    prop_assert!(!sent(&path, &body, None));
    prop_assert!(!sent(
        &path.replace("/ns/", "/other/").replace("/nodes/a", "/nodes/b").replace("/leases/pv", "/leases/pw"),
        &body,
        Some(&permit)
    ));
    for (key, other) in [
        ("uid", json!("another")),
        ("resourceVersion", json!("100")),
        ("uid", Value::Null),
        ("resourceVersion", Value::Null),
    ] {
        let mut changed = body.clone();
        changed[place][key] = other;
        // A harmless request needs no permit; these requests do.
        prop_assert!(!sent(&path, &changed, Some(&permit)), "{} {}", key, changed);
    }
    Ok((verb, path, body))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn evidence_that_releases_a_pod_names_that_pod(subject in pods(), other in pods(), is_other in any::<bool>(), claim in claims(), case in evidence_cases(), answer in 1_u64..99) {
        let force = ForceDeleteRequest::new(&subject, claim.clone());
        let verified = verify_case(&case);
        let cached = if is_other { &other } else { &subject };
        let evidence = verify_pod(&force, Some(cached), verified.as_ref(), &EmptyCache, at(101));
        let Ok(evidence) = evidence else { return Ok(()) };
        prop_assert_eq!((&cached.key, cached.rv), (&subject.key, subject.rv));
        if let Claim::Fenced { node, .. } = &claim {
            prop_assert_eq!(cached.node.as_ref(), Some(node));
            let ((uid, booted, ready), (about, about_boot, invalidated)) = (case.node, case.evidence);
            prop_assert!((uid, booted) == (about, about_boot) && booted != 0 && !ready && !invalidated);
            // A machine that is off may since be reported as a stopped instance, and a stopped instance as a terminated one.
            // No later report is weaker.
            let weight = |kind| match kind {
                FenceEvidenceKind::PowerOff => Some(0),
                FenceEvidenceKind::InstanceStopped => Some(1),
                FenceEvidenceKind::InstanceGone => Some(2),
                _ => None,
            };
            let shown = case.shown.unwrap();
            let more = weight(shown).zip(weight(case.kind)).is_some_and(|(shown, stated)| shown > stated);
            prop_assert!(more || shown == case.kind, "{shown:?} {:?}", case.kind);
            prop_assert!(case.kind != FenceEvidenceKind::StorageFenced);
            prop_assert!(evidence.expires() <= at(102));
        }
        let (uid, path) = (subject.key.uid.to_string(), format!("/api/v1/namespaces/ns/pods/{}", subject.key.name));
        let mut act = ForceDelete::new(evidence);
        let mut version = subject.rv.to_string();
        if !subject.phase.is_terminal() {
            let (verb, sent_to, body) = accepts_exactly_the_valid_cases(act.request(Timestamp::UNIX_EPOCH), &uid, &version)?;
            prop_assert_eq!((verb, sent_to), (Verb::Patch, format!("{path}/status")));
            prop_assert_eq!(&body["status"]["phase"], "Failed");
            version = answer.to_string();
            let meta = ObjectMeta { resource_version: Some(version.clone()), ..ObjectMeta::default() };
            let Ok(Next::Delete(next)) = act.advance(&meta) else { panic!("no DELETE follows") };
            act = next;
        }
        let (verb, sent_to, body) = accepts_exactly_the_valid_cases(act.request(Timestamp::UNIX_EPOCH), &uid, &version)?;
        prop_assert_eq!((verb, sent_to), (Verb::Delete, path));
        prop_assert_eq!(&body["gracePeriodSeconds"], 0);
    }

    #[test]
    fn the_taint_is_added_to_the_incarnation_that_the_evidence_is_about(then in evidence_cases(), now in evidence_cases()) {
        let Some(verified) = verify_case(&then) else { return Ok(()) };
        let object = node(&now);
        let about = verified.subject().clone();
        let act = taint_out_of_service(verified, &WholeNode::new("a", &object), "v", Timestamp::UNIX_EPOCH);
        let Ok((request, expires)) = act else { return Ok(()) };
        prop_assert_eq!((about.uid, about.boot_id), (format!("u{}", now.node.0), boot(now.node.1)));
        prop_assert!(!now.node.2 && expires <= at(102));
        let (_, _, body) = accepts_exactly_the_valid_cases(request, &format!("u{}", now.node.0), "7")?;
        prop_assert_eq!(&body["spec"]["taints"][0]["key"], OUT_OF_SERVICE_TAINT);
    }

    #[test]
    fn a_volume_is_revoked_for_the_incarnation_that_acquired_it(case in evidence_cases(), taken in (0_u8..2, 0_u8..3), rv in 1_u64..99) {
        let Some(verified) = verify_case(&case) else { return Ok(()) };
        let identity = format!("a/u{}/{}/-", taken.0, boot(taken.1));
        let holder = pod_safety_model::Holder::parse(&identity).unwrap();
        let lease = LeaseVersion { volume: "pv".into(), uid: Uid::new("l").unwrap(), rv: rv.to_string().parse().unwrap() };
        let by = RevocationBasis::Evidence { proof: "e".into(), newest: Default::default() };
        let evidence = verify_volume(lease, &holder, &by, &HolderFacts::Fenced(&verified));
        let Ok(evidence) = evidence else { return Ok(()) };
        prop_assert_eq!(taken, (case.evidence.0, case.evidence.1));
        let (request, _) = revoke_holder(evidence, 3, None, json!({ "metadata": {}, "spec": {} }));
        let (_, path, body) = accepts_exactly_the_valid_cases(request, "l", &rv.to_string())?;
        prop_assert_eq!((&body["metadata"]["uid"], &body["metadata"]["resourceVersion"]), (&json!("l"), &json!(rv.to_string())));
        prop_assert!(path.ends_with("/leases/pv"));
        prop_assert!(body["spec"]["holderIdentity"].is_null());
    }
}
