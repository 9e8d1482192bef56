//! The judge of a NetworkFence: what its evidence states is verified, object by object.

use crate::testing::objects::{BOOT, NEXT_BOOT};
use serde_json::{Value, json};

use super::volumes::{holder, update};
use super::*;
use crate::authority::{RevocationBasis, VolumeChange};
use crate::client::scripted::Received;
use crate::testing::objects::{evidence, named, volume};

const DEVICE: &str = "/apis/pod-safety.dev/v1alpha1/namespaces/fencing/fencedevices/rbd";
const PROOF: &str = "/apis/pod-safety.dev/v1alpha1/fenceevidences/e";
const FENCE: &str = "/apis/csiaddons.openshift.io/v1alpha1/networkfences/n-1";
const VOLUME: &str = "/api/v1/persistentvolumes/v";
const NODE: &str = "/api/v1/nodes/n";

/// Valid evidence: the objects on which it rests, by path.
fn objects() -> BTreeMap<&'static str, Value> {
    let device = json!({ "namespace": "fencing", "name": "rbd" });
    let object = json!({ "device": device, "driver": "NetworkFence", "path": FENCE, "uid": "uid-nf", "cidrs": ["10.0.0.1/32"],
        "storage": { "driver": "rbd.csi.ceph.com", "className": "rbd" } });
    let sample = json!({ "device": device, "driver": "NetworkFence", "object": object, "at": "t", "power": "Off", "identity": "Unknown" });
    let proof = evidence("e", "n", BOOT, "StorageFenced").set("/spec/fence", json!("f"));
    let proof = proof.set("/spec/samples", json!([sample, sample]));
    let spec = json!({ "networkFenceClassName": "rbd", "fenceState": "Fenced", "cidrs": ["10.0.0.1/32"] });
    let status = json!({ "result": "Succeeded", "message": "fencing operation successful" });
    let fence = named("n-1").uid("uid-1").set("/spec", spec).set("/status", status);
    BTreeMap::from([
        (
            DEVICE,
            named("rbd")
                .set("/spec", json!({ "driver": "NetworkFence", "networkFence": { "className": "rbd", "namespace": "rook-ceph" } }))
                .0,
        ),
        (PROOF, proof.set("/spec/storage", json!([{ "driver": "rbd.csi.ceph.com", "className": "rbd" }])).0),
        (FENCE, fence.set("/metadata/annotations", json!({ "pod-safety.dev/fence": "uid-nf" })).0),
        (VOLUME, volume("v", &["ReadWriteOnce"]).set("/spec/csi/driver", json!("rbd.csi.ceph.com")).0),
        (NODE, node("n").boot(BOOT).0),
    ])
}

/// Submits a revocation by this evidence. Returns the number of writes, and the outcomes.
async fn relieved(objects: BTreeMap<&'static str, Value>) -> (usize, Vec<String>) {
    let (writes, ended, _) = relieved_after(objects, Duration::ZERO).await;
    (writes, ended)
}

/// The same, with a delayed answer about the fence; also returns the journal.
async fn relieved_after(objects: BTreeMap<&'static str, Value>, late: Duration) -> (usize, Vec<String>, Vec<String>) {
    relieved_of(BOOT, objects, late).await
}

/// The same, of a holder that took the volume in this boot.
async fn relieved_of(
    boot: &str,
    objects: BTreeMap<&'static str, Value>,
    late: Duration,
) -> (usize, Vec<String>, Vec<String>) {
    let pool = pool(Leadership::always(), move |request: &Received| match request.method.as_str() {
        "GET" if request.path == FENCE => {
            objects.get(FENCE).map_or_else(Answer::not_found, |there| Answer::json(there).delayed(late))
        }
        "GET" => objects.get(request.path.as_str()).map_or_else(Answer::not_found, Answer::json),
        _ => Answer::json(&named("v").uid("uid-lease").rv(8)),
    });
    let by = RevocationBasis::Storage("e".into());
    let change = VolumeChange::Revoke { holder: holder(boot), basis: by, next: None, denial: None };
    pool.submit_accepted(update(true, change));
    advance(0.5 + late.as_secs_f64()).await;
    let writes = pool.api.requests().into_iter().filter(|request| request.method != "GET");
    let records = pool.journal.records();
    let messages = records.into_iter().map(|record| format!("{}: {}", record.reason, record.message));
    (writes.count(), pool.completed(), messages.collect())
}

/// Once, its evidence had expired each time, and neither an Event nor the journal showed it.
#[tokio::test(start_paused = true)]
async fn bug_a_storage_check_that_took_three_seconds_had_no_event() {
    let (writes, ended, messages) = relieved_after(objects(), Duration::from_secs(1)).await;
    assert_eq!((writes, ended), (1, vec!["uid-v: written".to_owned()]), "in time: {messages:?}");
    let (writes, ended, messages) = relieved_after(objects(), Duration::from_secs(3)).await;
    assert_eq!((writes, ended), (0, vec!["uid-v: refused".to_owned()]));
    let why = "ReadsTooSlow: volume v: reading what it rests on took too long: it had expired 1.0s before the last answer came, so nothing was sent";
    assert_eq!(messages, [why]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_whose_storage_is_fenced_now_is_released() {
    assert_eq!(relieved(objects()).await, (1, vec!["uid-v: written".to_owned()]));
}

/// Planted bugs: each case is what a judge with one check less would accept as evidence.
#[tokio::test(start_paused = true)]
async fn an_incomplete_network_fence_is_no_evidence() {
    let cases: [(&str, &str, &str, Value); 13] = [
        ("another class's driver", VOLUME, "/spec/csi/driver", json!("nfs.example.com")),
        ("another volume of that name", VOLUME, "/metadata/uid", json!("uid-w")),
        ("another life", PROOF, "/spec/node/bootID", json!(NEXT_BOOT)),
        ("another Node", PROOF, "/spec/node/uid", json!("uid-m")),
        ("evidence of another kind", PROOF, "/spec/kind", json!("PowerOff")),
        ("it was lifted", PROOF, "/status", json!({ "invalidated": { "at": "t", "reason": "lifted" } })),
        ("it names no look", PROOF, "/spec/samples", json!([])),
        ("the fence is being lifted", FENCE, "/spec/fenceState", json!("Unfenced")),
        ("the fence is not in force yet", FENCE, "/status", json!({})),
        ("an old success", FENCE, "/status/message", json!("unfencing operation successful")),
        ("other addresses", FENCE, "/spec/cidrs", json!(["10.0.0.2/32"])),
        ("another class", FENCE, "/spec/networkFenceClassName", json!("nfs")),
        ("the node is Ready", NODE, "/status/conditions/0/status", json!("True")),
    ];
    for (what, path, pointer, value) in cases {
        let mut objects = objects();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let object = objects.get_mut(path).unwrap().pointer_mut(parent).unwrap();
        match object.as_array_mut() {
            Some(_) => panic!("{pointer}"),
            None => object[field] = value,
        }
        assert_eq!(relieved(objects).await, (0, vec!["uid-v: refused".to_owned()]), "{what}");
    }
    let mut unknown = objects();
    unknown.get_mut(PROOF).unwrap()["spec"]["node"]["bootID"] = json!("");
    let (writes, ..) = relieved_of("", unknown, Duration::ZERO).await;
    assert_eq!(writes, 0, "evidence and holder are of an unknown boot");
    for path in [DEVICE, PROOF, FENCE, VOLUME] {
        let mut objects = objects();
        objects.remove(path);
        assert_eq!(relieved(objects).await, (0, vec!["uid-v: refused".to_owned()]), "without {path}");
    }
}
