//! Fuzz target: credentials within logs, in all spellings that users and programs write.

use pod_safety_fuzz::{Draw, fuzz};
use serde_json::json;

use super::*;

const LETTERS: &[&str] = &[
    "p", "W", "7", "k", "/", "+", "-", "_", ".", "!", "#", "$", "*", ":", "=", ";", ",", "&", "?", "{", "]", "'", "\\",
];

const AROUND: &[&str] = &[
    "node worker-1 ",
    "at 10:14:05, ",
    "the password is wrong ",
    "\n",
    "\"",
    " ",
    "user=a&plug=3 ",
    "[",
    "token",
    "{\"n\":1,",
];

fn secret(draw: &mut Draw<'_>, letters: &[&str]) -> String {
    format!("q{}q", (0..8 + draw.below(8)).map(|_| draw.word(letters)).collect::<String>())
}

/// Characters that end no value in a shell, a URL or a list, so that it needs no quotes.
const PLAIN: usize = 15;

/// The spellings in which a credential may be written without quotes, and those that need them.
fn spellings(plain: &str, any: &str) -> Vec<(String, String)> {
    let unquoted = [
        format!("password={plain}"),
        format!("password: {plain}"),
        format!("passwd = {plain}"),
        format!("--password {plain}"),
        format!("--token={plain}"),
        format!("-P {plain}"),
        format!("Authorization: Bearer {plain}"),
        format!("X-Auth-Token: {plain}"),
        format!("AWS_SECRET_ACCESS_KEY={plain}"),
        format!("/login?x=1&token={plain}&y=2"),
        format!("password => {plain}"),
        format!("-p {plain}"),
        format!("-u root:{plain}"),
        format!("\npassword: |\n  {plain}\nplug: 3"),
    ];
    let quoted = [
        json!({ "password": any }).to_string(),
        format!("{{\"password\" : {}}}", json!(any)),
        format!("--password={}", json!(any)),
        format!("password={}", json!(any)),
        format!("{{\"authorization\":{}}}", json!(format!("Basic {any}"))),
    ];
    let plain = unquoted.into_iter().map(|text| (text, plain.to_owned()));
    plain.chain(quoted.into_iter().map(|text| (text, any.to_owned()))).collect()
}

/// No part of a credential survives: neither the whole, nor its end.
#[test]
fn attack_credentials_are_redacted_in_every_spelling() {
    fuzz!(3_000, |draw| {
        let (plain, any) = (secret(draw, &LETTERS[..PLAIN]), secret(draw, LETTERS));
        let before = draw.text(AROUND);
        // After an open quote all the rest is its text.
        let before = if before.matches(['"', '\'']).count() % 2 == 0 { before } else { format!("{before}\n") };
        for (spelled, secret) in spellings(&plain, &any) {
            let clean = redact_text(&format!("{before} {spelled} behind"));
            let end = json!(secret).to_string();
            let end = &end[end.len() - 5..end.len() - 1];
            assert!(!clean.contains(&secret) && !clean.contains(end), "{spelled:?} behind {before:?}: {clean:?}");
            assert!(clean.ends_with("behind"), "{spelled:?}: {clean:?}");
        }
    });
}
