//! Which requests the guard sends, without and with a permit.

use super::*;

/// The result of `check` for one request: `ok`, or a short name of the refusal.
fn verdict(method: &str, uri: &str, body: &str, permitted: bool) -> &'static str {
    let (path, query) = uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)));
    let permit = permitted.then(|| Permit::for_guard_tests(uri, "u", "7"));
    match check(method, path, query, Some(body.as_bytes()), permit.as_ref()).map_err(|refusal| refusal.why) {
        Ok(()) => "ok",
        Err(Forbidden::RemovesPod) => "removes",
        Err(Forbidden::NotPermitted) => "not permitted",
        Err(Forbidden::NoIdentity) => "no identity",
        Err(Forbidden::StaleRead) => "stale",
        Err(Forbidden::OpaquePath) => "path",
        Err(Forbidden::OpaqueBody) => "opaque",
    }
}

fn check_row(what: &str, method: &str, uri: &str, body: &str, without: &str, with: &str) {
    assert_eq!(verdict(method, uri, body, false), without, "{what}, without a permit");
    assert_eq!(verdict(method, uri, body, true), with, "{what}, with a permit");
}

/// Rows of `what it is | method and path | body | result`; where a permit changes the result: `without, with`.
fn check_rows(rows: &str) {
    for row in rows.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let [what, line, body, verdict] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let (method, path) = line.split_once(' ').unwrap();
        let path = PATHS.iter().find(|(name, _)| *name == path).map_or(path, |(_, path)| path);
        let (without, with) = verdict.split_once(", ").unwrap_or((verdict, verdict));
        check_row(what, method, path, body, without, with);
    }
}

/// The names of paths in rows.
const PATHS: [(&str, &str); 9] = [
    ("POD", POD),
    ("STATUS", STATUS),
    ("EVICTION", EVICTION),
    ("NODE", NODE),
    ("NODE_STATUS", NODE_STATUS),
    ("ATTACHMENT", ATTACHMENT),
    ("LEASE", LEASE),
    ("BUDGET", BUDGET),
    ("HELD", HELD),
];

const POD: &str = "/api/v1/namespaces/ns/pods/a";
const STATUS: &str = "/api/v1/namespaces/ns/pods/a/status";
const EVICTION: &str = "/api/v1/namespaces/ns/pods/a/eviction";
const NODE: &str = "/api/v1/nodes/n";
const NODE_STATUS: &str = "/api/v1/nodes/n/status";
const ATTACHMENT: &str = "/apis/storage.k8s.io/v1/volumeattachments/v";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l";
const HELD: &str = "/apis/coordination.k8s.io/v1/namespaces/pod-safety-volumes/leases/v";
const BUDGET: &str = "/apis/policy/v1/namespaces/ns/poddisruptionbudgets/b";

#[test]
fn reads_pass_unless_a_stale_cache_may_answer_them() {
    check_rows(
        r#"
        a quorum read | GET POD |  | ok
        a list | GET /api/v1/pods?limit=5000 |  | ok
        a watch from a version | GET /api/v1/pods?watch=true&resourceVersion=7 |  | ok
        a watch from version 10 | GET /api/v1/pods?watch=true&resourceVersion=10 |  | ok
        a read from any cache | GET /api/v1/pods/a?resourceVersion=0 |  | stale
        a list from any cache | GET /api/v1/pods?limit=1&resourceVersion=0 |  | stale
        a watch from any cache | GET /api/v1/pods?resourceVersion=0&watch=true |  | stale
        a path that walks up | GET /api/v1/namespaces/x/../pods |  | path
        an escaped path | GET /api/v1/namespaces/ns/%73ecrets/s |  | path
        an empty part | GET /api/v1/namespaces//secrets/s |  | path
        "#,
    );
}

#[test]
fn a_deletion_must_name_one_object_and_its_uid_even_with_a_permit() {
    check_rows(
        r#"
        without a body | DELETE POD |  | no identity
        without preconditions | DELETE POD | {"gracePeriodSeconds":30} | no identity
        with an empty UID | DELETE POD | {"preconditions":{"uid":""}} | no identity
        with a null UID | DELETE POD | {"preconditions":{"uid":null}} | no identity
        with a version only | DELETE POD | {"preconditions":{"resourceVersion":"7"}} | no identity
        of a collection of pods | DELETE /api/v1/namespaces/ns/pods | {"preconditions":{"uid":"u"}} | no identity
        of all pods | DELETE /api/v1/pods | {"preconditions":{"uid":"u"}} | no identity
        of a collection of nodes | DELETE /api/v1/nodes | {"preconditions":{"uid":"u"}} | no identity
        of a namespace | DELETE /api/v1/namespaces/ns | {"preconditions":{"uid":"u"}} | no identity
        of a Lease without identity | DELETE LEASE |  | no identity
        of a Lease with identity | DELETE LEASE | {"preconditions":{"uid":"u"}} | ok
        of something else with identity | DELETE BUDGET | {"preconditions":{"uid":"u"}} | ok
        "#,
    );
}

#[test]
fn a_pod_is_deleted_at_once_only_with_a_permit() {
    check_rows(
        r#"
        grace 0 | DELETE POD | {"gracePeriodSeconds":0,"preconditions":{"uid":"u"}} | removes, not permitted
        no grace | DELETE POD | {"preconditions":{"uid":"u"}} | removes, not permitted
        grace null | DELETE POD | {"gracePeriodSeconds":null,"preconditions":{"uid":"u"}} | removes, not permitted
        grace -1 | DELETE POD | {"gracePeriodSeconds":-1,"preconditions":{"uid":"u"}} | removes, not permitted
        grace 0 of a version | DELETE POD | {"gracePeriodSeconds":0,"preconditions":{"uid":"u","resourceVersion":"7"}} | removes, ok
        no grace, of a version | DELETE POD | {"preconditions":{"uid":"u","resourceVersion":"7"}} | removes, ok
        grace null, of a version | DELETE POD | {"gracePeriodSeconds":null,"preconditions":{"uid":"u","resourceVersion":"7"}} | removes, ok
        grace 30 of any version: one that is called finished goes at once | DELETE POD | {"gracePeriodSeconds":30,"preconditions":{"uid":"u"}} | removes, not permitted
        grace 30 of an empty version | DELETE POD | {"gracePeriodSeconds":30,"preconditions":{"uid":"u","resourceVersion":""}} | removes, not permitted
        grace in a query that the body overrules | DELETE /api/v1/namespaces/ns/pods/a?gracePeriodSeconds=30 | {"preconditions":{"uid":"u"}} | removes, not permitted
        "#,
    );
}

#[test]
fn a_graceful_pod_deletion_is_refused_if_its_body_is_ambiguous() {
    check_rows(
        r#"
        grace 1 | DELETE POD | {"gracePeriodSeconds":1,"preconditions":{"uid":"u","resourceVersion":"7"}} | ok
        grace twice | DELETE POD | {"gracePeriodSeconds":30,"preconditions":{"uid":"u"},"gracePeriodSeconds":0} | opaque
        bug: an identity that is not named | DELETE POD | {"gracePeriodSeconds":30,"preconditions":["u","7"]} | opaque
        grace as a text | DELETE POD | {"gracePeriodSeconds":"30","preconditions":{"uid":"u"}} | opaque
        "#,
    );
}

#[test]
fn an_eviction_without_its_own_grace_period_needs_a_permit() {
    check_rows(
        r#"
        without a body | POST EVICTION |  | removes, not permitted
        without options | POST EVICTION | {"kind":"Eviction"} | removes, not permitted
        with options that lack a grace | POST EVICTION | {"deleteOptions":{"preconditions":{"uid":"u"}}} | removes, not permitted
        with grace 0 | POST EVICTION | {"deleteOptions":{"gracePeriodSeconds":0}} | removes, not permitted
        with grace 1 | POST EVICTION | {"deleteOptions":{"gracePeriodSeconds":1}} | ok
        with the grace in the wrong place | POST EVICTION | {"gracePeriodSeconds":30} | removes, not permitted
        "#,
    );
}

#[test]
fn a_phase_is_written_only_with_a_permit() {
    check_rows(
        r#"
        phase Failed | PATCH STATUS | {"status":{"phase":"Failed"}} | removes, not permitted
        phase Running | PATCH STATUS | {"status":{"phase":"Running"}} | removes, not permitted
        bug: phase removed by null | PATCH STATUS | {"status":{"phase":null}} | removes, not permitted
        bug: status removed by null | PATCH STATUS | {"status":null} | removes, not permitted
        bug: status replaced | PATCH STATUS | {"status":{"$patch":"replace","conditions":[]}} | removes, not permitted
        bug: other keys dropped | PATCH STATUS | {"status":{"$retainKeys":["conditions"]}} | removes, not permitted
        bug: the whole replaced | PATCH STATUS | {"$patch":"replace","status":{}} | removes, not permitted
        bug: a PUT names no phase | PUT STATUS | {"status":{"conditions":[]}} | removes, not permitted
        a status twice | PATCH STATUS | {"status":{},"status":{"phase":"Failed"}} | opaque
        conditions only | PATCH STATUS | {"status":{"conditions":[{"type":"DisruptionTarget"}]}} | ok
        conditions in an order | PATCH STATUS | {"status":{"$setElementOrder/conditions":[],"conditions":[]}} | ok
        a phase on another resource | PATCH BUDGET | {"status":{"phase":"Failed"}} | ok
        "#,
    );
}

#[test]
fn finalizers_are_written_only_with_a_permit() {
    check_rows(
        r#"
        finalizers emptied | PATCH POD | {"metadata":{"finalizers":[]}} | removes, not permitted
        bug: finalizers removed by null | PATCH POD | {"metadata":{"finalizers":null}} | removes, not permitted
        bug: one finalizer removed | PATCH POD | {"metadata":{"$deleteFromPrimitiveList/finalizers":["f"]}} | removes, not permitted
        bug: metadata replaced | PATCH POD | {"metadata":{"$patch":"replace","name":"a"}} | removes, not permitted
        bug: metadata removed by null | PATCH POD | {"metadata":null} | removes, not permitted
        bug: a PUT names no finalizers | PUT POD | {"metadata":{"name":"a"}} | removes, not permitted
        an annotation | PATCH POD | {"metadata":{"annotations":{"a":"b"}}} | ok
        bug: by the status, from which the API server takes them as well | PATCH STATUS | {"metadata":{"finalizers":null}} | removes, not permitted
        bug: of a node | PATCH NODE | {"metadata":{"finalizers":[]}} | removes, not permitted
        bug: of a node by its status | PATCH NODE_STATUS | {"metadata":{"finalizers":[]}} | removes, not permitted
        bug: of an attachment | PATCH ATTACHMENT | {"metadata":{"finalizers":[]}} | removes, not permitted
        finalizers of something else | PATCH BUDGET | {"metadata":{"finalizers":[]}} | ok
        "#,
    );
}

#[test]
fn a_node_and_an_attachment_are_deleted_only_with_a_permit() {
    check_rows(
        r#"
        a node | DELETE NODE | {"preconditions":{"uid":"u"}} | removes, not permitted
        a node with a grace | DELETE NODE | {"gracePeriodSeconds":30,"preconditions":{"uid":"u"}} | removes, not permitted
        an attachment | DELETE ATTACHMENT | {"preconditions":{"uid":"u"}} | removes, not permitted
        "#,
    );
}

#[test]
fn an_out_of_service_taint_is_added_only_with_a_permit() {
    check_rows(
        r#"
        the taint as a key | PATCH NODE | {"spec":{"node.kubernetes.io/out-of-service":1}} | removes, not permitted
        the taint as a value | PATCH NODE | {"spec":{"a":"node.kubernetes.io/out-of-service"}} | removes, not permitted
        the taint before others | PATCH NODE | {"spec":{"a":["node.kubernetes.io/out-of-service","b"],"c":1}} | removes, not permitted
        the taint | PATCH NODE | {"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"}]}} | removes, not permitted
        the taint beside others, with any effect and value | PATCH NODE | {"spec":{"taints":[{"key":"a","effect":"NoSchedule"},{"key":"node.kubernetes.io/out-of-service","effect":"NoSchedule","value":"x"}]}} | removes, not permitted
        the taint in other letters | PATCH NODE | {"spec":{"taints":[{"key":"node.kubernetes.io\/out-\u006ff-service"}]}} | removes, not permitted
        the taint in a list that a second one overrules | PATCH NODE | {"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service"}],"taints":[]}} | removes, not permitted
        a new node with the taint | POST /api/v1/nodes | {"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"}]}} | removes, not permitted
        a node replaced | PUT NODE | {"spec":{}} | removes, not permitted
        a node replaced by a directive | PATCH NODE | {"$patch":"replace"} | removes, not permitted
        a status replaced | PUT NODE_STATUS | {"status":{}} | removes, not permitted
        two specs | PATCH NODE | {"spec":{},"spec":{"taints":[]}} | opaque
        no taints | PATCH NODE | {"spec":{"taints":[]}} | ok
        a taint of ours | PATCH NODE | {"spec":{"taints":[{"key":"node.kubernetes.io/unreachable","effect":"NoExecute","timeAdded":"2026-11-21T12:00:00Z","n":[1,-1,0.5,true,null]}]}} | ok
        a label | PATCH NODE | {"metadata":{"labels":{"a":"b"}}} | ok
        a cordon | PATCH NODE | {"spec":{"unschedulable":true}} | ok
        a condition | PATCH NODE_STATUS | {"status":{"conditions":[{"type":"Ready"}]}} | ok
        "#,
    );
}

#[test]
fn a_permit_is_valid_for_one_object_at_one_version_only() {
    let exact = [
        ("DELETE", POD, r#"{"gracePeriodSeconds":0,"preconditions":{"uid":"@uid","resourceVersion":"@version"}}"#),
        ("PATCH", STATUS, r#"{"metadata":{"uid":"@uid","resourceVersion":"@version"},"status":{"phase":"Failed"}}"#),
        (
            "PATCH",
            NODE,
            r#"{"metadata":{"uid":"@uid","resourceVersion":"@version"},"spec":{"a":"node.kubernetes.io/out-of-service"}}"#,
        ),
    ];
    for (method, path, body) in exact {
        for (what, uid, version, verdict) in [
            ("its own", "u", "7", "ok"),
            ("another object of the same name", "v", "7", "not permitted"),
            ("another version", "u", "8", "not permitted"),
            ("no version", "u", "", "not permitted"),
        ] {
            let body = body.replace("@uid", uid).replace("@version", version);
            check_row(&format!("{method}, {what}"), method, path, &body, "removes", verdict);
        }
        // The API server reads `preconditions` only of deletions, and `metadata` only of other writes.
        let misplaced = match method {
            "DELETE" => body.replace("preconditions", "metadata"),
            _ => body.replace("metadata", "preconditions"),
        };
        let misplaced = misplaced.replace("@uid", "u").replace("@version", "7");
        assert_ne!(verdict(method, path, &misplaced, true), "ok", "{method} {misplaced}");
        for (permit, of) in [("/api/v1/namespaces/ns/pods/b", "u"), (path, "")] {
            let body = body.replace("@uid", of).replace("@version", "7");
            let given = Permit::for_guard_tests(permit, of, "7");
            let judged = check(method, path, None, Some(body.as_bytes()), Some(&given));
            assert!(judged.is_err(), "{method} {path} with a permit for {permit} {of:?}");
        }
    }
}

#[test]
fn a_body_or_path_that_cannot_be_parsed_is_refused() {
    check_rows(
        r#"
        a JSON patch | PATCH POD | [{"op":"remove","path":"/metadata/finalizers"}] | opaque
        an empty array | PATCH STATUS | [] | opaque
        a text | PATCH STATUS | "x" | opaque
        null | PATCH STATUS | null | opaque
        half an object | PATCH STATUS | {"status":{ | opaque
        two objects | PATCH STATUS | {}{"status":{"phase":"Failed"}} | opaque
        garbage on a Lease | PATCH LEASE | ] | ok
        garbage on the Lease of a volume | PATCH HELD | ] | opaque
        garbage as an Event | POST /api/v1/namespaces/ns/events | ] | ok
        bug: an escaped path | DELETE /api/v1/namespaces/ns/%70ods/a | {"gracePeriodSeconds":0,"preconditions":{"uid":"u"}} | path
        bug: an empty namespace, behind which the pod was taken for a namespace | PATCH /api/v1/namespaces//pods/a/status | {"status":{"phase":"Failed"}} | path
        a path with a slash at its end | PATCH /api/v1/namespaces/ns/pods/a/ | {"metadata":{"finalizers":[]}} | path
        bug: a path that walks up | DELETE /api/v1/namespaces/ns/x/../pods/a | {"preconditions":{"uid":"u"}} | path
        "#,
    );
    check_row("protobuf", "PATCH", STATUS, "k8s\0\n", "opaque", "opaque");
    check_row("YAML, as apply takes it", "PATCH", STATUS, "status:\n  phase: Failed\n", "opaque", "opaque");
}

#[test]
fn a_guard_refusal_names_the_request_and_the_reason() {
    let text = check("DELETE", POD, None, Some(b""), None).unwrap_err().to_string();
    assert_eq!(
        text,
        format!("refused to send DELETE {POD}: a deletion must name one object and carry its UID as a precondition")
    );
}

#[test]
fn the_holder_of_a_volume_lease_is_revoked_only_with_a_permit() {
    check_rows(
        r#"
        a break | PATCH HELD | {"metadata":{"uid":"u","resourceVersion":"7"},"spec":{"holderIdentity":null,"leaseTransitions":2}} | removes, ok
        a break at another version | PATCH HELD | {"metadata":{"uid":"u","resourceVersion":"8"},"spec":{"holderIdentity":null,"leaseTransitions":2}} | removes, not permitted
        a break in doubled keys | PATCH HELD | {"metadata":{"uid":"u","resourceVersion":"7"},"spec":{"holderIdentity":"n","holderIdentity":null,"leaseTransitions":2}} | removes, ok
        a release by the kubelet's report | PATCH HELD | {"spec":{"holderIdentity":null,"renewTime":"x"}} | ok
        a break for the next holder | PATCH HELD | {"metadata":{"uid":"u","resourceVersion":"7"},"spec":{"holderIdentity":"n","leaseTransitions":2}} | removes, ok
        a Lease in place of it | PUT HELD | {"metadata":{"uid":"u","resourceVersion":"7"},"spec":{}} | removes, ok
        another holder | PATCH HELD | {"spec":{"holderIdentity":"n"}} | ok
        another Lease | PATCH LEASE | {"spec":{"holderIdentity":null,"leaseTransitions":2}} | ok
        "#,
    );
}
