//! How nodes are kept: their readiness, and since when they bear which taints.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::absence::Heard;
use super::object::{Identity, Object, ProjectError, Tell, Undecodable, identity};
use super::table::{Entry, Table};
use super::wall::Wall;
use super::{Change, Inner};
use crate::api::PAUSE_ANNOTATION;
use crate::clock::Mono;
use crate::model::{
    Interner, Kind, Life, NO_EXECUTE, NODE_UNREACHABLE_CONDITION, Node, OUT_OF_SERVICE_TAINT, Pressures,
    Readiness, Reported, Says, Taint, Uid,
};
use crate::wire;

/// The effect by which a taint keeps new pods away.
const NO_SCHEDULE: &str = "NoSchedule";

/// Zones do not count nodes that have this label, whatever its value is.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

/// Labels that should have the value of another one.
const FOLLOWING_LABELS: [(&str, &str); 2] =
    [("beta.kubernetes.io/os", "kubernetes.io/os"), ("beta.kubernetes.io/arch", "kubernetes.io/arch")];

fn project_node(
    meta: &wire::ObjectMeta,
    spec: &wire::NodeSpec,
    status: &wire::NodeStatus,
    interner: &mut Interner,
    now: Mono,
) -> Result<Node, ProjectError> {
    let Identity { uid, rv, name } = identity(meta)?;
    let condition =
        |name: &str| status.conditions.iter().find(|condition| condition.r#type.as_deref() == Some(name));
    let says = |name: &str| condition(name).map_or(Says::Missing, |one| Says::parse(one.status.as_deref()));
    let ready = condition("Ready");
    let of_effect = |effect: &'static str| {
        spec.taints.iter().filter(move |taint| taint.effect.as_deref() == Some(effect))
    };
    let out_of_service = spec.taints.iter().any(|taint| taint.key.as_deref() == Some(OUT_OF_SERVICE_TAINT));
    let no_schedule = of_effect(NO_SCHEDULE).filter_map(|taint| taint.key.as_deref());
    Ok(Node {
        name: interner.intern(&name),
        uid,
        rv,
        readiness: match says("Ready") {
            Says::True => Readiness::Ready,
            Says::False => Readiness::NotReady,
            Says::Unknown => Readiness::Unknown,
            Says::Missing => Readiness::Missing,
        },
        out_of_service,
        no_schedule: no_schedule.map(|key| interner.intern(key)).collect(),
        no_execute: of_effect(NO_EXECUTE).map(|taint| project_taint(taint, interner, now)).collect(),
        ready_since: ready.and_then(|one| one.last_transition_time).map(wire::Time::whole_seconds),
        heartbeat: ready.and_then(|one| one.last_heartbeat_time).and_then(wire::Time::timestamp),
        pressures: Pressures {
            memory: says("MemoryPressure"),
            disk: says("DiskPressure"),
            pid: says("PIDPressure"),
            network: says("NetworkUnavailable"),
        },
        unreachable: says(NODE_UNREACHABLE_CONDITION),
        unschedulable: spec.unschedulable,
        zone: interner.intern(&zone(&meta.labels)),
        excluded: meta.labels.contains_key(EXCLUDED),
        stale_labels: stale_labels(&meta.labels, interner),
        created: meta.creation_timestamp.map_or(0, wire::Time::whole_seconds),
        first_seen: now,
        age: Duration::ZERO,
        heard: now,
        readiness_seen: now,
        life: Some(Arc::new(Life {
            conditions: conditions(status, interner, now),
            boot_seen: now,
            ..life(meta, spec, status)
        })),
        in_use: in_use(status),
        reports_deletions: status.node_info.as_ref().is_some_and(reports_deletions),
    })
}

/// `PodObservedGenerationTracking` is on by default since this minor version (`pkg/features/kube_features.go`).
const REPORTS_DELETIONS_SINCE: (u32, u32) = (1, 34);

/// Whether a kubelet of this version writes `status.observedGeneration`. A version that cannot be read is an old one.
fn reports_deletions(info: &wire::NodeInfo) -> bool {
    let version = info.kubelet_version.as_deref().unwrap_or_default();
    let mut parts = version.trim_start_matches('v').split('.').map(|part| part.parse().ok());
    let since = parts.next().flatten().zip(parts.next().flatten());
    since.is_some_and(|version| version >= REPORTS_DELETIONS_SINCE)
}

fn conditions(status: &wire::NodeStatus, interner: &mut Interner, now: Mono) -> Box<[Reported]> {
    let named = status.conditions.iter().filter_map(|one| Some((one.r#type.as_deref()?, one)));
    let others = named.filter(|(kind, _)| !matches!(*kind, "Ready" | NODE_UNREACHABLE_CONDITION));
    let reported = others.map(|(kind, one)| Reported {
        kind: interner.intern(kind),
        says: Says::parse(one.status.as_deref()),
        seen: now,
    });
    reported.take(Life::CONDITIONS_MOST).collect()
}

fn in_use(status: &wire::NodeStatus) -> Box<[Box<str>]> {
    let mut names: Vec<Box<str>> = status.volumes_in_use.iter().map(|name| name.as_str().into()).collect();
    names.sort_unstable();
    names.into()
}

/// By these somebody wants a node left alone: ours, Cluster API's and medik8s'.
const LEFT_ALONE_ANNOTATIONS: [&str; 2] = [PAUSE_ANNOTATION, "cluster.x-k8s.io/skip-remediation"];
const LEFT_ALONE_LABEL: &str = "remediation.medik8s.io/exclude-from-remediation";

fn life(meta: &wire::ObjectMeta, spec: &wire::NodeSpec, status: &wire::NodeStatus) -> Life {
    let info = status.node_info.as_ref();
    let text = |text: Option<&String>| text.map_or("", String::as_str).into();
    let annotated = |key: &&str| meta.annotations.iter().any(|entry| entry.key == **key);
    let labelled = meta.labels.get(LEFT_ALONE_LABEL).is_some_and(|value| value == "true");
    let taint = spec.taints.iter().find(|taint| taint.key.as_deref() == Some(OUT_OF_SERVICE_TAINT));
    Life {
        boot_id: info.and_then(|info| info.boot_id.as_deref()).unwrap_or_default().into(),
        system_uuid: text(info.and_then(|info| info.system_uuid.as_ref())),
        provider_id: text(spec.provider_id.as_ref()),
        labels: meta.labels.clone(),
        left_alone: LEFT_ALONE_ANNOTATIONS
            .into_iter()
            .find(annotated)
            .or(labelled.then_some(LEFT_ALONE_LABEL)),
        out_of_service: taint.map(|taint| text(taint.value.as_ref())),
        ..Life::default()
    }
}

/// KCM's key of a zone. The old labels win where both are there, as there.
fn zone(labels: &BTreeMap<String, String>) -> String {
    let of = |what: &str| {
        let old = labels.get(&format!("failure-domain.beta.kubernetes.io/{what}"));
        old.or_else(|| labels.get(&format!("topology.kubernetes.io/{what}"))).map_or("", String::as_str)
    };
    match (of("region"), of("zone")) {
        ("", "") => String::new(),
        // The null character keeps apart what has a colon in it.
        (region, zone) => format!("{region}:\0:{zone}"),
    }
}

fn stale_labels(
    labels: &BTreeMap<String, String>,
    interner: &mut Interner,
) -> Box<[(&'static str, Arc<str>)]> {
    let stale = |(follower, leader): (&'static str, &str)| {
        let wanted = labels.get(leader)?;
        (labels.get(follower) != Some(wanted)).then(|| (follower, interner.intern(wanted)))
    };
    FOLLOWING_LABELS.into_iter().filter_map(stale).collect()
}

/// Its age is known when it is clear that it is new: see [`Object::put`].
fn project_taint(taint: &wire::Taint, interner: &mut Interner, now: Mono) -> Taint {
    let mut text = |text: &Option<String>| interner.intern(text.as_deref().unwrap_or_default());
    let (key, value) = (text(&taint.key), text(&taint.value));
    // Before 1970 nobody added taints.
    let time_added = taint.time_added.map(wire::Time::whole_seconds).filter(|seconds| *seconds > 0);
    Taint { key, value, time_added, first_seen: now, age: Duration::ZERO }
}

/// Keeps since when taints are known that were there before, and finds out how old
/// the others are.
fn date_taints(taints: &mut [Taint], before: &[Taint], wall: Wall, now: Mono) {
    for taint in taints {
        match (before.iter().find(|earlier| taint.continues(earlier)), taint.time_added) {
            (Some(earlier), _) => (taint.first_seen, taint.age) = (earlier.first_seen, earlier.age),
            (None, Some(seconds)) => taint.age = wall.age(seconds, now),
            (None, None) => {}
        }
    }
}

impl Object for Node {
    type Wire = wire::Node;
    type Kept = Self;
    const KIND: Kind = Kind::Nodes;

    fn project(wire: wire::Node, interner: &mut Interner, now: Mono) -> Result<Self, Undecodable> {
        let meta = wire.metadata.unwrap_or_default();
        let (spec, status) = (wire.spec.unwrap_or_default(), wire.status.unwrap_or_default());
        project_node(&meta, &spec, &status, interner, now)
            .map_err(|error| Undecodable::from_meta(&meta, &error))
    }

    fn meta(wire: &wire::Node) -> Option<&wire::ObjectMeta> {
        wire.metadata.as_ref()
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.nodes
    }

    fn put(inner: &mut Inner, mut node: Self, now: Mono, tell: Tell<'_>) {
        let (uid, name) = (node.uid.clone(), Arc::clone(&node.name));
        if !inner.fences && !inner.guards {
            node.life = None;
        }
        if !inner.guards {
            node.in_use = Box::default();
        }
        let before = inner.nodes.known(&uid);
        date_taints(&mut node.no_execute, before.map_or(&[], |before| &before.no_execute), inner.wall, now);
        match before {
            Some(before) => {
                (node.first_seen, node.age) = (before.first_seen, before.age);
                node.heard = if reported(before, &node) { now } else { before.heard };
                let changed = (node.readiness != before.readiness).then_some(now);
                if changed.is_none() {
                    node.readiness_seen = before.readiness_seen;
                }
                if let (Some(life), Some(earlier)) = (&mut node.life, &before.life) {
                    Arc::make_mut(life).goes_on(earlier, changed);
                }
            }
            // Before 1970 there were no nodes: nobody said.
            None if node.created > 0 => node.age = inner.wall.age(node.created, now),
            None => {}
        }
        let news = News::of(before, &node);
        let changed = (inner.guards && !matches!(news, News::Nothing | News::Beat))
            .then(|| (before.cloned(), node.clone()));
        inner.nodes.put(uid.clone(), Entry::Known(node));
        inner.node_index.add(&name, &uid);
        inner.recheck_absence(&name, now);
        inner.file_node(&uid);
        match news {
            News::Nothing => {}
            News::Beat => inner.beat(&name, tell),
            News::Change { taints, readiness } => tell(Change::Node { name: &name, taints, readiness }),
        }
        if let Some((before, after)) = changed {
            inner.node_changed(before.as_ref(), Some(&after), now, tell);
        }
    }

    fn put_undecodable(inner: &mut Inner, undecodable: Undecodable, now: Mono, tell: Tell<'_>) {
        let (Some(uid), Some(name)) = (undecodable.uid, undecodable.name) else {
            return inner.nodes.put_unidentified();
        };
        let name = inner.interner.intern(&name);
        inner.nodes.put(uid.clone(), Entry::Undecodable(undecodable.why.into()));
        inner.node_index.add(&name, &uid);
        inner.zones.remove(&uid);
        inner.recheck_absence(&name, now);
        tell(Change::Node { name: &name, taints: true, readiness: true });
    }

    /// What it reported meanwhile is not known: unknown is not silent.
    fn missed(inner: &mut Inner, uid: &Uid, now: Mono) {
        if let Some(node) = inner.nodes.known(uid).cloned() {
            inner.nodes.put(uid.clone(), Entry::Known(Self { heard: now, ..node }));
        }
    }

    fn take(inner: &mut Inner, uid: &Uid, now: Mono, tell: Tell<'_>) {
        let Some(taken) = inner.nodes.take(uid) else { return };
        inner.zones.remove(uid);
        let name = match &taken {
            Entry::Known(node) => Some(Arc::clone(&node.name)),
            Entry::Undecodable(_) => inner.node_index.name_of(uid),
        };
        let Some(name) = name else { return };
        inner.node_index.remove(&name, uid);
        inner.recheck_absence(&name, now);
        if let Entry::Known(node) = &taken {
            let heard = inner.heard_before_it_went(node, now);
            inner.absences.went(&name, heard, node.reports_deletions);
        }
        tell(Change::Node { name: &name, taints: true, readiness: true });
        if let Entry::Known(node) = taken {
            inner.node_changed(Some(&node), None, now, tell);
        }
    }
}

/// Whether the kubelet of a node has reported since it was `before`. Only kubelets say True or
/// False; Unknown is the word of whoever misses them.
fn reported(before: &Node, after: &Node) -> bool {
    match after.readiness {
        Readiness::Ready | Readiness::NotReady => {
            before.heartbeat != after.heartbeat
                || !matches!(before.readiness, Readiness::Ready | Readiness::NotReady)
        }
        Readiness::Unknown => false,
        // Somebody took it away: as if it began anew.
        Readiness::Missing => before.readiness != Readiness::Missing,
    }
}

/// What others should hear of a node.
enum News {
    Nothing,
    /// All is as it was, and its kubelet said so.
    Beat,
    Change {
        taints: bool,
        readiness: bool,
    },
}

impl News {
    fn of(before: Option<&Node>, after: &Node) -> Self {
        match before {
            None => Self::Change { taints: true, readiness: true },
            Some(before) if before.only_beats(after) => {
                if before.heard == after.heard {
                    Self::Nothing
                } else {
                    Self::Beat
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
    /// For whoever looks once: since when a node is silent, and its readiness is as it is, is what the stamps of its
    /// kubelet say, by our wall clock.
    pub(super) fn believe_stamps(&self, now: Mono) {
        let mut inner = self.inner.write();
        let wall = inner.wall;
        let ago = |seconds: i64| now.before(wall.age(seconds, now));
        let uids: Vec<Uid> = inner.nodes.iter().map(|node| node.uid.clone()).collect();
        for uid in uids {
            let Some(mut node) = inner.nodes.known(&uid).cloned() else { continue };
            let lease = inner.heartbeats.get(&node.name).and_then(|beat| beat.renewed);
            let heard =
                lease.into_iter().chain(node.heartbeat).max().map_or(node.created, |at| at.as_second());
            node.heard = ago(heard);
            node.readiness_seen = node.ready_since.map_or(node.readiness_seen, ago);
            inner.nodes.put(uid.clone(), Entry::Known(node));
            inner.file_node(&uid);
        }
        inner.ours.date_attempts(&ago);
    }
}

impl Inner {
    pub(super) fn last_heard(&self, node: &Node) -> Mono {
        let renewed = self.heartbeats.get(&node.name).and_then(|beat| beat.renewed_at);
        renewed.map_or(node.heard, |renewed| renewed.max(node.heard))
    }

    /// `None`: not known. A watch that was cut brings the end of a Node late, and what was silent meanwhile is the watch. A node
    /// that never had a Lease (some virtual kubelets) renews none, and nothing says how often it reports. Once a kubelet's Lease
    /// is collected with its Node, the kubelet has nothing to renew.
    fn heard_before_it_went(&self, node: &Node, now: Mono) -> Option<Heard> {
        let listening = self.kinds.unbroken_until(Kind::NodeLeases, now)?;
        let beat = self.heartbeats.get(&node.name)?;
        Some(Heard {
            at: self.last_heard(node).max(listening),
            until: beat.gone_at.unwrap_or(now),
            duration: beat.duration,
        })
    }

    fn file_node(&mut self, uid: &Uid) {
        if let Some(node) = self.nodes.known(uid) {
            let heard = self.last_heard(node);
            self.zones.file(node, heard);
        }
    }

    /// The silence of this name's kubelet counts from now on at the earliest.
    pub(super) fn listens_since(&mut self, name: &str, now: Mono) {
        for uid in self.node_index.uids(name).cloned().collect::<Vec<_>>() {
            Node::missed(self, &uid, now);
            self.file_node(&uid);
        }
    }

    /// Something was seen of the kubelet of this name, or of its Lease.
    pub(super) fn beat(&mut self, name: &Arc<str>, tell: Tell<'_>) {
        let mut awaited = false;
        for uid in self.node_index.uids(name) {
            if let Some(heard) = self.nodes.known(uid).map(|node| self.last_heard(node)) {
                awaited |= self.zones.beat(uid, heard);
            }
        }
        tell(Change::Heartbeat { name, awaited });
    }

    /// The Lease of this name was renewed just now: nothing else that was seen of its kubelet is later.
    pub(super) fn renewed(&mut self, name: &Arc<str>, now: Mono, tell: Tell<'_>) {
        let mut awaited = false;
        for uid in self.node_index.uids(name) {
            awaited |= self.zones.beat(uid, now);
        }
        tell(Change::Heartbeat { name, awaited });
    }
}
