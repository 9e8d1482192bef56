//! Controllers of other projects that act on the pods, taints and Nodes of a lost node, beside the chart's policies in `Deny`. Each is
//! simulated with its ServiceAccount and the requests of its source code, in that order: the conflict ends without an operator, and the pod
//! is released by evidence when its machine has no power. Everything is real except the kubelets and the containers.

mod rows;

use http::Method;
use pod_safety_control_plane::chart;
use pod_safety_locks::repository;
use rows::{Proof, Reason, Row, Step};

use super::*;

const LOST: &str = "w1";
const OPS: &str = "pod-safety";
/// The user of all kubelets here. The policies allow a kubelet to write its own node only, so this user is exempt.
const KUBELETS: &str = "kubelets";
/// A user with the rights of these accounts that no policy exempts.
const UNEXEMPT_ACCOUNT: &str = "stranger";
/// The API groups that the accounts may use. Without `breakglass.pod-safety.dev` they override no policy.
const GROUPS: [&str; 7] = [
    "",
    "storage.k8s.io",
    "karpenter.sh",
    "machine.openshift.io",
    "fence-agents-remediation.medik8s.io",
    "self-node-remediation.medik8s.io",
    "storage-based-remediation.medik8s.io",
];

/// The controllers of Kubernetes that run.
const CONTROLLERS: &str = "statefulset-controller,clusterrole-aggregation-controller";

struct Fixture {
    row: &'static Row,
    plane: ControlPlane,
    api: Client,
    lost: Arc<Machine>,
    /// The UID of the pod on the lost machine.
    uid: String,
    file: std::path::PathBuf,
    _pod_safety: PodSafety,
    _components: [Component; 2],
    _kubelets: JoinSet<()>,
    _rigs: Rigs,
}

/// Installs the chart with its policies in `Deny`, and grants the account of the row its rights.
async fn install(plane: &ControlPlane, row: &Row) {
    let set = format!(
        "--set=mode=replace,admissionPolicies.action=Deny,admissionPolicies.exemptUsers={{{KUBELETS}}}{}",
        row.set
    );
    let chart = chart();
    let chart = chart.to_str().unwrap();
    let install = ["install", OPS, chart, "--namespace=pod-safety", "--create-namespace", &set];
    plane.helm(&install).await.unwrap().text().unwrap();
    let rbac = "rbac.authorization.k8s.io";
    let rule = json!([{ "apiGroups": GROUPS, "resources": ["*"], "verbs": ["*"] }]);
    let of = |kind: &str| json!({ "apiVersion": format!("{rbac}/v1"), "kind": kind, "metadata": { "name": "others" } });
    let (mut role, mut binding) = (of("ClusterRole"), of("ClusterRoleBinding"));
    role["rules"] = rule;
    binding["roleRef"] = json!({ "apiGroup": rbac, "kind": "ClusterRole", "name": "others" });
    let users = [row.account, UNEXEMPT_ACCOUNT].map(|name| json!({ "apiGroup": rbac, "kind": "User", "name": name }));
    binding["subjects"] = json!(users);
    apply(plane, &role).await;
    apply(plane, &binding).await;
}

/// A kind of another project, without a schema.
async fn defined(plane: &ControlPlane, kind: Kind, object: &Value) {
    let scope = if object["metadata"]["namespace"].is_null() { "Cluster" } else { "Namespaced" };
    define(&plane.admin(), kind, scope, &json!({ "status": {} })).await.unwrap();
    apply(plane, object).await;
}

/// The device that may prove the machine off, and the policy that names it.
async fn devices(plane: &ControlPlane, proof: &Proof) {
    let (spec, role) = match proof {
        Proof::None => return,
        Proof::Switch => (None, None),
        Proof::Object { driver, kind, at, object, role } => {
            let object: Value = serde_json::from_str(object).unwrap();
            defined(plane, *kind, &object).await;
            let status = json!({ "status": object["status"] });
            send(plane, None, "PATCH", &format!("{at}/status"), &status).await.unwrap();
            let mut spec = json!({ "driver": driver, "identityCheck": "Required", "monitorSeconds": 5 });
            if object["metadata"]["namespace"] == OPS {
                spec["namespaces"] = json!([OPS]);
            }
            (Some(spec), Some(*role))
        }
        Proof::Remediator([kind, template]) => {
            define(&plane.admin(), *kind, "Namespaced", &json!({ "status": {} })).await.unwrap();
            let mut reference = json!({ "apiVersion": template.api_version, "kind": template.kind, "name": "all" });
            let spec = json!({ "driver": "External", "monitorSeconds": 5, "external": { "templateRef": reference } });
            reference["metadata"] = json!({ "namespace": OPS, "name": "all" });
            reference["spec"] = json!({ "template": { "spec": {} } });
            reference.as_object_mut().unwrap().remove("name");
            defined(plane, *template, &reference).await;
            // As shipped by their operators.
            let label = json!({ "rbac.ext-remediation/aggregate-to-ext-remediation": "true" });
            let group = template.api_version.split('/').next();
            let rules =
                json!([{ "apiGroups": [group], "resources": ["*"], "verbs": ["get", "create", "delete", "patch"] }]);
            let object = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": { "name": "ext-remediation", "labels": label }, "rules": rules });
            apply(plane, &object).await;
            (Some(spec), Some("pod-safety-fencing-remediators"))
        }
    };
    if let Some(role) = role {
        plane.bind_pod_safety(role).await.unwrap();
    }
    let device = if spec.is_some() { "other" } else { LOST };
    if let Some(mut spec) = spec {
        spec["timeouts"] = json!({ "powerOff": "10m" });
        apply(plane, &device_of("other", LOST, spec)).await;
    }
    let mut fences = policy(LOST, LOST, device);
    fences["spec"]["recovery"] = json!("Hold");
    apply(plane, &fences).await;
}

/// Sends a request as this user, or with all rights.
async fn send(plane: &ControlPlane, user: Option<&str>, verb: &str, path: &str, body: &Value) -> kube::Result<Value> {
    let kind = match (verb, path.starts_with("/api/")) {
        ("PATCH", true) => "application/strategic-merge-patch+json",
        ("PATCH", false) => "application/merge-patch+json",
        _ => "application/json",
    };
    let method = Method::from_bytes(verb.as_bytes()).unwrap();
    let mut request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    if let Some(user) = user {
        request = request.header("impersonate-user", user);
    }
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    plane.admin().request(request.body(body).unwrap()).await
}

fn refused_by(answer: &kube::Result<Value>, policy: &str) -> bool {
    let by = |text: &str| text.contains(&format!("'pod-safety-{policy}'")) && text.contains("denied request");
    matches!(answer, Err(kube::Error::Api(status)) if by(&status.message))
}

async fn fixture(row: &'static Row) -> Fixture {
    let rigs = Rigs::new().await.unwrap();
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    install(&plane, row).await;
    plane.namespace(NAMESPACE).await.unwrap();
    devices(&plane, &row.proof).await;
    let kubeconfig = plane.service_account(OPS, OPS).await.unwrap();
    let lost = switch_log(&plane, &rigs, LOST).await;
    let speaks = plane.user_kubeconfig(KUBELETS, &["system:masters"]).unwrap();
    let speaks = plane.client(&speaks).await.unwrap();
    let kubelets = kubelets_as(&speaks, spare_machines().iter().chain([&lost]));
    let (components, pod_safety) = leader_beside_with(&plane, &kubeconfig, CONTROLLERS, &rigs, row.flags).await;
    let mut set = workloads::stateful_set_near(NAMESPACE, "db", LOST);
    set["spec"]["template"]["spec"]["tolerations"] = workloads::brief_tolerations();
    apply(&plane, &set).await;
    let api = plane.admin();
    let uid = wait_until("the database runs at home", async || match runs(&api).await {
        Some((at, uid)) if at == LOST => Ok(uid),
        // On a busy machine its node was not Ready for a moment, so the scheduler chose another one.
        Some(other) => {
            observe::delete_pod(&api, NAMESPACE, "db-0", false).await.unwrap();
            Err(format!("{other:?}"))
        }
        None => Err("it does not run".to_owned()),
    })
    .await;
    let file = rigs.file(&format!("{LOST}.power"));
    let (_components, _pod_safety, _kubelets, _rigs) = (components, pod_safety, kubelets, rigs);
    let fixture = Fixture { row, plane, api, lost, uid, file, _pod_safety, _components, _kubelets, _rigs };
    fixture.until_the_policies_hold().await;
    wait_until("the devices are ready", async || {
        let devices = fixture.plane.list("fencedevices").await.map_err(|error| error.to_string())?;
        let is_ready = |device: &Value| {
            let mut conditions = device["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        check_that(devices.iter().all(is_ready), format!("{devices:#?}"))
    })
    .await;
    fixture
}

async fn runs(api: &Client) -> Option<(String, String)> {
    let pod = observe::find_pod(api, NAMESPACE, "db-0").await.unwrap();
    pod.as_ref().and_then(observe::is_running)
}

impl Fixture {
    async fn until_the_policies_hold(&self) {
        for (path, policy) in [(rows::POD, "force-delete"), (rows::NODE, "node")] {
            wait_until(&format!("{policy} holds"), async || {
                let path = format!("{path}?gracePeriodSeconds=0&dryRun=All");
                let answer = send(&self.plane, Some(UNEXEMPT_ACCOUNT), "DELETE", &path, &Value::Null).await;
                check_that(refused_by(&answer, policy), format!("{answer:?}"))
            })
            .await;
        }
    }

    async fn get(&self, path: &str) -> Option<Value> {
        match send(&self.plane, None, "GET", path, &Value::Null).await {
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            answer => Some(answer.unwrap()),
        }
    }

    async fn pod_exists(&self) -> bool {
        let pod = observe::find_pod(&self.api, NAMESPACE, "db-0").await.unwrap();
        pod.is_some_and(|pod| pod.metadata.uid.as_deref() == Some(&self.uid))
    }

    /// Sends a request until it is allowed, or until its pod is gone. The first answer is checked: allowed, or denied by this policy.
    async fn send_until_allowed(&self, verb: &str, path: &str, body: &str, refusal: Option<&str>) {
        let body = body.replace("UID", &self.uid);
        let body: Value = if body.is_empty() { Value::Null } else { serde_json::from_str(&body).unwrap() };
        let what = format!("{}: {verb} {path}", self.row.name);
        let mut first = true;
        wait_until(&what, async || {
            // A controller reads the pod again before its next request.
            if !first && path.starts_with(rows::POD) && !self.pod_exists().await {
                return Ok(());
            }
            let answer = send(&self.plane, Some(self.row.account), verb, path, &body).await;
            if first {
                match refusal {
                    Some(policy) => assert!(refused_by(&answer, policy), "{what}: not refused: {answer:?}"),
                    None => assert!(answer.is_ok(), "{what} was refused: {answer:?}"),
                }
            }
            first = false;
            check_that(answer.is_ok(), format!("{answer:?}"))
        })
        .await;
    }

    /// A controller that adds a taint reads the Node first, and keeps an existing taint.
    async fn until_tainted(&self, key: &str, effect: &str, refusal: Option<&str>) {
        let body = json!({ "spec": { "taints": [{ "key": key, "effect": effect }] } });
        let what = format!("{}: taint {key}", self.row.name);
        let mut refused = false;
        wait_until(&what, async || {
            let node = self.get(rows::NODE).await.ok_or("the Node is gone")?;
            if node["spec"]["taints"].as_array().into_iter().flatten().any(|taint| taint["key"] == key) {
                return Ok(());
            }
            let answer = send(&self.plane, Some(self.row.account), "PATCH", rows::NODE, &body).await;
            refused |= refusal.is_some_and(|policy| refused_by(&answer, policy));
            check_that(answer.is_ok(), format!("{answer:?}"))
        })
        .await;
        assert_eq!(refused, refusal.is_some(), "{what}");
    }

    async fn run_script(&self) {
        let is_lost = async || {
            let node = self.get(rows::NODE).await.unwrap();
            let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|one| one["type"] == "Ready" && one["status"] != "True")
        };
        wait_until("the node is lost", async || check_that(is_lost().await, "Ready")).await;
        for step in self.row.script {
            match *step {
                Step::Sends(verb, path, body, refusal) => self.send_until_allowed(verb, path, body, refusal).await,
                Step::Once(verb, path, body, policy) => {
                    let body = serde_json::from_str(&body.replace("UID", &self.uid)).unwrap();
                    let answer = send(&self.plane, Some(self.row.account), verb, path, &body).await;
                    assert!(refused_by(&answer, policy), "{verb} {path}: {answer:?}");
                }
                Step::Taints(key, effect, refusal) => self.until_tainted(key, effect, refusal).await,
                Step::Off => std::fs::write(&self.file, "off").unwrap(),
                Step::Deleted(path) => {
                    wait_until(&format!("{path} is being deleted"), async || {
                        let object = self.get(path).await.unwrap_or_default();
                        let fences = super::incidents(&self.plane).await;
                        check_that(object["metadata"]["deletionTimestamp"].is_string(), format!("{fences:#?}"))
                    })
                    .await;
                }
                Step::Exists(path) => {
                    wait_until(&format!("{path} is there"), async || {
                        let fences = super::incidents(&self.plane).await;
                        check_that(self.get(path).await.is_some(), format!("{fences:#?}"))
                    })
                    .await;
                }
                Step::PodGone => {
                    wait_until("the pod is gone", async || check_that(!self.pod_exists().await, "not yet")).await;
                }
            }
        }
    }

    /// Since the loss of the node. The first pod is released when its machine has no power, by this evidence.
    async fn until_elsewhere(&self, begun: Instant) -> Duration {
        wait_until("the first pod is gone", async || {
            let is_there = self.pod_exists().await;
            assert!(is_there || !self.lost.has_power(), "{}: the pod went while it ran", self.row.name);
            check_that(!is_there, format!("{:?}", super::incidents(&self.plane).await))
        })
        .await;
        if let Reason::Evidence(kind) = self.row.reason {
            let all = self.plane.list("fenceevidences").await.unwrap();
            let proves = |one: &Value| one["spec"]["node"]["name"] == LOST && one["spec"]["kind"] == kind;
            assert!(all.iter().any(proves), "{}: the pod went without evidence: {all:#?}", self.row.name);
        }
        wait_until("the database runs elsewhere", async || {
            let at = runs(&self.api).await;
            check_that(at.as_ref().is_some_and(|(at, uid)| at != LOST && *uid != self.uid), format!("{at:?}"))
        })
        .await;
        let took = begun.elapsed();
        if let Reason::Reports(words) = self.row.reason {
            let message = observe::event(&self.api, NAMESPACE, "db-0", "ForceDeleted").await.unwrap();
            assert!(message.contains(words), "{}: {message}", self.row.name);
        }
        took
    }
}

async fn run_row(row: &'static Row) {
    let fixture = fixture(row).await;
    let begun = Instant::now();
    fixture.lost.cut_off().await;
    let (took, ()) = tokio::join!(fixture.until_elsewhere(begun), fixture.run_script());
    println!("scene {}: Running elsewhere {:.0} s after the loss ({})", row.name, took.as_secs_f64(), row.source);
}

macro_rules! remediators {
    ($($name:ident),* $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            run_row(rows::row(stringify!($name))).await;
        })*

        #[test]
        fn each_row_has_a_test() {
            let rows: Vec<&str> = rows::ROWS.iter().map(|row| row.name).collect();
            assert_eq!(rows, [$(stringify!($name)),*]);
        }
    };
}

remediators!(
    karpenter,
    karpenter_repair,
    cluster_autoscaler,
    descheduler,
    fence_agents_remediation,
    self_node_remediation,
    storage_based_remediation,
    machine_api,
    machine_api_vsphere,
    machine_controller_manager,
    machine_controller_manager_listed,
    cloud_node_lifecycle,
    azure_cloud_controller_manager,
    azure_cloud_controller_manager_listed,
    longhorn,
    piraeus_ha_controller,
    kueue,
);

/// The cells of the table in docs/admission.md.
fn documented() -> Vec<Vec<String>> {
    let page = std::fs::read_to_string(repository().join("docs/admission.md")).unwrap();
    let (_, section) = page.split_once("## Beside other controllers").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| line.split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// Names and policies of a cell are in backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_page_documents_denial_and_duration_of_each_row() {
    let table = documented();
    let named: usize = table.iter().map(|cells| quoted(&cells[1]).len()).sum();
    assert_eq!(named, rows::ROWS.len());
    for row in &rows::ROWS {
        let name = row.name.replace('_', "-");
        let cells = table.iter().find(|cells| quoted(&cells[1]).contains(&&*name));
        let cells = cells.unwrap_or_else(|| panic!("{name} is not in the table"));
        let denied: Vec<&str> = row.script.iter().filter_map(Step::refused).collect();
        assert_eq!(quoted(&cells[2]), denied, "{name}");
        assert_eq!(cells[4].split(", ").count(), quoted(&cells[1]).len(), "seconds of {name}");
    }
}
