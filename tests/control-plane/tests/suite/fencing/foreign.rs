//! Objects of other projects as devices, with the CRDs that these projects publish, and controllers that act as documented by the
//! projects.

use pod_safety_control_plane::tool;

use super::*;

const OPS: &str = "pod-safety";
const CLAIMS: &str = "nodeclaims.karpenter.sh";
const MACHINES: &str = "machines.cluster.x-k8s.io";
const OPENSHIFT: &str = "machines.machine.openshift.io";
const HOSTS: &str = "baremetalhosts.metal3.io";
const ROLES: [&str; 3] =
    ["pod-safety-fencing-nodeclaims", "pod-safety-fencing-openshift-machines", "pod-safety-fencing-baremetalhosts"];

/// Their CRDs are not in a separate Go module: these contain the fields that a device reads and writes, from their API reference.
const OTHERS: [Kind; 2] = [
    Kind::custom("machine.openshift.io/v1beta1", "Machine", "machines"),
    Kind::custom("metal3.io/v1alpha1", "BareMetalHost", "baremetalhosts"),
];

struct Fixture {
    plane: ControlPlane,
    audit: AuditLog,
    _pod_safety: PodSafety,
    nodes: Vec<Arc<Machine>>,
    _kubelets: JoinSet<()>,
}

/// Creates a CRD that a project publishes.
pub(super) async fn published(plane: &ControlPlane, file: &str) {
    let path = tool(file).await.unwrap();
    let path = path.to_str().unwrap();
    plane.kubectl(&["create", "-f", path]).await.unwrap().text().unwrap();
}

async fn fixture() -> Fixture {
    let (audit, plane) = ControlPlane::audited(ACCOUNT).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    published(&plane, "karpenter.sh_nodeclaims.yaml").await;
    published(&plane, "cluster.x-k8s.io_machines.yaml").await;
    for kind in OTHERS {
        define(&plane.admin(), kind, "Namespaced", &json!({ "status": {} })).await.unwrap();
    }
    for role in ROLES {
        plane.bind_pod_safety(role).await.unwrap();
    }
    // If all nodes were lost, no pod would be evicted: most of them stay healthy.
    let nodes = ["w1", "w2", "w3", "w4", "w5", "w6", "w7"].map(|name| Machine::new(name, || true)).to_vec();
    let kubelets = kubelets(&plane, &nodes);
    plane.namespace(NAMESPACE).await.unwrap();
    // By default nodes are tainted ten seconds apart: the third would wait for twenty.
    let pod_safety = leader(&plane, &kubeconfig, &["--node-eviction-rate=10"]).await;
    Fixture { plane, audit, _pod_safety: pod_safety, nodes, _kubelets: kubelets }
}

impl Fixture {
    async fn create(&self, object: &Value) {
        wait_until("its kind is served", async || {
            self.plane.kubectl_with(&["apply", "-f", "-"], &object.to_string()).await.unwrap().text()
        })
        .await;
    }

    /// Writes like a controller of the other project.
    async fn patch(&self, kind: &str, name: &str, status: bool, patch: &Value) {
        let patch = patch.to_string();
        let mut args = vec!["patch", kind, name, "--type=merge", "-p", &patch];
        if kind != CLAIMS {
            args.extend(["-n", OPS]);
        }
        if status {
            args.push("--subresource=status");
        }
        self.plane.kubectl(&args).await.unwrap().text().unwrap();
    }

    async fn find(&self, kind: &str, name: &str) -> Option<Value> {
        let namespace = if kind == CLAIMS { "" } else { OPS };
        self.plane.find(kind, namespace, name).await.unwrap()
    }

    /// The node is lost, and its pod waits for the device of this driver.
    async fn lose_node(&self, number: usize, driver: &str) -> Instant {
        let node = &self.nodes[number].name;
        let spec = json!({ "driver": driver, "identityCheck": "Required", "monitorSeconds": 5, "timeouts": { "powerOff": "5m" } });
        apply(&self.plane, &device_of(node, node, spec)).await;
        wait_until("the device is ready", async || {
            let device = self.plane.find("fencedevices", OPS, node).await.unwrap().ok_or("none")?;
            let power = device["status"]["targets"][0]["power"].clone();
            check_that(power == "On", device["status"].to_string())
        })
        .await;
        stateful_pod(&self.plane, node, node).await;
        let mut policy = super::policy(node, node, node);
        policy["spec"]["recovery"] = json!("Hold");
        policy["spec"]["brakes"] = json!({ "cooldownSeconds": 0, "maxConcurrent": 9, "maxUnhealthyPercent": 100 });
        apply(&self.plane, &policy).await;
        self.nodes[number].cut_off().await;
        Instant::now()
    }

    async fn until_released(&self, node: &str, begun: Instant, what: &str) -> Value {
        until_phase(&self.plane, node, "Fenced").await;
        until_released(&self.plane, &format!("{node}-0")).await;
        println!("{what}: released {:.1} s after the loss", begun.elapsed().as_secs_f64());
        let all = self.plane.list("fenceevidences").await.unwrap();
        all.into_iter().find(|one| one["spec"]["node"]["name"] == node).unwrap()["spec"].clone()
    }

    /// The object is being deleted, and its pod stays: the finalizer is removed when the provider has no such machine any more.
    async fn deleted(&self, kind: &str, name: &str, node: &str) {
        wait_until(&format!("{name} is being deleted"), async || {
            let object = self.find(kind, name).await.ok_or("it is gone")?;
            let fence = node_fence_of(&self.plane, node).await.map(|fence| fence["status"].clone());
            check_that(object["metadata"]["deletionTimestamp"].is_string(), format!("{fence:#?}"))
        })
        .await;
        assert!(observe::find_pod(&self.plane.admin(), NAMESPACE, &format!("{node}-0")).await.unwrap().is_some());
        self.patch(kind, name, false, &json!({ "metadata": { "finalizers": null } })).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_released_when_node_claim_machine_or_host_reports_the_machine_gone_or_off() {
    let fixture = fixture().await;
    // Concurrently: each waits for the grace period, and for two status checks.
    tokio::join!(a_node_claim(&fixture), a_machine_of_openshift(&fixture), a_bare_metal_host(&fixture));
    each_granted_right_was_used(&fixture).await;
}

async fn a_node_claim(fixture: &Fixture) {
    let requirements = json!([{ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] }]);
    let class = json!({ "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" });
    fixture
        .create(&json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": { "name": "default-x7", "finalizers": ["karpenter.sh/termination"] },
            "spec": { "nodeClassRef": class, "requirements": requirements },
        }))
        .await;
    let status = json!({ "status": { "nodeName": "w1", "providerID": "cloud:///w1" } });
    fixture.patch(CLAIMS, "default-x7", true, &status).await;
    let begun = fixture.lose_node(0, "NodeClaim").await;
    fixture.deleted(CLAIMS, "default-x7", "w1").await;
    let evidence = fixture.until_released("w1", begun, "NodeClaim").await;
    assert_eq!((&evidence["kind"], &evidence["samples"][0]["identity"]), (&json!("Decommissioned"), &json!("Match")));
}

async fn a_machine_of_openshift(fixture: &Fixture) {
    fixture
        .create(&json!({
            "apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
            "metadata": { "namespace": OPS, "name": "worker-a", "finalizers": ["machine.machine.openshift.io"] },
            "spec": { "providerID": "cloud:///w2", "providerSpec": { "value": {
                "apiVersion": "machine.openshift.io/v1beta1", "kind": "AWSMachineProviderConfig" } } },
        }))
        .await;
    fixture
        .patch(OPENSHIFT, "worker-a", true, &json!({ "status": { "nodeRef": { "kind": "Node", "name": "w2" } } }))
        .await;
    let named = "machine.openshift.io/machine=pod-safety/worker-a";
    fixture.plane.kubectl(&["annotate", "node", "w2", named]).await.unwrap().text().unwrap();
    let begun = fixture.lose_node(1, "OpenShiftMachine").await;
    fixture.deleted(OPENSHIFT, "worker-a", "w2").await;
    let evidence = fixture.until_released("w2", begun, "OpenShift Machine").await;
    assert_eq!(evidence["kind"], "Decommissioned");
}

async fn a_bare_metal_host(fixture: &Fixture) {
    let reference = json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3Machine", "name": "m3m-3" });
    let bootstrap = json!({ "dataSecretName": "unused" });
    fixture
        .create(&json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": { "namespace": OPS, "name": "machine-w3" },
            "spec": { "clusterName": "c", "providerID": "cloud:///w3", "bootstrap": bootstrap, "infrastructureRef": reference },
        }))
        .await;
    fixture.patch(MACHINES, "machine-w3", true, &json!({ "status": { "nodeRef": { "name": "w3" } } })).await;
    let consumer = json!({ "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine",
        "namespace": OPS, "name": "m3m-3" });
    fixture
        .create(&json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": { "namespace": OPS, "name": "rack-7" }, "spec": { "online": true, "consumerRef": consumer },
        }))
        .await;
    let operator = async |on: bool| {
        let status = json!({ "status": { "poweredOn": on, "operationalStatus": "OK", "provisioning": { "state": "provisioned" } } });
        fixture.patch(HOSTS, "rack-7", true, &status).await;
    };
    operator(true).await;
    let begun = fixture.lose_node(2, "BareMetalHost").await;
    wait_until("its operator is told", async || {
        let host = fixture.find(HOSTS, "rack-7").await.ok_or("none")?;
        let hold = host["metadata"]["annotations"]["reboot.metal3.io/pod-safety"].clone();
        let fence = node_fence_of(&fixture.plane, "w3").await.map(|fence| fence["status"].clone());
        check_that(hold.as_str().is_some_and(|hold| hold.contains("\"hard\"")), format!("{fence:#?}"))
    })
    .await;
    operator(false).await;
    let evidence = fixture.until_released("w3", begun, "BareMetalHost").await;
    assert_eq!((&evidence["kind"], &evidence["samples"][0]["identity"]), (&json!("PowerOff"), &json!("Match")));
    let host = fixture.find(HOSTS, "rack-7").await.unwrap();
    assert_eq!(host["spec"]["online"], true, "that field is its owner's");
    assert!(host["metadata"]["annotations"]["reboot.metal3.io/pod-safety"].is_string(), "recovery is Hold");
}

async fn each_granted_right_was_used(fixture: &Fixture) {
    let roles = ROLES.map(|role| ["clusterrole", role]);
    let roles: Vec<&[&str]> = roles.iter().map(|role| &role[..]).collect();
    all_rights_but_one_were_used(&fixture.plane, &fixture.audit, &roles).await;
}
