//! What is held now and why: the difference to before becomes records, the sum
//! becomes a metric.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus::{IntGaugeVec, Opts, Registry};
use serde::Serialize;

use super::Subject;
use crate::authority::Hold;
use crate::clock::Env;
use crate::events::{Event, EventType, Recorder};
use crate::metrics::MetricsError;
use crate::record::{Action, Journal, Record};

/// One hold that is in force.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldNow {
    /// By which controller.
    pub controller: &'static str,
    /// About what.
    pub subject: Subject,
    /// The reason, one CamelCase word.
    pub reason: &'static str,
    /// The reason in a sentence, with its numbers as they were decided last.
    pub message: String,
    /// Since when, by our wall clock.
    pub since: Timestamp,
    /// Whether it will not pass by itself.
    #[serde(skip)]
    needs_a_person: bool,
}

type Held = BTreeMap<Subject, HeldNow>;

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
    /// Two metrics of one name: a mistake in this program.
    pub fn new(
        journal: Arc<Journal>,
        events: Recorder,
        registry: &Registry,
    ) -> Result<Arc<Self>, MetricsError> {
        let gauge = IntGaugeVec::new(
            Opts::new("pod_safety_holds", "Pods and nodes on which nothing is done for now, by the reason."),
            &["controller", "reason"],
        )?;
        registry.register(Box::new(gauge.clone()))?;
        Ok(Arc::new(Self { held: Mutex::default(), journal, events, gauge }))
    }

    /// Every reason of this controller shows up in the metric, at zero.
    pub fn announce(&self, controller: &'static str) {
        for reason in Hold::REASONS {
            self.gauge.with_label_values(&[controller, reason]).set(0);
        }
    }

    /// What is held, for people.
    #[must_use]
    pub fn now(&self) -> Vec<HeldNow> {
        self.held.lock().values().flat_map(BTreeMap::values).cloned().collect()
    }

    /// The holds of one key as just decided. New reasons are written down.
    pub(crate) fn replace(
        &self,
        controller: &'static str,
        key: &str,
        holds: Vec<(Subject, Hold)>,
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
            let known = before.get(&subject).filter(|known| known.reason == hold.reason());
            let since = known.map_or_else(|| env.clock.wall(), |known| known.since);
            if known.is_none() {
                self.write(controller, &subject, &hold, since);
            }
            self.gauge.with_label_values(&[controller, hold.reason()]).inc();
            let (reason, message, needs_a_person) = (hold.reason(), hold.to_string(), hold.needs_a_person());
            let held =
                HeldNow { controller, subject: subject.clone(), reason, message, since, needs_a_person };
            after.insert(subject, held);
        }
        if !after.is_empty() {
            all.insert(slot, after);
        }
    }

    /// Tells people of every hold that is in force: a new leader does, for nobody
    /// heard of what it decided before.
    pub(super) fn tell_again(&self, controller: &'static str) {
        let all = self.held.lock();
        let held = all.iter().filter(|((of, _), _)| *of == controller).flat_map(|(_, held)| held.values());
        for held in held.filter(|held| held.needs_a_person) {
            self.tell_people(&held.subject, held.reason, &held.message);
        }
    }

    fn tell_people(&self, subject: &Subject, reason: &'static str, message: &str) {
        if let Subject::Pod(pod) = subject {
            let (pod, message) = (pod.clone(), format!("{reason}: {message}"));
            self.events.record(Event { pod, kind: EventType::Warning, reason: "ForceDeleteHeld", message });
        }
    }

    fn write(&self, controller: &'static str, subject: &Subject, hold: &Hold, at: Timestamp) {
        let (pod, node) = match subject {
            Subject::Pod(pod) => (Some(pod.clone()), None),
            Subject::Node(node) => (None, Some(Arc::clone(node))),
            Subject::Everything => (None, None),
        };
        let (reason, message) = (hold.reason(), hold.to_string());
        if hold.needs_a_person() {
            self.tell_people(subject, reason, &message);
        }
        self.journal.write(Record { at, controller, action: Action::Held, pod, node, reason, message });
    }
}
