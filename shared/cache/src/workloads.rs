//! Desired numbers of pods: built-in workloads, and scale subresources of other controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::Arc;

use super::index::forget;
use super::object::{Identity, Notify, Object, ProjectError, Undecodable, controller_of, parse_identity, parse_name};
use super::table::{Entry, Table};
use super::{Change, Inner};
use crate::clock::Mono;
use crate::model::{Interner, Kind, Scale, Uid, Workload, WorkloadKind};
use crate::wire;

/// The workloads of all kinds.
#[derive(Debug, Default)]
pub(super) struct Workloads {
    deployments: Table<Workload>,
    replica_sets: Table<Workload>,
    stateful_sets: Table<Workload>,
    replication_controllers: Table<Workload>,
    /// The ReplicaSets that a Deployment manages.
    managed: BTreeMap<Uid, BTreeSet<Uid>>,
}

impl Workloads {
    pub(super) const fn table_of(&self, kind: WorkloadKind) -> &Table<Workload> {
        match kind {
            WorkloadKind::Deployment => &self.deployments,
            WorkloadKind::ReplicaSet => &self.replica_sets,
            WorkloadKind::StatefulSet => &self.stateful_sets,
            WorkloadKind::ReplicationController => &self.replication_controllers,
        }
    }

    const fn table_of_mut(&mut self, kind: WorkloadKind) -> &mut Table<Workload> {
        match kind {
            WorkloadKind::Deployment => &mut self.deployments,
            WorkloadKind::ReplicaSet => &mut self.replica_sets,
            WorkloadKind::StatefulSet => &mut self.stateful_sets,
            WorkloadKind::ReplicationController => &mut self.replication_controllers,
        }
    }

    fn add_managed(&mut self, workload: &Workload) {
        if let Some(controller) = &workload.controller {
            self.managed.entry(controller.uid.clone()).or_default().insert(workload.uid.clone());
        }
    }

    fn remove_managed(&mut self, workload: &Workload) {
        if let Some(controller) = &workload.controller {
            forget(&mut self.managed, &controller.uid, &workload.uid);
        }
    }
}

/// The answer of a controller's scale subresource to the last request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleAnswer {
    /// When it was requested: the answer does not reflect later changes.
    pub requested_at: Mono,
    /// When the answer arrived.
    pub answered_at: Mono,
    /// The scale, or why it could not be read.
    pub scale: Result<Scale, Box<str>>,
}

/// A kind of workloads, for [`WorkloadObject`].
pub(super) trait WorkloadType: Send + Sync + 'static {
    const KIND: Kind;
    const WORKLOAD: WorkloadKind;
}

/// Follows one kind of workloads.
#[derive(Debug)]
pub(super) struct WorkloadObject<W>(PhantomData<fn() -> W>);

macro_rules! workload_types {
    ($($name:ident: $kind:ident, $workload:ident;)*) => { $(
        pub(super) struct $name;
        impl WorkloadType for $name {
            const KIND: Kind = Kind::$kind;
            const WORKLOAD: WorkloadKind = WorkloadKind::$workload;
        }
    )* };
}

workload_types! {
    Deployments: Deployments, Deployment;
    ReplicaSets: ReplicaSets, ReplicaSet;
    StatefulSets: StatefulSets, StatefulSet;
    ReplicationControllers: ReplicationControllers, ReplicationController;
}

fn project(
    kind: WorkloadKind,
    meta: &wire::ObjectMeta,
    replicas: Option<i32>,
    interner: &mut Interner,
) -> Result<Workload, ProjectError> {
    let Identity { uid, rv, name } = parse_identity(meta)?;
    let namespace = self::parse_name(meta.namespace.as_deref(), "metadata.namespace")?;
    Ok(Workload {
        kind,
        namespace: interner.intern(&namespace),
        name: name.into(),
        uid,
        rv,
        replicas: replicas.unwrap_or(1),
        controller: controller_of(meta).map(|controller| interner.controller(Arc::new(controller))),
    })
}

impl Inner {
    /// Notifies every budget whose numbers may depend on this workload.
    pub(super) fn notify_workload(&self, uid: &Uid, notify: Notify<'_>) {
        let managed = self.workloads.managed.get(uid).into_iter().flatten();
        let mut budgets = BTreeSet::new();
        for uid in managed.chain([uid]) {
            budgets.extend(self.selection.selectors_of_controller(uid));
        }
        budgets.into_iter().for_each(|uid| notify(Change::Budget { uid }));
    }
}

impl<W: WorkloadType> Object for WorkloadObject<W> {
    type Wire = wire::Workload;
    type Stored = Workload;
    const KIND: Kind = W::KIND;

    fn project(wire: wire::Workload, interner: &mut Interner, _now: Mono) -> Result<Workload, Undecodable> {
        let meta = wire.metadata.unwrap_or_default();
        let replicas = wire.spec.and_then(|spec| spec.replicas);
        project(W::WORKLOAD, &meta, replicas, interner).map_err(|error| Undecodable::from_meta(&meta, &error))
    }

    fn table(inner: &mut Inner) -> &mut Table<Workload> {
        inner.workloads.table_of_mut(W::WORKLOAD)
    }

    fn put(inner: &mut Inner, workload: Workload, _now: Mono, notify: Notify<'_>) {
        let uid = workload.uid.clone();
        let before = match inner.workloads.table_of_mut(W::WORKLOAD).remove(&uid) {
            Some(Entry::Known(before)) => Some(before),
            Some(Entry::Undecodable(_)) | None => None,
        };
        let counts = |one: &Workload| (one.replicas, one.controller.clone());
        let unchanged = before.as_ref().is_some_and(|before| counts(before) == counts(&workload));
        if let Some(before) = &before {
            inner.workloads.remove_managed(before);
        }
        inner.workloads.add_managed(&workload);
        inner.workloads.table_of_mut(W::WORKLOAD).put(uid.clone(), Entry::Known(workload));
        if !unchanged {
            inner.notify_workload(&uid, notify);
        }
    }

    fn remove(inner: &mut Inner, uid: &Uid, _now: Mono, notify: Notify<'_>) {
        match inner.workloads.table_of_mut(W::WORKLOAD).remove(uid) {
            Some(Entry::Known(workload)) => inner.workloads.remove_managed(&workload),
            Some(Entry::Undecodable(_)) => {}
            None => return,
        }
        inner.notify_workload(uid, notify);
    }
}
