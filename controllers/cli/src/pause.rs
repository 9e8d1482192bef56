//! `pod-safety pause` and `resume`: pause fencing of a node, or of all nodes of a FencePolicy.

use clap::{ArgGroup, Args as ClapArgs};
use pod_safety_shared::api::Pause;
use pod_safety_shared::authority::operator_requests::{self, Scope};

use super::cluster::{ConnectArgs, Session, name, node_name};
use super::confirm_down::reason;
use super::{Exit, print, sanitize};

#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("scope").required(true).args(["node", "policy"]))]
struct ScopeArgs {
    /// The node
    #[arg(value_name = "NODE", value_parser = node_name)]
    node: Option<String>,

    /// Instead of a node: all nodes of this FencePolicy
    #[arg(long, value_name = "NAME", value_parser = name)]
    policy: Option<String>,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("pause"))]
pub struct PauseArgs {
    #[command(flatten)]
    scope: ScopeArgs,

    /// Why: recorded with your name and the time, and shown wherever a node is not fenced because of it
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,

    #[command(flatten)]
    cluster: ConnectArgs,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("resume"))]
pub struct ResumeArgs {
    #[command(flatten)]
    scope: ScopeArgs,

    /// Why it is over: recorded with your name and the time
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,

    #[command(flatten)]
    cluster: ConnectArgs,
}

impl ScopeArgs {
    fn scope(self) -> anyhow::Result<Scope> {
        match (self.node, self.policy) {
            (Some(node), None) => Ok(Scope::Node(node)),
            (None, Some(policy)) => Ok(Scope::Policy(policy)),
            (None, None) | (Some(_), Some(_)) => anyhow::bail!("one node, or --policy NAME"),
        }
    }
}

/// The reason with its author and time.
async fn signed(session: &Session, reason: String) -> anyhow::Result<Pause> {
    let by = operator_requests::whoami(&session.connection).await?;
    let (session, _version) = session.with_server_clock().await;
    Ok(Pause { reason, by: Some((by, session.env.clock.wall())) })
}

/// The name of the command in the table of rights.
const fn command(pause: bool, scope: &Scope) -> &'static str {
    match (pause, scope) {
        (true, Scope::Node(_)) => "pause",
        (true, Scope::Policy(_)) => "pause --policy",
        (false, Scope::Node(_)) => "resume",
        (false, Scope::Policy(_)) => "resume --policy",
    }
}

/// The argument of the opposite command.
fn flag(scope: &Scope) -> String {
    match scope {
        Scope::Node(node) => node.clone(),
        Scope::Policy(policy) => format!("--policy {policy}"),
    }
}

impl PauseArgs {
    pub(crate) fn main(self) -> anyhow::Result<Exit> {
        let (cluster, scope) = (self.cluster.clone(), self.scope.scope()?);
        cluster.with_session(command(true, &scope), async |session| {
            session.announce();
            let pause = signed(&session, self.reason).await?;
            operator_requests::pause(&session.connection, &scope, &pause).await?;
            let message = format!(
                "{} is paused: no new attempt to fence is begun. Attempts in flight are not interrupted, and existing evidence stays valid.\nThe pause does not end by itself: pod-safety resume {} --reason TEXT\n",
                scope.object(),
                flag(&scope)
            );
            print(&message)?;
            Ok(Exit::Fine)
        })
    }
}

impl ResumeArgs {
    pub(crate) fn main(self) -> anyhow::Result<Exit> {
        let (cluster, scope) = (self.cluster.clone(), self.scope.scope()?);
        cluster.with_session(command(false, &scope), async |session| {
            session.announce();
            let resumed = signed(&session, self.reason).await?;
            let was = operator_requests::resume(&session.connection, &scope, &resumed).await?;
            let message = format!(
                "{} is resumed: it is fenced again when it is lost. It was paused because: {was}",
                scope.object()
            );
            print(&format!("{}\n", sanitize::line(&message)))?;
            Ok(Exit::Fine)
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::Cli;

    #[test]
    fn pause_takes_one_object_and_a_reason() {
        for (args, right) in [
            ("pause n --reason=x", true),
            ("resume --policy p --reason=x", true),
            ("pause n", false),
            ("pause --reason=x", false),
            ("resume n", false),
            ("resume n --policy p --reason=x", false),
            ("pause n --reason=", false),
            ("pause No --reason=x", false),
        ] {
            let parsed = Cli::try_parse_from(std::iter::once("pod-safety").chain(args.split(' ')));
            assert_eq!(parsed.is_ok(), right, "{args}: {parsed:?}");
        }
    }
}
