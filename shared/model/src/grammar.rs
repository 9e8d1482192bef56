//! Words that depend on a number.

/// The form of "to be" for a number: 1 is, 2 are.
#[must_use]
pub const fn is_or_are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}
