//! An application that moves the data of its pods before they are evicted: the responder `example.com/move-data`, with the rights
//! and the writes that docs/eviction.md names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::objects::{MOVER, NAMESPACE, mover_rights};
use crate::watch::{self, VOLUMES};

/// Where data is moved to.
const MOVED: &str = "/run/moved";
/// In so many parts, one in each round.
const PARTS: usize = 4;
const ROUND: Duration = Duration::from_millis(500);

/// Objects of `lifecycle.k8s.io`, which k8s-openapi does not know yet.
pub(crate) fn api(client: Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("lifecycle.k8s.io", "v1alpha1", kind);
    Api::namespaced_with(client, NAMESPACE, &ApiResource::from_gvk_with_plural(&kind, plural))
}

/// The entry of this name in a list of a status.
pub(crate) fn entry<'a>(object: &'a DynamicObject, list: &str, name: &str) -> &'a Value {
    let all = object.data["status"][list].as_array();
    all.into_iter().flatten().find(|one| one["name"] == name).unwrap_or(&Value::Null)
}

/// The data of a pod that was moved.
#[derive(Clone, Debug)]
pub(crate) struct Moved {
    pub(crate) identity: String,
    pub(crate) uid: String,
    /// The pod's process was alive when all was moved.
    pub(crate) ran: bool,
    /// So many lines of this pod.
    pub(crate) lines: usize,
}

#[derive(Default)]
struct State {
    /// How many parts are moved, by the UID of the Eviction.
    parts: BTreeMap<String, usize>,
    moved: Vec<Moved>,
    /// The last part waits.
    waits: bool,
}

/// Dropping it ends the responder.
pub(crate) struct Mover {
    state: Arc<Mutex<State>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mover {
    /// One that begins to move, and does not end until [`Mover::release`].
    pub(crate) async fn begin(cluster: &Cluster) -> Result<Self> {
        for object in mover_rights() {
            cluster.apply(&object).await?;
        }
        let kubeconfig = cluster.plane.user_kubeconfig("move-data", &[])?;
        let client = pod_safety_control_plane::client(&kubeconfig).await?;
        let state = Arc::new(Mutex::new(State { waits: true, ..State::default() }));
        let responder = Responder { client, state: Arc::clone(&state) };
        let task = tokio::spawn(async move {
            loop {
                // A write with a stale version, or to an API server that does not answer, is tried again.
                if let Err(error) = responder.round().await {
                    crate::beside::print_line(&format!("{MOVER}: {error:#}"));
                }
                tokio::time::sleep(ROUND).await;
            }
        });
        Ok(Self { state, task })
    }

    pub(crate) fn release(&self) {
        lock(&self.state).waits = false;
    }

    pub(crate) fn moved(&self) -> Vec<Moved> {
        lock(&self.state).moved.clone()
    }
}

struct Responder {
    client: Client,
    state: Arc<Mutex<State>>,
}

impl Responder {
    async fn round(&self) -> Result<()> {
        let evictions = api(self.client.clone(), "Eviction", "evictions");
        for eviction in evictions.list(&ListParams::default().labels(MOVER)).await? {
            let is_done = !entry(&eviction, "responders", MOVER)["completionTime"].is_null();
            if entry(&eviction, "targetResponders", MOVER)["state"] != "Active" || is_done {
                continue;
            }
            let report = self.work(&eviction).await?;
            let meta = &eviction.metadata;
            let patch = json!({
                "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version },
                "status": { "responders": [report] },
            });
            let name = meta.name.as_deref().context("an Eviction without a name")?;
            evictions.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
        }
        Ok(())
    }

    /// One part more; gives back what is to be reported.
    async fn work(&self, eviction: &DynamicObject) -> Result<Value> {
        let now = format!("{:.0}", Timestamp::now());
        let pod = &eviction.data["spec"]["target"]["pod"];
        let (name, uid) = (pod["name"].as_str().context("no name")?, pod["uid"].as_str().context("no UID")?);
        let pods = Api::<Pod>::namespaced(self.client.clone(), NAMESPACE);
        let there = pods.get_opt(name).await?.is_some_and(|pod| pod.metadata.uid.as_deref() == Some(uid));
        if !there {
            return Ok(json!({ "name": MOVER, "completionTime": now, "message": "the pod is gone" }));
        }
        let key = eviction.metadata.uid.clone().context("an Eviction without a UID")?;
        let mut state = lock(&self.state);
        let last = if state.waits { PARTS - 1 } else { PARTS };
        let part = state.parts.entry(key).or_default();
        let begins = *part == 0;
        *part = (*part + 1).min(last);
        let message = format!("moved {part} of {PARTS} parts of {name}");
        let mut report = json!({ "name": MOVER, "message": message });
        if begins {
            report["heartbeatTime"] = json!(now);
        }
        if *part == PARTS {
            report["completionTime"] = json!(now);
            state.moved.push(copy(name, uid)?);
        }
        Ok(report)
    }
}

/// Copies what this pod wrote.
fn copy(identity: &str, uid: &str) -> Result<Moved> {
    let log = std::fs::read_to_string(Path::new(VOLUMES).join(identity).join("log"))?;
    let own: Vec<_> = log.lines().filter(|line| line.split(' ').nth(1) == Some(uid)).collect();
    let folder = PathBuf::from(MOVED).join(identity);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(uid), own.join("\n"))?;
    let ran = watch::copies().iter().any(|(_, copy)| copy.uid == uid);
    Ok(Moved { identity: identity.to_owned(), uid: uid.to_owned(), ran, lines: own.len() })
}
