//! Each invariant can be broken: acts that no controller here performs, recorded in the checker as if one had.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use pod_safety_shared::controller_loop::Subject;
use pod_safety_shared::model::{PodKey, Uid};
use serde_json::{Value, json};

use super::{Checker, Invariant, Promise, Shown};
use crate::api::{ApiRequest, ObservedChange};

pub(super) const ME: &str = "replica-0.1";
pub(super) const POD: &str = "/api/v1/namespaces/default/pods/data-0";

/// Runs `history` with a checker inside a simulation. Returns the broken invariants.
pub(super) fn broken(history: impl AsyncFnOnce(&Arc<Checker>)) -> Vec<Invariant> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let promise = Promise {
            quarantine: Duration::from_secs(40),
            terminated_threshold: 1,
            renew_deadline: Duration::from_secs(10),
        };
        let checker = Checker::new(promise);
        history(&checker).await;
        checker.findings().violations.iter().map(|violation| violation.invariant).collect()
    })
}

pub(super) async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

pub(super) fn pod() -> Value {
    json!({
        "metadata": { "name": "data-0", "namespace": "default", "uid": "u1" },
        "spec": { "nodeName": "node-0", "terminationGracePeriodSeconds": 30 },
        "status": { "phase": "Running" },
    })
}

fn deleted(grace: i64) -> Value {
    let mut pod = pod();
    pod["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z".into();
    pod["metadata"]["deletionGracePeriodSeconds"] = grace.into();
    pod
}

pub(super) fn phase(mut pod: Value, phase: &str) -> Value {
    pod["status"]["phase"] = phase.into();
    pod
}

pub(super) fn change(kind: &str, name: &str, before: Option<Value>, after: Option<Value>) -> ObservedChange {
    ObservedChange {
        revision: 2,
        kind: kind.to_owned(),
        name: name.to_owned(),
        before: before.map(Arc::new),
        after: after.map(Arc::new),
    }
}

fn request(caller: &str, method: Method, path: &str, body: &Value) -> ApiRequest {
    ApiRequest { body: body.to_string().into(), ..ApiRequest::new(caller, method, path) }
}

/// A process under test changes a pod by this request.
fn acts(checker: &Checker, method: Method, body: &Value, before: Value, after: Option<Value>) {
    let asked = request(ME, method, POD, body);
    checker.executed(&asked, 200, &[change("Pod", "default/data-0", Some(before), after)]);
}

/// The pod is removed by this client.
fn removes(checker: &Checker, caller: &str) {
    let asked = request(caller, Method::DELETE, POD, &preconditions(0));
    checker.executed(&asked, 200, &[change("Pod", "default/data-0", Some(pod()), None)]);
}

/// A client creates or changes a Lease.
fn leases(checker: &Checker, caller: &str, name: &str, spec: Value) {
    let lease = change("Lease", name, None, Some(json!({ "spec": spec })));
    checker.executed(&request(caller, Method::PATCH, "/x", &patch()), 200, &[lease]);
}

fn node_is_deleted(checker: &Checker) {
    let person = ApiRequest::new("person", Method::DELETE, "/api/v1/nodes/node-0");
    checker.executed(&person, 200, &[change("Node", "node-0", Some(json!({})), None)]);
}

/// The rules that a process under test breaks by that.
fn acted(method: Method, body: &Value, before: Value, after: Option<Value>) -> Vec<Invariant> {
    broken(async |checker| acts(checker, method, body, before, after))
}

fn preconditions(grace: i64) -> Value {
    json!({ "gracePeriodSeconds": grace, "preconditions": { "uid": "u1", "resourceVersion": "1" } })
}

pub(super) fn patch() -> Value {
    json!({ "metadata": { "uid": "u1", "resourceVersion": "1" } })
}

#[test]
fn s5_grace_is_not_lengthened_and_not_shortened_without_evidence() {
    let longer = acted(Method::DELETE, &preconditions(60), deleted(30), Some(deleted(60)));
    assert!(longer.contains(&Invariant::Grace), "{longer:?}");
    let shorter = acted(Method::DELETE, &preconditions(5), pod(), Some(deleted(5)));
    assert!(shorter.contains(&Invariant::Grace), "{shorter:?}");
    let full = acted(Method::DELETE, &preconditions(30), pod(), Some(deleted(30)));
    assert_eq!(full, [Invariant::Hygiene], "all the grace that there is, but nobody was told why");
}

#[test]
fn s6_a_graceful_deletion_removes_nothing_immediately() {
    let at_once = acted(Method::DELETE, &preconditions(30), pod(), None);
    assert!(at_once.contains(&Invariant::Graceful), "{at_once:?}");
    let forced = acted(Method::DELETE, &preconditions(0), pod(), None);
    assert!(forced.iter().all(|broken| *broken == Invariant::Evidence), "{forced:?}");
    assert!(!forced.is_empty(), "a forced removal of a running pod");
}

#[test]
fn s2_removing_foreign_finalizers_is_a_violation() {
    let mut kept = deleted(0);
    kept["metadata"]["finalizers"] = json!(["example.com/hook"]);
    let released = acted(Method::PATCH, &patch(), kept, Some(deleted(0)));
    assert_eq!(released, [Invariant::Evidence]);
}

#[test]
fn s11_a_terminal_phase_stays_and_conditions_are_true() {
    let revived = acted(Method::PATCH, &patch(), phase(pod(), "Failed"), Some(pod()));
    assert_eq!(revived, [Invariant::Truth]);
    let other_end = acted(Method::PATCH, &patch(), phase(pod(), "Succeeded"), Some(phase(pod(), "Failed")));
    assert_eq!(other_end, [Invariant::Truth]);
    let mut orphan = pod();
    orphan["status"]["conditions"] =
        json!([{ "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC" }]);
    let lied = acted(Method::PATCH, &patch(), pod(), Some(orphan.clone()));
    assert_eq!(lied, [Invariant::Truth]);
    let violations = broken(async |checker| {
        node_is_deleted(checker);
        checker.executed(&ApiRequest::new(ME, Method::GET, "/api/v1/nodes/node-0"), 404, &[]);
        acts(checker, Method::PATCH, &patch(), pod(), Some(orphan.clone()));
    });
    assert_eq!(violations, [], "its node is gone, and it is only asked to end");
}

#[test]
fn s8_two_writers_of_a_volume_in_turns() {
    let turns = |ends: bool| {
        broken(async move |checker| {
            let first = checker.process_starts("default/data-0", "u1", &"node-0".into(), 1);
            checker.volumes_are_written(|_| false);
            if ends {
                checker.process_ends(first, "it ended");
            }
            checker.process_starts("default/data-0", "u2", &"node-1".into(), 1);
            for _ in 0..3 {
                checker.volumes_are_written(|_| false);
            }
        })
    };
    assert_eq!(turns(false), [Invariant::AtMostOne, Invariant::Storage]);
    assert_eq!(turns(true), []);
}

/// The excuse for two pods of one node excused both from then on, wherever the next one wrote.
#[test]
fn bug_sharing_a_volume_on_one_node_excuses_no_other_node() {
    let shared = |third: &'static str| {
        broken(async move |checker| {
            checker.volumes_are_guarded(false, false);
            checker.has_volumes("default/other", vec!["default/data-0".to_owned()]);
            checker.has_volumes("default/third", vec!["default/data-0".to_owned()]);
            checker.process_starts("default/data-0", "u1", &"node-0".into(), 1);
            checker.volumes_are_written(|_| false);
            checker.process_starts("default/other", "u2", &"node-0".into(), 1);
            checker.volumes_are_written(|_| false);
            checker.volumes_are_written(|_| false);
            checker.process_starts("default/third", "u3", &third.into(), 1);
            checker.volumes_are_written(|_| false);
            checker.volumes_are_written(|_| false);
        })
    };
    assert_eq!(shared("node-0"), []);
    assert_eq!(shared("node-1"), [Invariant::Storage; 2], "both of the two write after the third did");
}

/// Each volume of a pod is checked by itself: a pod that may be displaced from one volume may not be displaced from the
/// other.
#[test]
fn an_excuse_for_one_volume_does_not_cover_another() {
    const DATA: &str = "default/data-0";
    const LOG: &str = "default/log-data-0";
    let excused = |of: &'static [&'static str], then: &'static str| {
        broken(async move |checker| {
            checker.has_volumes("default/data-0", [DATA, LOG].map(str::to_owned).to_vec());
            checker.process_starts("default/data-0", "u1", &"node-0".into(), 1);
            checker.is_forced("u1");
            removes(checker, "person");
            of.iter().for_each(|volume| checker.record_unguarded_detach(volume, "node-0"));
            match then {
                "" => drop(checker.process_starts("default/data-0", "u2", &"node-1".into(), 1)),
                volume => checker.volume_is_attached(volume, "node-1"),
            }
        })
    };
    assert_eq!(excused(&[DATA], DATA), []);
    assert_eq!(excused(&[DATA], LOG), [Invariant::Storage]);
    assert_eq!(excused(&[LOG], ""), [Invariant::AtMostOne], "the other volume stands between the two");
    assert_eq!(excused(&[DATA, LOG], ""), []);
}

#[test]
fn a_process_displaced_by_an_operator_is_excused_if_that_operator_removed_its_pod() {
    let forced = |by: &'static str, next: &'static str, remains: bool| {
        broken(async move |checker| {
            checker.process_starts("default/data-0", "u1", &"node-0".into(), 1);
            checker.attachment_remains("default/data-0", "node-1", true);
            checker.attachment_remains("default/data-0", "node-1", remains);
            checker.is_forced("u1");
            removes(checker, by);
            checker.process_starts("default/data-0", "u2", &next.into(), 1);
        })
    };
    assert_eq!(forced("person", "node-0", false), []);
    assert!(forced(ME, "node-0", false).contains(&Invariant::AtMostOne), "ours removed it, whatever somebody tried");
    assert_eq!(forced("person", "node-1", true), [], "upstream attached it twice");
    assert!(forced(ME, "node-1", true).contains(&Invariant::AtMostOne));
    assert!(forced("person", "node-1", false).contains(&Invariant::AtMostOne), "it was detached there");
}

#[test]
fn a_forced_process_may_be_displaced_where_volumes_are_unguarded() {
    let detached = |forced: bool, guarded: bool| {
        broken(async move |checker| {
            checker.process_starts("default/data-0", "u1", &"node-0".into(), 1);
            if forced {
                checker.is_forced("u1");
                removes(checker, "person");
            }
            if !guarded {
                checker.record_unguarded_detach("default/data-0", "node-0");
            }
            checker.volume_is_attached("default/data-0", "node-1");
        })
    };
    assert_eq!(detached(true, false), []);
    assert_eq!(detached(true, true), [Invariant::Storage]);
    assert_eq!(detached(false, false), [Invariant::Storage], "its pod is there");
}

#[test]
fn l7_a_pod_that_cannot_end_is_shown() {
    let waits = |wait: u64, shown: Shown| {
        broken(async move |checker| {
            let unknown = json!({ "metadata": { "name": "node-0" },
                "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
            let kubelet = ApiRequest::new("node-lifecycle", Method::PATCH, "/api/v1/nodes/node-0/status");
            checker.executed(&kubelet, 200, &[change("Node", "node-0", None, Some(unknown))]);
            let person = ApiRequest::new("person", Method::DELETE, POD);
            checker.executed(&person, 200, &[change("Pod", "default/data-0", Some(pod()), Some(deleted(30)))]);
            leases(checker, "x", "kube-system/pod-safety", json!({ "holderIdentity": ME }));
            seconds(wait).await;
            checker.check_stuck(&[deleted(30).into()], &shown);
        })
    };
    assert_eq!(waits(15, Shown::default()), []);
    assert_eq!(waits(16, Shown::default()), [Invariant::Stuck]);
    assert_eq!(waits(16, holds("NoEvidence")), []);
    assert_eq!(waits(16, holds_of("u2", "NoEvidence")), [Invariant::Stuck], "another pod is");
}

/// Seed 786: the machine came back, and its kubelet's API server lagged.
#[test]
fn bug_a_kubelet_that_lists_old_state_is_no_violation_of_the_remover() {
    let returned = |removed: bool| {
        broken(async move |checker| {
            checker.process_starts("default/data-0", "u2", &"node-1".into(), 1);
            if removed {
                removes(checker, "kubelet");
            }
            checker.process_starts("default/data-0", "u1", &"node-0".into(), 2);
        })
    };
    assert_eq!(returned(true), []);
    assert_eq!(returned(false), [Invariant::AtMostOne]);
}

#[test]
fn s8_a_frozen_machine_writes_when_it_thaws() {
    let thawed = broken(async |checker| {
        checker.process_starts("default/data-0", "u1", &"node-0".into(), 1);
        checker.volumes_are_written(|_| false);
        checker.process_starts("default/data-0", "u2", &"node-1".into(), 1);
        checker.volumes_are_written(|node| node == "node-0");
        assert!(!checker.findings().violations.iter().any(|found| found.invariant == Invariant::Storage));
        checker.volumes_are_written(|_| false);
    });
    assert!(thawed.contains(&Invariant::Storage));
}

#[test]
fn s13_the_same_write_repeated_without_a_fault() {
    let hammering = |healed: bool| {
        broken(async move |checker| {
            if healed {
                checker.healed();
            }
            seconds(120).await;
            for _ in 0..20 {
                checker.executed(&request(ME, Method::PATCH, POD, &patch()), 409, &[]);
            }
        })
    };
    assert_eq!(hammering(true), [Invariant::HotLoop]);
    assert_eq!(hammering(false), []);
}

/// Records that the Node was deleted and that the faults ended, then waits.
async fn an_orphan_after(checker: &Checker, wait: u64) {
    node_is_deleted(checker);
    checker.healed();
    seconds(wait).await;
}

fn holds_of(uid: &str, reason: &'static str) -> Shown {
    let key = PodKey { namespace: "default".into(), name: "data-0".into(), uid: Uid::new(uid).unwrap() };
    Shown::new([(Subject::Pod(key), reason)])
}

fn holds(reason: &'static str) -> Shown {
    holds_of("u1", reason)
}

#[test]
fn l1_an_orphan_must_be_gone_after_the_backoff_and_the_quarantine() {
    let at = |wait: u64, holds: Shown| {
        broken(async |checker| {
            an_orphan_after(checker, wait).await;
            checker.check_settled(&[pod().into()], &[], &holds);
        })
    };
    assert_eq!(at(256, holds("Quarantine")), [Invariant::Liveness], "60 + 40 + 15, 30 of grace + 40 + 15, 40 + 15");
    assert_eq!(at(254, holds("Quarantine")), []);
    assert_eq!(at(254, holds("AwaitsKubelet")), []);
    assert_eq!(at(254, holds_of("u2", "Quarantine")), [Invariant::Reported], "that of another pod excuses nothing");
    assert_eq!(at(254, Shown::default()), [Invariant::Reported], "L9: nobody was told");
    assert_eq!(at(70, Shown::default()), [], "too early to be told");
}

#[test]
fn l1_false_alarm_a_lease_renewed_late_begins_another_quarantine() {
    let renewed_and = |wait: u64, reason: &'static str| {
        broken(async move |checker| {
            an_orphan_after(checker, 80).await;
            leases(checker, "node-0", "kube-node-lease/node-0", json!({ "renewTime": "now" }));
            seconds(wait).await;
            checker.check_settled(&[pod().into()], &[], &holds(reason));
        })
    };
    assert_eq!(renewed_and(234, "Quarantine"), [], "40 of silence, and all that follows");
    assert_eq!(renewed_and(236, "Quarantine"), [Invariant::Liveness]);
    assert_eq!(renewed_and(30, "KubeletAlive"), []);
    assert_eq!(renewed_and(30, "Quarantine"), [Invariant::Reported], "its kubelet lives, which is not told");
}

/// Seeds 20485 and 23619: garbage collection deleted the mirror pod of a Node that was gone, and its kubelet completed
/// that deletion. A watch does not show who deletes a pod, so pod-safety could not know that the kubelet runs.
#[test]
fn l9_false_alarm_a_completed_deletion_does_not_show_a_running_kubelet() {
    let after = |caller: &'static str, method: Method| {
        broken(async move |checker| {
            an_orphan_after(checker, 80).await;
            let leaves =
                json!({ "metadata": { "name": "static-node-0", "uid": "u9" }, "spec": { "nodeName": "node-0" } });
            let on_its_way = change("Pod", "default/static-node-0", Some(leaves.clone()), Some(leaves));
            checker.executed(&ApiRequest::new(caller, method, POD), 200, &[on_its_way]);
            seconds(30).await;
            checker.check_settled(&[pod().into()], &[], &holds("Quarantine"));
        })
    };
    assert_eq!(after("node-0", Method::DELETE), [], "its kubelet deletes it");
    assert_eq!(after("node-0", Method::PATCH), [Invariant::Reported], "its kubelet reports on it");
    assert_eq!(after("node-1", Method::PATCH), [], "another kubelet does");
}

#[test]
fn l1_a_reporting_kubelet_of_another_node_excuses_nothing() {
    let violations = broken(async |checker| {
        an_orphan_after(checker, 260).await;
        checker.check_settled(&[pod().into()], &[], &holds("KubeletAlive"));
    });
    assert_eq!(violations, [Invariant::Liveness]);
}

/// The simulator found the last one: a person changed a pod twice while its kubelet was cut off.
#[test]
fn l1_only_a_pod_whose_worker_may_be_busy_is_held_for_that() {
    let running = json!([{ "state": { "running": {} } }]);
    let starting = json!([{ "state": { "running": {} } }, { "state": { "waiting": {} } }]);
    for (reports, generation, expected) in
        [(&running, 2, vec![Invariant::Liveness]), (&starting, 2, vec![]), (&running, 4, vec![])]
    {
        let mut held = pod();
        held["metadata"]["generation"] = generation.into();
        held["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        held["status"]["observedGeneration"] = 1.into();
        held["status"]["containerStatuses"] = reports.clone();
        let violations = broken(async |checker| {
            an_orphan_after(checker, 260).await;
            checker.check_settled(&[held.into()], &[], &holds("KubeletMayNotReport"));
        });
        assert_eq!(violations, expected, "generation {generation}: {reports}");
    }
}

/// The Lease was garbage collected while the watch of Leases was broken.
#[test]
fn l1_a_lease_deleted_between_two_lists_may_have_been_renewed_until_the_second() {
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let after = |second: u64, again: bool| {
        let mut held = deleted(30);
        held["metadata"]["generation"] = 2.into();
        held["status"]["observedGeneration"] = 1.into();
        broken(async move |checker| {
            let lease = json!({ "renewTime": "2026-01-01T00:00:00Z" });
            leases(checker, "node-0", "kube-node-lease/node-0", lease.clone());
            let list = ApiRequest::new(ME, Method::GET, path);
            checker.executed(&list, 200, &[]);
            seconds(60).await;
            let person = ApiRequest::new("person", Method::DELETE, POD);
            let asked = change("Pod", "default/data-0", Some(pod()), Some(held.clone()));
            checker.executed(&person, 200, &[asked]);
            let collected = change("Lease", "kube-node-lease/node-0", Some(json!({ "spec": lease })), None);
            checker.executed(&ApiRequest::new("kcm", Method::DELETE, "/x"), 200, &[collected]);
            seconds(second).await;
            if again {
                checker.executed(&list, 200, &[]);
            }
            an_orphan_after(checker, 260).await;
            checker.check_settled(&[held.into()], &[], &holds("KubeletMayNotReport"));
        })
    };
    assert_eq!(after(10, true), [], "its kubelet may have acted, and did not report");
    assert_eq!(after(9, true), [], "or may have started");
    assert_eq!(after(10, false), [Invariant::Liveness], "the watch brought the end of the Lease");
}

#[test]
fn l1_too_many_terminated_pods() {
    let ended = |uid: &str| {
        let mut pod = phase(pod(), "Succeeded");
        pod["metadata"]["uid"] = uid.into();
        pod
    };
    let violations = broken(async |checker| {
        let pods = [ended("u1"), ended("u2")].map(Arc::new);
        for pod in &pods {
            let kubelet = ApiRequest::new("node-0", Method::PATCH, POD);
            checker.executed(&kubelet, 200, &[change("Pod", "default/x", None, Some(Value::clone(pod)))]);
        }
        checker.healed();
        seconds(100).await;
        checker.check_settled(&pods, &[json!({ "metadata": { "name": "node-0" } }).into()], &Shown::default());
    });
    assert_eq!(violations, [Invariant::Liveness]);
}

#[test]
fn l4_a_pod_that_could_run_does_not_run() {
    let replaced = broken(async |checker| {
        let first = checker.process_starts("default/data-0", "u1", &"node-0".into(), 1);
        let before = checker.members();
        checker.process_ends(first, "it ended");
        checker.process_starts("default/data-0", "u2", &"node-0".into(), 1);
        checker.check_rest(&before, &[]);
    });
    assert_eq!(replaced, [Invariant::Rest]);
    let missing = broken(async |checker| {
        checker.check_rest(&BTreeMap::new(), &["default/data-0".to_owned()]);
    });
    assert_eq!(missing, [Invariant::Rest]);
}

#[test]
fn l8_a_dead_leader_still_holds_the_lease() {
    let violations_by = |who: &'static str| {
        broken(async move |checker| {
            leases(checker, ME, "kube-system/pod-safety", json!({ "holderIdentity": who }));
            checker.check_failover("replica-1.1");
        })
    };
    assert_eq!(violations_by("replica-1.1"), [Invariant::Failover]);
    assert_eq!(violations_by(""), [Invariant::Failover], "nobody leads");
    assert_eq!(violations_by("replica-0.1"), []);
}
