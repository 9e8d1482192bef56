//! Five hundred volumes, two controllers that are killed at random, pods that move, nodes that become unreachable and boot: no volume has two
//! owners, none changes its owner before the processes there have ended, and none stays held without a reason.
//!
//! The ground truth is only known here: a process writes to its volume from its start by the kubelet until the test ends it, whatever a Lease
//! states. The Leases are observed with a watch, every version of each.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use pod_safety_control_plane::objects::{self, NodeExt as _, PodExt as _};
use pod_safety_control_plane::{
    ControlPlane, PATIENCE, PodSafety, SHORT_LEADER_LEASE, check_that, observe, wait_until,
};
use serde_json::json;
use tokio::task::JoinSet;

use super::hosts::{DRIVER, unique};

const VOLUMES: usize = 500;
const NODES: usize = 10;
/// The duration of the changes, and that in the thorough test.
const STORM: Duration = Duration::from_secs(20);
const LONG_STORM: Duration = Duration::from_secs(60);
const SPACE: &str = "storm";

/// A node of this name in this incarnation.
type Incarnation = (String, u32);

/// The ground truth.
#[derive(Default)]
struct GroundTruth {
    incarnations: BTreeMap<String, u32>,
    /// The writer of each volume: its node, and its pod.
    writers: BTreeMap<String, (Incarnation, String)>,
    /// The last owner of each volume, its pod, and the number of revocations, as observed by the watch.
    owners: BTreeMap<String, (Option<(Incarnation, String)>, i32)>,
    violations: Vec<String>,
    changes: usize,
    broken: usize,
}

impl GroundTruth {
    /// Observes one version of a Lease.
    fn observe_lease(&mut self, lease: &Lease) {
        let volume = lease.metadata.name.clone().unwrap();
        let spec = lease.spec.clone().unwrap_or_default();
        let owner = spec.holder_identity.filter(|identity| !identity.is_empty()).map(|identity| {
            let parts: Vec<&str> = identity.split('/').collect();
            let boot = parts[2].rsplit('-').next().unwrap();
            let incarnation = (parts[0].to_owned(), u32::from_str_radix(boot, 16).unwrap());
            (incarnation, (*parts.last().unwrap()).to_owned())
        });
        let generation = spec.lease_transitions.unwrap_or(0);
        let (before, broken) = self.owners.get(&volume).cloned().unwrap_or_default();
        if before == owner && broken == generation {
            return;
        }
        self.changes += 1;
        // Pods here are bound independently of the volume's owner. So the owner can have ended, and another pod write, before any controller
        // observes it: then the Lease changes to the writer at once. The same happens from one boot of a node to the next.
        if let (Some((before, pod)), Some((after, _))) = (&before, &owner)
            && before != after
            && !(before.0 == after.0 && generation == broken + 1 && self.incarnations[&before.0] != before.1)
            && (before.0 == after.0 || self.writers.get(&volume) == Some(&(before.clone(), pod.clone())))
        {
            self.violations.push(format!("{volume} went from {before:?} to {after:?} without being free"));
        }
        if let (Some((incarnation, pod)), None) = (&before, &owner) {
            if generation > broken {
                self.broken += 1;
                if self.incarnations[&incarnation.0] == incarnation.1 {
                    self.violations.push(format!("{volume} was taken from {incarnation:?}, which lives"));
                }
            } else if self.writers.get(&volume).is_some_and(|writer| writer == &(incarnation.clone(), pod.clone())) {
                self.violations.push(format!("{volume} was given back while pod {pod} on {incarnation:?} wrote to it"));
            }
        }
        self.owners.insert(volume, (owner, generation));
    }
}

fn name(number: usize) -> String {
    format!("v{number:03}")
}

fn node(number: usize) -> String {
    format!("n{number}")
}

/// Each volume with its claim, a pod and a node.
async fn set_up(api: &Client, truth: &Mutex<GroundTruth>) {
    for number in 0..NODES {
        truth.lock().unwrap().incarnations.insert(node(number), 1);
        objects::create_node(api, &objects::node(&node(number))).await.unwrap();
        report_volumes_in_use(api, truth, &node(number), "True").await;
    }
    let made = (0..VOLUMES).map(|number| async move {
        let name = name(number);
        let volume: PersistentVolume = serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": { "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" },
                "csi": { "driver": DRIVER, "volumeHandle": name }, "claimRef": { "namespace": SPACE, "name": name } },
        }))
        .unwrap();
        Api::all(api.clone()).create(&PostParams::default(), &volume).await.unwrap();
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": { "name": name }, "spec": { "accessModes": ["ReadWriteOnce"], "volumeName": name,
                "resources": { "requests": { "storage": "1Gi" } } },
        }))
        .unwrap();
        Api::namespaced(api.clone(), SPACE).create(&PostParams::default(), &claim).await.unwrap();
    });
    futures::stream::iter(made).buffer_unordered(16).collect::<Vec<_>>().await;
}

/// A kubelet's report: the volumes that are written to on its node are in use.
async fn report_volumes_in_use(api: &Client, truth: &Mutex<GroundTruth>, node: &str, ready: &str) {
    let (boot, in_use) = {
        let truth = truth.lock().unwrap();
        let incarnation = (node.to_owned(), truth.incarnations[node]);
        let used = truth.writers.iter().filter(|(_, (at, _))| *at == incarnation).map(|(volume, _)| unique(volume));
        (incarnation.1, used.collect::<Vec<_>>())
    };
    let mut status = objects::node(node).with_boot_id(&objects::boot_id(node, boot)).with_ready(ready).status.unwrap();
    status.volumes_in_use = Some(in_use);
    objects::set_node_status(api, node, &status).await.unwrap();
}

async fn start(api: &Client, truth: &Mutex<GroundTruth>, volume: &str, node: &str) {
    let mut pod = objects::pod(SPACE, volume).on_node(node);
    let claim = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": volume } }]);
    pod.spec.get_or_insert_default().volumes = Some(serde_json::from_value(claim).unwrap());
    let made = objects::create_pod(api, &pod).await.unwrap();
    let mut truth = truth.lock().unwrap();
    let incarnation = (node.to_owned(), truth.incarnations[node]);
    truth.writers.insert(volume.to_owned(), (incarnation, made.metadata.uid.unwrap()));
}

/// In this order: the process ends, the kubelet reports it, the pod is removed.
async fn end(api: &Client, truth: &Mutex<GroundTruth>, volume: &str) {
    truth.lock().unwrap().writers.remove(volume);
    let over = objects::pod(SPACE, volume).with_phase("Succeeded").status.unwrap();
    objects::set_pod_status(api, SPACE, volume, &over).await.unwrap();
    observe::delete_pod(api, SPACE, volume, true).await.unwrap();
}

/// Pseudorandom numbers, equal in each run.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

struct Pair {
    plane: ControlPlane,
    kubeconfig: PathBuf,
    pod_safety: Vec<PodSafety>,
    kills: usize,
}

impl Pair {
    async fn another(&mut self) {
        let name = format!("pod-safety-{}", self.kills + self.pod_safety.len());
        let args = ["--controllers=volume-guard"].into_iter().chain(SHORT_LEADER_LEASE);
        self.pod_safety.push(self.plane.pod_safety(&name, &self.kubeconfig, args).await.unwrap());
    }

    /// Kills it without warning; its replacement is started immediately.
    async fn kill(&mut self, which: usize) {
        self.pod_safety.remove(which).kill_9().unwrap();
        self.kills += 1;
        self.another().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_volumes_have_one_owner_each_under_process_kills() {
    storm(STORM).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_volumes_have_one_owner_each_under_process_kills_thorough() {
    storm(LONG_STORM).await;
}

async fn storm(lasts: Duration) {
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    plane.namespace(SPACE).await.unwrap();
    let (api, truth) = (plane.admin(), Arc::new(Mutex::new(GroundTruth::default())));
    set_up(&api, &truth).await;
    let leases = Api::<Lease>::namespaced(api.clone(), "pod-safety-volumes");
    let from = leases.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let hears = Arc::clone(&truth);
    let mut listening = JoinSet::new();
    listening.spawn(observe::watch_all_versions(leases, from, move |lease, gone| {
        if !gone {
            hears.lock().unwrap().observe_lease(lease);
        }
    }));
    let mut pair = Pair { plane, kubeconfig, pod_safety: Vec::new(), kills: 0 };
    pair.another().await;
    pair.another().await;
    let (api_of, truth_of) = (&api, &*truth);
    let first =
        (0..VOLUMES).map(|number| async move { start(api_of, truth_of, &name(number), &node(number % NODES)).await });
    futures::stream::iter(first).buffer_unordered(16).collect::<Vec<_>>().await;
    let mut draws = Draws(20_261_122);
    let begun = Instant::now();
    let mut moved = 0;
    let enough = |pair: &Pair| pair.kills > 0 && truth.lock().unwrap().broken > 0;
    while begun.elapsed() < lasts || (!enough(&pair) && begun.elapsed() < PATIENCE) {
        match draws.below(20) {
            0 => pair.kill(draws.below(2)).await,
            1 => report_volumes_in_use(&api, &truth, &node(draws.below(NODES)), "Unknown").await,
            2 | 3 => report_volumes_in_use(&api, &truth, &node(draws.below(NODES)), "True").await,
            4 => reboot(&api, &truth, &node(draws.below(NODES))).await,
            _ => {
                moved += 1;
                let (volume, to) = (name(draws.below(VOLUMES)), node(draws.below(NODES)));
                // A pod that was just moved by a reboot may not exist.
                if observe::find_pod(&api, SPACE, &volume).await.unwrap().is_some() {
                    end(&api, &truth, &volume).await;
                }
                start(&api, &truth, &volume, &to).await;
            }
        }
    }
    until_settled(&api, &truth).await;
    listening.abort_all();
    let truth = truth.lock().unwrap();
    println!(
        "{VOLUMES} volumes, {moved} moves, {} kills, {} changes of owners, of which {} by evidence; {} wrong",
        pair.kills,
        truth.changes,
        truth.broken,
        truth.violations.len()
    );
    assert_eq!(truth.violations, Vec::<String>::new());
    assert!(pair.kills > 0 && truth.broken > 0, "nothing happened: {} kills, {} broken", pair.kills, truth.broken);
}

/// The processes on the node end with its incarnation; its new kubelet starts the pods again.
async fn reboot(api: &Client, truth: &Mutex<GroundTruth>, node: &str) {
    {
        let mut truth = truth.lock().unwrap();
        *truth.incarnations.get_mut(node).unwrap() += 1;
        truth.writers.values_mut().filter(|(at, _)| at.0 == node).for_each(|(at, _)| at.1 += 1);
    }
    report_volumes_in_use(api, truth, node, "True").await;
}

/// When all nodes are healthy, each volume belongs to the node of its pod, and no attachment is denied.
async fn until_settled(api: &Client, truth: &Mutex<GroundTruth>) {
    let all = Api::<Node>::all(api.clone()).list(&ListParams::default()).await.unwrap().items;
    join_all(all.iter().map(|one| report_volumes_in_use(api, truth, one.metadata.name.as_deref().unwrap(), "True")))
        .await;
    wait_until("each volume belongs to the node of its pod", async || {
        // Reading a thousand objects takes time, and some volumes are only released after minutes.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let pods = Api::<Pod>::namespaced(api.clone(), SPACE)
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?;
        let leases = Api::<Lease>::namespaced(api.clone(), "pod-safety-volumes").list(&ListParams::default()).await;
        let leases: BTreeMap<String, Lease> = leases
            .map_err(|error| error.to_string())?
            .items
            .into_iter()
            .map(|lease| (lease.metadata.name.clone().unwrap(), lease))
            .collect();
        let wrong: Vec<String> = pods
            .items
            .iter()
            .filter_map(|pod| {
                let (volume, node) = (pod.metadata.name.clone()?, pod.spec.as_ref()?.node_name.clone()?);
                let lease = leases.get(&volume);
                let holder = lease.and_then(|lease| lease.spec.as_ref()?.holder_identity.clone()).unwrap_or_default();
                let refused = lease
                    .and_then(|lease| lease.metadata.labels.as_ref())
                    .is_some_and(|labels| labels.contains_key("pod-safety.dev/held"));
                (holder.split('/').next() != Some(&*node) || refused)
                    .then(|| format!("{volume} on {node}: {holder} {refused}"))
            })
            .collect();
        check_that(
            wrong.is_empty() && pods.items.len() == VOLUMES,
            format!("{} of {}: {:?}", wrong.len(), pods.items.len(), wrong.iter().take(5).collect::<Vec<_>>()),
        )
    })
    .await;
}
