//! With what devices are looked at. `orders` reads with it, `looks` and `objects` look.

use crate::cache::Cache;
use crate::client::Connection;
use crate::clock::Env;
use crate::transport::FenceTransport;

/// Reads by quorum what an order needs.
#[derive(Clone, Copy)]
pub(crate) struct QuorumReader<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) cache: &'a Cache,
}

/// Looks at devices.
#[derive(Clone, Copy)]
pub struct StatusChecker<'a> {
    pub(crate) reader: QuorumReader<'a>,
    pub(crate) env: &'a Env,
    pub(crate) transport: &'a dyn FenceTransport,
}

impl<'a> StatusChecker<'a> {
    /// At the devices that `transport` reaches, or that are objects of the cluster.
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
