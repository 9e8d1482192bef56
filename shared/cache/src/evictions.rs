//! EvictionRequests and Evictions: by UID, and by their pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::object::{Identity, Notify, Object, ProjectError, Undecodable, parse_identity, parse_name};
use super::table::{Entry, Table};
use super::{Change, Inner};
use crate::clock::Mono;
use crate::model::{
    Eviction, EvictionCondition, EvictionConditions, EvictionIntent, EvictionPhase, EvictionRequest, EvictionRole,
    EvictionTarget, Interner, Kind, PodKey, Requester, Responder, ResponderSeen, ResponderState, Uid,
};
use crate::wire;

/// All EvictionRequests and Evictions.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    pub(super) requests: Table<EvictionRequest>,
    pub(super) evictions: Table<Eviction>,
    by_target: BTreeMap<EvictionTarget, TargetEntry>,
    /// How many active Evictions of a namespace have states that another controller writes.
    foreign_counts: BTreeMap<Arc<str>, usize>,
}

/// The requests and Evictions of one pod.
#[derive(Debug, Default)]
struct TargetEntry {
    requests: BTreeSet<Uid>,
    evictions: BTreeSet<Uid>,
    /// When this process saw the pod removed or its phase become terminal.
    ended_at: Option<Mono>,
}

/// The controllers of Kubernetes that write the states of Evictions: kubernetes#137133 names the first one.
const FOREIGN_MANAGERS: [&str; 2] = ["evictionrequest-controller", "kube-controller-manager"];

impl Evictions {
    pub(super) fn requests_of<'a>(
        &'a self,
        target: &EvictionTarget,
    ) -> impl Iterator<Item = &'a EvictionRequest> + use<'a> {
        let uids = self.by_target.get(target).into_iter().flat_map(|entry| &entry.requests);
        uids.filter_map(|uid| self.requests.get_known(uid))
    }

    pub(super) fn evictions_of<'a>(&'a self, target: &EvictionTarget) -> impl Iterator<Item = &'a Eviction> + use<'a> {
        let uids = self.by_target.get(target).into_iter().flat_map(|entry| &entry.evictions);
        uids.filter_map(|uid| self.evictions.get_known(uid))
    }

    pub(super) fn targets(&self) -> impl Iterator<Item = &EvictionTarget> {
        self.by_target.keys()
    }

    pub(super) fn is_target(&self, target: &EvictionTarget) -> bool {
        self.by_target.contains_key(target)
    }

    pub(super) fn ended_at(&self, target: &EvictionTarget) -> Option<Mono> {
        self.by_target.get(target).and_then(|entry| entry.ended_at)
    }

    pub(super) fn has_foreign(&self, namespace: &str) -> bool {
        self.foreign_counts.contains_key(namespace)
    }

    fn is_foreign(eviction: &Eviction) -> bool {
        eviction.phase() == EvictionPhase::Active
            && eviction.managers.iter().any(|manager| FOREIGN_MANAGERS.contains(&&**manager))
    }

    fn forget_if_empty(&mut self, target: &EvictionTarget) {
        let empty = |entry: &TargetEntry| entry.requests.is_empty() && entry.evictions.is_empty();
        if self.by_target.get(target).is_some_and(empty) {
            self.by_target.remove(target);
        }
    }

    fn count_foreign(&mut self, eviction: &Eviction) {
        if Self::is_foreign(eviction) {
            *self.foreign_counts.entry(Arc::clone(&eviction.pod.namespace)).or_default() += 1;
        }
    }

    fn uncount_foreign(&mut self, eviction: &Eviction) {
        if Self::is_foreign(eviction)
            && let Some(count) = self.foreign_counts.get_mut(&eviction.pod.namespace)
        {
            *count -= 1;
            if *count == 0 {
                self.foreign_counts.remove(&eviction.pod.namespace);
            }
        }
    }
}

impl Inner {
    /// Notifies of a change of this pod. `ended`: it was removed, or its phase is terminal.
    pub(super) fn notify_eviction_target(&mut self, pod: &EvictionTarget, ended: bool, now: Mono, notify: Notify<'_>) {
        let Some(entry) = self.evictions.by_target.get_mut(pod) else { return };
        entry.ended_at = ended.then(|| entry.ended_at.unwrap_or(now));
        notify(Change::Eviction { target: pod });
    }

    /// Notifies the evictions of a budget's pods: the budget allows another number of disruptions.
    pub(super) fn notify_budget_evictions(&self, budget: &Uid, notify: Notify<'_>) {
        if self.evictions.evictions.len() == 0 {
            return;
        }
        let pods = self.selection.pods_selected_by(budget).filter_map(|uid| self.pods.get_known(uid));
        for target in pods.map(|pod| EvictionTarget::from_pod(&pod.key)) {
            if self.evictions.by_target.contains_key(&target) {
                notify(Change::Eviction { target: &target });
            }
        }
    }
}

fn seconds(time: Option<wire::Time>) -> Option<i64> {
    time.map(wire::Time::whole_seconds)
}

/// An optional text, empty if it is missing.
fn text(text: Option<String>) -> Box<str> {
    text.unwrap_or_default().into_boxed_str()
}

fn parse_target(
    target: Option<wire::EvictionTarget>,
    namespace: &str,
    interner: &mut Interner,
) -> Result<PodKey, ProjectError> {
    let pod = target.and_then(|target| target.pod).ok_or(ProjectError::Missing("spec.target.pod"))?;
    let uid = pod.uid.as_deref().and_then(Uid::new).ok_or(ProjectError::Missing("spec.target.pod.uid"))?;
    let name = parse_name(pod.name.as_deref(), "spec.target.pod.name")?;
    Ok(PodKey { namespace: interner.intern(namespace), name: name.into(), uid })
}

fn parse_conditions(conditions: Vec<wire::Condition>) -> EvictionConditions {
    let mut parsed = EvictionConditions::default();
    for one in conditions {
        let slot = match one.r#type.as_deref() {
            Some("Failed") => &mut parsed.failed,
            Some("TargetEvicted") => &mut parsed.evicted,
            _ => continue,
        };
        *slot = Some(EvictionCondition {
            is_true: one.status.as_deref() == Some("True"),
            reason: text(one.reason),
            message: text(one.message),
            since: seconds(one.last_transition_time).unwrap_or(0),
        });
    }
    parsed
}

fn project_request(
    meta: &wire::ObjectMeta,
    spec: wire::EvictionRequestSpec,
    status: wire::EvictionRequestStatus,
    interner: &mut Interner,
    now: Mono,
) -> Result<EvictionRequest, ProjectError> {
    let Identity { uid, rv, name } = parse_identity(meta)?;
    let namespace = self::parse_name(meta.namespace.as_deref(), "metadata.namespace")?;
    Ok(EvictionRequest {
        name: name.into(),
        uid,
        rv,
        generation: meta.generation.unwrap_or(0),
        created: seconds(meta.creation_timestamp).unwrap_or(0),
        deleting: meta.deletion_timestamp.is_some(),
        pod: parse_target(spec.target, &namespace, interner)?,
        requester: text(spec.requester),
        intent: EvictionIntent::parse(spec.intent.as_deref().unwrap_or_default()),
        observed_generation: status.observed_generation.unwrap_or(0),
        conditions: parse_conditions(status.conditions),
        first_seen: now,
    })
}

/// Joins the entries of both lists by responder name, in the order of their turns.
fn project_responders(
    targets: Vec<wire::TargetResponder>,
    reports: Vec<wire::ResponderStatus>,
    now: Mono,
) -> Vec<Responder> {
    let named = reports.into_iter().filter_map(|report| Some((report.name.clone()?, report)));
    let mut reports: BTreeMap<String, wire::ResponderStatus> = named.collect();
    let one = |target: wire::TargetResponder| {
        let name = target.name.unwrap_or_default();
        let report = reports.remove(&name).unwrap_or_default();
        Responder {
            name: name.into(),
            priority: target.priority.unwrap_or(0),
            state: ResponderState::parse(target.state.as_deref().unwrap_or_default()),
            started: seconds(report.start_time),
            heartbeat: seconds(report.heartbeat_time),
            expected: seconds(report.expected_completion_time),
            completed: seconds(report.completion_time),
            message: text(report.message),
            seen: ResponderSeen { start: now, heartbeat: now, message: now },
        }
    };
    let mut all: Vec<Responder> = targets.into_iter().map(one).collect();
    all.sort_by(Responder::compare_turn);
    all
}

/// Values that have not changed were seen when the earlier version was.
fn keep_seen(responder: &mut Responder, earlier: &Responder) {
    if earlier.started == responder.started {
        responder.seen.start = earlier.seen.start;
    }
    if earlier.last_heartbeat() == responder.last_heartbeat() {
        responder.seen.heartbeat = earlier.seen.heartbeat;
    }
    if earlier.message == responder.message {
        responder.seen.message = earlier.seen.message;
    }
}

fn project_eviction(
    meta: &wire::ObjectMeta,
    spec: wire::EvictionSpec,
    status: wire::EvictionStatus,
    managers: Vec<String>,
    (interner, now): (&mut Interner, Mono),
) -> Result<Eviction, ProjectError> {
    let Identity { uid, rv, name } = parse_identity(meta)?;
    let namespace = self::parse_name(meta.namespace.as_deref(), "metadata.namespace")?;
    let role = |(key, value): (&String, &String)| Some((key.as_str().into(), EvictionRole::parse(value)?));
    let requester = |one: wire::EvictionRequester| Requester {
        name: text(one.name),
        intent: EvictionIntent::parse(one.intent.as_deref().unwrap_or_default()),
    };
    let of_requests = meta
        .owner_references
        .iter()
        .filter(|owner| owner.kind == b"EvictionRequest" && owner.api_version.starts_with(b"lifecycle.k8s.io/"));
    let managed_by = meta.labels.get("app.kubernetes.io/managed-by").map(String::as_str);
    Ok(Eviction {
        name: name.into(),
        uid,
        rv,
        generation: meta.generation.unwrap_or(0),
        created: seconds(meta.creation_timestamp).unwrap_or(0),
        deleting: meta.deletion_timestamp.is_some(),
        pod: parse_target(spec.target, &namespace, interner)?,
        managed_by_us: managed_by == Some("pod-safety"),
        owners: of_requests.filter_map(|owner| Uid::new(&String::from_utf8_lossy(&owner.uid))).collect(),
        labels: meta.labels.iter().filter_map(role).collect(),
        observed_generation: status.observed_generation.unwrap_or(0),
        requesters: status.requesters.into_iter().map(requester).collect(),
        responders: project_responders(status.target_responders, status.responders, now),
        conditions: parse_conditions(status.conditions),
        managers: managers.into_iter().map(String::into_boxed_str).collect(),
        first_seen: now,
        ended_seen: now,
    })
}

/// Selects one set of UIDs of a [`TargetEntry`].
type UidSetOf = fn(&mut TargetEntry) -> &mut BTreeSet<Uid>;

impl Evictions {
    fn index(&mut self, pod: &PodKey, uid: &Uid, which: UidSetOf) {
        which(self.by_target.entry(EvictionTarget::from_pod(pod)).or_default()).insert(uid.clone());
    }

    fn unindex(&mut self, pod: &PodKey, uid: &Uid, which: UidSetOf) {
        let target = EvictionTarget::from_pod(pod);
        if let Some(entry) = self.by_target.get_mut(&target) {
            which(entry).remove(uid);
        }
        self.forget_if_empty(&target);
    }

    /// What stays about the same pod is never taken away in between: when that pod ended would be forgotten.
    fn unindex_elsewhere(&mut self, before: &PodKey, after: &EvictionTarget, uid: &Uid, which: UidSetOf) {
        if EvictionTarget::from_pod(before) != *after {
            self.unindex(before, uid, which);
        }
    }
}

impl Object for EvictionRequest {
    type Wire = wire::EvictionRequest;
    type Stored = Self;
    const KIND: Kind = Kind::EvictionRequests;

    fn project(wire: Self::Wire, interner: &mut Interner, now: Mono) -> Result<Self, Undecodable> {
        let meta = wire.metadata.unwrap_or_default();
        project_request(&meta, wire.spec.unwrap_or_default(), wire.status.unwrap_or_default(), interner, now)
            .map_err(|error| Undecodable::from_meta(&meta, &error))
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.evictions.requests
    }

    fn put(inner: &mut Inner, mut request: Self, _now: Mono, notify: Notify<'_>) {
        let uid = request.uid.clone();
        let target = EvictionTarget::from_pod(&request.pod);
        inner.evictions.index(&request.pod, &uid, |entry| &mut entry.requests);
        if let Some(Entry::Known(before)) = inner.evictions.requests.remove(&uid) {
            request.first_seen = before.first_seen;
            inner.evictions.unindex_elsewhere(&before.pod, &target, &uid, |entry| &mut entry.requests);
        }
        inner.evictions.requests.put(uid, Entry::Known(request));
        // Also for a change of the version alone: a status write needs the current version.
        notify(Change::Eviction { target: &target });
    }

    fn remove(inner: &mut Inner, uid: &Uid, _now: Mono, notify: Notify<'_>) {
        if let Some(Entry::Known(request)) = inner.evictions.requests.remove(uid) {
            inner.evictions.unindex(&request.pod, uid, |entry| &mut entry.requests);
            notify(Change::Eviction { target: &EvictionTarget::from_pod(&request.pod) });
        }
    }
}

impl Object for Eviction {
    type Wire = wire::ManagedEviction;
    type Stored = Self;
    const KIND: Kind = Kind::Evictions;

    fn project(wire: Self::Wire, interner: &mut Interner, now: Mono) -> Result<Self, Undecodable> {
        let wire::ManagedEviction { eviction: wire, managers } = wire;
        let meta = wire.metadata.unwrap_or_default();
        let (spec, status) = (wire.spec.unwrap_or_default(), wire.status.unwrap_or_default());
        project_eviction(&meta, spec, status, managers, (interner, now))
            .map_err(|error| Undecodable::from_meta(&meta, &error))
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.evictions.evictions
    }

    fn put(inner: &mut Inner, mut eviction: Self, _now: Mono, notify: Notify<'_>) {
        let uid = eviction.uid.clone();
        let target = EvictionTarget::from_pod(&eviction.pod);
        inner.evictions.index(&eviction.pod, &uid, |entry| &mut entry.evictions);
        if let Some(Entry::Known(before)) = inner.evictions.evictions.remove(&uid) {
            eviction.first_seen = before.first_seen;
            if eviction.ended_at() == before.ended_at() {
                eviction.ended_seen = before.ended_seen;
            }
            for responder in &mut eviction.responders {
                if let Some(earlier) = before.responder(&responder.name) {
                    keep_seen(responder, earlier);
                }
            }
            inner.evictions.uncount_foreign(&before);
            inner.evictions.unindex_elsewhere(&before.pod, &target, &uid, |entry| &mut entry.evictions);
        }
        inner.evictions.count_foreign(&eviction);
        inner.evictions.evictions.put(uid, Entry::Known(eviction));
        notify(Change::Eviction { target: &target });
    }

    fn remove(inner: &mut Inner, uid: &Uid, _now: Mono, notify: Notify<'_>) {
        if let Some(Entry::Known(eviction)) = inner.evictions.evictions.remove(uid) {
            inner.evictions.uncount_foreign(&eviction);
            inner.evictions.unindex(&eviction.pod, uid, |entry| &mut entry.evictions);
            notify(Change::Eviction { target: &EvictionTarget::from_pod(&eviction.pod) });
        }
    }
}
