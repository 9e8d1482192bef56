//! Whether a machine is the node's machine.

use pod_safety_transport::{Identity, Machine, MachineUuid};

/// Compares the identity of the Node object with that of the device. A serial number can only confirm: most are no
/// UUIDs, but virtual machines have their UUID there.
pub(super) fn compare(machine: &Machine, uuid: Option<&str>, serial: Option<&str>) -> Identity {
    let Some(expected) = MachineUuid::parse_unique(&machine.system_uuid) else { return Identity::Unknown };
    let read = |text: &str| Some((MachineUuid::parse_unique(text)?, text.trim().to_lowercase()));
    // A serial number counts only if the UUID is missing, and never contradicts.
    match uuid.and_then(read) {
        Some((found, _)) if found.is_same(expected) => Identity::Match,
        Some((_, found)) => Identity::Mismatch { found },
        None if serial.and_then(read).is_some_and(|(found, _)| found.is_same(expected)) => Identity::Match,
        None => Identity::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = "4c4c4544-0051-3610-8052-b4c04f4d3132";

    fn machine(system_uuid: &str) -> Machine {
        Machine { system_uuid: system_uuid.into(), ..Machine::default() }
    }

    #[test]
    fn case_blanks_and_byte_order_of_a_uuid_are_ignored() {
        let node = machine(NODE);
        for found in [
            NODE,
            "4C4C4544-0051-3610-8052-B4C04F4D3132",
            "44454c4c-5100-1036-8052-b4c04f4d3132",
            " 4c4c454400513610 8052b4c04f4d3132 ",
        ] {
            assert_eq!(compare(&node, Some(found), None), Identity::Match, "{found}");
        }
        let vmware = "VMware-4c 4c 45 44 00 51 36 10-80 52 b4 c0 4f 4d 31 32";
        assert_eq!(compare(&node, None, Some(vmware)), Identity::Match);
    }

    #[test]
    fn another_uuid_is_another_machine() {
        let found = "4c4c4544-0051-3610-8052-B4C04F4D3133";
        let mismatch = Identity::Mismatch { found: found.to_lowercase() };
        assert_eq!(compare(&machine(NODE), Some(found), Some("ABC123")), mismatch);
    }

    #[test]
    fn bug_a_serial_number_took_precedence_over_the_uuid_of_another_machine() {
        let found = "4c4c4544-0051-3610-8052-b4c04f4d3133";
        let vmware = "VMware-4c 4c 45 44 00 51 36 10-80 52 b4 c0 4f 4d 31 32";
        let mismatch = Identity::Mismatch { found: found.to_owned() };
        assert_eq!(compare(&machine(NODE), Some(found), Some(vmware)), mismatch);
    }

    #[test]
    fn a_missing_or_placeholder_uuid_is_unknown() {
        let unknown = |node: &str, uuid: Option<&str>, serial: Option<&str>| {
            assert_eq!(compare(&machine(node), uuid, serial), Identity::Unknown, "{node} {uuid:?} {serial:?}");
        };
        unknown("", Some(NODE), None);
        unknown(NODE, None, Some("ABC123"));
        unknown(NODE, Some(""), None);
        unknown(NODE, Some("not a uuid"), None);
        for everyone in [
            "00000000-0000-0000-0000-000000000000",
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "03000200-0400-0500-0006-000700080009",
            "00020003-0004-0005-0006-000700080009",
        ] {
            unknown(NODE, Some(everyone), None);
            unknown(everyone, Some(everyone), None);
        }
    }
}
