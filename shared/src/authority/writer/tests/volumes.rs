//! The Lease of a volume: what is written, and what only the judge lets through.

use serde_json::{Value, json};

use super::*;
use crate::authority::{Over, Seen, VolumeChange, VolumeUpdate};
use crate::client::scripted::Asked;
use crate::model::Holder;
use crate::testing::objects::uid;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/pod-safety-volumes/leases";

fn holder(boot: &str) -> Holder {
    Holder { node: "n".into(), node_uid: uid("uid-n"), boot_id: boot.into(), pod: Some(uid("uid-p")) }
}

fn update(lease: bool, change: VolumeChange) -> Intent {
    let lease = lease.then(|| Seen { uid: uid("uid-lease"), generation: 3 });
    let update =
        VolumeUpdate { volume: "v".into(), uid: uid("uid-v"), rv: "7".parse().unwrap(), lease, change };
    Intent::Update(Update::Volume(Box::new(update)))
}

/// The node is Ready in this life, and every write is taken.
fn in_life(boot: &'static str) -> impl Fn(&Asked) -> Answer + Send + Sync + 'static {
    move |asked| match (asked.method.as_str(), asked.path.as_str()) {
        ("GET", "/api/v1/nodes/n") => {
            Answer::json(&node("n").set("/status/nodeInfo", json!({ "bootID": boot })).0)
        }
        ("GET", _) => Answer::not_found(),
        _ => {
            Answer::json(&json!({ "metadata": { "name": "v", "uid": "uid-lease", "resourceVersion": "8" } }))
        }
    }
}

/// What was sent to write, and how it ended.
async fn written(boot: &'static str, intent: Intent) -> (Vec<(String, Value)>, Vec<String>) {
    let pool = pool(Leadership::alone(), in_life(boot));
    assert_eq!(pool.authority.submit(intent, &pool.owner), Submitted::Accepted);
    pass(0.5).await;
    let writes = pool.api.heard().into_iter().filter(|asked| asked.method != "GET");
    (writes.map(|asked| (format!("{} {}", asked.method, asked.path), asked.json())).collect(), pool.ended())
}

#[tokio::test(start_paused = true)]
async fn a_volume_without_a_lease_gets_one_and_two_cannot_make_it() {
    let take = VolumeChange::Take { holder: holder("b"), refused: None };
    let (writes, ended) = written("b", update(false, take)).await;
    assert_eq!(ended, ["uid-v: written"]);
    let (line, body) = &writes[0];
    // The name is the volume's: whoever comes second hears that it exists.
    assert_eq!((line.as_str(), &body["metadata"]["name"]), (format!("POST {LEASES}").as_str(), &json!("v")));
    assert_eq!(body["spec"]["holderIdentity"], "n/uid-n/b/uid-p");
    assert_eq!(body["metadata"]["labels"]["pod-safety.dev/volume-uid"], "uid-v");
    assert!(body["metadata"]["labels"].get("pod-safety.dev/held").is_none());
}

#[tokio::test(start_paused = true)]
async fn each_change_is_a_compare_and_swap() {
    let why = "it may write".to_owned();
    for (change, held, spec) in [
        (VolumeChange::Take { holder: holder("b"), refused: None }, Value::Null, json!("n/uid-n/b/uid-p")),
        (
            VolumeChange::Take { holder: holder("b"), refused: Some(why.clone()) },
            json!("true"),
            json!("n/uid-n/b/uid-p"),
        ),
        (VolumeChange::Refuse { why: why.clone() }, json!("true"), Value::Null),
        (VolumeChange::Allow, Value::Null, Value::Null),
        (VolumeChange::Release, Value::Null, Value::Null),
    ] {
        let (writes, ended) = written("b", update(true, change.clone())).await;
        assert_eq!((writes.len(), ended), (1, vec!["uid-v: written".to_owned()]), "{change:?}");
        let (line, body) = &writes[0];
        assert_eq!(*line, format!("PATCH {LEASES}/v"), "{change:?}");
        let meta = &body["metadata"];
        assert_eq!(
            (&meta["uid"], &meta["resourceVersion"]),
            (&json!("uid-lease"), &json!("7")),
            "{change:?}"
        );
        assert_eq!(meta["labels"]["pod-safety.dev/held"], held, "{change:?}");
        assert_eq!(meta["annotations"]["pod-safety.dev/hold"].is_null(), held.is_null(), "{change:?}");
        assert_eq!(body["spec"]["holderIdentity"], spec, "{change:?}");
        // Of those that say nothing of a holder only one takes it away.
        let gives = body["spec"].get("holderIdentity").is_some_and(Value::is_null);
        assert_eq!(gives, change == VolumeChange::Release, "{change:?}");
    }
    let (writes, _) = written("b", update(true, VolumeChange::Forget)).await;
    assert_eq!(writes[0].0, format!("DELETE {LEASES}/v"));
    assert_eq!(writes[0].1["preconditions"], json!({ "uid": "uid-lease", "resourceVersion": "7" }));
}

#[tokio::test(start_paused = true)]
async fn a_break_is_written_only_if_the_life_is_over_and_counts() {
    let over = |by: Over| VolumeChange::Break { holder: holder("b"), by };
    for (what, boot, by) in [
        ("the same life", "b", Over::Rebooted),
        ("a life that does not say which", "", Over::Rebooted),
        ("evidence that is not there", "b", Over::Fenced("e".into())),
        ("a Node that is there", "b", Over::NodeGone),
    ] {
        let (writes, ended) = written(boot, update(true, over(by))).await;
        assert_eq!((writes.len(), ended), (0, vec!["uid-v: refused".to_owned()]), "{what}");
    }
    let (writes, ended) = written("c", update(true, over(Over::Rebooted))).await;
    assert_eq!(ended, ["uid-v: written"]);
    let (_, body) = &writes[0];
    assert_eq!(
        (&body["spec"]["leaseTransitions"], body["spec"].get("holderIdentity")),
        (&json!(4), Some(&Value::Null))
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_asked_for_again_later() {
    let pool = pool(Leadership::alone(), in_life("b"));
    let refused = || update(true, VolumeChange::Break { holder: holder("b"), by: Over::Rebooted });
    pool.authority.submit(refused(), &pool.owner);
    pass(0.5).await;
    assert_eq!(pool.heard.wakes.lock().len(), 1, "nothing need come on the watch");
}

#[tokio::test(start_paused = true)]
async fn a_gate_goes_and_no_other_and_the_pod_is_sent_where_it_may_go() {
    let pod = pod("a").force(Claim::KubeletTerminated).pod;
    let update = Update::Ungate { pod, rv: "10".parse().unwrap(), pin: Some("host-a".into()) };
    let (writes, _) = written("b", Intent::Update(update)).await;
    let (line, body) = &writes[0];
    assert_eq!(line, "PATCH /api/v1/namespaces/ns/pods/a");
    assert_eq!(
        body["spec"]["schedulingGates"],
        json!([{ "$patch": "delete", "name": "pod-safety.dev/volume-guard" }])
    );
    assert_eq!(body["spec"]["nodeSelector"], json!({ "kubernetes.io/hostname": "host-a" }));
    assert_eq!(body["metadata"]["resourceVersion"], "10");
}
