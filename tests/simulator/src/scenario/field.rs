//! One value of a file, with its place, and its errors.

use std::time::Duration;

use jiff::SignedDuration;
use serde_saphyr::Spanned;

/// A value as it stands in the file. Parsed as text, so that errors have this crate's messages, with the field.
pub(super) type Text = Option<Spanned<String>>;

/// Why a file cannot be run: one line, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {what}")]
pub struct FieldError {
    /// The file.
    pub file: String,
    /// The line, from one.
    pub line: u64,
    /// The column, from one.
    pub column: u64,
    /// What is wrong, and what is allowed.
    pub what: String,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    pub(super) line: u64,
    pub(super) column: u64,
}

impl Place {
    pub(super) fn from_spanned<T>(value: &Spanned<T>) -> Self {
        Self { line: value.referenced.line().max(1), column: value.referenced.column().max(1) }
    }

    /// Text of the file may be repeated in `what`: control characters are escaped, so it stays one line.
    pub(super) fn error(self, what: &str) -> FieldError {
        let clean = |letter: char| {
            if letter.is_control() { letter.escape_default().to_string() } else { letter.to_string() }
        };
        FieldError {
            file: String::new(),
            line: self.line,
            column: self.column,
            what: what.chars().map(clean).collect(),
        }
    }
}

/// A field of an entry: its name, its value, and its place.
pub(super) struct Field<'a> {
    pub(super) name: &'static str,
    pub(super) text: &'a str,
    pub(super) place: Place,
}

impl<'a> Field<'a> {
    pub(super) fn new(name: &'static str, text: &'a Text) -> Option<Self> {
        let text = text.as_ref()?;
        Some(Self { name, text: text.value.trim(), place: Place::from_spanned(text) })
    }

    pub(super) fn error(&self, allowed: &str) -> FieldError {
        let Self { name, text, place } = self;
        place.error(&format!("field `{name}`: value `{text}`, allowed {allowed}"))
    }

    /// A whole number between two.
    pub(super) fn number(&self, least: u64, most: u64) -> Result<u64, FieldError> {
        let number = self.text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| self.error(&format!("is a whole number from {least} to {most}")))
    }

    /// The number of one of `count` things, from zero.
    pub(super) fn index(&self, count: usize, what: &str) -> Result<usize, FieldError> {
        let index = self.text.parse().ok().filter(|index| *index < count);
        index.ok_or_else(|| self.error(&format!("is 0 to {}: there are {count} {what}", count.saturating_sub(1))))
    }

    /// Whole seconds, such as `45s` or `2m`, up to `most`.
    pub(super) fn seconds(&self, most: u64) -> Result<u64, FieldError> {
        let span = self.span().filter(|span| *span <= SignedDuration::from_secs(signed(most)));
        let seconds = span.and_then(|span| Duration::try_from(span).ok()).map(|span| span.as_secs());
        seconds.ok_or_else(|| self.error(&format!("is 0s to {most}s in whole seconds, such as 45s or 1m30s")))
    }

    /// Whole seconds, forward or back.
    pub(super) fn signed_seconds(&self, most: u64) -> Result<i64, FieldError> {
        let span = self.span().filter(|span| span.abs() <= SignedDuration::from_secs(signed(most)));
        let seconds = span.map(|span| span.as_secs());
        seconds.ok_or_else(|| self.error(&format!("is -{most}s to {most}s in whole seconds, such as -90s")))
    }

    /// Milliseconds, such as `300ms`.
    pub(super) fn milliseconds(&self, most: u64) -> Result<u64, FieldError> {
        let span = self.text.parse::<SignedDuration>().ok().and_then(|span| u64::try_from(span.as_millis()).ok());
        let span = span.filter(|span| (1..=most).contains(span));
        span.ok_or_else(|| self.error(&format!("is 1ms to {most}ms, such as 300ms or 2s")))
    }

    /// One of these values.
    pub(super) fn one_of<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, FieldError> {
        let found = choices.iter().find(|(word, _)| *word == self.text).map(|(_, value)| *value);
        found.ok_or_else(|| {
            let names: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
            self.error(&format!("is one of: {}", names.join(", ")))
        })
    }

    fn span(&self) -> Option<SignedDuration> {
        let span = if self.text == "0" { SignedDuration::ZERO } else { self.text.parse().ok()? };
        (span.subsec_nanos() == 0).then_some(span)
    }
}

fn signed(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}
