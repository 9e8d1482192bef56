//! The lifecycle of requests.

use pod_safety_control_plane::budgets;

use super::tenant::{conditions, entry, responders};
use super::*;

const REQUESTERS: &str = "example.com/asks";
const APP: &str = "example.com/app";
const OTHER: &str = "example.com/other";

/// `TestEvictionRequestValidation`.
pub(super) async fn requests_are_validated(plane: &ControlPlane) {
    let tenant = Tenant::new(plane, "validated").await;
    let uid = tenant.pod("there", json!({})).await;
    tenant.pod("gang", json!({ "schedulingGroup": { "podGroupName": "g" } })).await;
    let gang = tenant.get("pods", "gang").await.unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let other = "11111111-2222-4333-8444-555555555555";
    for (request, pod, uid, message) in [
        ("missing", "nosuch", other, "Target pod not found.".to_owned()),
        ("mismatch", "there", other, format!("Target pod UID mismatch: expected {other}, got {uid}.")),
        (
            "group",
            "gang",
            &*gang,
            "Target pod references a SchedulingGroup. Eviction is currently not supported.".to_owned(),
        ),
    ] {
        tenant.request_eviction(request, pod, uid, REQUESTERS).await;
        let reported = tenant.until_condition("evictionrequests", request, "Failed=True/EvictionInvalid").await;
        assert_eq!(reported["status"]["conditions"][0]["message"], message, "{request}");
        assert!(conditions(&reported).contains("TargetEvicted=False/EvictionFailed"), "{reported}");
        assert_eq!(reported["status"]["observedGeneration"], 1, "{request}");
        // It is final: only its generation is observed.
        tenant.intent(request, "Withdrawn").await;
        wait_until("its generation is observed", async || {
            let now = tenant.get("evictionrequests", request).await.unwrap_or_default();
            check_that(now["status"]["observedGeneration"] == 2, now["status"].to_string())
        })
        .await;
    }
    let all = tenant.get("evictions", "").await.unwrap();
    assert_eq!(all["items"].as_array().unwrap().len(), 0, "{all}");
}

/// The pod terminates while the active responder never reports: the responder is marked Interrupted.
pub(super) async fn a_pod_that_terminates_ends_its_eviction(plane: &ControlPlane) {
    let tenant = Tenant::new(plane, "terminates").await;
    let uid = tenant.pod("p", responders(&[(APP, 10_000), (OTHER, 5_000)])).await;
    tenant.request_eviction("r", "p", &uid, REQUESTERS).await;
    let begun = tenant.until_state("pod-1-p", APP, "Active").await;
    for (name, state, priority) in [(APP, "Active", 10_000), (OTHER, "Inactive", 5_000), (EVICTOR, "Inactive", 100)] {
        let one = entry(&begun, "targetResponders", name);
        assert_eq!((&one["state"], &one["priority"]), (&json!(state), &json!(priority)), "{begun}");
    }
    assert_eq!(entry(&begun, "requesters", REQUESTERS)["intent"], "Eviction", "{begun}");
    let labelled = wait_until("labels name all", async || {
        let now = tenant.get("evictions", "pod-1-p").await.unwrap_or_default();
        let labels = now["metadata"]["labels"].clone();
        check_that(
            labels[REQUESTERS] == "requester" && labels[APP] == "responder" && labels[EVICTOR] == "responder",
            labels.to_string(),
        )
        .map(|()| now)
    })
    .await;
    assert_eq!(labelled["metadata"]["ownerReferences"][0]["name"], "r", "{labelled}");
    tenant.phase("p", "Failed").await;
    let ended = tenant.until_condition("evictions", "pod-1-p", "TargetEvicted=True/PodTerminal").await;
    assert!(conditions(&ended).contains("Failed=False/Succeeded"), "{ended}");
    assert_eq!(entry(&ended, "targetResponders", APP)["state"], "Interrupted", "{ended}");
    assert_eq!(entry(&ended, "targetResponders", OTHER)["state"], "Inactive", "{ended}");
    tenant.until_condition("evictionrequests", "r", "TargetEvicted=True/PodTerminal").await;
}

/// `TestResponderEviction`: without other responders, the imperative eviction is attempted immediately.
pub(super) async fn a_pod_is_evicted_by_the_api_server(plane: &ControlPlane) {
    let tenant = Tenant::new(plane, "evicted").await;
    let uid = tenant.pod("p", json!({})).await;
    tenant.request_eviction("r", "p", &uid, REQUESTERS).await;
    tenant.request_eviction("s", "p", &uid, "example.com/too").await;
    tenant.until_gone("p").await;
    let ended = tenant.until_condition("evictions", "pod-1-p", "TargetEvicted=True/PodDeleted").await;
    for request in ["r", "s"] {
        tenant.until_condition("evictionrequests", request, "TargetEvicted=True/PodDeleted").await;
    }
    assert!(
        ended["metadata"]["managedFields"].as_array().unwrap().iter().any(|one| one["manager"] == "pod-safety"),
        "{ended}"
    );
}

pub(super) async fn a_withdrawn_eviction_is_canceled_and_requested_again(plane: &ControlPlane) {
    let tenant = Tenant::new(plane, "withdrawn").await;
    let uid = tenant.pod("p", responders(&[(APP, 10_000)])).await;
    tenant.request_eviction("r", "p", &uid, REQUESTERS).await;
    tenant.until_state("pod-1-p", APP, "Active").await;
    tenant.report("pod-1-p", APP, false).await;
    tenant.intent("r", "Withdrawn").await;
    let canceled = tenant.until_condition("evictions", "pod-1-p", "Failed=True/CanceledDueToNoRequesters").await;
    assert_eq!(entry(&canceled, "targetResponders", APP)["state"], "Canceled", "{canceled}");
    tenant.until_condition("evictionrequests", "r", "Failed=True/CanceledDueToNoRequesters").await;
    // First by the same request, and then by another one.
    tenant.intent("r", "Eviction").await;
    tenant.until_state("pod-2-p", APP, "Active").await;
    tenant.until_condition("evictionrequests", "r", "Failed=False/AwaitingEviction").await;
    tenant.intent("r", "Withdrawn").await;
    tenant.until_condition("evictions", "pod-2-p", "Failed=True/CanceledDueToNoRequesters").await;
    tenant.request_eviction("s", "p", &uid, "example.com/too").await;
    let third = tenant.until_state("pod-3-p", APP, "Active").await;
    assert_eq!(entry(&third, "requesters", "example.com/too")["intent"], "Eviction", "{third}");
    tenant.phase("p", "Succeeded").await;
    tenant.until_condition("evictions", "pod-3-p", "TargetEvicted=True/PodTerminal").await;
}

/// Completed without termination: the next responder has its turn, and in the end a new Eviction follows.
pub(super) async fn responders_have_their_turns_and_the_next_eviction_follows(plane: &ControlPlane) {
    let tenant = Tenant::new(plane, "turns").await;
    // The imperative evictor declines pods of DaemonSets.
    let labels = json!({ "app": "d" });
    let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "main", "image": "registry.example/main:1" }] } });
    let set = json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "d" }, "spec": { "selector": { "matchLabels": labels }, "template": template } });
    // It exists: the garbage collector would delete a pod whose owner does not.
    let set = tenant.create("daemonsets", &set).await["metadata"]["uid"].clone();
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": set, "controller": true }]);
    let mut object = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "ownerReferences": owner }, "spec": responders(&[(APP, 10_000), (OTHER, 5_000)]) });
    object["spec"]["containers"] = json!([{ "name": "main", "image": "registry.example/main:1" }]);
    let uid = tenant.create("pods", &object).await["metadata"]["uid"].as_str().unwrap().to_owned();
    tenant.request_eviction("r", "p", &uid, REQUESTERS).await;
    tenant.until_state("pod-1-p", APP, "Active").await;
    tenant.report("pod-1-p", APP, true).await;
    let second = tenant.until_state("pod-1-p", OTHER, "Active").await;
    assert_eq!(entry(&second, "targetResponders", APP)["state"], "Completed", "{second}");
    tenant.report("pod-1-p", OTHER, true).await;
    let failed = tenant.until_condition("evictions", "pod-1-p", "Failed=True/NoFurtherResponder").await;
    let reported = entry(&failed, "responders", EVICTOR);
    assert!(reported["message"].as_str().unwrap().contains("DaemonSet"), "{reported}");
    tenant.until_condition("evictionrequests", "r", "Failed=True/NoFurtherResponder").await;
    let next = tenant.until_state("pod-2-p", APP, "Active").await;
    let at = |object: &Value, pointer: &str| -> Timestamp {
        object.pointer(pointer).unwrap().as_str().unwrap().parse().unwrap()
    };
    let waited =
        at(&next, "/metadata/creationTimestamp").duration_since(at(&failed, "/status/conditions/0/lastTransitionTime"));
    assert!(waited.as_secs() >= 19, "it backs off: {waited}");
    tenant.phase("p", "Succeeded").await;
    tenant.until_condition("evictionrequests", "r", "TargetEvicted=True/PodTerminal").await;
}

/// `TestResponderEviction`: stalls with attempts, then continues as soon as the PDB allows it, unless it was withdrawn meanwhile.
pub(super) async fn a_budget_stalls_an_eviction_until_it_opens(plane: &ControlPlane) {
    let tenant = Tenant::new(plane, "stalls").await;
    let set_minimum = async |pod: &str, count: i32| {
        let spec = json!({ "minAvailable": count, "selector": { "matchLabels": { "app": pod } } });
        budgets::put(&tenant.api, "stalls", pod, &spec).await.unwrap();
    };
    for (request, pod) in [("r", "p"), ("s", "withdrawn")] {
        let uid = tenant.pod(pod, json!({})).await;
        tenant.phase(pod, "Running").await;
        set_minimum(pod, 1).await;
        tenant.request_eviction(request, pod, &uid, REQUESTERS).await;
    }
    tenant.until_message("pod-1-withdrawn", EVICTOR, "(attempts=").await;
    tenant.intent("s", "Withdrawn").await;
    let canceled =
        tenant.until_condition("evictions", "pod-1-withdrawn", "Failed=True/CanceledDueToNoRequesters").await;
    assert_eq!(entry(&canceled, "targetResponders", EVICTOR)["state"], "Canceled", "{canceled}");
    tenant.until_condition("evictionrequests", "s", "Failed=True/CanceledDueToNoRequesters").await;
    set_minimum("withdrawn", 0).await;
    let stalled = tenant.until_message("pod-1-p", EVICTOR, "(attempts=").await;
    let reported = entry(&stalled, "responders", EVICTOR)["message"].as_str().unwrap().to_owned();
    assert!(reported.starts_with("Budget"), "{reported}");
    tenant.until_message("pod-1-p", EVICTOR, "(attempts=2").await;
    assert!(tenant.get("pods", "p").await.unwrap()["metadata"].get("deletionTimestamp").is_none());
    set_minimum("p", 0).await;
    tenant.until_gone("p").await;
    tenant.until_condition("evictionrequests", "r", "TargetEvicted=True/PodDeleted").await;
    let withdrawn = tenant.get("pods", "withdrawn").await.unwrap();
    assert!(withdrawn["metadata"].get("deletionTimestamp").is_none(), "{withdrawn}");
}
