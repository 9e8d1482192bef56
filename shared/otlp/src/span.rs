//! A completed span.

use jiff::Timestamp;

/// Texts of the cluster are truncated to this many bytes: a message of a device may have thousands.
pub const MAX_TEXT_LENGTH: usize = 512;

/// The id of a trace: sixteen bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceId(u128);

/// The id of a span within its trace: eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpanId(u64);

impl TraceId {
    /// The trace id that every process derives from these parts.
    #[must_use]
    pub fn from_parts(parts: &[&str]) -> Self {
        // All zeros is not a valid id.
        Self(digest(parts).max(1))
    }

    /// The bytes in OTLP.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The id of the span that these parts identify in this trace.
    #[must_use]
    pub fn span(self, parts: &[&str]) -> SpanId {
        let own = self.to_string();
        let all: Vec<&str> = [own.as_str()].into_iter().chain(parts.iter().copied()).collect();
        let digest = digest(&all);
        let folded = u64::try_from((digest >> 64) ^ (digest & u128::from(u64::MAX))).unwrap_or(1);
        SpanId(folded.max(1))
    }
}

impl std::fmt::Display for TraceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl SpanId {
    /// The bytes in OTLP.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

/// FNV-1a of 128 bits: it distinguishes names, and is not secret. Each part ends with a byte that no text contains.
fn digest(parts: &[&str]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// Texts.
    Texts(Vec<String>),
    /// A number.
    Number(i64),
}

/// An attribute of a span, or of an event of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its key, by OpenTelemetry's semantic conventions where they have one.
    pub key: &'static str,
    /// Its value.
    pub value: Value,
}

impl Attribute {
    /// A text of the cluster, truncated and without control characters.
    #[must_use]
    pub fn text(key: &'static str, value: &str) -> Self {
        Self { key, value: Value::Text(sanitize_text(value)) }
    }

    /// Texts of the cluster, each truncated and without control characters.
    #[must_use]
    pub fn texts<'a>(key: &'static str, values: impl Iterator<Item = &'a str>) -> Self {
        Self { key, value: Value::Texts(values.map(sanitize_text).collect()) }
    }

    /// A number.
    #[must_use]
    pub const fn number(key: &'static str, value: i64) -> Self {
        Self { key, value: Value::Number(value) }
    }
}

/// Sanitizes a text of the cluster for export: one line, without control characters and bidirectional marks, and not
/// longer than [`MAX_TEXT_LENGTH`] bytes.
#[must_use]
pub fn sanitize_text(text: &str) -> String {
    let mut clean = String::with_capacity(text.len().min(MAX_TEXT_LENGTH));
    for letter in text.chars() {
        let letter = if is_control(letter) { char::REPLACEMENT_CHARACTER } else { letter };
        if clean.len() + letter.len_utf8() > MAX_TEXT_LENGTH - '…'.len_utf8() {
            clean.push('…');
            break;
        }
        clean.push(letter);
    }
    clean
}

const fn is_control(letter: char) -> bool {
    matches!(letter, '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// An event of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanEvent {
    /// When it happened.
    pub at: Timestamp,
    /// Its name.
    pub name: &'static str,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
}

/// A completed span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its trace.
    pub trace: TraceId,
    /// Its id.
    pub id: SpanId,
    /// The parent span; `None`: it is the root.
    pub parent: Option<SpanId>,
    /// Its name, of a fixed set.
    pub name: &'static str,
    /// Its start.
    pub start: Timestamp,
    /// Its end.
    pub end: Timestamp,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
    /// Its events.
    pub events: Vec<SpanEvent>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_stable_and_differ_for_different_parts() {
        let trace = TraceId::from_parts(&["uid", "boot"]);
        assert_eq!(trace.to_string(), "cd943225530668707e2d82ac5c362acf");
        assert_eq!(trace, TraceId::from_parts(&["uid", "boot"]));
        let others = [
            TraceId::from_parts(&["uidb", "oot"]),
            TraceId::from_parts(&["uid", "boot", ""]),
            TraceId::from_parts(&[]),
        ];
        assert!(others.iter().all(|other| *other != trace), "{others:?}");
        let span = trace.span(&["order", "1"]);
        assert_eq!(span, trace.span(&["order", "1"]));
        assert_ne!(span, trace.span(&["order", "11"]));
        assert_ne!(span, others[0].span(&["order", "1"]));
    }

    #[test]
    fn attack_a_text_of_the_cluster_is_truncated_and_sanitized() {
        assert_eq!(sanitize_text("a\n\u{1b}[2J\u{202e}b\u{0}"), "a\u{fffd}\u{fffd}[2J\u{fffd}b\u{fffd}");
        for long in ["x".repeat(100_000), "é".repeat(100_000), "\u{0}".repeat(100_000)] {
            let cut = sanitize_text(&long);
            assert!(cut.len() <= MAX_TEXT_LENGTH && cut.ends_with('…'), "{} bytes", cut.len());
        }
        assert_eq!(sanitize_text("worker-1"), "worker-1");
    }
}
