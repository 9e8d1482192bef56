//! A pause of fencing: the reason, the user, and the time, as one text.
//!
//! It is the value of `spec.paused` of a FencePolicy, or of [`PAUSE_ANNOTATION`] of a Node, where operators read it
//! as it is. A text that was written by hand is a reason without a user.
//!
//! A pause has no expiry and ends only with [`RESUMED_ANNOTATION`]: one that expired would switch machines off at an
//! unattended time, while a person may be working on them.

use std::fmt;

use jiff::Timestamp;

/// The annotation of a Node that is not fenced; its value is the reason.
pub const PAUSE_ANNOTATION: &str = "pod-safety.dev/pause-fencing";

/// The annotation of a Node or a FencePolicy that records who last ended a pause, and why.
pub const RESUMED_ANNOTATION: &str = "pod-safety.dev/resumed-fencing";

/// A pause of fencing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The reason.
    pub reason: String,
    /// The user by the API server's name, and the time by the clock of that user's machine.
    pub by: Option<(String, Timestamp)>,
}

impl Pause {
    /// The longest text that the API server accepts (`spec.paused`).
    pub const MAX_LENGTH: usize = 256;

    /// Parses such a text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let signed =
            text.strip_suffix(')').and_then(|text| text.rsplit_once(" (by ")).and_then(|(reason, signature)| {
                let (by, since) = signature.rsplit_once(" since ")?;
                Some(Self { reason: reason.to_owned(), by: Some((by.to_owned(), since.parse().ok()?)) })
            });
        signed.unwrap_or_else(|| Self { reason: text.to_owned(), by: None })
    }
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.by {
            Some((by, since)) => write!(f, "{} (by {by} since {since:.0})", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_parsed_as_written_and_other_text_is_a_reason() {
        let since = "2026-11-21T10:23:05Z".parse().unwrap();
        let pause = Pause {
            reason: "rack b moves (by truck)".to_owned(),
            by: Some(("anna since 1990 (ops)".to_owned(), since)),
        };
        let text = "rack b moves (by truck) (by anna since 1990 (ops) since 2026-11-21T10:23:05Z)";
        assert_eq!(pause.to_string(), text);
        assert_eq!(Pause::parse(text), pause);
        for text in ["", "rack moves", "moves (by truck)", "moves (by truck since noon)", ")"] {
            assert_eq!(Pause::parse(text), Pause { reason: text.to_owned(), by: None });
        }
    }
}
