//! `pod-safety explain`: why something is as it is. Reads only.

use anyhow::bail;
use clap::{Args as ClapArgs, Subcommand};
use pod_safety::explain::{Explained, Verdict, explain};
use pod_safety_shared::cache::Snapshot;
use pod_safety_shared::model::{Budget, Kind};

use super::Exit;
use super::budgets::{self, Document};
use super::cluster::{ConnectArgs, Output, block_on, name, open};
use super::paint::{Color, Paint};

/// What an explanation of budgets reads.
const KINDS: [Kind; 6] = [
    Kind::Pods,
    Kind::Budgets,
    Kind::Deployments,
    Kind::ReplicaSets,
    Kind::StatefulSets,
    Kind::ReplicationControllers,
];

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// What a PodDisruptionBudget lets through, what an eviction of each of its pods would be answered, and ways out
    #[command(visible_alias = "poddisruptionbudget")]
    Pdb(PdbArgs),
}

/// At the end of `--help`.
const EXIT_CODES: &str = "Ends with 0 whatever the verdict is, 1 after an error, 2 for wrong usage.";

#[derive(Debug, ClapArgs)]
#[command(after_help = EXIT_CODES)]
struct PdbArgs {
    /// The budget. Without it: a table of all of them
    #[arg(value_name = "NAME", value_parser = name)]
    name: Option<String>,

    /// Its namespace. Default: that of the kubeconfig's context; for the table all of them
    #[arg(short, long, value_name = "NAME", value_parser = name)]
    namespace: Option<String>,

    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,

    /// When to use colours
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,

    #[command(flatten)]
    cluster: ConnectArgs,
}

impl Args {
    pub(super) fn main(self) -> anyhow::Result<Exit> {
        let What::Pdb(args) = self.what;
        block_on(pdb(args))
    }
}

async fn pdb(args: PdbArgs) -> anyhow::Result<Exit> {
    let PdbArgs { name, namespace, output, color, cluster } = args;
    let session = open(&cluster.options()).await?;
    let own = || session.connection.default_namespace().to_owned();
    let namespace = namespace.or_else(|| name.is_some().then(own));
    let nothing = &mut |_: Kind, _: &_| {};
    let snapshot =
        Snapshot::read(&session.connection, &session.env, &KINDS, namespace.as_deref(), nothing).await?;
    let wanted = |budget: &&Budget| name.as_ref().is_none_or(|name| **name == *budget.key.name);
    session.ask_scales(&snapshot, |view| view.budgets().filter(wanted).collect()).await;
    let guard = snapshot.view();
    let view = guard.view();
    let budgets = view.budgets().filter(wanted);
    let mut explained: Vec<Explained<'_>> =
        budgets.map(|budget| explain(budget, &view, snapshot.at())).collect();
    explained.sort_by(|one, other| one.budget.key.cmp(&other.budget.key));
    let (_, unreadable) = view.count(Kind::Budgets);
    let paint = Paint::of_stdout(color);
    match (&name, explained.as_slice()) {
        (Some(name), []) => {
            let unread = match unreadable {
                0 => String::new(),
                count => format!(" ({count} budgets there cannot be read)"),
            };
            bail!("there is no budget {name} in namespace {}{unread}", namespace.unwrap_or_default())
        }
        (Some(_), [one, ..]) => {
            output.print(&Document::of(one), || budgets::page(one, paint))?;
        }
        (None, all) => {
            let list = budgets::List::of(all, unreadable);
            output.print(&list, || budgets::table(all, unreadable, paint))?;
        }
    }
    Ok(Exit::Fine)
}

/// The mark of a verdict.
pub(super) const fn tone(verdict: &Verdict) -> super::paint::Tone {
    use super::paint::Tone;
    match verdict {
        Verdict::Allows(_) => Tone::Good,
        Verdict::SelectsNothing | Verdict::NoneNow | Verdict::Processing => Tone::Attention,
        Verdict::Ignored(_) | Verdict::SyncFailed(_) | Verdict::Overlaps(_) | Verdict::Never => Tone::Bad,
    }
}
