//! The Lease of a volume: what is written, and what needs the judge.

use crate::testing::objects::{BOOT, NEXT_BOOT};
use serde_json::{Value, json};

use super::*;
use crate::authority::{AttachDenial, RevocationBasis, UngateUpdate, VolumeChange, VolumeLeaseRef, VolumeUpdate};
use crate::client::scripted::Received;
use crate::model::{Holder, NodeKey};
use crate::testing::Claimed as _;
use crate::testing::objects::{named, uid};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/pod-safety-volumes/leases";

pub(super) fn holder(boot: &str) -> Holder {
    Holder { node: "n".into(), node_uid: uid("uid-n"), boot_id: boot.into(), pod: Some(uid("uid-p")) }
}

pub(super) fn update(lease: bool, change: VolumeChange) -> Intent {
    let lease = lease.then(|| VolumeLeaseRef { uid: uid("uid-lease"), generation: 3 });
    let update = VolumeUpdate { volume: "v".into(), uid: uid("uid-v"), rv: "7".parse().unwrap(), lease, change };
    Intent::Update(Update::Volume(Box::new(update)))
}

/// The node is Ready in this incarnation, and the API server accepts every write.
fn in_life(boot: &'static str) -> impl Fn(&Received) -> Answer + Send + Sync + 'static {
    move |request| match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/api/v1/nodes/n") => Answer::json(&node("n").boot(boot)),
        ("GET", _) => Answer::not_found(),
        _ => Answer::json(&named("v").uid("uid-lease").rv(8)),
    }
}

/// The writes, and the outcomes.
async fn written(boot: &'static str, intent: Intent) -> (Vec<(String, Value)>, Vec<String>) {
    let pool = pool(Leadership::always(), in_life(boot));
    pool.submit_accepted(intent);
    advance(0.5).await;
    let writes = pool.api.requests().into_iter().filter(|request| request.method != "GET");
    (writes.map(|request| (format!("{} {}", request.method, request.path), request.json())).collect(), pool.completed())
}

#[tokio::test(start_paused = true)]
async fn a_volume_without_a_lease_gets_one_and_only_one_create_succeeds() {
    let take = VolumeChange::Acquire { holder: holder(BOOT), denial: None };
    let (writes, ended) = written(BOOT, update(false, take)).await;
    assert_eq!(ended, ["uid-v: written"]);
    let (line, body) = &writes[0];
    // The Lease has the name of the volume: the second create fails because it exists.
    assert_eq!((line.as_str(), &body["metadata"]["name"]), (format!("POST {LEASES}").as_str(), &json!("v")));
    assert_eq!(body["spec"]["holderIdentity"], "n/uid-n/b0000000-0000-4000-8000-000000000001/uid-p");
    assert_eq!(body["metadata"]["labels"]["pod-safety.dev/volume-uid"], "uid-v");
    assert!(body["metadata"]["labels"].get("pod-safety.dev/held").is_none());
}

#[tokio::test(start_paused = true)]
async fn each_change_is_a_compare_and_swap() {
    let why = || AttachDenial { why: "it may write".to_owned(), detach_from: None };
    for (change, held, spec) in [
        (
            VolumeChange::Acquire { holder: holder(BOOT), denial: None },
            Value::Null,
            json!("n/uid-n/b0000000-0000-4000-8000-000000000001/uid-p"),
        ),
        (
            VolumeChange::Acquire { holder: holder(BOOT), denial: Some(why()) },
            json!("true"),
            json!("n/uid-n/b0000000-0000-4000-8000-000000000001/uid-p"),
        ),
        (VolumeChange::DenyAttach(why()), json!("true"), Value::Null),
        (VolumeChange::Allow, Value::Null, Value::Null),
        (VolumeChange::Release { denial: None }, Value::Null, Value::Null),
    ] {
        let (writes, ended) = written(BOOT, update(true, change.clone())).await;
        assert_eq!((writes.len(), ended), (1, vec!["uid-v: written".to_owned()]), "{change:?}");
        let (line, body) = &writes[0];
        assert_eq!(*line, format!("PATCH {LEASES}/v"), "{change:?}");
        let meta = &body["metadata"];
        assert_eq!((&meta["uid"], &meta["resourceVersion"]), (&json!("uid-lease"), &json!("7")), "{change:?}");
        assert_eq!(meta["labels"]["pod-safety.dev/held"], held, "{change:?}");
        assert_eq!(meta["annotations"]["pod-safety.dev/hold"].is_null(), held.is_null(), "{change:?}");
        // The volume may have been recreated under its name since the Lease was written.
        let acquires = matches!(change, VolumeChange::Acquire { .. });
        assert_eq!(meta["labels"]["pod-safety.dev/volume-uid"] == "uid-v", acquires, "{change:?}");
        assert_eq!(body["spec"]["holderIdentity"], spec, "{change:?}");
        // Of the changes that name no holder, only Release removes it.
        let gives = body["spec"].get("holderIdentity").is_some_and(Value::is_null);
        assert_eq!(gives, matches!(change, VolumeChange::Release { .. }), "{change:?}");
    }
    let (writes, _) = written(BOOT, update(true, VolumeChange::DeleteLease)).await;
    assert_eq!(writes[0].0, format!("DELETE {LEASES}/v"));
    assert_eq!(writes[0].1["preconditions"], json!({ "uid": "uid-lease", "resourceVersion": "7" }));
}

#[tokio::test(start_paused = true)]
async fn a_holder_is_revoked_only_if_its_incarnation_has_ended_and_the_generation_grows() {
    let over = |by: RevocationBasis| VolumeChange::Revoke { holder: holder(BOOT), basis: by, next: None, denial: None };
    for (what, boot, by) in [
        ("the same life", BOOT, RevocationBasis::Rebooted),
        ("a life that does not say which", "", RevocationBasis::Rebooted),
        (
            "evidence that is not there",
            BOOT,
            RevocationBasis::Evidence { proof: "e".into(), newest: "1".parse().unwrap() },
        ),
        ("a Node that is there", BOOT, RevocationBasis::NodeGone),
    ] {
        let (writes, ended) = written(boot, update(true, over(by))).await;
        assert_eq!((writes.len(), ended), (0, vec!["uid-v: refused".to_owned()]), "{what}");
    }
    let booted = holder(NEXT_BOOT);
    for (next, identity) in [(None, Value::Null), (Some(booted.clone()), json!(booted.to_string()))] {
        let change =
            VolumeChange::Revoke { holder: holder(BOOT), basis: RevocationBasis::Rebooted, next, denial: None };
        let (writes, ended) = written(NEXT_BOOT, update(true, change)).await;
        assert_eq!(ended, ["uid-v: written"]);
        let (_, body) = &writes[0];
        assert_eq!(
            (&body["spec"]["leaseTransitions"], body["spec"].get("holderIdentity")),
            (&json!(4), Some(&identity))
        );
        assert_eq!(body["spec"].get("acquireTime").is_some(), !identity.is_null());
        assert_eq!(body["metadata"]["labels"]["pod-safety.dev/volume-uid"] == "uid-v", !identity.is_null());
    }
}

/// A node with a hundred volumes gets one turn for many of them, and not a hundred turns.
#[test]
fn revocations_use_the_flow_of_their_node_and_other_changes_that_of_their_volume() {
    let over = |by: RevocationBasis| VolumeChange::Revoke { holder: holder(BOOT), basis: by, next: None, denial: None };
    for (change, lane) in [
        (over(RevocationBasis::NodeGone), "n"),
        (over(RevocationBasis::Storage("e".into())), "n"),
        (VolumeChange::Acquire { holder: holder(BOOT), denial: None }, "v"),
        (VolumeChange::Release { denial: None }, "v"),
        (VolumeChange::Allow, "v"),
    ] {
        let Intent::Update(update) = update(true, change) else { unreachable!("an update") };
        assert_eq!(&**update.as_write().target().flow, lane, "{update:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_revocation_is_retried_later() {
    let pool = pool(Leadership::always(), in_life(BOOT));
    let refused = || {
        update(
            true,
            VolumeChange::Revoke { holder: holder(BOOT), basis: RevocationBasis::Rebooted, next: None, denial: None },
        )
    };
    pool.submit_intent(refused());
    advance(0.5).await;
    assert_eq!(pool.wakes().len(), 1, "nothing need come on the watch");
}

#[tokio::test(start_paused = true)]
async fn ungate_removes_only_its_own_gate_and_pins_the_pod() {
    let pod = pod("a").force(Claim::KubeletTerminated).pod;
    let update = Update::Ungate(UngateUpdate { pod, rv: "10".parse().unwrap(), pin: Some("host-a".into()) });
    let (writes, _) = written(BOOT, Intent::Update(update)).await;
    let (line, body) = &writes[0];
    assert_eq!(line, "PATCH /api/v1/namespaces/ns/pods/a");
    assert_eq!(body["spec"]["schedulingGates"], json!([{ "$patch": "delete", "name": "pod-safety.dev/volume-guard" }]));
    assert_eq!(body["spec"]["nodeSelector"], json!({ "kubernetes.io/hostname": "host-a" }));
    assert_eq!(body["metadata"]["resourceVersion"], "10");
}

/// The facts about a detachment.
struct Shown {
    /// The Lease in the cache.
    lease: Value,
    driver: &'static str,
    csi_driver: Option<Value>,
    attachments: Value,
    /// How long the API server takes to list the attachments.
    late: Duration,
}

impl Shown {
    /// Detached: volume `v` is attached to another node, and another volume to this node.
    fn proof() -> Self {
        Self {
            lease: json!({
                "metadata": { "namespace": "pod-safety-volumes", "name": "v", "uid": "uid-lease", "resourceVersion": "7",
                    "labels": { "pod-safety.dev/held": "true", "pod-safety.dev/detach-from": "uid-n" } },
                "spec": { "holderIdentity": "n/uid-n/b0000000-0000-4000-8000-000000000001/uid-p", "leaseTransitions": 3 },
            }),
            driver: "cloud.example.com",
            csi_driver: Some(
                json!({ "metadata": { "name": "cloud.example.com" }, "spec": { "attachRequired": true } }),
            ),
            attachments: json!([attachment("v", "elsewhere", json!({})), attachment("w", "n", json!({}))]),
            late: Duration::ZERO,
        }
    }

    fn answer(&self, request: &Received) -> Answer {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/api/v1/persistentvolumes/v") => Answer::json(&json!({
                "metadata": { "name": "v", "uid": "uid-v", "resourceVersion": "3" },
                "spec": { "csi": { "driver": self.driver, "volumeHandle": "h" } },
            })),
            (
                "GET",
                "/apis/storage.k8s.io/v1/csidrivers/cloud.example.com"
                | "/apis/storage.k8s.io/v1/csidrivers/nfs.example.com",
            ) => self.csi_driver.as_ref().map_or_else(Answer::not_found, Answer::json),
            ("GET", "/apis/storage.k8s.io/v1/volumeattachments") => {
                let list = json!({ "metadata": { "resourceVersion": "9" }, "items": self.attachments });
                Answer::json(&list).delayed(self.late)
            }
            ("GET", _) => Answer::not_found(),
            _ => Answer::json(&json!({ "metadata": { "name": "v", "uid": "uid-lease", "resourceVersion": "8" } })),
        }
    }
}

fn attachment(volume: &str, node: &str, more: Value) -> Value {
    let mut metadata =
        json!({ "name": format!("{volume}.{node}"), "uid": format!("uid-{volume}.{node}"), "resourceVersion": "4" });
    for (key, value) in more.as_object().into_iter().flatten() {
        metadata[key] = value.clone();
    }
    json!({ "metadata": metadata, "spec": { "attacher": "d", "nodeName": node, "source": { "persistentVolumeName": volume } } })
}

/// Submits a revocation by detachment. Returns the writes, and the outcomes.
async fn relieved(shown: Shown) -> (Vec<Value>, Vec<String>) {
    let (lease, late) = (shown.lease.clone(), shown.late.as_secs_f64());
    let pool = pool(Leadership::always(), move |request| shown.answer(request));
    pool.world.apply(Kind::VolumeLeases, &lease, pool.env.now());
    let from = NodeKey { name: "n".into(), uid: uid("uid-n") };
    let refused = Some(AttachDenial { why: "its pods are there".to_owned(), detach_from: Some(from) });
    let change =
        VolumeChange::Revoke { holder: holder(BOOT), basis: RevocationBasis::Detached, next: None, denial: refused };
    pool.submit_accepted(update(true, change));
    advance(0.5 + late).await;
    let writes = pool.api.requests().into_iter().filter(|request| request.method != "GET");
    (writes.map(|request| request.json()).collect(), pool.completed())
}

#[tokio::test(start_paused = true)]
async fn a_volume_detached_from_exclusive_storage_is_released_and_stays_denied_to_its_node() {
    let (writes, ended) = relieved(Shown::proof()).await;
    assert_eq!((writes.len(), ended), (1, vec!["uid-v: written".to_owned()]));
    let (meta, spec) = (&writes[0]["metadata"], &writes[0]["spec"]);
    assert_eq!(spec["leaseTransitions"], 4);
    assert_eq!(spec.get("holderIdentity"), Some(&Value::Null));
    assert_eq!((&meta["uid"], &meta["resourceVersion"]), (&json!("uid-lease"), &json!("7")));
    assert_eq!(meta["labels"], json!({ "pod-safety.dev/held": "true", "pod-safety.dev/detach-from": "uid-n" }));
    assert_eq!(meta["annotations"]["pod-safety.dev/detach-from"], "n", "admission knows nodes by their names");
}

/// Planted bugs: each case is what a judge with one check less would accept as evidence.
#[tokio::test(start_paused = true)]
async fn an_incomplete_detachment_is_no_evidence() {
    let without = |pointer: &str, value: Value| {
        let mut lease = Shown::proof().lease;
        *lease.pointer_mut(pointer).unwrap() = value;
        lease
    };
    let labels = "/metadata/labels";
    let here = |more: Value| json!([attachment("v", "n", more)]);
    let deleting = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["external-attacher/d"] });
    for (what, shown) in [
        (
            "it was never attached",
            Shown { lease: without(labels, json!({ "pod-safety.dev/held": "true" })), ..Shown::proof() },
        ),
        (
            "it was attached to another",
            Shown {
                lease: without(labels, json!({ "pod-safety.dev/held": "true", "pod-safety.dev/detach-from": "uid-m" })),
                ..Shown::proof()
            },
        ),
        (
            "the Lease is another version",
            Shown { lease: without("/metadata/resourceVersion", json!("6")), ..Shown::proof() },
        ),
        (
            "the Lease is another life's",
            Shown { lease: without("/spec/holderIdentity", json!("n/uid-n/c/uid-p")), ..Shown::proof() },
        ),
        ("another driver's", Shown { driver: "nfs.example.com", ..Shown::proof() }),
        ("nobody says what the driver does", Shown { csi_driver: None, ..Shown::proof() }),
        (
            "the driver attaches nothing",
            Shown { csi_driver: Some(json!({ "spec": { "attachRequired": false } })), ..Shown::proof() },
        ),
        ("it is attached", Shown { attachments: here(json!({})), ..Shown::proof() }),
        ("it is being detached", Shown { attachments: here(deleting), ..Shown::proof() }),
        ("some other JSON", Shown { attachments: json!([{ "spec": 7 }]), ..Shown::proof() }),
        ("the list took two seconds", Shown { late: Duration::from_secs(2), ..Shown::proof() }),
    ] {
        let (writes, ended) = relieved(shown).await;
        assert_eq!((writes.len(), ended), (0, vec!["uid-v: refused".to_owned()]), "{what}");
    }
}

/// What proved the revocation may no longer be true when a late write is applied.
#[tokio::test(start_paused = true)]
async fn a_revocation_without_an_answer_times_out_when_its_evidence_expires() {
    let pool = pool(Leadership::always(), |request| match request.method.as_str() {
        "GET" => in_life(NEXT_BOOT)(request),
        _ => Answer::json(&named("v").uid("uid-lease").rv(8)).delayed(Duration::from_secs(3)),
    });
    pool.submit_accepted(update(
        true,
        VolumeChange::Revoke { holder: holder(BOOT), basis: RevocationBasis::Rebooted, next: None, denial: None },
    ));
    advance(1.9).await;
    assert_eq!(pool.completed(), [""; 0]);
    advance(0.2).await;
    assert_eq!(pool.completed(), ["uid-v: failed"]);
}
