//! `pod-safety drain --apply` and `kubectl drain` on equal copies of small clusters, with the real API server, scheduler and
//! workload controllers: ours evicts nothing that kubectl would not, and ends well wherever kubectl does.
//!
//! The first clusters are told, the others drawn: `POD_SAFETY_DRAINS` says how many.

use std::sync::Mutex;

use super::*;

/// How long either may take where something waits for ever.
const WITHIN: &str = "20s";

/// So many clusters are drawn.
const DRAWN: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Deployment,
    StatefulSet,
    /// One whose kind the cluster does not have: nothing recreates its pods.
    Custom,
    Nobody,
    DaemonSet,
    /// A DaemonSet that does not exist, and a DaemonSet of another group.
    GoneDaemonSet,
    ForeignDaemonSet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pdb {
    None,
    /// `minAvailable` as many as there are, `maxUnavailable: 0`, `maxUnavailable: 1`.
    All,
    Zero,
    One,
    /// Two that select the same pods.
    Two,
}

/// What happens two seconds after the cordon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Nothing,
    PdbGoes,
    PdbLowers,
    PodGoes,
    /// Before the drain: the namespace is deleted, and its pods go two seconds after the cordon.
    NamespaceEnds,
}

#[derive(Clone, Copy, Debug)]
struct Cluster {
    owner: Owner,
    replicas: usize,
    /// Its pods tolerate the cordon, and no other node takes them.
    comes_back: bool,
    ready: bool,
    pdb: Pdb,
    act: Act,
    /// `--force`, and our `--evict-unmanaged`.
    force: bool,
}

const PLAIN: Cluster = Cluster {
    owner: Owner::Deployment,
    replicas: 1,
    comes_back: false,
    ready: true,
    pdb: Pdb::None,
    act: Act::Nothing,
    force: false,
};

fn told() -> Vec<Cluster> {
    let set = Cluster { owner: Owner::StatefulSet, replicas: 3, ..PLAIN };
    let custom = Cluster { owner: Owner::Custom, ..PLAIN };
    vec![
        Cluster { comes_back: true, ..PLAIN },
        Cluster { pdb: Pdb::All, act: Act::PdbGoes, ..custom },
        Cluster { pdb: Pdb::All, act: Act::PdbLowers, ..set },
        Cluster { pdb: Pdb::Zero, act: Act::PdbGoes, ..PLAIN },
        Cluster { act: Act::NamespaceEnds, ..custom },
        Cluster { owner: Owner::GoneDaemonSet, ..PLAIN },
        Cluster { owner: Owner::GoneDaemonSet, force: true, ..PLAIN },
        Cluster { owner: Owner::ForeignDaemonSet, ..PLAIN },
        Cluster { owner: Owner::DaemonSet, ..PLAIN },
        Cluster { pdb: Pdb::Two, ..set },
        Cluster { pdb: Pdb::One, ready: false, ..set },
    ]
}

/// Draws without a dependency: a step of SplitMix64.
struct Draws(u64);

impl Draws {
    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        of[usize::try_from(mixed >> 33).unwrap() % of.len()]
    }

    fn cluster(&mut self) -> Cluster {
        let owner = self.one(&[
            Owner::Deployment,
            Owner::Deployment,
            Owner::StatefulSet,
            Owner::Custom,
            Owner::Nobody,
        ]);
        let pdb = self.one(&[Pdb::None, Pdb::All, Pdb::Zero, Pdb::One, Pdb::Two]);
        Cluster {
            owner,
            replicas: self.one(&[1, 2, 3]),
            comes_back: self.one(&[false, false, true]),
            ready: self.one(&[true, true, false]),
            pdb,
            act: self.one(&[Act::Nothing, Act::PdbGoes, Act::PdbLowers, Act::PodGoes]),
            force: self.one(&[true, false]),
        }
    }
}

/// A copy of a cluster: its namespace, which is also the name of its pool of nodes.
struct Twin<'a> {
    plane: &'a ControlPlane,
    kubelets: &'a Hollow,
    cluster: Cluster,
    name: String,
}

/// The kubelets of all copies.
#[derive(Default)]
struct Hollow {
    stop: AtomicBool,
    /// How many pods of each namespace were asked to end.
    ended: Mutex<BTreeMap<String, usize>>,
}

impl Hollow {
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
            let (namespace, name) =
                (pod.metadata.namespace.clone().unwrap(), pod.metadata.name.clone().unwrap());
            let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
            let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            if pod.metadata.deletion_timestamp.is_some() {
                let over = DeleteParams {
                    grace_period_seconds: Some(0),
                    preconditions: Some(Preconditions {
                        uid: pod.metadata.uid.clone(),
                        resource_version: None,
                    }),
                    ..DeleteParams::default()
                };
                if pods.delete(&name, &over).await.is_ok() {
                    *self.ended.lock().unwrap().entry(namespace).or_default() += 1;
                }
            } else if bound && phase(&pod) == "Pending" {
                let is_ready =
                    !pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("unready"));
                let mut status =
                    running(objects::pod(&namespace, &name).with_phase("Running").status.unwrap());
                for condition in status.conditions.iter_mut().flatten().filter(|_| !is_ready) {
                    condition.status = "False".to_owned();
                }
                drop(objects::set_pod_status(&client, &namespace, &name, &status).await);
            }
        }
    }

    fn ended(&self, namespace: &str) -> usize {
        self.ended.lock().unwrap().get(namespace).copied().unwrap_or_default()
    }
}

/// How a drain ended: whether well, and how many pods went.
#[derive(Debug)]
struct Ended {
    well: bool,
    gone: usize,
    said: String,
}

impl Twin<'_> {
    fn node(&self) -> String {
        format!("{}-a", self.name)
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
        let Cluster { comes_back, ready, .. } = self.cluster;
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
            Owner::Nobody => None,
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
                pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": group, "kind": kind, "name": "db", "uid": uid, "controller": true }]);
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
            let object = json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec });
            apply(self.plane, &object).await;
            until("its status is written", async || {
                let object = self.plane.find("pdb", &self.name, &format!("db-{index}")).await;
                let status =
                    object.map_err(|error| error.to_string())?.map(|object| object["status"].clone());
                // kube-controller-manager cannot calculate it for pods whose controller has no scale.
                let is_written = |status: &Value| status["conditions"].is_array();
                seen(status.as_ref().is_some_and(is_written), format!("{status:?}"))
            })
            .await
            .unwrap();
        }
    }

    async fn prepare(&self) {
        self.plane.namespace(&self.name).await.unwrap();
        self.make_node("a").await;
        self.make_pods().await;
        until("its pods run", async || {
            let pods =
                Api::<Pod>::namespaced(self.plane.admin(), &self.name).list(&ListParams::default()).await;
            let pods = pods.map_err(|error| error.to_string())?.items;
            let running = pods.iter().filter(|pod| phase(pod) == "Running").count();
            seen(running == self.cluster.replicas, format!("{running} run"))
        })
        .await
        .unwrap();
        self.make_budgets().await;
        self.make_node("b").await;
        if self.cluster.act == Act::NamespaceEnds {
            // A finalizer keeps its pods until the act, as a busy namespace controller does.
            let namespace = json!({ "metadata": { "finalizers": ["example.com/stays"] } }).to_string();
            self.kubectl(&["patch", "namespace", &self.name, "--type=merge", "-p", &namespace]).await;
            self.kubectl(&["delete", "namespace", &self.name, "--wait=false"]).await;
        }
    }

    async fn kubectl(&self, args: &[&str]) {
        drop(self.plane.kubectl(args).await.unwrap());
    }

    /// What others do about the cordon.
    async fn act(&self) {
        until("the node is cordoned", async || {
            let node =
                Api::<Node>::all(self.plane.admin()).get(&self.node()).await.map_err(|e| e.to_string())?;
            seen(node.spec.is_some_and(|spec| spec.unschedulable == Some(true)), "not yet".to_owned())
        })
        .await
        .unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let here = ["-n", self.name.as_str()];
        match self.cluster.act {
            Act::Nothing => {}
            Act::PdbGoes => self.kubectl(&[&["delete", "pdb", "--all"], &here[..]].concat()).await,
            Act::PdbLowers => {
                let to = json!({ "spec": { "minAvailable": 0, "maxUnavailable": null } }).to_string();
                self.kubectl(&[&["patch", "pdb", "db-0", "--type=merge", "-p", &to], &here[..]].concat())
                    .await;
            }
            Act::PodGoes => {
                self.kubectl(&[&["delete", "pod", "-l", "app=db", "--wait=false"], &here[..]].concat()).await;
            }
            Act::NamespaceEnds => {
                self.kubectl(&[&["delete", "pod", "--all", "--wait=false"], &here[..]].concat()).await;
            }
        }
    }

    async fn drained(&self, ours: bool) -> Ended {
        self.prepare().await;
        let (node, timeout) = (self.node(), format!("--timeout={WITHIN}"));
        let mut args = vec!["drain", &node, &timeout];
        args.extend(if ours { &["--apply"][..] } else { &["--ignore-daemonsets"] });
        args.extend(self.cluster.force.then_some(if ours { "--evict-unmanaged" } else { "--force" }));
        let drain = async {
            match ours {
                true => pod_safety(self.plane, &args).await,
                false => self.plane.kubectl(&args).await.unwrap(),
            }
        };
        let output = tokio::select! {
                biased;
            output = drain => output,
            // Who never cordons sees no act.
            ((), never) = futures::future::join(self.act(), std::future::pending::<Output>()) => never,
        };
        let said = format!("{}{}", output.stdout, output.stderr);
        Ended { well: output.status.success(), gone: self.kubelets.ended(&self.name), said }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_ends_as_kubectls_and_evicts_nothing_more() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let kcm = "deployment-controller,replicaset-controller,statefulset-controller,disruption-controller";
    let _kcm = plane.kube_controller_manager(kcm, &[]).await.unwrap();
    let _scheduler = plane.kube_scheduler(&[]).await.unwrap();
    let kubelets = Hollow::default();
    let drawn = std::env::var("POD_SAFETY_DRAINS").map_or(DRAWN, |count| count.parse().unwrap());
    let mut draws = Draws(53);
    let clusters: Vec<Cluster> = told().into_iter().chain((0..drawn).map(|_| draws.cluster())).collect();
    let copy = |(index, cluster): (usize, &Cluster), who: &str| Twin {
        plane: &plane,
        kubelets: &kubelets,
        cluster: *cluster,
        name: format!("{who}-{index}"),
    };
    let pairs = async {
        let mut wrong = Vec::new();
        // A few at a time: each waits for most of its time.
        for some in clusters.iter().enumerate().collect::<Vec<_>>().chunks(6) {
            let both = some.iter().map(|one| async {
                let (ours, theirs) = (copy(*one, "ours"), copy(*one, "theirs"));
                futures::future::join(ours.drained(true), theirs.drained(false)).await
            });
            let ends = futures::future::join_all(both).await;
            for ((_, cluster), (ours, theirs)) in some.iter().zip(ends) {
                let words = |end: &Ended| {
                    format!("{} gone, {}", end.gone, if end.well { "well" } else { "not well" })
                };
                println!("{cluster:?}: ours {}, kubectl {}", words(&ours), words(&theirs));
                let returns =
                    cluster.comes_back && matches!(cluster.owner, Owner::Deployment | Owner::StatefulSet);
                let is_named = ours.said.contains("after the cordon and stays: it tolerates the cordon");
                // Whoever deletes pods meanwhile may meet a successor, too.
                let differ = ours.gone != theirs.gone && cluster.act != Act::PodGoes;
                let is_unnamed = returns && ours.well && !is_named;
                if differ || is_unnamed || (theirs.well && !ours.well) {
                    wrong.push(format!("{cluster:?}\nours: {ours:#?}\nkubectl: {theirs:#?}"));
                }
            }
        }
        few_rights(&copy((0, &Cluster { owner: Owner::Custom, ..PLAIN }), "few")).await;
        kubelets.stop.store(true, Ordering::SeqCst);
        wrong
    };
    let ((), wrong) = tokio::join!(kubelets.run(&plane), pairs);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What `kubectl drain` takes is enough; who has less is told of everything that is missing at once.
async fn few_rights(copy: &Twin<'_>) {
    copy.prepare().await;
    let drain = ["drain", &copy.node(), "--apply", "--timeout=60s"];
    let none = copy.plane.user_kubeconfig("nobody", &[]).unwrap();
    let output = copy.plane.pod_safety_once(&none, &drain).await.unwrap();
    let wanted = ["list nodes", "list pods", "list poddisruptionbudgets", "list statefulsets", "get nodes"];
    let named = wanted.iter().all(|right| output.stderr.contains(right));
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
    until("the authorizer knows the role", async || {
        let output = copy.plane.pod_safety_once(&few, &drain).await.map_err(|error| error.to_string())?;
        seen(output.status.success(), format!("{output:?}"))
    })
    .await
    .unwrap();
    assert_eq!(copy.kubelets.ended(&copy.name), 1);
}
