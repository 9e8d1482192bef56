//! Nodes that report and are unhealthy: a scripted node-problem-detector sets a condition, and the node is drained, fenced and recovered;
//! and a kubelet that reports false conditions.

use kube::api::{Patch, PatchParams};

use super::*;

const UNHEALTHY: &str = "sick";
/// How long the condition must last, as in the policy.
const LASTS: u64 = 10;

struct Fixture {
    plane: ControlPlane,
    audit: AuditLog,
    _pod_safety: PodSafety,
    unhealthy: Arc<Machine>,
    lost: Arc<Machine>,
    _components: [Component; 2],
    _kubelets: JoinSet<()>,
    /// Owns the files of the power switches.
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
    let (components, pod_safety) =
        leader_beside(&plane, &kubeconfig, "statefulset-controller,disruption-controller", &rigs).await;
    Fixture {
        plane,
        audit,
        _pod_safety: pod_safety,
        unhealthy: sick,
        lost,
        _components: components,
        _kubelets: kubelets,
        _rigs: rigs,
    }
}

impl Fixture {
    /// Sets a condition like node-problem-detector.
    async fn detects(&self, node: &str, status: &str) {
        let condition = json!({ "type": "KernelDeadlock", "status": status, "reason": "Test", "message": "m" });
        let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
        let nodes = Api::<Node>::all(self.plane.admin());
        nodes.patch_status(node, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn is_cordoned(&self) -> bool {
        let node = Api::<Node>::all(self.plane.admin()).get(UNHEALTHY).await.unwrap();
        node.spec.unwrap().unschedulable == Some(true)
    }

    /// Its node and its UID, once they match.
    async fn until_runs(&self, pod: &str, fits: impl Fn(&str, &str) -> bool) -> (String, String) {
        wait_until(&format!("{pod} runs where it should"), async || {
            let pod = observe::find_pod(&self.plane.admin(), NAMESPACE, pod).await.unwrap();
            match pod.as_ref().and_then(observe::is_running) {
                Some((node, uid)) if fits(&node, &uid) => Ok((node, uid)),
                other => Err(format!("{other:?}: {:#?}", incidents(&self.plane).await)),
            }
        })
        .await
    }

    /// How often the machine was switched off, over all incidents.
    async fn power_offs(&self, node: &str) -> usize {
        let fences = self.plane.list("nodefences").await.unwrap();
        let of_it = fences.iter().filter(|fence| fence["spec"]["node"]["name"] == node);
        let attempts = of_it.flat_map(|fence| fence["status"]["attempts"].as_array().cloned().unwrap_or_default());
        attempts.filter(|attempt| attempt["act"] == "off").count()
    }

    async fn until_repeated(&self) -> Value {
        wait_until("the next incident is held", async || {
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
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_an_unhealthy_condition_is_drained_fenced_and_recovered_once() {
    let fixture = fixture().await;
    for name in ["web", "db"] {
        apply(&fixture.plane, &workloads::stateful_set_near(NAMESPACE, name, UNHEALTHY)).await;
    }
    let budget = json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "namespace": NAMESPACE, "name": "db" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "workload": "db" } } } });
    apply(&fixture.plane, &budget).await;
    let (_, db) = fixture.until_runs("db-0", |node, _| node == UNHEALTHY).await;
    let (_, web) = fixture.until_runs("web-0", |node, _| node == UNHEALTHY).await;
    a_condition_that_clears_in_time_starts_no_incident(&fixture).await;

    fixture.detects(UNHEALTHY, "True").await;
    // Evictions that the PDB allows complete gracefully, while the node runs.
    fixture.until_runs("web-0", |node, uid| node != UNHEALTHY && uid != web).await;
    // The remaining pod is fenced with its machine, and released by the evidence.
    fixture.until_runs("db-0", |node, uid| node != UNHEALTHY && uid != db).await;
    let fence = until_phase(&fixture.plane, UNHEALTHY, "Done").await;
    let trigger = &fence["spec"]["trigger"];
    assert_eq!(trigger["kind"], "Unhealthy", "{fence:#}");
    assert_eq!(trigger["condition"], json!({ "type": "KernelDeadlock", "status": "True" }));
    let drain = &fence["status"]["drain"];
    assert!(drain["message"].as_str().unwrap().contains("shop/db-0"), "{drain}");
    assert_eq!((fixture.unhealthy.boots(), fixture.unhealthy.has_power()), (2, true));
    assert!(!fixture.is_cordoned().await, "it was cordoned for the drain alone");
    evictions_precede_power_off_and_power_off_precedes_evidence(&fixture, &db).await;
    a_node_still_unhealthy_after_fencing_is_not_fenced_again(&fixture).await;
    let (granted, used) =
        granted_and_used(&fixture.plane, &fixture.audit, &[&["clusterrole", "pod-safety-drain"]]).await;
    assert!(granted.is_subset(&used), "a right is not needed: {granted:?}, {used:?}");
}

async fn a_condition_that_clears_in_time_starts_no_incident(fixture: &Fixture) {
    fixture.detects(UNHEALTHY, "True").await;
    fixture.detects(UNHEALTHY, "False").await;
    tokio::time::sleep(Duration::from_secs(LASTS + 2)).await;
    assert_eq!(fixture.plane.list("nodefences").await.unwrap(), Vec::<Value>::new());
    assert!(!fixture.is_cordoned().await);
}

/// From the audit log: both pods were evicted before any power-off, and only the remaining one was force deleted.
async fn evictions_precede_power_off_and_power_off_precedes_evidence(fixture: &Fixture, db: &str) {
    let entries = fixture.audit.entries().unwrap();
    let first = |what: &str, verb: &str, name: &str| {
        let of_it = |entry: &&pod_safety_control_plane::AuditEntry| entry.matches(verb, what, name);
        entries.iter().position(|entry| of_it(&entry)).unwrap_or_else(|| panic!("no {verb} of {what} {name}"))
    };
    let evidence = entries.iter().position(|entry| entry.resource == "fenceevidences" && entry.verb == "create");
    let removed = first("pods", "delete", "db-0");
    assert!(first("pods/eviction", "create", "web-0") < evidence.unwrap());
    assert!(evidence.unwrap() < removed, "{db} was removed without evidence");
    assert!(!entries.iter().any(|entry| entry.matches("delete", "pods", "web-0")), "its kubelet ended it");
}

/// The detector reports the same condition after the boot.
async fn a_node_still_unhealthy_after_fencing_is_not_fenced_again(fixture: &Fixture) {
    let held = fixture.until_repeated().await;
    assert_eq!(held["status"]["phase"], "Pending");
    let message = observe::event(&fixture.plane.admin(), "default", UNHEALTHY, "FencingHeld").await.unwrap();
    assert!(message.contains("powering it off and on did not cure it"), "{message}");
    assert_eq!((fixture.power_offs(UNHEALTHY).await, fixture.unhealthy.boots()), (1, 2));
    fixture.detects(UNHEALTHY, "False").await;
    wait_until("it is called off", async || {
        let fences = fixture.plane.list("nodefences").await.unwrap();
        let name = &held["metadata"]["name"];
        let phase = fences.iter().find(|fence| fence["metadata"]["name"] == *name).map(|one| &one["status"]["phase"]);
        check_that(phase == Some(&json!("Cancelled")), format!("{phase:?}"))
    })
    .await;
}

/// A kubelet may write the conditions and the boot ID of its own Node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attack_false_unhealthy_conditions_are_limited_by_the_gates() {
    let fixture = fixture().await;
    fixture.detects(UNHEALTHY, "True").await;
    until_phase(&fixture.plane, UNHEALTHY, "Done").await;
    for _boot in 0..3 {
        fixture.unhealthy.reboot();
        fixture.detects(UNHEALTHY, "False").await;
        fixture.detects(UNHEALTHY, "True").await;
        fixture.until_repeated().await;
    }
    assert_eq!(fixture.power_offs(UNHEALTHY).await, 1);
    // A lost node does not wait for it either.
    fixture.lost.cut_off().await;
    until_phase(&fixture.plane, "lost", "Done").await;
    assert_eq!(node_fence_of(&fixture.plane, "lost").await.unwrap()["spec"]["trigger"]["kind"], "Detected");
    assert_eq!((fixture.power_offs(UNHEALTHY).await, fixture.unhealthy.has_power()), (1, true));
    let proofs = fixture.plane.list("fenceevidences").await.unwrap();
    assert_eq!(proofs.len(), 2, "one for each that was off: {proofs:#?}");
}
