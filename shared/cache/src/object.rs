//! What a kind implements to be followed by the cache: projection from the wire types, and the upkeep of the indexes.

use std::sync::Arc;

use super::table::{Entry, Table};
use super::{Change, Inner, pod_worker};
use crate::clock::Mono;
use crate::model::{
    BadRv, ConditionState, Controller, DEFAULT_GRACE, DISRUPTION_REASONS, Deletion, DisruptionTarget, EvictionTarget,
    Interner, Kind, Labels, MIRROR_ANNOTATION, NO_EXECUTE, NODE_UNREACHABLE_CONDITION, Node, Phase, Pod, PodKey, Rv,
    Toleration, Tolerations, Uid, Uncommon, VOLUME_GATE, is_kubernetes_name,
};
use crate::wire;

/// The callback that receives changes.
pub(super) type Notify<'t> = &'t mut dyn FnMut(Change<'_>);

/// Why an object cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProjectError {
    /// A required field is missing or empty.
    #[error("{0} is missing or empty")]
    Missing(&'static str),
    /// A resourceVersion that is not a number.
    #[error(transparent)]
    Version(#[from] BadRv),
    /// A name that is not a Kubernetes name and would change the meaning of a URL path.
    #[error("{field} is {value:?}, which is not a Kubernetes name")]
    Name {
        /// The field.
        field: &'static str,
        /// The value.
        value: String,
    },
    /// A time that is out of range.
    #[error("{0} is not a time")]
    Time(&'static str),
}

/// An object that exists but cannot be read.
#[derive(Clone, Debug, Default)]
pub struct Undecodable {
    /// Its UID, if that could be read.
    pub(super) uid: Option<Uid>,
    /// Its name, if that could be read.
    pub(super) name: Option<String>,
    /// Its namespace, if it has one and that could be read.
    pub(super) namespace: Option<String>,
    /// What is wrong with it.
    pub(super) reason: String,
}

impl Undecodable {
    /// Reads what can be read of `raw`.
    pub(super) fn from_raw(raw: &wire::Raw, reason: String) -> Self {
        let meta = raw.decode::<wire::OnlyMeta>().ok().and_then(|only| only.metadata).unwrap_or_default();
        let uid = meta.uid.as_deref().and_then(Uid::new);
        Self { uid, name: meta.name, namespace: meta.namespace, reason }
    }

    /// What is wrong with it.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    pub(super) fn from_meta(meta: &wire::ObjectMeta, error: &ProjectError) -> Self {
        let uid = meta.uid.as_deref().and_then(Uid::new);
        Self { uid, name: meta.name.clone(), namespace: meta.namespace.clone(), reason: error.to_string() }
    }
}

/// The metadata of a wire object: for the version from which the watch continues.
pub(crate) trait HasMeta {
    fn meta(&self) -> Option<&wire::ObjectMeta>;
}

macro_rules! has_meta {
    ($($wire:ident)*) => { $(
        impl HasMeta for wire::$wire {
            fn meta(&self) -> Option<&wire::ObjectMeta> {
                self.metadata.as_ref()
            }
        }
    )* };
}

has_meta! {
    Budget EvictionRequest Lease Node PersistentVolume PersistentVolumeClaim Pod VolumeAttachment Workload
}

impl HasMeta for wire::ManagedEviction {
    fn meta(&self) -> Option<&wire::ObjectMeta> {
        self.eviction.metadata.as_ref()
    }
}

impl<S, T> HasMeta for wire::Custom<S, T> {
    fn meta(&self) -> Option<&wire::ObjectMeta> {
        Some(&self.metadata)
    }
}

/// A kind that the cache follows. Sealed: the cache's own indexes depend on it.
pub(crate) trait Object: Sized + Send + Sync + 'static {
    /// The wire type.
    type Wire: wire::Decode + HasMeta + Send;
    /// The type that is stored.
    type Stored: Send + Sync + 'static;
    /// The kind.
    const KIND: Kind;

    /// Keeps the fields that decisions read.
    ///
    /// # Errors
    /// The part of the object that could be read, if a required field is missing or invalid.
    fn project(wire: Self::Wire, interner: &mut Interner, now: Mono) -> Result<Self::Stored, Undecodable>;

    /// Reads a new version of a cached object, with its resourceVersion, where that costs less than decoding and
    /// projecting it and has the same result. `None`: the object must be decoded.
    fn decode_partial<'a>(_inner: &Inner, _raw: &'a wire::Raw) -> Option<(Self::Stored, &'a str)> {
        None
    }

    /// All objects of this kind.
    fn table(inner: &mut Inner) -> &mut Table<Self::Stored>;
    /// Stores `object`, updates its indexes, and notifies if it differs from the stored one.
    fn put(inner: &mut Inner, object: Self::Stored, now: Mono, notify: Notify<'_>);
    /// Records that an unreadable object exists.
    fn put_undecodable(inner: &mut Inner, undecodable: Undecodable, now: Mono, notify: Notify<'_>) {
        let Some(uid) = undecodable.uid else { return Self::table(inner).count_unidentified() };
        Self::remove(inner, &uid, now, notify);
        Self::table(inner).put(uid, Entry::Undecodable(undecodable.reason.into()));
    }
    /// The object was removed while no watch was open, so its last state is unknown. `remove` follows.
    fn note_missed_changes(_inner: &mut Inner, _uid: &Uid, _now: Mono) {}
    /// Removes the object and notifies.
    fn remove(inner: &mut Inner, uid: &Uid, now: Mono, notify: Notify<'_>);
}

/// Projects a pod that a quorum read returned, as the cache does.
///
/// # Errors
/// The pod cannot be read.
pub fn pod_from_wire(wire: wire::Pod, now: Mono) -> Result<Pod, Undecodable> {
    Pod::project(wire, &mut Interner::default(), now)
}

/// Projects a node that a quorum read returned, as the cache does.
///
/// # Errors
/// The node cannot be read.
pub fn node_from_wire(wire: wire::Node, now: Mono) -> Result<Node, Undecodable> {
    Node::project(wire, &mut Interner::default(), now)
}

/// UID, version and name of an object.
pub(super) struct Identity {
    pub(super) uid: Uid,
    pub(super) rv: Rv,
    pub(super) name: String,
}

/// A name as RFC 1123 allows it. Names become parts of URL paths: one with a `/` or a `?` would address another
/// object.
pub(super) fn parse_name(text: Option<&str>, field: &'static str) -> Result<String, ProjectError> {
    let text = text.filter(|text| !text.is_empty()).ok_or(ProjectError::Missing(field))?;
    if is_kubernetes_name(text) {
        Ok(text.to_owned())
    } else {
        Err(ProjectError::Name { field, value: text.to_owned() })
    }
}

pub(super) fn parse_identity(meta: &wire::ObjectMeta) -> Result<Identity, ProjectError> {
    let rv = meta.resource_version.as_deref().filter(|text| !text.is_empty());
    Ok(Identity {
        uid: meta.uid.as_deref().and_then(Uid::new).ok_or(ProjectError::Missing("metadata.uid"))?,
        rv: rv.ok_or(ProjectError::Missing("metadata.resourceVersion"))?.parse()?,
        name: parse_name(meta.name.as_deref(), "metadata.name")?,
    })
}

/// The condition of this type, whatever its status.
fn any_condition<'a>(status: &'a wire::PodStatus, name: &str) -> Option<&'a wire::PodCondition> {
    status.conditions.iter().find(|one| one.r#type.as_deref() == Some(name))
}

fn project_uncommon(
    meta: &wire::ObjectMeta,
    name: &str,
    spec: &wire::PodSpec,
    status: &wire::PodStatus,
    now: Mono,
) -> Uncommon {
    let claims = claims(name, &spec.volumes);
    let own_grace = spec.termination_grace_period_seconds.filter(|grace| *grace != DEFAULT_GRACE);
    let terminal = Phase::parse(status.phase.as_deref().unwrap_or_default()).is_terminal();
    let running_at_end = terminal && running_containers(status) > 0;
    let disruption_condition = any_condition(status, "DisruptionTarget")
        .filter(|one| one.status.as_deref() == Some("True") && one.reason.as_deref() != Some("TerminationByKubelet"));
    Uncommon {
        deletion: meta.deletion_timestamp.map(|at| Deletion {
            at: at.whole_seconds(),
            grace: meta.deletion_grace_period_seconds,
            first_seen: now,
            kubelet_may_know: true,
        }),
        disruption_target: disruption_condition.map(|one| DisruptionTarget {
            since: one.last_transition_time.map_or(0, wire::Time::whole_seconds),
            reason: DISRUPTION_REASONS.into_iter().find(|known| one.reason.as_deref() == Some(*known)).unwrap_or(""),
            first_seen: now,
        }),
        spec_grace_seconds: own_grace.filter(|_| !claims.is_empty() || running_at_end),
        terminal_while_running_since: running_at_end.then_some(now),
        claims,
        finalizers: finalizers(&meta.finalizers),
        eviction_responders: eviction_responders(&spec.eviction_responders),
        in_group: spec.scheduling_group.is_some(),
    }
}

/// The API server allows at most ten for a pod.
const MAX_RESPONDERS: usize = 10;

fn eviction_responders(all: &[wire::EvictionResponder]) -> Vec<(Box<str>, i32)> {
    let named = all.iter().filter_map(|one| Some((one.name.as_deref()?.into(), one.priority?)));
    named.take(MAX_RESPONDERS).collect()
}

/// How many of a pod's containers run, by their last container statuses.
fn running_containers(status: &wire::PodStatus) -> u16 {
    let running = reports(status).filter(|report| pod_worker::is_running(report)).count();
    u16::try_from(running).unwrap_or(u16::MAX)
}

/// A prime that is greater than what `container_states` adds for a container with less than 250,000 restarts.
const STATES_RADIX: u32 = 1_000_003;

/// See [`Pod::container_states`].
fn container_states(status: &wire::PodStatus) -> u32 {
    reports(status).fold(0, |states: u32, report| {
        let state = match report {
            one if pod_worker::is_running(one) => 1,
            one if pod_worker::has_terminated(one) => 2,
            _ => 3,
        };
        let restarts = report.restart_count.unwrap_or(0).unsigned_abs();
        states.wrapping_mul(STATES_RADIX).wrapping_add(restarts.wrapping_mul(4)).wrapping_add(state)
    })
}

/// The container statuses of all containers of a pod.
fn reports(status: &wire::PodStatus) -> impl Iterator<Item = &wire::ContainerStatus> {
    let wire::PodStatus { container_statuses, init_container_statuses, ephemeral_container_statuses, .. } = status;
    container_statuses.iter().chain(init_container_statuses).chain(ephemeral_container_statuses)
}

fn project_pod(
    meta: &wire::ObjectMeta,
    spec: wire::PodSpec,
    status: &wire::PodStatus,
    interner: &mut Interner,
    now: Mono,
) -> Result<Pod, ProjectError> {
    let Identity { uid, rv, name } = parse_identity(meta)?;
    let namespace = self::parse_name(meta.namespace.as_deref(), "metadata.namespace")?;
    let uncommon = project_uncommon(meta, &name, &spec, status, now);
    let (generation, observed) = (meta.generation.unwrap_or(0), status.observed_generation.unwrap_or(0));
    // A deletion raises the generation, too. A kubelet before Kubernetes 1.34 does not report the generation that it
    // has observed.
    let ahead = if observed > 0 { generation - observed - i64::from(uncommon.deletion.is_some()) } else { 0 };
    let worker_may_be_busy = pod_worker::may_be_busy(&spec, status, ahead);
    let node = spec.node_name.filter(|node| !node.is_empty());
    let node = node.map(|node| self::parse_name(Some(&node), "spec.nodeName")).transpose()?;
    let any = |name: &str| any_condition(status, name);
    let condition = |name: &str| any(name).filter(|one| one.status.as_deref() == Some("True"));
    let created = meta.creation_timestamp.map_or(0, wire::Time::whole_seconds);
    let bound = condition("PodScheduled").and_then(|one| one.last_transition_time);
    let mut pod = Pod {
        key: PodKey { namespace: interner.intern(&namespace), name: name.into(), uid },
        rv,
        generation,
        observed_generation: observed,
        created,
        bound_at: bound.map_or(created, wire::Time::whole_seconds),
        node: node.map(|node| interner.intern(&node)),
        phase: Phase::parse(status.phase.as_deref().unwrap_or_default()),
        evicted: status.reason.as_deref() == Some("Evicted"),
        running_containers: running_containers(status),
        container_states: container_states(status),
        worker_may_be_busy,
        ready: condition("Ready").is_some(),
        unreachable: any(NODE_UNREACHABLE_CONDITION)
            .map_or(ConditionState::Missing, |one| ConditionState::parse(one.status.as_deref())),
        labels: labels(meta),
        tolerations: interner.tolerations(tolerations(&spec.tolerations)),
        controller: controller_of(meta).map(Arc::new),
        mirror: meta.annotations.iter().any(|entry| entry.key == MIRROR_ANNOTATION),
        first_seen: now,
        placed_at: now,
        became_ready: None,
        unschedulable: any("PodScheduled").is_some_and(|one| {
            (one.status.as_deref(), one.reason.as_deref()) == (Some("False"), Some("Unschedulable"))
        }),
        gated: spec.scheduling_gates.iter().any(|gate| gate.name.as_deref() == Some(VOLUME_GATE)),
        uncommon: None,
    };
    pod.set_uncommon(uncommon);
    Ok(pod)
}

/// Keeps when a deletion that was there before was first seen, and whether the kubelet has reported about it since.
fn carry_over_deletion(deletion: Deletion, before: &Pod, after: &Pod) -> Deletion {
    let reported = after.observed_generation >= after.generation;
    match before.deletion {
        Some(earlier) => {
            let same = (earlier.at, earlier.grace) == (deletion.at, deletion.grace);
            let first_seen = if same { earlier.first_seen } else { deletion.first_seen };
            Deletion { first_seen, kubelet_may_know: earlier.kubelet_may_know || reported, ..deletion }
        }
        None => Deletion { kubelet_may_know: reported, ..deletion },
    }
}

/// Keeps the fields of a pod that some controller of this process reads, and shares equal values between pods.
fn intern_fields(inner: &mut Inner, pod: &mut Pod) {
    let (budgets_enabled, fencing_enabled, volume_guard_enabled) =
        (inner.budgets_enabled, inner.fencing_enabled, inner.volume_guard_enabled);
    let labels = std::mem::take(&mut pod.labels);
    if budgets_enabled {
        pod.labels = inner.interner.labels(labels);
    }
    let controller = pod.controller.take().filter(|_| budgets_enabled || fencing_enabled);
    pod.controller = controller.map(|controller| inner.interner.controller(controller));
    let has_eviction_fields =
        |uncommon: &mut Box<Uncommon>| uncommon.in_group || !uncommon.eviction_responders.is_empty();
    if let Some(mut uncommon) =
        pod.uncommon.take_if(|uncommon| !inner.evictions_enabled && has_eviction_fields(uncommon))
    {
        (uncommon.eviction_responders, uncommon.in_group) = (Vec::new(), false);
        pod.set_uncommon(*uncommon);
    }
    if let Some(mut uncommon) = pod.uncommon.take_if(|uncommon| !uncommon.claims.is_empty()) {
        let claims = uncommon.claims.iter().filter(|_| volume_guard_enabled);
        uncommon.claims = claims.map(|name| inner.interner.intern(name)).collect();
        uncommon.spec_grace_seconds = uncommon.spec_grace_seconds.filter(|_| volume_guard_enabled);
        pod.set_uncommon(*uncommon);
    }
}

/// The names of the claims of a pod's volumes. The claim of an ephemeral volume is named after the pod and the
/// volume.
fn claims(pod: &str, volumes: &[wire::PodVolume]) -> Vec<Arc<str>> {
    let claim = |volume: &wire::PodVolume| {
        let source = volume.source.as_ref()?;
        match (&source.persistent_volume_claim, &source.ephemeral, &volume.name) {
            (Some(claim), _, _) => Some(String::from_utf8_lossy(&claim.claim_name).into_owned()),
            (None, Some(_), Some(name)) => Some(format!("{pod}-{name}")),
            _ => None,
        }
    };
    volumes.iter().filter_map(claim).map(Arc::from).collect()
}

fn labels(meta: &wire::ObjectMeta) -> Labels {
    meta.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// How many finalizers of one pod are kept: they are only displayed.
const MAX_FINALIZERS: usize = 16;

fn finalizers(all: &[String]) -> Vec<Box<str>> {
    let more = all.len().checked_sub(MAX_FINALIZERS).filter(|more| *more > 0);
    let more = more.map(|more| format!("{more} more").into());
    all.iter().take(MAX_FINALIZERS).map(|name| name.as_str().into()).chain(more).collect()
}

/// How many tolerations of one pod are kept: pods have two to ten. Of a pod with more none is kept, and how it
/// tolerates a taint then counts as unknown.
const MAX_TOLERATIONS: usize = 128;

/// The tolerations that can match a NoExecute taint.
fn tolerations(all: &[wire::Toleration]) -> Tolerations {
    if all.len() > MAX_TOLERATIONS {
        let too_many = format!("(more than {MAX_TOLERATIONS} tolerations)");
        return [Toleration::new("", &too_many, "", None)].into_iter().collect();
    }
    let read = |one: &wire::Toleration| {
        let [key, operator, value] =
            [&one.key, &one.operator, &one.value].map(|text| text.as_deref().unwrap_or_default());
        Toleration::new(key, operator, value, one.toleration_seconds)
    };
    all.iter().filter(|one| matches!(one.effect.as_deref(), None | Some("" | NO_EXECUTE))).map(read).collect()
}

/// The managing owner of the object. An owner reference without a UID does not count.
pub(super) fn controller_of(meta: &wire::ObjectMeta) -> Option<Controller> {
    let owner = meta.owner_references.iter().find(|owner| owner.controller == Some(true))?;
    let text = |text: &[u8]| String::from_utf8_lossy(text).into();
    let uid = Uid::new(&String::from_utf8_lossy(&owner.uid))?;
    Some(Controller { api_version: text(&owner.api_version), kind: text(&owner.kind), name: text(&owner.name), uid })
}

impl Object for Pod {
    type Wire = wire::Pod;
    type Stored = Self;
    const KIND: Kind = Kind::Pods;

    fn project(wire: wire::Pod, interner: &mut Interner, now: Mono) -> Result<Self, Undecodable> {
        let meta = wire.metadata.unwrap_or_default();
        project_pod(&meta, wire.spec.unwrap_or_default(), &wire.status.unwrap_or_default(), interner, now)
            .map_err(|error| Undecodable::from_meta(&meta, &error))
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.pods
    }

    fn put(inner: &mut Inner, mut pod: Self, now: Mono, notify: Notify<'_>) {
        let uid = pod.uid().clone();
        let before = match inner.pods.remove(&uid) {
            Some(Entry::Known(before)) => Some(before),
            Some(Entry::Undecodable(_)) | None => None,
        };
        intern_fields(inner, &mut pod);
        if let Some(before) = &before {
            pod.first_seen = before.first_seen;
            if pod.node == before.node {
                pod.placed_at = before.placed_at;
            }
            pod.became_ready = match (before.ready, pod.ready) {
                (_, false) => None,
                (true, true) => before.became_ready,
                (false, true) => Some(now),
            };
            if let Some(mut uncommon) = pod.uncommon.take() {
                uncommon.deletion = uncommon.deletion.map(|deletion| carry_over_deletion(deletion, before, &pod));
                uncommon.terminal_while_running_since =
                    uncommon.terminal_while_running_since.map(|now| before.terminal_while_running_since.unwrap_or(now));
                uncommon.disruption_target = uncommon.disruption_target.map(|target| match before.disruption_target {
                    Some(earlier) if earlier.since == target.since => {
                        DisruptionTarget { first_seen: earlier.first_seen, ..target }
                    }
                    _ => target,
                });
                pod.uncommon = Some(uncommon);
            }
            if let Some(node) = pod.node.as_ref().filter(|_| pod.was_updated_by_kubelet(before)) {
                inner.pod_index.record_report(node, now);
                // The force delete that rested on the evidence failed, or the evidence was wrong: the pod's processes
                // may run.
                inner.proved_terminated.remove(&uid);
            }
            inner.pod_index.remove(before);
        }
        inner.pod_index.add(&pod);
        let budgets = inner.replace_pod(before.as_ref(), Some(&pod), now);
        let unchanged = before.as_ref().is_some_and(|before| *before == Self { rv: before.rv, ..pod.clone() });
        let nodes: Vec<Arc<str>> = before.iter().chain([&pod]).filter_map(|pod| pod.node.clone()).collect();
        if !unchanged {
            notify(Change::Pod { before: before.as_ref(), after: Some(&pod) });
        }
        if !unchanged {
            inner.update_pod_volumes(before.as_ref(), Some(&pod), now, notify);
        }
        let (target, ended) = (EvictionTarget::from_pod(&pod.key), pod.phase.is_terminal());
        inner.pods.put(uid, Entry::Known(pod));
        if !unchanged {
            inner.notify_eviction_target(&target, ended, now, notify);
        }
        for node in nodes {
            inner.update_absence(&node, now);
        }
        budgets.iter().for_each(|uid| notify(Change::Budget { uid }));
    }

    fn remove(inner: &mut Inner, uid: &Uid, now: Mono, notify: Notify<'_>) {
        if let Some(Entry::Known(pod)) = inner.pods.remove(uid) {
            inner.record_removed_pod(&pod, now);
            inner.pod_index.remove(&pod);
            let budgets = inner.replace_pod(Some(&pod), None, now);
            if let Some(node) = &pod.node {
                inner.update_absence(node, now);
            }
            notify(Change::Pod { before: Some(&pod), after: None });
            inner.notify_eviction_target(&EvictionTarget::from_pod(&pod.key), true, now, notify);
            inner.update_pod_volumes(Some(&pod), None, now, notify);
            budgets.iter().for_each(|uid| notify(Change::Budget { uid }));
        }
    }
}
