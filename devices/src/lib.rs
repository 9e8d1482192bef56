//! The transports of fence orders: executables of the fence-agents project, and Redfish services.
//!
//! ```text
//! Order ─ Devices ─┬─ agent    one process per order, controlled by stdin, killed with all that it started
//!                  ├─ socket   the same agents, run by an AgentServer in another container
//!                  ├─ redfish  HTTPS to a management controller, identity read with every status check
//!                  └─ port     whether a machine answers at all
//! ```
//!
//! Duty: execute an [`Order`] within its timeout, and report the result.
//!
//! Invariants: a desired state (off, on) or a status check, never a pulse. After the answer, and after the timeout,
//! nothing of an order runs. When the future is dropped, its processes are killed: children at once, those of another
//! process as soon as it notices. No secret is sent to anything but its device: all output of a device goes through
//! `redact` first. A state that is not clearly off is not off.
//!
//! This crate knows no cluster. Which node is fenced, when, and what an answer proves is decided elsewhere.
#![forbid(unsafe_code)]

mod agent;
mod port;
mod redact;
mod redfish;
mod socket;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use futures::future::BoxFuture;
use pod_safety_clock::Env;
use pod_safety_transport::{Answer, DeviceError, Driver, FenceTransport, Order, Value};

use agent::Agents;
use socket::AgentsAtSocket;
pub use socket::{AgentServer, ServeError};

/// Where distributions install fence agents.
pub const AGENT_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// Which fence agents may run.
#[derive(Clone, Debug, Default)]
pub struct AgentOptions {
    /// Their folders, the first that has the agent counts; [`AGENT_DIRECTORIES`] is the default.
    pub directories: Vec<PathBuf>,
    /// Whether `fence_dummy` may run, which switches nothing and reports a missing file as a machine that is off.
    pub fence_dummy: bool,
}

/// Where fence agents run.
#[derive(Debug)]
pub enum AgentLocation {
    /// As children of this process, as its user.
    Local(AgentOptions),
    /// By the [`AgentServer`] on this Unix socket.
    Socket(PathBuf),
}

/// All devices that this program can reach.
pub struct Devices {
    env: Env,
    agents: AgentRunner,
}

#[derive(Debug)]
enum AgentRunner {
    Local(Agents),
    Socket(AgentsAtSocket),
}

impl Devices {
    /// Devices, and where their agents run.
    #[must_use]
    pub fn new(env: Env, agents: AgentLocation) -> Self {
        let agents = match agents {
            AgentLocation::Local(options) => AgentRunner::Local(Agents::new(env.clone(), options, "")),
            AgentLocation::Socket(socket) => AgentRunner::Socket(AgentsAtSocket::new(env.clone(), socket)),
        };
        Self { env, agents }
    }

    /// Whether agents can run.
    ///
    /// # Errors
    /// [`DeviceError::AgentsUnavailable`].
    pub async fn check_agents(&self) -> Result<(), DeviceError> {
        match &self.agents {
            AgentRunner::Local(_) => Ok(()),
            AgentRunner::Socket(agents) => agents.check_server().await,
        }
    }
}

impl std::fmt::Debug for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Devices").field("agents", &self.agents).finish_non_exhaustive()
    }
}

impl FenceTransport for Devices {
    fn check<'a>(
        &'a self,
        driver: &'a Driver,
        parameters: &'a BTreeMap<String, Value>,
    ) -> BoxFuture<'a, Result<(), DeviceError>> {
        match driver {
            Driver::Agent(name) => Box::pin(async move {
                match &self.agents {
                    AgentRunner::Local(agents) => agents.check(name, parameters).await,
                    AgentRunner::Socket(agents) => agents.check(name, parameters).await,
                }
            }),
            Driver::Redfish => Box::pin(std::future::ready(redfish::check(parameters))),
        }
    }

    fn carry_out(&self, order: Order) -> BoxFuture<'_, Result<Answer, DeviceError>> {
        match order.driver.clone() {
            Driver::Agent(name) => Box::pin(async move {
                match &self.agents {
                    AgentRunner::Local(agents) => agents.carry_out(&name, &order).await,
                    AgentRunner::Socket(agents) => agents.carry_out(&name, &order).await,
                }
            }),
            Driver::Redfish => Box::pin(async move { redfish::carry_out(&self.env, &order).await }),
        }
    }

    fn probe_tcp(&self, address: SocketAddr, within: Duration) -> BoxFuture<'_, Result<bool, DeviceError>> {
        Box::pin(port::probe_tcp(&self.env, address, within))
    }
}
