//! Changes of nodes that no controller here makes, recorded in the checker as if one had.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::super::tests::{self, ME, change};
use super::super::{Checker, Invariant};
use super::KNOWN;
use crate::api::ApiRequest;
use crate::campaign::Keeper;
use crate::world::stamp;

const NODE: &str = "node-0";
const OTHER: &str = "node-1";

/// Two nodes that reported at the beginning; one of them goes on to report.
fn broken(keeper: Keeper, history: impl AsyncFnOnce(&Arc<Checker>)) -> Vec<Invariant> {
    tests::broken(async |checker| {
        checker.nodes_are_kept_by(keeper);
        checker.process_begins(ME);
        let lease = json!({ "metadata": { "name": "pod-safety" }, "spec": { "holderIdentity": ME } });
        changed(checker, ME, "Lease", "kube-system/pod-safety", None, lease);
        for name in [NODE, OTHER] {
            changed(checker, name, "Node", name, None, node("True", &[]));
            renews(checker, name);
        }
        history(checker).await;
    })
}

/// Time passes, and the other node reports.
async fn seconds(checker: &Checker, seconds: u64) {
    for _ in 0..seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        renews(checker, OTHER);
        checker.check_nodes();
    }
}

fn node(ready: &str, taints: &[(&str, &str, u64)]) -> Value {
    let taint = |(key, effect, added): &(&str, &str, u64)| json!({ "key": key, "effect": effect, "timeAdded": stamp(Duration::from_secs(*added)) });
    let taints: Vec<Value> = taints.iter().map(taint).collect();
    json!({ "metadata": { "uid": "u" }, "spec": { "taints": taints },
        "status": { "conditions": [{ "type": "Ready", "status": ready }] } })
}

fn changed(checker: &Checker, caller: &str, kind: &str, name: &str, before: Option<Value>, after: Value) {
    checker.executed(&ApiRequest::new(caller, Method::POST, "/"), 201, &[change(kind, name, before, Some(after))]);
}

fn renews(checker: &Checker, name: &str) {
    let lease = json!({ "metadata": { "uid": name }, "spec": { "renewTime": format!("{:?}", checker.now()) } });
    changed(checker, name, "Lease", &format!("kube-node-lease/{name}"), None, lease);
}

fn writes(checker: &Checker, ready: &str, taints: &[(&str, &str, u64)]) {
    changed(checker, ME, "Node", NODE, None, node(ready, taints));
}

fn reads(checker: &Checker) {
    for path in ["/api/v1/nodes/node-0", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-0"] {
        checker.executed(&ApiRequest::new(ME, Method::GET, path), 200, &[]);
    }
}

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const KEPT_AWAY: (&str, &str, u64) = (UNREACHABLE, "NoSchedule", 51);
const GIVEN_UP: (&str, &str, u64) = (UNREACHABLE, "NoExecute", 51);

/// The node stops reporting, is marked as lost in time, and all that follows is done.
async fn node_is_lost(checker: &Checker) {
    seconds(checker, 51).await;
    reads(checker);
    writes(checker, "Unknown", &[]);
    writes(checker, "Unknown", &[KEPT_AWAY, GIVEN_UP]);
}

#[test]
fn a_lost_node_is_marked_and_remains_marked() {
    let well = async |checker: &Arc<Checker>| {
        node_is_lost(checker).await;
        seconds(checker, 300).await;
        renews(checker, NODE);
        changed(checker, NODE, "Node", NODE, None, node("True", &[KEPT_AWAY, GIVEN_UP]));
        writes(checker, "True", &[]);
        seconds(checker, 30).await;
    };
    assert_eq!(broken(Keeper::Ours, well), []);
}

#[test]
fn s15_a_reporting_node_is_not_marked_lost() {
    let early = async |checker: &Arc<Checker>| {
        seconds(checker, 49).await;
        reads(checker);
        writes(checker, "Unknown", &[KEPT_AWAY]);
    };
    assert_eq!(broken(Keeper::Ours, early), [Invariant::Heard]);
    let unread = async |checker: &Arc<Checker>| {
        seconds(checker, 51).await;
        writes(checker, "Unknown", &[KEPT_AWAY]);
    };
    assert_eq!(broken(Keeper::Ours, unread), [Invariant::Heard]);
    let heard_since_the_read = async |checker: &Arc<Checker>| {
        seconds(checker, 51).await;
        reads(checker);
        renews(checker, NODE);
        writes(checker, "Unknown", &[KEPT_AWAY]);
    };
    assert_eq!(broken(Keeper::Ours, heard_since_the_read), [], "nobody could know");
    let tainted = async |checker: &Arc<Checker>| writes(checker, "True", &[KEPT_AWAY]);
    assert_eq!(broken(Keeper::Ours, tainted), [Invariant::Heard]);
    let suspected = async |checker: &Arc<Checker>| {
        seconds(checker, 20).await;
        writes(checker, "True", &[("pod-safety.dev/suspect", "NoSchedule", 20)]);
    };
    assert_eq!(broken(Keeper::Guarded, suspected), [Invariant::Heard]);
    let reported = async |checker: &Arc<Checker>, before: Duration| {
        seconds(checker, 26).await;
        renews(checker, NODE);
        let sent = Some(checker.now() + before);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let suspected = node("True", &[("pod-safety.dev/suspect", "NoSchedule", 26)]);
        let asked = ApiRequest { sent, ..ApiRequest::new(ME, Method::POST, "/") };
        checker.executed(&asked, 200, &[change("Node", NODE, None, Some(suspected))]);
    };
    let under_way = async |checker: &Arc<Checker>| reported(checker, Duration::ZERO).await;
    assert_eq!(broken(Keeper::Guarded, under_way), [], "the write was under way when it was heard");
    let before = async |checker: &Arc<Checker>| reported(checker, KNOWN).await;
    assert_eq!(broken(Keeper::Guarded, before), [Invariant::Heard]);
}

#[test]
fn s15_an_api_server_outage_marks_no_node_lost() {
    let outage = async |checker: &Arc<Checker>, comes_back: bool| {
        checker.all_servers_are_cut(true);
        tokio::time::sleep(Duration::from_secs(60)).await;
        checker.all_servers_are_cut(false);
        reads(checker);
        writes(checker, "Unknown", &[KEPT_AWAY]);
        tokio::time::sleep(Duration::from_secs(8)).await;
        if comes_back {
            renews(checker, NODE);
        }
    };
    assert_eq!(broken(Keeper::Ours, async |checker| outage(checker, true).await), [Invariant::Heard]);
    assert_eq!(broken(Keeper::Ours, async |checker| outage(checker, false).await), []);
}

#[test]
fn s16_the_lost_mark_of_a_node_stays() {
    for after in [vec![KEPT_AWAY], vec![GIVEN_UP], vec![KEPT_AWAY, (UNREACHABLE, "NoExecute", 70)]] {
        let freed = async |checker: &Arc<Checker>| {
            node_is_lost(checker).await;
            writes(checker, "Unknown", &after);
        };
        assert_eq!(broken(Keeper::Ours, freed), [Invariant::Kept], "{after:?}");
    }
    let all_are_lost = async |checker: &Arc<Checker>| {
        node_is_lost(checker).await;
        changed(checker, "somebody", "Node", OTHER, None, node("Unknown", &[]));
        writes(checker, "Unknown", &[KEPT_AWAY]);
    };
    assert_eq!(broken(Keeper::Ours, all_are_lost), []);
}

#[test]
fn l11_and_l6_late_marks_are_violations() {
    let unseen = async |checker: &Arc<Checker>| seconds(checker, 60).await;
    assert_eq!(broken(Keeper::Ours, unseen), [Invariant::Lost]);
    assert_eq!(broken(Keeper::Guarded, unseen), [Invariant::Lost]);
    assert_eq!(broken(Keeper::Theirs, unseen), [], "nobody promised it");
    let never_given_up = async |checker: &Arc<Checker>| {
        seconds(checker, 51).await;
        reads(checker);
        writes(checker, "Unknown", &[KEPT_AWAY]);
        seconds(checker, 40).await;
    };
    assert_eq!(broken(Keeper::Ours, never_given_up), [Invariant::Lost]);
    let never_freed = async |checker: &Arc<Checker>| {
        node_is_lost(checker).await;
        renews(checker, NODE);
        changed(checker, NODE, "Node", NODE, None, node("True", &[KEPT_AWAY, GIVEN_UP]));
        seconds(checker, 8).await;
    };
    assert_eq!(broken(Keeper::Ours, never_freed), [Invariant::Recovered]);
}
