//! Histories of hollow kubelets: the kubelet's own code beside a container runtime that only keeps state, so that hundreds of
//! histories run in an hour on one machine and need no rights.
//!
//! A history is drawn from the seed and its number: what happens to the node of an identity, what is deleted meanwhile, and when.
//! Then everything is repaired, and the identity must run again. Many histories run at once, each on a node of its own.
//! `journal` finds two copies by the runtimes' journals alone.

mod journal;
mod node;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use pod_safety_control_plane::{Component, ControlPlane, Options, PodSafety, check_that, eventually};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use crate::beside::print_line;
use crate::cluster::{self, Mode};
use crate::machine::run;
use crate::objects::{self, NAMESPACE};
use crate::scenario::Outcome;
use crate::storm::Chance;
use node::HollowNode;

/// From the repair until an identity must run again: a kubelet registers, its taints go, a pod starts. Only failures wait so long.
const CALM_WITHIN: Duration = Duration::from_secs(420);
/// How often the journals are read while histories are played.
const READ_INTERVAL: Duration = Duration::from_secs(10);
/// A kubelet renews its Lease each three seconds: see `nodeLeaseDurationSeconds` of the program.
const GRACE_PERIOD: &str = "--node-monitor-grace-period=15s";

/// What a history does to the node of its identity, until the repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    KubeletKilled,
    KubeletRestarted,
    KubeletFrozen,
    /// The API server answers each of its writes with 429.
    WritesThrottled,
    /// All of its processes end, and another boot begins at once.
    Rebooted,
    /// All of its processes end, and nothing begins until the repair.
    PowerLost,
    /// This operation of its runtime hangs.
    RuntimeHangs(&'static str),
    /// The pod is replaced by one whose hook `postStart` runs for this many seconds.
    SlowHook(usize),
}

impl Fault {
    /// Whether its kubelet cannot report meanwhile, and its processes run. To delete the Node then is a claim that the machine is off:
    /// `docs/proof.md`, *A kubelet without Node and Lease that is cut off*. No history does it.
    const fn cuts_off(self) -> bool {
        matches!(self, Self::KubeletKilled | Self::KubeletFrozen | Self::WritesThrottled)
    }
}

const FAULTS: [Fault; 16] = [
    Fault::Nothing,
    Fault::KubeletKilled,
    Fault::KubeletKilled,
    Fault::KubeletRestarted,
    Fault::KubeletFrozen,
    Fault::KubeletFrozen,
    Fault::WritesThrottled,
    Fault::WritesThrottled,
    Fault::Rebooted,
    Fault::PowerLost,
    Fault::RuntimeHangs("start"),
    Fault::RuntimeHangs("stop"),
    Fault::RuntimeHangs("remove"),
    Fault::RuntimeHangs("sandbox"),
    Fault::SlowHook(45),
    Fault::SlowHook(120),
];

/// What a client deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deletion {
    Node,
    Pod,
}

/// What is drawn for a history. Times are seconds since its fault.
#[derive(Debug)]
struct Draw {
    fault: Fault,
    deletions: Vec<(Deletion, u64)>,
    lasts: u64,
}

impl Draw {
    fn new(seed: u64, number: usize) -> Self {
        let mut chance = Chance::new(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
        let fault = FAULTS[chance.below(FAULTS.len())];
        let earliest = match fault {
            // It begins after the grace period of the pod that it replaces.
            Fault::SlowHook(_) => 8,
            _ => 0,
        };
        // A kubelet looks for its Node in its first second.
        let within = if fault == Fault::KubeletRestarted { 3 } else { 25 };
        let mut deletions: Vec<_> = [(Deletion::Node, 3), (Deletion::Pod, 2)]
            .into_iter()
            .filter_map(|(deletion, of_four)| {
                let at = earliest + chance.below(within) as u64;
                let is_drawn = chance.below(4) < of_four && !(deletion == Deletion::Node && fault.cuts_off());
                is_drawn.then_some((deletion, at))
            })
            .collect();
        deletions.sort_by_key(|(_, at)| *at);
        // A pod of a deleted Node is removed after two quarantines at the earliest.
        let shortest = if deletions.iter().any(|(deletion, _)| *deletion == Deletion::Node) { 100 } else { 30 };
        Self { fault, deletions, lasts: shortest + chance.below(60) as u64 }
    }
}

/// A quarter of the duration of the Leases of `hollow-kubelet/main.go`, in milliseconds.
const RENEWED_EACH: i128 = 3_000;

/// The outcome of a history, or what is wrong with it.
type Played = Result<Outcome, String>;

/// The cluster of all histories.
struct Rig {
    nodes: Vec<Mutex<HollowNode>>,
    pod_safety: Vec<PodSafety>,
    _components: [Component; 2],
    plane: ControlPlane,
}

/// Plays `count` histories on `nodes` nodes; returns a table, and what is wrong. With `Mode::Plain`, kube-controller-manager alone, the
/// oracle must find two copies.
pub(crate) async fn play(mode: Mode, count: usize, nodes: usize, seed: u64) -> Result<(String, Vec<String>)> {
    let rig = start(mode, nodes).await?;
    let (next, started) = (Cell::new(1), Instant::now());
    let workers = (0..(nodes * 2 / 3).max(1)).map(|worker| rig.play_from(worker, &next, count, seed));
    let played = tokio::select! {
        biased;
        played = futures::future::join_all(workers) => played.concat(),
        error = rig.report_copies() => return Err(error),
    };
    let mut wrong: Vec<String> = played.iter().filter_map(|one| one.as_ref().err().cloned()).collect();
    wrong.extend(rig.two_copies().await?);
    let number = |outcome| played.iter().filter(|one| **one == Ok(outcome)).count();
    let table = format!(
        "| seed | histories | nodes | undisturbed | back before the repair | back after it | wrong | minutes |\n|--:|--:|--:|--:|--:|--:|--:|--:|\n\
        | {seed} | {count} | {nodes} | {} | {} | {} | {} | {:.0} |\n",
        number(Outcome::Undisturbed),
        number(Outcome::Recovers),
        number(Outcome::Waits),
        wrong.len(),
        started.elapsed().as_secs_f64() / 60.0,
    );
    Ok((table, wrong))
}

async fn start(mode: Mode, nodes: usize) -> Result<Rig> {
    let plane = ControlPlane::start(Options::default()).await?;
    let scheduler = plane.kube_scheduler(&[]).await?;
    let controllers = plane
        .kube_controller_manager(mode.kcm_controllers(), if mode == Mode::Plain { &[GRACE_PERIOD] } else { &[] })
        .await?;
    // Without the admission policies, which deny most of these deletions.
    let account = plane.install_pod_safety().await?;
    let duties = "--controllers=pod-gc,disruption,node-lifecycle,taint-eviction";
    let args = ["--mode=replace", duties, "--pod-gc-quarantine=40s", GRACE_PERIOD];
    let mut pod_safety = Vec::new();
    for at in 0..if mode == Mode::Plain { 0 } else { 2 } {
        pod_safety.push(plane.pod_safety(&format!("pod-safety-{at}"), &account, args).await?);
    }
    let program = program().await?;
    node::prepare(&plane).await?;
    let mut all = Vec::new();
    for at in 0..nodes {
        let mut node = HollowNode::new(&plane, &program, &format!("hollow-{at}"))?;
        node.power_on(&plane).await?;
        all.push(Mutex::new(node));
    }
    plane.namespace(NAMESPACE).await?;
    let sets: Vec<_> = (0..nodes).map(|at| stateful_set(at).to_string()).collect();
    cluster::apply(&plane, &sets.join("\n---\n")).await?;
    let rig = Rig { nodes: all, pod_safety, _components: [scheduler, controllers], plane };
    for at in 0..nodes {
        eventually("all identities run", CALM_WITHIN, async || rig.runs(&identity(at)).await).await?;
    }
    Ok(rig)
}

/// Builds it from the module of the pinned Kubernetes.
async fn program() -> Result<PathBuf> {
    let script = crate::machine::scripts().join("../../kind/programs.sh");
    let folder = run(&script.to_string_lossy(), &["hollow-kubelet"]).await?;
    Ok(PathBuf::from(folder.trim()).join("hollow-kubelet"))
}

fn identity(at: usize) -> String {
    format!("s{at}-0")
}

/// One identity, rather on a node of its own.
fn stateful_set(at: usize) -> Value {
    let app = json!({ "app": "hollow" });
    let (name, labels) = (format!("s{at}"), json!({ "set": format!("s{at}"), "app": "hollow" }));
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "namespace": NAMESPACE, "name": name },
        "spec": { "serviceName": name, "replicas": 1, "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": {
                "terminationGracePeriodSeconds": 5, "automountServiceAccountToken": false,
                "tolerations": objects::tolerations(),
                "affinity": objects::rather_apart(&app),
                "containers": [container(None)],
            },
        } },
    })
}

fn container(hook_seconds: Option<usize>) -> Value {
    let mut container = json!({ "name": "main", "image": "hollow:1" });
    if let Some(seconds) = hook_seconds {
        container["lifecycle"] = json!({ "postStart": { "exec": { "command": ["sleep", seconds.to_string()] } } });
    }
    container
}

impl Rig {
    /// Plays histories until there are enough; returns the outcome of each, or what is wrong.
    async fn play_from(&self, worker: usize, next: &Cell<usize>, count: usize, seed: u64) -> Vec<Played> {
        let mut played = Vec::new();
        loop {
            let number = next.replace(next.get() + 1);
            if number > count {
                return played;
            }
            let draw = Draw::new(seed, number);
            let line = format!("seed {seed}, history {number}: {draw:?}");
            let result = self.play_one(worker, &draw).await;
            played.push(match result {
                Ok((outcome, words)) => {
                    print_line(&format!("{line}: {words}"));
                    Ok(outcome)
                }
                Err(error) => {
                    print_line(&format!("{line}: WRONG: {error:#}"));
                    Err(format!("{line}: {error:#}"))
                }
            });
        }
    }

    /// Returns how it went; an error: it is not as it must be.
    async fn play_one(&self, worker: usize, draw: &Draw) -> Result<(Outcome, String)> {
        let (identity, mut node) = self.claim(worker).await?;
        let set = identity.trim_end_matches("-0").to_owned();
        let uid = self.pod(&identity).await?.and_then(|pod| pod.metadata.uid);
        let played = self.play_until_repair(&mut node, draw, &identity, &set).await;
        self.repair(&mut node, draw.fault, &set).await?;
        let (before, reasons) = played?;
        let is_same = self.pod(&identity).await?.and_then(|pod| pod.metadata.uid) == uid;
        let repaired = Instant::now();
        eventually("the identity runs and its node is Ready", CALM_WITHIN, async || {
            self.runs(&identity).await?;
            self.is_well(node.name()).await
        })
        .await
        .with_context(|| format!("{identity} on {}, before the repair {before:?} {reasons:?}", node.name()))?;
        let after = repaired.elapsed().as_secs();
        Ok(match before {
            Ok(()) if is_same => (Outcome::Undisturbed, format!("{identity}: undisturbed")),
            Ok(()) => (Outcome::Recovers, format!("{identity}: back before the repair")),
            Err(why) => {
                ensure!(!reasons.is_empty(), "{identity} waits ({why}), and no reason is reported");
                let reasons = reasons.join(", ");
                (Outcome::Waits, format!("{identity}: {why} ({reasons}); back {after} s after the repair"))
            }
        })
    }

    /// Returns whether the identity runs when the repair is due, and if not, the reasons.
    async fn play_until_repair(
        &self,
        node: &mut HollowNode,
        draw: &Draw,
        identity: &str,
        set: &str,
    ) -> Result<(Result<(), String>, Vec<String>)> {
        self.strike(node, draw.fault, set).await?;
        let started = Instant::now();
        let mut left = draw.deletions.as_slice();
        while started.elapsed().as_secs() < draw.lasts {
            while let [(deletion, at), rest @ ..] = left
                && started.elapsed().as_secs() >= *at
            {
                self.delete(*deletion, identity, node.name()).await?;
                left = rest;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let before = self.runs(identity).await;
        let reasons = if before.is_err() { self.reasons(identity).await } else { Vec::new() };
        Ok((before, reasons))
    }

    /// An identity that runs on a node on which no other history runs.
    async fn claim(&self, worker: usize) -> Result<(String, MutexGuard<'_, HollowNode>)> {
        let mut at = worker;
        loop {
            at = (at + 1) % self.nodes.len();
            let identity = identity(at);
            let pod = self.pod(&identity).await?;
            let name = pod.and_then(|pod| pod.spec?.node_name).unwrap_or_default();
            let place = name.strip_prefix("hollow-").and_then(|number| number.parse::<usize>().ok());
            if let Some(node) = place.and_then(|place| self.nodes.get(place))
                && let Ok(node) = node.try_lock()
                && self.runs(&identity).await.is_ok()
            {
                return Ok((identity, node));
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    async fn strike(&self, node: &mut HollowNode, fault: Fault, set: &str) -> Result<()> {
        match fault {
            Fault::Nothing => Ok(()),
            Fault::KubeletKilled => node.kill_kubelet(),
            Fault::KubeletRestarted => self.restart_kubelet(node).await,
            Fault::KubeletFrozen => node.freeze_kubelet(),
            Fault::WritesThrottled => node.throttle(&self.plane).await,
            Fault::Rebooted => {
                node.power_off()?;
                node.power_on(&self.plane).await
            }
            Fault::PowerLost => node.power_off(),
            Fault::RuntimeHangs(operation) => node.hang(operation),
            Fault::SlowHook(seconds) => self.set_hook(set, Some(seconds)).await,
        }
    }

    /// Returns as soon as the new kubelet has renewed its Lease, and not when the kubelet before it would have: nothing shows
    /// such a start.
    /// docs/assumptions.md: renews-when-it-starts
    async fn restart_kubelet(&self, node: &mut HollowNode) -> Result<()> {
        loop {
            let before = self.renewed(node.name()).await?;
            node.start_kubelet(&self.plane)?;
            let after = eventually("its kubelet renews its Lease", CALM_WITHIN, async || {
                let renewed = self.renewed(node.name()).await.map_err(|error| error.to_string())?;
                check_that(renewed != before, "not yet".to_owned()).map(|()| renewed)
            });
            let times = before.clone().zip(after.await?);
            let apart = times.map(|(before, after)| after.0.duration_since(before.0).as_millis());
            if !apart.is_some_and(|apart| (RENEWED_EACH - 100..=RENEWED_EACH * 115 / 100).contains(&apart)) {
                return Ok(());
            }
        }
    }

    async fn renewed(&self, node: &str) -> Result<Option<MicroTime>> {
        let lease = Api::<Lease>::namespaced(self.plane.admin(), "kube-node-lease").get_opt(node).await?;
        Ok(lease.and_then(|lease| lease.spec?.renew_time))
    }

    async fn repair(&self, node: &mut HollowNode, fault: Fault, set: &str) -> Result<()> {
        match fault {
            Fault::KubeletFrozen => node.thaw_kubelet()?,
            Fault::WritesThrottled => node.stop_throttling(&self.plane).await?,
            Fault::PowerLost => node.power_on(&self.plane).await?,
            Fault::RuntimeHangs(_) => node.stop_hanging()?,
            Fault::SlowHook(_) => self.set_hook(set, None).await?,
            Fault::KubeletKilled | Fault::Nothing | Fault::KubeletRestarted | Fault::Rebooted => {}
        }
        // A kubelet registers its Node only when it starts.
        let registered = Api::<Node>::all(self.plane.admin()).get_opt(node.name()).await?.is_some();
        if !registered || fault == Fault::KubeletKilled { node.start_kubelet(&self.plane) } else { Ok(()) }
    }

    async fn delete(&self, what: Deletion, identity: &str, node: &str) -> Result<()> {
        let (client, params) = (self.plane.admin(), DeleteParams::default());
        let deleted = match what {
            Deletion::Node => Api::<Node>::all(client).delete(node, &params).await.map(drop),
            Deletion::Pod => Api::<Pod>::namespaced(client, NAMESPACE).delete(identity, &params).await.map(drop),
        };
        match deleted {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => Ok(other?),
        }
    }

    async fn set_hook(&self, set: &str, seconds: Option<usize>) -> Result<()> {
        let sets = Api::<k8s_openapi::api::apps::v1::StatefulSet>::namespaced(self.plane.admin(), NAMESPACE);
        let patch = json!({ "spec": { "template": { "spec": { "containers": [container(seconds)] } } } });
        Ok(sets.patch(set, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)?)
    }

    async fn pod(&self, name: &str) -> Result<Option<Pod>> {
        Ok(Api::<Pod>::namespaced(self.plane.admin(), NAMESPACE).get_opt(name).await?)
    }

    /// Whether the pod of this identity is Ready on a Ready node, or why not.
    async fn runs(&self, identity: &str) -> Result<(), String> {
        let pod = self.pod(identity).await.map_err(|error| error.to_string())?;
        let pod = pod.ok_or_else(|| "there is no pod".to_owned())?;
        if pod.metadata.deletion_timestamp.is_some() {
            return Err("the pod terminates".to_owned());
        }
        check_that(cluster::pod_ready(&pod), "the pod is not Ready".to_owned())?;
        let name = pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
        let node = Api::<Node>::all(self.plane.admin()).get_opt(&name).await.map_err(|error| error.to_string())?;
        check_that(node.as_ref().is_some_and(cluster::ready), "its node is not Ready".to_owned())
    }

    /// Whether the node is Ready and has no taint.
    async fn is_well(&self, node: &str) -> Result<(), String> {
        let found = Api::<Node>::all(self.plane.admin()).get_opt(node).await.map_err(|error| error.to_string())?;
        let found = found.ok_or_else(|| "its node is not registered".to_owned())?;
        let taints = found.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        check_that(cluster::ready(&found) && taints.is_empty(), format!("its node has {taints:?}"))
    }

    /// Why an identity does not run, as `pod-safety explain` shows it; or its pod is with a kubelet that reports.
    async fn reasons(&self, identity: &str) -> Vec<String> {
        let mut reasons = Vec::new();
        if !self.pod_safety.is_empty() {
            let explain = ["explain", "pod", identity, "-n", NAMESPACE];
            let explained = self.plane.start_pod_safety_once(&self.plane.admin_kubeconfig(), &explain).await;
            reasons.extend(explained.ok().and_then(|output| cluster::verdict(&output.stdout)));
        }
        let pod = self.pod(identity).await.ok().flatten();
        let name = pod.and_then(|pod| pod.spec?.node_name).unwrap_or_default();
        let node = Api::<Node>::all(self.plane.admin()).get_opt(&name).await.ok().flatten();
        if name.is_empty() || node.as_ref().is_some_and(cluster::ready) {
            reasons.push("its kubelet or the scheduler has it".to_owned());
        }
        reasons
    }

    /// Prints two copies as soon as the journals show them; ends only with an error.
    async fn report_copies(&self) -> anyhow::Error {
        let mut known = BTreeSet::new();
        loop {
            match self.two_copies().await {
                Ok(copies) => {
                    copies.into_iter().filter(|one| known.insert(one.clone())).for_each(|one| print_line(&one))
                }
                Err(error) => return error,
            }
            tokio::time::sleep(READ_INTERVAL).await;
        }
    }

    /// Two copies of an identity at one moment, by all journals.
    async fn two_copies(&self) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        for at in 0..self.nodes.len() {
            let name = format!("hollow-{at}");
            let path = node::folder(&self.plane, &name).join("journal");
            let text = tokio::fs::read_to_string(&path).await.unwrap_or_default();
            lines.extend(text.lines().filter_map(|line| journal::Line::parse(&name, line)));
        }
        Ok(journal::overlaps(lines))
    }
}
