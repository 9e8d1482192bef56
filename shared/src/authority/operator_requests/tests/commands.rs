//! The objects that operators' commands write, and the errors if they cannot be written.

use pod_safety_fence::{dry_run_name, incident_name};
use serde_json::Value;

use super::*;
use crate::api::DeviceRef;
use crate::authority::operator_requests::{
    Drill, delete_drill, read_grant, read_incident, request_status_check, start_drill, status_check_result,
};

pub(super) const GROUP: &str = "/apis/pod-safety.dev/v1alpha1";

/// An API server that has these objects by path. It accepts every write, except to objects that it does not have.
pub(super) fn api_with(there: Value, refused: Option<(u16, &'static str)>) -> (Env, Api) {
    let (env, _wall) = env();
    let api = Api::new(&env, move |request| {
        let object = there.get(request.path.as_str());
        let answer = match (request.method.as_str(), refused, object) {
            ("GET", _, Some(object)) => Answer::json(object),
            ("GET", _, None) => Answer::not_found(),
            (_, Some((code, reason)), _) => Answer::status(code, reason, "no"),
            ("POST", None, _) => {
                Answer::with_code(201, &json!({ "metadata": {}, "status": { "userInfo": { "username": "ada" } } }))
            }
            (_, None, _) => Answer::json(&json!({ "metadata": {} })),
        };
        async move { answer }
    });
    (env, api)
}

pub(super) fn incarnation(boot: &str) -> Incarnation {
    Incarnation { name: "n".to_owned(), uid: "u".to_owned(), boot_id: boot.to_owned() }
}

pub(super) fn seen() -> Examined {
    let labels = [("rack".to_owned(), "7".to_owned())].into();
    Examined { node: incarnation("b"), labels, ready: false, cordoned: false, renewed: None }
}

/// The error of a command that should fail.
pub(super) fn error_text<T>(ended: Result<T, OperatorError>) -> String {
    match ended {
        Ok(_) => "it was done".to_owned(),
        Err(OperatorError::NoneFound { kind, node }) => format!("nothing: {kind} of {node}"),
        Err(OperatorError::AlreadyExists { name, .. }) => format!("there: {name}"),
        Err(OperatorError::NoDevice(name)) => format!("no device: {name}"),
        Err(OperatorError::Changed { object }) => format!("changed: {object}"),
        Err(OperatorError::NoPolicy(node)) => format!("no policy: {node}"),
        Err(OperatorError::Api { doing, .. }) => format!("failed: {doing}"),
        Err(other) => other.to_string(),
    }
}

const GONE: Option<(u16, &str)> = Some((404, "NotFound"));
pub(super) const CONFLICT: Option<(u16, &str)> = Some((409, "AlreadyExists"));
pub(super) const BROKEN: Option<(u16, &str)> = Some((500, "InternalError"));

fn proofs() -> Value {
    let proof = |name: &str, node: Incarnation, invalid: bool| {
        let mut proof = json!({ "metadata": { "name": name }, "spec": { "node": node, "kind": "Asserted", "by": "p", "reason": "r" } });
        if invalid {
            proof["status"] = json!({ "invalidated": { "at": "t", "reason": "r" } });
        }
        proof
    };
    let items = [
        proof("ours", incarnation("b"), false),
        proof("of-another-boot", incarnation("a"), false),
        proof("withdrawn", incarnation("b"), true),
        proof("too", incarnation("b"), false),
    ];
    json!({ format!("{GROUP}/fenceevidences"): { "items": items } })
}

#[tokio::test(start_paused = true)]
async fn withdraw_invalidates_only_evidence_about_this_incarnation() {
    let (env, api) = api_with(proofs(), None);
    let names = withdraw(&api.connection(), &env, &incarnation("b"), "a mistake").await.unwrap();
    assert_eq!(names, ["ours", "too"]);
    assert_eq!(api.writes(), ["ours", "too"].map(|name| format!("PATCH {GROUP}/fenceevidences/{name}/status")));
    let expected = json!({ "status": { "invalidated": { "at": "2026-11-21T12:00:00Z", "reason": "a mistake" } } });
    assert_eq!(api.requests().pop().unwrap().json(), expected);
    for (what, incarnation, refused, expected) in [
        ("nothing is said of it", incarnation("c"), None, "nothing: FenceEvidence of n"),
        ("it went meanwhile", incarnation("b"), GONE, "nothing: FenceEvidence of n"),
        ("it cannot be written", incarnation("b"), BROKEN, "failed: writing it"),
    ] {
        let (env, api) = api_with(proofs(), refused);
        assert_eq!(error_text(withdraw(&api.connection(), &env, &incarnation, "r").await), expected, "{what}");
    }
}

pub(super) fn policies() -> Value {
    let policy = |name: &str, rack: &str, priority: i32| {
        json!({ "metadata": { "name": name }, "spec": { "nodeSelector": { "matchLabels": { "rack": rack } }, "priority": priority,
            "levels": [{ "name": "l", "devices": [{ "namespace": "x", "name": "y" }] }] } })
    };
    let items = [policy("low", "7", 1), policy("high", "7", 2), policy("other", "8", 9)];
    json!({ format!("{GROUP}/fencepolicies"): { "items": items } })
}

#[tokio::test(start_paused = true)]
async fn request_fence_creates_an_incident_with_the_selecting_policy() {
    let name = incident_name(&incarnation("b"));
    let (_, api) = api_with(policies(), None);
    let made = request_fence(&api.connection(), &seen(), "ada", "it smokes").await.unwrap();
    let body = api.requests().pop().unwrap().json();
    assert_eq!((made.as_str(), &body["metadata"]["name"]), (name.as_str(), &json!(name)));
    assert_eq!((&body["spec"]["policy"], &body["spec"]["dryRun"]), (&json!("high"), &json!(false)));
    assert_eq!(body["spec"]["trigger"], json!({ "kind": "Person", "reason": "it smokes", "by": "ada" }));
    let (_, api) = api_with(policies(), None);
    let (supposed, spec) = plan_drill(&api.connection(), &seen(), "r").await.unwrap();
    assert_eq!((supposed, spec.policy.as_str(), spec.dry_run), (dry_run_name(&incarnation("b")), "high", true));
    assert!(api.requests().iter().all(|request| request.method == "GET"), "what is supposed is not written");
    assert_ne!(incident_name(&incarnation("b")), dry_run_name(&incarnation("b")), "a drill is in nobody's way");
    assert_ne!(dry_run_name(&incarnation("a")), dry_run_name(&incarnation("b")));
    let there = format!("there: {}", incident_name(&incarnation("b")));
    for (what, objects, refused, expected) in [
        ("it is asked for already", policies(), CONFLICT, there.as_str()),
        ("it cannot be written", policies(), BROKEN, "failed: writing it"),
        ("no policy chooses it", json!({ format!("{GROUP}/fencepolicies"): { "items": [] } }), None, "no policy: n"),
    ] {
        let (_, api) = api_with(objects, refused);
        let result = request_fence(&api.connection(), &seen(), "ada", "r").await;
        assert_eq!(error_text(result), expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn cancel_fence_patches_the_incident_by_name() {
    let (_, api) = api_with(json!({}), None);
    let name = cancel_fence(&api.connection(), &incarnation("b")).await.unwrap();
    assert_eq!(name, incident_name(&incarnation("b")));
    assert_eq!(api.writes(), [format!("PATCH {GROUP}/nodefences/{name}")]);
    assert_eq!(api.requests().pop().unwrap().json(), json!({ "spec": { "cancelled": true } }));
    for (refused, expected) in [(GONE, "nothing: NodeFence of n"), (BROKEN, "failed: writing it")] {
        let (_, api) = api_with(json!({}), refused);
        assert_eq!(error_text(cancel_fence(&api.connection(), &incarnation("b")).await), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn whoami_returns_the_authenticated_user() {
    let (_, api) = api_with(json!({}), None);
    assert_eq!(whoami(&api.connection()).await.unwrap(), "ada");
    assert_eq!(error_text(whoami(&api_with(json!({}), BROKEN).1.connection()).await), "failed: asking who you are");
}

#[tokio::test(start_paused = true)]
async fn delete_drill_deletes_the_drill_and_never_a_real_incident() {
    let name = dry_run_name(&incarnation("b"));
    for refused in [None, CONFLICT] {
        let (_, api) = api_with(policies(), refused);
        assert_eq!(start_drill(&api.connection(), &seen(), "ada", "drill").await.unwrap(), name, "an old one will do");
    }
    let refused = start_drill(&api_with(policies(), BROKEN).1.connection(), &seen(), "ada", "drill").await;
    assert_eq!(error_text(refused), "failed: writing it");

    let fence = json!({ "metadata": { "name": name, "uid": "uid-f" }, "spec": { "node": incarnation("b"), "policy": "high", "dryRun": true,
        "trigger": { "kind": "Person", "reason": "drill" } }, "status": { "message": "two gates hold it" } });
    let path = format!("{GROUP}/nodefences/{name}");
    let (_, api) = api_with(json!({ path.clone(): fence }), None);
    let drill: Drill = read_incident(&api.connection(), &name).await.unwrap().unwrap();
    assert_eq!((drill.uid.as_str(), drill.status.message.as_str()), ("uid-f", "two gates hold it"));
    assert!(read_incident(&api.connection(), "gone").await.unwrap().is_none());
    let garbage = api_with(json!({ path.clone(): 7 }), None).1;
    assert_eq!(error_text(read_incident(&garbage.connection(), &name).await), "failed: reading the NodeFence");

    delete_drill(&api.connection(), &drill).await.unwrap();
    assert_eq!(api.writes(), [format!("DELETE {path}")]);
    assert_eq!(api.requests().pop().unwrap().json(), json!({ "preconditions": { "uid": "uid-f" } }));
    let real = Drill { name: incident_name(&drill.spec.node), ..drill.clone() };
    delete_drill(&api.connection(), &real).await.unwrap();
    assert_eq!(api.writes().len(), 1, "what was done to a machine stays on record");
    delete_drill(&api_with(json!({}), GONE).1.connection(), &drill).await.unwrap();
    let stays = delete_drill(&api_with(json!({}), BROKEN).1.connection(), &drill).await;
    assert_eq!(error_text(stays), "failed: deleting the drill");
}

#[tokio::test(start_paused = true)]
async fn a_device_is_listed_and_a_status_check_result_is_matched_by_its_token() {
    let device = |namespace: &str, name: &str| {
        json!({ "metadata": { "namespace": namespace, "name": name }, "spec": { "driver": "Redfish" },
            "status": { "tested": "t-1 n", "conditions": [], "targets": [] } })
    };
    let path = format!("{GROUP}/namespaces/a/fencedevices/x");
    let there = json!({
        format!("{GROUP}/fencedevices"): { "items": [device("b", "x"), device("a", "y"), device("a", "x")] },
        path.clone(): device("a", "x"),
    });
    let (_, api) = api_with(there, None);
    let connection = api.connection();
    let all: Vec<_> =
        list_devices(&connection).await.unwrap().into_iter().map(|device| device.named.to_string()).collect();
    assert_eq!(all, ["a/x", "a/y", "b/x"]);
    let x = DeviceRef { namespace: "a".to_owned(), name: "x".to_owned() };
    for (node, expected_token) in [(None, "t-1"), (Some("n"), "t-1 n")] {
        assert_eq!(request_status_check(&connection, &x, "t-1", node).await.unwrap(), expected_token);
        let written = api.requests().pop().unwrap();
        assert_eq!(written.line(), format!("PATCH {path}"));
        assert_eq!(written.json(), json!({ "metadata": { "annotations": { "pod-safety.dev/test": expected_token } } }));
    }
    assert!(status_check_result(&connection, &x, "t-1 n").await.unwrap().is_some());
    assert!(status_check_result(&connection, &x, "t-2 n").await.unwrap().is_none(), "that was another wish");
    for (refused, expected) in [(GONE, "no device: a/x"), (BROKEN, "failed: requesting a status check")] {
        let (_, api) = api_with(json!({}), refused);
        assert_eq!(error_text(request_status_check(&api.connection(), &x, "t", None).await), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_with_repeated_conflicts_and_a_failed_pause_are_errors() {
    let there = json!({ "/api/v1/nodes/x": { "metadata": { "name": "x", "resourceVersion": "7" } } });
    for (refused, expected, tries) in
        [(Some((409, "Conflict")), "changed: node/x", 5), (BROKEN, "failed: writing it", 1)]
    {
        let (_, api) = api_with(there.clone(), refused);
        let result = pause(&api.connection(), &Scope::Node("x".to_owned()), &by_anna("r")).await;
        assert_eq!((error_text(result).as_str(), api.writes().len()), (expected, tries));
    }
}

/// Once, when a kubelet wrote to the Node between the read and the write, the operator was told to run the command again.
#[tokio::test(start_paused = true)]
async fn bug_a_pause_was_not_retried_after_a_conflict_with_a_kubelet() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let paused_meanwhile = json!({ PAUSE_ANNOTATION: by_anna("hers").to_string() });
    for (conflicts, annotations, expected) in [
        (0, json!({}), "it was done"),
        (4, json!({}), "it was done"),
        (5, json!({}), "changed: node/x"),
        (1, paused_meanwhile, "Paused"),
    ] {
        let (env, _wall) = env();
        let writes = AtomicU32::new(0);
        let api = Api::new(&env, move |request| {
            let written = writes.load(Ordering::Relaxed);
            let answer = match request.method.as_str() {
                "GET" => {
                    let now = if written > 0 { annotations.clone() } else { json!({}) };
                    Answer::json(
                        &json!({ "metadata": { "name": "x", "resourceVersion": written.to_string(), "annotations": now } }),
                    )
                }
                _ if writes.fetch_add(1, Ordering::Relaxed) < conflicts => Answer::status(409, "Conflict", "no"),
                _ => Answer::json(&json!({ "metadata": {} })),
            };
            async move { answer }
        });
        let ended = pause(&api.connection(), &Scope::Node("x".to_owned()), &by_anna("r")).await;
        match ended {
            Err(OperatorError::Paused { .. }) => assert_eq!(expected, "Paused"),
            other => assert_eq!(error_text(other), expected),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_is_an_error_and_not_absence() {
    let (env, _wall) = env();
    let connection = Api::answering(&env, |_| Answer::status(500, "InternalError", "etcd")).connection();
    assert_eq!(error_text(read_incident(&connection, "f").await), "failed: reading the NodeFence");
    let device = DeviceRef { namespace: "a".to_owned(), name: "x".to_owned() };
    let promised = read_grant(&connection, &device, &incarnation("b")).await;
    assert_eq!(error_text(promised), "failed: reading the watchdog Lease");
    for scope in [Scope::Node("x".to_owned()), Scope::Policy("x".to_owned())] {
        assert_eq!(error_text(read_pause(&connection, &scope).await), "failed: reading the object to pause");
    }
}
