//! One index for each lookup of a decision, so that none scans all pods.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use indexmap::IndexMap;

use crate::clock::Mono;
use crate::model::{Pod, Uid};

/// KCM's order of collection: evicted pods first, then the oldest, then by name
/// (`byEvictionAndCreationTimestamp`); the UID makes it total.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CollectionOrder {
    not_evicted: bool,
    created: i64,
    name: Arc<str>,
    uid: Uid,
}

impl CollectionOrder {
    fn for_pod(pod: &Pod) -> Self {
        Self {
            not_evicted: !pod.evicted,
            created: pod.created,
            name: Arc::clone(&pod.key.name),
            uid: pod.key.uid.clone(),
        }
    }
}

/// Removes a value from the values of its key, and the key with its last value.
pub(super) fn forget<K, Q, V>(index: &mut BTreeMap<K, BTreeSet<V>>, key: &Q, value: &V)
where
    K: Ord + Borrow<Q>,
    Q: Ord + ?Sized,
    V: Ord,
{
    if let Some(values) = index.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            index.remove(key);
        }
    }
}

/// Indexes over pods.
#[derive(Debug, Default)]
pub(super) struct PodIndex {
    by_node: BTreeMap<Arc<str>, BTreeSet<Uid>>,
    terminated: BTreeSet<CollectionOrder>,
    terminating_unscheduled: BTreeSet<Uid>,
    /// Pods whose condition `DisruptionTarget` was set by another component than their kubelet.
    disruption_targets: BTreeSet<Uid>,
    /// When the kubelet of a node last reported on a pod.
    last_reports: BTreeMap<Arc<str>, Mono>,
}

impl PodIndex {
    pub(super) fn add(&mut self, pod: &Pod) {
        let uid = pod.uid();
        match &pod.node {
            Some(node) => {
                self.by_node.entry(Arc::clone(node)).or_default().insert(uid.clone());
            }
            None if pod.deletion.is_some() => {
                self.terminating_unscheduled.insert(uid.clone());
            }
            None => {}
        }
        if pod.phase.counts_as_terminated() {
            self.terminated.insert(CollectionOrder::for_pod(pod));
        }
        if pod.disruption_target.is_some() {
            self.disruption_targets.insert(uid.clone());
        }
    }

    pub(super) fn remove(&mut self, pod: &Pod) {
        let uid = pod.uid();
        match &pod.node {
            Some(node) => forget(&mut self.by_node, node, uid),
            None => {
                self.terminating_unscheduled.remove(uid);
            }
        }
        if pod.phase.counts_as_terminated() {
            self.terminated.remove(&CollectionOrder::for_pod(pod));
        }
        self.disruption_targets.remove(uid);
    }

    /// Drops the last report on a node that no pod names any more. Not part of `remove`: a change of the last pod
    /// removes it for a moment.
    pub(super) fn forget_if_unused(&mut self, node: &str) {
        if !self.by_node.contains_key(node) {
            self.last_reports.remove(node);
        }
    }

    pub(super) fn on_node<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Uid> + use<'a> {
        self.by_node.get(node).into_iter().flatten()
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_node.keys()
    }

    pub(super) fn terminated(&self) -> impl Iterator<Item = &Uid> {
        self.terminated.iter().map(|order| &order.uid)
    }

    pub(super) fn terminated_count(&self) -> usize {
        self.terminated.len()
    }

    pub(super) fn terminating_unscheduled(&self) -> impl Iterator<Item = &Uid> {
        self.terminating_unscheduled.iter()
    }

    pub(super) fn disruption_targets(&self) -> impl Iterator<Item = &Uid> {
        self.disruption_targets.iter()
    }

    pub(super) fn record_report(&mut self, node: &Arc<str>, now: Mono) {
        self.last_reports.insert(Arc::clone(node), now);
    }

    pub(super) fn last_report(&self, node: &str) -> Option<Mono> {
        self.last_reports.get(node).copied()
    }
}

/// The UIDs of the Nodes of one name: one, except for a moment when a re-registration is seen out of order.
#[derive(Debug, Default)]
pub(super) struct NodeIndex(IndexMap<Arc<str>, BTreeSet<Uid>>);

impl NodeIndex {
    pub(super) fn add(&mut self, name: &Arc<str>, uid: &Uid) {
        self.0.entry(Arc::clone(name)).or_default().insert(uid.clone());
    }

    pub(super) fn remove(&mut self, name: &str, uid: &Uid) {
        if let Some(uids) = self.0.get_mut(name) {
            uids.remove(uid);
            if uids.is_empty() {
                self.0.swap_remove(name);
            }
        }
    }

    /// The name of an undecodable node, which is kept in this index only. Scans all names.
    pub(super) fn name_of(&self, uid: &Uid) -> Option<Arc<str>> {
        self.0.iter().find(|(_, uids)| uids.contains(uid)).map(|(name, _)| Arc::clone(name))
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn uids<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Uid> + use<'a> {
        self.0.get(name).into_iter().flatten()
    }
}
