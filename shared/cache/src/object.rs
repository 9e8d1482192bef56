//! What it takes to be followed by the cache: projection from the wire, and the
//! upkeep of the indexes.

use std::sync::Arc;

use super::table::{Entry, Table};
use super::{Change, Inner, pod_worker};
use crate::clock::Mono;
use crate::model::{
    BadRv, Controller, DEFAULT_GRACE, Deletion, DisruptionTarget, EvictionTarget, Interner, Kind, Labels,
    MIRROR_ANNOTATION, NO_EXECUTE, NODE_UNREACHABLE_CONDITION, Node, Phase, Pod, PodKey, Rv, Says,
    Toleration, Tolerations, Uid, Uncommon, VOLUME_GATE, is_kubernetes_name,
};
use crate::wire;

/// Who hears of changes.
pub(super) type Tell<'t> = &'t mut dyn FnMut(Change<'_>);

/// Why an object cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProjectError {
    /// A field without which nothing can be said.
    #[error("{0} is missing or empty")]
    Missing(&'static str),
    /// A version that is no number.
    #[error(transparent)]
    Version(#[from] BadRv),
    /// A name that could not stand in a URL for what it means.
    #[error("{field} is {value:?}, which is not a Kubernetes name")]
    Name {
        /// The field.
        field: &'static str,
        /// The value.
        value: String,
    },
    /// A moment beyond the calendar.
    #[error("{0} is not a time")]
    Time(&'static str),
}

/// An object that is there but cannot be read.
#[derive(Clone, Debug, Default)]
pub struct Undecodable {
    /// Its identity, if that much could be read.
    pub(super) uid: Option<Uid>,
    /// Its name, if that much could be read.
    pub(super) name: Option<String>,
    /// Its namespace, if it has one and that much could be read.
    pub(super) namespace: Option<String>,
    /// What is wrong with it.
    pub(super) why: String,
}

impl Undecodable {
    /// Reads what can be read of `raw`.
    pub(super) fn of(raw: &wire::Raw, why: String) -> Self {
        let meta = raw.decode::<wire::OnlyMeta>().ok().and_then(|only| only.metadata).unwrap_or_default();
        let uid = meta.uid.as_deref().and_then(Uid::new);
        Self { uid, name: meta.name, namespace: meta.namespace, why }
    }

    /// What is wrong with it.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    pub(super) fn from_meta(meta: &wire::ObjectMeta, error: &ProjectError) -> Self {
        let uid = meta.uid.as_deref().and_then(Uid::new);
        Self { uid, name: meta.name.clone(), namespace: meta.namespace.clone(), why: error.to_string() }
    }
}

/// A kind that the cache follows. Sealed: the cache's own indexes hang on it.
pub(crate) trait Object: Sized + Send + Sync + 'static {
    /// What the API server sends.
    type Wire: wire::Decode + Send;
    /// What is kept of it.
    type Kept: Send + Sync + 'static;
    /// The kind.
    const KIND: Kind;

    /// Keeps the fields that decisions read.
    ///
    /// # Errors
    /// What could be read of an object that lacks one of them.
    fn project(wire: Self::Wire, interner: &mut Interner, now: Mono) -> Result<Self::Kept, Undecodable>;

    /// Reads a new version of an object that is known, where that can be done with less than decoding and projecting it,
    /// to the same end; with its version. `None`: decode it.
    fn glance<'a>(_inner: &Inner, _raw: &'a wire::Raw) -> Option<(Self::Kept, &'a str)> {
        None
    }

    /// The metadata on the wire, for removals and for the version to go on from.
    fn meta(wire: &Self::Wire) -> Option<&wire::ObjectMeta>;

    /// All objects of this kind.
    fn table(inner: &mut Inner) -> &mut Table<Self::Kept>;
    /// Keeps `object` and its indexes, and tells if it differs from what was there.
    fn put(inner: &mut Inner, object: Self::Kept, now: Mono, tell: Tell<'_>);
    /// Keeps that there is something unreadable.
    fn put_undecodable(inner: &mut Inner, undecodable: Undecodable, now: Mono, tell: Tell<'_>) {
        let Some(uid) = undecodable.uid else { return Self::table(inner).put_unidentified() };
        Self::take(inner, &uid, now, tell);
        Self::table(inner).put(uid, Entry::Undecodable(undecodable.why.into()));
    }
    /// The object went while nobody watched: what it was last is not known. Its
    /// removal follows.
    fn missed(_inner: &mut Inner, _uid: &Uid, _now: Mono) {}
    /// Forgets the object and tells.
    fn take(inner: &mut Inner, uid: &Uid, now: Mono, tell: Tell<'_>);
}

/// A pod that a quorum read shows, by the rules of the cache.
///
/// # Errors
/// It cannot be read.
pub fn pod(wire: wire::Pod, now: Mono) -> Result<Pod, Undecodable> {
    Pod::project(wire, &mut Interner::default(), now)
}

/// A node that a quorum read shows, by the rules of the cache.
///
/// # Errors
/// It cannot be read.
pub fn node(wire: wire::Node, now: Mono) -> Result<Node, Undecodable> {
    Node::project(wire, &mut Interner::default(), now)
}

/// Who an object is.
pub(super) struct Identity {
    pub(super) uid: Uid,
    pub(super) rv: Rv,
    pub(super) name: String,
}

/// A name as RFC 1123 allows it. Names become parts of URLs: one with a `/` or a
/// `?` in it would make a question about one object a question about another.
pub(super) fn name(text: Option<&str>, field: &'static str) -> Result<String, ProjectError> {
    let text = text.filter(|text| !text.is_empty()).ok_or(ProjectError::Missing(field))?;
    if is_kubernetes_name(text) {
        Ok(text.to_owned())
    } else {
        Err(ProjectError::Name { field, value: text.to_owned() })
    }
}

pub(super) fn identity(meta: &wire::ObjectMeta) -> Result<Identity, ProjectError> {
    let rv = meta.resource_version.as_deref().filter(|text| !text.is_empty());
    Ok(Identity {
        uid: meta.uid.as_deref().and_then(Uid::new).ok_or(ProjectError::Missing("metadata.uid"))?,
        rv: rv.ok_or(ProjectError::Missing("metadata.resourceVersion"))?.parse()?,
        name: name(meta.name.as_deref(), "metadata.name")?,
    })
}

/// A condition of this type, whatever it says.
fn any_condition<'a>(status: &'a wire::PodStatus, name: &str) -> Option<&'a wire::PodCondition> {
    status.conditions.iter().find(|one| one.r#type.as_deref() == Some(name))
}

fn uncommon(
    meta: &wire::ObjectMeta,
    name: &str,
    spec: &wire::PodSpec,
    status: &wire::PodStatus,
    now: Mono,
) -> Uncommon {
    let claims = claims(name, &spec.volumes);
    let own_grace = spec.termination_grace_period_seconds.filter(|grace| *grace != DEFAULT_GRACE);
    let terminal = Phase::parse(status.phase.as_deref().unwrap_or_default()).is_terminal();
    let called_ended = terminal && running(status) > 0;
    let disrupted = any_condition(status, "DisruptionTarget").filter(|one| {
        one.status.as_deref() == Some("True") && one.reason.as_deref() != Some("TerminationByKubelet")
    });
    Uncommon {
        deletion: meta.deletion_timestamp.map(|at| Deletion {
            at: at.whole_seconds(),
            grace: meta.deletion_grace_period_seconds,
            first_seen: now,
            known_to_kubelet: true,
        }),
        disruption_target: disrupted.map(|one| DisruptionTarget {
            since: one.last_transition_time.map_or(0, wire::Time::whole_seconds),
            first_seen: now,
        }),
        own_grace: own_grace.filter(|_| !claims.is_empty() || called_ended),
        called_ended: called_ended.then_some(now),
        claims,
        finalizers: finalizers(&meta.finalizers),
        eviction_responders: eviction_responders(&spec.eviction_responders),
        in_group: spec.scheduling_group.is_some(),
    }
}

/// A pod has at most ten (the API server's limit).
const MOST_RESPONDERS: usize = 10;

fn eviction_responders(all: &[wire::EvictionResponder]) -> Vec<(Box<str>, i32)> {
    let named = all.iter().filter_map(|one| Some((one.name.as_deref()?.into(), one.priority?)));
    named.take(MOST_RESPONDERS).collect()
}

/// How many of a pod's containers run, by their last report.
fn running(status: &wire::PodStatus) -> u16 {
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

/// The reports on all containers of a pod.
fn reports(status: &wire::PodStatus) -> impl Iterator<Item = &wire::ContainerStatus> {
    let wire::PodStatus { container_statuses, init_container_statuses, ephemeral_container_statuses, .. } =
        status;
    container_statuses.iter().chain(init_container_statuses).chain(ephemeral_container_statuses)
}

fn project_pod(
    meta: &wire::ObjectMeta,
    spec: wire::PodSpec,
    status: &wire::PodStatus,
    interner: &mut Interner,
    now: Mono,
) -> Result<Pod, ProjectError> {
    let Identity { uid, rv, name } = identity(meta)?;
    let namespace = self::name(meta.namespace.as_deref(), "metadata.namespace")?;
    let uncommon = uncommon(meta, &name, &spec, status, now);
    let (generation, observed) = (meta.generation.unwrap_or(0), status.observed_generation.unwrap_or(0));
    // A deletion is one generation, too. A kubelet before Kubernetes 1.34 does not say which it has seen.
    let ahead = if observed > 0 { generation - observed - i64::from(uncommon.deletion.is_some()) } else { 0 };
    let worker_may_be_busy = pod_worker::may_be_busy(&spec, status, ahead);
    let node = spec.node_name.filter(|node| !node.is_empty());
    let node = node.map(|node| self::name(Some(&node), "spec.nodeName")).transpose()?;
    let any = |name: &str| any_condition(status, name);
    let condition = |name: &str| any(name).filter(|one| one.status.as_deref() == Some("True"));
    let created = meta.creation_timestamp.map_or(0, wire::Time::whole_seconds);
    let bound = condition("PodScheduled").and_then(|one| one.last_transition_time);
    let mut pod = Pod {
        key: PodKey { namespace: interner.intern(&namespace), name: name.into(), uid },
        rv,
        generation,
        observed,
        created,
        bound: bound.map_or(created, wire::Time::whole_seconds),
        node: node.map(|node| interner.intern(&node)),
        phase: Phase::parse(status.phase.as_deref().unwrap_or_default()),
        evicted: status.reason.as_deref() == Some("Evicted"),
        running: running(status),
        container_states: container_states(status),
        worker_may_be_busy,
        ready: condition("Ready").is_some(),
        unreachable: any(NODE_UNREACHABLE_CONDITION)
            .map_or(Says::Missing, |one| Says::parse(one.status.as_deref())),
        labels: labels(meta),
        tolerations: interner.tolerations(tolerations(&spec.tolerations)),
        controller: controller(meta).map(Arc::new),
        mirror: meta.annotations.iter().any(|entry| entry.key == MIRROR_ANNOTATION),
        first_seen: now,
        arrived: now,
        turned_ready: None,
        unschedulable: any("PodScheduled").is_some_and(|one| {
            (one.status.as_deref(), one.reason.as_deref()) == (Some("False"), Some("Unschedulable"))
        }),
        gated: spec.scheduling_gates.iter().any(|gate| gate.name.as_deref() == Some(VOLUME_GATE)),
        uncommon: None,
    };
    pod.set(uncommon);
    Ok(pod)
}

/// Since when a deletion is known that was there before, and whether its kubelet has reported about it since.
fn since(deletion: Deletion, before: &Pod, after: &Pod) -> Deletion {
    let reported = after.observed >= after.generation;
    match before.deletion {
        Some(known) => {
            let same = (known.at, known.grace) == (deletion.at, deletion.grace);
            let first_seen = if same { known.first_seen } else { deletion.first_seen };
            Deletion { first_seen, known_to_kubelet: known.known_to_kubelet || reported, ..deletion }
        }
        None => Deletion { known_to_kubelet: reported, ..deletion },
    }
}

/// Keeps of a pod what some controller of this process reads, in one allocation with the pods that have the same.
fn share(inner: &mut Inner, pod: &mut Pod) {
    let (selects, fences, guards) = (inner.selects, inner.fences, inner.guards);
    let labels = std::mem::take(&mut pod.labels);
    if selects {
        pod.labels = inner.interner.labels(labels);
    }
    let controller = pod.controller.take().filter(|_| selects || fences);
    pod.controller = controller.map(|controller| inner.interner.controller(controller));
    let asks = |uncommon: &mut Box<Uncommon>| uncommon.in_group || !uncommon.eviction_responders.is_empty();
    if let Some(mut uncommon) = pod.uncommon.take_if(|uncommon| !inner.evicts && asks(uncommon)) {
        (uncommon.eviction_responders, uncommon.in_group) = (Vec::new(), false);
        pod.set(*uncommon);
    }
    if let Some(mut uncommon) = pod.uncommon.take_if(|uncommon| !uncommon.claims.is_empty()) {
        let claims = uncommon.claims.iter().filter(|_| guards);
        uncommon.claims = claims.map(|name| inner.interner.intern(name)).collect();
        uncommon.own_grace = uncommon.own_grace.filter(|_| guards);
        pod.set(*uncommon);
    }
}

/// The claims behind the volumes of a pod; that of an ephemeral volume is called after both.
fn claims(pod: &str, volumes: &[wire::PodVolume]) -> Vec<Arc<str>> {
    let claim = |volume: &wire::PodVolume| {
        let source = volume.source.as_ref()?;
        match (&source.persistent_volume_claim, &source.ephemeral, &volume.name) {
            (Some(claim), _, _) => claim.claim_name.clone(),
            (None, Some(_), Some(name)) => Some(format!("{pod}-{name}")),
            _ => None,
        }
    };
    volumes.iter().filter_map(claim).map(Arc::from).collect()
}

fn labels(meta: &wire::ObjectMeta) -> Labels {
    meta.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// So many finalizers of one pod are kept: they are shown, and nothing rests on which they are.
const MOST_FINALIZERS: usize = 16;

fn finalizers(all: &[String]) -> Vec<Box<str>> {
    let more = all.len().checked_sub(MOST_FINALIZERS).filter(|more| *more > 0);
    let more = more.map(|more| format!("{more} more").into());
    all.iter().take(MOST_FINALIZERS).map(|name| name.as_str().into()).chain(more).collect()
}

/// So many tolerations of one pod are kept at most: pods have two to ten. Of more none is, and how the pod bears a taint is
/// not known then.
const MOST_TOLERATIONS: usize = 128;

/// Those that can answer a taint that ends pods.
fn tolerations(all: &[wire::Toleration]) -> Tolerations {
    if all.len() > MOST_TOLERATIONS {
        let too_many = format!("(more than {MOST_TOLERATIONS} tolerations)");
        return [Toleration::new("", &too_many, "", None)].into_iter().collect();
    }
    let read = |one: &wire::Toleration| {
        let [key, operator, value] =
            [&one.key, &one.operator, &one.value].map(|text| text.as_deref().unwrap_or_default());
        Toleration::new(key, operator, value, one.toleration_seconds)
    };
    all.iter().filter(|one| matches!(one.effect.as_deref(), None | Some("" | NO_EXECUTE))).map(read).collect()
}

/// The owner that manages the object. One without a UID manages nothing.
pub(super) fn controller(meta: &wire::ObjectMeta) -> Option<Controller> {
    let owner = meta.owner_references.iter().find(|owner| owner.controller == Some(true))?;
    let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
    let uid = owner.uid.as_deref().and_then(Uid::new)?;
    Some(Controller {
        api_version: text(&owner.api_version),
        kind: text(&owner.kind),
        name: text(&owner.name),
        uid,
    })
}

impl Object for Pod {
    type Wire = wire::Pod;
    type Kept = Self;
    const KIND: Kind = Kind::Pods;

    fn project(wire: wire::Pod, interner: &mut Interner, now: Mono) -> Result<Self, Undecodable> {
        let meta = wire.metadata.unwrap_or_default();
        project_pod(&meta, wire.spec.unwrap_or_default(), &wire.status.unwrap_or_default(), interner, now)
            .map_err(|error| Undecodable::from_meta(&meta, &error))
    }

    fn meta(wire: &wire::Pod) -> Option<&wire::ObjectMeta> {
        wire.metadata.as_ref()
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.pods
    }

    fn put(inner: &mut Inner, mut pod: Self, now: Mono, tell: Tell<'_>) {
        let uid = pod.uid().clone();
        let before = match inner.pods.take(&uid) {
            Some(Entry::Known(before)) => Some(before),
            Some(Entry::Undecodable(_)) | None => None,
        };
        share(inner, &mut pod);
        if let Some(before) = &before {
            pod.first_seen = before.first_seen;
            if pod.node == before.node {
                pod.arrived = before.arrived;
            }
            pod.turned_ready = match (before.ready, pod.ready) {
                (_, false) => None,
                (true, true) => before.turned_ready,
                (false, true) => Some(now),
            };
            if let Some(mut uncommon) = pod.uncommon.take() {
                uncommon.deletion = uncommon.deletion.map(|deletion| since(deletion, before, &pod));
                uncommon.called_ended = uncommon.called_ended.map(|now| before.called_ended.unwrap_or(now));
                uncommon.disruption_target =
                    uncommon.disruption_target.map(|target| match before.disruption_target {
                        Some(known) if known.since == target.since => known,
                        _ => target,
                    });
                pod.uncommon = Some(uncommon);
            }
            if let Some(node) = pod.node.as_ref().filter(|_| pod.was_reported_by_its_kubelet(before)) {
                inner.pod_index.reported(node, now);
                // The act that rested on the proof failed, or the proof was wrong: its processes may run.
                inner.proved_ended.remove(&uid);
            }
            inner.pod_index.remove(before);
        }
        inner.pod_index.add(&pod);
        let budgets = inner.replace_pod(before.as_ref(), Some(&pod), now);
        let noise = before.as_ref().is_some_and(|before| *before == Self { rv: before.rv, ..pod.clone() });
        let nodes: Vec<Arc<str>> = before.iter().chain([&pod]).filter_map(|pod| pod.node.clone()).collect();
        if !noise {
            tell(Change::Pod { before: before.as_ref(), after: Some(&pod) });
        }
        if !noise {
            inner.replace_user(before.as_ref(), Some(&pod), now, tell);
        }
        let (target, ended) = (EvictionTarget::of(&pod.key), pod.phase.is_terminal());
        inner.pods.put(uid, Entry::Known(pod));
        if !noise {
            inner.tell_of_target(&target, ended, now, tell);
        }
        for node in nodes {
            inner.recheck_absence(&node, now);
        }
        budgets.iter().for_each(|uid| tell(Change::Budget { uid }));
    }

    fn take(inner: &mut Inner, uid: &Uid, now: Mono, tell: Tell<'_>) {
        if let Some(Entry::Known(pod)) = inner.pods.take(uid) {
            inner.removed(&pod, now);
            inner.pod_index.remove(&pod);
            let budgets = inner.replace_pod(Some(&pod), None, now);
            if let Some(node) = &pod.node {
                inner.recheck_absence(node, now);
            }
            tell(Change::Pod { before: Some(&pod), after: None });
            inner.tell_of_target(&EvictionTarget::of(&pod.key), true, now, tell);
            inner.replace_user(Some(&pod), None, now, tell);
            budgets.iter().for_each(|uid| tell(Change::Budget { uid }));
        }
    }
}
