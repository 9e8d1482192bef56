//! Nodes that report and are unhealthy: a scripted node-problem-detector writes a condition, and what follows is drained,
//! switched off, proved and brought back; and a kubelet that plays sick.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use pod_safety_control_plane::rigs::Rigs;
use pod_safety_control_plane::{
    AuditLog, Component, ControlPlane, PodSafety, observe, seen, until, workloads,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::machine::Machine;
use super::{
    ACCOUNT, NAMESPACE, apply, fence_of, granted_and_used, incidents, kubelets, leader_beside, policy,
    spares, switched, until_phase,
};

const SICK: &str = "sick";
/// How long the condition must last, as the policy says.
const LASTS: u64 = 10;

struct Scene {
    plane: ControlPlane,
    audit: AuditLog,
    _ours: PodSafety,
    sick: Arc<Machine>,
    lost: Arc<Machine>,
    _theirs: [Component; 2],
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

async fn scene() -> Scene {
    let rigs = Rigs::new().await.unwrap();
    let (audit, plane) = ControlPlane::audited(ACCOUNT).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    plane.namespace(NAMESPACE).await.unwrap();
    let (sick, lost) = (switched(&plane, &rigs, SICK).await, switched(&plane, &rigs, "lost").await);
    for node in [SICK, "lost"] {
        apply(&plane, &policy_of(node)).await;
    }
    let kubelets = kubelets(&plane, spares().iter().chain([&sick, &lost]));
    let (theirs, ours) =
        leader_beside(&plane, &kubeconfig, "statefulset-controller,disruption-controller", &rigs).await;
    Scene { plane, audit, _ours: ours, sick, lost, _theirs: theirs, _kubelets: kubelets, _rigs: rigs }
}

impl Scene {
    /// What node-problem-detector does.
    async fn detects(&self, node: &str, status: &str) {
        let condition =
            json!({ "type": "KernelDeadlock", "status": status, "reason": "Test", "message": "m" });
        let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
        let nodes = Api::<Node>::all(self.plane.admin());
        nodes.patch_status(node, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn is_cordoned(&self) -> bool {
        let node = Api::<Node>::all(self.plane.admin()).get(SICK).await.unwrap();
        node.spec.unwrap().unschedulable == Some(true)
    }

    /// Where it runs, and its UID.
    async fn until_runs(&self, pod: &str, fits: impl Fn(&str, &str) -> bool) -> (String, String) {
        until(&format!("{pod} runs where it should"), async || {
            let pod = observe::find_pod(&self.plane.admin(), NAMESPACE, pod).await.unwrap();
            match pod.as_ref().and_then(observe::runs) {
                Some((node, uid)) if fits(&node, &uid) => Ok((node, uid)),
                other => Err(format!("{other:?}: {:#?}", incidents(&self.plane).await)),
            }
        })
        .await
        .unwrap()
    }

    /// How often the machine was ordered off, over all incidents.
    async fn shots(&self, node: &str) -> usize {
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
                let boot = pod_safety_control_plane::objects::boot_id(SICK, self.sick.boots());
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
async fn a_node_that_shows_a_condition_is_drained_fenced_with_proof_and_brought_back_once() {
    let scene = scene().await;
    for name in ["web", "db"] {
        apply(&scene.plane, &workloads::stateful_set_near(NAMESPACE, name, SICK)).await;
    }
    let budget = json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "namespace": NAMESPACE, "name": "db" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "workload": "db" } } } });
    apply(&scene.plane, &budget).await;
    let (_, db) = scene.until_runs("db-0", |node, _| node == SICK).await;
    let (_, web) = scene.until_runs("web-0", |node, _| node == SICK).await;
    a_condition_that_clears_in_time_begins_nothing(&scene).await;

    scene.detects(SICK, "True").await;
    // What its budget allows ends in good order, while the node runs.
    scene.until_runs("web-0", |node, uid| node != SICK && uid != web).await;
    // What it does not allow is fenced with the machine, and released by the evidence.
    scene.until_runs("db-0", |node, uid| node != SICK && uid != db).await;
    let fence = until_phase(&scene.plane, SICK, "Done").await;
    let trigger = &fence["spec"]["trigger"];
    assert_eq!(trigger["kind"], "Unhealthy", "{fence:#}");
    assert_eq!(trigger["condition"], json!({ "type": "KernelDeadlock", "status": "True" }));
    let drain = &fence["status"]["drain"];
    assert!(drain["message"].as_str().unwrap().contains("shop/db-0"), "{drain}");
    assert_eq!((scene.sick.boots(), scene.sick.has_power()), (2, true));
    assert!(!scene.is_cordoned().await, "it was cordoned for the drain alone");
    the_order_is_evictions_then_off_then_evidence(&scene, &db).await;
    it_is_not_fenced_again_for_what_that_did_not_cure(&scene).await;
    let (granted, used) =
        granted_and_used(&scene.plane, &scene.audit, &[&["clusterrole", "pod-safety-drain"]]).await;
    assert!(granted.is_subset(&used), "a right is not needed: {granted:?}, {used:?}");
}

async fn a_condition_that_clears_in_time_begins_nothing(scene: &Scene) {
    scene.detects(SICK, "True").await;
    scene.detects(SICK, "False").await;
    tokio::time::sleep(Duration::from_secs(LASTS + 2)).await;
    assert_eq!(scene.plane.list("nodefences").await.unwrap(), Vec::<Value>::new());
    assert!(!scene.is_cordoned().await);
}

/// By the audit log: both pods were evicted before anything was switched, and only the one that stayed was removed.
async fn the_order_is_evictions_then_off_then_evidence(scene: &Scene, db: &str) {
    let entries = scene.audit.entries().unwrap();
    let first = |what: &str, verb: &str, name: &str| {
        let of_it = |entry: &&pod_safety_control_plane::AuditEntry| entry.is(verb, what, name);
        entries.iter().position(|entry| of_it(&entry)).unwrap_or_else(|| panic!("no {verb} of {what} {name}"))
    };
    let evidence =
        entries.iter().position(|entry| entry.resource == "fenceevidences" && entry.verb == "create");
    let removed = first("pods", "delete", "db-0");
    assert!(first("pods/eviction", "create", "web-0") < evidence.unwrap());
    assert!(evidence.unwrap() < removed, "{db} was removed without evidence");
    assert!(!entries.iter().any(|entry| entry.is("delete", "pods", "web-0")), "its kubelet ended it");
}

/// The detector still says so after the boot.
async fn it_is_not_fenced_again_for_what_that_did_not_cure(scene: &Scene) {
    let held = scene.until_repeated().await;
    assert_eq!(held["status"]["phase"], "Pending");
    let said = observe::event(&scene.plane.admin(), "default", SICK, "FencingHeld").await.unwrap();
    assert!(said.contains("powering it off and on did not cure it"), "{said}");
    assert_eq!((scene.shots(SICK).await, scene.sick.boots()), (1, 2));
    scene.detects(SICK, "False").await;
    until("it is called off", async || {
        let fences = scene.plane.list("nodefences").await.unwrap();
        let name = &held["metadata"]["name"];
        let phase =
            fences.iter().find(|fence| fence["metadata"]["name"] == *name).map(|one| &one["status"]["phase"]);
        seen(phase == Some(&json!("Cancelled")), format!("{phase:?}"))
    })
    .await
    .unwrap();
}

/// A kubelet may write the conditions and the boot ID of its own Node as it likes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attack_a_kubelet_that_plays_sick_gets_no_more_than_the_brakes_allow() {
    let scene = scene().await;
    scene.detects(SICK, "True").await;
    until_phase(&scene.plane, SICK, "Done").await;
    for _boot in 0..3 {
        scene.sick.reboot();
        scene.detects(SICK, "False").await;
        scene.detects(SICK, "True").await;
        scene.until_repeated().await;
    }
    assert_eq!(scene.shots(SICK).await, 1);
    // Nor does it keep a node that is lost waiting.
    scene.lost.cut_off().await;
    until_phase(&scene.plane, "lost", "Done").await;
    assert_eq!(fence_of(&scene.plane, "lost").await.unwrap()["spec"]["trigger"]["kind"], "Detected");
    assert_eq!((scene.shots(SICK).await, scene.sick.has_power()), (1, true));
    let proofs = scene.plane.list("fenceevidences").await.unwrap();
    assert_eq!(proofs.len(), 2, "one for each that was off: {proofs:#?}");
}
