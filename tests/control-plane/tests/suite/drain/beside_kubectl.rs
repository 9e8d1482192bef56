//! `pod-safety drain --apply`, `pod-safety maintain` and `kubectl drain` on equal copies of small clusters, with the real API server,
//! scheduler and workload controllers: pod-safety evicts nothing that kubectl would not, and succeeds wherever kubectl does.
//!
//! The first clusters are fixed, the others random: `POD_SAFETY_DRAINS` is their number.

use tokio::sync::Mutex;

use super::clusters::{Act, Cluster, DIFFERENCES, Draws, Owner, PLAIN, Pdb, fixed_clusters, takes_any_daemon_set};
use super::webhook::{Hook, NAME, Webhook};
use super::*;

/// The time limit where something blocks permanently.
const WITHIN: &str = "20s";

/// The number of random clusters.
const DRAWN: usize = 6;

/// The command that drains a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainCommand {
    Drain,
    Maintain,
    Kubectl,
}

/// A copy of a cluster: its namespace, which is also the name of its pool of nodes.
struct ClusterCopy<'a> {
    plane: &'a ControlPlane,
    kubelets: &'a HollowKubelets,
    webhook: &'a Webhook,
    cluster: Cluster,
    name: String,
}

/// The kubelets of all copies.
#[derive(Default)]
struct HollowKubelets {
    stop: AtomicBool,
    /// How many pods of each namespace were terminated. It is locked during a deletion: a drain that sees the pod gone
    /// finds it counted.
    terminated: Mutex<BTreeMap<String, usize>>,
}

impl HollowKubelets {
    async fn run(&self, plane: &ControlPlane) {
        while !self.stop.load(Ordering::SeqCst) {
            self.round(plane).await;
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }

    async fn round(&self, plane: &ControlPlane) {
        let client = plane.admin();
        let Ok(all) = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await else { return };
        for pod in all {
            let (namespace, name) = (pod.metadata.namespace.clone().unwrap(), pod.metadata.name.clone().unwrap());
            let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
            let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            if pod.metadata.deletion_timestamp.is_some() {
                let over = DeleteParams {
                    grace_period_seconds: Some(0),
                    preconditions: Some(Preconditions { uid: pod.metadata.uid.clone(), resource_version: None }),
                    ..DeleteParams::default()
                };
                let mut terminated = self.terminated.lock().await;
                if pods.delete(&name, &over).await.is_ok() {
                    *terminated.entry(namespace).or_default() += 1;
                }
            } else if bound && phase(&pod) == "Pending" {
                let is_ready = !pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("unready"));
                let mut status = running(objects::pod(&namespace, &name).with_phase("Running").status.unwrap());
                for condition in status.conditions.iter_mut().flatten().filter(|_| !is_ready) {
                    condition.status = "False".to_owned();
                }
                drop(objects::set_pod_status(&client, &namespace, &name, &status).await);
            }
        }
    }

    async fn terminated_pods(&self, namespace: &str) -> usize {
        self.terminated.lock().await.get(namespace).copied().unwrap_or_default()
    }
}

/// The result of a drain: success, and the number of removed pods.
#[derive(Debug)]
struct Ended {
    succeeded: bool,
    gone: usize,
    output: String,
}

impl ClusterCopy<'_> {
    fn node(&self) -> String {
        format!("{}-a", self.name)
    }

    /// The drained nodes.
    fn nodes(&self) -> Vec<String> {
        let also = self.cluster.two.then(|| format!("{}-c", self.name));
        std::iter::once(self.node()).chain(also).collect()
    }

    async fn make_node(&self, which: &str) {
        let mut node = objects::node(&format!("{}-{which}", self.name)).with_ready("True");
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert("pool".to_owned(), self.name.clone());
        labels.insert("home".to_owned(), format!("{}-{which}", self.name));
        let name = node.metadata.name.clone().unwrap();
        objects::create_node(&self.plane.admin(), &node).await.unwrap();
        let taint = ["taint", "node", &name, "node.kubernetes.io/not-ready-"];
        self.plane.kubectl(&taint).await.unwrap().text().unwrap();
    }

    fn template(&self) -> Value {
        let Cluster { reschedules_here: comes_back, ready, .. } = self.cluster;
        let mut labels = json!({ "app": "db" });
        if !ready {
            labels["unready"] = json!("true");
        }
        let mut spec = json!({ "terminationGracePeriodSeconds": 1, "nodeSelector": { "pool": self.name },
            "containers": [{ "name": "main", "image": "registry.example/main:1" }] });
        if comes_back {
            spec["tolerations"] = json!([{ "operator": "Exists" }]);
            spec["nodeSelector"]["home"] = json!(self.node());
        }
        json!({ "metadata": { "labels": labels }, "spec": spec })
    }

    async fn make_pods(&self) {
        let Cluster { owner, replicas, .. } = self.cluster;
        let set = |kind: &str| {
            json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "namespace": self.name, "name": "db" },
            "spec": { "selector": { "matchLabels": { "app": "db" } }, "template": self.template() } })
        };
        let controller = match owner {
            Owner::Deployment | Owner::StatefulSet => {
                let mut object = set(&format!("{owner:?}"));
                object["spec"]["replicas"] = json!(replicas);
                if owner == Owner::StatefulSet {
                    object["spec"]["serviceName"] = json!("db");
                    object["spec"]["podManagementPolicy"] = json!("Parallel");
                }
                return apply(self.plane, &object).await;
            }
            Owner::None => None,
            Owner::DaemonSet => {
                apply(self.plane, &set("DaemonSet")).await;
                let there = self.plane.find("daemonset", &self.name, "db").await.unwrap().unwrap();
                Some(("apps/v1", "DaemonSet", there["metadata"]["uid"].as_str().unwrap().to_owned()))
            }
            Owner::GoneDaemonSet => Some(("apps/v1", "DaemonSet", "gone".to_owned())),
            Owner::ForeignDaemonSet => Some(("acme.example/v9", "DaemonSet", "foreign".to_owned())),
            Owner::Custom => Some(("acme.example/v1", "Fleet", "fleet".to_owned())),
        };
        for number in 0..replicas {
            let mut pod = self.template();
            pod["apiVersion"] = json!("v1");
            pod["kind"] = json!("Pod");
            pod["metadata"]["namespace"] = json!(self.name);
            pod["metadata"]["name"] = json!(format!("db-{number}"));
            if let Some((group, kind, uid)) = &controller {
                pod["metadata"]["ownerReferences"] =
                    json!([{ "apiVersion": group, "kind": kind, "name": "db", "uid": uid, "controller": true }]);
            }
            apply(self.plane, &pod).await;
        }
    }

    async fn make_budgets(&self) {
        let Cluster { pdb, replicas, .. } = self.cluster;
        let specs = match pdb {
            Pdb::None => vec![],
            Pdb::All => vec![json!({ "minAvailable": replicas })],
            Pdb::Zero => vec![json!({ "maxUnavailable": 0 })],
            Pdb::One => vec![json!({ "maxUnavailable": 1 })],
            Pdb::Two => vec![json!({ "minAvailable": 0 }), json!({ "minAvailable": 0 })],
        };
        for (index, mut spec) in specs.into_iter().enumerate() {
            spec["selector"] = json!({ "matchLabels": { "app": "db" } });
            let metadata = json!({ "namespace": self.name, "name": format!("db-{index}") });
            let object =
                json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec });
            apply(self.plane, &object).await;
            wait_until("its status is written", async || {
                let object = self.plane.find("pdb", &self.name, &format!("db-{index}")).await;
                let status = object.map_err(|error| error.to_string())?.map(|object| object["status"].clone());
                // kube-controller-manager cannot calculate a PDB for pods whose controller has no scale.
                let is_written = |status: &Value| status["conditions"].is_array();
                check_that(status.as_ref().is_some_and(is_written), format!("{status:?}"))
            })
            .await;
        }
    }

    async fn prepare(&self) {
        self.plane.namespace(&self.name).await.unwrap();
        self.make_node("a").await;
        if self.cluster.two {
            self.make_node("c").await;
        }
        self.webhook.guard(self.plane, &self.name, self.cluster.webhook).await;
        self.make_pods().await;
        wait_until("its pods run", async || {
            let pods = Api::<Pod>::namespaced(self.plane.admin(), &self.name).list(&ListParams::default()).await;
            let pods = pods.map_err(|error| error.to_string())?.items;
            let running = pods.iter().filter(|pod| phase(pod) == "Running").count();
            check_that(running == self.cluster.replicas, format!("{running} run"))
        })
        .await;
        self.make_budgets().await;
        self.make_node("b").await;
        if self.cluster.act == Act::NamespaceEnds {
            // A finalizer keeps its pods until the action, like a slow namespace controller.
            let namespace = json!({ "metadata": { "finalizers": ["example.com/stays"] } }).to_string();
            self.kubectl(&["patch", "namespace", &self.name, "--type=merge", "-p", &namespace]).await;
            self.kubectl(&["delete", "namespace", &self.name, "--wait=false"]).await;
        }
    }

    async fn kubectl(&self, args: &[&str]) {
        drop(self.plane.kubectl(args).await.unwrap());
    }

    /// The actions of other clients after the cordon.
    async fn apply_act(&self) {
        wait_until("the node is cordoned", async || {
            let node = Api::<Node>::all(self.plane.admin()).get(&self.node()).await.map_err(|e| e.to_string())?;
            check_that(node.spec.is_some_and(|spec| spec.unschedulable == Some(true)), "not yet".to_owned())
        })
        .await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let here = ["-n", self.name.as_str()];
        match self.cluster.act {
            Act::Nothing => {}
            Act::PdbGoes => self.kubectl(&[&["delete", "pdb", "--all"], &here[..]].concat()).await,
            Act::PdbLowers => {
                let to = json!({ "spec": { "minAvailable": 0, "maxUnavailable": null } }).to_string();
                self.kubectl(&[&["patch", "pdb", "db-0", "--type=merge", "-p", &to], &here[..]].concat()).await;
            }
            Act::PodGoes => {
                self.kubectl(&[&["delete", "pod", "-l", "app=db", "--wait=false"], &here[..]].concat()).await;
            }
            Act::NamespaceEnds => {
                self.kubectl(&[&["delete", "pod", "--all", "--wait=false"], &here[..]].concat()).await;
            }
        }
    }

    async fn drained(&self, command: DrainCommand) -> Ended {
        self.prepare().await;
        let (nodes, timeout) = (self.nodes(), format!("--timeout={WITHIN}"));
        let nodes = nodes.iter().map(String::as_str);
        let mut args: Vec<&str> = match command {
            DrainCommand::Drain => ["drain", &timeout, "--apply"].into_iter().chain(nodes).collect(),
            DrainCommand::Maintain => ["maintain", &timeout, "--reason=r"].into_iter().chain(nodes).collect(),
            DrainCommand::Kubectl => ["drain", &timeout, "--ignore-daemonsets"].into_iter().chain(nodes).collect(),
        };
        let is_pod_safety = command != DrainCommand::Kubectl;
        args.extend(self.cluster.force.then_some(if is_pod_safety { "--evict-unmanaged" } else { "--force" }));
        let drain = async {
            match is_pod_safety {
                true => pod_safety(self.plane, &args).await,
                false => self.plane.kubectl(&args).await.unwrap(),
            }
        };
        let output = tokio::select! {
                biased;
            output = drain => output,
            // Without a cordon there is no action.
            ((), never) = futures::future::join(self.apply_act(), std::future::pending::<Output>()) => never,
        };
        let output_text = format!("{}{}", output.stdout, output.stderr);
        Ended {
            succeeded: output.status.success(),
            gone: self.kubelets.terminated_pods(&self.name).await,
            output: output_text,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_ends_like_kubectl_and_evicts_no_more_pods() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let kcm = "deployment-controller,replicaset-controller,statefulset-controller,disruption-controller";
    let _kcm = plane.kube_controller_manager(kcm, &[]).await.unwrap();
    let _scheduler = plane.kube_scheduler(&[]).await.unwrap();
    let kubelets = HollowKubelets::default();
    let drawn = std::env::var("POD_SAFETY_DRAINS").map_or(DRAWN, |count| count.parse().unwrap());
    let mut draws = Draws(53);
    let clusters: Vec<Cluster> = fixed_clusters().into_iter().chain((0..drawn).map(|_| draws.draw_cluster())).collect();
    let webhook = Webhook::start().await;
    plane.install_pod_safety().await.unwrap();
    let copy = |(index, cluster): (usize, &Cluster), command: DrainCommand| ClusterCopy {
        plane: &plane,
        kubelets: &kubelets,
        webhook: &webhook,
        cluster: *cluster,
        name: format!("{command:?}-{index}").to_lowercase(),
    };
    let pairs = async {
        let mut wrong = Vec::new();
        // A few at a time: each mostly waits.
        for some in clusters.iter().enumerate().collect::<Vec<_>>().chunks(7) {
            let all = some.iter().map(|one| async {
                let [drain, maintain, kubectl] = [DrainCommand::Drain, DrainCommand::Maintain, DrainCommand::Kubectl]
                    .map(|command| (copy(*one, command), command));
                // It accepts one node only.
                let maintain = async { if one.1.two { None } else { Some(maintain.0.drained(maintain.1).await) } };
                let (kubectl_end, drained) = (kubectl.0.drained(kubectl.1), drain.0.drained(drain.1));
                futures::future::join3(kubectl_end, drained, maintain).await
            });
            let ends = futures::future::join_all(all).await;
            for ((_, cluster), (kubectl_end, drained, maintained)) in some.iter().zip(ends) {
                wrong.extend(compared(cluster, DrainCommand::Drain, &drained, &kubectl_end));
                wrong.extend(
                    maintained.and_then(|own_end| compared(cluster, DrainCommand::Maintain, &own_end, &kubectl_end)),
                );
            }
        }
        let fails = Cluster { owner: Owner::Custom, webhook: Hook::Fails, ..PLAIN };
        let (few, fails) = (
            copy((0, &Cluster { owner: Owner::Custom, ..PLAIN }), DrainCommand::Drain),
            copy((0, &fails), DrainCommand::Kubectl),
        );
        let few = ClusterCopy { name: "few".to_owned(), ..few };
        let fails = ClusterCopy { name: "fails".to_owned(), ..fails };
        futures::future::join(limited_rights(&few), permanently_failing_webhook(&fails)).await;
        kubelets.stop.store(true, Ordering::SeqCst);
        wrong
    };
    let ((), wrong) = tokio::join!(kubelets.run(&plane), pairs);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A difference of pod-safety from kubectl, unless it is an improvement.
fn compared(cluster: &Cluster, command: DrainCommand, pod_safety: &Ended, kubectl_end: &Ended) -> Option<String> {
    let words = |end: &Ended| format!("{} gone, {}", end.gone, if end.succeeded { "well" } else { "not well" });
    println!("{cluster:?}: {command:?} {}, kubectl {}", words(pod_safety), words(kubectl_end));
    let returns = cluster.reschedules_here && matches!(cluster.owner, Owner::Deployment | Owner::StatefulSet);
    let is_named = pod_safety.output.contains("after the cordon and stays: it tolerates the cordon");
    let is_better = DIFFERENCES.iter().any(|(hook, _)| *hook == cluster.webhook)
        || cluster.owner == Owner::ForeignDaemonSet && takes_any_daemon_set();
    // If pods are deleted meanwhile, either command may also see a successor.
    let differ = pod_safety.gone != kubectl_end.gone && cluster.act != Act::PodGoes && !is_better;
    let is_unnamed = returns && pod_safety.succeeded && !is_named;
    // An error of a webhook must name the webhook.
    let hides =
        matches!(cluster.webhook, Hook::Denies(_) | Hook::Fails | Hook::Slow) && !pod_safety.output.contains(NAME);
    let is_wrong = differ || is_unnamed || hides || (kubectl_end.succeeded && !pod_safety.succeeded && !is_better);
    is_wrong.then(|| format!("{cluster:?}\n{command:?}: {pod_safety:#?}\nkubectl: {kubectl_end:#?}"))
}

/// Without `--timeout`: the drain retries for a minute, and names the webhook.
async fn permanently_failing_webhook(copy: &ClusterCopy<'_>) {
    copy.prepare().await;
    let output = pod_safety(copy.plane, &["drain", &copy.node(), "--apply"]).await;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    for expected in [
        format!("waits, tried for 60s: the API server asks the admission webhook {NAME} first, and that fails"),
        "not evicted, after 6".to_owned(),
    ] {
        assert!(output.stdout.contains(&expected), "{expected}: not in\n{}", output.stdout);
    }
}

/// The rights of `kubectl drain` are enough; with fewer, all missing rights are reported at once.
async fn limited_rights(copy: &ClusterCopy<'_>) {
    copy.prepare().await;
    let drain = ["drain", &copy.node(), "--apply", "--timeout=60s"];
    let none = copy.plane.user_kubeconfig("nobody", &[]).unwrap();
    let output = copy.plane.start_pod_safety_once(&none, &drain).await.unwrap();
    let expected_rights = ["list pods", "list poddisruptionbudgets", "get nodes"];
    let named = expected_rights.iter().all(|right| output.stderr.contains(right));
    assert!(output.status.code() == Some(1) && named, "{output:?}");
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs });
    let rules = [
        rule("", "nodes", &["get", "patch"]),
        rule("", "pods", &["get", "list"]),
        rule("", "pods/eviction", &["create"]),
    ];
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "drains" }, "rules": rules });
    apply(copy.plane, &role).await;
    copy.kubectl(&["create", "clusterrolebinding", "drains", "--clusterrole=drains", "--user=few"]).await;
    let few = copy.plane.user_kubeconfig("few", &[]).unwrap();
    wait_until("the authorizer knows the role", async || {
        let output = copy.plane.start_pod_safety_once(&few, &drain).await.map_err(|error| error.to_string())?;
        check_that(output.status.success(), format!("{output:?}"))
    })
    .await;
    assert_eq!(copy.kubelets.terminated_pods(&copy.name).await, 1);
}
