//! The feature gate is switched off after the API was used, and on again.

use pod_safety_control_plane::objects::{self, NodeExt as _};
use pod_safety_control_plane::{PodSafety, observe};

use super::tenant::{entry, responders};
use super::*;

const APP: &str = "example.com/app";
const NAMESPACE: &str = "kept";
const LONG_AGO: i64 = 86_400;

/// A pod that stays, and one that is deleted while the gate is off; both have an active responder.
pub(super) async fn begin(plane: &ControlPlane) -> Tenant {
    let tenant = Tenant::new(plane, NAMESPACE).await;
    for pod in ["stays", "goes"] {
        let uid = tenant.pod(pod, responders(&[(APP, 10_000)])).await;
        tenant.request_eviction(pod, pod, &uid, "example.com/asks").await;
        tenant.until_state(&format!("pod-1-{pod}"), APP, "Active").await;
    }
    tenant
}

/// The group is still switched on, so that the API server logs why it does not serve it. Returns the start of the remaining responder.
pub(super) async fn switch_off(plane: &mut ControlPlane, tenant: &Tenant, pod_safety: &PodSafety) -> i64 {
    let stays = tenant.get("evictions", "pod-1-stays").await.unwrap();
    let start = start_of(&stays, APP) - LONG_AGO;
    plane.restart_apiserver_with(&["--runtime-config=lifecycle.k8s.io/v1alpha1=true".to_owned()]).await.unwrap();
    let log = plane.apiserver().unwrap().log_text();
    let disabled = "Eviction storage is disabled because the EvictionRequestAPI feature gate is disabled";
    assert!(log.contains(disabled), "{log}");
    let unserved = || {
        let log = pod_safety.log_text();
        log.lines().filter(|line| line.contains("does not serve lifecycle.k8s.io/v1alpha1")).count()
    };
    wait_until("both kinds are not served", async || check_that(unserved() >= 2, pod_safety.log_text())).await;
    let path = format!("/apis/lifecycle.k8s.io/v1alpha1/namespaces/{NAMESPACE}/evictions");
    let answer = send(&tenant.api, Method::GET, &path, "application/json", &Value::Null).await;
    assert!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == 404), "{answer:?}");
    drain_is_direct(plane, tenant).await;
    assert_eq!(unserved(), 2, "one line of each kind: {}", pod_safety.log_text());
    // Meanwhile time passes, and a pod goes.
    move_start(plane, NAMESPACE, &stays, APP, start).await;
    observe::delete_pod(&tenant.api, NAMESPACE, "goes", true).await.unwrap();
    start
}

/// The plan of a drain has no requests.
async fn drain_is_direct(plane: &ControlPlane, tenant: &Tenant) {
    for node in ["a", "b"] {
        objects::create_node(&tenant.api, &objects::node(node).with_ready("True")).await.unwrap();
    }
    tenant.pod("on-a", json!({ "nodeName": "a" })).await;
    tenant.phase("on-a", "Running").await;
    let args = ["drain", "a", "--evict-unmanaged", "-o", "json"];
    let plan = plane.start_pod_safety_once(&plane.admin_kubeconfig(), &args).await.unwrap();
    let json: Value = serde_json::from_str(&plan.stdout).unwrap_or_else(|error| panic!("{error}: {plan:?}"));
    assert_eq!((&json["pods"][0]["name"], &json["pods"][0]["request"]), (&json!("on-a"), &Value::Null), "{json}");
}

/// A responder whose pod is gone is Interrupted within seconds. Another one, whose deadline is long over, keeps its turn for 20 minutes
/// after this process first saw it; the request goes on as soon as it reports.
pub(super) async fn continue_requests(tenant: &Tenant, start: i64) {
    let ended = tenant.until_condition("evictions", "pod-1-goes", "TargetEvicted=True/PodDeleted").await;
    assert_eq!(entry(&ended, "targetResponders", APP)["state"], "Interrupted", "{ended}");
    tenant.until_condition("evictionrequests", "goes", "TargetEvicted=True/PodDeleted").await;
    let stays = tenant.get("evictions", "pod-1-stays").await.unwrap();
    assert_eq!(start_of(&stays, APP), start, "{stays}");
    assert_eq!(entry(&stays, "targetResponders", APP)["state"], "Active", "{stays}");
    tenant.report("pod-1-stays", APP, true).await;
    tenant.until_gone("stays").await;
    let ended = tenant.until_condition("evictions", "pod-1-stays", "TargetEvicted=True/PodDeleted").await;
    assert_eq!(entry(&ended, "targetResponders", APP)["state"], "Completed", "{ended}");
    tenant.until_condition("evictionrequests", "stays", "TargetEvicted=True/PodDeleted").await;
}
