//! One process writes at a time, and the next continues where the last stopped.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Taint;
use kube::api::PostParams;
use kube::{Api, Client};
use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::{
    AuditEntry, AuditLog, ControlPlane, PodSafety, SHORT_LEADER_LEASE, check_that, observe, wait_until,
};
use serde_json::json;

/// The lease duration of the short timing.
const LEASE: Duration = Duration::from_secs(3);
/// A standby reads the lease at most every half second, so this is the maximum of its reads while a lease of this many seconds expires, plus
/// one after that.
const fn max_reads(seconds: usize) -> usize {
    2 * seconds + 1
}
/// The log name of the process whose requests are counted.
const STANDBY: &str = "standby";

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

/// A terminating pod, on a node that was wrongly declared out of service.
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
    let gone = async || check_that(phase(api, name).await.is_none(), "it is still there");
    wait_until(&format!("pod {name} is gone"), gone).await;
}

async fn masters(of: &[&PodSafety]) -> Vec<f64> {
    let mut all = Vec::new();
    for one in of {
        all.push(one.metric("leader_election_master_status", &[("name", "pod-safety")]).await.unwrap());
    }
    all
}

/// How many writes to pods it sent.
async fn writes(of: &PodSafety) -> f64 {
    let mut all = 0.0;
    for labels in [[("verb", "patch"), ("resource", "pods/status")], [("verb", "delete"), ("resource", "pods")]] {
        all += of.metric("pod_safety_api_requests_total", &labels).await.unwrap();
    }
    all
}

async fn start(plane: &ControlPlane, name: &str, kubeconfig: &Path, quarantine: &str) -> PodSafety {
    started(plane, name, kubeconfig, &[quarantine]).await
}

/// A process whose death or pause is detected soon.
async fn start_with_short_lease(plane: &ControlPlane, name: &str, kubeconfig: &Path, quarantine: &str) -> PodSafety {
    let args: Vec<_> = [quarantine].into_iter().chain(SHORT_LEADER_LEASE).collect();
    started(plane, name, kubeconfig, &args).await
}

async fn started(plane: &ControlPlane, name: &str, kubeconfig: &Path, args: &[&str]) -> PodSafety {
    // The policies allow only the shipped account to write fencing objects.
    let args = args.iter().copied().chain(["--controllers=*,-fencing"]);
    let mut pod_safety = plane.pod_safety(name, kubeconfig, args).await.unwrap();
    pod_safety.ready().await.unwrap();
    pod_safety
}

/// Two possible leaders: one with the shipped account, and one whose requests are recorded.
struct Fixture {
    plane: ControlPlane,
    kubeconfig: PathBuf,
    recorded: PathBuf,
    audit: AuditLog,
}

impl Fixture {
    async fn start() -> Self {
        let (audit, plane) = ControlPlane::audited(STANDBY).await.unwrap();
        let kubeconfig = plane.install_pod_safety().await.unwrap();
        let recorded = plane.user_kubeconfig(STANDBY, &["system:masters"]).unwrap();
        Self { plane, kubeconfig, recorded, audit }
    }

    fn reads_the_lease_in_its_interval(&self) -> usize {
        self.audit.count("get", "leases", "pod-safety").unwrap()
    }

    /// Its requests since number `from`, up to and including the one that took the lease, and those after it.
    fn writes_nothing_before_and_after_leading(&self, from: usize) -> (Vec<AuditEntry>, Vec<AuditEntry>) {
        let mut before = self.audit.entries().unwrap().split_off(from);
        let takes = |entry: &AuditEntry| entry.matches("patch", "leases", "pod-safety") && entry.code == 200;
        let after = before.split_off(before.iter().position(takes).unwrap() + 1);
        (before, after)
    }

    /// How often it read the node before and after it led: its quarantine had begun as a standby, and continued.
    fn the_new_leader_continued_the_quarantine(&self, from: usize, node: &str, reads_wanted: (usize, usize)) {
        let (before, after) = self.writes_nothing_before_and_after_leading(from);
        let reads = |of: &[AuditEntry]| of.iter().filter(|entry| entry.matches("get", "nodes", node)).count();
        assert_eq!((reads(&before), reads(&after)), reads_wanted, "a quarantine of its own: {before:#?} {after:#?}");
    }
}

#[tokio::test]
async fn a_standby_continues_where_the_leader_stopped() {
    let fixture = Fixture::start().await;
    the_quarantine_survives_and_sigterm_gives_the_lease_back(&fixture).await;
    a_leader_killed_between_patch_and_delete_is_followed_by_one_that_finishes(&fixture).await;
}

async fn the_quarantine_survives_and_sigterm_gives_the_lease_back(fixture: &Fixture) {
    const QUARANTINE: Duration = Duration::from_secs(10);
    let (plane, api) = (&fixture.plane, &fixture.plane.admin());
    let mut first = start(plane, "first", &fixture.kubeconfig, "--pod-gc-quarantine=10s").await;
    first.is_leader().await.unwrap();
    let mut second = start(plane, "second", &fixture.recorded, "--pod-gc-quarantine=10s").await;
    // It is ready when its watches are synced, which may be before its first read of the lease.
    let stands_by = async || check_that(second.log_text().contains("leads; this process stands by"), second.log_text());
    wait_until("the second process finds the lease held", stands_by).await;
    assert_eq!(masters(&[&first, &second]).await, [1.0, 0.0]);

    let began = Instant::now();
    orphan(api, "survivor").await;
    let read = async || {
        let reads = fixture.audit.count("get", "nodes", "node-of-survivor").map_err(|error| error.to_string())?;
        check_that(reads > 0, "it did not".to_owned())
    };
    wait_until("the standby looks for the node", read).await;
    let status = first.terminate().await.unwrap();
    let looks = fixture.reads_the_lease_in_its_interval();
    let released = lease(api).await;
    assert_eq!(status.code(), Some(0), "{}", first.log_text());
    let spec = released.spec.clone().unwrap();
    let taken = !holder(&released).is_empty() && spec.lease_transitions == Some(1);
    assert!(taken || (holder(&released).is_empty() && spec.lease_duration_seconds == Some(1)), "{released:?}");
    second.is_leader().await.unwrap();
    let (before, _) = fixture.writes_nothing_before_and_after_leading(0);
    let all = before.iter().filter(|entry| entry.matches("get", "leases", "pod-safety")).count();
    // One read may have been in flight.
    assert!(all <= looks + 2, "it was free, and {} looks passed", all - looks);
    assert!(first.log_text().contains("stopped"), "{}", first.log_text());

    until_gone(api, "survivor").await;
    let took = began.elapsed();
    assert!(took >= 2 * QUARANTINE, "{took:?}");
    // The first read of the standby; then the one before the graceful deletion, and the two of the quarantine after it.
    fixture.the_new_leader_continued_the_quarantine(0, "node-of-survivor", (1, 3));
    assert_eq!(second.terminate().await.unwrap().code(), Some(0));
}

async fn a_leader_killed_between_patch_and_delete_is_followed_by_one_that_finishes(fixture: &Fixture) {
    let (plane, api) = (&fixture.plane, &fixture.plane.admin());
    let from = fixture.audit.entries().unwrap().len();
    let relay = plane.relay("road-of-the-leader", &fixture.kubeconfig).await.unwrap();
    let mut leader = start_with_short_lease(plane, "leader", relay.kubeconfig(), "--pod-gc-quarantine=8s").await;
    leader.is_leader().await.unwrap();
    let mut standby = start_with_short_lease(plane, "standby", &fixture.recorded, "--pod-gc-quarantine=8s").await;
    orphan(api, "half-done").await;
    let deletion = async || {
        let pod = observe::find_pod(api, "default", "half-done").await.map_err(|error| error.to_string())?;
        check_that(pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()), "it is not deleted".to_owned())
    };
    wait_until("the pod is deleted gracefully", deletion).await;
    relay.hold("DELETE /api/v1/namespaces/default/pods/");
    let marked = async || check_that(phase(api, "half-done").await.as_deref() == Some("Failed"), "not marked");
    wait_until("the leader has marked the pod", marked).await;
    wait_until("its deletion is on its way", async || check_that(relay.waiting() > 0, "nothing waits")).await;

    leader.kill_9().unwrap();
    until_gone(api, "half-done").await;
    // The first reads before the graceful deletion and after it, by the standby; the last one by the new leader.
    fixture.the_new_leader_continued_the_quarantine(from, "node-of-half-done", (2, 1));
    let counted = standby.metric("pod_safety_force_deletes_total", &[("evidence", "NodeGone")]).await.unwrap();
    assert_eq!(counted, 1.0);
    // The dead leader's delayed deletion arrives at a new pod of that name.
    let again = objects::pod("default", "half-done").with_phase("Running");
    let again = objects::create_pod(api, &again).await.unwrap();
    relay.open();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let existing = observe::find_pod(api, "default", "half-done").await.unwrap().unwrap();
    assert_eq!(existing, again);
    standby.terminate().await.unwrap();
}

#[tokio::test]
async fn a_process_that_lost_the_lease_does_not_write() {
    let fixture = Fixture::start().await;
    let mut pod_safety = a_process_waits_for_a_lease_held_by_another(&fixture).await;
    pod_safety.terminate().await.unwrap();
    let Fixture { plane, kubeconfig, .. } = &fixture;
    an_outage_longer_than_the_renew_deadline_ends_the_term(plane, kubeconfig).await;
    a_leader_paused_beyond_its_lease_writes_nothing(plane, kubeconfig).await;
}

async fn a_process_waits_for_a_lease_held_by_another(fixture: &Fixture) -> PodSafety {
    let (plane, api) = (&fixture.plane, &fixture.plane.admin());
    let foreign: Lease = serde_json::from_value(json!({
        "metadata": { "name": "pod-safety", "namespace": "kube-system" },
        // Its times are in the past by its own clock: times of other clocks are not used.
        "spec": {
            "holderIdentity": "another-program_7", "leaseDurationSeconds": 5, "leaseTransitions": 41,
            "acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": "2020-01-01T00:00:00.000000Z",
        },
    }))
    .unwrap();
    Api::namespaced(api.clone(), "kube-system").create(&PostParams::default(), &foreign).await.unwrap();
    a_hold(api).await;
    let began = Instant::now();
    let mut pod_safety = start(plane, "patient", &fixture.recorded, "--pod-gc-quarantine=3s").await;
    let held = async || check_that(!pod_safety.holds("held").await.unwrap().is_empty(), "not held");
    wait_until("a standby holds", held).await;
    assert!(observe::events(api, "default", "held", "ForceDeleteHeld").await.unwrap().is_empty());
    pod_safety.is_leader().await.unwrap();
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(5), "it took the lease after {took:?}");
    let (before, _) = fixture.writes_nothing_before_and_after_leading(0);
    let all = before.iter().filter(|entry| entry.matches("get", "leases", "pod-safety")).count();
    assert!(all <= max_reads(5) + 1, "it waited for longer than the lease lasted: {all} looks");
    let log = pod_safety.log_text();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("another-program_7 leads")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    let taken = lease(api).await;
    assert_eq!(taken.spec.as_ref().and_then(|spec| spec.lease_transitions), Some(42));
    assert_ne!(holder(&taken), "another-program_7");
    // Its hold from before it led was not recorded yet.
    observe::event(api, "default", "held", "ForceDeleteHeld").await.unwrap();
    observe::delete_pod(api, "default", "held", true).await.unwrap();
    pod_safety
}

async fn an_outage_longer_than_the_renew_deadline_ends_the_term(plane: &ControlPlane, kubeconfig: &Path) {
    let api = &plane.admin();
    let relay = plane.relay("road-to-cut", kubeconfig).await.unwrap();
    let mut isolated = start_with_short_lease(plane, "isolated", relay.kubeconfig(), "--pod-gc-quarantine=6s").await;
    isolated.is_leader().await.unwrap();
    let mut other = start_with_short_lease(plane, "other", kubeconfig, "--pod-gc-quarantine=6s").await;
    orphan(api, "cut-off").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    relay.cut_connections();
    let steps_down = async || check_that(masters(&[&isolated]).await == [0.0], "it leads");
    wait_until("the isolated leader steps down", steps_down).await;
    assert!(isolated.log_text().contains("could not be renewed in time; stops writing"));
    other.is_leader().await.unwrap();
    until_gone(api, "cut-off").await;
    relay.open();
    tokio::time::sleep(LEASE).await;
    assert_eq!(masters(&[&isolated, &other]).await, [0.0, 1.0]);
    assert_eq!(writes(&isolated).await, 0.0);
    assert_eq!(writes(&other).await, 4.0, "it was deleted gracefully, and then by force");
    isolated.terminate().await.unwrap();
    other.terminate().await.unwrap();
}

async fn a_leader_paused_beyond_its_lease_writes_nothing(plane: &ControlPlane, kubeconfig: &Path) {
    let api = &plane.admin();
    let mut sleeper = start_with_short_lease(plane, "sleeper", kubeconfig, "--pod-gc-quarantine=6s").await;
    sleeper.is_leader().await.unwrap();
    // The next leader cannot finish the work, so that there is still work for the old one when it resumes.
    let relay = plane.relay("road-of-the-next", kubeconfig).await.unwrap();
    relay.hold("PATCH /api/v1/namespaces/default/pods/");
    let mut next = start_with_short_lease(plane, "next", relay.kubeconfig(), "--pod-gc-quarantine=6s").await;
    orphan(api, "tempting").await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    sleeper.pause().unwrap();
    next.is_leader().await.unwrap();
    // By then the quarantine is over.
    tokio::time::sleep(LEASE * 2).await;
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
    next.terminate().await.unwrap();
}
