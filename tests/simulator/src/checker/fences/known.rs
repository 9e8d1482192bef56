//! The state of incidents, evidence, devices and their nodes: from the log of the API server and from the record of the
//! devices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pod_safety_shared::api::PAUSE_ANNOTATION;
use pod_safety_shared::transport::{Identity, Power};
use serde_json::Value;

use crate::api::ObservedChange;
use crate::world::{number_at, str_at, value_at};

/// The taint on which kube-controller-manager force deletes pods.
pub(super) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// One incarnation of a node: its name, the UID of its Node, and its boot ID.
pub(super) type Incarnation = (String, String, String);

pub(super) fn incarnation_of(about: &Value) -> Incarnation {
    let text = |field| str_at(about, field).to_owned();
    (text("/name"), text("/uid"), text("/bootID"))
}

/// A recorded attempt of fencing.
#[derive(Clone, Debug)]
pub(super) struct Intent {
    pub(super) fence: String,
    /// The UID of that NodeFence: one that was deleted and created again has the same name, and counts from 1 again.
    pub(super) fence_uid: String,
    pub(super) node: String,
    pub(super) id: i64,
    pub(super) act: String,
    pub(super) devices: BTreeSet<String>,
    pub(super) written: Duration,
    pub(super) within: Duration,
    /// When its outcome was written.
    pub(super) closed: Option<Duration>,
}

impl Intent {
    /// Whether it is this attempt of this NodeFence.
    pub(super) fn is_of(&self, fence: &str, uid: &str, id: i64) -> bool {
        self.fence == fence && self.fence_uid == uid && self.id == id
    }

    /// The moment after which no order of it can take effect.
    pub(super) fn deadline(&self) -> Duration {
        self.written + self.within
    }
}

/// An incident (a NodeFence).
#[derive(Clone, Debug)]
pub(super) struct Incident {
    pub(super) incarnation: Incarnation,
    pub(super) phase: String,
    /// Since when it is in this phase.
    pub(super) since: Duration,
    /// Its status names a gate that holds it.
    pub(super) held: bool,
    /// Since when that is `Concurrency` alone.
    pub(super) waits_for_others: Option<Duration>,
}

/// Evidence.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub(super) incarnation: Incarnation,
    pub(super) by_status_checks: bool,
    /// It rests on the controller of another project.
    pub(super) by_controller: bool,
    /// The confirmation that it rests on.
    pub(super) confirmation: Option<Confirmation>,
    pub(super) devices: BTreeSet<String>,
    /// It also rests on the kubelet's port, which did not answer.
    pub(super) corroborated: bool,
    pub(super) created: Duration,
    pub(super) lease: Option<Timestamp>,
    pub(super) invalid: Option<Duration>,
}

/// What is recorded of a confirmation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Confirmation {
    /// Until when it permits releases.
    pub(super) until: Duration,
    /// The machine had power when the confirmation was given.
    pub(super) wrong: bool,
}

/// A status check of a device, as its caller received it.
#[derive(Clone, Debug)]
pub(super) struct StatusCheck {
    pub(super) at: Duration,
    pub(super) device: String,
    pub(super) power: Power,
    pub(super) identity: Identity,
    /// The device reported off for a machine that had power.
    pub(super) lied: bool,
    /// The device reached the machine of the node that was meant.
    pub(super) reached: bool,
}

/// A Node as the API shows it.
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

/// A pod with a node that was deleted gracefully.
#[derive(Clone, Debug)]
pub(super) struct Leaving {
    pub(super) name: String,
    pub(super) node: String,
    pub(super) since: Duration,
}

#[derive(Debug, Default)]
pub(in crate::checker) struct Fences {
    /// What each process received from the port of a node's kubelet: when, and whether something answered.
    pub(super) ports: BTreeMap<(String, String), Vec<(Duration, bool)>>,
    pub(super) intents: Vec<Intent>,
    pub(super) incidents: BTreeMap<String, Incident>,
    pub(super) evidence: BTreeMap<String, Evidence>,
    /// Devices that were marked as not trusted, and when.
    pub(super) distrusted: BTreeMap<String, Duration>,
    pub(super) required: BTreeSet<String>,
    /// Devices that are agents of nodes.
    pub(super) agents: BTreeSet<String>,
    /// By node: the boot whose promise was revoked.
    pub(super) revoked: BTreeMap<String, String>,
    pub(super) nodes: BTreeMap<String, Node>,
    /// Since when fencing of a node is paused, by its annotation.
    pub(super) paused: BTreeMap<String, Duration>,
    /// Since when a node has no policy. Each has one of its own, with its name.
    pub(super) without_policy: BTreeMap<String, Duration>,
    /// Nodes that were deleted, and when they were deleted last.
    pub(super) gone: BTreeMap<String, (Duration, Incarnation)>,
    /// Since when each Node shows its present readiness for its present incarnation.
    pub(super) called_since: BTreeMap<String, Duration>,
    /// When each node's Lease was written, and its `renewTime` then.
    pub(super) renewals: BTreeMap<String, Vec<(Duration, Option<Timestamp>)>>,
    /// By caller and node: the status checks of the node's devices.
    pub(super) checks: BTreeMap<(String, String), Vec<StatusCheck>>,
    /// By UID.
    pub(super) leaving: BTreeMap<String, Leaving>,
    /// By node: whether the machine had power when a person was about to confirm that it is off.
    pub(super) confirmations: BTreeMap<String, bool>,
    /// UIDs of pods that were released though a process ran, by a false report that could not be detected.
    pub(super) deceived: BTreeSet<String>,
    /// The machines are instances of a provider.
    pub(super) of_provider: bool,
    /// By node: whether its machine had ended when the controller of another project last reported that.
    pub(super) reported_ends: BTreeMap<String, bool>,
    /// Nodes whose instances were terminated.
    pub(super) terminated: BTreeSet<String>,
    /// By node: until when its devices fail.
    pub(super) failing: BTreeMap<String, Duration>,
    /// The messages that were reported already.
    pub(super) reported: BTreeSet<String>,
}

/// Parses a time of a Lease. Such times are compared with each other only.
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
    /// Whether it was not declared invalid and has not expired.
    pub(super) fn is_valid(&self, now: Duration) -> bool {
        self.invalid.is_none() && !self.is_over(now)
    }

    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.confirmation.is_some_and(|word| word.until < now)
    }
}

impl Fences {
    /// Records a change of any object.
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
                        "Revoked" => self.revoked.insert(node.to_owned(), agent_field(lease, "boot-id").to_owned()),
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
        let closed = gates.filter(|gate| value_at(gate, "/holds") == Some(&Value::Bool(true)));
        let closed: Vec<&str> = closed.map(|gate| str_at(gate, "/name")).collect();
        let known = self.incidents.get(name);
        let since = known.filter(|known| known.phase == phase).map_or(now, |known| known.since);
        let waited = known.and_then(|known| known.waits_for_others).unwrap_or(now);
        let waits_for_others = (closed == ["Concurrency"]).then_some(waited);
        let (node, uid, held) = (life.0.clone(), str_at(object, "/metadata/uid"), !closed.is_empty());
        let incident = Incident { incarnation: life, phase: phase.to_owned(), since, held, waits_for_others };
        self.incidents.insert(name.to_owned(), incident);
        let attempts = value_at(object, "/status/attempts").and_then(Value::as_array).into_iter().flatten();
        for attempt in attempts {
            let id = number_at(attempt, "/id").unwrap_or(0);
            let is_closed = value_at(attempt, "/outcome").is_some() || value_at(attempt, "/verified").is_some();
            let closed = is_closed.then_some(now);
            let intent = self.intents.iter_mut().find(|intent| intent.is_of(name, uid, id));
            match intent {
                Some(intent) => intent.closed = intent.closed.or(closed),
                None => self.intents.push(Intent {
                    fence: name.to_owned(),
                    fence_uid: uid.to_owned(),
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
            by_controller: is_by_controller(str_at(object, "/spec/kind")),
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

    /// The `renewTime` that a node's Lease had at that moment.
    pub(super) fn lease_at(&self, node: &str, then: Duration) -> Option<Timestamp> {
        let renewals = self.renewals.get(node).map(Vec::as_slice).unwrap_or_default();
        renewals.iter().rev().find(|(at, _)| *at <= then).and_then(|(_, renewed)| *renewed)
    }

    /// The status checks by one process of a device for a node, until that moment.
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

    /// Whether one of the node's devices has reported on since then: that device proves nothing from then on.
    pub(super) fn was_reported_on(&self, node: &str, since: Duration) -> bool {
        let of_it = self.checks.iter().filter(|((_, of), _)| of == node);
        of_it.flat_map(|(_, looks)| looks).any(|look| look.at > since && look.power == Power::On)
    }

    /// All evidence about this incarnation.
    pub(super) fn evidence_of<'a>(&'a self, life: &'a Incarnation) -> impl Iterator<Item = &'a Evidence> {
        self.evidence.values().filter(move |proof| proof.incarnation == *life)
    }

    /// Whether the end of this incarnation has been proved for so long, by evidence that holds.
    pub(in crate::checker) fn ended_for(&self, now: Duration, life: &Incarnation, long: Duration) -> bool {
        self.evidence_of(life).any(|proof| proof.is_valid(now) && proof.created + long < now)
    }

    /// Since when the pod with this UID, which has a node, is deleted gracefully and nothing else keeps it.
    pub(in crate::checker) fn leaves_since(&self, uid: &str) -> Option<Duration> {
        self.leaving.get(uid).map(|leaving| leaving.since)
    }

    /// The incarnation of a node that was deleted a short while ago: a read of the node before that may still be used.
    pub(in crate::checker) fn gone_lately(&self, node: &str, now: Duration) -> Option<Incarnation> {
        let (at, life) = self.gone.get(node)?;
        (now < *at + super::VALID_FOR).then(|| life.clone())
    }

    /// Whether there is evidence, valid or not, about the present incarnation of this node.
    pub(in crate::checker) fn is_proved(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|node| self.evidence_of(&node.incarnation).next().is_some())
    }

    /// Whether this message is new.
    pub(super) fn report_once(&mut self, what: String) -> bool {
        self.reported.insert(what)
    }

    /// Whether nodes have agents.
    pub(in crate::checker) fn has_agents(&self) -> bool {
        !self.agents.is_empty()
    }

    /// Whether there was evidence about any incarnation of this node.
    pub(in crate::checker) fn is_fenced(&self, node: &str) -> bool {
        self.evidence.values().any(|proof| proof.incarnation.0 == node)
    }

    pub(in crate::checker) fn is_deceived(&self, uid: &str) -> bool {
        self.deceived.contains(uid)
    }
}

/// Whether evidence of this kind rests on status checks of devices or on promises of agents.
pub(super) fn is_by_status_checks(kind: &str) -> bool {
    matches!(kind, "PowerOff" | "InstanceStopped" | "InstanceGone" | "WatchdogLease")
}

/// Whether evidence of this kind rests on what the controller of another project reported.
pub(super) fn is_by_controller(kind: &str) -> bool {
    matches!(kind, "Decommissioned" | "Remediated")
}

/// The node whose agent renews this Lease.
pub(super) fn watchdog(lease: &str) -> Option<&str> {
    lease.split_once('/')?.1.strip_prefix("watchdog.")
}

/// A field of the Lease of an agent.
pub(super) fn agent_field<'a>(lease: &'a Value, field: &str) -> &'a str {
    let all = value_at(lease, "/metadata/annotations");
    all.and_then(|all| all.get(format!("watchdog.pod-safety.dev/{field}"))).and_then(Value::as_str).unwrap_or_default()
}

/// The object after the change, if it is a new object of this kind.
pub(super) fn is_new(change: &ObservedChange, kind: &str) -> Option<Arc<Value>> {
    (change.kind == kind && change.before.is_none()).then(|| change.after.clone()).flatten()
}
