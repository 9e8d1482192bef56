//! Kubernetes Events: what people see in `kubectl describe` and `kubectl events`.
//!
//! Best effort, and never in the way: Events are written one after another by a
//! task of their own, so that a storm of deletions keeps the API server's
//! attention; what does not fit is dropped and counted. The record that nothing
//! may lose is the journal's log line.

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
use crate::record::{error_chain, sentence};

/// How many Events may wait: as many as intents may, for each ends in one. Some
/// 10 MB when full, which only the loss of hundreds of nodes at once can do.
const LIMIT: usize = 20_000;

/// The same Event on the same object is not repeated within this time.
const SAME_AGAIN: Duration = Duration::from_secs(600);

/// While pods are being removed, Events are written at most this often: each one
/// is a write that the API server would rather spend on a removal. Those of a
/// single pod come at once, for by then nothing is being removed.
const WHILE_BUSY: Duration = Duration::from_millis(500);

/// How much of a pod's name goes into its Event's: 253 less a dot and a number.
const LONGEST_STEM: usize = 220;

/// How severe an Event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// For information.
    Normal,
    /// Somebody should look.
    Warning,
}

/// What an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
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

/// Where Events about what has no namespace lie, as everybody's do (`metav1.NamespaceDefault`).
const OF_CLUSTER: &str = "default";

impl About {
    /// Where its Events lie.
    fn namespace(&self) -> &str {
        match self {
            Self::Pod(pod) => &pod.namespace,
            Self::Budget(budget) => &budget.namespace,
            Self::Device(device) => &device.namespace,
            Self::Node(_) | Self::Volume(_) => OF_CLUSTER,
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
        let ours = format!("{GROUP}/{VERSION}");
        let (api_version, kind, namespace, uid) = match self {
            Self::Pod(pod) => ("v1", "Pod", Some(&pod.namespace), &pod.uid),
            Self::Budget(budget) => {
                ("policy/v1", "PodDisruptionBudget", Some(&budget.namespace), &budget.uid)
            }
            // As KCM's node controllers: the node's UID. (Kubelets give its name there; `kubectl describe` asks for both.)
            Self::Node(node) => ("v1", "Node", None, &node.uid),
            Self::Device(device) => (&*ours, "FenceDevice", Some(&device.namespace), &device.uid),
            Self::Volume(volume) => ("v1", "PersistentVolume", None, &volume.uid),
        };
        let mut reference =
            json!({ "apiVersion": api_version, "kind": kind, "name": self.name(), "uid": uid });
        if let Some(namespace) = namespace {
            reference["namespace"] = json!(&**namespace);
        }
        reference
    }
}

/// In whose name an Event speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// This program's own.
    Ours,
    /// That of kube-controller-manager's controller of this name, whose words it
    /// says as often as that would.
    InPlaceOf(&'static str),
}

/// One Event.
#[derive(Clone, Debug)]
pub struct Event {
    /// Who says it.
    pub speaker: Speaker,
    /// On what.
    pub about: About,
    /// How severe.
    pub kind: EventType,
    /// The reason, one CamelCase word.
    pub reason: &'static str,
    /// The code of a refusal. The written message begins with it; runbooks and `explain` rely on that. Another code is written at
    /// once, so it must come from a closed list, never from a device or an object.
    pub code: Option<&'static str>,
    /// The sentence.
    pub message: String,
}

impl Event {
    /// One without a code.
    #[must_use]
    pub const fn new(
        speaker: Speaker,
        about: About,
        kind: EventType,
        reason: &'static str,
        message: String,
    ) -> Self {
        Self { speaker, about, kind, reason, code: None, message }
    }

    fn said(&self) -> Said {
        (self.about.clone(), self.reason, self.code)
    }
}

/// What an Event tells besides.
#[derive(Clone, Debug, Default)]
pub struct Related {
    /// The node that it is about besides.
    pub node: Option<Arc<str>>,
    /// When the deletion of the pod had been requested: it cannot be read any more once the pod is gone.
    pub requested: Option<Timestamp>,
}

/// The annotation that says it.
const REQUESTED: &str = "pod-safety.dev/deletion-requested";

/// An Event that waits to be written.
#[derive(Debug)]
struct Recorded {
    event: Event,
    related: Related,
    /// When it happened: it may wait long.
    at: Timestamp,
}

/// Events that agree in these are not repeated: object, reason, code.
type Said = (About, &'static str, Option<&'static str>);

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Recorded>,
    said: BTreeMap<Said, Mono>,
}

impl Waiting {
    /// Whether it is time to say this of that, again or for the first time.
    fn says(&mut self, event: &Event, now: Mono) -> bool {
        let said = event.said();
        if self.said.get(&said).is_some_and(|at| now.since(*at) < SAME_AGAIN) {
            return false;
        }
        if self.said.len() >= LIMIT {
            self.said.retain(|_, at| now.since(*at) < SAME_AGAIN);
            if self.said.len() >= LIMIT {
                // Better to say something twice than to search all of it each time.
                self.said.clear();
            }
        }
        self.said.insert(said, now);
        true
    }
}

/// Takes Events and writes them when there is time.
#[derive(Clone, Debug)]
pub struct Recorder {
    waiting: Arc<Mutex<Waiting>>,
    news: Arc<Notify>,
    env: Env,
    metrics: AuthorityMetrics,
    /// How many objects are being written at the moment.
    writing: Arc<AtomicUsize>,
}

/// Until it is dropped, Events are written at most twice a second.
#[derive(Debug)]
pub struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Recorder {
    /// A recorder whose Events wait until [`Recorder::write_for_ever`] runs.
    #[must_use]
    pub fn new(env: Env, metrics: AuthorityMetrics) -> Self {
        let (waiting, news, writing) = Default::default();
        Self { waiting, news, env, metrics, writing }
    }

    /// An object is being written.
    #[must_use]
    pub fn busy(&self) -> Busy {
        self.writing.fetch_add(1, Ordering::SeqCst);
        Busy(Arc::clone(&self.writing))
    }

    /// Takes an Event, unless the same was said of late or too many wait.
    pub fn record(&self, event: Event) {
        self.take(event, Related::default());
    }

    /// The same, of something that was done because of a node.
    pub fn record_related(&self, event: Event, related: Related) {
        self.take(event, related);
    }

    fn take(&self, event: Event, related: Related) {
        let now = self.env.now();
        let mut waiting = self.waiting.lock();
        if waiting.events.len() >= LIMIT {
            self.metrics.events_dropped.inc();
            return;
        }
        if event.speaker == Speaker::Ours && !waiting.says(&event, now) {
            return;
        }
        waiting.events.push_back(Recorded { event, related, at: self.env.clock.wall() });
        drop(waiting);
        self.news.notify_one();
    }

    /// Writes what comes, for ever. Only while this process leads: standbys see the
    /// same holds, and people need to hear of them once. What a standby does not
    /// write counts as not said.
    pub async fn write_for_ever(
        self,
        connection: Connection,
        leadership: Arc<Leadership>,
        component: &'static str,
        instance: String,
    ) {
        loop {
            let next = self.waiting.lock().events.pop_front();
            match next {
                None => self.news.notified().await,
                Some(Recorded { event, .. }) if leadership.term(self.env.now()).is_none() => {
                    self.waiting.lock().said.remove(&event.said());
                }
                Some(recorded) => {
                    if self.writing.load(Ordering::SeqCst) > 0 {
                        self.env.sleep(WHILE_BUSY).await;
                    }
                    let call = self.call(&recorded, component, &instance);
                    let event = recorded.event;
                    if let Err(error) = connection.send(call).await {
                        self.metrics.events_dropped.inc();
                        tracing::debug!(namespace = event.about.namespace(), name = event.about.name(), reason = event.reason, error = %error_chain(&error), "an Event was not written");
                    }
                }
            }
        }
    }

    fn call(&self, recorded: &Recorded, component: &'static str, instance: &str) -> Call {
        let Recorded { event: Event { speaker, about, kind, reason, code, message }, related, at } = recorded;
        let component = match speaker {
            Speaker::Ours => component,
            Speaker::InPlaceOf(controller) => controller,
        };
        let (namespace, name) = (about.namespace(), about.name());
        // client-go's naming: the object and a number that does not repeat.
        // A long name is cut, so that the number fits into what the API accepts.
        let stem = name.get(..LONGEST_STEM).unwrap_or(name).trim_end_matches(['-', '.']);
        let name = format!("{stem}.{:x}", self.env.clock.wall().as_nanosecond());
        let mut body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": name, "namespace": namespace },
            "involvedObject": about.reference(),
            "type": match kind { EventType::Normal => "Normal", EventType::Warning => "Warning" },
            "reason": reason,
            "message": match (code, speaker) {
                (Some(code), _) => format!("{code}: {message}"),
                (None, Speaker::Ours) => sentence(message),
                (None, Speaker::InPlaceOf(_)) => message.clone(),
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
