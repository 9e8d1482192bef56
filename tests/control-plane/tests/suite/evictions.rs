//! Evictions through the real API server, with pod-safety's disruption controller: the allowed evictions never exceed a PDB.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]

mod crowd;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crowd::{Crowd, HealthWatch};
use futures::future::{Either, join_all, select};
use k8s_openapi::api::core::v1::PodCondition;
use kube::Client;
use pod_safety_control_plane::budgets::{self, Answer};
use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::workloads::{self, FLEET, REPLICA_SET};
use pod_safety_control_plane::{ControlPlane, Options, check_that, observe, scenarios, wait_until};
use serde_json::{Value, json};

use crate::versions;

const CLIENTS: usize = 20;
/// The default is two minutes.
const STALE_AFTER: Duration = Duration::from_secs(4);

#[tokio::test]
async fn evictions_stay_within_pdbs() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let api = &plane.admin();
    workloads::define_custom_kinds(api).await.unwrap();
    for namespace in ["crowded", "broken", "percent", "changing", "stale"] {
        plane.namespace(namespace).await.unwrap();
    }
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    let stale = format!("--stale-pod-disruption-timeout={}s", STALE_AFTER.as_secs());
    let args = ["--controllers=disruption", "--mode=replace", &stale];
    let mut pod_safety = plane.pod_safety("pod-safety", &kubeconfig, args).await.unwrap();
    pod_safety.ready().await.unwrap();
    pod_safety.is_leader().await.unwrap();
    scenarios![
        twenty_clients_never_exceed_one_budget(api),
        unhealthy_pods_are_evicted_by_unhealthy_pod_eviction_policy(api),
        a_percentage_of_a_custom_resource_follows_its_scale(api),
        pdb_changes_during_evictions_are_respected(api),
        a_condition_of_a_pod_that_does_not_end_is_taken_back(api),
    ];
    let written = pod_safety.metric("pod_safety_disruption_updates_total", &[]).await.unwrap();
    assert!(written > 0.0, "{written}");
}

fn selecting(mut spec: Value) -> Value {
    spec["selector"] = json!({ "matchLabels": { "app": "crowd" } });
    spec
}

async fn evict(api: &Client, namespace: &str, pod: &str) -> Answer {
    budgets::evict(api, namespace, pod, &Value::Null).await.unwrap()
}

/// Waits until the PDB allows this many evictions.
async fn until_allowed(api: &Client, namespace: &str, allowed: i32) {
    wait_until(&format!("{namespace} allows {allowed}"), async || {
        let status = budgets::budget_status(api, namespace, "crowd").await.map_err(|error| format!("{error:?}"))?;
        check_that(status.allowed == allowed && status.observed == status.generation, status.to_string())
    })
    .await;
}

/// Runs `others`, which never end, until `work` is done.
async fn beside<T>(others: impl Future, work: impl Future<Output = T>) -> T {
    match select(std::pin::pin!(work), std::pin::pin!(others)).await {
        Either::Left((done, _)) => done,
        Either::Right(_) => panic!("it ended"),
    }
}

/// Evicts existing pods one after the other, and counts the answers by code.
struct Evictors<'a> {
    api: &'a Client,
    crowd: &'a Crowd,
    answers: RefCell<BTreeMap<u16, usize>>,
    /// The number of answers of each client.
    each: RefCell<BTreeMap<usize, usize>>,
    evicted: RefCell<Vec<String>>,
    stop: Cell<bool>,
}

impl<'a> Evictors<'a> {
    fn new(api: &'a Client, crowd: &'a Crowd) -> Self {
        let (answers, each, evicted) = (RefCell::default(), RefCell::default(), RefCell::default());
        Self { api, crowd, answers, each, evicted, stop: Cell::new(false) }
    }

    /// Client number `number` works until it is stopped, or enough pods are evicted.
    async fn evict_until_stopped(&self, number: usize, enough: usize) {
        let mut at = number;
        while !self.stop.get() && self.evicted.borrow().len() < enough {
            // Old and new pods equally often, each client in its own order.
            at = (at * 31 + 7 * number + 1) % self.crowd.created();
            let name = Crowd::name(at);
            let answer = evict(self.api, self.crowd.namespace, &name).await;
            *self.answers.borrow_mut().entry(answer.code).or_default() += 1;
            *self.each.borrow_mut().entry(number).or_default() += 1;
            // A terminating pod may always be evicted again.
            if answer.code == 201 && !self.evicted.borrow().contains(&name) {
                self.evicted.borrow_mut().push(name);
            }
        }
    }

    fn answered(&self, code: u16) -> usize {
        self.answers.borrow().get(&code).copied().unwrap_or(0)
    }

    fn evicted_count(&self) -> usize {
        self.evicted.borrow().len()
    }
}

/// Waits until the watch has observed the deletion of each of them.
async fn witness_saw_all(witness: &HealthWatch<'_>, evicted: &[String]) {
    wait_until("the witness has heard of all evictions", async || {
        let unheard: Vec<_> = evicted.iter().filter(|name| !witness.saw_deletion(name)).collect();
        check_that(unheard.is_empty(), format!("not of {unheard:?}"))
    })
    .await;
}

async fn twenty_clients_never_exceed_one_budget(api: &Client) {
    let (replicas, desired, enough) = (30, 25, 100);
    let owner = workloads::put(api, REPLICA_SET, "crowded", "crowd", replicas, None).await.unwrap();
    let crowd = Crowd::create_all(api, "crowded", owner, 30).await;
    budgets::put(api, "crowded", "crowd", &selecting(json!({ "maxUnavailable": "16%" }))).await.unwrap();
    until_allowed(api, "crowded", 5).await;

    let (witness, evictors) = (HealthWatch::start(&crowd).await, Evictors::new(api, &crowd));
    let work = async {
        join_all((0..CLIENTS).map(|number| evictors.evict_until_stopped(number, enough))).await;
        let evicted = evictors.evicted.borrow().clone();
        witness_saw_all(&witness, &evicted).await;
    };
    beside(futures::future::join(crowd.run_workload(), witness.watch()), work).await;
    let lowest = witness.lowest(&witness.disrupted_pods()).unwrap();
    assert!(lowest >= desired, "{lowest} pods were healthy, {desired} are wanted");
    assert_eq!(lowest, desired, "nobody came near the limit, so it was not tested");
    assert!(evictors.answered(429) > 0, "{:?}", evictors.answers.borrow());
    let strange = evictors.answers.borrow().keys().any(|code| ![201, 404, 409, 429].contains(code));
    assert!(!strange, "{:?}", evictors.answers.borrow());
}

async fn unhealthy_pods_are_evicted_by_unhealthy_pod_eviction_policy(api: &Client) {
    let owner = workloads::put(api, REPLICA_SET, "broken", "crowd", 4, None).await.unwrap();
    let crowd = Crowd::create_all(api, "broken", owner, 4).await;
    let put = async |policy: &str, min_available: i32| {
        let spec = selecting(json!({ "minAvailable": min_available, "unhealthyPodEvictionPolicy": policy }));
        budgets::put(api, "broken", "crowd", &spec).await.unwrap();
    };
    put("IfHealthyBudget", 3).await;
    until_allowed(api, "broken", 1).await;
    for broken in ["pod-0", "pod-1"] {
        crowd.set_ready(broken, false).await;
    }
    let healthy = async |expected: i32| {
        wait_until(&format!("{expected} are healthy"), async || {
            let status = budgets::budget_status(api, "broken", "crowd").await.map_err(|error| format!("{error:?}"))?;
            check_that(status.healthy == expected, status.to_string())
        })
        .await;
    };
    healthy(2).await;

    let answer = evict(api, "broken", "pod-0").await;
    let needs = |healthy: i32| format!("The disruption budget crowd needs 3 healthy pods and has {healthy} currently");
    assert_eq!((answer.code, answer.causes), (429, vec![needs(2)]), "its budget is not healthy");
    crowd.set_ready("pod-1", true).await;
    healthy(3).await;
    let answer = evict(api, "broken", "pod-2").await;
    assert_eq!((answer.code, answer.causes), (429, vec![needs(3)]), "a healthy one");
    assert_eq!(evict(api, "broken", "pod-0").await.code, 201, "its budget is healthy");

    crowd.set_ready("pod-1", false).await;
    put("AlwaysAllow", 4).await;
    let policy = async || {
        let status = budgets::budget_status(api, "broken", "crowd").await.map_err(|error| format!("{error:?}"))?;
        check_that((status.healthy, status.desired) == (2, 4), status.to_string())
    };
    wait_until("four are wanted and two are healthy", policy).await;
    assert_eq!(evict(api, "broken", "pod-2").await.code, 429, "a healthy one");
    assert_eq!(evict(api, "broken", "pod-1").await.code, 201, "a broken one");
}

async fn a_percentage_of_a_custom_resource_follows_its_scale(api: &Client) {
    let owner = workloads::put(api, FLEET, "percent", "crowd", 10, None).await.unwrap();
    let crowd = Crowd::create_all(api, "percent", owner, 10).await;
    budgets::put(api, "percent", "crowd", &selecting(json!({ "minAvailable": "75%" }))).await.unwrap();
    // Three quarters of ten, rounded up.
    until_allowed(api, "percent", 2).await;
    assert_eq!(evict(api, "percent", "pod-0").await.code, 201);
    until_allowed(api, "percent", 1).await;
    assert_eq!(evict(api, "percent", "pod-1").await.code, 201);
    until_allowed(api, "percent", 0).await;
    let answer = evict(api, "percent", "pod-2").await;
    let cause = "The disruption budget crowd needs 8 healthy pods and has 8 currently";
    assert_eq!((answer.code, answer.causes), (429, vec![cause.to_owned()]));

    workloads::scale(api, FLEET, "percent", "crowd", 5).await.unwrap();
    // No watch shows the scale of a custom resource; it is read with the next change of a pod.
    tokio::time::sleep(Duration::from_secs(1)).await;
    crowd.set_ready("pod-9", false).await;
    until_allowed(api, "percent", 3).await;
    let status = budgets::budget_status(api, "percent", "crowd").await.unwrap();
    assert_eq!((status.expected, status.desired, status.healthy), (5, 4, 7), "{status}");
}

/// Each change affects every eviction that is requested after it.
async fn pdb_changes_during_evictions_are_respected(api: &Client) {
    let owner = workloads::put(api, REPLICA_SET, "changing", "crowd", 10, None).await.unwrap();
    let crowd = Crowd::create_all(api, "changing", owner, 10).await;
    let (witness, evictors) = (HealthWatch::start(&crowd).await, Evictors::new(api, &crowd));
    let more = async |count: usize| {
        let enough = evictors.evicted_count() + count;
        let done = async || check_that(evictors.evicted_count() >= enough, format!("{:?}", evictors.answers.borrow()));
        wait_until("more are evicted", done).await;
    };
    // Evictions in progress may still use the old state: one for each client.
    let since = async || {
        let before = evictors.each.borrow().clone();
        let later = async || {
            let now = evictors.each.borrow();
            let all = before.iter().all(|(number, answers)| now[number] > *answers);
            check_that(all && now.len() == CLIENTS / 2, format!("{now:?}"))
        };
        wait_until("those on their way are answered", later).await;
        evictors.evicted_count()
    };
    let under = async |from: usize| {
        let evicted = evictors.evicted.borrow()[from..].to_vec();
        witness_saw_all(&witness, &evicted).await;
        witness.lowest(&evicted).unwrap()
    };
    let work = async {
        more(20).await;
        for min_available in [8, 9] {
            let spec = selecting(json!({ "minAvailable": min_available }));
            budgets::put(api, "changing", "crowd", &spec).await.unwrap();
            let from = since().await;
            more(10).await;
            let lowest = under(from).await;
            assert!(lowest >= min_available, "{lowest} pods were healthy, {min_available} are wanted");
        }
        budgets::delete(api, "changing", "crowd").await.unwrap();
        let from = since().await;
        more(30).await;
        let lowest = under(from).await;
        assert!(lowest < 8, "without a budget {lowest} of 10 stayed healthy: it is still felt");
        evictors.stop.set(true);
    };
    let evictions = join_all((0..CLIENTS / 2).map(|number| evictors.evict_until_stopped(number, usize::MAX)));
    let both = futures::future::join(work, evictions);
    beside(futures::future::join(crowd.run_workload(), witness.watch()), both).await;
}

fn target(reason: &str) -> PodCondition {
    serde_json::from_value(json!({
        "type": "DisruptionTarget", "status": "True", "reason": reason, "message": "it should go",
        "lastTransitionTime": k8s_openapi::jiff::Timestamp::now().to_string(),
    }))
    .unwrap()
}

async fn a_condition_of_a_pod_that_does_not_end_is_taken_back(api: &Client) {
    let with = |name: &str, phase: &str, reason: &str| {
        let mut pod = objects::pod("stale", name).on_node("worker").with_phase(phase);
        let conditions = pod.status.get_or_insert_default().conditions.get_or_insert_default();
        conditions.push(target(reason));
        pod
    };
    let began = Instant::now();
    for pod in [
        with("lives-on", "Running", "PreemptionByScheduler"),
        with("by-kubelet", "Running", "TerminationByKubelet"),
        with("ended", "Failed", "PreemptionByScheduler"),
        with("ending", "Running", "PreemptionByScheduler"),
    ] {
        objects::create_pod(api, &pod).await.unwrap();
    }
    observe::delete_pod(api, "stale", "ending", false).await.unwrap();
    let condition = async |name: &str| {
        let pod = observe::find_pod(api, "stale", name).await.unwrap().unwrap();
        let conditions = pod.status.unwrap().conditions.unwrap();
        let condition_now = conditions.into_iter().find(|condition| condition.type_ == "DisruptionTarget").unwrap();
        (condition_now, pod.metadata.generation)
    };
    let taken_back = async || {
        let (condition_now, _) = condition("lives-on").await;
        check_that(condition_now.status == "False", format!("{condition_now:?}"))
    };
    wait_until("the condition is False", taken_back).await;
    // The API server's times have no fractions, and this time is measured from the observation.
    assert!(began.elapsed() >= STALE_AFTER - Duration::from_secs(1), "{:?}", began.elapsed());
    let (condition_now, generation) = condition("lives-on").await;
    assert_eq!((condition_now.reason, condition_now.message), (None, None));
    assert_eq!(condition_now.observed_generation, generation.filter(|_| versions::generations_are_reported()));
    tokio::time::sleep(STALE_AFTER).await;
    for name in ["by-kubelet", "ended", "ending"] {
        let (condition_now, _) = condition(name).await;
        assert_eq!(condition_now.status, "True", "{name}");
    }
}
