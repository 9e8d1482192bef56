//! Fuzz target: durations of any form.

use pod_safety_fuzz::fuzz;

use super::*;

const PIECES: &[&str] =
    &["1", "30", "1.5", "h", "m", "s", "ms", "us", "µs", "ns", "-", "0", ".", " ", "day", "PT", "ago", "9999999"];

/// Parsed as Go's `time.ParseDuration` does, in nanoseconds.
fn of_go(text: &str) -> Option<f64> {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Some(0.0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut sum = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, behind) = rest.split_at(end);
        let end = behind.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        let each = match unit {
            "h" => 3.6e12,
            "m" => 6e10,
            "s" => 1e9,
            "ms" => 1e6,
            "us" | "µs" | "μs" => 1e3,
            "ns" => 1.0,
            _ => return None,
        };
        sum += number.parse::<f64>().ok()? * each;
        rest = behind;
    }
    Some(sum)
}

/// A flag is parsed as kube-controller-manager parses its own, within the limits that its help names, or refused.
#[test]
fn a_duration_is_read_as_go_reads_it() {
    fuzz!(4_000, |draw| {
        let text = draw.text(PIECES);
        for (read, least, most) in
            [(parse(&text), MILLISECOND, DAY), (history(&text), SignedDuration::ZERO, LONGEST_HISTORY)]
        {
            let Ok(read) = read else { continue };
            assert!((least..=most).contains(&SignedDuration::try_from(read).unwrap()), "{text:?}");
            let of_go = of_go(&text).unwrap_or_else(|| panic!("{text:?} is read as {read:?}, and Go refuses it"));
            assert!((read.as_secs_f64() * 1e9 - of_go).abs() <= 1.0 + of_go * 1e-9, "{text:?}: {read:?}, {of_go}");
        }
    });
}
