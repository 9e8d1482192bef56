//! Whether the control plane, and the etcd behind it, can do without a node. Pure.
//!
//! Members of etcd are its pods, which kubeadm and others run beside the API server. An etcd elsewhere has none here:
//! then nodes of the control plane are counted alone, as they are in any case. A member whose Node was deleted is not
//! seen any more, though etcd still counts it: whoever removes nodes removes members first.

use std::sync::Arc;

use crate::holds::Hold;
use pod_safety_shared::api::ControlPlane;
use pod_safety_shared::model::{Node, Pod, Policy};

use super::incident::{Incident, is_well};

/// The label of nodes on which the control plane runs.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// Where members of etcd run, and their labels, as kubeadm has them.
const ETCD_NAMESPACE: &str = "kube-system";
const ETCD_LABELS: [(&str, &str); 2] = [("component", "etcd"), ("tier", "control-plane")];

/// How many would be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// How many others are well.
    pub(super) well: usize,
    /// How many there are with it.
    pub(super) of: usize,
}

impl Left {
    const fn is_quorum(self) -> bool {
        self.well * 2 > self.of
    }
}

fn is_of_control_plane(node: &Node) -> bool {
    node.life.as_ref().is_some_and(|life| life.labels.contains_key(CONTROL_PLANE))
}

fn is_member(pod: &Pod) -> bool {
    let labelled = |(key, value): &(&str, &str)| pod.labels.get(key) == Some(*value);
    *pod.key.namespace == *ETCD_NAMESPACE && ETCD_LABELS.iter().all(labelled) && !pod.phase.is_terminal()
}

/// Of the nodes of the control plane; `None`: it is none.
pub(super) fn nodes_left(node: &Node, policy: &Policy, incident: &Incident<'_>) -> Option<Left> {
    if !is_of_control_plane(node) {
        return None;
    }
    let mut left = Left { well: 0, of: 0 };
    for other in incident.view.nodes().filter(|other| is_of_control_plane(other)) {
        left.of += 1;
        let counts = other.uid != node.uid && is_well(other, policy, &incident.view, incident.now);
        left.well += usize::from(counts);
    }
    Some(left)
}

/// Of the members of etcd; `None`: none runs there.
pub(super) fn members_left(node: &Node, policy: &Policy, incident: &Incident<'_>) -> Option<Left> {
    let view = &incident.view;
    view.pods_on(&node.name).find(|pod| is_member(pod))?;
    let mut left = Left { well: 0, of: 0 };
    for other in view.nodes() {
        // A pod of a node that is lost may still be called Ready.
        let well = other.uid != node.uid && is_well(other, policy, view, incident.now);
        for member in view.pods_on(&other.name).filter(|pod| is_member(pod)) {
            left.of += 1;
            left.well += usize::from(well && member.ready);
        }
    }
    Some(left)
}

/// Of a node whose Node is gone nobody knows whether it was of the control plane: whoever deleted it took it out.
pub(super) fn control_plane(node: &Node, policy: &Policy, incident: &Incident<'_>) -> Option<Hold> {
    let left = nodes_left(node, policy, incident)?;
    let name = || Arc::clone(&node.name);
    match policy.spec.brakes.control_plane {
        ControlPlane::Never => Some(Hold::ControlPlane { node: name(), policy: Arc::clone(&policy.name) }),
        ControlPlane::KeepQuorum => (!left.is_quorum()).then(|| Hold::ControlPlaneQuorum {
            node: name(),
            ready: left.well,
            of: left.of,
        }),
    }
}

/// Who runs a member of etcd may go if more than half are left, wherever they run.
pub(super) fn etcd(node: &Node, policy: &Policy, incident: &Incident<'_>) -> Option<Hold> {
    let left = members_left(node, policy, incident).filter(|left| !left.is_quorum())?;
    Some(Hold::EtcdQuorum { node: Arc::clone(&node.name), ready: left.well, of: left.of })
}
