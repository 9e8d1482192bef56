//! The input of a plan.

use std::collections::BTreeMap;

use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::Uid;

use super::fit::{Needs, NodeCapacity};

/// The DaemonSet that a pod names as its controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonSet {
    /// It exists, with the UID that the pod names.
    Exists,
    /// It does not exist, or another one has its name.
    Absent,
    /// It could not be read; the reason.
    Unread(String),
}

/// The input of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    /// Pods, budgets, workloads and nodes.
    pub view: View<'a>,
    /// What pods request, by UID.
    pub needs: &'a BTreeMap<Uid, Needs>,
    /// The nodes without the pods that run on them.
    pub capacities: &'a [NodeCapacity],
    /// The DaemonSets that pods name as their controllers, by UID.
    pub daemon_sets: &'a BTreeMap<Uid, DaemonSet>,
    /// The budgets could not be read.
    pub budgets_unread: bool,
    /// When it was read.
    pub now: Mono,
}
