//! Which providers' machines are off when their object is gone. Pure.
//!
//! A controller removes the last finalizer of such an object when it is done. Some wait until their provider reports
//! that the instance has terminated; others switch nothing off, or do not wait. So the table is closed: the deletion
//! of an object that is not in it proves nothing. Each row names the source in which that was read.

use serde_json::Value;

use super::text;
use crate::api::DeviceDriver;

/// The provider of the machine, as its object names it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Provider<'a> {
    pub(super) group: &'a str,
    pub(super) kind: &'a str,
}

/// What the deletion of the object means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeletionEffect {
    /// The provider reports that the instance has terminated.
    PowersOff,
    /// The machine may run on: why, and what to use instead.
    ProvesNothing { why: &'static str, instead: &'static str },
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct ProviderRow {
    pub(super) driver: DeviceDriver,
    pub(super) group: &'static str,
    pub(super) kind: &'static str,
    pub(super) effect: DeletionEffect,
    /// The upstream source of the effect.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers; a test asks each row for it"))]
    pub(super) source: &'static str,
}

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const SWITCH: &str = "the device that switches the machine: Redfish, or an agent";

const NOT_SWITCHED: &str = "its controller forgets the machine and switches nothing off";
const NOT_WAITED: &str = "its controller asks for the deletion and does not wait until the instance has ended";
const LOCAL: &str = "Nova forgets a server whose host it cannot reach, and the server runs on";
const HOST: &str =
    "its controller does not wait for a BareMetalHost that is deleted or unmanaged, and the host runs on";

const fn capi(kind: &'static str, end: DeletionEffect, source: &'static str) -> ProviderRow {
    ProviderRow { driver: DeviceDriver::Machine, group: INFRASTRUCTURE, kind, effect: end, source }
}

const fn openshift(kind: &'static str, end: DeletionEffect, source: &'static str) -> ProviderRow {
    ProviderRow { driver: DeviceDriver::OpenShiftMachine, group: "openshift.io", kind, effect: end, source }
}

const fn karpenter(group: &'static str, kind: &'static str, source: &'static str) -> ProviderRow {
    ProviderRow { driver: DeviceDriver::NodeClaim, group, kind, effect: DeletionEffect::PowersOff, source }
}

const fn proves_nothing(why: &'static str, instead: &'static str) -> DeletionEffect {
    DeletionEffect::ProvesNothing { why, instead }
}

pub(super) const TABLE: [ProviderRow; 25] = [
    capi(
        "AWSMachine",
        DeletionEffect::PowersOff,
        "cluster-api-provider-aws controllers/awsmachine_controller.go: waits for terminated",
    ),
    capi(
        "AzureMachine",
        DeletionEffect::PowersOff,
        "cluster-api-provider-azure azure/services/async: waits for the end of the operation",
    ),
    capi(
        "DockerMachine",
        DeletionEffect::PowersOff,
        "cluster-api test/infrastructure/docker: removes the container, and waits",
    ),
    capi(
        "GCPMachine",
        DeletionEffect::PowersOff,
        "cluster-api-provider-gcp cloud/services/compute/instances: waits for the operation",
    ),
    capi(
        "NutanixMachine",
        DeletionEffect::PowersOff,
        "cluster-api-provider-nutanix controllers/nutanixmachine_controller.go: waits until Prism knows no such VM",
    ),
    capi(
        "OCIMachine",
        DeletionEffect::PowersOff,
        "cluster-api-provider-oci controllers/ocimachine_controller.go: waits for TERMINATED",
    ),
    capi(
        "VSphereMachine",
        DeletionEffect::PowersOff,
        "cluster-api-provider-vsphere pkg/services/govmomi/service.go: powers off, destroys, waits until vCenter knows no such VM",
    ),
    capi(
        "ByoMachine",
        proves_nothing(NOT_SWITCHED, SWITCH),
        "cluster-api-provider-bringyourownhost controllers/byomachine_controller.go",
    ),
    capi(
        "HCloudMachine",
        proves_nothing(NOT_WAITED, SWITCH),
        "cluster-api-provider-hetzner pkg/services/hcloud/server: a wrong token ends it, too",
    ),
    capi(
        "HetznerBareMetalMachine",
        proves_nothing(NOT_SWITCHED, SWITCH),
        "cluster-api-provider-hetzner pkg/services/baremetal/host: resets kubeadm by SSH, if it can",
    ),
    capi(
        "KubevirtMachine",
        proves_nothing(NOT_WAITED, SWITCH),
        "cluster-api-provider-kubevirt controllers/kubevirtmachine_controller.go",
    ),
    capi(
        "LinodeMachine",
        proves_nothing(NOT_WAITED, SWITCH),
        "cluster-api-provider-linode internal/controller/linodemachine_controller.go",
    ),
    capi(
        "Metal3Machine",
        proves_nothing(HOST, "the driver BareMetalHost"),
        "cluster-api-provider-metal3 baremetal/metal3machine_manager.go",
    ),
    capi("OpenStackMachine", proves_nothing(LOCAL, "fence_openstack"), "nova compute/api.py: _local_delete"),
    capi(
        "ProxmoxMachine",
        proves_nothing("its controller takes a VM that moved to another host for gone", "fence_pve"),
        "cluster-api-provider-proxmox internal/service/vmservice/delete.go",
    ),
    capi(
        "RemoteMachine",
        proves_nothing(NOT_SWITCHED, SWITCH),
        "k0smotron internal/controller/infrastructure: runs a script by SSH, if it can",
    ),
    capi(
        "TinkerbellMachine",
        proves_nothing(NOT_SWITCHED, SWITCH),
        "cluster-api-provider-tinkerbell controller/machine: powers off only hardware with a bmcRef",
    ),
    openshift(
        "AWSMachineProviderConfig",
        DeletionEffect::PowersOff,
        "machine-api-provider-aws pkg/actuators/machine: waits for terminated",
    ),
    openshift(
        "AzureMachineProviderSpec",
        DeletionEffect::PowersOff,
        "machine-api-provider-azure: waits until Azure knows no such VM",
    ),
    openshift(
        "GCPMachineProviderSpec",
        DeletionEffect::PowersOff,
        "machine-api-provider-gcp: waits until Google knows no such instance",
    ),
    openshift(
        "NutanixMachineProviderConfig",
        DeletionEffect::PowersOff,
        "machine-api-provider-nutanix: waits until Prism knows no such VM",
    ),
    openshift(
        "VSphereMachineProviderSpec",
        DeletionEffect::PowersOff,
        "machine-api-operator pkg/controller/vsphere: powers off before it destroys",
    ),
    openshift(
        "BareMetalMachineProviderSpec",
        proves_nothing(HOST, "the driver BareMetalHost"),
        "cluster-api-provider-baremetal pkg/cloud/baremetal/actuators/machine",
    ),
    karpenter(
        "karpenter.k8s.aws",
        "EC2NodeClass",
        "karpenter-provider-aws pkg/providers/instance: waits until no instance is listed that may run",
    ),
    karpenter(
        "karpenter.azure.com",
        "AKSNodeClass",
        "karpenter-provider-azure pkg/providers/instance: waits until Azure knows no such VM",
    ),
];

impl<'a> Provider<'a> {
    /// The provider of the machine of this object.
    pub(super) fn from_object(driver: DeviceDriver, object: &'a Value) -> Self {
        let group_of = |version: &'a str| version.split_once('/').map_or("", |(group, _)| group);
        let (group, kind) = match driver {
            DeviceDriver::OpenShiftMachine => (
                group_of(text(object, "/spec/providerSpec/value/apiVersion")),
                text(object, "/spec/providerSpec/value/kind"),
            ),
            DeviceDriver::NodeClaim => {
                (text(object, "/spec/nodeClassRef/group"), text(object, "/spec/nodeClassRef/kind"))
            }
            _ => {
                // v1beta2 has the group, v1beta1 the group and version.
                let group = text(object, "/spec/infrastructureRef/apiGroup");
                let older = group_of(text(object, "/spec/infrastructureRef/apiVersion"));
                (if group.is_empty() { older } else { group }, text(object, "/spec/infrastructureRef/kind"))
            }
        };
        Self { group, kind }
    }

    fn find_row(&self, driver: DeviceDriver) -> Option<&'static ProviderRow> {
        TABLE.iter().find(|row| row.driver == driver && row.kind == self.kind && row.has_group(self.group))
    }

    /// Checks that the deletion of this object proves that its machine is off.
    ///
    /// # Errors
    /// Why it does not, and what to use instead.
    pub(super) fn check_deletion_means_off(&self, driver: DeviceDriver) -> Result<(), String> {
        let Self { group, kind } = self;
        match self.find_row(driver).map(|row| row.effect) {
            Some(DeletionEffect::PowersOff) => Ok(()),
            Some(DeletionEffect::ProvesNothing { why, instead }) => Err(format!(
                "its provider is {kind}: {why}. So it proves nothing that the object is gone. Use {instead}"
            )),
            None if kind.is_empty() => Err(format!(
                "it does not name its provider ({}). So it proves nothing that the object is gone",
                provider_field(driver)
            )),
            None => Err(format!(
                "its provider is {kind} of {group:?}, and what the end of its objects means is not known. So it proves nothing that the object is gone. Use {SWITCH}"
            )),
        }
    }
}

impl ProviderRow {
    /// OpenShift has a group for each provider in older clusters, and one group for all in newer ones.
    fn has_group(&self, group: &str) -> bool {
        match self.driver {
            DeviceDriver::OpenShiftMachine => group.strip_suffix(self.group).is_some_and(|rest| rest.ends_with('.')),
            _ => group == self.group,
        }
    }
}

/// The field by which an object names its provider.
const fn provider_field(driver: DeviceDriver) -> &'static str {
    match driver {
        DeviceDriver::OpenShiftMachine => "spec.providerSpec.value",
        DeviceDriver::NodeClaim => "spec.nodeClassRef",
        _ => "spec.infrastructureRef",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    /// The result for an object with this provider, in the current API version.
    fn check_deletion(driver: DeviceDriver, group: &str, kind: &str) -> Result<(), String> {
        let version = format!("{group}/v1");
        let object = match driver {
            DeviceDriver::OpenShiftMachine => {
                json!({ "spec": { "providerSpec": { "value": { "apiVersion": version, "kind": kind } } } })
            }
            DeviceDriver::NodeClaim => {
                json!({ "spec": { "nodeClassRef": { "group": group, "kind": kind } } })
            }
            _ => json!({ "spec": { "infrastructureRef": { "apiGroup": group, "kind": kind } } }),
        };
        Provider::from_object(driver, &object).check_deletion_means_off(driver)
    }

    #[test]
    fn the_deletion_of_an_object_proves_what_its_row_states() {
        for ProviderRow { driver, group, kind, effect, source } in &TABLE {
            let group = if *driver == DeviceDriver::OpenShiftMachine { "machine.openshift.io" } else { group };
            let result = check_deletion(*driver, group, kind);
            match effect {
                DeletionEffect::PowersOff => assert_eq!(result, Ok(()), "{kind}"),
                DeletionEffect::ProvesNothing { why, .. } => {
                    assert!(result.unwrap_err().contains(why), "{kind}")
                }
            }
            assert!(source.len() > 10, "{kind} has no source");
        }
        let all: BTreeSet<_> = TABLE.iter().map(|row| (row.group, row.kind)).collect();
        assert_eq!(all.len(), TABLE.len(), "one row for each");
    }

    #[test]
    fn the_deletion_of_an_object_of_an_unknown_provider_proves_nothing() {
        use DeviceDriver::{Machine, NodeClaim, OpenShiftMachine};
        for (driver, group, kind, says) in [
            (Machine, INFRASTRUCTURE, "AcmeMachine", "is not known"),
            (Machine, INFRASTRUCTURE, "", "(spec.infrastructureRef)"),
            (Machine, INFRASTRUCTURE, "awsmachine", "is not known"),
            (Machine, "acme.example", "AWSMachine", "of \"acme.example\""),
            (Machine, "", "AWSMachine", "of \"\""),
            (OpenShiftMachine, "machine.openshift.io", "", "(spec.providerSpec.value)"),
            (OpenShiftMachine, "evilopenshift.io", "AWSMachineProviderConfig", "is not known"),
            (OpenShiftMachine, "machine.openshift.io", "OpenstackProviderSpec", "is not known"),
            (NodeClaim, "karpenter.kwok.sh", "KWOKNodeClass", "is not known"),
            (NodeClaim, "karpenter.azure.com", "EC2NodeClass", "is not known"),
            (NodeClaim, INFRASTRUCTURE, "AWSMachine", "is not known"),
        ] {
            let message = check_deletion(driver, group, kind).unwrap_err();
            assert!(message.contains(says) && message.contains("proves nothing"), "{group} {kind}: {message}");
        }
    }

    /// Cluster API v1beta1, and OpenShift before 4.11.
    #[test]
    fn the_provider_of_older_api_versions_is_found() {
        let older = format!("{INFRASTRUCTURE}/v1beta1");
        let machine = json!({ "spec": { "infrastructureRef": { "apiVersion": older, "kind": "AWSMachine" } } });
        assert_eq!(
            Provider::from_object(DeviceDriver::Machine, &machine).check_deletion_means_off(DeviceDriver::Machine),
            Ok(())
        );
        let group = "awsproviderconfig.openshift.io";
        assert_eq!(check_deletion(DeviceDriver::OpenShiftMachine, group, "AWSMachineProviderConfig"), Ok(()));
    }

    #[test]
    fn docs_fence_devices_names_each_kind() {
        let page = include_str!("../../../../docs/fence-devices.md");
        for ProviderRow { kind, .. } in &TABLE {
            assert!(page.contains(&format!("`{kind}`")), "docs/fence-devices.md does not name {kind}");
        }
    }
}
