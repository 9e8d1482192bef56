//! The UUID by which firmware identifies a machine.
//!
//! Firmware shows one UUID in two byte orders: the kubelet reads it from SMBIOS, where the bytes of the first three
//! groups are swapped, and not every controller and kernel swaps them back. Makers that did not set one ship many
//! machines with the same UUID; such a UUID is neither a match nor a mismatch.

use std::fmt;

/// Sixteen bytes, in the order of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineUuid([u8; 16]);

/// Placeholders on many boards: ascending bytes, in both byte orders.
const PLACEHOLDERS: [[u8; 16]; 2] = [
    [0x03, 0x00, 0x02, 0x00, 0x04, 0x00, 0x05, 0x00, 0x00, 0x06, 0x00, 0x07, 0x00, 0x08, 0x00, 0x09],
    [0x00, 0x02, 0x00, 0x03, 0x00, 0x04, 0x00, 0x05, 0x00, 0x06, 0x00, 0x07, 0x00, 0x08, 0x00, 0x09],
];

impl MachineUuid {
    /// `None` if the text is no UUID. Case, dashes and blanks are ignored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.trim().strip_prefix("VMware-").unwrap_or(text.trim());
        let digits: Vec<u8> = digits.bytes().filter(|byte| !b"- ".contains(byte)).collect();
        let mut uuid = [0; 16];
        if digits.len() != 2 * uuid.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(uuid))
    }

    /// The UUID of one machine: `None` if the text is no UUID, or a placeholder.
    #[must_use]
    pub fn parse_unique(text: &str) -> Option<Self> {
        Self::parse(text).filter(|Self(uuid)| {
            let empty = uuid.iter().all(|byte| *byte == 0) || uuid.iter().all(|byte| *byte == 0xff);
            !empty && !PLACEHOLDERS.contains(uuid)
        })
    }

    /// Whether both identify one machine, also if the bytes of the first three groups of one of them are swapped.
    #[must_use]
    pub fn is_same(self, other: Self) -> bool {
        self == other || self.byte_swapped() == other
    }

    fn byte_swapped(self) -> Self {
        let Self(mut uuid) = self;
        for group in [0..4, 4..6, 6..8] {
            uuid[group].reverse();
        }
        Self(uuid)
    }
}

/// With dashes, in lower case.
impl fmt::Display for MachineUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if [4, 6, 8, 10].contains(&index) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_spelling_of_a_uuid_is_parsed_and_written_in_one_way() {
        let one = "4c4c4544-0051-3610-8052-b4c04f4d3132";
        for spelling in [
            one,
            "4C4C4544-0051-3610-8052-B4C04F4D3132",
            " 4c4c454400513610 8052b4c04f4d3132 ",
            "VMware-4c 4c 45 44 00 51 36 10-80 52 b4 c0 4f 4d 31 32",
        ] {
            assert_eq!(MachineUuid::parse(spelling).unwrap().to_string(), one, "{spelling}");
        }
        let read = |text: &str| MachineUuid::parse(text).unwrap();
        assert!(read(one).is_same(read("44454c4c-5100-1036-8052-b4c04f4d3132")));
        assert!(!read(one).is_same(read("4c4c4544-0051-3610-8052-b4c04f4d3133")));
        for wrong in ["", "uuid-1", "4c4c4544-0051-3610-8052-b4c04f4d313", "4c4c4544-0051-3610-8052-b4c04f4d313g"] {
            assert_eq!(MachineUuid::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_placeholder_uuid_identifies_no_machine() {
        for everyone in [
            "00000000-0000-0000-0000-000000000000",
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "03000200-0400-0500-0006-000700080009",
            "00020003-0004-0005-0006-000700080009",
        ] {
            assert!(MachineUuid::parse(everyone).is_some(), "{everyone}");
            assert_eq!(MachineUuid::parse_unique(everyone), None, "{everyone}");
        }
    }
}
