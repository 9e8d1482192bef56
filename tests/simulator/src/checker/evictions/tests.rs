//! S7 and L5 can be broken, and what could not be known breaks neither.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::api::{ApiRequest, CONTINUE, ObservedChange};
use crate::checker::tests::{self, seconds};
use crate::checker::{Checker, Invariant};

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// A world of one workload, and what is told of it.
struct Fixture {
    checker: Arc<Checker>,
    budget: Value,
}

/// The rules that this report breaks in a world that was well until then.
fn broken(told: impl AsyncFnOnce(&mut Fixture)) -> Vec<Invariant> {
    tests::broken(async |checker| {
        let mut fixture = Fixture { checker: Arc::clone(checker), budget: Value::Null };
        fixture.well().await;
        told(&mut fixture).await;
    })
}

fn change(kind: &str, name: &str, before: Option<Value>, after: Option<Value>) -> ObservedChange {
    tests::change(kind, &format!("default/{name}"), before, after)
}

fn pod(name: &str, ready: bool, terminates: bool) -> Value {
    let mut pod = json!({
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": { "app": "x" },
            "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": { "hollow/start-up": "0" },
            "ownerReferences": [{ "uid": "set" }] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] },
    });
    if terminates {
        pod["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z".into();
    }
    pod
}

impl Fixture {
    fn request(&self, caller: &str, method: Method, path: &str, code: u16, changes: &[ObservedChange]) {
        // As whoever has manners asks: their lack is another rule's business.
        let named = json!({ "uid": "named", "resourceVersion": "1" });
        let body = json!({ "metadata": named,
            "deleteOptions": { "gracePeriodSeconds": 1, "preconditions": named } });
        let body = body.to_string().into();
        self.checker.executed(&ApiRequest { body, ..ApiRequest::new(caller, method, path) }, code, changes);
    }

    fn scale(&self, replicas: i64) {
        let set = json!({ "metadata": { "uid": "set" }, "spec": { "replicas": replicas } });
        let changes = [change("ReplicaSet", "set", None, Some(set))];
        let path = "/apis/apps/v1/namespaces/default/replicasets/set";
        self.request("person", Method::PATCH, path, 200, &changes);
    }

    fn pod(&self, name: &str, ready: bool, terminates: bool) {
        let changes = [change("Pod", name, None, Some(pod(name, ready, terminates)))];
        let path = format!("/api/v1/namespaces/default/pods/{name}/status");
        self.request("node", Method::PATCH, &path, 200, &changes);
    }

    /// Three pods that are ready, of which one may be missing, calculated rightly.
    async fn well(&mut self) {
        self.scale(3);
        for name in ["a", "b", "c"] {
            self.checker.process_starts(&format!("default/{name}"), &format!("uid-{name}"), &"n".into(), 1);
            self.pod(name, true, false);
        }
        self.budget = json!({ "metadata": { "name": "b", "namespace": "default", "generation": 1 },
            "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": "x" } } },
            "status": { "disruptionsAllowed": 0, "observedGeneration": 1 } });
        let changes = [change("PodDisruptionBudget", "b", None, Some(self.budget.clone()))];
        self.request("person", Method::POST, BUDGETS, 201, &changes);
        self.set_allowed(1);
        seconds(20).await;
    }

    fn write(&mut self, caller: &str, path: &str, code: u16, edit: impl FnOnce(&mut Value)) {
        let before = self.budget.clone();
        edit(&mut self.budget);
        let changes = [change("PodDisruptionBudget", "b", Some(before), Some(self.budget.clone()))];
        let method = if path.ends_with("/eviction") { Method::POST } else { Method::PATCH };
        self.request(caller, method, path, code, &changes);
    }

    fn set_allowed(&mut self, allowed: i64) {
        self.write("replica-0.1", &format!("{BUDGETS}/b/status"), 200, |budget| {
            budget["status"]["disruptionsAllowed"] = allowed.into();
        });
    }

    /// An eviction is counted, and answered with this code.
    fn evict(&mut self, name: &str, code: u16) {
        let path = format!("/api/v1/namespaces/default/pods/{name}/eviction");
        self.write("client", &path, CONTINUE, |budget| {
            let left = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) - 1;
            budget["status"]["disruptionsAllowed"] = left.into();
        });
        let after = change("Pod", name, Some(pod(name, true, false)), Some(pod(name, true, true)));
        let changes = if code == 201 { vec![after] } else { Vec::new() };
        self.request("client", Method::POST, &path, code, &changes);
    }

    fn refuse(&self, name: &str) {
        let path = format!("/api/v1/namespaces/default/pods/{name}/eviction");
        self.request("client", Method::POST, &path, 429, &[]);
    }
}

#[test]
fn evictions_pass_exactly_as_the_pdb_allows() {
    let broken = broken(async |told| {
        told.evict("a", 201);
        told.refuse("b");
        seconds(60).await;
        told.refuse("b");
    });
    assert_eq!(broken, []);
}

#[test]
fn s7_more_evictions_pass_than_the_pdb_allows() {
    let broken = broken(async |told| {
        told.evict("a", 201);
        told.budget["status"]["disruptionsAllowed"] = 1.into();
        told.evict("b", 201);
    });
    assert_eq!(broken, [Invariant::Budget]);
}

#[test]
fn s7_a_status_allows_more_than_its_budget() {
    let broken = broken(async |told| {
        told.set_allowed(2);
    });
    assert_eq!(broken, [Invariant::Budget]);
}

#[test]
fn s7_an_eviction_that_was_refused_leaves_the_budget_as_it_was() {
    let broken = broken(async |told| {
        told.evict("a", 409);
        told.set_allowed(1);
        told.evict("b", 201);
    });
    assert_eq!(broken, [], "the pod is there still, and ready");
}

#[test]
fn s7_a_process_under_test_names_a_uid_that_the_pod_does_not_have() {
    let told = |uid: &'static str| {
        broken(async move |told| {
            seconds(60).await;
            let path = "/api/v1/namespaces/default/pods/a/eviction";
            told.write("replica-0.1", path, CONTINUE, |budget| budget["status"]["disruptionsAllowed"] = 0.into());
            let options = json!({ "gracePeriodSeconds": 1,
                "preconditions": { "uid": uid, "resourceVersion": "1" } });
            let body = json!({ "metadata": { "uid": "named" }, "deleteOptions": options });
            let asked =
                ApiRequest { body: body.to_string().into(), ..ApiRequest::new("replica-0.1", Method::POST, path) };
            told.checker.executed(&asked, 409, &[]);
        })
    };
    assert_eq!(told("somebody-else"), [Invariant::Budget]);
    assert_eq!(told("uid-a"), [], "its version was another by then: nobody could know");
}

#[test]
fn the_latest_changes_need_not_be_observed_yet() {
    let told = |waits: u64| {
        broken(async move |told| {
            // The world has been well for so long that the window is five seconds.
            seconds(100).await;
            told.scale(4);
            told.checker.process_ends(3, "it died");
            told.pod("c", false, false);
            seconds(waits).await;
            told.evict("a", 201);
        })
    };
    assert_eq!(told(4), []);
    assert_eq!(told(6), [Invariant::Budget]);
}

#[test]
fn faults_widen_the_allowed_range_until_some_time_after() {
    let told = |waits: u64| {
        broken(async move |told| {
            seconds(100).await;
            told.checker.control_is_troubled(told.checker.now() + Duration::from_secs(30));
            told.checker.process_ends(3, "it died");
            told.pod("c", false, false);
            seconds(waits).await;
            told.evict("a", 201);
        })
    };
    assert_eq!(told(100), []);
    assert_eq!(told(120), [Invariant::Budget]);
}

#[test]
fn an_eviction_is_never_excused_by_trouble() {
    let broken = broken(async |told| {
        told.checker.control_is_troubled(told.checker.now() + Duration::from_secs(600));
        told.evict("a", 201);
        told.set_allowed(1);
    });
    assert_eq!(broken, [Invariant::Budget]);
}

#[test]
fn l5_what_a_budget_allows_is_refused() {
    let told = |waits: u64| {
        broken(async move |told| {
            told.set_allowed(0);
            seconds(waits).await;
            told.refuse("a");
        })
    };
    // What has been known for long needs no time to be acted on.
    assert_eq!(told(3), [Invariant::Refused]);
    assert_eq!(told(100), [Invariant::Refused]);
}

#[test]
fn l5_a_budget_is_processed_for_ever() {
    let broken = broken(async |told| {
        told.budget["metadata"]["generation"] = 2.into();
        told.write("person", &format!("{BUDGETS}/b"), 200, |budget| budget["spec"]["maxUnavailable"] = 2.into());
        told.refuse("a");
        seconds(200).await;
        told.checker.check_budgets();
    });
    assert_eq!(broken, [Invariant::Refused]);
}

#[test]
fn s7_a_wrong_status_remains_at_rest() {
    let broken = broken(async |told| {
        seconds(100).await;
        told.scale(5);
        seconds(30).await;
        told.checker.check_budgets();
    });
    assert_eq!(broken, [Invariant::Budget]);
}

/// Seed 11255: the numbers were of a moment at which the pod was not ready, so its eviction took one that another could
/// have used.
#[test]
fn bug_an_eviction_of_an_unhealthy_pod_reduced_disruptions_allowed() {
    let told = |waits: u64| {
        broken(async move |told| {
            told.write("person", &format!("{BUDGETS}/b"), 200, |budget| budget["spec"]["maxUnavailable"] = 2.into());
            told.set_allowed(2);
            seconds(100).await;
            told.pod("b", false, false);
            told.set_allowed(1);
            seconds(60).await;
            told.pod("b", true, false);
            told.evict("b", 201);
            seconds(waits).await;
            told.refuse("a");
        })
    };
    assert_eq!(told(0), []);
    assert_eq!(told(6), [Invariant::Refused], "a controller that is well has calculated anew by then");
}
