//! How objects of our own kinds are kept: by UID, and those about a node by its name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::object::{Identity, Object, ProjectError, Tell, Undecodable, identity, name};
use super::table::{Entry, Table};
use super::{Change, Inner};
use crate::api::{
    FenceDeviceSpec, FenceEvidenceSpec, FencePolicySpec, NodeFenceSpec, PodSafetyRemediationSpec,
};
use crate::clock::Mono;
use crate::model::{Device, Fence, Interner, Kind, Own, OwnSpec, Policy, Proof, Remediation, Uid};
use crate::wire;

/// All objects of our own kinds.
#[derive(Debug, Default)]
pub(super) struct Ours {
    pub(super) devices: Table<Device>,
    pub(super) policies: Table<Policy>,
    pub(super) fences: Filed<NodeFenceSpec>,
    pub(super) proofs: Filed<FenceEvidenceSpec>,
    pub(super) remediations: Filed<PodSafetyRemediationSpec>,
}

impl Ours {
    /// The status of a fence has been as it is since its last attempt was written down, at the earliest.
    pub(super) fn date_attempts(&mut self, ago: &impl Fn(i64) -> Mono) {
        let uids: Vec<Uid> = self.fences.table.iter().map(|fence| fence.uid.clone()).collect();
        for uid in uids {
            let Some(mut fence) = self.fences.table.known(&uid).cloned() else { continue };
            let begun = fence.status.attempts.last().and_then(|last| last.at.parse::<Timestamp>().ok());
            if let Some(begun) = begun {
                fence.status_seen = ago(begun.as_second());
                self.fences.table.put(uid, Entry::Known(fence));
            }
        }
    }
}

/// Those about a node.
#[derive(Debug)]
pub(super) struct Filed<S: OwnSpec> {
    pub(super) table: Table<Own<S>>,
    by_node: BTreeMap<Arc<str>, BTreeSet<Uid>>,
}

impl<S: OwnSpec> Default for Filed<S> {
    fn default() -> Self {
        Self { table: Table::default(), by_node: BTreeMap::new() }
    }
}

impl<S: OwnSpec> Filed<S> {
    pub(super) fn of_node<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Own<S>> + use<'a, S> {
        let uids = self.by_node.get(node).into_iter().flatten();
        uids.filter_map(|uid| self.table.known(uid))
    }

    fn file(&mut self, node: &Arc<str>, uid: &Uid) {
        self.by_node.entry(Arc::clone(node)).or_default().insert(uid.clone());
    }

    fn unfile(&mut self, node: &str, uid: &Uid) {
        if let Some(uids) = self.by_node.get_mut(node) {
            uids.remove(uid);
            if uids.is_empty() {
                self.by_node.remove(node);
            }
        }
    }
}

/// A kind of ours that the cache follows.
pub(super) trait Followed: OwnSpec {
    const KIND: Kind;
    fn table(ours: &mut Ours) -> &mut Table<Own<Self>>;
    /// Where those about a node are filed.
    fn filed(_ours: &mut Ours) -> Option<&mut Filed<Self>> {
        None
    }
}

impl Followed for FenceDeviceSpec {
    const KIND: Kind = Kind::FenceDevices;
    fn table(ours: &mut Ours) -> &mut Table<Device> {
        &mut ours.devices
    }
}

impl Followed for FencePolicySpec {
    const KIND: Kind = Kind::FencePolicies;
    fn table(ours: &mut Ours) -> &mut Table<Policy> {
        &mut ours.policies
    }
}

impl Followed for NodeFenceSpec {
    const KIND: Kind = Kind::NodeFences;
    fn table(ours: &mut Ours) -> &mut Table<Fence> {
        &mut ours.fences.table
    }
    fn filed(ours: &mut Ours) -> Option<&mut Filed<Self>> {
        Some(&mut ours.fences)
    }
}

impl Followed for FenceEvidenceSpec {
    const KIND: Kind = Kind::FenceEvidences;
    fn table(ours: &mut Ours) -> &mut Table<Proof> {
        &mut ours.proofs.table
    }
    fn filed(ours: &mut Ours) -> Option<&mut Filed<Self>> {
        Some(&mut ours.proofs)
    }
}

impl Followed for PodSafetyRemediationSpec {
    const KIND: Kind = Kind::Remediations;
    fn table(ours: &mut Ours) -> &mut Table<Remediation> {
        &mut ours.remediations.table
    }
    fn filed(ours: &mut Ours) -> Option<&mut Filed<Self>> {
        Some(&mut ours.remediations)
    }
}

fn project<S: OwnSpec>(
    wire: wire::Custom<S, S::Status>,
    interner: &mut Interner,
    now: Mono,
) -> Result<Own<S>, Box<(wire::ObjectMeta, ProjectError)>> {
    let wire::Custom { metadata: meta, spec, status } = wire;
    let read = identity(&meta).and_then(|identity| {
        let namespace = match meta.namespace.as_deref() {
            None | Some("") => String::new(),
            some => name(some, "metadata.namespace")?,
        };
        Ok((identity, namespace))
    });
    let (Identity { uid, rv, name: own_name }, namespace) = match read {
        Ok(read) => read,
        Err(error) => return Err(Box::new((meta.common, error))),
    };
    let object = Own {
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
    match object.node().map(|node| name(Some(node), "the node's name")) {
        Some(Err(error)) => Err(Box::new((meta.common, error))),
        Some(Ok(_)) | None => Ok(object),
    }
}

impl<S: Followed> Object for Own<S> {
    type Wire = wire::Custom<S, S::Status>;
    type Kept = Self;
    const KIND: Kind = S::KIND;

    fn project(wire: Self::Wire, interner: &mut Interner, now: Mono) -> Result<Self, Undecodable> {
        project(wire, interner, now).map_err(|wrong| Undecodable::from_meta(&wrong.0, &wrong.1))
    }

    fn meta(wire: &Self::Wire) -> Option<&wire::ObjectMeta> {
        Some(&wire.metadata)
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        S::table(&mut inner.ours)
    }

    fn put(inner: &mut Inner, mut object: Self, _now: Mono, tell: Tell<'_>) {
        if !inner.fences_from(&object.namespace) {
            return;
        }
        let uid = object.uid.clone();
        let node = object.node().map(|node| inner.interner.intern(node));
        let mut moved = None;
        if let Some(Entry::Known(before)) = S::table(&mut inner.ours).get(&uid) {
            object.first_seen = before.first_seen;
            if object.status == before.status {
                object.status_seen = before.status_seen;
            }
            // An annotation can be changed.
            moved = before.node().filter(|before| Some(*before) != node.as_deref()).map(str::to_owned);
        }
        if let (Some(moved), Some(filed)) = (&moved, S::filed(&mut inner.ours)) {
            filed.unfile(moved, &uid);
        }
        S::table(&mut inner.ours).put(uid.clone(), Entry::Known(object));
        if let (Some(node), Some(filed)) = (&node, S::filed(&mut inner.ours)) {
            filed.file(node, &uid);
        }
        tell(Change::Fencing { node: node.as_ref() });
        inner.tell_of_holder(node.as_ref(), tell);
    }

    fn put_undecodable(inner: &mut Inner, undecodable: Undecodable, now: Mono, tell: Tell<'_>) {
        if !inner.fences_from(undecodable.namespace.as_deref().unwrap_or_default()) {
            return;
        }
        let Some(uid) = undecodable.uid else {
            return S::table(&mut inner.ours).put_unidentified();
        };
        Self::take(inner, &uid, now, tell);
        S::table(&mut inner.ours).put(uid, Entry::Undecodable(undecodable.why.into()));
        tell(Change::Fencing { node: None });
    }

    fn take(inner: &mut Inner, uid: &Uid, _now: Mono, tell: Tell<'_>) {
        let node = match S::table(&mut inner.ours).take(uid) {
            Some(Entry::Known(object)) => object.node().map(|node| inner.interner.intern(node)),
            Some(Entry::Undecodable(_)) => None,
            None => return,
        };
        if let (Some(node), Some(filed)) = (&node, S::filed(&mut inner.ours)) {
            filed.unfile(node, uid);
        }
        tell(Change::Fencing { node: node.as_ref() });
        inner.tell_of_holder(node.as_ref(), tell);
    }
}
