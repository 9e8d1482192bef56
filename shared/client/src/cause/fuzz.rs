//! Fuzz target: answers of API servers and proxies, as they are shown to users.

use bytes::Bytes;
use pod_safety_fuzz::{Draw, fuzz};
use serde_json::json;

use crate::{ApiError, RefusalHead};
use pod_safety_wire::Encoding;

const CODES: &[u16] = &[400, 401, 403, 404, 409, 410, 422, 429, 500, 502, 503, 504];
const REASONS: &[&str] = &["", "Unauthorized", "Forbidden", "NotFound", "TooManyRequests", "InternalError"];
const PIECES: &[&str] = &[
    "",
    "404 page not found",
    "not found",
    "Unauthorized",
    "unauthorized",
    "Forbidden: no",
    "429: later",
    "pods \"a\" is forbidden",
    "The disruption budget b needs 2 healthy pods",
    "Client sent an HTTP request to an HTTPS server.\n",
    "<html>\n<b>502</b>",
    " ",
    "503",
    "Ünauthorized",
    "40",
    "a (b)",
];

fn text(draw: &mut Draw<'_>) -> String {
    (0..=draw.below(3)).map(|_| draw.word(PIECES)).collect::<Vec<_>>().join(" ")
}

/// The oracle compares the message with the shown text: each of its words is there, and no rule is broken.
#[test]
fn refusals_show_each_word_once() {
    fuzz!(4_000, |draw| {
        let code = *draw.one_of(CODES).unwrap();
        let (reason, message) = (draw.word(REASONS), text(draw));
        let causes: Vec<String> = (0..draw.below(3)).map(|_| text(draw)).collect();
        // A 403 in plain text is of no API server.
        let plain = draw.once_in(3) && code != 403;
        let body = if plain {
            message.clone()
        } else {
            let causes: Vec<_> = causes.iter().map(|cause| json!({ "message": cause })).collect();
            json!({ "kind": "Status", "reason": reason, "message": message, "details": { "causes": causes } })
                .to_string()
        };
        let status = http::StatusCode::from_u16(code).unwrap();
        let error = ApiError::from_status(
            RefusalHead { code: status, ..RefusalHead::default() },
            Encoding::Json,
            Bytes::from(body),
            &crate::Target::default(),
        );
        let line = crate::error_chain(&error);
        let shown = line.strip_prefix("the API server answered ").unwrap();
        assert!(shown.starts_with(&code.to_string()) && !line.contains('\n') && !line.contains(" : "), "{line}");
        assert!(!shown.ends_with([':', ' ']) || message.trim().ends_with(':'), "{line:?}");
        let head = if plain || reason.is_empty() { code.to_string() } else { format!("{code} {reason}") };
        let rest = shown.strip_prefix(&head).unwrap().trim_start_matches([':', ';', ' ']);
        for again in [format!("{code}:"), format!("{reason}:")].iter().filter(|again| again.len() > 1 && !plain) {
            assert!(!rest.to_lowercase().starts_with(&again.to_lowercase()), "{again} twice in {line}");
        }
        for word in message.split_whitespace().filter(|word| word.len() > 3) {
            let bare = word.trim_end_matches(':');
            let repeats = bare.eq_ignore_ascii_case(reason) || bare == code.to_string();
            assert!(repeats || line.contains(word.trim_end_matches('.')), "{word} is lost in {line}");
        }
    });
}
