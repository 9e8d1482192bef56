//! What a plan is made from.

use std::collections::BTreeMap;

use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::Uid;

use super::fit::{Needs, NodeCapacity};

/// What is known of the DaemonSet that a pod names as its controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonSet {
    /// It is there, with the UID that the pod names.
    Exists,
    /// It is not, or another one has its name.
    Absent,
    /// It could not be read, and why.
    Unread(String),
}

/// What a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    /// Pods, budgets, workloads and nodes.
    pub view: View<'a>,
    /// What pods need.
    pub needs: &'a BTreeMap<Uid, Needs>,
    /// The nodes, empty.
    pub capacities: &'a [NodeCapacity],
    /// What is known of the DaemonSets that its pods name, by their UIDs.
    pub daemon_sets: &'a BTreeMap<Uid, DaemonSet>,
    /// The budgets could not be read.
    pub budgets_unread: bool,
    /// When it was so.
    pub now: Mono,
}
