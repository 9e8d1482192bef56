//! `pod-safety fence`, `cancel` and `withdraw`: what people ask of fencing.

use clap::Args as ClapArgs;
use jiff::{SignedDuration, Timestamp};
use pod_safety_shared::authority::people::{self, Examined};
use pod_safety_shared::client::Target;

use super::cluster::{ConnectArgs, Session, name, open};
use super::confirm_down::reason;
use super::consent::consents;
use super::paint::Paint;
use super::stake::Stake;
use super::{Exit, clean, print, say};
use crate::block_on;

/// What has to be typed before the name of a node that answers.
const PHRASE: &str = "switch off";

/// A kubelet renews its Lease every ten seconds, and the Lease lasts 40: a node whose Lease is younger answers.
const ANSWERS: SignedDuration = SignedDuration::from_secs(40);

/// At the end of `--help`.
const EXIT_CODES: &str = "Exits with 0 if the request is recorded, 1 after an error, 2 for wrong usage, 4 if it is rejected: the \
    confirmation did not match.";

#[derive(Debug, ClapArgs)]
#[command(after_help = EXIT_CODES)]
pub struct FenceArgs {
    /// The node: it is switched off, whether it is healthy or not
    #[arg(value_name = "NODE", value_parser = name)]
    node: String,

    /// Why: recorded with the incident
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,

    /// Only record the plan and what would hold it back
    #[arg(long)]
    dry_run: bool,

    /// For a node that reports: the confirmation, instead of typing it: "switch off NODE"
    #[arg(long, value_name = "WORDS")]
    confirm: Option<String>,

    #[command(flatten)]
    cluster: ConnectArgs,
}

#[derive(Debug, ClapArgs)]
pub struct CancelArgs {
    /// The node
    #[arg(value_name = "NODE", value_parser = name)]
    node: String,

    #[command(flatten)]
    cluster: ConnectArgs,
}

#[derive(Debug, ClapArgs)]
pub struct WithdrawArgs {
    /// The node
    #[arg(value_name = "NODE", value_parser = name)]
    node: String,

    /// Why the evidence is wrong
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,

    #[command(flatten)]
    cluster: ConnectArgs,
}

impl FenceArgs {
    pub(crate) fn main(self) -> anyhow::Result<Exit> {
        block_on(self.run())
    }

    async fn run(self) -> anyhow::Result<Exit> {
        let session = open(&self.cluster.options()).await?;
        session.announce();
        let examined = people::examine(&session.connection, &session.env, &self.node).await?;
        let by = people::whoami(&session.connection).await?;
        if !self.dry_run && !self.consents(&session, &examined).await? {
            say("pod-safety: the confirmation did not match; nothing was changed");
            return Ok(Exit::Refused);
        }
        let fence =
            people::ask_to_fence(&session.connection, &examined, &by, &self.reason, self.dry_run).await?;
        let (node, done) = (&self.node, if self.dry_run { "what would be done" } else { "the progress" });
        print(&format!(
            "nodefence/{fence} written. See {done}: pod-safety explain node {node}, or kubectl get nodefence {fence} -w\n"
        ))?;
        Ok(Exit::Fine)
    }

    /// A node that does not answer is fenced at once. One that answers loses what runs there: that is agreed to first.
    async fn consents(&self, session: &Session, examined: &Examined) -> anyhow::Result<bool> {
        let (session, _version) = &session.by_its_clock().await;
        if !answers(examined, session.env.clock.wall()) {
            return Ok(true);
        }
        let page = match &self.confirm {
            Some(_) => String::new(),
            None => {
                let stake = Stake::of(session, examined, Paint::plain()).await?;
                page(&self.node, session.target(), &stake)
            }
        };
        consents(&format!("{PHRASE} {}", self.node), self.confirm.as_deref(), || page)
    }
}

/// Whether its kubelet reported lately, by the clock of the API server.
fn answers(examined: &Examined, wall: Timestamp) -> bool {
    let renewed = examined.renewed.as_deref().and_then(|at| at.parse::<Timestamp>().ok());
    examined.ready || renewed.is_some_and(|at| wall.duration_since(at) < ANSWERS)
}

/// What a person reads before the phrase is typed.
fn page(node: &str, target: &Target, stake: &Stake) -> String {
    let by = match &stake.policy {
        Some((policy, spec)) => {
            let levels: Vec<&str> = spec.levels.iter().map(|level| level.name.as_str()).collect();
            format!(
                "The machine loses its power without a shutdown, by the FencePolicy {policy} (levels: {}). Its gates may delay that, but there is no further confirmation.",
                levels.join(", ")
            )
        }
        None => "No FencePolicy selects it, or none could be read: nothing is switched off.".to_owned(),
    };
    let after = if stake.is_switched_on_again() {
        "It is switched on again when its pods are gone (recovery: PowerOn)."
    } else {
        "It stays off until someone starts it (recovery: Hold)."
    };
    format!(
        "\nNODE {node} ANSWERS: IT IS NOT LOST.\nCluster: {target}\n\n{}\nWhat follows:\n- {by}\n- Its pods are deleted and start elsewhere once it is proved off. Data that they have not written is lost. A PodDisruptionBudget delays this, but does not prevent it.\n- {after}\n\nInstead:\n    pod-safety drain {node} --apply          moves its pods away first, within their PodDisruptionBudgets\n    pod-safety drill {node}                  shows gates, levels and devices, and switches nothing\n    pod-safety pause {node} --reason TEXT    keeps it from being fenced\n",
        stake.page,
    )
}

impl CancelArgs {
    pub(crate) fn main(self) -> anyhow::Result<Exit> {
        block_on(async move {
            let session = open(&self.cluster.options()).await?;
            session.announce();
            let node = people::examine(&session.connection, &session.env, &self.node).await?.node;
            let fence = people::cancel(&session.connection, &node).await?;
            print(&format!(
                "nodefence/{fence} cancelled: no new attempt is begun; attempts in flight are not interrupted\n"
            ))?;
            Ok(Exit::Fine)
        })
    }
}

impl WithdrawArgs {
    pub(crate) fn main(self) -> anyhow::Result<Exit> {
        block_on(async move {
            let session = open(&self.cluster.options()).await?;
            session.announce();
            let node = people::examine(&session.connection, &session.env, &self.node).await?.node;
            let all = people::withdraw(&session.connection, &session.env, &node, &self.reason).await?;
            for evidence in all {
                let line = format!(
                    "fenceevidence/{evidence} is invalidated: no pod is force deleted on it any more"
                );
                print(&format!("{}\n", clean::line(&line)))?;
            }
            Ok(Exit::Fine)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_reports_answers_and_one_that_is_lost_does_not() {
        let wall = "2026-11-21T10:00:00Z".parse().unwrap();
        for (ready, renewed, does) in [
            (true, None, true),
            (false, Some("2026-11-21T09:59:30Z"), true),
            (false, Some("2026-11-21T09:59:20Z"), false),
            (false, None, false),
        ] {
            let node = pod_safety_shared::api::Incarnation::default();
            let renewed = renewed.map(str::to_owned);
            let examined = Examined { node, labels: Default::default(), ready, cordoned: false, renewed };
            assert_eq!(answers(&examined, wall), does, "{examined:?}");
        }
    }
}
