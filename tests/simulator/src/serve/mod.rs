//! A simulated cluster for real `kubectl`: HTTP on loopback, in real time.
//!
//! ```text
//!  kubectl ── HTTP ─► Listener ── Gate ─►│─ Visitors ─► attend ── Door ─► ApiServer
//!             thread of real time        │          thread of simulated time
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `listen` | the socket, its thread and its runtime |
//! | `gate` | the channel between the two threads, and how many may be on it |
//! | `attend` | what the simulation does with a request |
//! | `reviews` | what commands ask about the person who types them |
//! | `installation` | what commands ask about the pods of pod-safety |
//! | `table`, `columns`, `defined`, `pods` | what `kubectl get` prints |
//!
//! ```ignore
//! let (gate, visitors) = serve::gate();
//! let listener = serve::Listener::start(address, gate)?;      // before the simulation
//! spawner.spawn("visitors", Box::pin(serve::attend(visitors, || world.servers(), || world.ours(), env))); // inside of it
//! ```
//!
//! Invariants: as long as nobody connects, nothing of this is polled, draws or
//! sleeps, so a run with a gate is the run without one. A request waits for as long
//! as the simulation stands still. Whoever goes away takes the request's task and
//! watch along, though not what the API server has already been sent.

mod attend;
mod columns;
mod defined;
mod gate;
mod installation;
mod listen;
mod pods;
mod reviews;
mod table;

use std::net::SocketAddr;

pub use attend::attend;
pub use gate::{Gate, Visitors, gate};
pub use listen::{Listener, parse_address};

/// The name under which visitors call, as the world names its hosts.
pub const CALLER: &str = "kubectl";

/// Why nobody can be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It cannot be read.
    #[error("{0:?} is no address; write one such as 127.0.0.1:8001")]
    Address(String),
    /// Anybody in the network could delete pods in it.
    #[error("{0} can be reached from elsewhere, and nobody is asked who they are; use 127.0.0.1:{port}", port = .0.port())]
    NotLoopback(SocketAddr),
    /// It is taken, or not ours.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The machine is out of threads or files.
    #[error("cannot start serving: {0}")]
    Start(std::io::Error),
}

#[cfg(test)]
mod tests;
