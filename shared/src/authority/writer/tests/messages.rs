//! The texts of Events, metrics and journal, and the times of Leases.

use crate::testing::objects::{BOOT, NEXT_BOOT};
use serde_json::json;

use super::volumes::{holder, update};
use super::*;
use crate::authority::{AttachDenial, RevocationBasis, VolumeChange};
use crate::model::Holder;

#[test]
fn each_volume_change_has_a_unique_name() {
    let refused = || AttachDenial { why: String::new(), detach_from: None };
    let all = [
        VolumeChange::Acquire { holder: holder(BOOT), denial: None },
        VolumeChange::DenyAttach(refused()),
        VolumeChange::Allow,
        VolumeChange::Release { denial: None },
        VolumeChange::Revoke { holder: holder(BOOT), basis: RevocationBasis::NodeGone, next: None, denial: None },
        VolumeChange::DeleteLease,
    ];
    assert_eq!(all.map(|change| change.name()), VolumeChange::NAMES);
    assert_eq!(VolumeChange::NAMES[4], "VolumeLeaseRevoked");
}

/// A revocation that was refused is retried at once when other evidence comes, although the Lease is unchanged.
#[test]
fn only_a_revocation_rests_on_its_evidence_too() {
    let basis = |change| match update(true, change) {
        Intent::Update(update) => update.basis(),
        other => panic!("{other:?}"),
    };
    let rv = "7".parse().unwrap();
    let over =
        VolumeChange::Revoke { holder: holder(BOOT), basis: RevocationBasis::Rebooted, next: None, denial: None };
    assert_eq!(basis(over), (rv, Some(RevocationBasis::Rebooted)));
    assert_eq!(basis(VolumeChange::Allow), (rv, None));
}

#[test]
fn a_claim_about_a_node_names_it_in_the_queue_and_the_journal() {
    let node: Arc<str> = "n".into();
    for (claim, named) in [
        (Claim::NodeGone { node: Arc::clone(&node) }, true),
        (Claim::OutOfService { node: Arc::clone(&node) }, true),
        (Claim::Fenced { node: Arc::clone(&node), proof: "e".into(), newest: "1".parse().unwrap() }, true),
        (Claim::NeverScheduled, false),
        (Claim::KubeletTerminated, false),
    ] {
        assert_eq!(claim.node(), named.then_some(&node), "{claim:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_lease_has_micro_times() {
    let pool = pool(Leadership::always(), |request| match request.method.as_str() {
        "GET" => Answer::not_found(),
        _ => Answer::json(&json!({ "metadata": { "name": "v", "uid": "uid-lease", "resourceVersion": "8" } })),
    });
    let take = VolumeChange::Acquire { holder: holder(BOOT), denial: None };
    assert_eq!(pool.authority.submit(update(true, take), &pool.owner), Submitted::Accepted);
    advance(0.5).await;
    let written = pool.api.requests().into_iter().find(|request| request.method == "PATCH").unwrap().json();
    let noon = json!("2026-11-21T12:00:00.000000Z");
    assert_eq!((&written["spec"]["acquireTime"], &written["spec"]["renewTime"]), (&noon, &noon));
}

/// Type and reason of the Events that are to be written.
pub(super) async fn event_types_and_reasons(pool: &Pool) -> Vec<(String, String)> {
    let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    events(pool).await.iter().map(|event| (word(&event["type"]), word(&event["reason"]))).collect()
}

pub(super) async fn events(pool: &Pool) -> Vec<serde_json::Value> {
    let write = pool.authority.events.clone().worker_loop(
        pool.api.connection(),
        Arc::clone(&pool.leadership),
        "pod-safety",
        "this-process".to_owned(),
    );
    let _until = tokio::time::timeout(Duration::from_secs(1), write).await;
    let requests = pool.api.requests().into_iter().filter(|request| request.path.ends_with("/events"));
    requests.map(|request| request.json()).collect()
}

/// The runbook and docs/proof.md name refusals by their codes, and `explain` derives its advice from them. Once, the Event
/// did not have the code.
#[tokio::test(start_paused = true)]
async fn bug_the_event_of_a_refusal_had_no_code() {
    let pool = pool(Leadership::always(), well);
    let object = pod("a").on("n");
    pool.world.apply(Kind::Pods, &object.0, pool.env.now());
    assert_eq!(pool.submit(&object, Claim::NodeGone { node: "n".into() }), Submitted::Accepted);
    advance(0.5).await;
    let events = events(&pool).await;
    assert_eq!(events[0]["message"], "NoWitness: there is no first quorum read of the missing node yet");
}

/// Once, if each read of a node took longer than its limit, no pod was ever deleted gracefully, and the journal gave a
/// wrong reason: that pod or node had changed.
#[tokio::test(start_paused = true)]
async fn bug_a_deletion_delayed_by_a_slow_api_server_was_recorded_as_changed() {
    let pool = pool(Leadership::always(), |request| match request.method.as_str() {
        "GET" => Answer::not_found().delayed(Duration::from_secs(3)),
        _ => Answer::json(&json!({ "metadata": {} })),
    });
    let pod = pod("a").force(Claim::KubeletTerminated).pod;
    let cause = crate::authority::DeleteCause::NodeGone { node: "n".into() };
    let due = Mono::default();
    let delete =
        GracefulDeleteRequest { pod, rv: "10".parse().unwrap(), generation: 1, disrupted_since: None, cause, due };
    pool.submit_accepted(Intent::Delete(delete));
    advance(3.5).await;
    let why = "the node was read, but the answer took longer than 2s, and the node may have changed since: tried again";
    let records = pool.journal.records();
    let record = &records[0];
    assert_eq!((record.action, record.reason, &*record.message), (Action::Failed, "ReadsTooSlow", why));
    let events = events(&pool).await;
    assert_eq!((&events[0]["type"], &events[0]["reason"]), (&json!("Warning"), &json!("DeletionFailed")));
    assert_eq!(events[0]["message"], format!("ReadsTooSlow: {why}"));
}

#[tokio::test(start_paused = true)]
async fn force_deletions_refusals_and_failures_have_events_and_dropped_requests_have_none() {
    type Script = fn(&Received) -> Answer;
    let removed: Script = well;
    let fails: Script = |request| match request.method.as_str() {
        "GET" => Answer::not_found(),
        "POST" => Answer::json(&json!({ "metadata": {} })),
        _ => Answer::status(500, "InternalError", "etcd"),
    };
    let changed: Script = |request| match request.method.as_str() {
        "POST" => Answer::json(&json!({ "metadata": {} })),
        _ => Answer::status(409, "Conflict", "changed"),
    };
    let ended = || Claim::KubeletTerminated;
    for (what, script, object, claim, expected) in [
        ("removed", removed, ended_pod("a"), ended(), &[("Normal", "ForceDeleted")][..]),
        (
            "refused",
            removed,
            pod("a").on("n"),
            Claim::NodeGone { node: "n".into() },
            &[("Warning", "ForceDeleteRefused")],
        ),
        ("failed", fails, ended_pod("a"), ended(), &[("Warning", "ForceDeleteFailed")]),
        ("changed", changed, ended_pod("a"), ended(), &[]),
    ] {
        let pool = pool(Leadership::always(), script);
        pool.world.apply(Kind::Pods, &object.0, pool.env.now());
        assert_eq!(pool.submit(&object, claim), Submitted::Accepted);
        advance(0.5).await;
        let expected: Vec<_> =
            expected.iter().map(|(kind, reason)| ((*kind).to_owned(), (*reason).to_owned())).collect();
        assert_eq!(event_types_and_reasons(&pool).await, expected, "{what}");
    }
}

/// A change of a volume, the answer of the API server, and the record: action, reason, message, node, and whether an Event
/// is emitted.
type Volume = (VolumeChange, u16, Action, &'static str, &'static str, Option<&'static str>, bool);

/// The node has booted since its boot `boot`.
fn broken(boot: &str, next: Option<Holder>) -> VolumeChange {
    VolumeChange::Revoke { holder: holder(boot), basis: RevocationBasis::Rebooted, next, denial: None }
}

fn volumes() -> Vec<Volume> {
    let refused = |why: &str| AttachDenial { why: why.to_owned(), detach_from: None };
    let taken = |refused| VolumeChange::Acquire { holder: holder(BOOT), denial: refused };
    let guarded = |change, reason, said, about, loud| (change, 200, Action::Guarded, reason, said, about, loud);
    vec![
        guarded(taken(None), "VolumeLeaseAcquired", "taken by node n", Some("n"), false),
        guarded(
            taken(Some(refused("it may write"))),
            "VolumeLeaseAcquired",
            "taken by node n, and not every node may attach it: it may write",
            Some("n"),
            false,
        ),
        guarded(VolumeChange::DenyAttach(refused("it may write")), "VolumeAttachDenied", "it may write", None, true),
        guarded(
            VolumeChange::Allow,
            "VolumeAllowed",
            "there is no objection any more: it may be attached and detached",
            None,
            true,
        ),
        guarded(
            VolumeChange::Release { denial: None },
            "VolumeReleased",
            "its node no longer uses it, and it is free",
            None,
            false,
        ),
        guarded(
            broken(NEXT_BOOT, None),
            "VolumeLeaseRevoked",
            "it is free, although node n did not unmount it: node n has booted since: its boot ID changed",
            Some("n"),
            true,
        ),
        guarded(
            broken(NEXT_BOOT, Some(holder(BOOT))),
            "VolumeLeaseRevoked",
            "taken by node n in its present boot: node n has booted since: its boot ID changed",
            Some("n"),
            true,
        ),
        (
            broken(BOOT, None),
            200,
            Action::Refused,
            "EvidenceInvalid",
            "the FenceEvidence does not hold: the node has not booted since",
            Some("n"),
            true,
        ),
        guarded(VolumeChange::DeleteLease, "VolumeLeaseDeleted", "it is gone, and so is its Lease", None, false),
        (VolumeChange::Allow, 500, Action::Failed, "server", "", None, false),
    ]
}

#[tokio::test(start_paused = true)]
async fn volume_changes_are_recorded_and_only_exceptional_ones_have_events() {
    for (change, code, action, reason, said, about, loud) in volumes() {
        let pool = pool(Leadership::always(), move |request| match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/api/v1/nodes/n") => Answer::json(&node("n").set("/status/nodeInfo", json!({ "bootID": BOOT })).0),
            ("GET", _) => Answer::not_found(),
            ("POST", _) => Answer::json(&json!({ "metadata": {} })),
            _ if code == 500 => Answer::status(500, "InternalError", "etcd"),
            _ => Answer::json(&json!({ "metadata": { "name": "v", "uid": "uid-lease", "resourceVersion": "8" } })),
        });
        assert_eq!(pool.authority.submit(update(true, change.clone()), &pool.owner), Submitted::Accepted);
        advance(0.5).await;
        let record = pool.journal.records().remove(0);
        assert_eq!((record.action, record.reason), (action, reason), "{change:?}");
        if code == 200 {
            assert_eq!(record.message, format!("volume v: {said}"), "{change:?}");
        }
        assert_eq!(record.node.as_deref(), about, "{change:?}");
        let event = match action {
            Action::Refused => ("Warning", "VolumeLeaseNotRevoked"),
            _ => ("Normal", reason),
        };
        let expected = loud.then(|| (event.0.to_owned(), event.1.to_owned()));
        assert_eq!(event_types_and_reasons(&pool).await, expected.into_iter().collect::<Vec<_>>(), "{change:?}");
    }
}
