//! How objects of pod-safety's own kinds are kept: by UID, and by the name of the node that they concern.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::index::forget;
use super::object::{Identity, Notify, Object, ProjectError, Undecodable, parse_identity, parse_name};
use super::table::{Entry, Table};
use super::{Change, Inner};
use crate::api::{FenceDeviceSpec, FenceEvidenceSpec, FencePolicySpec, NodeFenceSpec, PodSafetyRemediationSpec};
use crate::clock::Mono;
use crate::model::{CustomObject, CustomSpec, Interner, Kind, Uid};
use crate::wire;

/// All objects of pod-safety's own kinds.
#[derive(Debug, Default)]
pub(super) struct OwnKinds {
    pub(super) devices: IndexedByNode<FenceDeviceSpec>,
    pub(super) policies: IndexedByNode<FencePolicySpec>,
    pub(super) node_fences: IndexedByNode<NodeFenceSpec>,
    pub(super) evidence: IndexedByNode<FenceEvidenceSpec>,
    pub(super) remediations: IndexedByNode<PodSafetyRemediationSpec>,
}

impl OwnKinds {
    /// For a one-off snapshot: dates the status of each NodeFence by its last attempt, so it is at least that old.
    pub(super) fn date_attempts(&mut self, ago: &impl Fn(i64) -> Mono) {
        let uids: Vec<Uid> = self.node_fences.table.iter().map(|fence| fence.uid.clone()).collect();
        for uid in uids {
            let Some(mut fence) = self.node_fences.table.get_known(&uid).cloned() else { continue };
            let begun = fence.status.attempts.last().and_then(|last| last.at.parse::<Timestamp>().ok());
            if let Some(begun) = begun {
                fence.status_seen = ago(begun.as_second());
                self.node_fences.table.put(uid, Entry::Known(fence));
            }
        }
    }
}

/// The objects of one kind, indexed by node: each that is about one node.
#[derive(Debug)]
pub(super) struct IndexedByNode<S: CustomSpec> {
    pub(super) table: Table<CustomObject<S>>,
    by_node: BTreeMap<Arc<str>, BTreeSet<Uid>>,
}

impl<S: CustomSpec> Default for IndexedByNode<S> {
    fn default() -> Self {
        Self { table: Table::default(), by_node: BTreeMap::new() }
    }
}

impl<S: CustomSpec> IndexedByNode<S> {
    pub(super) fn of_node<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a CustomObject<S>> + use<'a, S> {
        let uids = self.by_node.get(node).into_iter().flatten();
        uids.filter_map(|uid| self.table.get_known(uid))
    }
}

/// A kind of pod-safety's own CRDs that the cache follows.
pub(super) trait OwnKind: CustomSpec {
    const KIND: Kind;
    fn all(kinds: &mut OwnKinds) -> &mut IndexedByNode<Self>;
}

macro_rules! own_kinds {
    ($($spec:ident: $kind:ident, $field:ident;)*) => { $(
        impl OwnKind for $spec {
            const KIND: Kind = Kind::$kind;
            fn all(kinds: &mut OwnKinds) -> &mut IndexedByNode<Self> {
                &mut kinds.$field
            }
        }
    )* };
}

own_kinds! {
    FenceDeviceSpec: FenceDevices, devices;
    FencePolicySpec: FencePolicies, policies;
    NodeFenceSpec: NodeFences, node_fences;
    FenceEvidenceSpec: FenceEvidences, evidence;
    PodSafetyRemediationSpec: Remediations, remediations;
}

fn project<S: CustomSpec>(
    wire: wire::Custom<S, S::Status>,
    interner: &mut Interner,
    now: Mono,
) -> Result<CustomObject<S>, Box<(wire::ObjectMeta, ProjectError)>> {
    let wire::Custom { metadata: meta, spec, status } = wire;
    let read = parse_identity(&meta).and_then(|identity| {
        let namespace = match meta.namespace.as_deref() {
            None | Some("") => String::new(),
            some => parse_name(some, "metadata.namespace")?,
        };
        Ok((identity, namespace))
    });
    let (Identity { uid, rv, name: own_name }, namespace) = match read {
        Ok(read) => read,
        Err(error) => return Err(Box::new((meta.common, error))),
    };
    let object = CustomObject {
        name: interner.intern(&own_name),
        namespace: interner.intern(&namespace),
        uid,
        rv,
        generation: meta.generation.unwrap_or(0),
        created: meta.creation_timestamp.map_or(0, wire::Time::whole_seconds),
        deleting: meta.deletion_timestamp.is_some(),
        finalizers: meta.finalizers.clone(),
        annotations: meta.annotations.clone(),
        spec,
        status: status.unwrap_or_default(),
        first_seen: now,
        status_seen: now,
    };
    match object.node().map(|node| parse_name(Some(node), "the node's name")) {
        Some(Err(error)) => Err(Box::new((meta.common, error))),
        Some(Ok(_)) | None => Ok(object),
    }
}

impl<S: OwnKind> Object for CustomObject<S> {
    type Wire = wire::Custom<S, S::Status>;
    type Stored = Self;
    const KIND: Kind = S::KIND;

    fn project(wire: Self::Wire, interner: &mut Interner, now: Mono) -> Result<Self, Undecodable> {
        project(wire, interner, now).map_err(|wrong| Undecodable::from_meta(&wrong.0, &wrong.1))
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut S::all(&mut inner.own_kinds).table
    }

    fn put(inner: &mut Inner, mut object: Self, _now: Mono, notify: Notify<'_>) {
        if !inner.is_fencing_namespace(&object.namespace) {
            return;
        }
        let uid = object.uid.clone();
        let node = object.node().map(|node| inner.interner.intern(node));
        let all = S::all(&mut inner.own_kinds);
        if let Some(Entry::Known(before)) = all.table.get(&uid) {
            object.first_seen = before.first_seen;
            if object.status == before.status {
                object.status_seen = before.status_seen;
            }
            // The node of an object may be an annotation, which can be changed.
            if let Some(moved) = before.node().filter(|before| Some(*before) != node.as_deref()) {
                forget(&mut all.by_node, moved, &uid);
            }
        }
        all.table.put(uid.clone(), Entry::Known(object));
        if let Some(node) = &node {
            all.by_node.entry(Arc::clone(node)).or_default().insert(uid);
        }
        notify(Change::Fencing { node: node.as_ref() });
        inner.notify_held_volumes(node.as_ref(), notify);
    }

    fn put_undecodable(inner: &mut Inner, undecodable: Undecodable, now: Mono, notify: Notify<'_>) {
        if !inner.is_fencing_namespace(undecodable.namespace.as_deref().unwrap_or_default()) {
            return;
        }
        let Some(uid) = undecodable.uid else { return Self::table(inner).count_unidentified() };
        Self::remove(inner, &uid, now, notify);
        Self::table(inner).put(uid, Entry::Undecodable(undecodable.reason.into()));
        notify(Change::Fencing { node: None });
    }

    fn remove(inner: &mut Inner, uid: &Uid, _now: Mono, notify: Notify<'_>) {
        let all = S::all(&mut inner.own_kinds);
        let node = match all.table.remove(uid) {
            Some(Entry::Known(object)) => object.node().map(|node| inner.interner.intern(node)),
            Some(Entry::Undecodable(_)) => None,
            None => return,
        };
        if let Some(node) = &node {
            forget(&mut all.by_node, node, uid);
        }
        notify(Change::Fencing { node: node.as_ref() });
        inner.notify_held_volumes(node.as_ref(), notify);
    }
}
