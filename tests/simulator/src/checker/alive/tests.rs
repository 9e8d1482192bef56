//! Histories that break S18 and S19 although each of their requests is permitted by itself.

use std::sync::Arc;

use http::Method;
use pod_safety_shared::transport::{Identity, Power};
use serde_json::{Value, json};

use crate::api::ApiRequest;
use crate::checker::tests::{ME, POD, broken, change, patch, phase, pod, seconds};
use crate::checker::{Answered, Checker, Invariant, Touched};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-0";
const NODE: &str = "/api/v1/nodes/node-0";

/// A read by a process under test.
fn reads(checker: &Checker, path: &str, code: u16) {
    checker.executed(&ApiRequest::new(ME, Method::GET, path), code, &[]);
}

/// A process under test sets the pod's phase to a terminal one.
fn releases(checker: &Checker) {
    let asked = ApiRequest { body: patch().to_string().into(), ..ApiRequest::new(ME, Method::PATCH, POD) };
    let ended = change("Pod", "default/data-0", Some(pod()), Some(phase(pod(), "Failed")));
    checker.executed(&asked, 200, &[ended]);
}

/// The Node of a machine on which a process runs is deleted; its kubelet reports for `speaks_for` seconds.
fn node_gone(speaks_for: u64) -> Vec<Invariant> {
    broken(async move |checker| {
        checker.process_starts("default/data-0", "u1", &"node-0".into(), 1);
        let person = ApiRequest::new("person", Method::DELETE, NODE);
        checker.executed(&person, 200, &[change("Node", "node-0", Some(json!({})), None)]);
        for second in 0..=40 {
            if second % 10 == 5 && second <= speaks_for {
                checker.executed(&ApiRequest::new("node-0", Method::PATCH, LEASE), 404, &[]);
            }
            if second % 40 == 0 {
                reads(checker, NODE, 404);
                reads(checker, LEASE, 404);
            }
            if second < 40 {
                seconds(1).await;
            }
        }
        releases(checker);
    })
}

#[test]
fn s18_a_kubelet_that_reports_without_its_node_counts_as_reporting() {
    assert_eq!(node_gone(40), [Invariant::Connected]);
    assert_eq!(node_gone(20), [], "nobody could hear it: a limit");
}

fn renews(checker: &Checker, at: &str) {
    let lease = json!({ "spec": { "renewTime": format!("2026-11-21T00:00:{at}Z") } });
    let kubelet = ApiRequest::new("node-0", Method::PATCH, LEASE);
    checker.executed(&kubelet, 200, &[change("Lease", "kube-node-lease/node-0", None, Some(lease))]);
}

fn report_off(checker: &Checker) {
    let touched = Touched { caller: ME.to_owned(), device: "bmc-0".to_owned(), node: "node-0".to_owned() };
    let (power, identity) = (Power::Off, Identity::Unknown);
    checker.record_answer(&touched, &Answered { power, identity, is_on: true, reached: false, documented: false });
}

/// A device reports off for another machine, and the kubelet renews before all status checks and `renewed_after`
/// seconds after the release.
async fn wrong_device(checker: &Arc<Checker>, renewed_after: u64) {
    checker.process_starts("default/data-0", "u1", &"node-0".into(), 1);
    let life = json!({ "name": "node-0", "uid": "n1", "bootID": "b" });
    let node: Value = json!({ "metadata": { "name": "node-0", "uid": "n1" },
        "status": { "nodeInfo": { "bootID": "b" }, "conditions": [{ "type": "Ready", "status": "False" }] } });
    let kubelet = ApiRequest::new("node-0", Method::POST, "/api/v1/nodes");
    checker.executed(&kubelet, 201, &[change("Node", "node-0", None, Some(node))]);
    renews(checker, "10");
    report_off(checker);
    seconds(5).await;
    report_off(checker);
    reads(checker, LEASE, 200);
    let evidence = json!({ "metadata": { "name": "e" }, "spec": { "kind": "PowerOff", "node": life,
        "samples": [{ "device": { "name": "bmc-0" } }], "leaseRenewed": "2026-11-21T00:00:10Z" } });
    let proves = ApiRequest::new(ME, Method::POST, "/apis/pod-safety.dev/v1/fenceevidences");
    checker.executed(&proves, 201, &[change("FenceEvidence", "e", None, Some(evidence))]);
    report_off(checker);
    reads(checker, LEASE, 200);
    releases(checker);
    seconds(renewed_after).await;
    renews(checker, "20");
}

#[test]
fn s19_a_kubelet_that_renews_before_and_after_was_never_unreachable() {
    let renewed_after = |wait| broken(async move |checker| wrong_device(checker, wait).await);
    assert_eq!(renewed_after(5), [Invariant::Renewing; 2], "the evidence, and the release");
    assert_eq!(renewed_after(40), [], "it was cut off: a lie that nobody could see");
}
