//! Histories that break S9, when a write is sent and when it is applied.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::*;
use crate::checker::tests::{ME, broken, change, seconds};

const OTHER: &str = "replica-1.1";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/pod-safety";
const NODE: &str = "/api/v1/nodes/node-0";

/// A write of the Lease is sent and answered.
fn lease(checker: &Arc<Checker>, caller: &str, holder: &Value) {
    let body = json!({ "spec": { "holderIdentity": holder } }).to_string();
    let sent = checker.now();
    drop(checker.sent(caller, &Method::PATCH, LEASE, body.as_bytes()));
    checker.renewed(caller, &Method::PATCH, LEASE, body.as_bytes(), sent, 200);
}

fn leads(checker: &Arc<Checker>, caller: &str) {
    lease(checker, caller, &json!(caller));
}

fn node(version: &str) -> Value {
    json!({ "metadata": { "name": "node-0", "uid": "n1", "resourceVersion": version } })
}

fn sends(checker: &Arc<Checker>, caller: &str, version: &str) {
    drop(checker.sent(caller, &Method::PATCH, NODE, node(version).to_string().as_bytes()));
}

/// The API server applies a write with one resourceVersion to an object with another.
fn applies(checker: &Checker, named: &str, there: &str) {
    let asked = ApiRequest { body: node(named).to_string().into(), ..ApiRequest::new(ME, Method::PATCH, NODE) };
    checker.executed(&asked, 200, &[change("Node", "node-0", Some(node(there)), Some(node("9")))]);
}

#[test]
fn a_term_lasts_from_when_its_renewal_was_sent_and_no_longer() {
    let after = |wait: u64| {
        broken(async move |checker| {
            leads(checker, ME);
            seconds(wait).await;
            sends(checker, ME, "1");
        })
    };
    assert_eq!(after(9), []);
    assert_eq!(after(10), [Invariant::Term]);
}

/// The write counted as a renewal: the process that released the Lease could write for another ten seconds.
#[test]
fn bug_releasing_the_lease_ends_the_term_and_renews_nothing() {
    let violations = broken(async |checker| {
        leads(checker, ME);
        sends(checker, ME, "1");
        lease(checker, ME, &Value::Null);
        sends(checker, ME, "1");
    });
    assert_eq!(violations, [Invariant::Term]);
}

#[test]
fn the_lease_is_not_released_while_a_write_is_under_way() {
    let violations = broken(async |checker| {
        leads(checker, ME);
        let under_way = checker.sent(ME, &Method::PATCH, NODE, node("1").to_string().as_bytes());
        lease(checker, ME, &Value::Null);
        drop(under_way);
    });
    assert_eq!(violations, [Invariant::Term]);
}

#[test]
fn each_write_of_a_leader_is_checked_against_other_terms() {
    for path in
        [NODE, "/apis/policy/v1/namespaces/d/poddisruptionbudgets/b/status", "/apis/pod-safety.dev/v1/nodefences"]
    {
        let violations = broken(async |checker| {
            leads(checker, OTHER);
            leads(checker, ME);
            drop(checker.sent(ME, &Method::PATCH, path, b"{}"));
        });
        assert_eq!(violations, [Invariant::Term], "{path}");
    }
}

#[test]
fn a_late_write_carries_the_version_that_its_sender_read() {
    let late = |sent: &'static str, named: &'static str, there: &'static str, wait: u64| {
        broken(async move |checker| {
            leads(checker, ME);
            sends(checker, ME, sent);
            seconds(wait).await;
            applies(checker, named, there);
        })
    };
    assert_eq!(late("1", "1", "1", 30), [], "the network was slow");
    assert_eq!(late("1", "2", "2", 30), [Invariant::Term], "sent anew from beneath");
    assert_eq!(late("1", "1", "2", 30), [Invariant::Term], "no compare-and-swap");
    assert_eq!(late("1", "2", "2", 3), [], "within the term that is for S12 and S4 to judge");
    let other = broken(async |checker| {
        leads(checker, ME);
        leads(checker, OTHER);
        applies(checker, "1", "1");
    });
    assert_eq!(other, [Invariant::Term], "its own term lasts, and another's began");
}

#[test]
fn a_late_creation_is_protected_by_its_name() {
    let late = |metadata: Value| {
        broken(async move |checker| {
            let (path, body) = ("/apis/pod-safety.dev/v1/nodefences", json!({ "metadata": metadata }).to_string());
            leads(checker, ME);
            drop(checker.sent(ME, &Method::POST, path, body.as_bytes()));
            seconds(30).await;
            let asked = ApiRequest { body: body.into(), ..ApiRequest::new(ME, Method::POST, path) };
            checker.executed(&asked, 201, &[change("NodeFence", "f", None, Some(json!({})))]);
        })
    };
    assert_eq!(late(json!({ "name": "f" })), []);
    assert_eq!(late(json!({ "generateName": "f-" })), [Invariant::Term]);
}

#[test]
fn a_term_ends_by_the_clock_of_its_process() {
    let violations = broken(async |checker| {
        let body = json!({ "spec": { "holderIdentity": ME } }).to_string();
        checker.renewed(ME, &Method::PATCH, LEASE, body.as_bytes(), Duration::ZERO, 409);
        sends(checker, ME, "1");
    });
    assert_eq!(violations, [Invariant::Term], "what was refused renews nothing");
}
