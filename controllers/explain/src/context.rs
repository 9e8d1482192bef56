//! The input of an explanation: what was read, when, and the settings of the controllers.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pod_safety_fencing::{Outlook, outlook};
use pod_safety_shared::api::Pause;
use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::{Decision, Mode, Subject};
use pod_safety_shared::model::{Kind, Node, Pod};
use serde_json::Value;

use super::answer::timestamp_from;
use super::installation::Installation;

/// The settings with which the controllers decide.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The mode.
    pub mode: Mode,
    /// The settings of pod-gc.
    pub pod_gc: pod_safety_pod_gc::Config,
    /// The settings of node-lifecycle.
    pub node_lifecycle: pod_safety_node_lifecycle::Config,
}

/// The settings of a process without flags.
impl Default for Settings {
    fn default() -> Self {
        let quarantine = Duration::from_secs(40);
        let pod_gc = pod_safety_pod_gc::Config {
            terminated_threshold: Some(12_500),
            quarantine,
            trust_out_of_service_taint: false,
            agent_reports: None,
        };
        Self { mode: Mode::Guard, pod_gc, node_lifecycle: pod_safety_node_lifecycle::Config::kcm_defaults() }
    }
}

/// What is known of the controllers that run.
#[derive(Clone, Debug, Default)]
pub struct Running {
    /// Their mode; `None`: no running process was found that states it.
    pub mode: Option<Mode>,
    /// The leader, if there is one; without leader election, the replica that acts.
    pub leader: Option<String>,
    /// The node of the leader.
    pub leader_node: Option<String>,
    /// How many standbys there are.
    pub standbys: usize,
    /// When the Lease was last renewed, if that is too long ago.
    pub stale: Option<Timestamp>,
    /// The Lease could not be read.
    pub lease_unread: bool,
    /// They run without leader election: the only replica acts without a Lease.
    pub without_election: bool,
    /// They run without the controller `fencing`.
    pub without_fencing: bool,
    /// How they were installed.
    pub installation: Installation,
}

impl Running {
    /// Whether it is known that none of them leads. In the mode observe none does.
    #[must_use]
    pub const fn has_no_leader(&self) -> bool {
        self.leader.is_none() && !self.lease_unread
    }

    /// Sets the leader by the Lease, and counts the standbys of these pods.
    pub fn set_leader(&mut self, lease: &Value, pods: &[Value], wall: Timestamp) {
        let holder = str_at(lease, "/spec/holderIdentity");
        let renewed = str_at(lease, "/spec/renewTime").parse::<Timestamp>().ok();
        let seconds = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(0);
        let over = renewed.is_none_or(|at| wall.as_second() > at.as_second().saturating_add(seconds));
        let name = holder.rsplit_once('_').map_or(holder, |(pod, _)| pod);
        if over {
            self.stale = renewed.filter(|_| !name.is_empty());
        } else if !name.is_empty() {
            self.leader_node = pods.iter().find(|pod| str_at(pod, "/metadata/name") == name).and_then(node_of);
            self.leader = Some(name.to_owned());
        }
        self.standbys = pods.iter().filter(|pod| is_ready(pod) && str_at(pod, "/metadata/name") != name).count();
    }

    /// The same without leader election: the only replica acts while it runs, and needs no Lease. In the mode observe
    /// it does not act.
    pub fn set_only_replica(&mut self, pods: &[Value]) {
        self.without_election = true;
        let Some(pod) = pods.iter().find(|pod| is_ready(pod)).filter(|_| self.mode != Some(Mode::Observe)) else {
            return;
        };
        self.leader = Some(str_at(pod, "/metadata/name").to_owned());
        self.leader_node = node_of(pod);
        self.standbys = 0;
    }

    /// Counts the standbys of these pods before there is a leader.
    pub fn count_standbys(&mut self, pods: &[Value]) {
        self.standbys = pods.iter().filter(|pod| is_ready(pod)).count();
    }
}

fn node_of(pod: &Value) -> Option<String> {
    Some(str_at(pod, "/spec/nodeName")).filter(|node| !node.is_empty()).map(str::to_owned)
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

/// What the admission policies do about force deletions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policies {
    /// They deny them.
    Deny,
    /// They record them in the audit log only.
    Audit {
        /// Since when there has been a policy that could deny them; `None`: not known.
        since: Option<Timestamp>,
    },
    /// There are no such policies.
    Absent,
    /// They could not be read.
    #[default]
    Unread,
}

/// An Event, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// When it was last recorded.
    pub at: Timestamp,
    /// When it was first recorded.
    pub first: Timestamp,
    /// How often it was recorded.
    pub count: i64,
    /// The object that it is about, as `kind/NAMESPACE/NAME`.
    pub object: String,
    /// The UID of that object; empty: the Event has none.
    pub uid: String,
    /// The related node; empty: none.
    pub node: String,
    /// When the deletion of that object had been requested; only for a pod that was removed.
    pub requested: Option<Timestamp>,
    /// The reason.
    pub reason: String,
    /// The message, in one line.
    pub message: String,
    /// The reporting controller.
    pub by: String,
    /// It is of type Warning.
    pub warning: bool,
}

impl EventRecord {
    /// Whether the Event is about this pod, and not about another pod of the same name.
    pub(super) fn is_about(&self, pod: &Pod) -> bool {
        self.uid.is_empty() || self.uid == pod.uid().to_string()
    }

    /// Whether the Event is about this Node, and not about an earlier one of the same name. Kubelets and kube-proxy give
    /// the name as the UID: then the time decides.
    pub(super) fn is_about_node(&self, node: &Node) -> bool {
        if self.uid.is_empty() || self.uid == *node.name {
            return timestamp_from(node.created).is_none_or(|created| self.at >= created);
        }
        self.uid == node.uid.to_string()
    }

    /// Reads an Event of the core API.
    #[must_use]
    pub fn from_event(event: &Value) -> Option<Self> {
        let text = |pointer: &str| str_at(event, pointer);
        let time = |pointer: &str| text(pointer).parse::<Timestamp>().ok();
        let last = time("/series/lastObservedTime").or_else(|| time("/lastTimestamp"));
        let at = last.or_else(|| time("/eventTime")).or_else(|| time("/metadata/creationTimestamp"))?;
        let first = time("/firstTimestamp").or_else(|| time("/eventTime")).unwrap_or(at);
        let by = [text("/reportingComponent"), text("/source/component")];
        let count = event.pointer("/series/count").or_else(|| event.get("count")).and_then(Value::as_i64);
        Some(Self {
            at,
            first,
            count: count.unwrap_or(1),
            object: object_ref(
                text("/involvedObject/kind"),
                text("/involvedObject/namespace"),
                text("/involvedObject/name"),
            ),
            uid: text("/involvedObject/uid").to_owned(),
            node: match text("/related/kind") {
                "Node" => text("/related/name").to_owned(),
                _ => String::new(),
            },
            requested: time("/metadata/annotations/pod-safety.dev~1deletion-requested"),
            reason: text("/reason").to_owned(),
            message: text("/message").split_whitespace().collect::<Vec<_>>().join(" "),
            by: by.into_iter().find(|by| !by.is_empty()).unwrap_or("unknown").to_owned(),
            warning: text("/type") == "Warning",
        })
    }
}

/// The string at this JSON pointer; empty if there is none.
#[must_use]
pub fn str_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The reference of an object for operators: `pod/shop/orders-1`, `node/worker-b1`.
#[must_use]
pub fn object_ref(kind: &str, namespace: &str, name: &str) -> String {
    let kind = kind.to_lowercase();
    if namespace.is_empty() { format!("{kind}/{name}") } else { format!("{kind}/{namespace}/{name}") }
}

/// A VolumeAttachment: a volume that is attached to a node, or is to be attached or detached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The name of the VolumeAttachment.
    pub name: String,
    /// The PersistentVolume.
    pub volume: String,
    /// The node.
    pub node: String,
    /// It is attached; else it is to be attached, or was.
    pub attached: bool,
    /// Its deletion is requested.
    pub deleting: bool,
    /// Why it cannot be attached or detached; empty: no error.
    pub error: String,
    /// Why its detachment is held, if it is.
    pub hold: Option<String>,
}

impl Attachment {
    /// Reads a VolumeAttachment.
    #[must_use]
    pub fn from_object(object: &Value) -> Option<Self> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let deleting = text("/metadata/deletionTimestamp").is_some();
        let error = if deleting { "/status/detachError/message" } else { "/status/attachError/message" };
        Some(Self {
            attached: object["status"]["attached"] == true,
            deleting,
            error: text(error).unwrap_or_default(),
            name: text("/metadata/name")?,
            volume: text("/spec/source/persistentVolumeName").unwrap_or_default(),
            node: text("/spec/nodeName")?,
            hold: text("/metadata/annotations/pod-safety.dev~1hold"),
        })
    }
}

/// What was read of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct ExplainContext<'a> {
    /// The cluster.
    pub view: View<'a>,
    /// When it was read, by the monotonic clock.
    pub now: Mono,
    /// When it was read, by the wall clock.
    pub wall: Timestamp,
    /// The settings with which the controllers decide.
    pub settings: &'a Settings,
    /// The controllers that run.
    pub running: &'a Running,
    /// What the admission policies do.
    pub policies: Policies,
    /// The Events of the object and of its node.
    pub events: &'a [EventRecord],
    /// The VolumeAttachments.
    pub attachments: &'a [Attachment],
    /// Pods that replaced an earlier pod of the same name, as complete API objects.
    pub successors: &'a [Value],
    /// Why nodes that have the annotation of pod-safety are not fenced.
    pub pauses: &'a [(Arc<str>, Pause)],
    /// The kinds that could not be read in all namespaces, without the kinds that this cluster does not have.
    pub unread: &'a [Kind],
}

/// What a controller decides about one node now.
pub(super) struct NodeDecision<H> {
    /// Why it does nothing.
    pub(super) holds: Vec<(Subject, H)>,
    /// It acts.
    pub(super) acts: bool,
}

impl<H> NodeDecision<H> {
    fn from_decision(decision: Decision<H>) -> Self {
        Self { holds: decision.holds, acts: !decision.intents.is_empty() }
    }
}

impl ExplainContext<'_> {
    const fn fencing_config(&self) -> pod_safety_fencing::Config {
        pod_safety_fencing::Config {
            mode: self.settings.mode,
            own_node: None,
            guards_volumes: true,
            include_dry_runs: false,
            history: None,
            provider_lag: pod_safety_fencing::PROVIDER_LAG,
        }
    }

    /// What fencing would do about a node that has no incident yet.
    pub(super) fn fencing_outlook(&self, node: &Node) -> Option<Outlook> {
        outlook(node, &self.view, self.now, &self.fencing_config())
    }

    /// Whether a controller with fencing runs and acts.
    pub(super) fn is_fencing_on(&self) -> bool {
        let Running { mode, leader, without_fencing, .. } = self.running;
        let acts = mode.unwrap_or(self.settings.mode) != Mode::Observe;
        let kinds = [Kind::FencePolicies, Kind::FenceDevices, Kind::NodeFences, Kind::FenceEvidences];
        leader.is_some() && acts && !without_fencing && kinds.iter().all(|kind| self.has_read(*kind))
    }

    /// What fencing decides about this node.
    pub(super) fn decide_fencing(&self, node: &Arc<str>) -> NodeDecision<pod_safety_fencing::Hold> {
        let config = self.fencing_config();
        let key = pod_safety_fencing::Key::Node(Arc::clone(node));
        NodeDecision::from_decision(pod_safety_fencing::decide(&key, &self.view, self.now, &config))
    }

    /// What holds fencing of this node back, by the controller itself.
    pub(super) fn list_fencing_holds(&self, node: &Node) -> Vec<pod_safety_fencing::Hold> {
        let about = |(subject, hold)| match subject {
            Subject::Everything | Subject::Volume(_) => None,
            Subject::Pod(_) | Subject::Node(_) | Subject::Budget(_) | Subject::Fencing { .. } => Some(hold),
        };
        self.decide_fencing(&node.name).holds.into_iter().filter_map(about).collect()
    }

    /// What node-lifecycle decides about the node. Where kube-controller-manager runs its node lifecycle controller, it
    /// decides little.
    pub(super) fn decide_lifecycle(&self, node: &Arc<str>) -> NodeDecision<pod_safety_node_lifecycle::Hold> {
        let key = pod_safety_node_lifecycle::Key::Node(Arc::clone(node));
        let config = &self.settings.node_lifecycle;
        NodeDecision::from_decision(pod_safety_node_lifecycle::decide(&key, &self.view, self.now, config))
    }

    /// The Events of this object, the latest last.
    pub(super) fn events_of(&self, object: &str) -> Vec<&EventRecord> {
        let mut events: Vec<&EventRecord> = self.events.iter().filter(|event| event.object == object).collect();
        events.sort_by_key(|event| event.at);
        events
    }

    /// Whether a kind was read, at least in one namespace.
    pub(super) fn has_read(&self, kind: Kind) -> bool {
        self.view.check_fresh(kind, self.now).is_ok()
    }

    /// Whether all of these kinds were read in all namespaces.
    #[must_use]
    pub fn has_all(&self, kinds: &[Kind]) -> bool {
        kinds.iter().all(|kind| self.has_read(*kind) && !self.unread.contains(kind))
    }
}

/// `pod/shop/orders-1`.
#[must_use]
pub fn pod_ref(pod: &Pod) -> String {
    object_ref("pod", &pod.key.namespace, &pod.key.name)
}
