//! Devices that are objects of the cluster or operators, and other clients that request fencing: with a real API server, and foreign
//! controllers that do only what their contract requires.

use super::*;

/// The namespace of templates and devices.
const OPS: &str = "pod-safety";
const FAR: &str = "fenceagentsremediations.fence-agents-remediation.medik8s.io";
const MACHINES: &str = "machines.cluster.x-k8s.io";
const FAR_VERSION: &str = "fence-agents-remediation.medik8s.io/v1alpha1";
const KINDS: [Kind; 3] = [
    Kind::custom(FAR_VERSION, "FenceAgentsRemediation", "fenceagentsremediations"),
    Kind::custom(FAR_VERSION, "FenceAgentsRemediationTemplate", "fenceagentsremediationtemplates"),
    Kind::custom("cluster.x-k8s.io/v1beta2", "Machine", "machines"),
];

struct Fixture {
    plane: ControlPlane,
    audit: AuditLog,
    pod_safety: PodSafety,
    nodes: Vec<Arc<Machine>>,
    admin: PathBuf,
    _kubelets: JoinSet<()>,
}

impl Fixture {
    async fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        self.plane.find(kind, namespace, name).await.unwrap()
    }

    async fn evidence(&self, node: &str) -> Value {
        let all = self.plane.list("fenceevidences").await.unwrap();
        all.into_iter().find(|one| one["spec"]["node"]["name"] == node).unwrap()
    }

    /// Writes the status of an object like its foreign controller.
    async fn set_status(&self, kind: &str, name: &str, status: &Value) {
        self.plane.patch_status(kind, OPS, name, status).await.unwrap();
    }

    async fn until_exists(&self, kind: &str, name: &str) -> Value {
        wait_until(&format!("{kind} {name} is there"), async || {
            let fence = node_fence_of(&self.plane, name).await.map(|fence| fence["status"].clone());
            self.get(kind, OPS, name).await.ok_or(format!("{fence:#?}"))
        })
        .await
    }

    async fn until_deleted(&self, kind: &str, name: &str) {
        wait_until(&format!("{kind} {name} goes"), async || {
            let there = self.get(kind, OPS, name).await;
            check_that(there.is_none(), format!("{there:#?}"))
        })
        .await;
    }
}

/// The rules that the remediator's operator adds to a shipped but unbound role: kube-controller-manager, which aggregates roles, does not
/// run here.
fn role() -> Value {
    let group = "fence-agents-remediation.medik8s.io";
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "far", "labels": { "rbac.ext-remediation/aggregate-to-ext-remediation": "true" } },
        "rules": [
            { "apiGroups": [group], "resources": ["fenceagentsremediationtemplates"], "verbs": ["get"] },
            { "apiGroups": [group], "resources": ["fenceagentsremediations"],
              "verbs": ["get", "create", "delete", "patch"] },
        ],
    })
}

fn far(kind: &str) -> Value {
    let reference =
        json!({ "apiVersion": "fence-agents-remediation.medik8s.io/v1alpha1", "kind": kind, "name": "far" });
    json!({ "driver": "External", "external": { "templateRef": reference }, "timeouts": { "powerOff": "60s" } })
}

/// Nobody switches these machines on again, and no gate holds.
fn policy(node: &str, when: &str) -> Value {
    let mut policy = super::policy(node, node, node);
    policy["spec"]["when"] = json!(when);
    policy["spec"]["recovery"] = json!("Hold");
    policy["spec"]["brakes"] = json!({ "cooldownSeconds": 0, "maxConcurrent": 9, "maxUnhealthyPercent": 100 });
    policy
}

async fn fixture() -> Fixture {
    let (audit, plane) = ControlPlane::audited(ACCOUNT).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    for kind in KINDS {
        define(&plane.admin(), kind, "Namespaced", &json!({ "status": {} })).await.unwrap();
    }
    apply(&plane, &role()).await;
    for role in ["far", "pod-safety-fencing-machines"] {
        plane.bind_pod_safety(role).await.unwrap();
    }
    let nodes = ["w1", "w2", "w3", "w4"].map(|name| Machine::new(name, || true)).to_vec();
    let kubelets = kubelets(&plane, &nodes);
    plane.namespace(NAMESPACE).await.unwrap();
    let template = json!({
        "apiVersion": "fence-agents-remediation.medik8s.io/v1alpha1", "kind": "FenceAgentsRemediationTemplate",
        "metadata": { "namespace": OPS, "name": "far" },
        "spec": { "template": { "spec": { "agent": "fence_ipmilan" } } },
    });
    wait_until("the template is served", async || {
        plane.kubectl_with(&["apply", "-f", "-"], &template.to_string()).await.unwrap().text()
    })
    .await;
    let pod_safety = leader(&plane, &kubeconfig, &[]).await;
    let admin = plane.admin_kubeconfig();
    Fixture { plane, audit, pod_safety, nodes, admin, _kubelets: kubelets }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drives_and_serves_remediators_deletes_machines_and_waits_for_operators() {
    let fixture = fixture().await;
    a_device_reports_an_api_that_the_cluster_does_not_serve(&fixture).await;
    attack_objects_in_a_tenant_namespace_are_ignored(&fixture).await;
    a_remediation_is_delegated_to_another_remediator(&fixture).await;
    attack_no_object_was_written_in_the_tenant_namespace(&fixture).await;
    a_deleted_machine_is_evidence_after_it_is_gone(&fixture).await;
    an_operator_is_asked_immediately(&fixture).await;
    each_right_for_remediations_was_used(&fixture).await;
}

async fn a_device_reports_an_api_that_the_cluster_does_not_serve(fixture: &Fixture) {
    apply(&fixture.plane, &device_of("w4", "w4", far("SelfNodeRemediationTemplate"))).await;
    wait_until("it says so", async || {
        let device = fixture.get("fencedevices", OPS, "w4").await.ok_or("there is none")?;
        let conditions = device["status"]["conditions"].as_array().ok_or("no status")?;
        let ready = conditions.iter().find(|one| one["type"] == "Ready").ok_or("not Ready")?;
        let message = ready["message"].as_str().unwrap_or_default();
        let fits = ready["status"] == "False"
            && message.contains("does not serve SelfNodeRemediationTemplate of fence-agents-remediation");
        check_that(fits, ready.to_string())
    })
    .await;
    let mixed = device_of("mixed", "w4", json!({ "driver": "Machine", "parameters": { "ip": "1" } }));
    let refused = fixture.plane.kubectl_with(&["apply", "-f", "-"], &mixed.to_string()).await.unwrap();
    assert!(refused.stderr.contains("are for the drivers Agent and Redfish"), "{}", refused.stderr);
}

/// A tenant requests that node w1 is switched off, and creates a device of its own for every node.
async fn attack_objects_in_a_tenant_namespace_are_ignored(fixture: &Fixture) {
    let mut spy =
        device_of("w1", "w1", json!({ "driver": "Redfish", "parameters": { "address": "https://192.0.2.1" } }));
    spy["metadata"]["namespace"] = json!(NAMESPACE);
    apply(&fixture.plane, &spy).await;
    let wish = json!({
        "apiVersion": "pod-safety.dev/v1alpha1", "kind": "PodSafetyRemediation",
        "metadata": { "namespace": NAMESPACE, "name": "w3" }, "spec": {},
    });
    apply(&fixture.plane, &wish).await;
}

/// Checked after the namespace of the operator was handled.
async fn attack_no_object_was_written_in_the_tenant_namespace(fixture: &Fixture) {
    let spy = fixture.get("fencedevices", NAMESPACE, "w1").await.unwrap();
    let wish = fixture.get("podsafetyremediations", NAMESPACE, "w3").await.unwrap();
    assert_eq!((spy.get("status"), wish.get("status")), (None, None), "{spy:#} {wish:#}");
    assert_eq!(wish["metadata"].get("finalizers"), None, "it can be deleted: {wish:#}");
    assert!(node_fence_of(&fixture.plane, "w3").await.is_none());
    let delete = ["delete", "podsafetyremediations", "-n", NAMESPACE, "w3", "--timeout=20s"];
    fixture.plane.kubectl(&delete).await.unwrap().text().unwrap();
}

async fn a_remediation_is_delegated_to_another_remediator(fixture: &Fixture) {
    stateful_pod(&fixture.plane, "db", "w1").await;
    apply(&fixture.plane, &device_of("w1", "w1", far("FenceAgentsRemediationTemplate"))).await;
    apply(&fixture.plane, &policy("w1", "Manual")).await;
    fixture.nodes[0].cut_off().await;
    // Like NodeHealthCheck.
    let object = json!({
        "apiVersion": "pod-safety.dev/v1alpha1", "kind": "PodSafetyRemediation",
        "metadata": {
            "namespace": OPS, "name": "w1",
            "annotations": {
                "remediation.medik8s.io/node-name": "w1",
                "remediation.medik8s.io/template-name": "pod-safety",
            },
        },
        "spec": {},
    });
    apply(&fixture.plane, &object).await;
    let made = fixture.until_exists(FAR, "w1").await;
    assert_eq!(made["spec"]["agent"], "fence_ipmilan", "{made:#}");
    assert_eq!(made["metadata"]["annotations"]["remediation.medik8s.io/template-name"], "far");
    assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "NodeFence");
    let reported = async |kind: &str| {
        let object = fixture.get("podsafetyremediations", OPS, "w1").await.unwrap();
        let conditions = object["status"]["conditions"].as_array().unwrap().clone();
        let one = conditions.into_iter().find(|one| one["type"] == kind).unwrap();
        one["status"].as_str().unwrap().to_owned()
    };
    assert_eq!((reported("Processing").await, reported("Succeeded").await), ("True".to_owned(), "Unknown".to_owned()));
    // It reports Succeeded after it deleted the pods, which the policies would deny.
    let succeeded = json!({ "conditions": [{ "type": "FenceAgentActionSucceeded", "status": "True" }] });
    fixture.set_status(FAR, "w1", &succeeded).await;
    until_phase(&fixture.plane, "w1", "Fenced").await;
    assert_eq!(fixture.evidence("w1").await["spec"]["kind"], "Remediated");
    until_released(&fixture.plane, "db-0").await;
    wait_until("it is answered", async || {
        let word = reported("Succeeded").await;
        check_that(word == "True", word)
    })
    .await;
    // The machine boots; the requester sees a healthy node and deletes its request.
    fixture.nodes[0].reboot();
    fixture.nodes[0].connect();
    until_phase(&fixture.plane, "w1", "Done").await;
    fixture.until_deleted(FAR, "w1").await;
    let delete = ["delete", "podsafetyremediations", "-n", OPS, "w1", "--wait=false"];
    fixture.plane.kubectl(&delete).await.unwrap().text().unwrap();
    fixture.until_deleted("podsafetyremediations", "w1").await;
    let released = fixture.pod_safety.metric("pod_safety_force_deletes_total", &[("evidence", "Remediated")]).await;
    assert!(released.unwrap() >= 1.0);
}

async fn a_deleted_machine_is_evidence_after_it_is_gone(fixture: &Fixture) {
    let infrastructure = json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSMachine", "name": "w2" });
    let machine = |provider: &str| {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": { "namespace": OPS, "name": "machine-w2", "finalizers": ["machine.cluster.x-k8s.io"] },
            "spec": { "providerID": provider, "infrastructureRef": infrastructure },
        })
    };
    // First the Machine belongs to another node.
    apply(&fixture.plane, &machine("cloud:///other")).await;
    let mut spec = json!({ "driver": "Machine", "identityCheck": "Required" });
    spec["timeouts"] = json!({ "powerOff": "60s" });
    spec["monitorSeconds"] = json!(1);
    apply(&fixture.plane, &device_of("w2", "w2", spec)).await;
    wait_until("attack: a Machine that does not name the node is not its", async || {
        let device = fixture.get("fencedevices", OPS, "w2").await.ok_or("there is none")?;
        let text = device["status"].to_string();
        check_that(text.contains("does not belong to node w2: its status.nodeRef names"), text)
    })
    .await;
    fixture.set_status(MACHINES, "machine-w2", &json!({ "nodeRef": { "name": "w2" } })).await;
    wait_until("the device says so", async || {
        let device = fixture.get("fencedevices", OPS, "w2").await.ok_or("there is none")?;
        let text = device["status"].to_string();
        check_that(text.contains("is the machine \\\"cloud:///other\\\", and node w2 runs on"), text)
    })
    .await;
    apply(&fixture.plane, &machine("cloud:///w2")).await;
    stateful_pod(&fixture.plane, "queue", "w2").await;
    apply(&fixture.plane, &policy("w2", "WhenNeeded")).await;
    fixture.nodes[1].cut_off().await;
    wait_until("its Machine is deleted", async || {
        let object = fixture.get(MACHINES, OPS, "machine-w2").await.ok_or("it is gone")?;
        let fence = node_fence_of(&fixture.plane, "w2").await.map(|fence| fence["status"].clone());
        check_that(object["metadata"]["deletionTimestamp"].is_string(), format!("{fence:#?}"))
    })
    .await;
    assert_eq!(node_fence_of(&fixture.plane, "w2").await.unwrap()["status"]["phase"], "Fencing", "it is not gone yet");
    let done = json!({ "metadata": { "finalizers": null } }).to_string();
    let patch = ["patch", MACHINES, "-n", OPS, "machine-w2", "--type=merge", "-p", &done];
    fixture.plane.kubectl(&patch).await.unwrap().text().unwrap();
    until_phase(&fixture.plane, "w2", "Fenced").await;
    let evidence = fixture.evidence("w2").await;
    assert_eq!(evidence["spec"]["kind"], "Decommissioned", "{evidence:#}");
    assert_eq!(evidence["spec"]["samples"][0]["identity"], "Match", "{evidence:#}");
    until_released(&fixture.plane, "queue-0").await;
    observe::delete_node(&fixture.plane.admin(), "w2").await.unwrap();
    until_phase(&fixture.plane, "w2", "Done").await;
}

async fn an_operator_is_asked_immediately(fixture: &Fixture) {
    stateful_pod(&fixture.plane, "log", "w3").await;
    apply(&fixture.plane, &device_of("w3", "w3", json!({ "driver": "Manual" }))).await;
    apply(&fixture.plane, &policy("w3", "WhenNeeded")).await;
    fixture.nodes[2].cut_off().await;
    let fence = until_phase(&fixture.plane, "w3", "AwaitingOperator").await;
    let message = fence["status"]["message"].as_str().unwrap();
    assert!(message.contains("pod-safety confirm-down w3"), "{message}");
    assert!(fence["status"]["attempts"].as_array().is_none_or(Vec::is_empty), "{fence:#}");
    let confirm = ["confirm-down", "w3", "--reason=unplugged", "--confirm=w3 is off", "--listen=1s"];
    fixture.plane.start_pod_safety_once(&fixture.admin, &confirm).await.unwrap().text().unwrap();
    until_released(&fixture.plane, "log-0").await;
}

async fn each_right_for_remediations_was_used(fixture: &Fixture) {
    let roles: [&[&str]; 2] =
        [&["clusterrole", "pod-safety-remediation"], &["clusterrole", "pod-safety-fencing-machines"]];
    all_rights_but_one_were_used(&fixture.plane, &fixture.audit, &roles).await;
}
