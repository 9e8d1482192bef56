//! How a command reaches its cluster, and how it ends where it cannot answer.

use super::cluster::{ConnectArgs, Session, open};
use super::helped::helped;
use super::{Exit, block_on};

impl ConnectArgs {
    /// Connects, has `work` done, and has an error say what helps against it.
    pub(crate) fn reach(
        &self,
        command: &str,
        work: impl AsyncFnOnce(Session) -> anyhow::Result<Exit>,
    ) -> anyhow::Result<Exit> {
        block_on(async {
            let session = open(&self.options()).await?;
            match work(session.clone()).await {
                Err(error) => Err(helped(&session, command, error).await),
                done => done,
            }
        })
    }
}
