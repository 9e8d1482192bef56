//! What commands print.
//!
//! Duty: make pages of answers that others gave. It reaches no cluster, and decides nothing.
//!
//! - In: what was read and explained, how the terminal is written to ([`Paint`]), and the subcommands of the program
//!   ([`Commands`]).
//! - Out: text for people; the screen of `status` ([`status`]); documents for programs ([`answers`], [`budgets`], [`drains`]); objects and logs without what must not leave the cluster
//!   ([`redact`]); the name that was probably meant ([`nearest`]).
//!
//! Invariants: colour is never the only carrier. No control character of what was read is in a line or a cell. A command that
//! people copy is never broken into lines. Nothing of a Secret or a login is left in a report.
#![forbid(unsafe_code)]

pub mod answers;
pub mod budgets;
pub mod drains;
mod hint;
pub mod redact;
mod spelling;
pub mod status;
mod term;

pub use hint::Commands;
pub use spelling::nearest;
pub use term::{Color, Paint, Tone};

/// The version of what is printed for programs.
pub const API_VERSION: &str = "cli.pod-safety.dev/v1alpha1";
