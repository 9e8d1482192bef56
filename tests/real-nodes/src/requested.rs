//! Nodes that are drained by EvictionRequests, by an application that moves its data first; one of them is lost meanwhile. While it is
//! fenced, the responder `pod-safety.dev/lost-node` holds the turn of its pods, and the requests end with the evidence.
//!
//! The oracle is that of all incidents: processes, logs and locks.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::DynamicObject;
use pod_safety_control_plane::{Program, binary, check_that, eventually};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Extra, Mode, ready};
use crate::machine::Machine;
use crate::mover::{Moved, Mover, api, entry};
use crate::objects::{IDENTITIES, LOST_NODE, MOVER, NAMESPACE};
use crate::oracle;
use crate::report;
use crate::steps::Steps;
use crate::watch;

/// Only failures wait so long.
const WITHIN: Duration = Duration::from_secs(300);
const EVICTOR: &str = "imperative-eviction.k8s.io/evictor";
/// The request of a person, beside that of the drain: it stays, and with it the Eviction.
const REQUEST: &str = "move-away";

/// What is drained, and what is lost.
struct Incident {
    /// The machine whose pods move.
    drained: Machine,
    /// The machine that is cut off.
    lost: Machine,
    /// One of its pods.
    identity: &'static str,
    uid: String,
}

/// Plays all of it; an error is what is not as it should be.
pub(crate) async fn play() -> Result<String> {
    let mut steps = Steps::new("requests");
    let cluster = Cluster::start_with(Mode::Replace, Extra::Evictions);
    let mut cluster = steps.step("three machines, whose API servers serve Evictions", cluster).await?;
    let since = watch::uptime()?;
    cluster.watch.sightings();
    let incident = Incident::choose(&cluster).await?;
    let mover = Mover::begin(&cluster).await?;
    let mut drain = incident.drain(&cluster).await?;
    steps.step("the data of the first node's pods is being moved", incident.is_moving(&cluster)).await?;
    steps.step("the cable of the second node is pulled", incident.lose(&mut cluster)).await?;
    steps.step("lost-node reports, and no switch answers", incident.is_held(&cluster)).await?;
    mover.release();
    steps.step("lost-node reports the step of the fence", incident.is_fenced(&cluster)).await?;
    cluster.switches.resume()?;
    steps.step("the switch answers: the requests end with evidence", incident.ends(&cluster)).await?;
    steps.step("the first node is drained", incident.is_drained(&mut drain, &mover)).await?;
    steps.step("the drain ends", incident.drain_ends(&mut drain)).await?;
    steps.step("all is as it was", back(&mut cluster)).await?;
    let lines = watch::lines(since)?;
    let violations = oracle::check(&lines, &cluster.watch.sightings());
    ensure!(violations.is_empty(), "two copies: {violations:?}");
    let shortest = report::shortest(&oracle::handovers(&lines)).context("no identity moved")?;
    Ok(format!("{}\nNo copy began sooner than {shortest:.1} s after the end of the one before.\n", steps.markdown()))
}

/// Everything runs, and takes pods.
async fn back(cluster: &mut Cluster) -> Result<()> {
    cluster.repair().await?;
    cluster.until_calm(WITHIN).await
}

/// Waits until something is so.
async fn until(what: &str, is_so: impl AsyncFn() -> Result<Result<(), String>>) -> Result<()> {
    Ok(eventually(what, WITHIN, async || is_so().await.map_err(|error| format!("{error:#}"))?).await?)
}

/// The condition `TargetEvicted`, as `True/PodDeleted`.
fn evicted(object: &DynamicObject) -> String {
    let all = object.data["status"]["conditions"].as_array();
    let evicted = all.into_iter().flatten().find(|one| one["type"] == "TargetEvicted");
    let text = |field: &str| evicted.and_then(|one| one[field].as_str()).unwrap_or_default().to_owned();
    format!("{}/{}", text("status"), text("reason"))
}

fn message<'a>(eviction: &'a DynamicObject, responder: &str) -> &'a str {
    entry(eviction, "responders", responder)["message"].as_str().unwrap_or_default()
}

fn state<'a>(eviction: &'a DynamicObject, responder: &str) -> &'a str {
    entry(eviction, "targetResponders", responder)["state"].as_str().unwrap_or_default()
}

impl Incident {
    async fn choose(cluster: &Cluster) -> Result<Self> {
        let drained = cluster.machine_of(IDENTITIES[0])?;
        let elsewhere = |one: &&&str| cluster.machine_of(one).is_ok_and(|machine| machine != drained);
        let identity = *IDENTITIES.iter().find(elsewhere).context("all identities are on one machine")?;
        let pod = cluster.pod(identity).await?.context("it is not there")?;
        let uid = pod.metadata.uid.context("a pod without a UID")?;
        Ok(Self { drained, lost: cluster.machine_of(identity)?, identity, uid })
    }

    /// One node after the other.
    async fn drain(&self, cluster: &Cluster) -> Result<Program> {
        let (drained, lost) = (self.drained.name(), self.lost.name());
        let kubeconfig = cluster.plane.admin_kubeconfig();
        let kubeconfig = kubeconfig.to_string_lossy();
        let args = ["drain", &drained, &lost, "--apply", "--color=never", "--kubeconfig", &kubeconfig];
        Ok(cluster.plane.program("drain", &binary().await?, args, &[])?)
    }

    /// The newest Eviction of the pod of this name.
    async fn eviction(cluster: &Cluster, identity: &str) -> Result<Option<DynamicObject>> {
        let evictions = api(cluster.plane.admin(), "Eviction", "evictions").list(&Default::default()).await?;
        let of_pod = |one: &DynamicObject| one.data["spec"]["target"]["pod"]["name"] == identity;
        Ok(evictions.items.into_iter().filter(of_pod).max_by_key(|one| one.metadata.creation_timestamp.clone()))
    }

    /// The node is well, so its responder for lost nodes is done, and the application's reports.
    async fn is_moving(&self, cluster: &Cluster) -> Result<()> {
        let identity = IDENTITIES[0];
        until("its data is being moved", async || {
            let Some(eviction) = Self::eviction(cluster, identity).await? else {
                return Ok(Err("there is no Eviction".to_owned()));
            };
            let moves = state(&eviction, MOVER) == "Active" && message(&eviction, MOVER).starts_with("moved");
            Ok(check_that(moves, eviction.data["status"].to_string()))
        })
        .await?;
        let eviction = Self::eviction(cluster, identity).await?.context("it is gone")?;
        let well = format!("node {} reports", self.drained.name());
        let lost_node = (state(&eviction, LOST_NODE), message(&eviction, LOST_NODE));
        ensure!(lost_node == ("Completed", &*well), "{lost_node:?}");
        Ok(())
    }

    /// Its cable is pulled and no switch answers: its pods run, and nothing proves that they do not. A person requests
    /// the eviction of one of them.
    async fn lose(&self, cluster: &mut Cluster) -> Result<()> {
        cluster.switches.pause()?;
        self.lost.cable(false).await?;
        let name = self.lost.name();
        until("it is called lost", async || {
            let nodes = cluster.nodes().await?;
            let is_ready = nodes.iter().any(|one| one.metadata.name.as_deref() == Some(&name) && ready(one));
            Ok(check_that(!is_ready, "it is Ready".to_owned()))
        })
        .await?;
        cluster.apply(&self.request()).await
    }

    fn request(&self) -> Value {
        json!({
            "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": { "namespace": NAMESPACE, "name": REQUEST },
            "spec": {
                "requester": "example.com/rebalance", "intent": "Eviction",
                "target": { "pod": { "name": self.identity, "uid": self.uid } },
            },
        })
    }

    /// The application is not waited for: it would have to move data from a machine that is unreachable. The pod runs.
    async fn is_held(&self, cluster: &Cluster) -> Result<()> {
        let lost = format!("node {} does not report", self.lost.name());
        until("lost-node reports", async || {
            let Some(eviction) = Self::eviction(cluster, self.identity).await? else {
                return Ok(Err("there is no Eviction".to_owned()));
            };
            let reports = entry(&eviction, "responders", LOST_NODE)["heartbeatTime"].is_string();
            let holds = state(&eviction, LOST_NODE) == "Active" && message(&eviction, LOST_NODE).starts_with(&lost);
            Ok(check_that(reports && holds, eviction.data["status"].to_string()))
        })
        .await?;
        let runs = watch::copies().iter().any(|(_, copy)| copy.uid == self.uid);
        ensure!(runs, "{} was to run on {}", self.identity, self.lost.name());
        Ok(())
    }

    /// Its toleration is over, so the pod is to be deleted, and its node is fenced for it.
    async fn is_fenced(&self, cluster: &Cluster) -> Result<()> {
        until("lost-node names the NodeFence", async || {
            let Some(eviction) = Self::eviction(cluster, self.identity).await? else {
                return Ok(Err("there is no Eviction".to_owned()));
            };
            let names = state(&eviction, LOST_NODE) == "Active" && message(&eviction, LOST_NODE).contains("NodeFence");
            Ok(check_that(names, eviction.data["status"].to_string()))
        })
        .await
    }

    /// Each pod of the first node was alive when its data had been moved.
    async fn is_drained(&self, drain: &mut Program, mover: &Mover) -> Result<()> {
        self.until_drained(drain, self.drained).await?;
        let moved = mover.moved();
        ensure!(moved.iter().any(|one| one.identity == IDENTITIES[0]), "{moved:?}");
        let was_first = |one: &Moved| one.ran && one.lines > 0 && one.uid != self.uid;
        ensure!(moved.iter().all(was_first), "data was not moved before its pod ended: {moved:?}");
        Ok(())
    }

    /// Until the drain prints that this machine is empty.
    async fn until_drained(&self, drain: &mut Program, machine: Machine) -> Result<()> {
        let line = format!("node/{} drained", machine.name());
        let drained = eventually(&line, WITHIN, async || {
            let log = drain.log_text();
            check_that(log.contains(&line), log)
        });
        drained.await?;
        let log = drain.log_text();
        ensure!(log.contains("eviction requested") && !log.contains("evicted directly"), "{log}");
        Ok(())
    }

    /// The device's evidence removes the pod, and that ends the turn of lost-node and the request.
    async fn ends(&self, cluster: &Cluster) -> Result<()> {
        let requests = api(cluster.plane.admin(), "EvictionRequest", "evictionrequests");
        // With the evidence its phase becomes Failed, and then it is deleted: either ends the request and the turn.
        let ends = ["True/PodDeleted", "True/PodTerminal"];
        until("the request reports that the pod ended", async || {
            let request = requests.get(REQUEST).await?;
            Ok(check_that(ends.contains(&evicted(&request).as_str()), request.data["status"].to_string()))
        })
        .await?;
        let eviction = Self::eviction(cluster, self.identity).await?.context("its Eviction is gone")?;
        let states = [LOST_NODE, MOVER, EVICTOR].map(|one| state(&eviction, one));
        ensure!(states == ["Completed", "Inactive", "Inactive"], "{}", eviction.data["status"]);
        let reported = message(&eviction, LOST_NODE);
        let ends = ["the pod ran to its end", "the pod does not exist any more"];
        ensure!(ends.contains(&reported), "{reported}");
        let name = self.lost.name();
        let evidences = cluster.plane.kubectl(&["get", "fenceevidences", "-o", "json"]).await?.text()?;
        let evidences: Value = serde_json::from_str(&evidences)?;
        let of_node = |one: &Value| one["spec"]["node"]["name"] == *name;
        ensure!(evidences["items"].as_array().into_iter().flatten().any(of_node), "{evidences}");
        let switched = cluster.switches.log_text();
        ensure!(switched.contains(&format!("{name}: ForceOff, then Off")), "{switched}");
        let is_there = watch::copies().into_iter().find(|(_, copy)| copy.uid == self.uid);
        ensure!(is_there.is_none(), "it runs: {is_there:?}");
        Ok(())
    }

    async fn drain_ends(&self, drain: &mut Program) -> Result<()> {
        self.until_drained(drain, self.lost).await?;
        let ended = eventually("the drain ends", WITHIN, async || {
            let ended = drain.exited().map_err(|error| error.to_string())?;
            ended.ok_or_else(|| drain.log_text())
        });
        let ended = ended.await?;
        ensure!(ended.success(), "{ended}: {}", drain.log_text());
        Ok(())
    }
}
