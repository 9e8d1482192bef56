//! What a status check needs. `orders` reads with it, `status_check` and `objects` check devices.

use crate::cache::Cache;
use crate::client::Connection;
use crate::clock::Env;
use crate::transport::FenceTransport;

/// Reads what an order needs, by quorum.
#[derive(Clone, Copy)]
pub(crate) struct QuorumReader<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) cache: &'a Cache,
}

/// Checks the state of devices.
#[derive(Clone, Copy)]
pub struct StatusChecker<'a> {
    pub(crate) reader: QuorumReader<'a>,
    pub(crate) env: &'a Env,
    pub(crate) transport: &'a dyn FenceTransport,
}

impl<'a> StatusChecker<'a> {
    /// A checker of devices that `transport` reaches, or that are objects of the cluster.
    #[must_use]
    pub const fn new(
        connection: &'a Connection,
        cache: &'a Cache,
        env: &'a Env,
        transport: &'a dyn FenceTransport,
    ) -> Self {
        Self { reader: QuorumReader { connection, cache }, env, transport }
    }
}
