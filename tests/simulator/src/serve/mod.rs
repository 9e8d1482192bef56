//! A simulated cluster for real `kubectl`: HTTP on loopback, in real time.
//!
//! ```text
//!  kubectl ── HTTP ─► Listener ── Gate ─►│─ Visitors ─► attend ── Transport ─► ApiServer
//!             thread of real time        │          thread of simulated time
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `listen` | the socket, its thread and its runtime |
//! | `gate` | the channel between the two threads, and its limit of open requests |
//! | `attend` | how the simulation handles a request |
//! | `reviews` | the requests of commands about the person who types them |
//! | `installation` | the requests of commands about the pods of pod-safety |
//! | `table`, `columns`, `defined`, `pods` | the tables that `kubectl get` prints |
//!
//! ```ignore
//! let (gate, visitors) = serve::gate();
//! let listener = serve::Listener::start(address, gate)?;      // before the simulation
//! spawner.spawn("visitors", Box::pin(serve::attend(visitors, || world.servers(), || world.ours(), env))); // inside of it
//! ```
//!
//! Invariants: as long as no client connects, nothing of this is polled, draws or sleeps, so a run with a gate is the
//! same as the run without one. A request waits for as long as the simulation stands still. When a client disconnects,
//! its request's task and watch end, but not a request that the API server has already received.

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

/// The caller name of clients from outside, as a host of the world.
pub const CALLER: &str = "kubectl";

/// Why the cluster cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be parsed.
    #[error("{0:?} is no address; write one such as 127.0.0.1:8001")]
    Address(String),
    /// Any client in the network could delete pods in it.
    #[error("{0} can be reached from elsewhere, and nobody is asked who they are; use 127.0.0.1:{port}", port = .0.port())]
    NotLoopback(SocketAddr),
    /// The address is taken, or not one of this machine.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The machine is out of threads or files.
    #[error("cannot start serving: {0}")]
    Start(std::io::Error),
}

#[cfg(test)]
mod tests;
