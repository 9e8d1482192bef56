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

/// What a step needs.
pub struct StepContext<'a> {
    pub(crate) writer: WriteContext<'a>,
    pub(crate) env: &'a Env,
    pub(crate) checker: StatusChecker<'a>,
    /// Who this process is.
    pub(crate) identity: &'a str,
    /// Where is said what changed with a device.
    pub(crate) events: &'a Recorder,
}

/// A term that is given back early is noticed within this.
const TERM_CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl<'a> StepContext<'a> {
    /// By these means, with the devices that `transport` reaches.
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

    /// The judge of whether evidence holds now.
    pub(crate) const fn evidence_reader(&self) -> EvidenceReader<'_> {
        EvidenceReader::new(self.checker)
    }

    /// One request, within the term.
    pub(crate) async fn send(&self, call: Call) -> Result<Raw, Outcome> {
        self.writer.send(call, None).await
    }

    /// A status, at the version from which it was decided.
    pub(crate) async fn write_status(
        &self,
        path: &str,
        (uid, rv): (&Uid, Rv),
        status: &impl Serialize,
    ) -> Result<(), Outcome> {
        let body = json!({ "metadata": { "uid": uid, "resourceVersion": rv }, "status": status });
        self.send(Call::write(Method::Merge, format!("{path}/status"), &body)).await.map(drop)
    }

    /// What takes long is left when the term ends: dropping it kills what it started.
    pub(crate) async fn while_leading<T>(&self, work: impl Future<Output = T> + Send) -> Result<T, Outcome> {
        let mut work = Box::pin(work);
        loop {
            let now = self.env.now();
            let term = self.writer.leadership.term(now).ok_or(Outcome::NotLeader)?;
            if let Some(done) =
                self.env.timeout_at(term.ends().min(now + TERM_CHECK_INTERVAL), work.as_mut()).await
            {
                return Ok(done);
            }
        }
    }
}
