//! The output of devices, prepared for logs, statuses and errors.
//!
//! Duty: remove every secret, in all encodings in which programs repeat it, and keep one short line.
//!
//! Invariants: secrets are removed before the text is truncated, so that no part of one is left. A parameter whose
//! name is that of a secret is treated as one, whether it came from a Secret or not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pod_safety_transport::{Answer, DeviceError, MAX_OUTPUT_BYTES, Value, is_secret_name};
use zeroize::Zeroizing;

/// The replacement of a secret.
const REDACTED: &str = "[secret]";

/// Removes the secrets of one order from the output of its device.
pub(crate) struct Redactor {
    /// Longest first: a short secret may be part of a long one.
    needles: Vec<Zeroizing<String>>,
}

impl Redactor {
    pub(crate) fn new(parameters: &BTreeMap<String, Value>) -> Self {
        let mut forms = BTreeSet::new();
        for (name, value) in parameters.iter().filter(|(name, value)| is_secret(name, value)) {
            let secret = value.reveal();
            forms.extend(encodings_of(secret));
            // The header of Basic authentication, as HTTP libraries print it in verbose mode.
            if let Some(username) = parameters.get("username").filter(|_| name != "username") {
                let pair = Zeroizing::new(format!("{}:{secret}", username.reveal()));
                forms.insert(BASE64.encode(pair.as_bytes()));
            }
        }
        forms.remove("");
        let mut needles: Vec<_> = forms.into_iter().map(Zeroizing::new).collect();
        needles.sort_by_key(|needle| std::cmp::Reverse(needle.len()));
        Self { needles }
    }

    /// One line without secrets. If it is too long, its end is kept, which contains the error. `cut`: `bytes` are
    /// only the beginning of the output.
    pub(crate) fn clean(&self, bytes: &[u8], cut: bool) -> String {
        let text = Zeroizing::new(String::from_utf8_lossy(bytes).into_owned());
        let text = self.without_partial_secret(&text, cut);
        let line = Zeroizing::new(one_line(&self.without_secrets(&text)));
        // Once more: joining blanks may have produced a secret.
        last(&self.without_secrets(&line), MAX_OUTPUT_BYTES)
    }

    fn without_secrets(&self, text: &str) -> Zeroizing<String> {
        let mut text = Zeroizing::new(text.to_owned());
        for needle in &self.needles {
            text = Zeroizing::new(text.replace(needle.as_str(), REDACTED));
        }
        text
    }

    /// Removes the secrets from all texts of an answer or an error.
    pub(crate) fn redact_answer(&self, answer: Result<Answer, DeviceError>) -> Result<Answer, DeviceError> {
        let clean = |text: String| self.clean(text.as_bytes(), false);
        match answer {
            Ok(answer) => Ok(Answer { said: clean(answer.said), ..answer }),
            Err(error) => Err(redact_error(error, clean)),
        }
    }

    /// The last bytes of a truncated text may be the beginning of a secret.
    fn without_partial_secret(&self, text: &str, cut: bool) -> Zeroizing<String> {
        let longest = self.needles.first().map_or(0, |needle| needle.len());
        let most = if cut { text.len().saturating_sub(longest) } else { text.len() };
        Zeroizing::new(text[..text.floor_char_boundary(most)].to_owned())
    }
}

fn redact_error(error: DeviceError, clean: impl Fn(String) -> String) -> DeviceError {
    match error {
        DeviceError::NoAgent { agent, searched } => {
            DeviceError::NoAgent { agent: clean(agent), searched: clean(searched) }
        }
        DeviceError::AgentsUnavailable { socket, why } => DeviceError::AgentsUnavailable { socket, why: clean(why) },
        DeviceError::Metadata { agent, why } => DeviceError::Metadata { agent: clean(agent), why: clean(why) },
        DeviceError::Parameter { name, why } => DeviceError::Parameter { name: clean(name), why: clean(why) },
        DeviceError::Login { said } => DeviceError::Login { said: clean(said) },
        DeviceError::Unreachable { said } => DeviceError::Unreachable { said: clean(said) },
        DeviceError::Tls { said } => DeviceError::Tls { said: clean(said) },
        DeviceError::Expired { said } => DeviceError::Expired { said: clean(said) },
        DeviceError::Throttled { said } => DeviceError::Throttled { said: clean(said) },
        DeviceError::Refused { said } => DeviceError::Refused { said: clean(said) },
        DeviceError::TimedOut { after } => DeviceError::TimedOut { after },
        DeviceError::Failed { said } => DeviceError::Failed { said: clean(said) },
        DeviceError::Garbage { said } => DeviceError::Garbage { said: clean(said) },
    }
}

/// Whether this parameter is secret.
pub(crate) fn is_secret(name: &str, value: &Value) -> bool {
    matches!(value, Value::Secret(_)) || is_secret_name(name)
}

/// How programs print a text: unchanged, quoted for a shell, escaped for a string, a URL, a page, a header.
fn encodings_of(secret: &str) -> Vec<String> {
    let escaped = secret.replace('\\', "\\\\");
    let page = secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let url = percent(secret, false);
    let json = json(secret);
    vec![
        secret.to_owned(),
        secret.replace('\'', "'\"'\"'"),
        secret.replace('\'', "'\\''"),
        escaped.clone(),
        escaped.replace('\'', "\\'"),
        escaped.replace('"', "\\\""),
        escaped.replace('\'', "\\'").escape_unicode_beyond_ascii(),
        page.replace('"', "&quot;").replace('\'', "&#x27;"),
        page,
        url.replace("%20", "+"),
        small_hex(&url),
        url,
        percent(secret, true),
        BASE64.encode(secret),
        escape_non_ascii(&json),
        json,
    ]
}

/// The text within the quotes of a JSON string.
fn json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default().to_owned()
}

/// As Python's `json` encodes it: a character beyond ASCII as one or two UTF-16 units.
fn escape_non_ascii(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len()), |mut text, letter| {
        if letter.is_ascii() {
            text.push(letter);
        } else {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
        text
    })
}

/// Percent encoding; a slash is kept where it is part of a path.
fn percent(text: &str, slash: bool) -> String {
    let mut encoded = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || (slash && byte == b'/');
        if plain {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Percent encoding with lower-case digits.
fn small_hex(url: &str) -> String {
    let mut remaining = 0;
    let small = |letter: char| {
        remaining = if letter == '%' { 3 } else { usize::saturating_sub(remaining, 1) };
        if remaining > 0 { letter.to_ascii_lowercase() } else { letter }
    };
    url.chars().map(small).collect()
}

trait EscapeUnicode {
    fn escape_unicode_beyond_ascii(&self) -> String;
}

impl EscapeUnicode for String {
    /// As Python prints text in the locale C.
    fn escape_unicode_beyond_ascii(&self) -> String {
        self.chars().fold(Self::with_capacity(self.len()), |mut text, letter| {
            let code = u32::from(letter);
            // Writing to a String cannot fail.
            let _ = match code {
                0..=0x7f => write!(text, "{letter}"),
                0x80..=0xff => write!(text, "\\x{code:02x}"),
                0x100..=0xffff => write!(text, "\\u{code:04x}"),
                _ => write!(text, "\\U{code:08x}"),
            };
            text
        })
    }
}

/// Joins lines by `; ` and replaces control characters by blanks: no output can forge or colour a log.
fn one_line(text: &str) -> String {
    let mut lines = text.lines().map(|line| {
        let shown: String = line.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        shown.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    let mut joined = String::new();
    for line in lines.by_ref().filter(|line| !line.is_empty()) {
        if !joined.is_empty() {
            joined.push_str("; ");
        }
        joined.push_str(&line);
    }
    joined
}

/// The end of `text`, at most `most` bytes.
fn last(text: &str, most: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= most {
        return text.to_owned();
    }
    let from = text.ceil_char_boundary(text.len() - (most - MARK.len()));
    format!("{MARK}{}", &text[from..])
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;
    use pod_safety_transport::Secret;

    fn redactor(secret: &str) -> Redactor {
        let password = Value::Secret(Secret::new(secret.to_owned()));
        let name = Value::Plain("admin".to_owned());
        Redactor::new(&BTreeMap::from([("password".to_owned(), password), ("username".to_owned(), name)]))
    }

    #[test]
    fn every_encoding_of_a_secret_is_removed() {
        let secret = "p'a\"s\\s w<ö>/&%";
        let redactor = redactor(secret);
        for form in encodings_of(secret) {
            let line = redactor.clean(format!("before {form} after").as_bytes(), false);
            assert_eq!(line, "before [secret] after", "{form}");
        }
        let basic = BASE64.encode(format!("admin:{secret}"));
        assert_eq!(
            redactor.clean(format!("Authorization: Basic {basic}").as_bytes(), false),
            "Authorization: Basic [secret]"
        );
    }

    #[test]
    fn bug_a_secret_that_was_written_as_json_was_left() {
        let redactor = redactor("pö😀\t\"");
        for form in [r#"pö😀\t\""#, r#"p\u00f6\ud83d\ude00\t\""#] {
            assert_eq!(redactor.clean(format!("a {form} b").as_bytes(), false), "a [secret] b", "{form}");
        }
    }

    #[test]
    fn bug_a_secret_arose_where_blanks_were_joined() {
        assert_eq!(redactor("two words").clean(b"is two \x07 words here", false), "is [secret] here");
    }

    #[test]
    fn a_truncated_secret_is_removed() {
        let redactor = redactor("TOPSECRET");
        let line = redactor.clean(b"user admin, the password is this: TOPSEC", true);
        assert!(line.starts_with("user admin") && !line.contains("TOP"), "{line}");
        let long = format!("{}TOPSECRET{}", "x".repeat(50), "y".repeat(MAX_OUTPUT_BYTES - 4));
        let line = redactor.clean(long.as_bytes(), false);
        assert!(!line.contains("SECRET") && line.len() <= MAX_OUTPUT_BYTES, "{line}");
    }

    #[test]
    fn a_plain_value_with_a_secret_name_is_removed() {
        let plain = |text: &str| Value::Plain(text.to_owned());
        let parameters = BTreeMap::from([
            ("snmp_priv_passwd".to_owned(), plain("one")),
            ("secret_key".to_owned(), plain("two")),
            ("plug".to_owned(), plain("three")),
        ]);
        assert_eq!(Redactor::new(&parameters).clean(b"one two three", false), "[secret] [secret] three");
    }

    #[test]
    fn line_ends_and_colours_are_removed() {
        let redactor = redactor("x!");
        assert_eq!(redactor.clean(b"\n\x1b[31mfirst\r\n\n  second\tthird \x07\n", false), "[31mfirst; second third");
        assert_eq!(redactor.clean(b"\xff\xfe", false), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_secret_across_lines_or_blanks_is_found_before_they_are_joined() {
        let redactor = redactor("a  b");
        assert_eq!(redactor.clean(b"is a  b here", false), "is [secret] here");
    }
}
