//! What devices say, made fit for logs, statuses and errors.
//!
//! Duty: take every secret out, in the forms in which programs repeat them, and leave one short line.
//!
//! Invariants: secrets go before anything is cut, so that no half of one is left. A parameter whose name says that it
//! is secret is treated as one, whether it came from a Secret or not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pod_safety_transport::{Answer, DeviceError, MAX_OUTPUT_BYTES, Value, is_secret_name};
use zeroize::Zeroizing;

/// Stands where a secret stood.
const REDACTED: &str = "[secret]";

/// Takes the secrets of one order out of what its device says.
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
            // The header of Basic authentication, as HTTP libraries print it when they are told to be talkative.
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

    /// One line without secrets, its end if it is too long: what went wrong stands there. `cut` says that `bytes` are
    /// only the beginning of what was said.
    pub(crate) fn clean(&self, bytes: &[u8], cut: bool) -> String {
        let text = Zeroizing::new(String::from_utf8_lossy(bytes).into_owned());
        let text = self.without_partial_secret(&text, cut);
        let line = Zeroizing::new(one_line(&self.without_secrets(&text)));
        // Once more: where blanks were joined, a secret may stand that did not before.
        last(&self.without_secrets(&line), MAX_OUTPUT_BYTES)
    }

    fn without_secrets(&self, text: &str) -> Zeroizing<String> {
        let mut text = Zeroizing::new(text.to_owned());
        for needle in &self.needles {
            text = Zeroizing::new(text.replace(needle.as_str(), REDACTED));
        }
        text
    }

    /// Cleans all texts of an answer or an error.
    pub(crate) fn redact_answer(&self, answer: Result<Answer, DeviceError>) -> Result<Answer, DeviceError> {
        let clean = |text: String| self.clean(text.as_bytes(), false);
        match answer {
            Ok(answer) => Ok(Answer { said: clean(answer.said), ..answer }),
            Err(error) => Err(redact_error(error, clean)),
        }
    }

    /// The last bytes of a cut text may be the beginning of a secret.
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
        DeviceError::AgentsUnavailable { socket, why } => {
            DeviceError::AgentsUnavailable { socket, why: clean(why) }
        }
        DeviceError::Metadata { agent, why } => {
            DeviceError::Metadata { agent: clean(agent), why: clean(why) }
        }
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

/// Whether nobody may read this parameter.
pub(crate) fn is_secret(name: &str, value: &Value) -> bool {
    matches!(value, Value::Secret(_)) || is_secret_name(name)
}

/// How programs write a text: as it is, quoted for a shell, escaped for a string, a URL, a page, a header.
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

/// Within the quotes of a JSON string.
fn json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default().to_owned()
}

/// As Python's `json` writes it: a letter beyond ASCII as one or two numbers of UTF-16.
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

/// The other way to write percent encoding.
fn small_hex(url: &str) -> String {
    let mut left = 0;
    let small = |letter: char| {
        left = if letter == '%' { 3 } else { usize::saturating_sub(left, 1) };
        if left > 0 { letter.to_ascii_lowercase() } else { letter }
    };
    url.chars().map(small).collect()
}

trait EscapeUnicode {
    fn escape_unicode_beyond_ascii(&self) -> String;
}

impl EscapeUnicode for String {
    /// As Python prints text where the locale is C.
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

/// Lines joined by `; `, control characters as blanks: nobody's log is to be forged or coloured.
fn one_line(text: &str) -> String {
    let mut lines = text.lines().map(|line| {
        let shown: String =
            line.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
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
    fn every_form_of_a_secret_goes() {
        let secret = "p'a\"s\\s w<ö>/&%";
        let redactor = redactor(secret);
        for form in encodings_of(secret) {
            let said = redactor.clean(format!("before {form} after").as_bytes(), false);
            assert_eq!(said, "before [secret] after", "{form}");
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
    fn a_secret_at_the_cut_leaves_no_half() {
        let redactor = redactor("TOPSECRET");
        let said = redactor.clean(b"user admin, the password is this: TOPSEC", true);
        assert!(said.starts_with("user admin") && !said.contains("TOP"), "{said}");
        let long = format!("{}TOPSECRET{}", "x".repeat(50), "y".repeat(MAX_OUTPUT_BYTES - 4));
        let said = redactor.clean(long.as_bytes(), false);
        assert!(!said.contains("SECRET") && said.len() <= MAX_OUTPUT_BYTES, "{said}");
    }

    #[test]
    fn a_plain_value_with_a_secret_name_goes_too() {
        let plain = |text: &str| Value::Plain(text.to_owned());
        let parameters = BTreeMap::from([
            ("snmp_priv_passwd".to_owned(), plain("one")),
            ("secret_key".to_owned(), plain("two")),
            ("plug".to_owned(), plain("three")),
        ]);
        assert_eq!(Redactor::new(&parameters).clean(b"one two three", false), "[secret] [secret] three");
    }

    #[test]
    fn no_line_ends_and_no_colours() {
        let redactor = redactor("x!");
        assert_eq!(
            redactor.clean(b"\n\x1b[31mfirst\r\n\n  second\tthird \x07\n", false),
            "[31mfirst; second third"
        );
        assert_eq!(redactor.clean(b"\xff\xfe", false), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_secret_across_lines_or_blanks_is_found_before_they_are_joined() {
        let redactor = redactor("a  b");
        assert_eq!(redactor.clean(b"is a  b here", false), "is [secret] here");
    }
}
