//! The agent of a node.
//!
//! Duty: execute the orders of the state machine of `pod-safety-watchdog`, one at a time, and pass it the answer to
//! each. There is one loop and one thread. Nothing here decides when to pet.
//!
//! | file | subject |
//! |---|---|
//! | | [`executor`] | the loop, and the execution of orders |
//! | [`api`], [`lease`] | requests to the API server; the Lease as JSON |
//! | | [`device`], [`linux`] | the interface of a watchdog; `/dev/watchdog`, and a pipe for tests |
//! | | [`cgroups`], [`kubelet`], [`mounts`], [`processes`] | end pods, and prove that they have ended |
//! | | [`report`] | the report about pods that cannot terminate |
//! | | [`host`] | the node, the boot and the kind of this machine |
//! | | [`gate`] | the marks in `/run` that outlive this process, and prevent a kubelet from starting |
//! | [`realtime`] | priority and locked memory |

pub mod api;
pub mod arguments;
pub mod cgroups;
pub mod device;
pub mod executor;
pub mod gate;
pub mod host;
pub mod kubelet;
pub mod lease;
pub mod linux;
pub mod mounts;
pub mod processes;
pub mod realtime;
pub mod report;
pub mod survival;

use std::io::Write as _;

/// Writes one line to the log. A log that cannot be written prevents nothing.
pub fn log_line(line: impl std::fmt::Display) {
    let _lost = writeln!(std::io::stderr().lock(), "{line}");
}
