//! How nodes are kept: their readiness, and when each taint was first seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::absence::{KubeletContact, STARTS_WITHIN};
use super::object::{Identity, Notify, Object, ProjectError, Undecodable, parse_identity};
use super::table::{Entry, Table};
use super::wall::WallClock;
use super::{Change, Inner};
use crate::api::PAUSE_ANNOTATION;
use crate::clock::Mono;
use crate::model::{
    ConditionState, Interner, Kind, NO_EXECUTE, NODE_UNREACHABLE_CONDITION, Node, NodeDetails, OUT_OF_SERVICE_TAINT,
    Pressures, Readiness, ReportedCondition, Taint, Uid,
};
use crate::wire;

/// The effect of taints that keep new pods off the node.
const NO_SCHEDULE: &str = "NoSchedule";

/// Nodes with this label, whatever its value, are not counted in their zone.
const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-disruption";

/// Each of the first labels should have the value of the second one.
const FOLLOWING_LABELS: [(&str, &str); 2] =
    [("beta.kubernetes.io/os", "kubernetes.io/os"), ("beta.kubernetes.io/arch", "kubernetes.io/arch")];

fn project_node(
    meta: &wire::ObjectMeta,
    spec: &wire::NodeSpec,
    status: &wire::NodeStatus,
    interner: &mut Interner,
    now: Mono,
) -> Result<Node, ProjectError> {
    let Identity { uid, rv, name } = parse_identity(meta)?;
    let condition = |name: &str| status.conditions.iter().find(|condition| condition.r#type.as_deref() == Some(name));
    let state = |name: &str| {
        condition(name).map_or(ConditionState::Missing, |one| ConditionState::parse(one.status.as_deref()))
    };
    let ready = condition("Ready");
    let taints_of_effect =
        |effect: &'static str| spec.taints.iter().filter(move |taint| taint.effect.as_deref() == Some(effect));
    let out_of_service = spec.taints.iter().any(|taint| taint.key.as_deref() == Some(OUT_OF_SERVICE_TAINT));
    let no_schedule = taints_of_effect(NO_SCHEDULE).filter_map(|taint| taint.key.as_deref());
    Ok(Node {
        name: interner.intern(&name),
        uid,
        rv,
        readiness: match state("Ready") {
            ConditionState::True => Readiness::Ready,
            ConditionState::False => Readiness::NotReady,
            ConditionState::Unknown => Readiness::Unknown,
            ConditionState::Missing => Readiness::Missing,
        },
        out_of_service,
        no_schedule: no_schedule.map(|key| interner.intern(key)).collect(),
        no_execute: taints_of_effect(NO_EXECUTE).map(|taint| project_taint(taint, interner, now)).collect(),
        ready_since: ready.and_then(|one| one.last_transition_time).map(wire::Time::whole_seconds),
        heartbeat: ready.and_then(|one| one.last_heartbeat_time).and_then(wire::Time::timestamp),
        pressures: Pressures {
            memory: state("MemoryPressure"),
            disk: state("DiskPressure"),
            pid: state("PIDPressure"),
            network: state("NetworkUnavailable"),
        },
        unreachable: state(NODE_UNREACHABLE_CONDITION),
        unschedulable: spec.unschedulable,
        zone: interner.intern(&zone(&meta.labels)),
        excluded: meta.labels.contains_key(EXCLUDE_LABEL),
        stale_labels: stale_labels(&meta.labels, interner),
        created: meta.creation_timestamp.map_or(0, wire::Time::whole_seconds),
        first_seen: now,
        age: Duration::ZERO,
        last_report: now,
        readiness_since: now,
        details: Some(Arc::new(NodeDetails {
            conditions: conditions(status, interner, now),
            boot_first_seen: now,
            ..node_details(meta, spec, status)
        })),
        volumes_in_use: volumes_in_use(status),
        reports_deletions: status.node_info.as_ref().is_some_and(reports_deletions),
    })
}

/// `PodObservedGenerationTracking` is on by default since this minor version (`pkg/features/kube_features.go`).
const REPORTS_DELETIONS_SINCE: (u32, u32) = (1, 34);

/// Whether a kubelet of this version writes `status.observedGeneration`. A version that cannot be parsed counts as an
/// old one.
fn reports_deletions(info: &wire::NodeInfo) -> bool {
    let version = info.kubelet_version.as_deref().unwrap_or_default();
    let mut parts = version.trim_start_matches('v').split('.').map(|part| part.parse().ok());
    let since = parts.next().flatten().zip(parts.next().flatten());
    since.is_some_and(|version| version >= REPORTS_DELETIONS_SINCE)
}

fn conditions(status: &wire::NodeStatus, interner: &mut Interner, now: Mono) -> Box<[ReportedCondition]> {
    let named = status.conditions.iter().filter_map(|one| Some((one.r#type.as_deref()?, one)));
    let others = named.filter(|(kind, _)| !matches!(*kind, "Ready" | NODE_UNREACHABLE_CONDITION));
    let reported = others.map(|(kind, one)| ReportedCondition {
        kind: interner.intern(kind),
        state: ConditionState::parse(one.status.as_deref()),
        first_seen: now,
    });
    reported.take(NodeDetails::MAX_CONDITIONS).collect()
}

fn volumes_in_use(status: &wire::NodeStatus) -> Box<[Box<str>]> {
    let mut names: Vec<Box<str>> = status.volumes_in_use.iter().map(|name| name.as_str().into()).collect();
    names.sort_unstable();
    names.into()
}

/// Marks by which an operator or another controller excludes a node from remediation: of pod-safety, Cluster API and
/// medik8s.
const EXCLUDING_ANNOTATIONS: [&str; 2] = [PAUSE_ANNOTATION, "cluster.x-k8s.io/skip-remediation"];
const EXCLUDING_LABEL: &str = "remediation.medik8s.io/exclude-from-remediation";

fn node_details(meta: &wire::ObjectMeta, spec: &wire::NodeSpec, status: &wire::NodeStatus) -> NodeDetails {
    let info = status.node_info.as_ref();
    let text = |text: Option<&String>| text.map_or("", String::as_str).into();
    let annotated = |key: &&str| meta.annotations.iter().any(|entry| entry.key == **key);
    let labelled = meta.labels.get(EXCLUDING_LABEL).is_some_and(|value| value == "true");
    let taint = spec.taints.iter().find(|taint| taint.key.as_deref() == Some(OUT_OF_SERVICE_TAINT));
    NodeDetails {
        boot_id: info.and_then(|info| info.boot_id.as_deref()).unwrap_or_default().into(),
        system_uuid: text(info.and_then(|info| info.system_uuid.as_ref())),
        provider_id: text(spec.provider_id.as_ref()),
        labels: meta.labels.clone(),
        remediation_excluded_by: EXCLUDING_ANNOTATIONS
            .into_iter()
            .find(annotated)
            .or(labelled.then_some(EXCLUDING_LABEL)),
        out_of_service: taint.map(|taint| text(taint.value.as_ref())),
        ..NodeDetails::default()
    }
}

/// KCM's key of a zone. Where a node has both the old labels and the new ones, the old ones win, as in KCM.
fn zone(labels: &BTreeMap<String, String>) -> String {
    let topology_label = |what: &str| {
        let old = labels.get(&format!("failure-domain.beta.kubernetes.io/{what}"));
        old.or_else(|| labels.get(&format!("topology.kubernetes.io/{what}"))).map_or("", String::as_str)
    };
    match (topology_label("region"), topology_label("zone")) {
        ("", "") => String::new(),
        // The null character separates names that contain a colon.
        (region, zone) => format!("{region}:\0:{zone}"),
    }
}

fn stale_labels(labels: &BTreeMap<String, String>, interner: &mut Interner) -> Box<[(&'static str, Arc<str>)]> {
    let stale = |(follower, leader): (&'static str, &str)| {
        let expected = labels.get(leader)?;
        (labels.get(follower) != Some(expected)).then(|| (follower, interner.intern(expected)))
    };
    FOLLOWING_LABELS.into_iter().filter_map(stale).collect()
}

/// Its age is computed in [`Object::put`], when it is clear that the taint is new.
fn project_taint(taint: &wire::Taint, interner: &mut Interner, now: Mono) -> Taint {
    let mut text = |text: &Option<String>| interner.intern(text.as_deref().unwrap_or_default());
    let (key, value) = (text(&taint.key), text(&taint.value));
    // A time before 1970 is not a real `timeAdded`.
    let time_added = taint.time_added.map(wire::Time::whole_seconds).filter(|seconds| *seconds > 0);
    Taint { key, value, time_added, first_seen: now, age: Duration::ZERO }
}

/// Keeps `first_seen` and `age` of taints that were there before, and computes the age of the others.
fn date_taints(taints: &mut [Taint], before: &[Taint], wall: WallClock, now: Mono) {
    for taint in taints {
        match (before.iter().find(|earlier| taint.is_same_taint_as(earlier)), taint.time_added) {
            (Some(earlier), _) => (taint.first_seen, taint.age) = (earlier.first_seen, earlier.age),
            (None, Some(seconds)) => taint.age = wall.age(seconds, now),
            (None, None) => {}
        }
    }
}

impl Object for Node {
    type Wire = wire::Node;
    type Stored = Self;
    const KIND: Kind = Kind::Nodes;

    fn project(wire: wire::Node, interner: &mut Interner, now: Mono) -> Result<Self, Undecodable> {
        let meta = wire.metadata.unwrap_or_default();
        let (spec, status) = (wire.spec.unwrap_or_default(), wire.status.unwrap_or_default());
        project_node(&meta, &spec, &status, interner, now).map_err(|error| Undecodable::from_meta(&meta, &error))
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.nodes
    }

    fn put(inner: &mut Inner, mut node: Self, now: Mono, notify: Notify<'_>) {
        let (uid, name) = (node.uid.clone(), Arc::clone(&node.name));
        if !inner.fencing_enabled && !inner.volume_guard_enabled {
            node.details = None;
        }
        if !inner.volume_guard_enabled {
            node.volumes_in_use = Box::default();
        }
        let before = inner.nodes.get_known(&uid);
        date_taints(&mut node.no_execute, before.map_or(&[], |before| &before.no_execute), inner.wall, now);
        match before {
            Some(before) => {
                (node.first_seen, node.age) = (before.first_seen, before.age);
                node.last_report = if has_reported(before, &node) { now } else { before.last_report };
                let changed = (node.readiness != before.readiness).then_some(now);
                if changed.is_none() {
                    node.readiness_since = before.readiness_since;
                }
                if let (Some(details), Some(earlier)) = (&mut node.details, &before.details) {
                    Arc::make_mut(details).carry_over(earlier, changed);
                }
            }
            // A creation time before 1970 counts as missing.
            None if node.created > 0 => node.age = inner.wall.age(node.created, now),
            None => {}
        }
        let change = NodeChange::compare(before, &node);
        let changed = (inner.volume_guard_enabled && !matches!(change, NodeChange::Unchanged | NodeChange::Heartbeat))
            .then(|| (before.cloned(), node.clone()));
        inner.nodes.put(uid.clone(), Entry::Known(node));
        inner.node_index.add(&name, &uid);
        inner.update_absence(&name, now);
        inner.index_node(&uid);
        match change {
            NodeChange::Unchanged => {}
            NodeChange::Heartbeat => inner.record_report(&name, notify),
            NodeChange::Change { taints, readiness } => notify(Change::Node { name: &name, taints, readiness }),
        }
        if let Some((before, after)) = changed {
            inner.update_node_volumes(before.as_ref(), Some(&after), now, notify);
        }
    }

    fn put_undecodable(inner: &mut Inner, undecodable: Undecodable, now: Mono, notify: Notify<'_>) {
        let (Some(uid), Some(name)) = (undecodable.uid, undecodable.name) else {
            return inner.nodes.count_unidentified();
        };
        let name = inner.interner.intern(&name);
        inner.nodes.put(uid.clone(), Entry::Undecodable(undecodable.reason.into()));
        inner.node_index.add(&name, &uid);
        inner.zones.remove(&uid);
        inner.update_absence(&name, now);
        notify(Change::Node { name: &name, taints: true, readiness: true });
    }

    /// Reports of the kubelet may have been missed: unknown does not count as unreachable.
    fn note_missed_changes(inner: &mut Inner, uid: &Uid, now: Mono) {
        if let Some(node) = inner.nodes.get_known(uid).cloned() {
            inner.nodes.put(uid.clone(), Entry::Known(Self { last_report: now, ..node }));
        }
    }

    fn remove(inner: &mut Inner, uid: &Uid, now: Mono, notify: Notify<'_>) {
        let Some(removed) = inner.nodes.remove(uid) else { return };
        inner.zones.remove(uid);
        let name = match &removed {
            Entry::Known(node) => Some(Arc::clone(&node.name)),
            Entry::Undecodable(_) => inner.node_index.name_of(uid),
        };
        let Some(name) = name else { return };
        inner.node_index.remove(&name, uid);
        inner.update_absence(&name, now);
        if let Entry::Known(node) = &removed {
            let last_contact = inner.last_contact_before_deletion(node, now);
            let age = node.age + now.since(node.first_seen);
            let young = (age < STARTS_WITHIN).then_some(node.created);
            inner.absences.record_node_deleted(&name, last_contact, node.reports_deletions, young);
        }
        notify(Change::Node { name: &name, taints: true, readiness: true });
        if let Entry::Known(node) = removed {
            inner.update_node_volumes(Some(&node), None, now, notify);
        }
    }
}

/// Whether the kubelet of a node has reported between `before` and `after`. Only kubelets write True or False; the
/// node lifecycle controller writes Unknown when it misses their reports.
fn has_reported(before: &Node, after: &Node) -> bool {
    match after.readiness {
        Readiness::Ready | Readiness::NotReady => {
            before.heartbeat != after.heartbeat || !matches!(before.readiness, Readiness::Ready | Readiness::NotReady)
        }
        Readiness::Unknown => false,
        // A client removed the Ready condition: the time without a report starts again.
        Readiness::Missing => before.readiness != Readiness::Missing,
    }
}

/// What subscribers are notified of.
enum NodeChange {
    Unchanged,
    /// Nothing changed but the heartbeat time that the kubelet wrote.
    Heartbeat,
    Change {
        taints: bool,
        readiness: bool,
    },
}

impl NodeChange {
    fn compare(before: Option<&Node>, after: &Node) -> Self {
        match before {
            None => Self::Change { taints: true, readiness: true },
            Some(before) if before.differs_only_in_heartbeat(after) => {
                if before.last_report == after.last_report {
                    Self::Unchanged
                } else {
                    Self::Heartbeat
                }
            }
            Some(before) => Self::Change {
                taints: before.no_execute != after.no_execute,
                readiness: (before.readiness, before.ready_since) != (after.readiness, after.ready_since),
            },
        }
    }
}

impl super::Cache {
    /// For a one-off snapshot: takes the last report of each node, the start of its readiness, and when a pod was created,
    /// bound and deleted, from the timestamps of the objects by this process's wall clock.
    pub(super) fn apply_timestamps(&self, now: Mono) {
        let mut inner = self.inner.write();
        let wall = inner.wall;
        let time_of = |seconds: i64| now.saturating_sub(wall.age(seconds, now));
        let uids: Vec<Uid> = inner.nodes.iter().map(|node| node.uid.clone()).collect();
        for uid in uids {
            let Some(mut node) = inner.nodes.get_known(&uid).cloned() else { continue };
            let lease = inner.heartbeats.get(&node.name).and_then(|heartbeat| heartbeat.renew_time);
            let last_report = lease.into_iter().chain(node.heartbeat).max().map_or(node.created, |at| at.as_second());
            node.last_report = time_of(last_report);
            node.readiness_since = node.ready_since.map_or(node.readiness_since, time_of);
            inner.nodes.put(uid.clone(), Entry::Known(node));
            inner.index_node(&uid);
        }
        inner.pods.iter_mut().for_each(|pod| pod.apply_timestamps(&time_of));
        inner.own_kinds.date_attempts(&time_of);
    }
}

impl Inner {
    pub(super) fn last_report(&self, node: &Node) -> Mono {
        let renewed = self.heartbeats.get(&node.name).and_then(|heartbeat| heartbeat.renewed_at);
        renewed.map_or(node.last_report, |renewed| renewed.max(node.last_report))
    }

    /// The last contact with the kubelet of a node that was just removed; `None`: unknown. A watch that was
    /// interrupted delivers the deletion of a Node late, and missing events then do not show that the kubelet did not
    /// report. A node that never had a Lease (some virtual kubelets) renews none, and its report interval is unknown.
    /// Once a kubelet's Lease is garbage collected with its Node, the kubelet has nothing to renew.
    fn last_contact_before_deletion(&self, node: &Node, now: Mono) -> Option<KubeletContact> {
        let watched_since = self.kinds.watched_without_gap_since(Kind::NodeLeases, now)?;
        let heartbeat = self.heartbeats.get(&node.name)?;
        Some(KubeletContact {
            last_report: self.last_report(node).max(watched_since),
            observed_until: heartbeat.deleted_at.unwrap_or(now),
            lease_duration: heartbeat.duration,
        })
    }

    fn index_node(&mut self, uid: &Uid) {
        if let Some(node) = self.nodes.get_known(uid) {
            let last_report = self.last_report(node);
            self.zones.update(node, last_report);
        }
    }

    /// Makes the last report of the nodes of this name count as not earlier than `now`.
    pub(super) fn reset_last_report(&mut self, name: &str, now: Mono) {
        for uid in self.node_index.uids(name).cloned().collect::<Vec<_>>() {
            Node::note_missed_changes(self, &uid, now);
            self.index_node(&uid);
        }
    }

    /// Records that something of the kubelet of this name, or of its Lease, was observed.
    pub(super) fn record_report(&mut self, name: &Arc<str>, notify: Notify<'_>) {
        let mut relevant = false;
        for uid in self.node_index.uids(name) {
            if let Some(last_report) = self.nodes.get_known(uid).map(|node| self.last_report(node)) {
                relevant |= self.zones.record_report(uid, last_report);
            }
        }
        notify(Change::Heartbeat { name, relevant });
    }

    /// Records a renewal of the Lease of this name at `now`, which is later than any other report of its kubelet.
    pub(super) fn record_renewal(&mut self, name: &Arc<str>, now: Mono, notify: Notify<'_>) {
        let mut relevant = false;
        for uid in self.node_index.uids(name) {
            relevant |= self.zones.record_report(uid, now);
        }
        notify(Change::Heartbeat { name, relevant });
    }
}
