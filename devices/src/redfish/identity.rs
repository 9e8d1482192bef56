//! Whether a machine is the one that it is taken for.
//!
//! Firmware shows one UUID in two ways: the kubelet reads it from SMBIOS, where the first three groups have their bytes
//! the other way round, and not every controller and kernel turns them. Makers that forgot to set one ship many
//! machines with the same; such a UUID says nothing, neither match nor mismatch.

use pod_safety_transport::{Identity, Machine};

/// Sixteen bytes, as they are written.
type Uuid = [u8; 16];

/// Found on many boards: filled with ascending bytes, in both ways of writing.
const PLACEHOLDERS: [Uuid; 2] = [
    [0x03, 0x00, 0x02, 0x00, 0x04, 0x00, 0x05, 0x00, 0x00, 0x06, 0x00, 0x07, 0x00, 0x08, 0x00, 0x09],
    [0x00, 0x02, 0x00, 0x03, 0x00, 0x04, 0x00, 0x05, 0x00, 0x06, 0x00, 0x07, 0x00, 0x08, 0x00, 0x09],
];

/// Compares what the Node object says with what the device says. A serial number can only confirm: most are no UUIDs,
/// but virtual machines have theirs there.
pub(super) fn compare(machine: &Machine, uuid: Option<&str>, serial: Option<&str>) -> Identity {
    let Some(wanted) = parse(&machine.system_uuid) else { return Identity::Unknown };
    let same = |found: Uuid| found == wanted || turned(found) == wanted;
    let found = uuid.and_then(parse);
    if found.is_some_and(same) || serial.and_then(parse).is_some_and(same) {
        return Identity::Match;
    }
    match (found, uuid) {
        (Some(_), Some(uuid)) => Identity::Mismatch { found: uuid.trim().to_lowercase() },
        _ => Identity::Unknown,
    }
}

/// `None` for what is no UUID, and for one that many machines have.
fn parse(text: &str) -> Option<Uuid> {
    let digits = text.trim().strip_prefix("VMware-").unwrap_or(text.trim());
    let digits: Vec<u8> = digits.bytes().filter(|byte| !b"- ".contains(byte)).collect();
    let mut uuid = Uuid::default();
    if digits.len() != 2 * uuid.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    let empty = uuid.iter().all(|byte| *byte == 0) || uuid.iter().all(|byte| *byte == 0xff);
    (!empty && !PLACEHOLDERS.contains(&uuid)).then_some(uuid)
}

/// The first three groups with their bytes the other way round.
fn turned(mut uuid: Uuid) -> Uuid {
    for group in [0..4, 4..6, 6..8] {
        uuid[group].reverse();
    }
    uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = "4c4c4544-0051-3610-8052-b4c04f4d3132";

    fn of(system_uuid: &str) -> Machine {
        Machine { system_uuid: system_uuid.into(), ..Machine::default() }
    }

    #[test]
    fn case_blanks_and_the_order_of_bytes_do_not_matter() {
        let node = of(NODE);
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
        assert_eq!(compare(&of(NODE), Some(found), Some("ABC123")), mismatch);
    }

    #[test]
    fn what_says_nothing_is_unknown() {
        let unknown = |node: &str, uuid: Option<&str>, serial: Option<&str>| {
            assert_eq!(compare(&of(node), uuid, serial), Identity::Unknown, "{node} {uuid:?} {serial:?}");
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
