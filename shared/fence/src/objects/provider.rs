//! What it proves that an object of a machine is gone, by who provides the machine. Pure.
//!
//! A controller removes the last finalizer of such an object when it is done. Some wait until their provider says that the instance
//! has ended; others switch nothing off, or do not wait. So the table is closed: the end of an object that is not in it proves
//! nothing. Each row names the source in which that was read.

use serde_json::Value;

use super::text;
use crate::api::DeviceDriver;

/// Who provides the machine, as its object says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Provider<'a> {
    pub(super) group: &'a str,
    pub(super) kind: &'a str,
}

/// What the end of the object means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The provider says that the instance has ended.
    Off,
    /// The machine may run on. Why, and what to use instead.
    Nothing { why: &'static str, instead: &'static str },
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) driver: DeviceDriver,
    pub(super) group: &'static str,
    pub(super) kind: &'static str,
    pub(super) end: End,
    /// Where that was read.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers; a test asks each row for it"))]
    pub(super) source: &'static str,
}

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const SWITCH: &str = "the device that switches the machine: Redfish, or an agent";

const NOT_SWITCHED: &str = "its controller forgets the machine and switches nothing off";
const NOT_WAITED: &str =
    "its controller asks for the deletion and does not wait until the instance has ended";
const LOCAL: &str = "Nova forgets a server whose host it cannot reach, and the server runs on";
const HOST: &str =
    "its controller does not wait for a BareMetalHost that is deleted or unmanaged, and the host runs on";

const fn capi(kind: &'static str, end: End, source: &'static str) -> Row {
    Row { driver: DeviceDriver::Machine, group: INFRASTRUCTURE, kind, end, source }
}

const fn openshift(kind: &'static str, end: End, source: &'static str) -> Row {
    Row { driver: DeviceDriver::OpenShiftMachine, group: "openshift.io", kind, end, source }
}

const fn karpenter(group: &'static str, kind: &'static str, source: &'static str) -> Row {
    Row { driver: DeviceDriver::NodeClaim, group, kind, end: End::Off, source }
}

const fn nothing(why: &'static str, instead: &'static str) -> End {
    End::Nothing { why, instead }
}

pub(super) const TABLE: [Row; 25] = [
    capi(
        "AWSMachine",
        End::Off,
        "cluster-api-provider-aws controllers/awsmachine_controller.go: waits for terminated",
    ),
    capi(
        "AzureMachine",
        End::Off,
        "cluster-api-provider-azure azure/services/async: waits for the end of the operation",
    ),
    capi(
        "DockerMachine",
        End::Off,
        "cluster-api test/infrastructure/docker: removes the container, and waits",
    ),
    capi(
        "GCPMachine",
        End::Off,
        "cluster-api-provider-gcp cloud/services/compute/instances: waits for the operation",
    ),
    capi(
        "NutanixMachine",
        End::Off,
        "cluster-api-provider-nutanix controllers/nutanixmachine_controller.go: waits until Prism knows no such VM",
    ),
    capi(
        "OCIMachine",
        End::Off,
        "cluster-api-provider-oci controllers/ocimachine_controller.go: waits for TERMINATED",
    ),
    capi(
        "VSphereMachine",
        End::Off,
        "cluster-api-provider-vsphere pkg/services/govmomi/service.go: powers off, destroys, waits until vCenter knows no such VM",
    ),
    capi(
        "ByoMachine",
        nothing(NOT_SWITCHED, SWITCH),
        "cluster-api-provider-bringyourownhost controllers/byomachine_controller.go",
    ),
    capi(
        "HCloudMachine",
        nothing(NOT_WAITED, SWITCH),
        "cluster-api-provider-hetzner pkg/services/hcloud/server: a wrong token ends it, too",
    ),
    capi(
        "HetznerBareMetalMachine",
        nothing(NOT_SWITCHED, SWITCH),
        "cluster-api-provider-hetzner pkg/services/baremetal/host: resets kubeadm by SSH, if it can",
    ),
    capi(
        "KubevirtMachine",
        nothing(NOT_WAITED, SWITCH),
        "cluster-api-provider-kubevirt controllers/kubevirtmachine_controller.go",
    ),
    capi(
        "LinodeMachine",
        nothing(NOT_WAITED, SWITCH),
        "cluster-api-provider-linode internal/controller/linodemachine_controller.go",
    ),
    capi(
        "Metal3Machine",
        nothing(HOST, "the driver BareMetalHost"),
        "cluster-api-provider-metal3 baremetal/metal3machine_manager.go",
    ),
    capi("OpenStackMachine", nothing(LOCAL, "fence_openstack"), "nova compute/api.py: _local_delete"),
    capi(
        "ProxmoxMachine",
        nothing("its controller takes a VM that moved to another host for gone", "fence_pve"),
        "cluster-api-provider-proxmox internal/service/vmservice/delete.go",
    ),
    capi(
        "RemoteMachine",
        nothing(NOT_SWITCHED, SWITCH),
        "k0smotron internal/controller/infrastructure: runs a script by SSH, if it can",
    ),
    capi(
        "TinkerbellMachine",
        nothing(NOT_SWITCHED, SWITCH),
        "cluster-api-provider-tinkerbell controller/machine: powers off only hardware with a bmcRef",
    ),
    openshift(
        "AWSMachineProviderConfig",
        End::Off,
        "machine-api-provider-aws pkg/actuators/machine: waits for terminated",
    ),
    openshift(
        "AzureMachineProviderSpec",
        End::Off,
        "machine-api-provider-azure: waits until Azure knows no such VM",
    ),
    openshift(
        "GCPMachineProviderSpec",
        End::Off,
        "machine-api-provider-gcp: waits until Google knows no such instance",
    ),
    openshift(
        "NutanixMachineProviderConfig",
        End::Off,
        "machine-api-provider-nutanix: waits until Prism knows no such VM",
    ),
    openshift(
        "VSphereMachineProviderSpec",
        End::Off,
        "machine-api-operator pkg/controller/vsphere: powers off before it destroys",
    ),
    openshift(
        "BareMetalMachineProviderSpec",
        nothing(HOST, "the driver BareMetalHost"),
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
    /// Who provides the machine of this object.
    pub(super) fn of(driver: DeviceDriver, object: &'a Value) -> Self {
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
                // v1beta2 has the group, and v1beta1 group and version.
                let group = text(object, "/spec/infrastructureRef/apiGroup");
                let older = group_of(text(object, "/spec/infrastructureRef/apiVersion"));
                (if group.is_empty() { older } else { group }, text(object, "/spec/infrastructureRef/kind"))
            }
        };
        Self { group, kind }
    }

    fn row(&self, driver: DeviceDriver) -> Option<&'static Row> {
        TABLE.iter().find(|row| row.driver == driver && row.kind == self.kind && row.is_of(self.group))
    }

    /// Whether the end of this object proves that its machine is off.
    ///
    /// # Errors
    /// Why not, and the way out.
    pub(super) fn ends_off(&self, driver: DeviceDriver) -> Result<(), String> {
        let Self { group, kind } = self;
        match self.row(driver).map(|row| row.end) {
            Some(End::Off) => Ok(()),
            Some(End::Nothing { why, instead }) => Err(format!(
                "its provider is {kind}: {why}. So it proves nothing that the object is gone. Use {instead}"
            )),
            None if kind.is_empty() => Err(format!(
                "it does not name its provider ({}). So it proves nothing that the object is gone",
                field(driver)
            )),
            None => Err(format!(
                "its provider is {kind} of {group:?}, and what the end of its objects means is not known. So it proves nothing that the object is gone. Use {SWITCH}"
            )),
        }
    }
}

impl Row {
    /// OpenShift has a group for each provider in older clusters, and one for all in newer ones.
    fn is_of(&self, group: &str) -> bool {
        match self.driver {
            DeviceDriver::OpenShiftMachine => {
                group.strip_suffix(self.group).is_some_and(|rest| rest.ends_with('.'))
            }
            _ => group == self.group,
        }
    }
}

/// Where an object names its provider.
const fn field(driver: DeviceDriver) -> &'static str {
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

    /// What is judged of an object with this provider, as it is written today.
    fn judged(driver: DeviceDriver, group: &str, kind: &str) -> Result<(), String> {
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
        Provider::of(driver, &object).ends_off(driver)
    }

    #[test]
    fn the_end_of_an_object_proves_what_its_row_says() {
        for Row { driver, group, kind, end, source } in &TABLE {
            let group =
                if *driver == DeviceDriver::OpenShiftMachine { "machine.openshift.io" } else { group };
            let judged = judged(*driver, group, kind);
            match end {
                End::Off => assert_eq!(judged, Ok(()), "{kind}"),
                End::Nothing { why, .. } => assert!(judged.unwrap_err().contains(why), "{kind}"),
            }
            assert!(source.len() > 10, "{kind} has no source");
        }
        let all: BTreeSet<_> = TABLE.iter().map(|row| (row.group, row.kind)).collect();
        assert_eq!(all.len(), TABLE.len(), "one row for each");
    }

    #[test]
    fn what_is_in_no_row_proves_nothing() {
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
            let said = judged(driver, group, kind).unwrap_err();
            assert!(said.contains(says) && said.contains("proves nothing"), "{group} {kind}: {said}");
        }
    }

    /// Cluster API v1beta1, and OpenShift before 4.11.
    #[test]
    fn older_objects_name_their_provider_otherwise() {
        let older = format!("{INFRASTRUCTURE}/v1beta1");
        let machine =
            json!({ "spec": { "infrastructureRef": { "apiVersion": older, "kind": "AWSMachine" } } });
        assert_eq!(Provider::of(DeviceDriver::Machine, &machine).ends_off(DeviceDriver::Machine), Ok(()));
        let group = "awsproviderconfig.openshift.io";
        assert_eq!(judged(DeviceDriver::OpenShiftMachine, group, "AWSMachineProviderConfig"), Ok(()));
    }

    #[test]
    fn the_page_names_each_kind() {
        let page = include_str!("../../../../docs/fence-devices.md");
        for Row { kind, .. } in &TABLE {
            assert!(page.contains(&format!("`{kind}`")), "docs/fence-devices.md does not name {kind}");
        }
    }
}
