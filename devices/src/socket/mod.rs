//! # Fence agents in another process
//!
//! **Duty.** Run fence agents where they cannot read the ServiceAccount token, the memory or the files of the controllers: in a
//! pod, in a sidecar container. Orders and answers go over a Unix socket.
//!
//! **Inputs.** Orders, on the client's side. What the peer sends, which neither side trusts.
//!
//! | file | subject |
//! |---|---|
//! | [`client`] | the controllers' side: sends an order, and limits what a reply can mean |
//! | [`server`] | the agents' side: runs an agent for an order, and kills it when the order is over |
//! | [`message`] | requests and replies |
//! | [`frame`] | the bytes of a message: version, length, limit |
//!
//! Each connection carries one request and one reply. The client keeps its side open until it has the reply. If it closes the
//! connection earlier, the order is cancelled.
//!
//! **Invariants.**
//! - No process of an order runs after the order's deadline. The deadline is a moment on the host's clock ([`since_boot`]), so
//!   the server refuses a request that it reads too late. The server kills the agent at the deadline; `timeout` of coreutils
//!   does so if the server was killed.
//! - When the client returns, no process of an `off` or `on` runs any more. If the connection breaks, the client waits until
//!   the deadline, or until a server listens: a server kills the agents of its predecessor before it listens.
//! - A missing reply is the error [`AgentsUnavailable`](pod_safety_transport::DeviceError). The order may have been
//!   carried out.
//! - Both sides read at most [`frame::MOST`] bytes, and for a limited time.
//! - A reply never proves an identity, and proves power only after a status check. Agents know no more than that.
//!
//! [`since_boot`]: pod_safety_clock::since_boot

mod client;
mod frame;
mod message;
mod server;

#[cfg(test)]
mod tests;

pub(crate) use client::AgentsAtSocket;
pub use server::{AgentServer, ServeError};
