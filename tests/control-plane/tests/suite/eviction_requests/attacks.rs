//! What tenants can do against evictions.

use pod_safety_control_plane::PodSafety;

use super::tenant::responders;
use super::*;

const APP: &str = "example.com/app";

/// Before the controller runs a tenant that may write `evictions/status` initializes an Eviction so that its responders are
/// done before their turns (kubernetes#140804).
pub(super) async fn forged(plane: &ControlPlane) -> Tenant {
    let tenant = Tenant::new(plane, "forged").await;
    let uid = tenant.pod("p", responders(&[(APP, 10_000)])).await;
    tenant.request_eviction("r", "p", &uid, "example.com/asks").await;
    let target = json!({ "pod": { "name": "p", "uid": uid } });
    let object = json!({ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "Eviction", "metadata": { "name": "mine" }, "spec": { "target": target } });
    tenant.create("evictions", &object).await;
    let now = format!("{:.0}", Timestamp::now());
    let state = |name: &str, priority: i32, state: &str| json!({ "name": name, "priority": priority, "state": state });
    let done = |name: &str| json!({ "name": name, "startTime": now, "completionTime": now });
    let status = json!({ "observedGeneration": 1,
        "targetResponders": [state(APP, 10_000, "Active"), state(EVICTOR, 100, "Inactive")],
        "responders": [done(APP), done(EVICTOR)] });
    let path = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/forged/evictions/mine/status";
    tenant.patch(path, &json!({ "status": status })).await.unwrap();
    tenant
}

/// The chain is not walked to its end in seconds, and the pod stays.
pub(super) async fn a_forged_report_stops_the_chain(ours: &PodSafety, tenant: &Tenant) {
    let held = ours.until_held("p", "ResponderPrefilled").await.unwrap();
    assert!(held.contains(EVICTOR), "{held}");
    let eviction = tenant.get("evictions", "mine").await.unwrap();
    assert_eq!(super::tenant::entry(&eviction, "targetResponders", APP)["state"], "Active", "{eviction}");
    assert!(tenant.get("pods", "p").await.unwrap()["metadata"].get("deletionTimestamp").is_none());
    // The way out that the hold names.
    send(
        &tenant.api,
        Method::DELETE,
        "/apis/lifecycle.k8s.io/v1alpha1/namespaces/forged/evictions/mine",
        "application/json",
        &Value::Null,
    )
    .await
    .unwrap();
    tenant.until_state("pod-1-p", APP, "Active").await;
}

/// A tenant with a thousand requests, of pods that are not there: each of them costs a quorum read.
pub(super) async fn a_thousand_requests_do_not_starve_another_namespace(plane: &ControlPlane) {
    let (crowd, other) = (Tenant::new(plane, "thousand").await, Tenant::new(plane, "quiet").await);
    let uid = other.pod("p", json!({})).await;
    let ask = async |number: usize| {
        let uid = format!("11111111-2222-4333-8444-{number:0>12}");
        crowd.request_eviction(&format!("r{number}"), "nosuch", &uid, "example.com/crowd").await;
    };
    for chunk in 0..100 {
        futures::future::join_all((0..10).map(|number| ask(chunk * 10 + number))).await;
        if chunk == 50 {
            other.request_eviction("r", "p", &uid, "example.com/asks").await;
        }
    }
    other.until_gone("p").await;
    other.until_condition("evictionrequests", "r", "TargetEvicted=True/PodDeleted").await;
    crowd.until_condition("evictionrequests", "r999", "Failed=True/EvictionInvalid").await;
}
