//! The binary: arguments, clocks, signals. The only place that touches the real
//! world besides `pod_safety_shared::clock` and `pod_safety_shared::client`.
#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
