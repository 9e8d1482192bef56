//! Attacks of tenants on evictions.

use pod_safety_control_plane::PodSafety;

use super::tenant::responders;
use super::*;

const APP: &str = "example.com/app";

/// Before the controller runs, a tenant with rights on `evictions/status` initializes an Eviction with responders that have completed
/// before their turns (kubernetes#140804).
pub(super) async fn forged(plane: &ControlPlane) -> Tenant {
    let tenant = Tenant::new(plane, "forged").await;
    let uid = tenant.pod("p", responders(&[(APP, 10_000)])).await;
    tenant.request_eviction("r", "p", &uid, "example.com/asks").await;
    tenant.create_eviction("mine", "p", &uid).await;
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

/// The chain of responders does not advance, and the pod stays.
pub(super) async fn a_forged_report_stops_the_chain(pod_safety: &PodSafety, tenant: &Tenant) {
    let held = pod_safety.until_held("p", "ResponderPrefilled").await.unwrap();
    assert!(held.contains(EVICTOR), "{held}");
    let eviction = tenant.get("evictions", "mine").await.unwrap();
    assert_eq!(super::tenant::entry(&eviction, "targetResponders", APP)["state"], "Active", "{eviction}");
    assert!(tenant.get("pods", "p").await.unwrap()["metadata"].get("deletionTimestamp").is_none());
    // The remedy that the hold names.
    tenant.delete("evictions", "mine").await;
    tenant.until_state("pod-1-p", APP, "Active").await;
}

/// A tenant with a thousand requests for pods that do not exist: each of them costs a quorum read.
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
