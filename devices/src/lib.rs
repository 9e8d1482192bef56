//! What fence orders reach: executables of the fence-agents project, and Redfish services.
//!
//! ```text
//! Order ─ Devices ─┬─ agent    one process per act, told by stdin, killed with all that it started
//!                  └─ redfish  HTTPS to a management controller, identity read with every look
//! ```
//!
//! Duty: carry an [`Order`] out within its time, and say what was seen.
//!
//! Invariants: a goal (off, on) or a look, never a pulse. When the answer is there, or the time is over, or the
//! future is dropped, nothing of the order runs any more. No secret leaves but to its device: all that a device says
//! goes through `said` first. What is not plainly off is not off.
//!
//! This crate knows no cluster. Who is to be fenced, when, and what an answer proves is decided elsewhere.
#![forbid(unsafe_code)]

mod agent;
mod redfish;
mod said;

use std::collections::BTreeMap;
use std::path::PathBuf;

use futures::future::BoxFuture;
use pod_safety_shared::clock::Env;
use pod_safety_shared::transport::{Answer, DeviceError, Driver, FenceTransport, Order, Value};

use agent::Agents;

/// Where distributions put fence agents.
pub const AGENT_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// All devices that this program can reach.
pub struct Devices {
    env: Env,
    agents: Agents,
}

impl Devices {
    /// Looks for agents in `directories`, the first that has one wins; [`AGENT_DIRECTORIES`] is what people expect.
    #[must_use]
    pub fn new(env: Env, directories: Vec<PathBuf>) -> Self {
        Self { agents: Agents::new(env.clone(), directories), env }
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
            Driver::Agent(name) => Box::pin(self.agents.check(name, parameters)),
            Driver::Redfish => Box::pin(std::future::ready(redfish::check(parameters))),
        }
    }

    fn carry_out(&self, order: Order) -> BoxFuture<'_, Result<Answer, DeviceError>> {
        match order.driver.clone() {
            Driver::Agent(name) => Box::pin(async move { self.agents.carry_out(&name, &order).await }),
            Driver::Redfish => Box::pin(async move { redfish::carry_out(&self.env, &order).await }),
        }
    }
}
