//! Changes to a JSON value: what a hostile client may send where the schema of an object allows it, and what a broken API server may send
//! where it does not.

use serde_json::{Value, json};

use crate::Draw;

/// The maximum number of changes to one value.
const CHANGES: usize = 5;

/// Deeper than any object of the API, and within the limit of JSON parsers.
const MAX_DEPTH: usize = 90;

/// Times at the limits of clocks and calendars.
const TIMES: &[&str] = &[
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:00.000001Z",
    "0001-01-01T00:00:00Z",
    "9999-12-30T22:00:00Z",
    "-009999-01-02T01:59:59Z",
    "1969-12-31T23:59:59.999999999Z",
    "2026-02-30T00:00:00Z",
    "2026-01-01T00:00:00+26:00",
];

/// Changes `value` in one to a few places. `words` are keys and values with a meaning there.
pub fn vary(draw: &mut Draw<'_>, value: &mut Value, words: &[&str]) {
    let whole = value.clone();
    for _ in 0..=draw.below(CHANGES) {
        change(draw, value, &whole, words);
    }
}

/// Descends by random steps, and changes the value there.
fn change(draw: &mut Draw<'_>, value: &mut Value, whole: &Value, words: &[&str]) {
    match value {
        Value::Object(fields) if !fields.is_empty() && !draw.once_in(8) => {
            let at = draw.below(fields.len());
            let Some(key) = fields.keys().nth(at).cloned() else { return };
            match draw.below(16) {
                0 => drop(fields.remove(&key)),
                1 => drop(fields.insert(draw.text(words), anything(draw, whole, words))),
                2 => {
                    let moved = fields.remove(&key).unwrap_or_default();
                    fields.insert(draw.word(words).to_owned(), moved);
                }
                _ => fields.values_mut().skip(at).take(1).for_each(|below| change(draw, below, whole, words)),
            }
        }
        Value::Array(items) if !items.is_empty() && !draw.once_in(8) => {
            let at = draw.below(items.len());
            match draw.below(8) {
                0 => drop(items.remove(at)),
                1 => items.extend(items.get(at).cloned()),
                2 => {
                    let one = items.get(at).cloned().unwrap_or_default();
                    items.extend(std::iter::repeat_n(one, draw.below(200)));
                }
                _ => items.iter_mut().skip(at).take(1).for_each(|below| change(draw, below, whole, words)),
            }
        }
        _ => *value = anything(draw, whole, words),
    }
}

/// Any value: of any type, a part of `whole` in the wrong place, or a very deep one.
fn anything(draw: &mut Draw<'_>, whole: &Value, words: &[&str]) -> Value {
    match draw.below(12) {
        0 => Value::Null,
        1 => json!({}),
        2 => json!([]),
        3 => json!(draw.once_in(2)),
        4 | 5 => json!(draw.number()),
        6 => json!(draw.one_of(&[0.5, -0.0, 1e300, 1.0]).copied().unwrap_or_default()),
        7 => json!(draw.word(TIMES)),
        8 => json!(draw.word(words)),
        9 => part(draw, whole),
        10 => {
            let depth = draw.below(MAX_DEPTH);
            let list = draw.once_in(2);
            (0..depth).fold(Value::Null, |inner, _| if list { json!([inner]) } else { json!({ "a": inner }) })
        }
        _ => json!(draw.text(words)),
    }
}

/// A random part of `whole`.
fn part(draw: &mut Draw<'_>, whole: &Value) -> Value {
    let below = match whole {
        Value::Object(fields) => fields.values().nth(draw.below(fields.len())),
        Value::Array(items) => items.get(draw.below(items.len())),
        _ => None,
    };
    match below {
        Some(below) if !draw.once_in(3) => part(draw, below),
        _ => whole.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Changes without an effect would test nothing.
    #[test]
    fn values_change_in_many_ways() {
        let seed =
            json!({ "metadata": { "name": "a", "labels": { "k": "v" } }, "items": [1, { "b": true }], "n": null });
        let mut seen = BTreeSet::new();
        for number in 0..2_000_u32 {
            let bytes: Vec<u8> = (0..24_u32)
                .map(|at| (number.wrapping_mul(2_654_435_761) >> (at % 4 * 8)) as u8 ^ (at * 37) as u8)
                .collect();
            let mut value = seed.clone();
            vary(&mut Draw::new(&bytes), &mut value, &["name", "x"]);
            seen.insert(value.to_string());
        }
        assert!(seen.len() > 500, "{} values", seen.len());
        assert!(seen.iter().any(|text| !text.contains("metadata")), "no field ever went");
    }
}
