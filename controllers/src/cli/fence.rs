//! `pod-safety fence`, `cancel` and `withdraw`: what people ask of fencing.

use clap::Args as ClapArgs;
use pod_safety_shared::authority::people;

use super::cluster::{ConnectArgs, block_on, name, open};
use super::confirm_down::reason;
use super::{Exit, clean, print};

#[derive(Debug, ClapArgs)]
pub(super) struct FenceArgs {
    /// The node: it is switched off, whether it is well or not
    #[arg(value_name = "NODE", value_parser = name)]
    node: String,

    /// Why: it is kept with the incident
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,

    /// Have the plan and what would hold it back written down, and nothing done
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    cluster: ConnectArgs,
}

#[derive(Debug, ClapArgs)]
pub(super) struct CancelArgs {
    /// The node
    #[arg(value_name = "NODE", value_parser = name)]
    node: String,

    #[command(flatten)]
    cluster: ConnectArgs,
}

#[derive(Debug, ClapArgs)]
pub(super) struct WithdrawArgs {
    /// The node
    #[arg(value_name = "NODE", value_parser = name)]
    node: String,

    /// Why it is not true
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,

    #[command(flatten)]
    cluster: ConnectArgs,
}

impl FenceArgs {
    pub(super) fn main(self) -> anyhow::Result<Exit> {
        block_on(async move {
            let session = open(&self.cluster.options()).await?;
            let examined = people::examine(&session.connection, &session.env, &self.node).await?;
            let by = people::whoami(&session.connection).await?;
            let fence =
                people::ask_to_fence(&session.connection, &examined, &by, &self.reason, self.dry_run).await?;
            print(
                format!("nodefence/{fence} written; follow it with kubectl get nodefence {fence} -w\n")
                    .as_bytes(),
            )?;
            Ok(Exit::Fine)
        })
    }
}

impl CancelArgs {
    pub(super) fn main(self) -> anyhow::Result<Exit> {
        block_on(async move {
            let session = open(&self.cluster.options()).await?;
            let node = people::examine(&session.connection, &session.env, &self.node).await?.node;
            let fence = people::cancel(&session.connection, &node).await?;
            print(
                format!(
                    "nodefence/{fence} cancelled: no new attempt is begun; what was begun may still land\n"
                )
                .as_bytes(),
            )?;
            Ok(Exit::Fine)
        })
    }
}

impl WithdrawArgs {
    pub(super) fn main(self) -> anyhow::Result<Exit> {
        block_on(async move {
            let session = open(&self.cluster.options()).await?;
            let node = people::examine(&session.connection, &session.env, &self.node).await?.node;
            let all = people::withdraw(&session.connection, &session.env, &node, &self.reason).await?;
            for evidence in all {
                let line = format!("fenceevidence/{evidence} is invalid: nothing is released by it any more");
                print(format!("{}\n", clean::line(&line)).as_bytes())?;
            }
            Ok(Exit::Fine)
        })
    }
}
