//! The agent of a node.
//!
//! Duty: carry out what the machine of `pod-safety-watchdog` orders, one order at a time, and tell it what came of each. There is one
//! loop and one thread. Nothing here decides when to pet.
//!
//! | file | subject |
//! |---|---|
//! | [`executor`] | the loop, and who carries out which order |
//! | [`api`], [`lease`] | requests to the API server; the Lease as JSON |
//! | [`device`], [`linux`] | what a watchdog is; `/dev/watchdog`, and a pipe for tests |
//! | [`cgroups`], [`kubelet`], [`mounts`], [`processes`] | ending pods, and proving that they have ended |
//! | [`report`] | what is reported of pods that cannot end |
//! | [`host`] | which node, boot and kind of machine this is |
//! | [`gate`] | the marks in `/run` that outlive this process, and keep a kubelet from starting |
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

/// One line of the log. A log that cannot be written keeps nothing from being done.
pub fn log_line(line: impl std::fmt::Display) {
    let _lost = writeln!(std::io::stderr().lock(), "{line}");
}
