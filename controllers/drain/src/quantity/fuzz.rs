//! Fuzz target: quantities of any form.

use pod_safety_fuzz::fuzz;

use super::*;

const PIECES: &[&str] =
    &["1", "0", "12", ".", "-", "+", "m", "Ki", "Gi", "E", "e", "e3", "E-2", "n", "k", "999999999", " "];

/// A number and its suffix by apimachinery's grammar; `None`: it is no quantity.
fn parts(text: &str) -> Option<(&str, &str)> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(unsigned.len());
    let number = &unsigned[..end];
    let is_number = number.matches('.').count() <= 1 && number.bytes().any(|byte| byte.is_ascii_digit());
    is_number.then_some((&text[..text.len() - unsigned.len() + end], &unsigned[end..]))
}

fn factor(suffix: &str) -> Option<f64> {
    let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    if let Some(power) = decimal.iter().position(|unit| *unit == suffix) {
        return Some(1000_f64.powi(i32::try_from(power).ok()? - 3));
    }
    if let Some(power) = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|unit| *unit == suffix) {
        return Some(1024_f64.powi(i32::try_from(power).ok()? + 1));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    Some(10_f64.powi(exponent.parse().ok().filter(|_| is_number)?))
}

/// What parses is a quantity, and its value is that of the text, rounded up.
#[test]
fn a_parsed_quantity_has_the_value_of_its_text() {
    fuzz!(6_000, |draw| {
        let text = draw.text(PIECES);
        let Some(read) = thousandths(&text) else { return };
        let (number, suffix) = parts(&text).unwrap_or_else(|| panic!("{text:?} is read as {read}"));
        let factor = factor(suffix).unwrap_or_else(|| panic!("{text:?} is read as {read}"));
        let expected = number.parse::<f64>().unwrap() * factor * 1000.0;
        #[expect(clippy::cast_precision_loss, reason = "compared to nine digits")]
        let apart = read as f64 - expected;
        assert!(
            apart >= -1e-9 * expected.abs() - 1e-6 && apart <= 1.0 + 1e-9 * expected.abs(),
            "{text:?}: {read}, {expected}"
        );
    });
}
