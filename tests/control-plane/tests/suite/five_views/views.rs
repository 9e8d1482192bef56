//! The results of each view, in the same terms.

use std::collections::BTreeMap;

use pod_safety_control_plane::ControlPlane;
use serde_json::Value;

use super::{LOST, NS, PODS};
use crate::commands::run;
use crate::prometheus::panels;
use crate::prometheus::server::Prometheus;
use crate::questions::browser::{Browser, Tab};

/// The number of occurrences of each term. None: unknown.
pub(super) type WordCounts = Option<BTreeMap<String, usize>>;

/// The result of each view for a fact.
pub(super) type Views = BTreeMap<&'static str, WordCounts>;

/// How much of a page is shown as good.
pub(super) const GREEN: &str = "document.querySelectorAll('.mark.Good, .verdict.Good').length";

/// The overview as the page receives it.
const OVERVIEW: &str = "new Promise(got => { const events = new EventSource('/overview' + location.search); \
    events.addEventListener('overview', event => { events.close(); got(event.data); }); })";

/// The compared facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fact {
    /// Why pods wait for an operator.
    Pods,
    /// Why fencing of nodes does not continue.
    Nodes,
    /// How many pods and nodes wait for an operator.
    NeedsOperator,
    /// The evidence by which pods were released.
    Released,
    /// The states of devices that are not ready.
    Devices,
    /// Whether a process leads.
    Leader,
}

pub(super) fn word_counts(all: &[(&str, usize)]) -> WordCounts {
    Some(all.iter().map(|(word, count)| ((*word).to_owned(), *count)).collect())
}

fn count<'a>(all: impl Iterator<Item = &'a str>) -> WordCounts {
    let mut words = BTreeMap::new();
    all.for_each(|word| *words.entry(word.to_owned()).or_default() += 1);
    Some(words)
}

/// The content of all views, read at about the same time.
pub(super) struct ViewsRead {
    status: Value,
    ui: Value,
    green: bool,
    doctor: Value,
    /// The output of `explain` for each node and pod; null: it does not exist.
    explained: BTreeMap<String, Value>,
    panels: BTreeMap<String, Vec<Value>>,
    alerts: Vec<Value>,
}

impl ViewsRead {
    pub(super) async fn read(
        plane: &ControlPlane,
        prometheus: &Prometheus,
        browser: &mut Browser,
        tab: &Tab,
    ) -> Result<Self, String> {
        let admin = plane.admin_kubeconfig();
        let query = async |args: &[&str]| -> Value {
            let output = run(plane, &admin, &[args, &["-o", "json"]].concat()).await;
            serde_json::from_str(&output.stdout).unwrap_or_default()
        };
        let mut explained = BTreeMap::new();
        for pod in PODS {
            explained.insert(format!("pod/{pod}"), query(&["explain", "pod", "-n", NS, pod]).await);
        }
        for node in LOST {
            explained.insert(format!("node/{node}"), query(&["explain", "node", node]).await);
        }
        let mut results: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (title, expr) in panels() {
            // A panel with only values above zero implies the zeros.
            let zeros = expr.strip_suffix(" > 0").unwrap_or(&expr);
            results.entry(title).or_default().extend(prometheus.query(zeros).await?);
        }
        let overview = browser.evaluate(tab, OVERVIEW).await;
        let overview = overview.as_str().ok_or("the page has no overview")?;
        Ok(Self {
            status: query(&["status"]).await,
            ui: serde_json::from_str(overview).map_err(|error| error.to_string())?,
            green: browser.evaluate(tab, GREEN).await != 0,
            doctor: query(&["doctor"]).await,
            explained,
            panels: results,
            alerts: prometheus.alerts().await?,
        })
    }

    /// For the diagnosis of a mismatch.
    pub(super) fn to_text(&self) -> String {
        let firing: Vec<_> = self.alerts.iter().map(|alert| &alert["labels"]).collect();
        let held = &self.panels["Held now"];
        format!(
            "status {:#}\ndoctor {:#}\nheld {held:?}\nfiring {firing:?}\ndevices {:?}",
            self.status, self.doctor, self.panels["Devices"]
        )
    }

    pub(super) fn views_of(&self, fact: Fact) -> Views {
        match fact {
            Fact::Pods => self.pods(),
            Fact::Nodes => self.nodes(),
            Fact::NeedsOperator => self.needs_operator(),
            Fact::Released => self.released(),
            Fact::Devices => self.devices(),
            Fact::Leader => self.leader(),
        }
    }

    fn pods(&self) -> Views {
        Views::from([
            ("explain", self.explained_as("pod/", |one| one["verdict"] == "Blocked")),
            ("status", blocked(&self.status)),
            ("ui", blocked(&self.ui).filter(|_| !self.green)),
            ("dashboard", self.panel("Held now", "reason", |of| of["controller"] == "pod-gc")),
            ("alerts", self.alert("PodSafetyPodsHeld", "reason", "").filter(|_| self.is_led())),
        ])
    }

    fn nodes(&self) -> Views {
        Views::from([
            ("explain", self.explained_as("node/", |one| one["reason"] != "NoEvidence")),
            ("status", troubles(&self.status, "node/", "NoEvidence")),
            ("ui", troubles(&self.ui, "node/", "NoEvidence")),
            ("dashboard", self.panel("Held now", "reason", |of| of["controller"] == "fencing")),
            ("alerts", self.alert("PodSafetyFenceAwaitsOperator", "", "AwaitingOperator")),
        ])
    }

    fn needs_operator(&self) -> Views {
        // A node for which pods wait is included here, unless an incident also waits.
        let sum = |seen: &Value| {
            let (pods, nodes) = (blocked(seen)?, troubles(seen, "node/", "NoEvidence")?);
            word_counts(&[("objects", pods.values().chain(nodes.values()).sum())])
        };
        let held = self.panels["Held for a person"].first();
        let held = held.and_then(|one| one["value"][1].as_str()?.parse::<usize>().ok());
        Views::from([
            ("status", sum(&self.status)),
            ("ui", sum(&self.ui)),
            ("dashboard", held.and_then(|held| word_counts(&[("objects", held)]))),
        ])
    }

    fn released(&self) -> Views {
        let gone = self.explained.values().filter(|one| one.is_null());
        Views::from([
            ("explain", count(gone.map(|_| "gone"))),
            ("dashboard", self.panel("Pods force deleted, by evidence", "evidence", |_| true)),
        ])
    }

    fn devices(&self) -> Views {
        let mut all = Views::from([
            ("status", troubles(&self.status, "fencedevice/", "")),
            ("ui", troubles(&self.ui, "fencedevice/", "")),
            ("doctor", self.doctors_devices()),
            ("dashboard", self.panel("Devices", "state", |of| of["state"] != "Ready")),
        ]);
        if self.is_led() {
            all.insert("alerts", self.alert("PodSafetyFenceDeviceSilent", "", "NotReady"));
        }
        all
    }

    fn leader(&self) -> Views {
        let to_counts = |leads: bool| word_counts(&[(if leads { "leads" } else { "none" }, 1)]);
        let leaders = self.panels["Leaders"].first().map(|one| one["value"][1] == "1");
        let mut checks = self.doctor["checks"].as_array().into_iter().flatten();
        // A single leader without a standby has a remark.
        let check = checks.find(|one| one["check"] == "Leader").map(|one| one["health"] != "Problem");
        Views::from([
            ("status", to_counts(self.status["leader"].is_string())),
            ("ui", to_counts(self.ui["leader"].is_string())),
            ("doctor", check.and_then(to_counts)),
            ("dashboard", leaders.and_then(to_counts)),
            ("alerts", to_counts(self.is_led())),
        ])
    }

    fn explained_as(&self, kind: &str, counts: impl Fn(&Value) -> bool) -> WordCounts {
        let all = self.explained.iter().filter(|(object, one)| object.starts_with(kind) && !one.is_null());
        count(all.filter(|(_, one)| counts(one)).filter_map(|(_, one)| one["reason"].as_str()))
    }

    /// The counts of a panel, by a label. Without a series they are unknown.
    fn panel(&self, title: &str, label: &str, counts: impl Fn(&Value) -> bool) -> WordCounts {
        let series = self.panels[title].iter().filter(|one| counts(&one["metric"]));
        let numbers = series.filter_map(|one| {
            let number = one["value"][1].as_str()?.parse::<f64>().ok()?;
            // An increase over a range is extrapolated.
            let number = if number > 0.0 { number.round().max(1.0) } else { 0.0 };
            Some((one["metric"][label].as_str()?.to_owned(), number as usize))
        });
        let all: BTreeMap<String, usize> = numbers.collect();
        let has_series = !all.is_empty();
        has_series.then(|| all.into_iter().filter(|(_, number)| *number > 0).collect())
    }

    /// The counts of an alert, by a label, or as one term.
    fn alert(&self, name: &str, label: &str, word: &str) -> WordCounts {
        let firing = self.alerts.iter().filter(|one| one["labels"]["alertname"] == name);
        let numbers = firing.filter_map(|one| {
            let number = one["value"].as_str()?.parse::<f64>().ok()?;
            let word = one["labels"][label].as_str().unwrap_or(word);
            Some((word.to_owned(), number as usize))
        });
        Some(numbers.collect())
    }

    fn is_led(&self) -> bool {
        let unled = ["PodSafetyNoLeader", "PodSafetyDown"];
        !self.alerts.iter().any(|one| unled.iter().any(|name| one["labels"]["alertname"] == *name))
    }

    /// By the beginning of the doctor's findings.
    fn doctors_devices(&self) -> WordCounts {
        let checks = self.doctor["checks"].as_array()?.iter().filter(|one| one["check"] == "FenceDevices");
        count(checks.filter_map(|one| {
            let what = one["what"].as_str()?;
            let state = |begin: &str| what.starts_with(begin);
            match one["health"].as_str()? {
                "Unknown" if state("not checked: never contacted") => Some("Unseen"),
                "Problem" if state("did not answer") || state("the last check found") => Some("NotReady"),
                "Problem" if state("not trusted") => Some("NotTrusted"),
                // Advice about a working device, or a message that all devices work.
                _ => None,
            }
        }))
    }
}

fn blocked(seen: &Value) -> WordCounts {
    count(seen["blocked"].as_array()?.iter().filter_map(|one| one["reason"].as_str()))
}

/// What needs an operator, of a kind, without one reason.
fn troubles(seen: &Value, kind: &str, but: &str) -> WordCounts {
    let all = seen["troubles"].as_array()?.iter();
    let of = all.filter(|one| one["object"].as_str().is_some_and(|object| object.starts_with(kind)));
    count(of.filter_map(|one| one["reason"].as_str()).filter(|reason| *reason != but))
}
