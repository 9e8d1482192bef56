//! Which objects can belong to a device.
//!
//! Danger note: paths are recorded in the status of a NodeFence. A client that can write a path there could have any
//! object read, changed or deleted with the permissions of this process.

use super::{host, machine, network};
use crate::api::{DeviceDriver, GROUP, TargetObject};
use crate::model::is_kubernetes_name;
use crate::stem_of;
use crate::watchdog;

/// Whether a device of this driver can have recorded this object for this node.
pub(super) fn is_possible(driver: DeviceDriver, object: &TargetObject, node: &str) -> bool {
    let parts: Vec<&str> = object.path.split('/').collect();
    match (driver, &parts[..]) {
        (DeviceDriver::External, ["", "apis", group, version, "namespaces", namespace, plural, name]) => {
            is_remediator_group(group)
                && [version, plural].into_iter().all(|part| is_kubernetes_name(part))
                && *namespace == object.device.namespace
                && is_named_after(name, node)
        }
        (DeviceDriver::NetworkFence, ["", "apis", _, _, _, name]) => {
            object.path.starts_with(network::FENCES) && is_named_after(name, node)
        }
        // The object that made a node has a name of its own.
        (DeviceDriver::Machine, parts) => machine::CLUSTER_API.is_path(parts),
        (DeviceDriver::OpenShiftMachine, parts) => machine::OPENSHIFT.is_path(parts),
        (DeviceDriver::NodeClaim, parts) => machine::KARPENTER.is_path(parts),
        (DeviceDriver::BareMetalHost, parts) => host::is_path(parts),
        (DeviceDriver::WatchdogLease, _) => {
            let namespace = &*object.device.namespace;
            [namespace, node].into_iter().all(is_kubernetes_name)
                && object.path == watchdog::lease_path(namespace, node)
        }
        (
            DeviceDriver::External
            | DeviceDriver::NetworkFence
            | DeviceDriver::Agent
            | DeviceDriver::Redfish
            | DeviceDriver::Manual,
            _,
        ) => false,
    }
}

/// Whether an object of a machine is in an accepted namespace. A NodeClaim is cluster-scoped.
pub(super) fn is_namespace_allowed(driver: DeviceDriver, object: &TargetObject, namespaces: &[String]) -> bool {
    let is_machine =
        matches!(driver, DeviceDriver::Machine | DeviceDriver::OpenShiftMachine | DeviceDriver::BareMetalHost);
    let namespace = object.path.split('/').nth(5).unwrap_or_default();
    !is_machine || machine::is_namespace_allowed(namespaces, namespace)
}

/// Whether this is the group of a CRD: Kubernetes' own groups have no dot, or end in `k8s.io`.
fn is_remediator_group(group: &str) -> bool {
    let of_kubernetes = group == "k8s.io" || group.ends_with(".k8s.io");
    is_kubernetes_name(group) && group.contains('.') && !of_kubernetes && group != GROUP
}

/// Whether this is the node's name, or a name that begins with it and a dash.
fn is_named_after(name: &str, node: &str) -> bool {
    let is_after = name.strip_prefix(stem_of(node)).is_some_and(|rest| rest.starts_with('-'));
    is_kubernetes_name(name) && (name == node || is_after)
}
