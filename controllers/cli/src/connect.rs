//! How a command reaches its cluster, and how it ends where it cannot answer.

use super::cluster::{ConnectArgs, Session, connect};
use super::error_hints::add_hint;
use super::{Exit, block_on};

impl ConnectArgs {
    /// Connects, has `work` done, and has an error say what helps against it.
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
