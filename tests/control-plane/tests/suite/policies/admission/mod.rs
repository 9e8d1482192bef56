//! A cluster with the chart, users and controllers with all rights that RBAC can grant, and kubectl as each of them.

use pod_safety_control_plane::{ControlPlane, Options, Output, chart, check_that, wait_until};
use serde_json::{Value, json};

/// Has all rights that RBAC can grant on these kinds, like a developer in a permissive cluster.
pub(crate) const DEV: &str = "dev";
/// The same, and the verbs of `pod-safety-break-glass`.
pub(crate) const OPERATOR: &str = "operator";
/// Has all verbs on these kinds, like many Roles for tenants.
pub(crate) const ALL_VERBS: &str = "wild";
/// Exempt by the chart's values.
pub(crate) const EXEMPT: &str = "agent-of-virtual-nodes";
/// May delete nodes that do not report, by the chart's values.
pub(crate) const DELETER: &str = "cloud";
/// May add the out-of-service taint to nodes that do not report, by the chart's values.
pub(crate) const TAINTER: &str = "tainter";
/// The same rights as default components of the chart.
pub(crate) const CLOUD: &str = "system:serviceaccount:kube-system:node-controller";
pub(crate) const KARPENTER: &str = "system:serviceaccount:kube-system:karpenter";
/// The service account itself.
pub(crate) const POD_SAFETY: &str = "system:serviceaccount:pod-safety:pod-safety";
/// Controllers of Kubernetes.
pub(crate) const POD_GC: &str = "system:serviceaccount:kube-system:pod-garbage-collector";
pub(crate) const STATEFUL_SETS: &str = "system:serviceaccount:kube-system:statefulset-controller";
pub(crate) const ATTACH_DETACH: &str = "system:serviceaccount:kube-system:attachdetach-controller";
/// The kubelet of `w1`, and another one.
pub(crate) const KUBELET: &str = "system:node:w1";
pub(crate) const OTHER_KUBELET: &str = "system:node:w2";
/// The kubelet of a node that does not exist yet.
pub(crate) const NEW_KUBELET: &str = "system:node:w3";
/// Has all rights by its group, including the verbs of the policies.
pub(crate) const ADMIN: &str = "";

const USERS: [&str; 14] = [
    DEV,
    OPERATOR,
    EXEMPT,
    DELETER,
    TAINTER,
    CLOUD,
    KARPENTER,
    POD_SAFETY,
    POD_GC,
    STATEFUL_SETS,
    ATTACH_DETACH,
    KUBELET,
    OTHER_KUBELET,
    NEW_KUBELET,
];
pub(crate) const REASON: &str = "pod-safety.dev/break-glass";

pub(crate) struct Fixture {
    pub(crate) plane: ControlPlane,
}

pub(crate) async fn fixture(set: &str) -> Fixture {
    fixture_on(Options::default(), "", set).await
}

/// On an API server with other options.
pub(crate) async fn fixture_on(options: Options, more: &str, set: &str) -> Fixture {
    let plane = ControlPlane::start(options).await.unwrap();
    let set = format!(
        "--set=controllers.volumeGuard.enabled=true,admissionPolicies.exemptUsers={{{EXEMPT}}},admissionPolicies.nodeDeleters={{cloud-controller-manager,karpenter,user:{DELETER}}},admissionPolicies.outOfServiceTainters={{user:{TAINTER}}},controllers.podGc.trustOutOfServiceTaint=true,{set}"
    );
    let install =
        ["install", "pod-safety", chart().to_str().unwrap(), "--namespace=pod-safety", "--create-namespace", &set]
            .map(str::to_owned);
    plane.helm(&install.each_ref().map(String::as_str)).await.unwrap().text().unwrap();
    let fixture = Fixture { plane };
    let kinds = "pods,pods/status,pods/eviction,pods/ephemeralcontainers,pods/resize,nodes,nodes/status,volumeattachments.storage.k8s.io,volumeattachments.storage.k8s.io/status,statefulsets.apps,fenceevidences.pod-safety.dev,fenceevidences.pod-safety.dev/status,nodefences.pod-safety.dev,nodefences.pod-safety.dev/status,fencedevices.pod-safety.dev,fencedevices.pod-safety.dev/status,podsafetyremediations.pod-safety.dev,podsafetyremediations.pod-safety.dev/status";
    let kinds = &format!("{kinds}{more}");
    let verbs = "--verb=get,list,watch,create,update,patch,delete,deletecollection";
    fixture.expect(&["create", "clusterrole", "careless", verbs, "--resource", kinds]).await;
    for user in USERS {
        let name = user.replace(':', "-");
        fixture.expect(&["create", "clusterrolebinding", &name, "--clusterrole=careless", "--user", user]).await;
    }
    let may = ["create", "clusterrolebinding", "may", "--clusterrole=pod-safety-break-glass", "--user", OPERATOR];
    fixture.expect(&may).await;
    let all = ["create", "clusterrole", "wild", "--verb=*", "--resource", kinds];
    fixture.expect(&all).await;
    fixture.expect(&["create", "clusterrolebinding", "wild", "--clusterrole=wild", "--user", ALL_VERBS]).await;
    fixture
}

impl Fixture {
    /// kubectl as `user`.
    pub(crate) async fn run(&self, user: &str, args: &[&str], input: &Value) -> Output {
        let mut all = args.to_vec();
        if user != ADMIN {
            all.extend(["--as", user]);
        }
        let input = if input.is_null() { String::new() } else { input.to_string() };
        self.plane.kubectl_with(&all, &input).await.unwrap()
    }

    pub(crate) async fn expect(&self, args: &[&str]) {
        self.run(ADMIN, args, &Value::Null).await.text().unwrap();
    }

    pub(crate) async fn make(&self, object: &Value) {
        self.run(ADMIN, &["create", "-f", "-"], object).await.text().unwrap();
    }

    /// Writes the status of an object.
    pub(crate) async fn status(&self, user: &str, what: &[&str], status: &Value) -> Output {
        let patch = json!({ "status": status }).to_string();
        let write = [&["patch"][..], what, &["--subresource=status", "--type=merge", "-p", &patch]].concat();
        self.run(user, &write, &Value::Null).await
    }

    /// A pod on `w1` that is reported as running. One of a StatefulSet has the hostname that its controller sets.
    pub(crate) async fn pod(&self, name: &str, stateful: bool, grace: i64, reason: Option<&str>) {
        let owner = json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "5b0a4f0e-0000-4000-8000-000000000001", "controller": true }]);
        let mut metadata = json!({ "name": name, "namespace": "default" });
        if stateful {
            metadata["ownerReferences"] = owner;
        }
        if let Some(reason) = reason {
            metadata["annotations"] = json!({ REASON: reason });
        }
        let hostname = Some(name).filter(|_| stateful);
        let spec = json!({ "nodeName": "w1", "hostname": hostname, "terminationGracePeriodSeconds": grace, "containers": [{ "name": "main", "image": "main" }] });
        self.make(&json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })).await;
        self.status(ADMIN, &["pod", name], &json!({ "phase": "Running" })).await.text().unwrap();
    }

    pub(crate) async fn node(&self, name: &str, ready: Option<&str>, reason: Option<&str>) {
        let annotations = reason.map_or_else(|| json!({}), |reason| json!({ REASON: reason }));
        self.make(
            &json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "annotations": annotations } }),
        )
        .await;
        if let Some(ready) = ready {
            // As the agent of a virtual node, which is exempt: for other nodes only the kubelet may set Ready.
            self.calls(EXEMPT, name, ready).await.text().unwrap();
        }
    }

    /// Writes the Ready condition of a node.
    pub(crate) async fn calls(&self, user: &str, node: &str, ready: &str) -> Output {
        let conditions = json!({ "conditions": [{ "type": "Ready", "status": ready }] });
        self.status(user, &["node", node], &conditions).await
    }

    /// Compares the result with the expectation. If two policies deny (`a or b`) the API server names one.
    pub(crate) fn check_answer(row: &str, output: &Output, refusal: Option<&str>) {
        match refusal {
            None => assert!(output.status.success(), "{row} was refused: {}", output.stderr),
            Some(policy) => {
                let by = |policy: &str| output.stderr.contains(&format!("'pod-safety-{policy}'"));
                let named = policy.split(" or ").any(by) && output.stderr.contains("denied request");
                assert!(!output.status.success() && named, "{row} was not refused by {policy}: {output:?}");
                // If a message expression fails, the API server shows the validation expression.
                assert!(!output.stderr.contains("failed expression"), "{row}: {}", output.stderr);
            }
        }
    }
}

/// Policies are enforced a moment after they were written.
pub(crate) async fn until_they_hold(fixture: &Fixture) {
    fixture.pod("probe", true, 30, None).await;
    fixture.node("probe", Some("Unknown"), None).await;
    wait_until("the policies hold", async || {
        let force = ["delete", "pod", "probe", "--force", "--grace-period=0", "--dry-run=server"];
        let first = fixture.run(DEV, &force, &Value::Null).await;
        let second = fixture.run(DEV, &["delete", "node", "probe", "--dry-run=server"], &Value::Null).await;
        check_that(!first.status.success() && !second.status.success(), format!("{first:?} {second:?}"))
    })
    .await;
}
