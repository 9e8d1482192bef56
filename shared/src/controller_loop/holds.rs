//! The present holds and their reasons. Differences become records and Events; the number of holds becomes a metric.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus::{IntGaugeVec, Opts, Registry};
use serde::Serialize;

use super::{FORCE_DELETE_HELD, HoldReason, Subject};
use crate::authority::TAINT_MANAGER_EVICTION;
use crate::clock::Env;
use crate::events::{Event, EventType, InvolvedObject, Recorder, ReportingController};
use crate::metrics::{MetricsError, registered};
use crate::model::{NodeKey, Uid};
use crate::record::{Action, Journal, Record};

/// One present hold.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CurrentHold {
    /// The controller.
    pub controller: &'static str,
    /// The object on hold.
    pub subject: Subject,
    /// The reason, as one CamelCase word.
    pub reason: &'static str,
    /// The reason as a sentence, with the numbers of the last decision.
    pub message: String,
    /// When the hold began, by this host's clock.
    pub since: Timestamp,
    /// The Event to emit; `None`: the hold will end by itself.
    #[serde(skip)]
    event: Option<(EventType, &'static str)>,
    /// Whether a deletion follows when the hold's time has passed.
    #[serde(skip)]
    counts_down: bool,
}

type Held = BTreeMap<(Subject, &'static str), CurrentHold>;

/// All holds of one process.
#[derive(Debug)]
pub struct Holds {
    held: Mutex<BTreeMap<(&'static str, String), Held>>,
    journal: Arc<Journal>,
    events: Recorder,
    gauge: IntGaugeVec,
}

impl Holds {
    /// No holds yet.
    ///
    /// # Errors
    /// Two metrics have the same name, which is a defect of this program.
    pub fn new(journal: Arc<Journal>, events: Recorder, registry: &Registry) -> Result<Arc<Self>, MetricsError> {
        let gauge = IntGaugeVec::new(
            Opts::new(
                "pod_safety_holds",
                "Pods, nodes and PodDisruptionBudgets on which the controller deliberately does not act yet, by reason.",
            ),
            &["controller", "reason"],
        )?;
        Ok(Arc::new(Self { held: Mutex::default(), journal, events, gauge: registered(registry, gauge)? }))
    }

    /// Sets the metric to zero for every reason of this controller, so that the series exist.
    pub fn register(&self, controller: &'static str, reasons: &[&'static str]) {
        for reason in reasons {
            self.gauge.with_label_values(&[controller, reason]).set(0);
        }
    }

    /// All present holds.
    #[must_use]
    pub fn current(&self) -> Vec<CurrentHold> {
        self.held.lock().values().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Replaces the holds of one key by those of a new decision. New reasons are recorded, and emitted as Events if
    /// `emit_events`. If a hold that counts down ended and its pod is not in `deleted`, an Event about the cancelled
    /// deletion is emitted.
    pub(crate) fn replace<H: HoldReason>(
        &self,
        controller: &'static str,
        key: &str,
        holds: Vec<(Subject, H)>,
        deleted: &BTreeSet<Uid>,
        emit_events: bool,
        env: &Env,
    ) {
        let mut all = self.held.lock();
        let slot = (controller, key.to_owned());
        if holds.is_empty() && !all.contains_key(&slot) {
            return;
        }
        let before = all.remove(&slot).unwrap_or_default();
        for held in before.values() {
            self.gauge.with_label_values(&[controller, held.reason]).dec();
        }
        let mut after = Held::new();
        for (subject, hold) in holds {
            let slot = (subject.clone(), hold.reason());
            let existing = before.get(&slot);
            let since = existing.map_or_else(|| env.clock.wall(), |existing| existing.since);
            if existing.is_none() {
                if !hold.counts_down() {
                    self.write(controller, &subject, &hold, since);
                }
                if emit_events {
                    self.emit_event(&subject, hold.reason(), hold.event(), &hold.to_string());
                }
            }
            self.gauge.with_label_values(&[controller, hold.reason()]).inc();
            let (reason, message, event) = (hold.reason(), hold.to_string(), hold.event());
            let counts_down = hold.counts_down();
            after.insert(slot, CurrentHold { controller, subject, reason, message, since, event, counts_down });
        }
        if emit_events {
            let over = before.iter().filter(|(slot, held)| held.counts_down && !after.contains_key(*slot));
            over.for_each(|(_, held)| self.emit_cancellation(&held.subject, deleted));
        }
        if !after.is_empty() {
            all.insert(slot, after);
        }
    }

    /// Emits the Event of a cancelled deletion, with kube-controller-manager's message.
    fn emit_cancellation(&self, subject: &Subject, deleted: &BTreeSet<Uid>) {
        let Subject::Pod(pod) = subject else { return };
        if deleted.contains(&pod.uid) {
            return;
        }
        let (object, message) = (InvolvedObject::Pod(pod.clone()), format!("Cancelling deletion of Pod {pod}"));
        let (reporter, reason) = TAINT_MANAGER_EVICTION;
        self.events.record(Event::new(reporter, object, EventType::Normal, reason, message));
    }

    /// Emits an Event for every present hold. A new leader does this, because as a standby it emitted no Events.
    pub(super) fn emit_events_again(&self, controller: &'static str) {
        let all = self.held.lock();
        let held = all.iter().filter(|((of, _), _)| *of == controller).flat_map(|(_, held)| held.values());
        held.for_each(|held| self.emit_event(&held.subject, held.reason, held.event, &held.message));
    }

    fn emit_event(
        &self,
        subject: &Subject,
        held: &'static str,
        event: Option<(EventType, &'static str)>,
        message: &str,
    ) {
        let object = match subject {
            Subject::Pod(pod) => InvolvedObject::Pod(pod.clone()),
            Subject::Budget(budget) => InvolvedObject::Budget(budget.clone()),
            Subject::Fencing { node, uid } => {
                InvolvedObject::Node(NodeKey { name: Arc::clone(node), uid: uid.clone() })
            }
            Subject::Volume(volume) => InvolvedObject::Volume(volume.clone()),
            Subject::Node(_) | Subject::Everything => return,
        };
        let Some((kind, reason)) = event else { return };
        let message = if reason == FORCE_DELETE_HELD { format!("{held}: {message}") } else { message.to_owned() };
        self.events.record(Event::new(ReportingController::Own, object, kind, reason, message));
    }

    fn write(&self, controller: &'static str, subject: &Subject, hold: &impl HoldReason, at: Timestamp) {
        let (pod, budget, node, node_uid) = match subject {
            Subject::Pod(pod) => (Some(pod.clone()), None, None, None),
            Subject::Budget(budget) => (None, Some(budget.clone()), None, None),
            Subject::Node(node) => (None, None, Some(Arc::clone(node)), None),
            Subject::Fencing { node, uid } => (None, None, Some(Arc::clone(node)), Some(uid.clone())),
            Subject::Volume(_) | Subject::Everything => (None, None, None, None),
        };
        let (action, reason, message) = (Action::Held, hold.reason(), hold.to_string());
        self.journal.write(Record { at, controller, action, pod, budget, node, node_uid, reason, message });
    }
}

#[cfg(test)]
mod tests;
