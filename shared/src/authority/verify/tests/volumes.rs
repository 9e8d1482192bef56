//! The judge of holders of volumes: each way in which a revocation can be wrong.

use crate::testing::objects::{BOOT, NEXT_BOOT};
use serde_json::json;

use super::devices::{NODE, PROOF, Rig};
use super::*;
use crate::authority::volume::{VolumeChange, VolumeUpdate};
use crate::model::Holder;
use crate::testing::objects::{self, uid};
use pod_safety_proof::RevocationBasis;

const VOLUME: &str = "/api/v1/persistentvolumes/v";
const DRIVER: &str = "/apis/storage.k8s.io/v1/csidrivers/d";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

fn holder(uid_of: &str, boot: &str) -> Holder {
    Holder { node: "n".into(), node_uid: uid(uid_of), boot_id: boot.into(), pod: Some(uid("uid-p")) }
}

fn update(holder: &Holder, by: &RevocationBasis) -> VolumeUpdate {
    let change = VolumeChange::Revoke { holder: holder.clone(), basis: by.clone(), next: None, denial: None };
    VolumeUpdate {
        volume: "v".into(),
        uid: uid("uid-v"),
        rv: "7".parse().unwrap(),
        lease: Some(crate::authority::VolumeLeaseRef { uid: uid("uid-l"), generation: 1 }),
        change,
    }
}

fn fenced() -> RevocationBasis {
    RevocationBasis::Evidence { proof: "e".into(), newest: "1".parse().unwrap() }
}

/// The judge's evidence and how long it is valid, or its refusal.
async fn judged(rig: &Rig, holder: &Holder, by: RevocationBasis) -> Result<(&'static str, Duration), &'static str> {
    let now = rig.env.now();
    let found = rig.judge().verify_holder(&update(holder, &by), holder, &by).await;
    found.map(|found| (found.kind().name(), found.expires().since(now))).map_err(|refusal| refusal.reason())
}

#[tokio::test(start_paused = true)]
async fn fencing_evidence_releases_only_volumes_acquired_in_that_incarnation() {
    for (what, holder, expected) in [
        ("in that life", holder("uid-n", BOOT), Ok(("PowerOff", VALID_FOR))),
        ("before the last boot", holder("uid-n", "b0000000-0000-4000-8000-000000000000"), Err("EvidenceInvalid")),
        ("in a life of which nobody knows the boot", holder("uid-n", ""), Err("EvidenceInvalid")),
        ("as another Node of its name", holder("uid-m", BOOT), Err("EvidenceInvalid")),
    ] {
        assert_eq!(judged(&Rig::with(|_| ()), &holder, fenced()).await, expected, "taken {what}");
    }
    let invalid = Rig::with(|rig| rig.set(PROOF, "/status", json!({ "invalidated": { "at": "t", "reason": "r" } })));
    let found = judged(&invalid, &holder("uid-n", BOOT), fenced()).await;
    assert_eq!(found, Err("EvidenceInvalid"), "evidence that was withdrawn");
}

/// Once, each volume of a node caused its own status check. If a device did not answer and a node had as many volumes as
/// there are workers for such checks, all workers waited, and no pod or volume of another node was released.
#[tokio::test(start_paused = true)]
async fn bug_each_volume_of_a_node_waited_for_the_same_device() {
    let holder = holder("uid-n", BOOT);
    for (what, rig, expected) in
        [("answer", Rig::with(|_| ()), "PowerOff"), ("hang", Rig::with(|rig| rig.hangs("b")), "PowerStateUnconfirmed")]
    {
        let mut judge = rig.judge();
        for _ in 0..3 {
            let found = judge.verify_holder(&update(&holder, &fenced()), &holder, &fenced()).await;
            let found = found.map_or_else(|refusal| refusal.reason(), |found| found.kind().name());
            assert_eq!(found, expected, "devices that {what}");
        }
        assert_eq!(rig.asked(), 2, "devices that {what}: one look at each");
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_boot_id_of_the_same_node_releases_its_volume() {
    for (what, holder, boot, expected) in [
        (
            "it has booted since",
            holder("uid-n", "b0000000-0000-4000-8000-000000000000"),
            BOOT,
            Ok(("BootChanged", VALID_FOR)),
        ),
        ("it has not", holder("uid-n", BOOT), BOOT, Err("EvidenceInvalid")),
        ("it does not say", holder("uid-n", "b0000000-0000-4000-8000-000000000000"), "", Err("EvidenceInvalid")),
        ("nobody wrote down in which life", holder("uid-n", ""), BOOT, Err("EvidenceInvalid")),
        (
            "another Node has its name",
            holder("uid-m", "b0000000-0000-4000-8000-000000000000"),
            BOOT,
            Err("EvidenceInvalid"),
        ),
    ] {
        let rig = Rig::with(|rig| rig.set(NODE, "/status/nodeInfo/bootID", json!(boot)));
        assert_eq!(judged(&rig, &holder, RevocationBasis::Rebooted).await, expected, "{what}");
    }
    let gone = Rig::with(|rig| drop(rig.there.lock().remove(NODE)));
    let found =
        judged(&gone, &holder("uid-n", "b0000000-0000-4000-8000-000000000000"), RevocationBasis::Rebooted).await;
    assert_eq!(found, Err("EvidenceInvalid"), "the Node is gone");
}

/// Another boot of the name runs, so no device is queried, and reports of the new kubelet show nothing.
#[tokio::test(start_paused = true)]
async fn evidence_about_a_former_incarnation_needs_no_device_once_another_boot_has_the_name() {
    type Change = fn(&mut Rig);
    let former = holder("uid-n", BOOT);
    let replaced = |rig: &mut Rig| {
        rig.set(NODE, "/metadata/uid", json!("uid-m"));
        rig.set(NODE, "/status/nodeInfo/bootID", json!(NEXT_BOOT));
        rig.set(NODE, "/status/conditions", json!([{ "type": "Ready", "status": "True" }]));
    };
    let (found, refused) = (Ok(("PowerOff", VALID_FOR)), Err("EvidenceInvalid"));
    let cases: [(&str, Change, _); 10] = [
        ("replaced", |_| (), found),
        ("its devices hang", |rig| rig.hangs("b"), found),
        ("a person says so", |rig| rig.set(PROOF, "/spec/kind", json!("Asserted")), Ok(("Confirmed", VALID_FOR))),
        (
            "a person says so, and the policy wants devices",
            |rig| {
                rig.set(PROOF, "/spec/kind", json!("Asserted"));
                rig.set(NODE, "/metadata/labels", json!({ "rack": "7" }));
                let selector = json!({ "matchLabels": { "rack": "7" } });
                let spec = json!({ "levels": [], "minimumEvidence": "Verified", "nodeSelector": selector });
                let policy = objects::named("p").set("/spec", spec);
                rig.world.apply(Kind::FencePolicies, &policy.0, rig.env.now());
            },
            refused,
        ),
        ("the same Node", |rig| rig.set(NODE, "/metadata/uid", json!("uid-n")), refused),
        ("the same boot", |rig| rig.set(NODE, "/status/nodeInfo/bootID", json!(BOOT)), refused),
        ("no boot that counts", |rig| rig.set(NODE, "/status/nodeInfo/bootID", json!("7")), refused),
        ("no Node", |rig| drop(rig.there.lock().remove(NODE)), refused),
        ("withdrawn", |rig| rig.set(PROOF, "/status", json!({ "invalidated": { "at": "t", "reason": "r" } })), refused),
        ("about another life", |rig| rig.set(PROOF, "/spec/node/uid", json!("uid-x")), refused),
    ];
    for (what, change, expected) in cases {
        let rig = Rig::with(|rig| {
            replaced(rig);
            change(rig);
        });
        assert_eq!(judged(&rig, &former, RevocationBasis::Replaced("e".into())).await, expected, "{what}");
        assert_eq!(rig.asked(), 0, "{what}: no device is asked");
    }
}

/// A detached volume: its Lease records that it was attached, and no VolumeAttachment remains.
fn detached(change: impl FnOnce(&mut Rig)) -> Rig {
    Rig::with(|rig| {
        let lease = json!({
            "metadata": { "namespace": "pod-safety-volumes", "name": "v", "uid": "uid-lease", "resourceVersion": "7",
                "labels": { "pod-safety.dev/held": "true", "pod-safety.dev/detach-from": "uid-n" } },
            "spec": { "holderIdentity": "n/uid-n/b0000000-0000-4000-8000-000000000001/uid-p", "leaseTransitions": 3 },
        });
        rig.world.apply(Kind::VolumeLeases, &lease, rig.env.now());
        rig.policy.exclusive_backends = ["d".to_owned()].into();
        let elsewhere = json!({ "metadata": { "name": "a", "uid": "uid-a" },
            "spec": { "attacher": "d", "nodeName": "m", "source": { "persistentVolumeName": "v" } } });
        let all = json!({ "metadata": { "resourceVersion": "9" }, "items": [elsewhere] });
        rig.there.lock().extend([
            (
                VOLUME.to_owned(),
                json!({ "metadata": { "name": "v", "uid": "uid-v" }, "spec": { "csi": { "driver": "d", "volumeHandle": "h" } } }),
            ),
            (DRIVER.to_owned(), json!({ "metadata": { "name": "d" }, "spec": { "attachRequired": true } })),
            (ATTACHMENTS.to_owned(), all),
        ]);
        change(rig);
    })
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_detached_if_all_attachments_were_read_and_none_names_the_node() {
    type Change = fn(&mut Rig);
    type Found = Result<(&'static str, Duration), &'static str>;
    let rows: [(&str, Change, Found); 10] = [
        ("none is left", |_| {}, Ok(("StorageFenced", VALID_FOR))),
        (
            "none is left, and the CSIDriver has the default of attachRequired",
            |rig| rig.set(DRIVER, "/spec", json!({})),
            Ok(("StorageFenced", VALID_FOR)),
        ),
        ("there are more pages", |rig| rig.set(ATTACHMENTS, "/metadata/continue", json!("more")), Err("ReadFailed")),
        (
            "the list has no version: some other JSON",
            |rig| rig.set(ATTACHMENTS, "/metadata", json!({})),
            Err("ReadFailed"),
        ),
        ("one is left", |rig| rig.set(ATTACHMENTS, "/items/0/spec/nodeName", json!("n")), Err("EvidenceInvalid")),
        ("one cannot be read", |rig| rig.set(ATTACHMENTS, "/items/0/spec", json!(7)), Err("ReadFailed")),
        ("the volume is gone", |rig| drop(rig.there.lock().remove(VOLUME)), Err("EvidenceInvalid")),
        (
            "the volume cannot be read",
            |rig| drop(rig.there.lock().insert(VOLUME.to_owned(), json!(7))),
            Err("ReadFailed"),
        ),
        ("there is no CSIDriver", |rig| drop(rig.there.lock().remove(DRIVER)), Err("EvidenceInvalid")),
        ("its driver is not vouched for", |rig| rig.policy.exclusive_backends.clear(), Err("EvidenceInvalid")),
    ];
    for (what, change, expected) in rows {
        let found = judged(&detached(change), &holder("uid-n", BOOT), RevocationBasis::Detached).await;
        assert_eq!(found, expected, "{what}");
    }
}

/// A 404 is an answer; any other failure shows nothing.
#[tokio::test(start_paused = true)]
async fn a_volume_is_not_released_if_the_api_server_does_not_answer() {
    let rig = detached(|rig| drop(rig.there.lock().insert("refuse".to_owned(), json!(VOLUME))));
    let found = judged(&rig, &holder("uid-n", BOOT), RevocationBasis::Detached).await;
    assert_eq!(found, Err("ReadFailed"));
}

/// A mutant of the judge revoked these Leases, and no test failed.
#[tokio::test(start_paused = true)]
async fn a_missing_node_releases_a_volume_only_if_no_pod_on_it_may_use_it() {
    use Kind::{Claims, Pods};
    for (what, pod, fell_silent, expected) in [
        ("its pod is there, and its kubelet was heard until then", Some(true), false, Err("KubeletNotAsked")),
        ("its pod was removed while it ran", Some(false), false, Err("KubeletNotAsked")),
        ("its pod is gone", None, false, Ok("NodeGone")),
        ("its kubelet had fallen silent before", Some(true), true, Ok("NodeGone")),
        ("its kubelet had fallen silent before, and the pod was removed", Some(false), true, Ok("NodeGone")),
    ] {
        let rig = Rig::with(|rig| {
            rig.there.lock().retain(|path, _| path != NODE && !path.contains("/leases/"));
            if let Some(is_there) = pod {
                rig.world.apply(Claims, &objects::claim("c", Some("v")).0, rig.env.now());
                rig.world.apply(Pods, &objects::pod("p").running().on("n").using_claim("c").0, rig.env.now());
                if !is_there {
                    rig.world.remove(Pods, "uid-p", rig.env.now());
                    // Another object keeps the absence of the node in the cache.
                    rig.world.apply(Pods, &objects::pod("q").on("n").0, rig.env.now());
                }
            }
            if fell_silent {
                rig.world.set_unreachable_before_node_deleted("n");
            }
        });
        rig.world.record_absence_read("n", rig.env.now());
        advance(QUARANTINE.as_secs_f64()).await;
        let found = judged(&rig, &holder("uid-n", BOOT), RevocationBasis::NodeGone).await;
        assert_eq!(found.map(|(kind, _)| kind), expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_volume_of_a_removed_pod_is_released_after_its_grace_period_and_the_quarantine() {
    let rig = Rig::with(|rig| {
        rig.there.lock().retain(|path, _| path != NODE && !path.contains("/leases/"));
        rig.world.apply(Kind::Claims, &objects::claim("c", Some("v")).0, rig.env.now());
        rig.world.apply(Kind::Pods, &objects::pod("p").running().on("n").using_claim("c").0, rig.env.now());
        rig.world.remove(Kind::Pods, "uid-p", rig.env.now());
        // Another object keeps the absence of the node in the cache.
        rig.world.apply(Kind::Pods, &objects::pod("q").on("n").0, rig.env.now());
    });
    rig.world.record_absence_read("n", rig.env.now());
    let found = async || judged(&rig, &holder("uid-n", BOOT), RevocationBasis::NodeGone).await;
    advance(30.0 + QUARANTINE.as_secs_f64() - 0.1).await;
    assert_eq!(found().await, Err("KubeletNotAsked"));
    advance(0.1).await;
    assert!(found().await.is_ok());
}
