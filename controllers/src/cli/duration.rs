//! Durations as Go and Kubernetes write them: `40s`, `1m30s`, `500ms`.

use std::time::Duration;

use jiff::SignedDuration;

/// The longest duration that makes sense for any flag here.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);

/// Reads a duration from one millisecond to 24 hours.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    const ALLOWED: &str = "allowed is 1ms to 24h, written such as 40s, 1m30s or 500ms";
    // Go writes a bare zero.
    let read = if text == "0" { Ok(SignedDuration::ZERO) } else { text.parse::<SignedDuration>() };
    let read = read.map_err(|_not_one| format!("not a duration; {ALLOWED}"))?;
    if read.is_negative() {
        return Err(format!("a duration cannot be negative; {ALLOWED}"));
    }
    if read < SignedDuration::from_millis(1) {
        return Err(format!("too short; {ALLOWED}"));
    }
    if read > LONGEST {
        return Err(format!("too long; {ALLOWED}"));
    }
    Duration::try_from(read).map_err(|_out_of_range| format!("not a duration; {ALLOWED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gos_ways_of_writing_are_read() {
        for (text, milliseconds) in
            [("40s", 40_000), ("1m30s", 90_000), ("500ms", 500), ("1h0m0s", 3_600_000), ("1.5s", 1_500)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_says_what_would() {
        for (text, said) in [
            ("-5s", "negative"),
            ("40", "not a duration"),
            ("soon", "not a duration"),
            ("25h", "too long"),
            ("", "not a duration"),
            ("0", "too short"),
            ("0s", "too short"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(said) && error.contains("allowed is 1ms to 24h"), "{text}: {error}");
        }
    }
}
