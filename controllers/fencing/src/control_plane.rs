//! Whether the control plane, and its etcd, can spare a node. Pure.
//!
//! The etcd members are its pods, which kubeadm and others run beside the API server. An external etcd has no pods
//! here: then only nodes of the control plane are counted, as they are in any case. A member whose Node was deleted
//! is not seen any more, though etcd still counts it: an administrator who removes nodes removes members first.

use std::sync::Arc;

use crate::holds::Hold;
use pod_safety_shared::api::ControlPlane;
use pod_safety_shared::model::{FencePolicyObject, Node, Pod};

use super::incident::{Incident, is_healthy};

/// The label of nodes on which the control plane runs.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// The namespace and labels of etcd members, as kubeadm sets them.
const ETCD_NAMESPACE: &str = "kube-system";
const ETCD_LABELS: [(&str, &str); 2] = [("component", "etcd"), ("tier", "control-plane")];

/// How many would remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remaining {
    /// How many others are healthy.
    pub(super) healthy: usize,
    /// How many there are, this one included.
    pub(super) total: usize,
}

impl Remaining {
    const fn is_quorum(self) -> bool {
        self.healthy * 2 > self.total
    }
}

fn is_of_control_plane(node: &Node) -> bool {
    node.details.as_ref().is_some_and(|details| details.labels.contains_key(CONTROL_PLANE))
}

fn is_member(pod: &Pod) -> bool {
    let labelled = |(key, value): &(&str, &str)| pod.labels.get(key) == Some(*value);
    *pod.key.namespace == *ETCD_NAMESPACE && ETCD_LABELS.iter().all(labelled) && !pod.phase.is_terminal()
}

/// The remaining nodes of the control plane; `None`: the node is not one of them.
pub(super) fn remaining_nodes(node: &Node, policy: &FencePolicyObject, incident: &Incident<'_>) -> Option<Remaining> {
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

/// The remaining members of etcd; `None`: none runs on the node.
pub(super) fn remaining_members(node: &Node, policy: &FencePolicyObject, incident: &Incident<'_>) -> Option<Remaining> {
    let view = &incident.view;
    view.pods_on(&node.name).find(|pod| is_member(pod))?;
    let mut remaining = Remaining { healthy: 0, total: 0 };
    for other in view.nodes() {
        // A pod of a lost node may still be marked as Ready.
        let is_well = other.uid != node.uid && is_healthy(other, policy, view, incident.now);
        for member in view.pods_on(&other.name).filter(|pod| is_member(pod)) {
            remaining.total += 1;
            remaining.healthy += usize::from(is_well && member.ready);
        }
    }
    Some(remaining)
}

/// Of a deleted Node it is unknown whether it was in the control plane: it was taken out of the cluster deliberately.
pub(super) fn check_control_plane(node: &Node, policy: &FencePolicyObject, incident: &Incident<'_>) -> Option<Hold> {
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

/// A node with an etcd member may be fenced if more than half of the members remain, on whatever nodes they run.
pub(super) fn check_etcd(node: &Node, policy: &FencePolicyObject, incident: &Incident<'_>) -> Option<Hold> {
    let remaining = remaining_members(node, policy, incident).filter(|left| !left.is_quorum())?;
    Some(Hold::EtcdQuorum { node: Arc::clone(&node.name), ready: remaining.healthy, of: remaining.total })
}
