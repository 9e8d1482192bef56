//! The binary: one command line for the controllers and for operators. Together with `pod_safety_shared::clock` and
//! `pod_safety_shared::client` it is the only place with effects outside the process.
#![forbid(unsafe_code)]

mod cli;
#[cfg(feature = "demo")]
mod demo;
#[cfg(all(test, feature = "demo"))]
mod documents;
mod man;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
