//! Settings of a run by environment variables: another seed, or more seeds.

/// The number in this variable, if it is set.
///
/// # Panics
/// If it is no number, and in CI: there no variable may make a run smaller.
pub(crate) fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    assert!(
        std::env::var_os("CI").is_none(),
        "{variable} is set, and so is CI: unset one of them, for CI runs what is committed"
    );
    let number = text.parse();
    Some(number.unwrap_or_else(|error| panic!("{variable}={text:?} is not a number ({error}): give one, or unset it")))
}
