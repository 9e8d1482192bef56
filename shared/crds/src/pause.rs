//! That somebody has fencing pause: why, who, and since when, as one text.
//!
//! It stands in `spec.paused` of a FencePolicy, or in [`PAUSE_ANNOTATION`] of a Node, and people read it there as it is.
//! What somebody wrote there by hand is a reason without a name.
//!
//! There is no end to it but [`RESUMED_ANNOTATION`]'s: a pause that ended by a clock would switch machines off at a time
//! when nobody looks, while somebody may still have his hands in them.

use std::fmt;

use jiff::Timestamp;

/// On a Node: it is not fenced, for the reason that is its value.
pub const PAUSE_ANNOTATION: &str = "pod-safety.dev/pause-fencing";

/// On a Node or a FencePolicy: who last ended a pause, and why.
pub const RESUMED_ANNOTATION: &str = "pod-safety.dev/resumed-fencing";

/// Why, who, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Why.
    pub reason: String,
    /// Who, by the API server's name for him, and since when, by the clock of his machine.
    pub by: Option<(String, Timestamp)>,
}

impl Pause {
    /// So many characters the API server takes (`spec.paused`).
    pub const MAX_LENGTH: usize = 256;

    /// Reads such a text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let signed = text.strip_suffix(')').and_then(|text| text.rsplit_once(" (by ")).and_then(
            |(reason, signature)| {
                let (by, since) = signature.rsplit_once(" since ")?;
                Some(Self { reason: reason.to_owned(), by: Some((by.to_owned(), since.parse().ok()?)) })
            },
        );
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
    fn what_is_written_is_read_again_and_what_people_wrote_by_hand_is_a_reason() {
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
