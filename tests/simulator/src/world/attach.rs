//! The attach/detach controller, as far as the volumes of the `StatefulSet` need it: by the rules of
//! kube-controller-manager 1.37 (`pkg/controller/volume/attachdetach`), including its wait of six minutes. It is the
//! same one whichever controller runs PodGC.
//!
//! In: pods, nodes and their `volumesInUse`, from the watch cache of its API server. Out: `VolumeAttachments`. A volume
//! is attached to one node at a time; it is detached when no pod needs it there and the kubelet has unmounted it, or at
//! once from a node out of service, or after six minutes from one that is not ready.
//!
//! Where volumes are guarded it also writes its attachments into `volumesAttached` of Nodes, and after a restart it
//! knows no more than that: an attachment that no Node lists is uncertain, which does not prevent another attachment of
//! the volume; every volume counts as mounted until the Node reports its volumes; and the six minutes begin again.
//!
//! Left out: the driver (what is written is attached as soon as that can be written), and its failures.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::guarded::{meant, unique, volumes_of};
use super::host::Host;
use super::kcm_nodes::ready;
use super::request::{Answer, send_request};
use super::run::World;
use super::str_at;
use crate::checker::Tone;

/// `reconcilerLoopPeriod` is shorter; no test needs that.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// `reconcilerSyncDuration`: how often it verifies its attachments.
const VERIFY_INTERVAL: u64 = 60;
/// `reconcilerMaxWaitForUnmountDuration`.
const MAX_WAIT_FOR_UNMOUNT: Duration = Duration::from_secs(360);
/// `initialDurationBeforeRetry` and `maxDurationBeforeRetry`.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(122);
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The path of an attachment.
pub(super) fn attachment(volume: &str, node: &str) -> String {
    format!("{ATTACHMENTS}/{volume}.{node}")
}

/// A volume, and a node.
type Place = (String, String);

/// The controller and its state.
pub(crate) struct AttachDetach {
    world: Arc<World>,
    /// `actualStateOfWorld`: the attachments, and since when no pod needs each of them.
    attached: BTreeMap<Place, Option<Duration>>,
    /// The pods that wait for a volume that is attached elsewhere.
    waiting: BTreeSet<Place>,
    /// Detachments that failed: upstream marks them as uncertain, and other nodes may attach the volume.
    uncertain: BTreeSet<Place>,
    /// Attachments that are written but could not be marked as attached yet: the driver tries again.
    uncalled: BTreeSet<Place>,
    /// Refused requests: until when each is not retried, and how long that backoff was.
    refused: BTreeMap<Place, (Duration, Duration)>,
    /// `volumesInUse` as each kubelet reported it last. A Node that is gone reports nothing new.
    in_use: BTreeMap<String, BTreeSet<String>>,
    /// The revision up to which it has read.
    observed_revision: u64,
    /// How often it started.
    starts: u64,
}

impl AttachDetach {
    pub(crate) fn start(world: &Arc<World>, host: &Arc<Host>) {
        let mut controller = Self {
            world: Arc::clone(world),
            attached: BTreeMap::new(),
            waiting: BTreeSet::new(),
            uncertain: BTreeSet::new(),
            uncalled: BTreeSet::new(),
            refused: BTreeMap::new(),
            in_use: BTreeMap::new(),
            observed_revision: 0,
            starts: 0,
        };
        let env = host.env();
        host.start_task("attach-detach", async move {
            loop {
                controller.reconcile().await;
                env.sleep(POLL_INTERVAL).await;
            }
        });
    }

    async fn request(&self, method: &str, path: &str, body: Option<Value>) -> Option<Answer> {
        send_request(&self.world.servers.get(0)?, "attach-detach", method, path, body).await
    }

    async fn reconcile(&mut self) {
        let Some(server) = self.world.servers.get(0) else { return };
        let (now, nodes) = (self.world.checker.now(), server.cached("Node"));
        let starts = self.world.attacher_starts.load(Ordering::Relaxed);
        if starts != self.starts {
            (self.starts, self.observed_revision) = (starts, server.applied());
            self.rebuild_state(&nodes, &server.cached("VolumeAttachment"));
        }
        self.observe_in_use(server.applied(), &nodes);
        for place in std::mem::take(&mut self.uncalled) {
            self.call_attached(place).await;
        }
        if now.as_secs().is_multiple_of(VERIFY_INTERVAL) && self.world.with.guarded_volumes.is_some() {
            let there = server.cached("VolumeAttachment");
            let name = |place: &Place| format!("{}.{}", place.0, place.1);
            // An attachment that a person deleted is not attached.
            self.attached.retain(|place, _| there.iter().any(|one| str_at(one, "/metadata/name") == name(place)));
        }
        // Only pods that need a volume are copied.
        let wants = |pod: &Value| !desired_attachments(pod).is_empty();
        let desired: BTreeSet<Place> =
            server.cached_that("Pod", wants).iter().flat_map(|pod| desired_attachments(pod)).collect();
        for (place, unwanted) in &mut self.attached {
            *unwanted = if desired.contains(place) { None } else { unwanted.or(Some(now)) };
        }
        // Detaches first, as upstream.
        let unwanted: Vec<(Place, Duration)> =
            self.attached.iter().filter_map(|(place, since)| Some((place.clone(), (*since)?))).collect();
        for (place, since) in unwanted {
            let node = nodes.iter().find(|node| str_at(node, "/metadata/name") == place.1).map(Arc::as_ref);
            self.detach(place, now.saturating_sub(since), node).await;
        }
        for place in desired {
            if self.attached.contains_key(&place) && !self.uncertain.contains(&place) {
                continue;
            }
            let holds = |other: &&Place| other.0 == place.0 && !self.uncertain.contains(*other);
            if self.attached.keys().any(|other| holds(&other)) {
                if self.waiting.insert(place) {
                    self.world.checker.probe("an attachment waits: the volume is attached elsewhere");
                    if self.world.with.guarded_volumes.is_some() {
                        self.world.checker.note("an attachment waits");
                    }
                }
                continue;
            }
            if self.world.may_start_with(&place.0) {
                self.attach(place).await;
            }
        }
        for node in nodes.iter().filter(|_| self.world.with.guarded_volumes.is_some()) {
            let name = str_at(node, "/metadata/name");
            if said_of(node) != self.attached_to(name, None) {
                self.update_attached(name, None).await;
            }
        }
    }

    /// The state after a start (`populateActualStateOfWorld`, `processVolumeAttachments`).
    fn rebuild_state(&mut self, nodes: &[Arc<Value>], attachments: &[Arc<Value>]) {
        self.attached.clear();
        self.waiting.clear();
        self.uncertain.clear();
        self.refused.clear();
        self.in_use.clear();
        for node in nodes {
            let name = str_at(node, "/metadata/name");
            self.attached.extend(said_of(node).into_iter().map(|volume| ((volume, name.to_owned()), None)));
        }
        for one in attachments {
            let (volume, node) = (str_at(one, "/spec/source/persistentVolumeName"), str_at(one, "/spec/nodeName"));
            let place = (volume.to_owned(), node.to_owned());
            if self.attached.insert(place.clone(), None).is_none() {
                self.world.checker.probe("after its restart an attacher knew nothing of an attachment");
                self.uncertain.insert(place);
            }
        }
        for (volume, node) in self.attached.keys() {
            self.in_use.entry(node.clone()).or_default().insert(volume.clone());
        }
    }

    /// The volumes that are or may be attached to a node, except one that is being detached.
    fn attached_to(&self, node: &str, leaves: Option<&Place>) -> BTreeSet<String> {
        let others = self.attached.keys().filter(|place| place.1 == node && Some(*place) != leaves);
        others.filter(|place| !self.uncertain.contains(*place)).map(|place| place.0.clone()).collect()
    }

    /// Writes into the Node which volumes are attached to it, also before a volume is detached.
    async fn update_attached(&self, node: &str, leaves: Option<&Place>) {
        let entry = |volume: String| json!({ "name": unique(&volume), "devicePath": "" });
        let attached: Vec<Value> = self.attached_to(node, leaves).into_iter().map(entry).collect();
        let patch = json!({ "status": { "volumesAttached": attached } });
        self.request("PATCH", &format!("/api/v1/nodes/{node}/status"), Some(patch)).await;
    }

    /// Records `volumesInUse` event by event: the last report of a Node that came and went between two polls counts
    /// too. If the history is too short, all nodes are listed.
    fn observe_in_use(&mut self, applied: u64, nodes: &[Arc<Value>]) {
        for change in self.world.etcd.changes_after(self.observed_revision) {
            let last = change.after.as_ref().or(change.before.as_ref());
            if let Some(node) = last.filter(|_| change.kind == "Node" && change.revision <= applied) {
                self.in_use.insert(change.name.clone(), in_use(node));
            }
        }
        self.observed_revision = applied;
        self.in_use.extend(nodes.iter().map(|node| (str_at(node, "/metadata/name").to_owned(), in_use(node))));
    }

    async fn attach(&mut self, place: Place) {
        let (volume, node) = &place;
        let object = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": { "name": format!("{volume}.{node}") },
            "spec": { "attacher": "hollow", "nodeName": node, "source": { "persistentVolumeName": volume } },
        });
        if self.pauses(&place) {
            return;
        }
        match self.request("POST", ATTACHMENTS, Some(object)).await {
            Some((201 | 409, _)) => {}
            answer => return self.failed(place, answer, "an attachment was refused by admission"),
        }
        let identity = format!("default/{volume}");
        for (_, other) in self.uncertain.iter().filter(|other| other.0 == *volume && other.1 != *node) {
            self.world.checker.attachment_remains(&identity, other, true);
        }
        self.world.checker.volume_is_attached(&identity, node);
        self.call_attached(place.clone()).await;
        self.waiting.remove(&place);
        self.uncertain.remove(&place);
        self.refused.remove(&place);
        self.attached.insert(place, None);
    }

    /// The driver's part.
    async fn call_attached(&mut self, place: Place) {
        let path = format!("{}/status", attachment(&place.0, &place.1));
        let attached = json!({ "status": { "attached": true } });
        if !matches!(self.request("PATCH", &path, Some(attached)).await, Some((200 | 404, _))) {
            self.uncalled.insert(place);
        }
    }

    /// `node` is `None` if the Node is gone.
    async fn detach(&mut self, place: Place, unwanted_for: Duration, node: Option<&Value>) {
        let (volume, name) = &place;
        let out_of_service = node.is_some_and(is_out_of_service);
        let timed_out = unwanted_for > MAX_WAIT_FOR_UNMOUNT;
        let forced = timed_out && node.is_none_or(|node| ready(node) != "True");
        let used = self.in_use.get(name).is_some_and(|used| used.contains(volume));
        if used && !forced && !out_of_service {
            return;
        }
        if !timed_out && !out_of_service {
            // The Node is read once more, past the cache; a Node that is gone uses no volume.
            match self.request("GET", &format!("/api/v1/nodes/{name}"), None).await {
                Some((404, _)) => {}
                Some((200, node)) if !in_use(&node).contains(volume) => {}
                _ => return,
            }
        }
        if self.pauses(&place) {
            return;
        }
        if self.world.with.guarded_volumes.is_some() {
            self.update_attached(name, Some(&place)).await;
        }
        match self.request("DELETE", &attachment(volume, name), None).await {
            Some((200 | 404, _)) => {}
            answer => {
                if matches!(answer, Some((403, _))) {
                    self.uncertain.insert(place.clone());
                }
                return self.failed(place, answer, "a detachment was refused by admission");
            }
        }
        if used {
            self.world.checker.announce(Tone::Fault, format!("{volume} is detached by force from {name}"));
            let gated = self.world.with.guarded_volumes.is_some_and(|guarding| guarding.gate);
            let guarded = gated || self.world.replicas.iter().any(|place| place.leads());
            if out_of_service && !timed_out && !guarded {
                self.world.checker.record_unguarded_detach(&format!("default/{volume}"), name);
            }
        }
        self.world.checker.probe(if used { "a volume was detached by force" } else { "a volume was detached" });
        self.world.checker.attachment_remains(&format!("default/{volume}"), name, false);
        self.attached.remove(&place);
        self.uncertain.remove(&place);
        self.refused.remove(&place);
    }

    /// Whether it was refused a short while ago.
    fn pauses(&self, place: &Place) -> bool {
        let now = self.world.checker.now();
        self.refused.get(place).is_some_and(|(until, _)| now < *until)
    }

    /// A request that admission refuses is retried after a backoff that doubles, as upstream.
    fn failed(&mut self, place: Place, answer: Option<Answer>, refused: &str) {
        let Some((403, _)) = answer else { return };
        self.world.checker.probe(refused);
        let pause = self.refused.get(&place).map_or(FIRST_PAUSE, |(_, pause)| (*pause * 2).min(LONGEST_PAUSE));
        self.refused.insert(place, (self.world.checker.now() + pause, pause));
    }
}

/// Where a pod needs its volumes: a pod that ended, or that is deleted and reports no running container, needs none.
fn desired_attachments(pod: &Value) -> Vec<Place> {
    let node = str_at(pod, "/spec/nodeName");
    let ended = matches!(str_at(pod, "/status/phase"), "Failed" | "Succeeded");
    let runs = pod.pointer("/status/containerStatuses/0/state/running").is_some();
    let leaves = pod.pointer("/metadata/deletionTimestamp").is_some() && !runs;
    if node.is_empty() || ended || leaves {
        return Vec::new();
    }
    volumes_of(pod).into_iter().map(|volume| (volume, node.to_owned())).collect()
}

/// The volumes that a Node lists in `volumesAttached`.
pub(super) fn said_of(node: &Value) -> BTreeSet<String> {
    let attached = node.pointer("/status/volumesAttached").and_then(Value::as_array).into_iter().flatten();
    attached.map(|one| meant(str_at(one, "/name")).to_owned()).collect()
}

fn in_use(node: &Value) -> BTreeSet<String> {
    let used = node.pointer("/status/volumesInUse").and_then(Value::as_array).into_iter().flatten();
    used.filter_map(Value::as_str).map(|volume| meant(volume).to_owned()).collect()
}

fn is_out_of_service(node: &Value) -> bool {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
    taints.into_iter().any(|taint| str_at(taint, "/key") == OUT_OF_SERVICE)
}
