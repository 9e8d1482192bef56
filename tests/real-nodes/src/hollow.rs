//! The simulator's kubelet beside a real one: the same scripts, played on both, and what the API shows of pod, Node and Lease
//! in between, in one form without times. A difference fails unless `differences` lists it with its
//! reason, and so does a listed one that does not occur.
//!
//! Both are asked by the same client and heard by the same watches (`record`); `side` is what each does in a way of its own.

mod differences;
mod record;
mod side;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use pod_safety_control_plane::observe;
use serde_json::json;

use crate::cluster::{Cluster, Extra, Mode};
use crate::machine::Machine;
use record::Record;
use side::Side;

const NAMESPACE: &str = "default";

/// What happens to a pod, its node, or its kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScriptStep {
    /// The pod is made, bound to the node.
    Made(Program),
    Deleted,
    ForceDeleted,
    CutOff,
    PluggedIn,
    KubeletRestarted,
    NodeDeleted,
    Frozen,
    Thawed,
    Rebooted,
}

/// What runs in the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// Until it is asked to end; then it ends well.
    Obeys,
    /// Until it is killed.
    Ignores,
    /// Ends well by itself, and is not started again.
    Ends,
}

/// A list of deeds; after each, time is given to whoever has something to say.
#[derive(Clone, Copy, Debug)]
struct Script {
    name: &'static str,
    steps: &'static [ScriptStep],
}

use Program::*;
use ScriptStep::*;

const SCRIPTS: &[Script] = &[
    Script { name: "ends-by-grace", steps: &[Made(Obeys), Deleted] },
    Script { name: "ends-by-itself", steps: &[Made(Ends), Deleted] },
    Script { name: "ignores-sigterm", steps: &[Made(Ignores), Deleted] },
    Script { name: "force-deleted", steps: &[Made(Obeys), ForceDeleted] },
    Script { name: "deleted-while-cut-off", steps: &[Made(Obeys), CutOff, Deleted, PluggedIn] },
    Script { name: "force-deleted-while-cut-off", steps: &[Made(Obeys), CutOff, ForceDeleted, PluggedIn] },
    Script { name: "kubelet-restarted", steps: &[Made(Obeys), KubeletRestarted, Deleted] },
    Script { name: "frozen", steps: &[Made(Obeys), Frozen, Deleted, Thawed] },
    Script { name: "rebooted", steps: &[Made(Obeys), Rebooted, Deleted] },
    Script { name: "node-deleted", steps: &[Made(Obeys), NodeDeleted, KubeletRestarted, Deleted] },
];

/// What each of `record::TRACKS` showed after each deed.
type Tracks = Vec<BTreeMap<&'static str, Vec<String>>>;

/// Plays all scripts on both sides and compares; gives back a table, and what nobody has written down.
pub(crate) async fn compare() -> Result<(String, Vec<String>)> {
    // Nobody keeps nodes here: what is seen is the kubelets' own.
    let cluster = Cluster::machines(Mode::Replace, Extra::Nothing).await?;
    let hollow = side::hollow(Machine::ALL.len()).await?;
    let real = side::real(&cluster);
    let (real, hollow) = tokio::join!(all(&real), all(&hollow));
    let (real, hollow) = (real.context("on real nodes")?, hollow.context("in the simulator")?);
    let mut found = BTreeSet::new();
    let mut page = "| script | after | of the | real kubelet | simulator |\n|---|---|---|---|---|\n".to_owned();
    for (script, (real, hollow)) in SCRIPTS.iter().zip(real.iter().zip(&hollow)) {
        for (at, deed) in script.steps.iter().enumerate() {
            for track in record::TRACKS {
                let [theirs, ours] = [real, hollow].map(|shown| shown[at][track].join("; "));
                let same = if theirs == ours { "the same".to_owned() } else { ours.clone() };
                if !theirs.is_empty() || !ours.is_empty() {
                    let _infallible = writeln!(page, "| {} | {deed:?} | {track} | {theirs} | {same} |", script.name);
                }
                if theirs != ours {
                    found.insert((script.name, at, track));
                }
            }
        }
    }
    Ok((page, differences::unexpected(&found)))
}

/// Scripts that are played at the same time have a node each.
async fn all(side: &Side<'_>) -> Result<Vec<Tracks>> {
    let mut shown = Vec::new();
    for some in SCRIPTS.chunks(Machine::ALL.len()) {
        let together = some.iter().enumerate().map(|(node, script)| play(side, node, script));
        shown.extend(futures::future::try_join_all(together).await?);
    }
    Ok(shown)
}

async fn play(side: &Side<'_>, node: usize, script: &Script) -> Result<Tracks> {
    let (client, name) = (side.client(), side.node(node));
    let mut record = Record::begin(&client, &name, script.name).await?;
    let mut shown = Vec::new();
    for deed in script.steps {
        apply(side, &client, node, script.name, *deed).await.with_context(|| format!("{}: {deed:?}", script.name))?;
        tokio::time::sleep(side.settle_time(*deed)).await;
        let mut tracks = record.finish();
        tracks.insert(record::PROCESS, vec![side.runs(script.name)]);
        shown.push(tracks);
    }
    // The next script finds what this one found.
    side.repair(node).await?;
    if observe::find_pod(&client, NAMESPACE, script.name).await?.is_some() {
        observe::delete_pod(&client, NAMESPACE, script.name, true).await?;
    }
    tokio::time::sleep(side.settle_time(ScriptStep::PluggedIn)).await;
    Ok(shown)
}

async fn apply(side: &Side<'_>, client: &Client, node: usize, pod: &str, deed: ScriptStep) -> Result<()> {
    match deed {
        Made(program) => {
            let made = pod_of(pod, &side.node(node), program)?;
            Api::<Pod>::namespaced(client.clone(), NAMESPACE).create(&PostParams::default(), &made).await?;
        }
        // It may have ended, and gone, before.
        Deleted if observe::find_pod(client, NAMESPACE, pod).await?.is_none() => {}
        Deleted => observe::delete_pod(client, NAMESPACE, pod, false).await?,
        ForceDeleted => observe::delete_pod(client, NAMESPACE, pod, true).await?,
        NodeDeleted => {
            let nodes = Api::<Node>::all(client.clone());
            nodes.delete(&side.node(node), &DeleteParams::default()).await?;
        }
        deed => side.apply_step(node, deed).await?,
    }
    Ok(())
}

fn pod_of(name: &str, node: &str, program: Program) -> Result<Pod> {
    let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let copy = ["/workload", name, "$(UID)", "$(NODE)"];
    let (command, policy) = match program {
        // Ended by a signal it exits with 143, which is a good end.
        Obeys => ([&["/tini", "-e", "143", "--"][..], &copy].concat(), "Always"),
        Ignores => (copy.to_vec(), "Always"),
        Ends => (vec!["/tini", "--version"], "Never"),
    };
    Ok(serde_json::from_value(json!({
        "metadata": { "namespace": NAMESPACE, "name": name },
        "spec": {
            "nodeName": node, "restartPolicy": policy, "terminationGracePeriodSeconds": GRACE.as_secs(),
            "dnsPolicy": "Default", "tolerations": [{ "operator": "Exists" }],
            "containers": [{
                "name": "main", "image": "real-nodes.local/workload:1", "imagePullPolicy": "Never", "command": command,
                "env": [field("UID", "metadata.uid"), field("NODE", "spec.nodeName")],
            }],
        },
    }))?)
}

/// Of every pod here.
const GRACE: Duration = Duration::from_secs(4);
