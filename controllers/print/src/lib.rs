//! What commands print.
//!
//! Duty: render the results of other crates as pages. It reads no cluster and decides nothing.
//!
//! - In: what was read and explained, the properties of the terminal ([`Paint`]), and the subcommands of the program
//!   ([`Commands`]).
//! - Out: text for operators; the screen of `status` ([`status`]); documents for programs ([`answers`], [`budgets`],
//!   [`drains`]); objects and logs without what must not leave the cluster ([`redact`]); the name that was probably meant
//!   ([`nearest`]).
//!
//! Invariants: colour is never the only carrier of information. No control character of the input is in a line or a
//! cell. A command that operators copy is never wrapped. No Secret and no credential is in a report.
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

/// The version of the documents for programs.
pub const API_VERSION: &str = "cli.pod-safety.dev/v1alpha1";
