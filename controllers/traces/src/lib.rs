//! # Traces
//!
//! **Duty.** One OpenTelemetry trace for each loss of a node: the detection, the orders to devices, the results of
//! status checks, the evidence, the pods that were force deleted because of it, and when their successors were Ready.
//!
//! **Inputs.** Existing records of the cluster: NodeFences, FenceEvidences, the Node, the force deletes in the
//! journal, and the Events of the last leader's force deletes.
//!
//! **Invariants.** [`spans`] is pure and reads no clock: the same records give the same spans, with the same ids. So
//! a new leader continues a trace, and a crash loses nothing: each leader exports what was recorded since the
//! previous one last renewed the Lease. No controller waits for an export, and `decide` does not depend on it.
//!
//! | file | subject |
//! |---|---|
//! | `incident` | the records of one loss |
//! | `spans` | the spans built from them |
//! | `release` | force deletes, and the successors of pods |
//! | `export_queue` | which spans are due, and which were exported |
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
