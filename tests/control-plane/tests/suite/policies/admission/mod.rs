//! A cluster with the chart in it, people and controllers who may do all that RBAC can say, and kubectl as each of them.

use pod_safety_control_plane::{ControlPlane, Options, Output, chart, check_that, until};
use serde_json::{Value, json};

/// May all that RBAC can say of these kinds, as a developer of a careless cluster may.
pub(crate) const DEV: &str = "dev";
/// The same, and the verbs of `pod-safety-break-glass`.
pub(crate) const OPERATOR: &str = "operator";
/// May all verbs of these kinds, as Roles for tenants often say.
pub(crate) const ALL_VERBS: &str = "wild";
/// Exempt by the chart's values.
pub(crate) const EXEMPT: &str = "agent-of-virtual-nodes";
/// May delete nodes that do not report, by the chart's values.
pub(crate) const DELETER: &str = "cloud";
/// May add the taint out-of-service to nodes that do not report, by the chart's values.
pub(crate) const TAINTER: &str = "tainter";
/// The same as components that the chart knows.
pub(crate) const CLOUD: &str = "system:serviceaccount:kube-system:node-controller";
pub(crate) const KARPENTER: &str = "system:serviceaccount:kube-system:karpenter";
/// The service account itself.
pub(crate) const POD_SAFETY: &str = "system:serviceaccount:pod-safety:pod-safety";
/// Kubernetes' own.
pub(crate) const POD_GC: &str = "system:serviceaccount:kube-system:pod-garbage-collector";
pub(crate) const STATEFUL_SETS: &str = "system:serviceaccount:kube-system:statefulset-controller";
pub(crate) const ATTACH_DETACH: &str = "system:serviceaccount:kube-system:attachdetach-controller";
/// The kubelet of `w1`, and another one.
pub(crate) const KUBELET: &str = "system:node:w1";
pub(crate) const OTHER_KUBELET: &str = "system:node:w2";
/// The kubelet of a node that is not there yet.
pub(crate) const NEW_KUBELET: &str = "system:node:w3";
/// May everything, by its group: the verbs of the policies too.
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

/// On an API server with more kinds.
pub(crate) async fn fixture_on(options: Options, more: &str, set: &str) -> Fixture {
    let plane = ControlPlane::start(options).await.unwrap();
    let set = format!(
        "--set=controllers.volumeGuard.enabled=true,admissionPolicies.exemptUsers={{{EXEMPT}}},admissionPolicies.nodeDeleters={{cloud-controller-manager,karpenter,user:{DELETER}}},admissionPolicies.outOfServiceTainters={{user:{TAINTER}}},controllers.podGc.trustOutOfServiceTaint=true,{set}"
    );
    let install = [
        "install",
        "pod-safety",
        chart().to_str().unwrap(),
        "--namespace=pod-safety",
        "--create-namespace",
        &set,
    ]
    .map(str::to_owned);
    plane.helm(&install.each_ref().map(String::as_str)).await.unwrap().text().unwrap();
    let scene = Fixture { plane };
    let kinds = "pods,pods/status,pods/eviction,pods/ephemeralcontainers,pods/resize,nodes,nodes/status,volumeattachments.storage.k8s.io,volumeattachments.storage.k8s.io/status,statefulsets.apps,fenceevidences.pod-safety.dev,fenceevidences.pod-safety.dev/status,nodefences.pod-safety.dev,nodefences.pod-safety.dev/status,fencedevices.pod-safety.dev,fencedevices.pod-safety.dev/status,podsafetyremediations.pod-safety.dev,podsafetyremediations.pod-safety.dev/status";
    let kinds = &format!("{kinds}{more}");
    let verbs = "--verb=get,list,watch,create,update,patch,delete,deletecollection";
    scene.expect(&["create", "clusterrole", "careless", verbs, "--resource", kinds]).await;
    for user in USERS {
        let name = user.replace(':', "-");
        scene
            .expect(&["create", "clusterrolebinding", &name, "--clusterrole=careless", "--user", user])
            .await;
    }
    let may =
        ["create", "clusterrolebinding", "may", "--clusterrole=pod-safety-break-glass", "--user", OPERATOR];
    scene.expect(&may).await;
    let all = ["create", "clusterrole", "wild", "--verb=*", "--resource", kinds];
    scene.expect(&all).await;
    scene.expect(&["create", "clusterrolebinding", "wild", "--clusterrole=wild", "--user", ALL_VERBS]).await;
    scene
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

    /// A pod on `w1` that says it runs. One of a StatefulSet has the hostname that its controller gives it.
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
        self.make(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "annotations": annotations } })).await;
        if let Some(ready) = ready {
            // As the agent of a virtual node does: of others nobody but its kubelet may say Ready.
            self.calls(EXEMPT, name, ready).await.text().unwrap();
        }
    }

    /// Writes the condition Ready of a node.
    pub(crate) async fn calls(&self, user: &str, node: &str, ready: &str) -> Output {
        let conditions = json!({ "conditions": [{ "type": "Ready", "status": ready }] });
        self.status(user, &["node", node], &conditions).await
    }

    /// As what happened should have been. Of two policies that refuse (`a or b`) the API server names one.
    pub(crate) fn check_answer(row: &str, output: &Output, refusal: Option<&str>) {
        match refusal {
            None => assert!(output.status.success(), "{row} was refused: {}", output.stderr),
            Some(policy) => {
                let by = |policy: &str| output.stderr.contains(&format!("'pod-safety-{policy}'"));
                let named = policy.split(" or ").any(by) && output.stderr.contains("denied request");
                assert!(!output.status.success() && named, "{row} was not refused by {policy}: {output:?}");
                // A message that could not be made falls back to the expression.
                assert!(!output.stderr.contains("failed expression"), "{row}: {}", output.stderr);
            }
        }
    }
}

/// Policies hold a moment after they were written.
pub(crate) async fn until_they_hold(scene: &Fixture) {
    scene.pod("probe", true, 30, None).await;
    scene.node("probe", Some("Unknown"), None).await;
    until("the policies hold", async || {
        let force = ["delete", "pod", "probe", "--force", "--grace-period=0", "--dry-run=server"];
        let first = scene.run(DEV, &force, &Value::Null).await;
        let second = scene.run(DEV, &["delete", "node", "probe", "--dry-run=server"], &Value::Null).await;
        check_that(!first.status.success() && !second.status.success(), format!("{first:?} {second:?}"))
    })
    .await
    .unwrap();
}
