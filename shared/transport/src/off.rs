//! For which devices "off" means that the memory of the machine is lost.
//!
//! The table is closed: it was read in the agents of fence-agents 4.12.1 (`get_power_status` of each). Agents of
//! hypervisors report a machine off that is suspended and continues later, and some agents report every state off
//! that they do not recognize, or take the state of an outlet from another line. The "off" of such a device, and of an
//! agent that is not in the table, counts only with a second fact: the device reported the machine on when the order
//! began.

use super::Driver;

/// The meaning of an agent's "off".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OffMeaning {
    /// The machine has no power, or was stopped: its memory is lost.
    Gone,
    /// As `Gone`, if the operator ensures that the instance does not hibernate (docs/fence-devices.md).
    GoneUnlessHibernated,
    /// Another state is reported off, too.
    Also(&'static str),
}

use OffMeaning::{Also, Gone, GoneUnlessHibernated};

const SUSPENDED: &str = "a machine off that is suspended, with its memory on disk";
const UNCLEAR: &str = "every state off that it does not recognize";
const MISREAD: &str = "an outlet off whose line it misreads";

/// By agent, as its `get_power_status` is implemented.
const AGENTS: &[(&str, OffMeaning)] = &[
    ("fence_aliyun", GoneUnlessHibernated),
    ("fence_alom", Gone),
    ("fence_amt", Also("a machine off that sleeps, with its memory powered (S3)")),
    // The outlet `1- DB OFFICE  ON`: it takes the state from the name.
    ("fence_apc", Also(MISREAD)),
    // An outlet that is unknown, is going off after a delay, or is missing from the table (SNMP 2c and 3).
    ("fence_apc_snmp", Also(UNCLEAR)),
    ("fence_aws", GoneUnlessHibernated),
    ("fence_azure_arm", GoneUnlessHibernated),
    ("fence_bladecenter", Gone),
    ("fence_cdu", Gone),
    ("fence_cisco_ucs", Also(UNCLEAR)),
    // It reads the lines of the outlets 10 to 16 as those of outlet 1.
    ("fence_cyberpower_ssh", Also(MISREAD)),
    ("fence_docker", Gone),
    ("fence_drac", Gone),
    ("fence_drac5", Gone),
    ("fence_dummy", Gone),
    ("fence_eaton_snmp", Gone),
    ("fence_ecloud", Also(UNCLEAR)),
    ("fence_emerson", Also(UNCLEAR)),
    ("fence_eps", Gone),
    ("fence_gce", Gone),
    ("fence_hds_cb", Gone),
    ("fence_hpblade", Gone),
    ("fence_ibm_powervs", Gone),
    ("fence_ibm_vpc", Gone),
    ("fence_ibmblade", Also(UNCLEAR)),
    ("fence_ibmz", Also(UNCLEAR)),
    ("fence_idrac", Gone),
    ("fence_ilo", Gone),
    ("fence_ilo2", Gone),
    ("fence_ilo3", Gone),
    // An `EnabledState` that does not begin with `enabled`, or of which it has received nothing yet.
    ("fence_ilo3_ssh", Also(UNCLEAR)),
    ("fence_ilo4", Gone),
    ("fence_ilo4_ssh", Also(UNCLEAR)),
    ("fence_ilo5", Gone),
    ("fence_ilo5_ssh", Also(UNCLEAR)),
    ("fence_ilo_moonshot", Gone),
    ("fence_ilo_mp", Also(UNCLEAR)),
    ("fence_ilo_ssh", Also(UNCLEAR)),
    ("fence_imm", Gone),
    ("fence_intelmodular", Also(UNCLEAR)),
    ("fence_ipdu", Also(UNCLEAR)),
    ("fence_ipmilan", Gone),
    ("fence_ipmilanplus", Gone),
    // It reads the database of Ironic, which is not synchronised in maintenance, or without a conductor.
    ("fence_ironic", Also("a machine off until Ironic reads its power again")),
    // Off without a VirtualMachineInstance, whose pod may be gone while its process runs.
    ("fence_kubevirt", Also("a machine off whose VirtualMachineInstance is gone")),
    ("fence_ldom", Gone),
    ("fence_lindypdu", Gone),
    ("fence_lpar", Also(UNCLEAR)),
    ("fence_netio", Gone),
    ("fence_openstack", Gone),
    ("fence_powerman", Gone),
    ("fence_pve", Also(SUSPENDED)),
    ("fence_raritan", Gone),
    // It reads the state of an outlet with a blank in its name as that of the outlet before.
    ("fence_raritan_px3", Also(MISREAD)),
    ("fence_redfish", Also(STALE)),
    ("fence_rhevm", Also(UNCLEAR)),
    ("fence_rsa", Gone),
    ("fence_rsb", Gone),
    ("fence_skalar", Also("a machine off that is suspended, is starting, has failed, or whose host is offline")),
    ("fence_tripplite_snmp", Also(UNCLEAR)),
    ("fence_vbox", Also(SUSPENDED)),
    // `crashed`, `pmsuspended`, `in shutdown`, a saved domain, and each line that it does not recognize.
    ("fence_virsh", Also("every state off but the running ones, suspended and crashed among them")),
    ("fence_vmware", Also(SUSPENDED)),
    ("fence_vmware_rest", Also(SUSPENDED)),
    ("fence_vmware_soap", Also(SUSPENDED)),
    ("fence_vmware_vcloud", Also(SUSPENDED)),
    // A group of plugs of which none is exactly `on`.
    ("fence_wti", Also(UNCLEAR)),
    // Only `Halted` is off.
    ("fence_xenapi", Gone),
    ("fence_zvmip", Also("a machine off that it does not know")),
];

const STALE: &str = "a machine off of whose power it knows nothing since it was reset";
const NOT_LISTED: &str = "other states off for all that is known";

/// Which other state this device reports off: then its "off" needs a second fact. `None`: its "off" means that the
/// memory is lost.
#[must_use]
pub fn off_ambiguity(driver: &Driver) -> Option<&'static str> {
    let Driver::Agent(agent) = driver else { return Some(STALE) };
    match AGENTS.iter().find(|(name, _)| *name == &**agent) {
        Some((_, Gone | GoneUnlessHibernated)) => None,
        Some((_, Also(what))) => Some(what),
        None => Some(NOT_LISTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ambiguity(agent: &str) -> Option<&'static str> {
        off_ambiguity(&Driver::Agent(agent.into()))
    }

    #[test]
    fn bug_a_suspended_machine_was_off_for_agents_of_hypervisors() {
        for agent in ["fence_pve", "fence_virsh", "fence_vbox", "fence_vmware_rest", "fence_vmware_soap"] {
            assert!(ambiguity(agent).is_some(), "{agent}");
        }
        for agent in ["fence_amt", "fence_lpar", "fence_ibmz", "fence_zvmip", "fence_redfish", "fence_ironic"] {
            assert!(ambiguity(agent).is_some(), "{agent}");
        }
        for agent in ["fence_ipmilan", "fence_eaton_snmp", "fence_idrac", "fence_xenapi", "fence_docker"] {
            assert_eq!(ambiguity(agent), None, "{agent}");
        }
        for agent in ["fence_xvm", "fence_virt", "fence_acme", "", "FENCE_IPMILAN"] {
            assert_eq!(ambiguity(agent), Some(NOT_LISTED), "{agent}: what is not in the table");
        }
        assert_eq!(off_ambiguity(&Driver::Redfish), Some(STALE));
    }

    /// Their agents compare with `on`, or misread a line: an unknown, missing or pending state proved off.
    #[test]
    fn bug_power_switches_and_consoles_called_an_unknown_state_off() {
        let consoles = ["ilo3_ssh", "ilo4_ssh", "ilo5_ssh", "ilo_ssh", "ilo_mp", "ecloud", "skalar"];
        let by_snmp = ["apc_snmp", "emerson", "ibmblade", "ipdu", "tripplite_snmp"];
        let misread = ["apc", "cyberpower_ssh", "raritan_px3", "wti"];
        for agent in consoles.iter().chain(&by_snmp).chain(&misread) {
            assert!(ambiguity(&format!("fence_{agent}")).is_some(), "{agent}");
        }
        for agent in ["fence_eaton_snmp", "fence_lindypdu", "fence_cdu", "fence_drac5", "fence_ilo"] {
            assert_eq!(ambiguity(agent), None, "{agent} compares with off, too");
        }
    }

    #[test]
    fn each_agent_has_one_row_and_docs_name_the_ambiguous_ones() {
        assert!(AGENTS.is_sorted_by(|(one, _), (other, _)| one < other));
        let page = include_str!("../../../docs/fence-devices.md");
        for (agent, off) in AGENTS {
            let named = page.contains(&format!("`{agent}`"));
            assert!(named || !matches!(off, Also(_) | GoneUnlessHibernated), "docs do not name {agent}");
        }
    }
}
