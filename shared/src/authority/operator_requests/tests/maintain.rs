//! The conditions of a node during maintenance, and what keeps its machine off.

use pod_safety_fence::incident_name;
use serde_json::Value;

use super::commands::{GROUP, incarnation, policies, seen};
use super::*;
use crate::authority::operator_requests::{
    DRAINED, LifecycleCondition, MAINTENANCE_IN_PROGRESS, is_being_fenced, list_kept_off, request_keep_off,
    write_conditions,
};
use crate::testing::objects::with;

#[tokio::test(start_paused = true)]
async fn a_rewritten_condition_keeps_its_transition_time() {
    let (env, _wall) = env();
    let api = Api::answering(&env, |request| match request.method.as_str() {
        "GET" => {
            let drained = json!({ "type": DRAINED, "status": "True" });
            Answer::json(
                &node("n").boot("b0000000-0000-4000-8000-000000000001").set("/status/conditions", json!([drained])).0,
            )
        }
        _ => Answer::json(&json!({ "metadata": {} })),
    });
    let incarnation = Incarnation {
        name: "n".to_owned(),
        uid: "uid-n".to_owned(),
        boot_id: "b0000000-0000-4000-8000-000000000001".to_owned(),
    };
    let condition =
        |kind: &'static str| LifecycleCondition { kind, is_true: true, reason: "AdminRequested", message: "disks" };
    let conditions = [condition(DRAINED), condition(MAINTENANCE_IN_PROGRESS)];
    write_conditions(&api.connection(), &incarnation, env.clock.wall(), &conditions).await.unwrap();
    assert_eq!(api.writes(), ["PATCH /api/v1/nodes/n/status"]);
    let body = api.requests().pop().unwrap().json();
    assert_eq!(body["metadata"], json!({ "uid": "uid-n" }), "no other Node of that name");
    let conditions = &body["status"]["conditions"];
    assert_eq!(conditions[0].get("lastTransitionTime"), None, "it goes on");
    assert_eq!(conditions[1]["lastTransitionTime"], "2026-11-21T12:00:00Z");
    assert_eq!(conditions[1]["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn only_an_open_incident_of_the_node_keeps_its_machine_off() {
    let fence = |name: &str, node: &str, keep: bool, phase: &str| -> Value {
        let incarnation = json!({ "name": node, "uid": "u", "bootID": "b" });
        json!({ "metadata": { "name": name }, "status": { "phase": phase },
            "spec": { "node": incarnation, "policy": "p", "keepOff": keep,
                "trigger": { "kind": "Person", "reason": "r" } } })
    };
    let items = json!([
        fence("ours", "n", true, "Fenced"),
        fence("over", "n", true, "Done"),
        fence("of-another", "m", true, "Fenced"),
        fence("not-kept", "n", false, "Fenced"),
        fence("over-too", "o", true, "Done"),
        with(fence("drill", "d", true, "Fenced"), "/spec/dryRun", json!(true)),
    ]);
    let (env, _wall) = env();
    let api = Api::answering(&env, move |_| Answer::json(&json!({ "metadata": {}, "items": items })));
    assert_eq!(list_kept_off(&api.connection(), "n").await.unwrap(), ["ours"]);
    for (node, open) in [("n", true), ("m", true), ("o", false), ("d", false)] {
        assert_eq!(is_being_fenced(&api.connection(), node).await.unwrap(), open, "{node}");
    }
}

#[tokio::test(start_paused = true)]
async fn keep_off_creates_an_incident_or_changes_the_existing_one() {
    let name = incident_name(&incarnation("b"));
    let changed = format!("PATCH {GROUP}/nodefences/{name}");
    for (there, last) in [(false, format!("POST {GROUP}/nodefences")), (true, changed)] {
        let (env, _wall) = env();
        let api = Api::answering(&env, move |request| match request.method.as_str() {
            "GET" => Answer::json(&policies()[request.path.as_str()]),
            "POST" if there => Answer::status(409, "AlreadyExists", "no"),
            _ => Answer::json(&json!({ "metadata": {} })),
        });
        let result = request_keep_off(&api.connection(), &seen(), "ada", "disks").await;
        assert_eq!(result.unwrap(), name);
        assert_eq!(api.writes().pop().unwrap(), last);
        assert_eq!(api.requests().pop().unwrap().json()["spec"]["keepOff"], json!(true));
    }
}
