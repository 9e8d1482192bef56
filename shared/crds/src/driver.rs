//! The drivers of devices, and what other code asks about each: its own code is in `shared/fence` or `devices`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::FenceEvidenceKind;

/// How a device is reached.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, strum::VariantArray,
)]
pub enum DeviceDriver {
    /// An executable of the fence-agents project.
    Agent,
    /// A Redfish service.
    Redfish,
    /// The Cluster API Machine of the node. It counts as off after it was deleted and is gone.
    Machine,
    /// The OpenShift Machine of the node. It counts as off after it was deleted and is gone.
    OpenShiftMachine,
    /// The Karpenter NodeClaim of the node. It counts as off after it was deleted and is gone.
    NodeClaim,
    /// The Metal3 BareMetalHost of the node, found by its Machine. It counts as off while an annotation of pod-safety keeps it
    /// off and its operator reports so.
    BareMetalHost,
    /// A NetworkFence of CSI-Addons: the storage accepts no writes from the node any more. Processes there continue to run,
    /// so alone it proves something about volumes, and nothing about pods.
    NetworkFence,
    /// The agent of the node (`pod-safety-agent`), which pets a watchdog once for each grant of its Lease `watchdog.NODE`, in the
    /// namespace of the device. Its last grant is revoked. It counts as off when all guarded pods must have ended, or the watchdog
    /// must have reset the machine.
    WatchdogLease,
    /// Another remediator (medik8s). pod-safety creates an object from its template.
    External,
    /// A person: pod-safety contacts no device and waits for `pod-safety confirm-down`.
    Manual,
}

/// What other code asks about a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverProperties {
    /// How orders reach the device.
    pub reached_by: ReachedBy,
    /// The evidence that follows if it alone reports off. Of an instance of a provider there is more precise evidence than
    /// `PowerOff`. `StorageFenced` ends no process.
    pub evidence: FenceEvidenceKind,
    /// Whether it can power on a machine that it powered off.
    pub can_power_on: bool,
    /// Whether it compares the identity of the machine with the Node's systemUUID.
    pub compares_identity: bool,
    /// Whether it runs an executable of the fence-agents project, for which pods need a container.
    pub runs_fence_agent: bool,
}

/// How orders reach a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachedBy {
    /// Over the network, by its parameters. If they name no node, it switches the same machine for each.
    Parameters,
    /// By a write to the API server: to an object of the node.
    Object,
    /// Not at all: it is a person, who confirms what was done.
    Operator,
}

impl DeviceDriver {
    /// All of them.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The table of drivers.
    #[must_use]
    pub const fn properties(self) -> DriverProperties {
        use FenceEvidenceKind as Kind;
        use ReachedBy::{Object, Operator, Parameters};
        match self {
            Self::Agent => {
                DriverProperties { can_power_on: true, runs_fence_agent: true, ..row(Parameters, Kind::PowerOff) }
            }
            Self::Redfish => {
                DriverProperties { can_power_on: true, compares_identity: true, ..row(Parameters, Kind::PowerOff) }
            }
            Self::Machine => row(Object, Kind::Decommissioned),
            Self::OpenShiftMachine => row(Object, Kind::Decommissioned),
            Self::NodeClaim => row(Object, Kind::Decommissioned),
            Self::BareMetalHost => DriverProperties { can_power_on: true, ..row(Object, Kind::PowerOff) },
            Self::NetworkFence => row(Object, Kind::StorageFenced),
            Self::WatchdogLease => row(Object, Kind::WatchdogLease),
            Self::External => DriverProperties { can_power_on: true, ..row(Object, Kind::Remediated) },
            Self::Manual => row(Operator, Kind::OperatorConfirmed),
        }
    }

    /// Whether this evidence follows if it alone reports off.
    #[must_use]
    pub fn gives(self, evidence: FenceEvidenceKind) -> bool {
        self.properties().evidence == evidence
    }

    /// Whether it is a person, and no device.
    #[must_use]
    pub fn is_operator(self) -> bool {
        self.properties().reached_by == ReachedBy::Operator
    }
}

/// A driver without abilities that others would rely on.
const fn row(reached_by: ReachedBy, evidence: FenceEvidenceKind) -> DriverProperties {
    DriverProperties { reached_by, evidence, can_power_on: false, compares_identity: false, runs_fence_agent: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Power, Sample, evidence_kind_of};

    #[test]
    fn a_device_alone_gives_the_evidence_of_its_driver() {
        for driver in DeviceDriver::ALL.iter().filter(|driver| !driver.is_operator()) {
            let sample = Sample { driver: Some(*driver), power: Power::Off, ..Sample::default() };
            assert_eq!(evidence_kind_of(&[sample]), driver.properties().evidence, "{driver:?}");
        }
    }
}
