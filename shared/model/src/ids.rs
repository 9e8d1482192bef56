//! Identities. An object is identified by its UID; a name only locates it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// The UID of an object, exactly as the API server wrote it.
///
/// Nearly all are canonical UUIDs and take 16 bytes; mirror pods have a 32-digit hash and others may have any text,
/// so the text form is kept, too.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(Repr);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    Uuid([u8; 16]),
    Text(Box<str>),
}

/// Where a canonical UUID has its dashes.
const DASHES: [usize; 4] = [8, 13, 18, 23];

impl Uid {
    /// Keeps `text` as a UID. `None`: it is empty.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        Some(Self(parse_uuid(text).map_or_else(|| Repr::Text(text.into()), Repr::Uuid)))
    }
}

/// Parses only the canonical lower-case form, so that printing returns the same text.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let bytes = text.as_bytes();
    if bytes.len() != 36 {
        return None;
    }
    let mut out = [0_u8; 16];
    let mut digits = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if DASHES.contains(&at) {
            if byte != b'-' {
                return None;
            }
            continue;
        }
        let value = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        let slot = out.get_mut(digits / 2)?;
        *slot = (*slot << 4) | value;
        digits += 1;
    }
    Some(out)
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Text(text) => f.write_str(text),
            Repr::Uuid(bytes) => write_uuid(bytes, f),
        }
    }
}

fn write_uuid(bytes: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            f.write_str("-")?;
        }
        write!(f, "{byte:02x}")?;
    }
    Ok(())
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The boot of a machine, by `status.nodeInfo.bootID`. Only a UUID is accepted: Linux generates one at each boot.
/// Windows counts its boots, so machines of one image have equal numbers; such a boot counts as unknown, as a missing
/// one does.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootId(Option<[u8; 16]>);

impl BootId {
    /// Whether its kubelet reports no UUID.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        self.0.is_none()
    }

    /// Whether both are known and equal. Two unknown boots are not the same.
    #[must_use]
    pub fn is_known_same(self, other: Self) -> bool {
        self == other && !self.is_unknown()
    }

    /// Whether both are known and different.
    #[must_use]
    pub fn is_known_different(self, other: Self) -> bool {
        self != other && !self.is_unknown() && !other.is_unknown()
    }
}

impl From<&str> for BootId {
    fn from(text: &str) -> Self {
        Self(parse_uuid(text).filter(|bytes| *bytes != [0; 16]))
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |bytes| write_uuid(&bytes, f))
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The longest name that the API accepts.
const MAX_NAME_LENGTH: usize = 253;

/// Whether `text` is a name as RFC 1123 and the API allow it: lower-case letters,
/// digits, `-` and `.`, beginning and ending with a letter or digit.
#[must_use]
pub fn is_kubernetes_name(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    (1..=MAX_NAME_LENGTH).contains(&text.len())
        && text.bytes().all(legal)
        && !text.starts_with(['-', '.'])
        && !text.ends_with(['-', '.'])
}

/// The value of a flag is no name of an object.
#[derive(Debug, thiserror::Error)]
#[error("invalid value {value:?} for '--{flag}': not a Kubernetes name; use lower-case letters, digits, '-' and '.'")]
pub struct BadName {
    /// The flag.
    pub flag: &'static str,
    /// The value.
    pub value: String,
}

/// Reads the name that a flag has.
///
/// # Errors
/// It is no name.
pub fn parse_name(flag: &'static str, value: String) -> Result<String, BadName> {
    if is_kubernetes_name(&value) { Ok(value) } else { Err(BadName { flag, value }) }
}

/// Reads the names in a list; an empty item is none.
///
/// # Errors
/// An item is no name.
pub fn parse_names(flag: &'static str, list: Vec<String>) -> Result<BTreeSet<String>, BadName> {
    let named = list.into_iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    named.map(|name| parse_name(flag, name)).collect()
}

/// Reads a name that may be missing. An empty value counts as not given, as for a variable that is set to nothing.
///
/// # Errors
/// It is no name.
pub fn parse_optional_name(flag: &'static str, name: Option<String>) -> Result<Option<Arc<str>>, BadName> {
    let name = name.filter(|name| !name.is_empty());
    name.map(|name| parse_name(flag, name).map(Arc::from)).transpose()
}

/// A resourceVersion. Decimal and comparable since Kubernetes 1.35 (KEP-5504), and decimal in practice before; any
/// other text makes its object undecodable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rv(u64);

/// A resourceVersion that is not a positive decimal number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("resourceVersion {0:?} is not a positive decimal number")]
pub struct BadRv(pub String);

impl std::str::FromStr for Rv {
    type Err = BadRv;
    fn from_str(text: &str) -> Result<Self, BadRv> {
        match text.parse::<u64>() {
            // A leading zero or sign would not print back to the same text.
            Ok(number) if number > 0 && !text.starts_with(['0', '+']) => Ok(Self(number)),
            _ => Err(BadRv(text.to_owned())),
        }
    }
}

impl fmt::Display for Rv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Rv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Rv {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The identity of a pod: names can be used again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct PodKey {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
    /// The UID.
    pub uid: Uid,
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_uid_is_rejected() {
        assert_eq!(Uid::new(""), None);
    }

    #[test]
    fn a_uuid_in_capitals_is_another_uid() {
        let lower = Uid::new("0b5e2f3a-0000-4000-8000-00000000000a").unwrap();
        let upper = Uid::new("0B5E2F3A-0000-4000-8000-00000000000A").unwrap();
        assert_ne!(lower, upper);
        assert_eq!(upper.to_string(), "0B5E2F3A-0000-4000-8000-00000000000A");
    }

    /// Windows counts its boots: two machines of one image counted as the same boot.
    #[test]
    fn bug_a_boot_counter_was_accepted_as_a_boot_id() {
        let (one, two) = ("b0000000-0000-4000-8000-000000000001", "b0000000-0000-4000-8000-000000000002");
        assert_eq!(BootId::from(one).to_string(), one);
        for (text, counts) in [(one, true), (two, true), ("5", false), ("", false), ("boot-1", false)] {
            assert_eq!(BootId::from(text).is_unknown(), !counts, "{text:?}");
            assert_eq!(BootId::from(text).is_known_same(text.into()), counts, "{text:?}");
            assert_eq!(BootId::from(text).is_known_different(one.into()), counts && text != one, "{text:?}");
        }
        let upper = "B0000000-0000-4000-8000-00000000000A";
        for text in [upper, "00000000-0000-0000-0000-000000000000"] {
            assert!(BootId::from(text).is_unknown(), "{text}");
        }
    }

    #[test]
    fn a_name_that_changes_the_meaning_of_a_url_is_rejected() {
        for good in ["a", "web-0", "ip-10-0-0-1.eu.example.com", "0"] {
            assert!(is_kubernetes_name(good), "{good}");
        }
        for bad in ["", "a/b", "a?b", "a#b", "..", "-a", "a-", "A", "a b", "a%2Fb", &"a".repeat(254)] {
            assert!(!is_kubernetes_name(bad), "{bad}");
        }
    }

    #[test]
    fn resource_versions_are_positive_decimals() {
        for bad in ["", "0", "01", "+1", "-1", "1a", " 1", "99999999999999999999999"] {
            assert!(bad.parse::<Rv>().is_err(), "{bad:?}");
        }
        assert_eq!("10".parse::<Rv>().unwrap().to_string(), "10");
    }

    proptest! {
        #[test]
        fn a_uid_prints_the_text_that_was_parsed(text in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|.{1,40}") {
            prop_assert_eq!(Uid::new(&text).unwrap().to_string(), text);
        }
    }
}
