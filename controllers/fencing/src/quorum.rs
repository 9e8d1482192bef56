//! Whether the control plane, and the etcd behind it, can do without a node. Pure.
//!
//! Members of etcd are its pods, which kubeadm and others run beside the API server. An etcd elsewhere has none here:
//! then nodes of the control plane are counted alone, as they are in any case. A member whose Node was deleted is not
//! seen any more, though etcd still counts it: whoever removes nodes removes members first.

use std::sync::Arc;

use crate::holds::Hold;
use pod_safety_shared::api::ControlPlane;
use pod_safety_shared::model::{FencePolicyObject, Node, Pod};

use super::incident::{Incident, is_healthy};

/// The label of nodes on which the control plane runs.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// Where members of etcd run, and their labels, as kubeadm has them.
const ETCD_NAMESPACE: &str = "kube-system";
const ETCD_LABELS: [(&str, &str); 2] = [("component", "etcd"), ("tier", "control-plane")];

/// How many would be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remaining {
    /// How many others are well.
    pub(super) healthy: usize,
    /// How many there are with it.
    pub(super) total: usize,
}

impl Remaining {
    const fn is_quorum(self) -> bool {
        self.healthy * 2 > self.total
    }
}

fn is_of_control_plane(node: &Node) -> bool {
    node.details.as_ref().is_some_and(|life| life.labels.contains_key(CONTROL_PLANE))
}

fn is_member(pod: &Pod) -> bool {
    let labelled = |(key, value): &(&str, &str)| pod.labels.get(key) == Some(*value);
    *pod.key.namespace == *ETCD_NAMESPACE && ETCD_LABELS.iter().all(labelled) && !pod.phase.is_terminal()
}

/// Of the nodes of the control plane; `None`: it is none.
pub(super) fn remaining_nodes(
    node: &Node,
    policy: &FencePolicyObject,
    incident: &Incident<'_>,
) -> Option<Remaining> {
    if !is_of_control_plane(node) {
        return None;
    }
    let mut remaining = Remaining { healthy: 0, total: 0 };
    for other in incident.view.nodes().filter(|other| is_of_control_plane(other)) {
        remaining.total += 1;
        let counts = other.uid != node.uid && is_healthy(other, policy, &incident.view, incident.now);
        remaining.healthy += usize::from(counts);
    }
    Some(remaining)
}

/// Of the members of etcd; `None`: none runs there.
pub(super) fn remaining_members(
    node: &Node,
    policy: &FencePolicyObject,
    incident: &Incident<'_>,
) -> Option<Remaining> {
    let view = &incident.view;
    view.pods_on(&node.name).find(|pod| is_member(pod))?;
    let mut remaining = Remaining { healthy: 0, total: 0 };
    for other in view.nodes() {
        // A pod of a node that is lost may still be called Ready.
        let is_well = other.uid != node.uid && is_healthy(other, policy, view, incident.now);
        for member in view.pods_on(&other.name).filter(|pod| is_member(pod)) {
            remaining.total += 1;
            remaining.healthy += usize::from(is_well && member.ready);
        }
    }
    Some(remaining)
}

/// Of a node whose Node is gone nobody knows whether it was of the control plane: whoever deleted it took it out.
pub(super) fn check_control_plane(
    node: &Node,
    policy: &FencePolicyObject,
    incident: &Incident<'_>,
) -> Option<Hold> {
    let remaining = remaining_nodes(node, policy, incident)?;
    let name = || Arc::clone(&node.name);
    match policy.spec.brakes.control_plane {
        ControlPlane::Never => Some(Hold::ControlPlane { node: name(), policy: Arc::clone(&policy.name) }),
        ControlPlane::KeepQuorum => (!remaining.is_quorum()).then(|| Hold::ControlPlaneQuorum {
            node: name(),
            ready: remaining.healthy,
            of: remaining.total,
        }),
    }
}

/// Who runs a member of etcd may go if more than half are left, wherever they run.
pub(super) fn check_etcd(node: &Node, policy: &FencePolicyObject, incident: &Incident<'_>) -> Option<Hold> {
    let remaining = remaining_members(node, policy, incident).filter(|left| !left.is_quorum())?;
    Some(Hold::EtcdQuorum { node: Arc::clone(&node.name), ready: remaining.healthy, of: remaining.total })
}
