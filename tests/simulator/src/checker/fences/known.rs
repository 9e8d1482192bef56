//! What is known of incidents, evidence, devices and the nodes that they are about: by the log of
//! the API server, and by the ledger of the devices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pod_safety_shared::api::PAUSE_ANNOTATION;
use pod_safety_shared::transport::{Identity, Power};
use serde_json::Value;

use crate::api::ObservedChange;
use crate::world::{number_at, str_at, value_at};

/// The taint by which kube-controller-manager releases pods.
pub(super) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// One life of a node: its name, the UID of its Node, and its boot id.
pub(super) type Incarnation = (String, String, String);

pub(super) fn incarnation_of(about: &Value) -> Incarnation {
    let text = |field| str_at(about, field).to_owned();
    (text("/name"), text("/uid"), text("/bootID"))
}

/// An attempt that was written down.
#[derive(Clone, Debug)]
pub(super) struct Intent {
    pub(super) fence: String,
    pub(super) node: String,
    pub(super) id: i64,
    pub(super) act: String,
    pub(super) devices: BTreeSet<String>,
    pub(super) written: Duration,
    pub(super) within: Duration,
    /// Its outcome is written.
    pub(super) closed: Option<Duration>,
}

impl Intent {
    /// When nothing of it can land any more.
    pub(super) fn deadline(&self) -> Duration {
        self.written + self.within
    }
}

/// An incident.
#[derive(Clone, Debug)]
pub(super) struct Incident {
    pub(super) incarnation: Incarnation,
    pub(super) phase: String,
    /// Since when it is in this phase.
    pub(super) since: Duration,
    /// A gate holds it, by its own word.
    pub(super) held: bool,
}

/// Evidence.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub(super) incarnation: Incarnation,
    pub(super) by_status_checks: bool,
    /// A person's word.
    pub(super) confirmation: Option<Confirmation>,
    pub(super) devices: BTreeSet<String>,
    /// It rests on the silence of the kubelet's port, too.
    pub(super) corroborated: bool,
    pub(super) created: Duration,
    pub(super) lease: Option<Timestamp>,
    pub(super) invalid: Option<Duration>,
}

/// What is known of a person's word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Confirmation {
    /// Until when it releases pods.
    pub(super) until: Duration,
    /// The machine had power when it was given.
    pub(super) wrong: bool,
}

/// A look at a device, as whoever looked heard of it.
#[derive(Clone, Debug)]
pub(super) struct StatusCheck {
    pub(super) at: Duration,
    pub(super) device: String,
    pub(super) power: Power,
    pub(super) identity: Identity,
    /// It said off of a machine that had power.
    pub(super) lied: bool,
    /// It reached the machine of the node that was meant.
    pub(super) reached: bool,
}

/// A Node as the API has it.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) incarnation: Incarnation,
    pub(super) ready: bool,
    /// The value of its out-of-service taint.
    pub(super) taint: Option<String>,
}

impl Node {
    pub(super) fn from_object(object: &Value) -> Self {
        let list = |pointer| value_at(object, pointer).and_then(Value::as_array).into_iter().flatten();
        let taint = list("/spec/taints").find(|taint| str_at(taint, "/key") == OUT_OF_SERVICE);
        let ready = list("/status/conditions").find(|one| str_at(one, "/type") == "Ready");
        Self {
            incarnation: (
                str_at(object, "/metadata/name").to_owned(),
                str_at(object, "/metadata/uid").to_owned(),
                str_at(object, "/status/nodeInfo/bootID").to_owned(),
            ),
            ready: ready.is_some_and(|one| str_at(one, "/status") == "True"),
            taint: taint.map(|taint| str_at(taint, "/value").to_owned()),
        }
    }
}

/// A pod that was asked to end, and has a node.
#[derive(Clone, Debug)]
pub(super) struct Leaving {
    pub(super) name: String,
    pub(super) node: String,
    pub(super) since: Duration,
}

#[derive(Debug, Default)]
pub(in crate::checker) struct Fences {
    /// What each process heard from the port of a node's kubelet.
    pub(super) ports: BTreeMap<(String, String), Vec<(Duration, bool)>>,
    pub(super) intents: Vec<Intent>,
    pub(super) incidents: BTreeMap<String, Incident>,
    pub(super) evidence: BTreeMap<String, Evidence>,
    /// Devices that were declared not trusted, and when.
    pub(super) distrusted: BTreeMap<String, Duration>,
    pub(super) required: BTreeSet<String>,
    /// Devices that are agents of nodes.
    pub(super) agents: BTreeSet<String>,
    /// By node: the boot whose promise was taken back.
    pub(super) revoked: BTreeMap<String, String>,
    pub(super) nodes: BTreeMap<String, Node>,
    /// Since when fencing of a node is paused, by its annotation.
    pub(super) paused: BTreeMap<String, Duration>,
    /// Since when a node has no policy. Each has one of its own, with its name.
    pub(super) without_policy: BTreeMap<String, Duration>,
    /// Nodes that were deleted last, and when.
    pub(super) gone: BTreeMap<String, (Duration, Incarnation)>,
    /// Since when each Node says of this life what it says of its readiness.
    pub(super) called_since: BTreeMap<String, Duration>,
    /// When each node's Lease was written, and which time it had then.
    pub(super) renewals: BTreeMap<String, Vec<(Duration, Option<Timestamp>)>>,
    /// By caller and node: the looks at its devices.
    pub(super) checks: BTreeMap<(String, String), Vec<StatusCheck>>,
    /// By UID.
    pub(super) leaving: BTreeMap<String, Leaving>,
    /// By node: whether the machine has power of which a person is about to say that it is down.
    pub(super) confirmations: BTreeMap<String, bool>,
    /// UIDs of pods that were released though a process ran, by a lie that nobody could see.
    pub(super) deceived: BTreeSet<String>,
    /// The machines are instances of a provider.
    pub(super) of_provider: bool,
    /// Nodes whose instances were terminated.
    pub(super) terminated: BTreeSet<String>,
    /// By node: until when its devices fail.
    pub(super) failing: BTreeMap<String, Duration>,
    /// What was said already.
    pub(super) reported: BTreeSet<String>,
}

/// A time of a Lease: two of them are compared with each other only.
pub(super) fn time_of(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

fn status_of<'a>(object: &'a Value, condition: &str) -> &'a str {
    let all = value_at(object, "/status/conditions").and_then(Value::as_array).into_iter().flatten();
    all.into_iter().find(|one| str_at(one, "/type") == condition).map_or("", |one| str_at(one, "/status"))
}

fn names(devices: Option<&Value>) -> BTreeSet<String> {
    let all = devices.and_then(Value::as_array).into_iter().flatten();
    all.map(|device| str_at(device, "/name").to_owned()).collect()
}

impl Evidence {
    /// Whether nobody declared it invalid, and its time is not over.
    pub(super) fn is_valid(&self, now: Duration) -> bool {
        self.invalid.is_none() && !self.is_over(now)
    }

    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.confirmation.is_some_and(|word| word.until < now)
    }
}

impl Fences {
    /// What any change says.
    pub(super) fn observe(&mut self, now: Duration, change: &ObservedChange) {
        let after = change.after.as_deref();
        match (change.kind.as_str(), after) {
            ("NodeFence", Some(after)) => self.observe_incident(now, &change.name, after),
            ("NodeFence", None) => drop(self.incidents.remove(&change.name)),
            ("FenceEvidence", Some(after)) => self.observe_evidence(now, &change.name, after),
            ("FenceDevice", Some(after)) => {
                let name = str_at(after, "/metadata/name").to_owned();
                if str_at(after, "/spec/identityCheck") == "Required" {
                    self.required.insert(name.clone());
                }
                if str_at(after, "/spec/driver") == "WatchdogLease" {
                    self.agents.insert(name.clone());
                }
                if status_of(after, "Trusted") == "False" {
                    self.distrusted.entry(name).or_insert(now);
                }
            }
            ("FencePolicy", None) => drop(self.without_policy.insert(change.name.clone(), now)),
            ("FencePolicy", Some(_)) => drop(self.without_policy.remove(&change.name)),
            ("Node", Some(after)) => {
                let is_paused = value_at(after, "/metadata/annotations")
                    .is_some_and(|annotations| annotations.get(PAUSE_ANNOTATION).is_some());
                match is_paused {
                    true => drop(self.paused.entry(change.name.clone()).or_insert(now)),
                    false => drop(self.paused.remove(&change.name)),
                }
                let node = Node::from_object(after);
                let is_old = |old: &Node| old.ready == node.ready && old.incarnation == node.incarnation;
                if !self.nodes.get(&change.name).is_some_and(is_old) {
                    self.called_since.insert(change.name.clone(), now);
                }
                self.nodes.insert(change.name.clone(), node);
            }
            ("Node", None) => {
                self.paused.remove(&change.name);
                if let Some(node) = self.nodes.remove(&change.name) {
                    self.gone.insert(change.name.clone(), (now, node.incarnation));
                }
            }
            ("Lease", after) => {
                if let Some((node, lease)) = watchdog(&change.name).zip(after) {
                    match agent_field(lease, "state") {
                        "Revoked" => {
                            self.revoked.insert(node.to_owned(), agent_field(lease, "boot-id").to_owned())
                        }
                        _ => self.revoked.remove(node),
                    };
                }
                if let Some(node) = change.name.strip_prefix("kube-node-lease/") {
                    let renewed = after.and_then(|lease| time_of(str_at(lease, "/spec/renewTime")));
                    self.renewals.entry(node.to_owned()).or_default().push((now, renewed));
                }
            }
            ("Pod", Some(after)) => self.observe_pod(now, after),
            ("Pod", None) => {
                let uid = change.before.as_ref().map(|pod| str_at(pod, "/metadata/uid")).unwrap_or_default();
                self.leaving.remove(uid);
            }
            _ => {}
        }
    }

    fn observe_pod(&mut self, now: Duration, pod: &Value) {
        let (uid, node) = (str_at(pod, "/metadata/uid"), str_at(pod, "/spec/nodeName"));
        let ends = value_at(pod, "/metadata/deletionTimestamp").is_some();
        let kept = value_at(pod, "/metadata/finalizers/0").is_some();
        if ends && !kept && !node.is_empty() && !self.leaving.contains_key(uid) {
            let (name, node) = (str_at(pod, "/metadata/name").to_owned(), node.to_owned());
            self.leaving.insert(uid.to_owned(), Leaving { name, node, since: now });
        }
    }

    fn observe_incident(&mut self, now: Duration, name: &str, object: &Value) {
        let life = value_at(object, "/spec/node").map(incarnation_of).unwrap_or_default();
        let phase = match str_at(object, "/status/phase") {
            "" => "Pending",
            phase => phase,
        };
        let gates = value_at(object, "/status/gates").and_then(Value::as_array).into_iter().flatten();
        let held = gates.into_iter().any(|gate| value_at(gate, "/holds") == Some(&Value::Bool(true)));
        let since = self.incidents.get(name).filter(|known| known.phase == phase);
        let since = since.map_or(now, |known| known.since);
        let node = life.0.clone();
        self.incidents
            .insert(name.to_owned(), Incident { incarnation: life, phase: phase.to_owned(), since, held });
        let attempts = value_at(object, "/status/attempts").and_then(Value::as_array).into_iter().flatten();
        for attempt in attempts {
            let id = number_at(attempt, "/id").unwrap_or(0);
            let is_closed =
                value_at(attempt, "/outcome").is_some() || value_at(attempt, "/verified").is_some();
            let closed = is_closed.then_some(now);
            let known = self.intents.iter_mut().find(|known| known.fence == name && known.id == id);
            match known {
                Some(known) => known.closed = known.closed.or(closed),
                None => self.intents.push(Intent {
                    fence: name.to_owned(),
                    node: node.clone(),
                    id,
                    act: str_at(attempt, "/act").to_owned(),
                    devices: names(value_at(attempt, "/devices")),
                    written: now,
                    within: Duration::from_secs(
                        u64::try_from(number_at(attempt, "/withinSeconds").unwrap_or(0)).unwrap_or(0),
                    ),
                    closed,
                }),
            }
        }
    }

    fn observe_evidence(&mut self, now: Duration, name: &str, object: &Value) {
        let invalid = value_at(object, "/status/invalidated").is_some();
        let samples = value_at(object, "/spec/samples").and_then(Value::as_array).into_iter().flatten();
        let valid = number_at(object, "/spec/validSeconds").and_then(|seconds| seconds.try_into().ok());
        let said = (str_at(object, "/spec/kind") == "Asserted").then(|| Confirmation {
            until: valid.map_or(Duration::MAX, |seconds| now + Duration::from_secs(seconds)),
            wrong: self.confirmations.get(str_at(object, "/spec/node/name")) == Some(&true),
        });
        let proof = self.evidence.entry(name.to_owned()).or_insert_with(|| Evidence {
            confirmation: said,
            incarnation: value_at(object, "/spec/node").map(incarnation_of).unwrap_or_default(),
            by_status_checks: is_by_status_checks(str_at(object, "/spec/kind")),
            corroborated: value_at(object, "/spec/corroborated").is_some(),
            devices: samples.map(|sample| str_at(sample, "/device/name").to_owned()).collect(),
            created: now,
            lease: time_of(str_at(object, "/spec/leaseRenewed")),
            invalid: None,
        });
        if invalid && proof.invalid.is_none() {
            proof.invalid = Some(now);
        }
    }

    /// The time that a node's Lease had then, if it had one.
    pub(super) fn lease_at(&self, node: &str, then: Duration) -> Option<Timestamp> {
        let beats = self.renewals.get(node).map(Vec::as_slice).unwrap_or_default();
        beats.iter().rev().find(|(at, _)| *at <= then).and_then(|(_, renewed)| *renewed)
    }

    /// The looks of a process at a device for a node, until that moment.
    pub(super) fn checks_of<'a>(
        &'a self,
        caller: &str,
        node: &str,
        device: &'a str,
        until: Duration,
    ) -> impl DoubleEndedIterator<Item = &'a StatusCheck> {
        let all = self.checks.get(&(caller.to_owned(), node.to_owned())).map(Vec::as_slice);
        all.unwrap_or_default().iter().filter(move |look| look.device == device && look.at <= until)
    }

    /// Whether one of its devices has said since then that it is on: by that one nothing is proved any more.
    pub(super) fn was_reported_on(&self, node: &str, since: Duration) -> bool {
        let of_it = self.checks.iter().filter(|((_, of), _)| of == node);
        of_it.flat_map(|(_, looks)| looks).any(|look| look.at > since && look.power == Power::On)
    }

    /// All evidence about this life.
    pub(super) fn evidence_of<'a>(&'a self, life: &'a Incarnation) -> impl Iterator<Item = &'a Evidence> {
        self.evidence.values().filter(move |proof| proof.incarnation == *life)
    }

    /// Since when the pod with this UID is asked to end, on a node, with nothing else that keeps it.
    pub(in crate::checker) fn leaves_since(&self, uid: &str) -> Option<Duration> {
        self.leaving.get(uid).map(|leaving| leaving.since)
    }

    /// The life of a node that was deleted after it was judged: what was read of it may be used for so long.
    pub(in crate::checker) fn gone_lately(&self, node: &str, now: Duration) -> Option<Incarnation> {
        let (at, life) = self.gone.get(node)?;
        (now < *at + super::VALID_FOR).then(|| life.clone())
    }

    /// Whether there is evidence about the life in which this node is, whatever became of it.
    pub(in crate::checker) fn is_proved(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|node| self.evidence_of(&node.incarnation).next().is_some())
    }

    /// Says something once.
    pub(super) fn report_once(&mut self, what: String) -> bool {
        self.reported.insert(what)
    }

    /// Whether nodes have agents.
    pub(in crate::checker) fn has_agents(&self) -> bool {
        !self.agents.is_empty()
    }

    /// Whether there was evidence about any life of this node.
    pub(in crate::checker) fn is_fenced(&self, node: &str) -> bool {
        self.evidence.values().any(|proof| proof.incarnation.0 == node)
    }

    pub(in crate::checker) fn is_deceived(&self, uid: &str) -> bool {
        self.deceived.contains(uid)
    }
}

/// Whether evidence of this kind rests on looks at devices, or on what agents promised.
pub(super) fn is_by_status_checks(kind: &str) -> bool {
    matches!(kind, "PowerOff" | "InstanceStopped" | "InstanceGone" | "WatchdogLease")
}

/// The node whose agent has this Lease.
pub(super) fn watchdog(lease: &str) -> Option<&str> {
    lease.split_once('/')?.1.strip_prefix("watchdog.")
}

/// What stands in the Lease of an agent.
pub(super) fn agent_field<'a>(lease: &'a Value, field: &str) -> &'a str {
    let all = value_at(lease, "/metadata/annotations");
    all.and_then(|all| all.get(format!("watchdog.pod-safety.dev/{field}")))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Whether evidence that somebody wrote tells of that change: it is new.
pub(super) fn is_new(change: &ObservedChange, kind: &str) -> Option<Arc<Value>> {
    (change.kind == kind && change.before.is_none()).then(|| change.after.clone()).flatten()
}
