//! Quantities as in manifests: `500m`, `2Gi`, `1e3` (`k8s.io/apimachinery/pkg/api/resource`).

/// The value in thousandths, rounded up; `None`: `text` is no quantity.
pub(super) fn thousandths(text: &str) -> Option<i128> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(end)?;
    let (numerator, denominator) = scale(suffix)?;
    let (mantissa, places) = decimal(number)?;
    let over = denominator.checked_mul(10_i128.checked_pow(places)?)?;
    let value = mantissa.checked_mul(numerator)?.checked_mul(1000)?;
    Some(value.div_euclid(over) + i128::from(value.rem_euclid(over) != 0))
}

/// A number without its decimal point, and the number of digits after it.
fn decimal(text: &str) -> Option<(i128, u32)> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = format!("{whole}{part}");
    if !digits.chars().any(|c| c.is_ascii_digit()) {
        return None;
    }
    Some((digits.parse().ok()?, u32::try_from(part.len()).ok()?))
}

/// The multiplier of a suffix, as a fraction.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let binary = |power: u32| Some((1024_i128.pow(power), 1));
    let decimal = |power: u32| Some((1000_i128.pow(power), 1));
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, 1_000_000_000)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1000)),
        "k" => decimal(1),
        "M" => decimal(2),
        "G" => decimal(3),
        "T" => decimal(4),
        "P" => decimal(5),
        "E" => decimal(6),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let ten = 10_i128.checked_pow(power.unsigned_abs())?;
            Some(if power < 0 { (1, ten) } else { (ten, 1) })
        }
    }
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse_as_in_apimachinery() {
        for (text, expected) in [
            ("1", 1000),
            ("500m", 500),
            ("0.5", 500),
            (".5", 500),
            ("1.", 1000),
            ("2Gi", (2 << 30) * 1000),
            ("1k", 1_000_000),
            ("1e3", 1_000_000),
            ("1E3", 1_000_000),
            ("1E", 1_000_000_000_000_000_000_000),
            ("5e-1", 500),
            ("1n", 1),
            ("100u", 1),
            ("-1", -1000),
            ("+1", 1000),
            ("1e0", 1000),
            ("3M", 3_000_000 * 1000),
            ("3G", 3_000_000_000 * 1000),
            ("3T", 3_000_000_000_000 * 1000),
            ("3P", 3_000_000_000_000_000 * 1000),
            ("3Ki", (3 << 10) * 1000),
            ("3Mi", (3 << 20) * 1000),
            ("3Ti", (3 << 40) * 1000),
            ("3Pi", (3 << 50) * 1000),
            ("3Ei", (3 << 60) * 1000),
        ] {
            assert_eq!(thousandths(text), Some(expected), "{text}");
        }
        for bad in ["", "m", "1x", "1.2.3", "1 Gi", "Gi1", "1e", "--1", "é", ".+5", "1.-5"] {
            assert_eq!(thousandths(bad), None, "{bad}");
        }
    }
}
