//! Fuzz target: secrets in the encodings in which programs repeat them, within any text.

use pod_safety_fuzz::{Draw, fuzz};
use pod_safety_transport::Secret;

use super::*;

const LETTERS: &[&str] =
    &["p", "W", "7", "'", "\"", "\\", "$", "&", "<", " ", "/", "%", "+", "ö", "ß", "€", "😀", ";", "="];

const AROUND: &[&str] =
    &["password=", "' ", "\"", "Authorization: Basic ", "\n", "\t", "unknown option", "[secret]", " "];

/// A secret that is too long to occur by chance in the text around it.
fn secret(draw: &mut Draw<'_>) -> String {
    (0..8 + draw.below(8)).map(|_| draw.word(LETTERS)).collect()
}

/// As Python's `json.dumps` encodes it.
fn ascii_json(text: &str) -> String {
    let escape = |letter: char| {
        let mut units = [0; 2];
        let codes = |units: &[u16]| units.iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
        if letter.is_ascii() { letter.to_string() } else { codes(letter.encode_utf16(&mut units)) }
    };
    json(text).chars().map(escape).collect()
}

fn json(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap();
    quoted[1..quoted.len() - 1].to_owned()
}

/// As Python's `repr` prints it: in single quotes, unless it contains only those.
fn repr(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\");
    if text.contains('\'') && !text.contains('"') { escaped } else { escaped.replace('\'', "\\'") }
}

fn percent(text: &str, kept: &str) -> String {
    let write = |byte: u8| match char::from(byte) {
        letter if byte.is_ascii_alphanumeric() || kept.contains(letter) => letter.to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(write).collect()
}

/// Each encoding of a secret, by a second implementation.
fn spellings(secret: &str) -> Vec<(&'static str, String)> {
    let html = secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    vec![
        ("as it is", secret.to_owned()),
        ("shlex.quote", secret.replace('\'', "'\"'\"'")),
        ("a shell's own", secret.replace('\'', "'\\''")),
        ("repr", repr(secret)),
        ("JSON", json(secret)),
        ("JSON in ASCII", ascii_json(secret)),
        ("html.escape", html.replace('"', "&quot;").replace('\'', "&#x27;")),
        ("a text of a page", html),
        ("urllib.parse.quote", percent(secret, "_.-~/")),
        ("quote_plus", percent(secret, "_.-~ ").replace(' ', "+")),
        ("base64", BASE64.encode(secret)),
        ("Basic", BASE64.encode(format!("admin:{secret}"))),
    ]
}

#[test]
fn attack_a_secret_is_removed_in_every_encoding() {
    fuzz!(3_000, |draw| {
        let secret = secret(draw);
        let parameters = BTreeMap::from([
            ("password".to_owned(), Value::Secret(Secret::new(secret.clone()))),
            ("username".to_owned(), Value::Plain("admin".to_owned())),
        ]);
        let redactor = Redactor::new(&parameters);
        let (before, after) = (draw.text(AROUND), draw.text(AROUND));
        for (way, spelled) in spellings(&secret) {
            let said = redactor.clean(format!("{before}{spelled}{after}").as_bytes(), draw.once_in(4));
            let rest = said.replace(REDACTED, "\u{fffd}");
            let survives = rest.contains(&secret) || rest.contains(&spelled);
            assert!(!survives, "{way} of {secret:?} in {before:?}: {said:?}");
            assert!(said.len() <= MAX_OUTPUT_BYTES && !said.chars().any(char::is_control), "{said:?}");
        }
    });
}
