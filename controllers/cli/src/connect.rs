//! How a command connects to its cluster, and how it ends if it fails.

use super::cluster::{ConnectArgs, Session, connect};
use super::error_hints::add_hint;
use super::{Exit, block_on};

impl ConnectArgs {
    /// Connects and runs `work`; adds a hint to its error.
    pub(crate) fn with_session(
        &self,
        command: &str,
        work: impl AsyncFnOnce(Session) -> anyhow::Result<Exit>,
    ) -> anyhow::Result<Exit> {
        block_on(async {
            let session = connect(&self.options()).await?;
            match work(session.clone()).await {
                Err(error) => Err(add_hint(&session, command, error).await),
                done => done,
            }
        })
    }
}
