//! Nodes that report and are unhealthy: a scripted node-problem-detector writes a condition, and what follows is drained,
//! switched off, proved and brought back; and a kubelet that plays sick.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use pod_safety_control_plane::rigs::Rigs;
use pod_safety_control_plane::{
    AuditLog, Component, ControlPlane, PodSafety, check_that, observe, until, workloads,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::machine::Machine;
use super::{
    ACCOUNT, NAMESPACE, apply, granted_and_used, incidents, kubelets, leader_beside, node_fence_of, policy,
    spare_machines, switch_log, until_phase,
};

const UNHEALTHY: &str = "sick";
/// How long the condition must last, as the policy says.
const LASTS: u64 = 10;

struct Fixture {
    plane: ControlPlane,
    audit: AuditLog,
    _pod_safety: PodSafety,
    unhealthy: Arc<Machine>,
    lost: Arc<Machine>,
    _kcm: [Component; 2],
    _kubelets: JoinSet<()>,
    /// It has the files that are switched.
    _rigs: Rigs,
}

fn policy_of(node: &str) -> Value {
    let mut policy = policy(node, node, node);
    policy["spec"]["when"] = json!("Always");
    policy["spec"]["brakes"]["collateralSeconds"] = json!(0);
    policy["spec"]["unhealthy"] = json!({
        "silentSeconds": 10, "drainSeconds": 30,
        "conditions": [{ "type": "KernelDeadlock", "status": "True", "seconds": LASTS }],
    });
    policy
}

async fn fixture() -> Fixture {
    let rigs = Rigs::new().await.unwrap();
    let (audit, plane) = ControlPlane::audited(ACCOUNT).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    plane.namespace(NAMESPACE).await.unwrap();
    let (sick, lost) = (switch_log(&plane, &rigs, UNHEALTHY).await, switch_log(&plane, &rigs, "lost").await);
    for node in [UNHEALTHY, "lost"] {
        apply(&plane, &policy_of(node)).await;
    }
    let kubelets = kubelets(&plane, spare_machines().iter().chain([&sick, &lost]));
    let (theirs, ours) =
        leader_beside(&plane, &kubeconfig, "statefulset-controller,disruption-controller", &rigs).await;
    Fixture {
        plane,
        audit,
        _pod_safety: ours,
        unhealthy: sick,
        lost,
        _kcm: theirs,
        _kubelets: kubelets,
        _rigs: rigs,
    }
}

impl Fixture {
    /// What node-problem-detector does.
    async fn detects(&self, node: &str, status: &str) {
        let condition =
            json!({ "type": "KernelDeadlock", "status": status, "reason": "Test", "message": "m" });
        let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
        let nodes = Api::<Node>::all(self.plane.admin());
        nodes.patch_status(node, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn is_cordoned(&self) -> bool {
        let node = Api::<Node>::all(self.plane.admin()).get(UNHEALTHY).await.unwrap();
        node.spec.unwrap().unschedulable == Some(true)
    }

    /// Where it runs, and its UID.
    async fn until_runs(&self, pod: &str, fits: impl Fn(&str, &str) -> bool) -> (String, String) {
        until(&format!("{pod} runs where it should"), async || {
            let pod = observe::find_pod(&self.plane.admin(), NAMESPACE, pod).await.unwrap();
            match pod.as_ref().and_then(observe::is_running) {
                Some((node, uid)) if fits(&node, &uid) => Ok((node, uid)),
                other => Err(format!("{other:?}: {:#?}", incidents(&self.plane).await)),
            }
        })
        .await
        .unwrap()
    }

    /// How often the machine was ordered off, over all incidents.
    async fn power_offs(&self, node: &str) -> usize {
        let fences = self.plane.list("nodefences").await.unwrap();
        let of_it = fences.iter().filter(|fence| fence["spec"]["node"]["name"] == node);
        let attempts =
            of_it.flat_map(|fence| fence["status"]["attempts"].as_array().cloned().unwrap_or_default());
        attempts.filter(|attempt| attempt["act"] == "off").count()
    }

    async fn until_repeated(&self) -> Value {
        until("the next incident is held", async || {
            let fences = self.plane.list("nodefences").await.unwrap();
            let held = fences.into_iter().find(|fence| {
                let mut gates = fence["status"]["gates"].as_array().into_iter().flatten();
                let boot = pod_safety_control_plane::objects::boot_id(UNHEALTHY, self.unhealthy.boots());
                fence["spec"]["node"]["bootID"] == json!(boot)
                    && gates.any(|gate| gate["name"] == "Repeated" && gate["holds"] == true)
            });
            held.ok_or_else(|| "no gate Repeated".to_owned())
        })
        .await
        .unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_an_unhealthy_condition_is_drained_fenced_and_recovered_once() {
    let scene = fixture().await;
    for name in ["web", "db"] {
        apply(&scene.plane, &workloads::stateful_set_near(NAMESPACE, name, UNHEALTHY)).await;
    }
    let budget = json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "namespace": NAMESPACE, "name": "db" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "workload": "db" } } } });
    apply(&scene.plane, &budget).await;
    let (_, db) = scene.until_runs("db-0", |node, _| node == UNHEALTHY).await;
    let (_, web) = scene.until_runs("web-0", |node, _| node == UNHEALTHY).await;
    a_condition_that_clears_in_time_starts_no_incident(&scene).await;

    scene.detects(UNHEALTHY, "True").await;
    // What its budget allows ends in good order, while the node runs.
    scene.until_runs("web-0", |node, uid| node != UNHEALTHY && uid != web).await;
    // What it does not allow is fenced with the machine, and released by the evidence.
    scene.until_runs("db-0", |node, uid| node != UNHEALTHY && uid != db).await;
    let fence = until_phase(&scene.plane, UNHEALTHY, "Done").await;
    let trigger = &fence["spec"]["trigger"];
    assert_eq!(trigger["kind"], "Unhealthy", "{fence:#}");
    assert_eq!(trigger["condition"], json!({ "type": "KernelDeadlock", "status": "True" }));
    let drain = &fence["status"]["drain"];
    assert!(drain["message"].as_str().unwrap().contains("shop/db-0"), "{drain}");
    assert_eq!((scene.unhealthy.boots(), scene.unhealthy.has_power()), (2, true));
    assert!(!scene.is_cordoned().await, "it was cordoned for the drain alone");
    evictions_precede_power_off_and_power_off_precedes_evidence(&scene, &db).await;
    a_node_still_unhealthy_after_fencing_is_not_fenced_again(&scene).await;
    let (granted, used) =
        granted_and_used(&scene.plane, &scene.audit, &[&["clusterrole", "pod-safety-drain"]]).await;
    assert!(granted.is_subset(&used), "a right is not needed: {granted:?}, {used:?}");
}

async fn a_condition_that_clears_in_time_starts_no_incident(scene: &Fixture) {
    scene.detects(UNHEALTHY, "True").await;
    scene.detects(UNHEALTHY, "False").await;
    tokio::time::sleep(Duration::from_secs(LASTS + 2)).await;
    assert_eq!(scene.plane.list("nodefences").await.unwrap(), Vec::<Value>::new());
    assert!(!scene.is_cordoned().await);
}

/// By the audit log: both pods were evicted before anything was switched, and only the one that stayed was removed.
async fn evictions_precede_power_off_and_power_off_precedes_evidence(scene: &Fixture, db: &str) {
    let entries = scene.audit.entries().unwrap();
    let first = |what: &str, verb: &str, name: &str| {
        let of_it = |entry: &&pod_safety_control_plane::AuditEntry| entry.matches(verb, what, name);
        entries.iter().position(|entry| of_it(&entry)).unwrap_or_else(|| panic!("no {verb} of {what} {name}"))
    };
    let evidence =
        entries.iter().position(|entry| entry.resource == "fenceevidences" && entry.verb == "create");
    let removed = first("pods", "delete", "db-0");
    assert!(first("pods/eviction", "create", "web-0") < evidence.unwrap());
    assert!(evidence.unwrap() < removed, "{db} was removed without evidence");
    assert!(!entries.iter().any(|entry| entry.matches("delete", "pods", "web-0")), "its kubelet ended it");
}

/// The detector still says so after the boot.
async fn a_node_still_unhealthy_after_fencing_is_not_fenced_again(scene: &Fixture) {
    let held = scene.until_repeated().await;
    assert_eq!(held["status"]["phase"], "Pending");
    let said = observe::event(&scene.plane.admin(), "default", UNHEALTHY, "FencingHeld").await.unwrap();
    assert!(said.contains("powering it off and on did not cure it"), "{said}");
    assert_eq!((scene.power_offs(UNHEALTHY).await, scene.unhealthy.boots()), (1, 2));
    scene.detects(UNHEALTHY, "False").await;
    until("it is called off", async || {
        let fences = scene.plane.list("nodefences").await.unwrap();
        let name = &held["metadata"]["name"];
        let phase =
            fences.iter().find(|fence| fence["metadata"]["name"] == *name).map(|one| &one["status"]["phase"]);
        check_that(phase == Some(&json!("Cancelled")), format!("{phase:?}"))
    })
    .await
    .unwrap();
}

/// A kubelet may write the conditions and the boot ID of its own Node as it likes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attack_false_unhealthy_conditions_are_limited_by_the_gates() {
    let scene = fixture().await;
    scene.detects(UNHEALTHY, "True").await;
    until_phase(&scene.plane, UNHEALTHY, "Done").await;
    for _boot in 0..3 {
        scene.unhealthy.reboot();
        scene.detects(UNHEALTHY, "False").await;
        scene.detects(UNHEALTHY, "True").await;
        scene.until_repeated().await;
    }
    assert_eq!(scene.power_offs(UNHEALTHY).await, 1);
    // Nor does it keep a node that is lost waiting.
    scene.lost.cut_off().await;
    until_phase(&scene.plane, "lost", "Done").await;
    assert_eq!(node_fence_of(&scene.plane, "lost").await.unwrap()["spec"]["trigger"]["kind"], "Detected");
    assert_eq!((scene.power_offs(UNHEALTHY).await, scene.unhealthy.has_power()), (1, true));
    let proofs = scene.plane.list("fenceevidences").await.unwrap();
    assert_eq!(proofs.len(), 2, "one for each that was off: {proofs:#?}");
}
