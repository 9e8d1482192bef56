//! # Traces
//!
//! **Duty.** One OpenTelemetry trace for each loss of a node: what was detected, which orders devices got, what status checks
//! showed, which evidence there is, which pods were released by it, and when their successors were Ready.
//!
//! **Inputs.** What the cluster records anyway: NodeFences, FenceEvidences, the Node, the force deletes in the journal, and the
//! Events of those of the last leader.
//!
//! **Invariants.** [`spans`] is pure and knows no clock: the same records give the same spans, with the same ids. So a new leader
//! continues a trace, and a crash loses nothing: each leader exports what was recorded since the one before it last renewed the
//! Lease. No controller waits for an export, and `decide` knows nothing of it.
//!
//! | file | subject |
//! |---|---|
//! | `incident` | what is recorded of one loss |
//! | `spans` | the spans that this makes |
//! | `release` | force deletes, and the pods that took over |
//! | `telling` | which spans are due, and which were exported |
//! | `run` | the one task |

mod export_queue;
mod incident;
mod metrics;
mod release;
mod run;
mod spans;

pub use incident::Incident;
pub use metrics::TraceMetrics;
pub use release::{Release, Successor};
pub use run::{Sources, Traces};
pub use spans::spans;

#[cfg(test)]
mod tests;
