//! Other clients of the same objects: kube-controller-manager's garbage collector, and clients that create or drive Evictions.

use pod_safety_control_plane::PodSafety;

use super::tenant::{conditions, entry, responders};
use super::*;

const REQUESTER: &str = "example.com/asks";
const APP: &str = "example.com/app";
const GROUP: &str = "/apis/lifecycle.k8s.io/v1alpha1/namespaces";

/// Before the controller runs, another client creates the Eviction of a requested pod.
pub(super) async fn create_early(plane: &ControlPlane) -> Tenant {
    let tenant = Tenant::new(plane, "adopted").await;
    let uid = tenant.pod("p", responders(&[(APP, 10_000)])).await;
    tenant.request_eviction("r", "p", &uid, REQUESTER).await;
    tenant.create_eviction("theirs", "p", &uid).await;
    tenant
}

/// It is adopted: it gets the owner, the labels and the turns of one that the controller creates, and no second one is active.
pub(super) async fn an_eviction_of_another_client_is_adopted(tenant: &Tenant) {
    tenant.until_state("theirs", APP, "Active").await;
    let adopted = wait_until("it has owner and labels", async || {
        let now = tenant.get("evictions", "theirs").await.unwrap_or_default();
        let metadata = &now["metadata"];
        let (labels, owner) = (&metadata["labels"], &metadata["ownerReferences"][0]);
        let is_complete = labels[REQUESTER] == "requester" && labels[APP] == "responder" && owner["name"] == "r";
        check_that(is_complete, metadata.to_string()).map(|()| now)
    })
    .await;
    assert_eq!(entry(&adopted, "requesters", REQUESTER)["intent"], "Eviction", "{adopted}");
    let uid = adopted["spec"]["target"]["pod"]["uid"].as_str().unwrap();
    tenant.create_eviction("twice", "p", uid).await;
    let duplicate = tenant.until_condition("evictions", "twice", "Failed=True/EvictionInvalid").await;
    let message = &duplicate["status"]["conditions"][0]["message"];
    assert_eq!(message, "Active Eviction already exists for the same target.", "{duplicate}");
    tenant.report("theirs", APP, true).await;
    tenant.until_gone("p").await;
    let ended = tenant.until_condition("evictions", "theirs", "TargetEvicted=True/PodDeleted").await;
    assert_eq!(entry(&ended, "targetResponders", APP)["state"], "Completed", "{ended}");
    tenant.until_condition("evictionrequests", "r", "TargetEvicted=True/PodDeleted").await;
    let all = tenant.get("evictions", "").await.unwrap();
    assert_eq!(all["items"].as_array().unwrap().len(), 2, "{all}");
}

/// kube-controller-manager's garbage collector runs: an Eviction goes with the last of its owners, and stays if it never had one.
pub(super) async fn an_eviction_goes_with_its_last_request(plane: &ControlPlane) {
    let tenant = Tenant::new(plane, "collected").await;
    let bare = tenant.pod("bare", json!({})).await;
    tenant.create_eviction("without-owner", "bare", &bare).await;
    let uid = tenant.pod("p", responders(&[(APP, 10_000)])).await;
    for (request, requester) in [("r", REQUESTER), ("s", "example.com/too")] {
        tenant.request_eviction(request, "p", &uid, requester).await;
    }
    let until_owners = async |expected: &[&str]| {
        wait_until("its owners are the requests that exist", async || {
            let now = tenant.get("evictions", "pod-1-p").await.unwrap_or_default();
            let owners = now["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            let mut names: Vec<&str> = owners.iter().filter_map(|owner| owner["name"].as_str()).collect();
            names.sort_unstable();
            check_that(names == expected, now["metadata"].to_string())
        })
        .await;
    };
    until_owners(&["r", "s"]).await;
    tenant.delete("evictionrequests", "r").await;
    until_owners(&["s"]).await;
    tenant.until_state("pod-1-p", APP, "Active").await;
    tenant.delete("evictionrequests", "s").await;
    tenant.until_deleted("evictions", "pod-1-p").await;
    assert!(tenant.get("pods", "p").await.unwrap()["metadata"].get("deletionTimestamp").is_none());
    tenant.until_condition("evictions", "without-owner", "Failed=True/CanceledDueToNoRequesters").await;
}

/// Kubernetes' own controller takes an Eviction over, as kubernetes#137133 writes: by server-side apply. pod-safety stands down in that
/// namespace until this Eviction has ended.
pub(super) async fn another_controller_is_left_to_its_namespace(plane: &ControlPlane, pod_safety: &PodSafety) {
    let tenant = Tenant::new(plane, "handed-over").await;
    let uid = tenant.pod("taken-over", responders(&[(APP, 10_000)])).await;
    tenant.request_eviction("r", "taken-over", &uid, REQUESTER).await;
    let name = "pod-1-taken-over";
    let begun = tenant.until_state(name, APP, "Active").await;
    let turns = json!({ "targetResponders": begun["status"]["targetResponders"] });
    let object = json!({ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "Eviction", "metadata": { "name": name }, "status": turns });
    let path = format!("{GROUP}/handed-over/evictions/{name}/status?fieldManager=evictionrequest-controller");
    let forced = format!("{path}&force=true");
    send(&tenant.api, Method::PATCH, &forced, "application/apply-patch+yaml", &object).await.unwrap();
    let held = pod_safety.until_held("taken-over", "AnotherController").await.unwrap();
    assert!(held.contains("controllers.eviction.enabled"), "{held}");
    let next = tenant.pod("left-alone", responders(&[(APP, 10_000)])).await;
    tenant.request_eviction("s", "left-alone", &next, REQUESTER).await;
    pod_safety.until_held("left-alone", "AnotherController").await.unwrap();
    assert!(tenant.get("evictions", "pod-1-left-alone").await.is_none());
    assert_eq!(conditions(&tenant.get("evictionrequests", "s").await.unwrap()), "");

    let now = format!("{:.0}", Timestamp::now());
    let condition = |kind: &str, status: &str, reason: &str| json!({ "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": now });
    let ended = json!([condition("Failed", "False", "Succeeded"), condition("TargetEvicted", "True", "PodDeleted")]);
    let states = json!([{ "name": APP, "state": "Interrupted" }]);
    tenant.patch(&path, &json!({ "status": { "targetResponders": states, "conditions": ended } })).await.unwrap();
    tenant.until_condition("evictionrequests", "r", "TargetEvicted=True/PodDeleted").await;
    // Another request for the pod that waited: what does not change is decided again every five minutes.
    tenant.request_eviction("t", "left-alone", &next, "example.com/too").await;
    tenant.until_state("pod-1-left-alone", APP, "Active").await;
    tenant.until_condition("evictionrequests", "s", "Failed=False/AwaitingEviction").await;
}
