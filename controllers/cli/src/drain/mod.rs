//! `pod-safety drain`: a plan by default, the act with `--apply`.
//!
//! | file | subject |
//! |---|---|
//! | `look` | what the API server has, and its answers to dry runs |
//! | `page` | the plan for people and for programs |
//! | `apply` | cordons, drives the work, ends in good order |
//! | `live` | what is said meanwhile, on a terminal and in a log |

mod apply;
mod live;
pub(super) mod look;
mod page;

use std::time::Duration;

use clap::Args as ClapArgs;
use pod_safety_drain::{Consent, Plan};
use pod_safety_print::{Color, Paint};

use super::cluster::{ConnectArgs, Output, Session, name, node_name};
use super::terminal;
use super::{Exit, duration};
pub(crate) use apply::Drained;
use look::Look;

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("drain"))]
pub struct Args {
    /// The node
    #[arg(value_name = "NODE", value_parser = node_name)]
    node: String,

    /// Cordon the node and evict its pods; without this flag nothing is changed
    #[arg(long)]
    apply: bool,

    #[command(flatten)]
    consent: ConsentArgs,

    /// With --apply: begin even if pods of the cluster cannot be read, or no pod of the node may go now
    #[arg(long, requires = "apply")]
    try_anyway: bool,

    /// With --apply: exit with code 5 after this time; the node stays cordoned. Default: no limit
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true, requires = "apply")]
    timeout: Option<Duration>,

    /// The format of the plan
    #[arg(short, long, value_enum, default_value_t = Output::Table, conflicts_with = "apply")]
    output: Output,

    /// When to use colours
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,

    #[command(flatten)]
    cluster: ConnectArgs,
}

/// What may be lost by a drain, and what stays.
#[derive(Debug, ClapArgs)]
pub(super) struct ConsentArgs {
    /// A pod that stays; may be given more than once
    #[arg(long, value_name = "NAMESPACE/POD", value_parser = pod_name)]
    skip: Vec<(String, String)>,

    /// Evict pods with emptyDir volumes too: their data is lost
    #[arg(long)]
    delete_emptydir_data: bool,

    /// Evict pods without a controller too: they do not come back
    #[arg(long)]
    evict_unmanaged: bool,
}

impl ConsentArgs {
    pub(super) fn consent(&self) -> Consent {
        Consent {
            skip: self.skip.iter().cloned().collect(),
            delete_emptydir_data: self.delete_emptydir_data,
            evict_unmanaged: self.evict_unmanaged,
        }
    }
}

/// Reads `NAMESPACE/POD`.
fn pod_name(text: &str) -> Result<(String, String), String> {
    let (namespace, pod) = text.split_once('/').ok_or("allowed is NAMESPACE/POD, such as shop/api-0")?;
    Ok((name(namespace)?, name(pod)?))
}

impl Args {
    pub(super) fn main(self) -> anyhow::Result<Exit> {
        let cluster = self.cluster.clone();
        cluster.reach("drain", async |session| self.run(session).await)
    }

    async fn run(self, session: Session) -> anyhow::Result<Exit> {
        let paint = terminal::of_stdout(self.color);
        let consent = self.consent.consent();
        let look = Look::at(&session, &self.node).await?;
        look.say_what_is_not_there(&self.node, &consent);
        let mut plan = look.plan(&self.node, &consent);
        if self.apply {
            session.announce();
            look.may_apply(&session, &plan).await?;
            let live = live::Live::of_stdout(paint);
            let Self { node, timeout, try_anyway: all_the_same, .. } = self;
            let done = format!("When the work on it is done: kubectl uncordon {node}\n");
            let apply = apply::Apply { session, node, consent, paint, live, timeout, all_the_same };
            let Drained { exit, .. } = apply.run(plan).await?;
            if exit == Exit::Fine {
                super::print(&done)?;
            }
            return Ok(exit);
        }
        let missing = look.ask(&session, &mut plan).await;
        look.place(&mut plan);
        let document = page::Document::of(&plan, &missing, session.target());
        let page = || session.headed(&page::page(&plan, &missing, &page::next(&plan), paint));
        self.output.print(&document, page)?;
        Ok(exit_of(&plan))
    }
}

/// Prints the plan for a node, below the name of its cluster, for `maintain --dry-run`.
pub(super) async fn show(
    session: &Session,
    node: &str,
    consent: &Consent,
    paint: Paint,
) -> anyhow::Result<Exit> {
    let look = Look::at(session, node).await?;
    look.say_what_is_not_there(node, consent);
    let mut plan = look.plan(node, consent);
    let missing = look.ask(session, &mut plan).await;
    look.place(&mut plan);
    super::print(&page::page(&plan, &missing, &page::next_of_maintenance(&plan), paint))?;
    Ok(exit_of(&plan))
}

/// Carries a plan out, as with `--apply`.
pub(super) async fn apply(
    session: &Session,
    node: &str,
    consent: Consent,
    paint: Paint,
    timeout: Duration,
    plan: Plan,
) -> anyhow::Result<Drained> {
    let live = live::Live::of_stdout(paint);
    let (session, node, timeout) = (session.clone(), node.to_owned(), Some(timeout));
    apply::Apply { session, node, consent, paint, live, timeout, all_the_same: false }.run(plan).await
}

/// What a plan says to a script.
fn exit_of(plan: &Plan) -> Exit {
    match (plan.is_unsafe(), plan.is_clear()) {
        (true, _) => Exit::Refused,
        (false, false) => Exit::Blocked,
        (false, true) => Exit::Fine,
    }
}
