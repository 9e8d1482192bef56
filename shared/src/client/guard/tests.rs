//! Lock 5: what goes out, with and without a permit.

use super::*;
use crate::client::scripted::{env, silent};
use crate::client::{ApiError, Call, Method as Verb};

/// What `check` says of one request: `ok`, or the refusal in a word.
fn verdict(method: &str, uri: &str, body: &str, permitted: bool) -> &'static str {
    let mut request = Request::builder().method(method).uri(uri);
    if permitted {
        request = request.extension(Permit::for_guard_tests());
    }
    let request = request.body(Body::from(body.as_bytes().to_vec())).unwrap();
    match check(&request) {
        Ok(()) => "ok",
        Err(GuardRefusal::RemovesPod { .. }) => "removes",
        Err(GuardRefusal::NoIdentity { .. }) => "no identity",
        Err(GuardRefusal::StaleRead { .. }) => "stale",
        Err(GuardRefusal::OpaquePath { .. }) => "path",
        Err(GuardRefusal::OpaqueBody { .. }) => "opaque",
    }
}

/// Rows of: what it is, verb, path, body, without a permit, with one.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

fn check_rows(rows: &[Row]) {
    for (what, method, uri, body, without, with) in rows {
        assert_eq!(verdict(method, uri, body, false), *without, "{what}, without a permit");
        assert_eq!(verdict(method, uri, body, true), *with, "{what}, with a permit");
    }
}

const POD: &str = "/api/v1/namespaces/ns/pods/a";
const STATUS: &str = "/api/v1/namespaces/ns/pods/a/status";
const EVICTION: &str = "/api/v1/namespaces/ns/pods/a/eviction";
const NODE: &str = "/api/v1/nodes/n";
const NODE_STATUS: &str = "/api/v1/nodes/n/status";
const ATTACHMENT: &str = "/apis/storage.k8s.io/v1/volumeattachments/v";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l";
const BUDGET: &str = "/apis/policy/v1/namespaces/ns/poddisruptionbudgets/b";

#[test]
fn reads_pass_unless_they_may_be_answered_from_the_past() {
    check_rows(&[
        ("a quorum read", "GET", POD, "", "ok", "ok"),
        ("a list", "GET", "/api/v1/pods?limit=5000", "", "ok", "ok"),
        ("a watch from a version", "GET", "/api/v1/pods?watch=true&resourceVersion=7", "", "ok", "ok"),
        ("a watch from version 10", "GET", "/api/v1/pods?watch=true&resourceVersion=10", "", "ok", "ok"),
        ("a read from any cache", "GET", "/api/v1/pods/a?resourceVersion=0", "", "stale", "stale"),
        ("a list from any cache", "GET", "/api/v1/pods?limit=1&resourceVersion=0", "", "stale", "stale"),
        ("a watch from any cache", "GET", "/api/v1/pods?resourceVersion=0&watch=true", "", "stale", "stale"),
    ]);
}

#[test]
fn a_deletion_names_one_object_and_its_identity_permit_or_not() {
    let uid = r#"{"gracePeriodSeconds":30,"preconditions":{"uid":"u"}}"#;
    check_rows(&[
        ("without a body", "DELETE", POD, "", "no identity", "no identity"),
        (
            "without preconditions",
            "DELETE",
            POD,
            r#"{"gracePeriodSeconds":30}"#,
            "no identity",
            "no identity",
        ),
        ("with an empty UID", "DELETE", POD, r#"{"preconditions":{"uid":""}}"#, "no identity", "no identity"),
        ("with a null UID", "DELETE", POD, r#"{"preconditions":{"uid":null}}"#, "no identity", "no identity"),
        (
            "with a version only",
            "DELETE",
            POD,
            r#"{"preconditions":{"resourceVersion":"7"}}"#,
            "no identity",
            "no identity",
        ),
        (
            "of a collection of pods",
            "DELETE",
            "/api/v1/namespaces/ns/pods",
            uid,
            "no identity",
            "no identity",
        ),
        ("of all pods", "DELETE", "/api/v1/pods", uid, "no identity", "no identity"),
        ("of a collection of nodes", "DELETE", "/api/v1/nodes", uid, "no identity", "no identity"),
        ("of a namespace", "DELETE", "/api/v1/namespaces/ns", uid, "no identity", "no identity"),
        ("of a Lease without identity", "DELETE", LEASE, "", "no identity", "no identity"),
        ("of a Lease with identity", "DELETE", LEASE, uid, "ok", "ok"),
        ("of something else with identity", "DELETE", BUDGET, uid, "ok", "ok"),
    ]);
}

#[test]
fn a_pod_is_deleted_at_once_only_with_a_permit() {
    let by_uid = r#"{"preconditions":{"uid":"u"}}"#;
    let bodies = [
        ("grace 0", r#"{"gracePeriodSeconds":0,"preconditions":{"uid":"u"}}"#),
        ("no grace", by_uid),
        ("grace null", r#"{"gracePeriodSeconds":null,"preconditions":{"uid":"u"}}"#),
        ("grace -1", r#"{"gracePeriodSeconds":-1,"preconditions":{"uid":"u"}}"#),
        (
            "grace 0 of a version",
            r#"{"gracePeriodSeconds":0,"preconditions":{"uid":"u","resourceVersion":"7"}}"#,
        ),
        (
            "grace 30 of any version: one that is called finished goes at once",
            r#"{"gracePeriodSeconds":30,"preconditions":{"uid":"u"}}"#,
        ),
        (
            "grace 30 of an empty version",
            r#"{"gracePeriodSeconds":30,"preconditions":{"uid":"u","resourceVersion":""}}"#,
        ),
    ];
    check_rows(&bodies.map(|(sentence, body)| (sentence, "DELETE", POD, body, "removes", "ok")));
    let in_query = "/api/v1/namespaces/ns/pods/a?gracePeriodSeconds=30";
    check_rows(&[("grace in a query that the body overrules", "DELETE", in_query, by_uid, "removes", "ok")]);
}

#[test]
fn a_pod_is_deleted_by_its_grace_only_in_words_that_are_understood() {
    let grace_1 = r#"{"gracePeriodSeconds":1,"preconditions":{"uid":"u","resourceVersion":"7"}}"#;
    let twice = r#"{"gracePeriodSeconds":30,"preconditions":{"uid":"u"},"gracePeriodSeconds":0}"#;
    let text = r#"{"gracePeriodSeconds":"30","preconditions":{"uid":"u"}}"#;
    check_rows(&[
        ("grace 1", "DELETE", POD, grace_1, "ok", "ok"),
        ("grace twice", "DELETE", POD, twice, "opaque", "opaque"),
        ("grace as a text", "DELETE", POD, text, "opaque", "opaque"),
    ]);
}

#[test]
fn an_eviction_has_a_grace_of_its_own() {
    check_rows(&[
        ("without a body", "POST", EVICTION, "", "removes", "ok"),
        ("without options", "POST", EVICTION, r#"{"kind":"Eviction"}"#, "removes", "ok"),
        (
            "with options that lack a grace",
            "POST",
            EVICTION,
            r#"{"deleteOptions":{"preconditions":{"uid":"u"}}}"#,
            "removes",
            "ok",
        ),
        ("with grace 0", "POST", EVICTION, r#"{"deleteOptions":{"gracePeriodSeconds":0}}"#, "removes", "ok"),
        ("with grace 1", "POST", EVICTION, r#"{"deleteOptions":{"gracePeriodSeconds":1}}"#, "ok", "ok"),
        (
            "with the grace in the wrong place",
            "POST",
            EVICTION,
            r#"{"gracePeriodSeconds":30}"#,
            "removes",
            "ok",
        ),
    ]);
}

#[test]
fn a_phase_is_written_only_with_a_permit() {
    check_rows(&[
        ("phase Failed", "PATCH", STATUS, r#"{"status":{"phase":"Failed"}}"#, "removes", "ok"),
        ("phase Running", "PATCH", STATUS, r#"{"status":{"phase":"Running"}}"#, "removes", "ok"),
        ("bug: phase removed by null", "PATCH", STATUS, r#"{"status":{"phase":null}}"#, "removes", "ok"),
        ("bug: status removed by null", "PATCH", STATUS, r#"{"status":null}"#, "removes", "ok"),
        (
            "bug: status replaced",
            "PATCH",
            STATUS,
            r#"{"status":{"$patch":"replace","conditions":[]}}"#,
            "removes",
            "ok",
        ),
        (
            "bug: other keys dropped",
            "PATCH",
            STATUS,
            r#"{"status":{"$retainKeys":["conditions"]}}"#,
            "removes",
            "ok",
        ),
        ("bug: the whole replaced", "PATCH", STATUS, r#"{"$patch":"replace","status":{}}"#, "removes", "ok"),
        ("bug: a PUT names no phase", "PUT", STATUS, r#"{"status":{"conditions":[]}}"#, "removes", "ok"),
        (
            "a status twice",
            "PATCH",
            STATUS,
            r#"{"status":{},"status":{"phase":"Failed"}}"#,
            "opaque",
            "opaque",
        ),
        (
            "conditions only",
            "PATCH",
            STATUS,
            r#"{"status":{"conditions":[{"type":"DisruptionTarget"}]}}"#,
            "ok",
            "ok",
        ),
        (
            "conditions in an order",
            "PATCH",
            STATUS,
            r#"{"status":{"$setElementOrder/conditions":[],"conditions":[]}}"#,
            "ok",
            "ok",
        ),
        ("a phase on another resource", "PATCH", BUDGET, r#"{"status":{"phase":"Failed"}}"#, "ok", "ok"),
    ]);
}

#[test]
fn a_finalizer_of_a_pod_is_touched_only_with_a_permit() {
    check_rows(&[
        ("finalizers emptied", "PATCH", POD, r#"{"metadata":{"finalizers":[]}}"#, "removes", "ok"),
        (
            "bug: finalizers removed by null",
            "PATCH",
            POD,
            r#"{"metadata":{"finalizers":null}}"#,
            "removes",
            "ok",
        ),
        (
            "bug: one finalizer removed",
            "PATCH",
            POD,
            r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["f"]}}"#,
            "removes",
            "ok",
        ),
        (
            "bug: metadata replaced",
            "PATCH",
            POD,
            r#"{"metadata":{"$patch":"replace","name":"a"}}"#,
            "removes",
            "ok",
        ),
        ("bug: metadata removed by null", "PATCH", POD, r#"{"metadata":null}"#, "removes", "ok"),
        ("bug: a PUT names no finalizers", "PUT", POD, r#"{"metadata":{"name":"a"}}"#, "removes", "ok"),
        ("an annotation", "PATCH", POD, r#"{"metadata":{"annotations":{"a":"b"}}}"#, "ok", "ok"),
        ("finalizers of something else", "PATCH", BUDGET, r#"{"metadata":{"finalizers":[]}}"#, "ok", "ok"),
    ]);
}

#[test]
fn a_node_and_an_attachment_are_deleted_only_with_a_permit() {
    let uid = r#"{"preconditions":{"uid":"u"}}"#;
    check_rows(&[
        ("a node", "DELETE", NODE, uid, "removes", "ok"),
        (
            "a node with a grace",
            "DELETE",
            NODE,
            r#"{"gracePeriodSeconds":30,"preconditions":{"uid":"u"}}"#,
            "removes",
            "ok",
        ),
        ("an attachment", "DELETE", ATTACHMENT, uid, "removes", "ok"),
    ]);
}

#[test]
fn a_node_is_declared_off_only_with_a_permit() {
    let off = r#"{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"}]}}"#;
    let beside = r#"{"spec":{"taints":[{"key":"a","effect":"NoSchedule"},{"key":"node.kubernetes.io/out-of-service","effect":"NoSchedule","value":"x"}]}}"#;
    let escaped = r#"{"spec":{"taints":[{"key":"node.kubernetes.io\/out-\u006ff-service"}]}}"#;
    let doubled = r#"{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service"}],"taints":[]}}"#;
    let ours = r#"{"spec":{"taints":[{"key":"node.kubernetes.io/unreachable","effect":"NoExecute","timeAdded":"2026-11-21T12:00:00Z","n":[1,-1,0.5,true,null]}]}}"#;
    check_rows(&[
        (
            "the taint as a key",
            "PATCH",
            NODE,
            r#"{"spec":{"node.kubernetes.io/out-of-service":1}}"#,
            "removes",
            "ok",
        ),
        (
            "the taint as a value",
            "PATCH",
            NODE,
            r#"{"spec":{"a":"node.kubernetes.io/out-of-service"}}"#,
            "removes",
            "ok",
        ),
        (
            "the taint before others",
            "PATCH",
            NODE,
            r#"{"spec":{"a":["node.kubernetes.io/out-of-service","b"],"c":1}}"#,
            "removes",
            "ok",
        ),
        ("the taint", "PATCH", NODE, off, "removes", "ok"),
        ("the taint beside others, with any effect and value", "PATCH", NODE, beside, "removes", "ok"),
        ("the taint in other letters", "PATCH", NODE, escaped, "removes", "ok"),
        ("the taint in a list that a second one overrules", "PATCH", NODE, doubled, "removes", "ok"),
        ("a new node with the taint", "POST", "/api/v1/nodes", off, "removes", "ok"),
        ("a node replaced", "PUT", NODE, r#"{"spec":{}}"#, "removes", "ok"),
        ("a node replaced by a directive", "PATCH", NODE, r#"{"$patch":"replace"}"#, "removes", "ok"),
        ("a status replaced", "PUT", NODE_STATUS, r#"{"status":{}}"#, "removes", "ok"),
        ("two specs", "PATCH", NODE, r#"{"spec":{},"spec":{"taints":[]}}"#, "opaque", "opaque"),
        ("no taints", "PATCH", NODE, r#"{"spec":{"taints":[]}}"#, "ok", "ok"),
        ("a taint of ours", "PATCH", NODE, ours, "ok", "ok"),
        ("a label", "PATCH", NODE, r#"{"metadata":{"labels":{"a":"b"}}}"#, "ok", "ok"),
        ("a cordon", "PATCH", NODE, r#"{"spec":{"unschedulable":true}}"#, "ok", "ok"),
        ("a condition", "PATCH", NODE_STATUS, r#"{"status":{"conditions":[{"type":"Ready"}]}}"#, "ok", "ok"),
    ]);
}

#[test]
fn what_cannot_be_looked_into_is_not_sent() {
    check_rows(&[
        (
            "a JSON patch",
            "PATCH",
            POD,
            r#"[{"op":"remove","path":"/metadata/finalizers"}]"#,
            "opaque",
            "opaque",
        ),
        ("an empty array", "PATCH", STATUS, "[]", "opaque", "opaque"),
        ("a text", "PATCH", STATUS, r#""x""#, "opaque", "opaque"),
        ("null", "PATCH", STATUS, "null", "opaque", "opaque"),
        ("half an object", "PATCH", STATUS, r#"{"status":{"#, "opaque", "opaque"),
        ("two objects", "PATCH", STATUS, r#"{}{"status":{"phase":"Failed"}}"#, "opaque", "opaque"),
        ("protobuf", "PATCH", STATUS, "k8s\0\n", "opaque", "opaque"),
        ("YAML, as apply takes it", "PATCH", STATUS, "status:\n  phase: Failed\n", "opaque", "opaque"),
        ("garbage on a Lease", "PATCH", LEASE, "]", "ok", "ok"),
        ("garbage as an Event", "POST", "/api/v1/namespaces/ns/events", "]", "ok", "ok"),
        (
            "bug: an escaped path",
            "DELETE",
            "/api/v1/namespaces/ns/%70ods/a",
            r#"{"gracePeriodSeconds":0,"preconditions":{"uid":"u"}}"#,
            "path",
            "path",
        ),
        (
            "bug: a path that walks up",
            "DELETE",
            "/api/v1/namespaces/ns/x/../pods/a",
            r#"{"preconditions":{"uid":"u"}}"#,
            "path",
            "path",
        ),
    ]);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_never_reaches_the_api_server() {
    let (env, _wall) = env();
    let api = silent(&env);
    let connection = api.connection();
    let force = serde_json::json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": "u" } });
    for call in [
        Call::write(Verb::Delete, POD, &force),
        Call::write(Verb::Patch, STATUS, &serde_json::json!({ "status": { "phase": "Failed" } })),
        Call::write(Verb::Post, EVICTION, &serde_json::json!({})),
        Call::get("/api/v1/pods?resourceVersion=0"),
    ] {
        let error = connection.send(call).await.unwrap_err();
        assert!(matches!(error, ApiError::Guard(_)), "{error:?}");
        assert!(!error.outcome_unknown(), "nothing was sent, so nothing was changed");
    }
    let watch = connection.watch(Call::get("/api/v1/pods?watch=true&resourceVersion=0")).await.unwrap_err();
    let list = connection.list(Call::get("/api/v1/pods?resourceVersion=0")).await.unwrap_err();
    assert_eq!((watch.category(), list.category()), ("guard", "guard"));
    assert!(api.heard().is_empty());
}

#[test]
fn a_refusal_says_what_was_refused_and_why() {
    let request = Request::builder().method("DELETE").uri(POD).body(Body::empty()).unwrap();
    let text = check(&request).unwrap_err().to_string();
    assert_eq!(
        text,
        format!(
            "refused to send DELETE {POD}: a deletion must name one object and carry its UID as a precondition"
        )
    );
}

/// A service that takes requests only when it says so.
struct Busy(Option<&'static str>);

impl Service<Request<Body>> for Busy {
    type Response = ();
    type Error = BoxError;
    type Future = futures::future::Ready<Result<(), BoxError>>;
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.map_or(Poll::Pending, |error| Poll::Ready(Err(error.into())))
    }
    fn call(&mut self, _: Request<Body>) -> Self::Future {
        futures::future::ready(Ok(()))
    }
}

#[test]
fn the_guard_takes_requests_when_what_is_below_it_does() {
    let mut context = Context::from_waker(std::task::Waker::noop());
    assert!(GuardLayer.layer(Busy(None)).poll_ready(&mut context).is_pending());
    let Poll::Ready(Err(error)) = GuardLayer.layer(Busy(Some("closed"))).poll_ready(&mut context) else {
        panic!("it is closed");
    };
    assert_eq!(error.to_string(), "closed");
}
