//! Kubernetes Events, which `kubectl describe` and `kubectl events` show.
//!
//! Events are best effort: a separate task writes them one after another, so that they do not compete with deletions for
//! the API server. Events that do not fit into the queue are dropped and counted. The complete record is the journal's log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;

use crate::api::{GROUP, VERSION};
use crate::client::{Call, Connection, Method, WriteCall as _};
use crate::clock::{Env, Mono};
use crate::lease::Leadership;
use crate::metrics::AuthorityMetrics;
use crate::model::{BudgetKey, DeviceKey, NodeKey, PodKey, VolumeKey};
use crate::record::{capitalize, error_chain};

/// How many Events may wait: as many as requests may, because each request ends in one. A full queue takes some 10 MB; only
/// the loss of hundreds of nodes at once fills it.
const LIMIT: usize = 20_000;

/// The same Event on the same object is not repeated within this time.
const REPEAT_AFTER: Duration = Duration::from_secs(600);

/// While objects are being written, Events are written at most this often, because each Event is a write that delays the
/// removal of a pod. The Events of a single pod are written at once, because nothing else is being written by then.
const PAUSE_WHILE_BUSY: Duration = Duration::from_millis(500);

/// How much of an object's name goes into the name of its Event: the maximum length of 253, less a dot and a number.
const MAX_STEM: usize = 220;

/// How severe an Event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// For information.
    Normal,
    /// An operator should check the object.
    Warning,
}

/// What an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InvolvedObject {
    /// A pod.
    Pod(PodKey),
    /// A budget.
    Budget(BudgetKey),
    /// A node.
    Node(NodeKey),
    /// A fence device.
    Device(DeviceKey),
    /// A PersistentVolume.
    Volume(VolumeKey),
}

/// The namespace of Events about cluster-scoped objects (`metav1.NamespaceDefault`).
const CLUSTER_NAMESPACE: &str = "default";

impl InvolvedObject {
    /// The namespace of the object's Events.
    fn namespace(&self) -> &str {
        match self {
            Self::Pod(pod) => &pod.namespace,
            Self::Budget(budget) => &budget.namespace,
            Self::Device(device) => &device.namespace,
            Self::Node(_) | Self::Volume(_) => CLUSTER_NAMESPACE,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Pod(pod) => &pod.name,
            Self::Budget(budget) => &budget.name,
            Self::Node(node) => &node.name,
            Self::Device(device) => &device.name,
            Self::Volume(volume) => &volume.name,
        }
    }

    fn reference(&self) -> serde_json::Value {
        let our_api_version = format!("{GROUP}/{VERSION}");
        let (api_version, kind, namespace, uid) = match self {
            Self::Pod(pod) => ("v1", "Pod", Some(&pod.namespace), &pod.uid),
            Self::Budget(budget) => ("policy/v1", "PodDisruptionBudget", Some(&budget.namespace), &budget.uid),
            // As in kube-controller-manager's node controllers: the node's UID. (Kubelets use its name; `kubectl describe`
            // searches for both.)
            Self::Node(node) => ("v1", "Node", None, &node.uid),
            Self::Device(device) => (&*our_api_version, "FenceDevice", Some(&device.namespace), &device.uid),
            Self::Volume(volume) => ("v1", "PersistentVolume", None, &volume.uid),
        };
        let mut reference = json!({ "apiVersion": api_version, "kind": kind, "name": self.name(), "uid": uid });
        if let Some(namespace) = namespace {
            reference["namespace"] = json!(&**namespace);
        }
        reference
    }
}

/// The reporting controller of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportingController {
    /// This program's own.
    Own,
    /// The controller of this name in kube-controller-manager. The Event has the same text and is repeated as often as its
    /// Event.
    Upstream(&'static str),
}

/// One Event.
#[derive(Clone, Debug)]
pub struct Event {
    /// The reporting controller.
    pub reporter: ReportingController,
    /// The object.
    pub object: InvolvedObject,
    /// The severity.
    pub kind: EventType,
    /// The reason, as one CamelCase word.
    pub reason: &'static str,
    /// The code of a refusal. The written message begins with it; runbooks and `explain` rely on that. Events with
    /// different codes do not suppress each other, so the code must come from a closed set, never from a device or an
    /// object.
    pub code: Option<&'static str>,
    /// The message.
    pub message: String,
}

impl Event {
    /// An Event without a code.
    #[must_use]
    pub const fn new(
        reporter: ReportingController,
        object: InvolvedObject,
        kind: EventType,
        reason: &'static str,
        message: String,
    ) -> Self {
        Self { reporter, object, kind, reason, code: None, message }
    }

    fn key(&self) -> EventKey {
        (self.object.clone(), self.reason, self.code)
    }
}

/// Further information of an Event.
#[derive(Clone, Debug, Default)]
pub struct Related {
    /// The related node.
    pub node: Option<Arc<str>>,
    /// When the deletion of the pod was requested. It cannot be read any more once the pod is removed.
    pub requested: Option<Timestamp>,
}

/// The annotation with the time of that request.
const REQUESTED: &str = "pod-safety.dev/deletion-requested";

/// An Event that waits to be written.
#[derive(Debug)]
struct PendingEvent {
    event: Event,
    related: Related,
    /// When it happened. It may wait long before it is written.
    at: Timestamp,
}

/// The fields by which an Event counts as repeated: object, reason, code.
type EventKey = (InvolvedObject, &'static str, Option<&'static str>);

#[derive(Debug, Default)]
struct PendingEvents {
    events: VecDeque<PendingEvent>,
    recorded_at: BTreeMap<EventKey, Mono>,
}

impl PendingEvents {
    /// Whether the Event is due: it is new, or was last recorded long enough ago.
    fn should_record(&mut self, event: &Event, now: Mono) -> bool {
        let key = event.key();
        if self.recorded_at.get(&key).is_some_and(|at| now.since(*at) < REPEAT_AFTER) {
            return false;
        }
        if self.recorded_at.len() >= LIMIT {
            self.recorded_at.retain(|_, at| now.since(*at) < REPEAT_AFTER);
            if self.recorded_at.len() >= LIMIT {
                // A repeated Event is better than a search of the whole map each time.
                self.recorded_at.clear();
            }
        }
        self.recorded_at.insert(key, now);
        true
    }
}

/// Queues Events and writes them in the background.
#[derive(Clone, Debug)]
pub struct Recorder {
    pending: Arc<Mutex<PendingEvents>>,
    notify: Arc<Notify>,
    env: Env,
    metrics: AuthorityMetrics,
    /// How many objects are being written now.
    writers: Arc<AtomicUsize>,
}

/// While it exists, Events are written at most twice a second.
#[derive(Debug)]
pub struct WritingGuard(Arc<AtomicUsize>);

impl Drop for WritingGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Recorder {
    /// A recorder whose Events wait until [`Recorder::worker_loop`] runs.
    #[must_use]
    pub fn new(env: Env, metrics: AuthorityMetrics) -> Self {
        let (pending, notify, writers) = Default::default();
        Self { pending, notify, env, metrics, writers }
    }

    /// Marks that an object is being written.
    #[must_use]
    pub fn begin_writing(&self) -> WritingGuard {
        self.writers.fetch_add(1, Ordering::SeqCst);
        WritingGuard(Arc::clone(&self.writers))
    }

    /// Queues an Event, unless the same was recorded recently or the queue is full.
    pub fn record(&self, event: Event) {
        self.enqueue(event, Related::default());
    }

    /// The same, with further information.
    pub fn record_related(&self, event: Event, related: Related) {
        self.enqueue(event, related);
    }

    fn enqueue(&self, event: Event, related: Related) {
        let now = self.env.now();
        let mut pending = self.pending.lock();
        if pending.events.len() >= LIMIT {
            self.metrics.events_dropped.inc();
            return;
        }
        if event.reporter == ReportingController::Own && !pending.should_record(&event, now) {
            return;
        }
        pending.events.push_back(PendingEvent { event, related, at: self.env.clock.wall() });
        drop(pending);
        self.notify.notify_one();
    }

    /// Writes queued Events, indefinitely. It writes only while this process leads: standbys have the same holds, and an
    /// Event is needed once. An Event that a standby does not write does not count as recorded.
    pub async fn worker_loop(
        self,
        connection: Connection,
        leadership: Arc<Leadership>,
        component: &'static str,
        instance: String,
    ) {
        loop {
            let next = self.pending.lock().events.pop_front();
            match next {
                None => self.notify.notified().await,
                Some(PendingEvent { event, .. }) if leadership.term(self.env.now()).is_none() => {
                    self.pending.lock().recorded_at.remove(&event.key());
                }
                Some(recorded) => {
                    if self.writers.load(Ordering::SeqCst) > 0 {
                        self.env.sleep(PAUSE_WHILE_BUSY).await;
                    }
                    let call = self.call(&recorded, component, &instance);
                    let event = recorded.event;
                    if let Err(error) = connection.send(call).await {
                        self.metrics.events_dropped.inc();
                        tracing::debug!(namespace = event.object.namespace(), name = event.object.name(), reason = event.reason, error = %error_chain(&error), "an Event was not written");
                    }
                }
            }
        }
    }

    fn call(&self, recorded: &PendingEvent, component: &'static str, instance: &str) -> Call {
        let PendingEvent { event: Event { reporter, object, kind, reason, code, message }, related, at } = recorded;
        let component = match reporter {
            ReportingController::Own => component,
            ReportingController::Upstream(controller) => controller,
        };
        let (namespace, name) = (object.namespace(), object.name());
        // client-go's naming: the object's name and a unique number. A long name is truncated, so that the number fits.
        let stem = name.get(..MAX_STEM).unwrap_or(name).trim_end_matches(['-', '.']);
        let name = format!("{stem}.{:x}", self.env.clock.wall().as_nanosecond());
        let mut body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": name, "namespace": namespace },
            "involvedObject": object.reference(),
            "type": match kind { EventType::Normal => "Normal", EventType::Warning => "Warning" },
            "reason": reason,
            "message": match (code, reporter) {
                (Some(code), _) => format!("{code}: {message}"),
                (None, ReportingController::Own) => capitalize(message),
                (None, ReportingController::Upstream(_)) => message.clone(),
            },
            "action": reason,
            "count": 1,
            "firstTimestamp": format!("{at:.0}"),
            "lastTimestamp": format!("{at:.0}"),
            "eventTime": format!("{at:.6}"),
            "source": { "component": component },
            "reportingComponent": component,
            "reportingInstance": instance,
        });
        if let Some(at) = related.requested {
            body["metadata"]["annotations"] = json!({ REQUESTED: format!("{at:.0}") });
        }
        if let Some(node) = &related.node {
            body["related"] = json!({ "apiVersion": "v1", "kind": "Node", "name": &**node });
        }
        Call::write(Method::Post, format!("/api/v1/namespaces/{namespace}/events"), &body)
    }
}

#[cfg(test)]
mod tests;
