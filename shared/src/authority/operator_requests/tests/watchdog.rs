//! The drill of a watchdog: the grant of its agent, its revocation, and the record of the drill.

use pod_safety_watchdog::record::{Boot, BootSurvival, Epoch, Record, State};
use serde_json::Value;

use super::commands::{BROKEN, CONFLICT, api_with, error_text, incarnation};
use super::*;
use crate::api::{DeviceRef, DrilledWatchdog};
use crate::authority::operator_requests::{Device, read_grant, record_drill, revoke};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/fencing/leases/watchdog.n";

fn named() -> DeviceRef {
    DeviceRef { namespace: "fencing".to_owned(), name: "wd".to_owned() }
}

/// The Lease that the agent of the node `n` wrote about this incarnation.
fn written(state: State, node: &str, boot: &str) -> Value {
    let boot = Boot { node: node.into(), id: boot.into() };
    let record = Record { state, epoch: Epoch { process: 7, count: 0 }, round: 3, boot, device: None };
    let mut annotations = record.to_annotations();
    annotations.extend(BootSurvival { boot: "a".into(), outlived: Duration::from_secs(11) }.to_annotations());
    json!({ LEASE: { "metadata": { "uid": "uid-l", "resourceVersion": "17", "annotations": annotations } } })
}

#[tokio::test(start_paused = true)]
async fn only_the_grant_of_this_boot_of_this_node_is_armed() {
    for (state, node, boot, stands) in [
        (State::Armed, "u", "b", true),
        (State::Revoked, "u", "b", false),
        (State::Armed, "another", "b", false),
        (State::Armed, "u", "another", false),
    ] {
        let (_, api) = api_with(written(state, node, boot), None);
        let promise = read_grant(&api.connection(), &named(), &incarnation("b")).await.unwrap().unwrap();
        assert_eq!((promise.is_armed, &*promise.boot_id), (stands, boot), "{state} of {node}, boot {boot}");
        assert_eq!(promise.survived, Some(("a".into(), Duration::from_secs(11))));
    }
    let (_, none) = api_with(json!({}), None);
    assert!(read_grant(&none.connection(), &named(), &incarnation("b")).await.unwrap().is_none(), "it has no agent");
}

#[tokio::test(start_paused = true)]
async fn a_grant_is_revoked_only_at_the_version_that_was_read() {
    let overtaken = format!("changed: {LEASE}");
    for (refused, expected) in [
        (None, "it was done"),
        (CONFLICT, overtaken.as_str()),
        (BROKEN, "failed: revoking the grant of the node's agent"),
    ] {
        let (_, api) = api_with(written(State::Armed, "u", "b"), refused);
        let promise = read_grant(&api.connection(), &named(), &incarnation("b")).await.unwrap().unwrap();
        assert_eq!(error_text(revoke(&api.connection(), &named(), "n", &promise).await), expected);
        assert_eq!(api.writes(), [format!("PATCH {LEASE}")]);
        let meta = api.requests().pop().unwrap().json()["metadata"].clone();
        let state = json!({ "watchdog.pod-safety.dev/state": "Revoked" });
        assert_eq!(meta, json!({ "uid": "uid-l", "resourceVersion": "17", "annotations": state }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_passed_drill_is_recorded_once_and_keeps_earlier_ones() {
    let of = |kernel: &str| json!({ "identity": "iTCO_wdt", "firmware": 6, "kernel": kernel });
    let spec = json!({ "driver": "WatchdogLease", "watchdogLease": { "drilled": [of("6.1.0")] } });
    let device = Device { named: named(), spec: serde_json::from_value(spec).unwrap(), status: Default::default() };
    for (kernel, refused, expected, writes) in [
        ("6.1.0", None, "it was done", 0),
        ("6.2.0", None, "it was done", 1),
        ("6.2.0", BROKEN, "failed: recording the drill with the FenceDevice", 1),
    ] {
        let (_, api) = api_with(json!({}), refused);
        let passed: DrilledWatchdog = serde_json::from_value(of(kernel)).unwrap();
        assert_eq!(error_text(record_drill(&api.connection(), &device, &passed).await), expected);
        assert_eq!(api.writes().len(), writes, "{kernel}");
        if let Some(request) = api.requests().pop() {
            let all = json!([of("6.1.0"), of("6.2.0")]);
            assert_eq!(request.json(), json!({ "spec": { "watchdogLease": { "drilled": all } } }));
        }
    }
}
