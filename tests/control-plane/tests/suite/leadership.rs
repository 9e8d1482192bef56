//! One process writes at a time, and the next goes on where the last stopped.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]
#![expect(clippy::unwrap_used, reason = "scenarios may fail as loudly as the test that runs them")]

use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Taint;
use kube::api::PostParams;
use kube::{Api, Client};
use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::{ControlPlane, Options, PodSafety, eventually, observe, seen};
use serde_json::json;

const SOON: Duration = Duration::from_secs(20);
/// The harness's own timing of leases.
const LEASE: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(500);
/// What a busy machine adds.
const SLACK: Duration = Duration::from_secs(2);

async fn lease(api: &Client) -> Lease {
    Api::namespaced(api.clone(), "kube-system").get("pod-safety").await.unwrap()
}

fn holder(lease: &Lease) -> String {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default()
}

async fn orphan(api: &Client, name: &str) {
    let node = format!("node-of-{name}");
    objects::create_node(api, &objects::node(&node)).await.unwrap();
    let pod = objects::pod("default", name).on_node(&node).with_phase("Running");
    objects::create_pod(api, &pod).await.unwrap();
    observe::delete_node(api, &node).await.unwrap();
}

/// A pod that ends, on a node that somebody wrongly declared out of service.
async fn a_hold(api: &Client) {
    let mut node = objects::node("tainted");
    let key = "node.kubernetes.io/out-of-service".to_owned();
    let taint = Taint { key, effect: "NoExecute".to_owned(), ..Taint::default() };
    node.spec.get_or_insert_default().taints = Some(vec![taint]);
    objects::create_node(api, &node).await.unwrap();
    let pod = objects::pod("default", "held").on_node("tainted").with_phase("Running");
    objects::create_pod(api, &pod).await.unwrap();
    observe::delete_pod(api, "default", "held", false).await.unwrap();
}

async fn phase(api: &Client, name: &str) -> Option<String> {
    observe::find_pod(api, "default", name).await.unwrap().map(|pod| pod.status.unwrap().phase.unwrap())
}

async fn until_gone(api: &Client, name: &str) {
    let gone = async || seen(phase(api, name).await.is_none(), "it is still there");
    eventually(&format!("pod {name} is gone"), SOON, gone).await.unwrap();
}

async fn masters(of: &[&PodSafety]) -> Vec<f64> {
    let mut all = Vec::new();
    for one in of {
        all.push(one.metric("leader_election_master_status", &[("name", "pod-safety")]).await.unwrap());
    }
    all
}

/// How many writes it sent that touch pods.
async fn writes(of: &PodSafety) -> f64 {
    let mut all = 0.0;
    for labels in
        [[("verb", "patch"), ("resource", "pods/status")], [("verb", "delete"), ("resource", "pods")]]
    {
        all += of.metric("pod_safety_api_requests_total", &labels).await.unwrap();
    }
    all
}

async fn start(plane: &ControlPlane, name: &str, kubeconfig: &Path, quarantine: &str) -> PodSafety {
    let mut ours = plane.pod_safety(name, kubeconfig, [quarantine]).await.unwrap();
    ours.ready().await.unwrap();
    ours
}

#[tokio::test]
async fn a_standby_goes_on_where_the_leader_stopped() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    the_quarantine_survives_and_sigterm_gives_the_lease_back(&plane, &kubeconfig).await;
    a_leader_killed_between_patch_and_delete_is_followed_by_one_that_finishes(&plane, &kubeconfig).await;
}

async fn the_quarantine_survives_and_sigterm_gives_the_lease_back(plane: &ControlPlane, kubeconfig: &Path) {
    const QUARANTINE: Duration = Duration::from_secs(6);
    let api = &plane.admin();
    let mut first = start(plane, "first", kubeconfig, "--pod-gc-quarantine=6s").await;
    first.leads().await.unwrap();
    let mut second = start(plane, "second", kubeconfig, "--pod-gc-quarantine=6s").await;
    assert_eq!(masters(&[&first, &second]).await, [1.0, 0.0]);
    assert!(second.log_text().contains("leads; this process stands by"), "{}", second.log_text());

    let began = Instant::now();
    orphan(api, "survivor").await;
    tokio::time::sleep(QUARANTINE / 2).await;
    let status = first.terminate(SOON).await.unwrap();
    let released = lease(api).await;
    assert_eq!(status.code(), Some(0), "{}", first.log_text());
    let spec = released.spec.clone().unwrap();
    let taken = !holder(&released).is_empty() && spec.lease_transitions == Some(1);
    assert!(
        taken || (holder(&released).is_empty() && spec.lease_duration_seconds == Some(1)),
        "{released:?}"
    );
    let handed = Instant::now();
    second.leads().await.unwrap();
    assert!(handed.elapsed() < RETRY * 2 + SLACK / 2, "{:?}", handed.elapsed());
    assert!(first.log_text().contains("stopped"), "{}", first.log_text());

    until_gone(api, "survivor").await;
    let took = began.elapsed();
    assert!(took >= QUARANTINE, "{took:?}");
    assert!(took < QUARANTINE + SLACK, "a quarantine of its own: {took:?}");
    assert_eq!(second.terminate(SOON).await.unwrap().code(), Some(0));
}

async fn a_leader_killed_between_patch_and_delete_is_followed_by_one_that_finishes(
    plane: &ControlPlane,
    kubeconfig: &Path,
) {
    const QUARANTINE: Duration = Duration::from_secs(8);
    let api = &plane.admin();
    let relay = plane.relay("road-of-the-leader", kubeconfig).await.unwrap();
    let mut leader = start(plane, "leader", relay.kubeconfig(), "--pod-gc-quarantine=8s").await;
    leader.leads().await.unwrap();
    let mut standby = start(plane, "standby", kubeconfig, "--pod-gc-quarantine=8s").await;
    relay.hold("DELETE /api/v1/namespaces/default/pods/");
    orphan(api, "half-done").await;
    let marked = async || seen(phase(api, "half-done").await.as_deref() == Some("Failed"), "not marked");
    eventually("the leader has marked the pod", SOON, marked).await.unwrap();
    eventually("its deletion is on its way", SOON, async || seen(relay.waiting() > 0, "nothing waits"))
        .await
        .unwrap();

    leader.kill_9().unwrap();
    let killed = Instant::now();
    until_gone(api, "half-done").await;
    let took = killed.elapsed();
    assert!(took < LEASE + RETRY * 2 + SLACK, "{took:?} is another quarantine of {QUARANTINE:?}");
    let counted = standby.metric("pod_safety_releases_total", &[("evidence", "NodeGone")]).await.unwrap();
    assert_eq!(counted, 1.0);
    // The dead leader's deletion arrives after all, at a new pod of that name.
    let again = objects::pod("default", "half-done").with_phase("Running");
    let again = objects::create_pod(api, &again).await.unwrap();
    relay.open();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let found = observe::find_pod(api, "default", "half-done").await.unwrap().unwrap();
    assert_eq!(found, again);
    standby.terminate(SOON).await.unwrap();
}

#[tokio::test]
async fn whoever_lost_the_lease_does_not_write() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    let mut ours = a_lease_of_somebody_else_is_waited_for(&plane, &kubeconfig).await;
    ours.terminate(SOON).await.unwrap();
    an_outage_longer_than_the_renew_deadline_ends_the_term(&plane, &kubeconfig).await;
    a_leader_that_slept_through_its_term_notices_before_it_writes(&plane, &kubeconfig).await;
}

async fn a_lease_of_somebody_else_is_waited_for(plane: &ControlPlane, kubeconfig: &Path) -> PodSafety {
    let api = &plane.admin();
    let foreign: Lease = serde_json::from_value(json!({
        "metadata": { "name": "pod-safety", "namespace": "kube-system" },
        // Its times lie in the past, by its own clock: nobody else's times are believed.
        "spec": {
            "holderIdentity": "another-program_7", "leaseDurationSeconds": 5, "leaseTransitions": 41,
            "acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": "2020-01-01T00:00:00.000000Z",
        },
    }))
    .unwrap();
    Api::namespaced(api.clone(), "kube-system").create(&PostParams::default(), &foreign).await.unwrap();
    a_hold(api).await;
    let began = Instant::now();
    let mut ours = start(plane, "patient", kubeconfig, "--pod-gc-quarantine=3s").await;
    let held = async || seen(!ours.holds("held").await.unwrap().is_empty(), "not held");
    eventually("a standby holds", SOON, held).await.unwrap();
    assert!(observe::events(api, "default", "held", "ForceDeleteHeld").await.unwrap().is_empty());
    ours.leads().await.unwrap();
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(5), "it took the lease after {took:?}");
    assert!(took < Duration::from_secs(5) + RETRY * 2 + SLACK, "{took:?}");
    let log = ours.log_text();
    let said: Vec<&str> = log.lines().filter(|line| line.contains("another-program_7 leads")).collect();
    assert_eq!(said.len(), 1, "{log}");
    let taken = lease(api).await;
    assert_eq!(taken.spec.as_ref().and_then(|spec| spec.lease_transitions), Some(42));
    assert_ne!(holder(&taken), "another-program_7");
    // What it held before it led was news to nobody but itself.
    observe::event(api, "default", "held", "ForceDeleteHeld").await.unwrap();
    observe::delete_pod(api, "default", "held", true).await.unwrap();
    ours
}

async fn an_outage_longer_than_the_renew_deadline_ends_the_term(plane: &ControlPlane, kubeconfig: &Path) {
    let api = &plane.admin();
    let relay = plane.relay("road-to-cut", kubeconfig).await.unwrap();
    let mut isolated = start(plane, "isolated", relay.kubeconfig(), "--pod-gc-quarantine=3s").await;
    isolated.leads().await.unwrap();
    let mut other = start(plane, "other", kubeconfig, "--pod-gc-quarantine=3s").await;
    orphan(api, "cut-off").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    relay.cut();
    let steps_down = async || seen(masters(&[&isolated]).await == [0.0], "it leads");
    eventually("the isolated leader steps down", LEASE + SLACK, steps_down).await.unwrap();
    assert!(isolated.log_text().contains("could not be renewed in time; stops writing"));
    other.leads().await.unwrap();
    until_gone(api, "cut-off").await;
    relay.open();
    tokio::time::sleep(LEASE).await;
    assert_eq!(masters(&[&isolated, &other]).await, [0.0, 1.0]);
    assert_eq!(writes(&isolated).await, 0.0);
    assert_eq!(writes(&other).await, 2.0);
    isolated.terminate(SOON).await.unwrap();
    other.terminate(SOON).await.unwrap();
}

async fn a_leader_that_slept_through_its_term_notices_before_it_writes(
    plane: &ControlPlane,
    kubeconfig: &Path,
) {
    let api = &plane.admin();
    let mut sleeper = start(plane, "sleeper", kubeconfig, "--pod-gc-quarantine=3s").await;
    sleeper.leads().await.unwrap();
    // The next leader cannot finish the work, so that it still tempts the old one when that wakes up.
    let relay = plane.relay("road-of-the-next", kubeconfig).await.unwrap();
    relay.hold("PATCH /api/v1/namespaces/default/pods/");
    let mut next = start(plane, "next", relay.kubeconfig(), "--pod-gc-quarantine=3s").await;
    orphan(api, "tempting").await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    sleeper.pause().unwrap();
    next.leads().await.unwrap();
    tokio::time::sleep(LEASE).await;
    sleeper.resume().unwrap();
    tokio::time::sleep(LEASE).await;
    assert_eq!(phase(api, "tempting").await.as_deref(), Some("Running"));
    assert_eq!(writes(&sleeper).await, 0.0);
    assert_eq!(masters(&[&sleeper, &next]).await, [0.0, 1.0]);
    let log = sleeper.log_text();
    assert!(log.contains("stops writing"), "{log}");
    relay.open();
    until_gone(api, "tempting").await;
    assert_eq!(writes(&sleeper).await, 0.0);
    next.terminate(SOON).await.unwrap();
}
