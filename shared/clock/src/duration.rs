//! Durations as Go and Kubernetes write them: `40s`, `1m30s`, `500ms`.

use std::time::Duration;

use jiff::SignedDuration;

const MILLISECOND: SignedDuration = SignedDuration::from_millis(1);
/// The longest duration that makes sense for a wait.
const DAY: SignedDuration = SignedDuration::from_hours(24);
const SECOND: SignedDuration = SignedDuration::from_secs(1);
/// Ten years.
const LONGEST_HISTORY: SignedDuration = SignedDuration::from_hours(87_600);

/// Parses a duration from one millisecond to 24 hours.
///
/// # Errors
/// What is wrong with it, and what is allowed.
pub fn parse(text: &str) -> Result<Duration, String> {
    parse_within(text, MILLISECOND, DAY, "allowed is 1ms to 24h, written such as 40s, 1m30s or 500ms")
}

/// Parses a retention time: zero, or one second to ten years.
///
/// # Errors
/// What is wrong with it, and what is allowed.
pub fn history(text: &str) -> Result<Duration, String> {
    match text {
        "0" | "0s" | "0h" => Ok(Duration::ZERO),
        _ => parse_within(
            text,
            SECOND,
            LONGEST_HISTORY,
            "allowed is 1s to 87600h, such as 2160h for 90 days; 0: indefinitely",
        ),
    }
}

/// Parses a duration from `least` to `most`; `allowed` describes that range.
///
/// # Errors
/// What is wrong with it, and what is allowed.
pub fn between(text: &str, least: Duration, most: Duration, allowed: &str) -> Result<Duration, String> {
    let signed = |duration: Duration| SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    parse_within(text, signed(least), signed(most), allowed)
}

fn parse_within(text: &str, least: SignedDuration, most: SignedDuration, allowed: &str) -> Result<Duration, String> {
    // Go writes zero without a unit.
    let parsed = if text == "0" { Some(SignedDuration::ZERO) } else { parse_go(text) };
    let parsed = parsed.ok_or_else(|| format!("not a duration; {allowed}"))?;
    if parsed.is_negative() {
        return Err(format!("a duration cannot be negative; {allowed}"));
    }
    if parsed < least {
        return Err(format!("too short; {allowed}"));
    }
    if parsed > most {
        return Err(format!("too long; {allowed}"));
    }
    Duration::try_from(parsed).map_err(|_out_of_range| format!("not a duration; {allowed}"))
}

/// The units of Go's `time.ParseDuration`.
const UNITS: [&str; 7] = ["h", "m", "s", "ms", "us", "µs", "ns"];

/// Only Go's format: jiff also parses `PT40S`, `40 sec ago` and `1,5s`, which may be meant in another way.
fn parse_go(text: &str) -> Option<SignedDuration> {
    let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let units = unsigned.split(is_number).filter(|unit| !unit.is_empty());
    let is_of_go = unsigned.starts_with(is_number) && { units }.all(|unit| UNITS.contains(&unit));
    text.parse().ok().filter(|_| is_of_go)
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gos_duration_formats_are_parsed() {
        for (text, milliseconds) in
            [("40s", 40_000), ("1m30s", 90_000), ("500ms", 500), ("1h0m0s", 3_600_000), ("1.5s", 1_500)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn an_invalid_duration_is_refused_with_the_allowed_range() {
        for (text, problem) in [
            ("-5s", "negative"),
            ("40", "not a duration"),
            ("soon", "not a duration"),
            ("25h", "too long"),
            ("", "not a duration"),
            ("0", "too short"),
            ("0s", "too short"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(problem) && error.contains("allowed is 1ms to 24h"), "{text}: {error}");
        }
    }

    #[test]
    fn history_is_kept_for_a_second_to_ten_years_or_indefinitely() {
        assert_eq!(history("2160h"), Ok(Duration::from_hours(2160)));
        assert_eq!((history("0"), history("0s")), (Ok(Duration::ZERO), Ok(Duration::ZERO)));
        for (text, problem) in
            [("59ms", "too short"), ("87601h", "too long"), ("forever", "not a duration"), ("-1h", "negative")]
        {
            let error = history(text).unwrap_err();
            assert!(error.contains(problem) && error.contains("allowed is 1s to 87600h"), "{text}: {error}");
        }
    }
}
