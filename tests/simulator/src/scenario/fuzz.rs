//! Fuzz target: scenario files of any form.

use pod_safety_fuzz::{fuzz, json::vary};
use serde_json::{Value, json};

use super::parse;

const WORDS: &[&str] = &[
    "nodes",
    "pods",
    "seed",
    "replicas",
    "heal-at",
    "subject",
    "expect",
    "broken",
    "stuck",
    "faults",
    "fault",
    "at",
    "node",
    "for",
    "power-off",
    "cut-server",
    "pull-cable",
    "none",
    "S1, S4",
    "script",
    "2",
    "0",
    "-1",
    "30s",
    "1m30s",
    "100h",
    "0.5s",
    "true",
    "~",
    "*a",
    "&a",
    "<<",
    "!!binary",
    "\n",
    "#",
];

/// Parsed as written, or refused in one line with a place in the file.
#[test]
fn any_file_is_parsed_or_refused_with_its_place_in_one_line() {
    fuzz!(3_000, |draw| {
        let mut file = json!({
            "nodes": 3, "pods": 2, "seed": 7, "heal-at": "100s",
            "faults": [{ "at": "20s", "fault": "power-off", "node": 1, "back-after": "10s" }],
        });
        vary(draw, &mut file, WORDS);
        let whole = file.to_string();
        let text = if draw.once_in(3) {
            String::from_utf8_lossy(&draw.corrupt(whole.as_bytes())).into_owned()
        } else {
            whole.clone()
        };
        match parse("x.yaml", &text) {
            Ok(scenario) if text == whole => {
                let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.trim().parse().ok());
                let plan = &scenario.plan;
                assert_eq!(Some(plan.nodes as u64), number(&file["nodes"]), "{text}");
                assert_eq!(Some(plan.pods as u64), number(&file["pods"]), "{text}");
                assert!(plan.nodes <= 50 && plan.pods <= 100 && plan.heal_at <= 3_600, "{text}");
                assert_eq!(plan.faults.len(), file["faults"].as_array().map_or(0, Vec::len), "{text}");
            }
            Ok(_) => {}
            Err(wrong) => {
                let message = wrong.to_string();
                assert!(!message.chars().any(char::is_control), "{message:?}");
                let lines = text.matches(['\n', '\r']).count() as u64 + 1;
                assert!((1..=lines).contains(&wrong.line) && wrong.column >= 1, "{message} of {text:?}");
            }
        }
    });
}
