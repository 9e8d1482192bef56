//! What a step works with.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use crate::client::{Call, Method, WriteCall as _};
use crate::clock::Env;
use crate::events::Recorder;
use crate::evidence::EvidenceReader;
use crate::model::{Rv, Uid};
use crate::outcome::Outcome;
use crate::send::WriteContext;
use crate::status_checker::StatusChecker;
use crate::transport::FenceTransport;
use crate::wire::Raw;

/// The clients, the cache, the clock and the devices of a step.
pub struct StepContext<'a> {
    pub(crate) writer: WriteContext<'a>,
    pub(crate) env: &'a Env,
    pub(crate) checker: StatusChecker<'a>,
    /// The identity of this process, as in its Lease.
    pub(crate) identity: &'a str,
    /// Records Events about changes of a device.
    pub(crate) events: &'a Recorder,
}

/// How often the term is checked, so that one that was released early is noticed.
const TERM_CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl<'a> StepContext<'a> {
    /// A context with the devices that `transport` reaches.
    #[must_use]
    pub const fn new(
        writer: WriteContext<'a>,
        transport: &'a dyn FenceTransport,
        identity: &'a str,
        events: &'a Recorder,
    ) -> Self {
        let WriteContext { connection, cache, env, .. } = writer;
        let checker = StatusChecker::new(connection, cache, env, transport);
        Self { checker, env, writer, identity, events }
    }

    /// Verifies whether evidence holds now.
    pub(crate) const fn evidence_reader(&self) -> EvidenceReader<'_> {
        EvidenceReader::new(self.checker)
    }

    /// Sends one request, within the leader's term.
    pub(crate) async fn send(&self, call: Call) -> Result<Raw, Outcome> {
        Ok(self.writer.send(call, None).await?)
    }

    /// Writes a status, at the resourceVersion from which it was decided.
    pub(crate) async fn write_status(
        &self,
        path: &str,
        (uid, rv): (&Uid, Rv),
        status: &impl Serialize,
    ) -> Result<(), Outcome> {
        let body = json!({ "metadata": { "uid": uid, "resourceVersion": rv }, "status": status });
        self.send(Call::write(Method::Merge, format!("{path}/status"), &body)).await.map(drop)
    }

    /// Runs work that may take long, and abandons it when the term ends: dropping it kills the processes that it
    /// started.
    pub(crate) async fn while_leading<T>(&self, work: impl Future<Output = T> + Send) -> Result<T, Outcome> {
        let mut work = Box::pin(work);
        loop {
            let now = self.env.now();
            let term = self.writer.leadership.term(now).ok_or(Outcome::NotLeader)?;
            if let Some(done) = self.env.timeout_at(term.ends().min(now + TERM_CHECK_INTERVAL), work.as_mut()).await {
                return Ok(done);
            }
        }
    }
}
