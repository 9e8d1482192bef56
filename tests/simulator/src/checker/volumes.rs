//! S17 and L12: which node may write to an exclusive volume. Checked in worlds in which volumes are guarded.
//!
//! | broken | when |
//! |---|---|
//! | S17 | a Lease is acquired for something that is no incarnation of a node, or while a process writes on another node |
//! | S17 | it passes directly from an incarnation that is not Ready to another one |
//! | S17 | it is released, or broken, while a process of its holder's incarnation can write, and no false report excuses that |
//! | S17 | its generation does not grow when it is broken, or grows otherwise |
//! | S17 | its Lease is deleted while it has a holder |
//! | S17 | a pod passes the scheduling gate while a process writes to its volume, and the pod is not sent to that node, or the volume cannot be shared |
//! | S17 | its generation stays, and its holder, not Ready in that incarnation, cannot have released it |
//! | L12 | at the end it is held without a user and without a reason that is shown, or its holder is healthy and no attachment is possible |
//! | L12 | at the end it is held by a former incarnation of a node, and evidence proves the end of that |
//! | L12 | at the end a pod waits behind the gate, and nothing blocks it |
//! | L12 | at the end there is a Lease without a holder of a volume that is gone |
//!
//! The checks of L12 are in `free`.

mod free;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pod_safety_shared::model::{BootId, HELD_LABEL, Holder, VOLUME_GATE, VOLUME_LEASE_NAMESPACE};
use serde_json::{Value, json};

use super::budgets::RECOVERS;
use super::processes::Process;
use super::{Invariant, State};
use crate::api::{ApiRequest, ObservedChange};
use crate::world::{HOSTNAME, boot_id, claims_of, is_shipped, number_at, str_at, value_at};

pub(crate) use free::Owned;

/// A state that has lasted this long is known to every controller, where nothing is disturbed.
pub(super) const KNOWN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Owners {
    /// Every incarnation of every node that the API ever showed: its UID and its boot ID, by name.
    incarnations: BTreeMap<String, BTreeSet<(String, String)>>,
    /// Since when each Node is in its present incarnation and readiness; a deleted Node has none.
    node_states: BTreeMap<String, (Option<NodeState>, Duration)>,
    /// When each volume, its claim or its Lease last changed, or a pod with it was removed.
    changed: BTreeMap<String, Duration>,
}

/// The UID and the boot id of a Node, and whether it is Ready.
type NodeState = (String, String, bool);

/// The Lease of a volume.
struct Lease {
    identity: String,
    holder: Option<Holder>,
    generation: i64,
    held: bool,
}

impl Lease {
    fn from_object(object: &Value) -> Self {
        let identity = str_at(object, "/spec/holderIdentity").to_owned();
        let labels = value_at(object, "/metadata/labels");
        Self {
            holder: Holder::parse(&identity),
            identity,
            generation: number_at(object, "/spec/leaseTransitions").unwrap_or(0),
            held: labels.is_some_and(|labels| labels.get(HELD_LABEL).is_some()),
        }
    }

    const NONE: Self = Self { identity: String::new(), holder: None, generation: 0, held: false };
}

/// Whether a process may belong to the incarnation in which a node acquired a volume: any process of the node does,
/// where it reported no UUID.
fn belongs_to_holder(process: &Process, holder: &Holder) -> bool {
    let boot = (*boot_id(&process.node, process.boot)).into();
    *process.node == *holder.node && (holder.boot_id.is_unknown() || holder.boot_id.is_known_same(boot))
}

impl State {
    /// Checks an executed request against the rules of volumes, then records what it changed.
    pub(super) fn check_volume_requests(&mut self, now: Duration, asked: &ApiRequest, changes: &[ObservedChange]) {
        for change in changes {
            match (change.kind.as_str(), &change.after) {
                ("Node", None) => drop(self.owners.node_states.insert(change.name.clone(), (None, now))),
                ("Node", Some(node)) => {
                    self.owners.observe_node_state(now, &change.name, node);
                    let life = (str_at(node, "/metadata/uid").to_owned(), boot_of(node).to_string());
                    self.owners.incarnations.entry(change.name.clone()).or_default().insert(life);
                }
                ("VolumeAttachment", after) => {
                    let what = match (&change.before, after) {
                        (None, _) => "is wanted",
                        (Some(_), None) => "is gone",
                        (Some(_), Some(_)) => "is made",
                    };
                    self.note(now, format!("the attachment {} {what}", change.name));
                }
                ("PersistentVolume" | "PersistentVolumeClaim", after) => {
                    let name = change.name.rsplit('/').next().unwrap_or_default();
                    self.owners.changed.insert(name.to_owned(), now);
                    if after.is_none() || change.before.is_none() {
                        let what = if after.is_none() { "is gone" } else { "is made" };
                        self.note(now, format!("the {} {} {what}", change.kind, change.name));
                    }
                }
                ("Pod", Some(after)) if value_at(after, "/spec/volumes/0").is_some() => {
                    self.check_transfer(now, asked, change, after);
                    self.record_user(now, change, after);
                }
                ("Pod", None) => {
                    let volumes = change.before.as_deref().map(claims_of).unwrap_or_default();
                    if !volumes.is_empty() {
                        self.note(now, format!("pod {} is gone", change.name));
                    }
                    // The kubelet unmounts the volumes after that, and the attacher waits for it.
                    self.owners.changed.extend(volumes.into_iter().map(|volume| (volume, now)));
                }
                ("Lease", after) => {
                    let Some(volume) =
                        change.name.strip_prefix(VOLUME_LEASE_NAMESPACE).and_then(|rest| rest.strip_prefix('/'))
                    else {
                        continue;
                    };
                    let before = change.before.as_deref().map_or(Lease::NONE, Lease::from_object);
                    if after.is_none() {
                        self.owners.changed.insert(volume.to_owned(), now);
                        self.check_forgotten(now, asked, volume, &before);
                        continue;
                    }
                    let after = after.as_deref().map_or(Lease::NONE, Lease::from_object);
                    self.owners.changed.insert(volume.to_owned(), now);
                    self.check_owner(now, asked, volume, &before, &after);
                }
                _ => {}
            }
        }
    }

    fn record_user(&mut self, now: Duration, change: &ObservedChange, after: &Value) {
        let what = match &change.before {
            None => "is made",
            Some(before) if str_at(before, "/spec/nodeName") != str_at(after, "/spec/nodeName") => "is bound",
            Some(before) if is_gated(before) && !is_gated(after) => "passes the gate",
            Some(before)
                if value_at(before, "/metadata/deletionTimestamp").is_none()
                    && value_at(after, "/metadata/deletionTimestamp").is_some() =>
            {
                "is deleted"
            }
            Some(_) => return,
        };
        let node = str_at(after, "/spec/nodeName");
        self.note(now, format!("pod {} ({:.8}) {what} {node}", change.name, str_at(after, "/metadata/uid")));
    }

    /// A Lease was deleted: checks that it had no holder.
    fn check_forgotten(&mut self, now: Duration, asked: &ApiRequest, volume: &str, before: &Lease) {
        let message = format!("the Lease of {volume}, of {:?}, is deleted by {}", before.identity, asked.caller);
        self.note(now, message.clone());
        if !is_shipped(&asked.caller) {
            return;
        }
        if before.identity.is_empty() {
            self.probe("the Lease of a volume that is gone was forgotten");
        } else {
            self.violated(now, Invariant::Owner, message);
        }
    }

    /// A pod passes the gate: each process that writes to its volume must be on the node where the pod is sent, and may
    /// share it.
    fn check_transfer(&mut self, now: Duration, asked: &ApiRequest, change: &ObservedChange, after: &Value) {
        let passes = change.before.as_deref().is_some_and(is_gated) && !is_gated(after);
        if !passes || !is_shipped(&asked.caller) {
            return;
        }
        let sent = value_at(after, "/spec/nodeSelector").and_then(|labels| labels.get(HOSTNAME)?.as_str());
        if sent.is_some() {
            self.probe("a pod was sent to the node that has its volume");
        }
        for claim in claims_of(after) {
            let identity = format!("default/{claim}");
            let in_its_way = |process: &&Process| {
                self.storage.holds(process, &identity)
                    && !process.may_be_displaced(&identity)
                    && (self.storage.one_pod || sent != Some(&*process.node))
            };
            let Some(other) = self.processes.running().find(in_its_way) else { continue };
            let what = format!(
                "{} passes the gate to {claim} (sent to {sent:?}), and {:.8} writes to it on {}",
                change.name, other.uid, other.node
            );
            self.violated(now, Invariant::Owner, what);
        }
    }

    fn check_owner(&mut self, now: Duration, asked: &ApiRequest, volume: &str, before: &Lease, after: &Lease) {
        let message = format!(
            "the Lease of {volume} passes from {:?} to {:?} (generation {} to {}, held {} to {}) by {}",
            before.identity, after.identity, before.generation, after.generation, before.held, after.held, asked.caller
        );
        self.note(now, message.clone());
        if !is_shipped(&asked.caller) {
            return;
        }
        if before.held != after.held {
            self.probe(if after.held { "a volume was held" } else { "a volume was held no longer" });
        }
        if before.identity == after.identity {
            if before.generation != after.generation {
                self.violated(now, Invariant::Owner, format!("{message}: it was not broken"));
            }
            return;
        }
        let mut wrong = Vec::new();
        // A machine that is registered again is in the same incarnation: nothing ended.
        if let Some(holder) = before.holder.as_ref().filter(|holder| !is_same_incarnation(holder, after)) {
            wrong.extend(self.ended_too_early(now, asked, volume, holder));
        }
        if let Some(holder) = &after.holder {
            wrong.extend(self.taken_wrongly(volume, holder));
        }
        wrong.extend(passed_wrongly(before, after));
        wrong.extend(self.not_given_back(now, before, after));
        self.probe(match (&before.holder, &after.holder) {
            (None, _) => "a volume was taken",
            (Some(one), Some(other)) if is_next_incarnation(one, other) => {
                "a volume passed to the next boot of its node"
            }
            (Some(one), Some(other)) if one.node == other.node => "a volume's node was registered anew",
            (Some(_), Some(_)) => "a volume passed to the node that writes to it",
            (Some(_), None) if after.generation > before.generation => "a volume's owner was relieved",
            (Some(_), None) => "a volume was given back",
        });
        for why in wrong {
            self.violated(now, Invariant::Owner, format!("{message}: {why}"));
        }
    }

    /// A process that can still write in the incarnation of a former holder, unless a false report excuses it.
    /// docs/assumptions.md: cut-off-nodes-are-kept
    fn ended_too_early(&mut self, now: Duration, asked: &ApiRequest, volume: &str, holder: &Holder) -> Option<String> {
        let identity = format!("default/{volume}");
        let storage = &self.storage;
        let writes = |process: &&Process| {
            storage.holds(process, &identity)
                && belongs_to_holder(process, holder)
                && !process.may_be_displaced(&identity)
        };
        let writers: Vec<Process> = self.processes.running().filter(writes).cloned().collect();
        for process in writers {
            let node = &*holder.node;
            let bound_meanwhile = |sent| self.acts.bound_at(&process.uid).is_some_and(|bound| sent < bound);
            if asked.sent.is_some_and(bound_meanwhile) {
                // It was bound without the gate while the request was under way, and its node acquires the volume next.
                self.probe("a volume was given back while its next pod was being bound to the same node");
                continue;
            }
            let honest = if self.acts.missing_since(node).is_some() {
                let dishonest = self.acts.dishonest(&asked.caller, node, now, self.quarantine);
                dishonest.map_or(Ok(()), Err)
            } else {
                let pod = json!({ "metadata": { "uid": process.uid }, "spec": { "nodeName": node } });
                self.check_release(&asked.caller, &pod, now)
            };
            match honest {
                Ok(()) => {
                    // A pod that another actor force deleted was to end then; for a pod that a process under test
                    // removed, the process counts.
                    let excused = self.acts.is_removed_by_others(&process.uid)
                        || process.vouched_for
                        || self.fences.is_deceived(&process.uid)
                        || self.excuse_of_release(now, &process.uid, node).is_some();
                    if excused || self.acts.missing_since(node).is_none() {
                        self.processes.relieve(&process.uid, &identity);
                    } else {
                        let what = format!("{} relieves {:.8} of {volume}", asked.caller, process.uid);
                        self.check_connected(now, node, &what);
                    }
                    self.probe("limit: the owner of a volume was relieved by a lie that nobody can see");
                }
                Err(why) => return Some(format!("{:.8} on {node} writes to it, and {why}", process.uid)),
            }
        }
        None
    }

    /// Why a volume was to be broken instead: its holder could not release it; `None`: it could. Checked where caches
    /// do not lag.
    fn not_given_back(&self, now: Duration, before: &Lease, after: &Lease) -> Option<String> {
        let holder = before.holder.as_ref()?;
        let calm = self.budgets.untroubled_since(now, self.healed);
        let troubled = !calm.is_zero() && now <= calm + RECOVERS;
        if is_same_incarnation(holder, after) || after.generation > before.generation || troubled {
            return None;
        }
        let (standing, since) = self.owners.node_states.get(&*holder.node)?;
        let life = (holder.node_uid.to_string(), holder.boot_id.to_string());
        let well = standing.as_ref().is_some_and(|(uid, boot, ready)| (uid, boot) == (&life.0, &life.1) && *ready);
        (!well && now > *since + KNOWN).then(|| {
            format!("its generation does not grow, and {} cannot have given it back since {since:?}", holder.node)
        })
    }

    fn taken_wrongly(&self, volume: &str, holder: &Holder) -> Option<String> {
        let life = (holder.node_uid.to_string(), holder.boot_id.to_string());
        let incarnations = self.owners.incarnations.get(&*holder.node);
        if incarnations.is_none_or(|incarnations| !incarnations.contains(&life)) {
            return Some("that is no life of a node".to_owned());
        }
        let identity = format!("default/{volume}");
        let elsewhere = |process: &&Process| {
            self.storage.holds(process, &identity)
                && *process.node != *holder.node
                && !process.may_be_displaced(&identity)
        };
        let other = self.processes.running().find(elsewhere)?;
        Some(format!("{:.8} writes to it on {}", other.uid, other.node))
    }
}

impl Owners {
    fn observe_node_state(&mut self, now: Duration, name: &str, node: &Value) {
        let uid = str_at(node, "/metadata/uid").to_owned();
        let standing = Some((uid, boot_of(node).to_string(), is_ready(node)));
        if self.node_states.get(name).is_none_or(|(known, _)| *known != standing) {
            self.node_states.insert(name.to_owned(), (standing, now));
        }
    }
}

fn boot_of(node: &Value) -> BootId {
    str_at(node, "/status/nodeInfo/bootID").into()
}

fn is_gated(pod: &Value) -> bool {
    let gates = value_at(pod, "/spec/schedulingGates").and_then(Value::as_array).into_iter().flatten();
    gates.into_iter().any(|gate| str_at(gate, "/name") == VOLUME_GATE)
}

/// Whether the Lease afterwards names the same incarnation of the same machine.
fn is_same_incarnation(holder: &Holder, after: &Lease) -> bool {
    let same = |other: &Holder| (&other.node, &other.boot_id) == (&holder.node, &holder.boot_id);
    after.holder.as_ref().is_some_and(same)
}

/// Whether `other` is the same node in another boot.
fn is_next_incarnation(one: &Holder, other: &Holder) -> bool {
    one.node == other.node && one.boot_id != other.boot_id
}

fn passed_wrongly(before: &Lease, after: &Lease) -> Option<String> {
    match (&before.holder, &after.holder) {
        (Some(_), None) if ![0, 1].contains(&(after.generation - before.generation)) => {
            Some("its generation does not grow by one".to_owned())
        }
        (Some(one), Some(other)) if is_next_incarnation(one, other) => {
            let grows = after.generation == before.generation + 1;
            (!grows).then(|| "its generation does not grow by one".to_owned())
        }
        (None | Some(_), Some(_)) if before.generation != after.generation => {
            Some("its generation is not that which it had".to_owned())
        }
        _ => None,
    }
}

fn is_ready(node: &Value) -> bool {
    let conditions = value_at(node, "/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().any(|one| str_at(one, "/type") == "Ready" && str_at(one, "/status") == "True")
}
