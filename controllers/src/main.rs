//! The binary: one command line for the controllers and for people. The only place that touches the real
//! world besides `pod_safety_shared::clock` and `pod_safety_shared::client`.
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
