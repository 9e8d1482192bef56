//! `pod-safety explain pdb`.

use anyhow::bail;
use pod_safety_explain::{Explained, Verdict, explain};
use pod_safety_print::budgets::{self, Document};
use pod_safety_shared::cache::Snapshot;
use pod_safety_shared::model::{Budget, Kind};

use super::Args;
use crate::Exit;
use crate::cluster::{Chosen, PrintArgs, Session};
use crate::helped::{Named, NotThere};
use crate::watch::Shown;

/// What an explanation of budgets reads.
const KINDS: [Kind; 6] = [
    Kind::Pods,
    Kind::Budgets,
    Kind::Deployments,
    Kind::ReplicaSets,
    Kind::StatefulSets,
    Kind::ReplicationControllers,
];

/// One budget, or a table of them.
pub(super) async fn explain_pdb(session: &Session, args: Args, name: Option<String>) -> anyhow::Result<Exit> {
    let Args { selector, print, cluster, watch, .. } = args;
    let own = || session.connection.default_namespace().to_owned();
    let namespace = cluster.namespace.or_else(|| name.is_some().then(own));
    let ask = async || {
        let chosen = session.selected(Kind::Budgets, selector.as_deref()).await?;
        look(session, namespace.as_deref(), name.as_deref(), chosen.as_ref(), &print).await
    };
    watch.show(&session.env, print.output, ask).await
}

async fn look(
    session: &Session,
    namespace: Option<&str>,
    name: Option<&str>,
    chosen: Option<&Chosen>,
    print: &PrintArgs,
) -> anyhow::Result<Shown> {
    let nothing = &mut |_: Kind, _: &_| {};
    let snapshot = Snapshot::read(&session.connection, &session.env, &KINDS, namespace, nothing).await?;
    let wanted = |budget: &&Budget| {
        let key = || (budget.key.namespace.to_string(), budget.key.name.to_string());
        name.is_none_or(|name| *name == *budget.key.name)
            && chosen.is_none_or(|chosen| chosen.contains(&key()))
    };
    session.ask_scales(&snapshot, |view| view.budgets().filter(wanted).collect()).await;
    let guard = snapshot.view();
    let view = guard.view();
    let budgets = view.budgets().filter(wanted);
    let mut explained: Vec<Explained<'_>> =
        budgets.map(|budget| explain(budget, &view, snapshot.at())).collect();
    explained.sort_by(|one, other| one.budget.key.cmp(&other.budget.key));
    let (_, unreadable) = view.count(Kind::Budgets);
    let (paint, output) = (print.paint(), print.output);
    let text = match (name, explained.as_slice()) {
        (Some(name), []) => {
            let unread = match unreadable {
                0 => String::new(),
                count => format!(" ({count} PodDisruptionBudgets there cannot be read)"),
            };
            bail!(NotThere::new(Named::Pdb, namespace, name).and(&unread))
        }
        (Some(_), [one, ..]) => {
            let document = Document::of(one, session.target());
            output.text(&document, || session.headed(&budgets::page(one, paint)))?
        }
        (None, all) => {
            let list = budgets::List::of(all, unreadable, session.target());
            output.text(&list, || session.headed(&budgets::table(all, unreadable, paint)))?
        }
    };
    let blocked: Vec<&Explained<'_>> = explained.iter().filter(|one| blocks(&one.verdict)).collect();
    let words = blocked.iter().map(|one| format!("pdb/{} {}", one.budget.key, one.verdict.reason()));
    let line = match words.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "no PodDisruptionBudget blocks".to_owned(),
        some => some,
    };
    Ok(Shown { text, line, exit: print.exit(!blocked.is_empty()) })
}

/// Whether evictions are refused because of it.
const fn blocks(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Allows(_) | Verdict::SelectsNothing | Verdict::Ignored(_) => false,
        Verdict::NoneNow
        | Verdict::Processing
        | Verdict::SyncFailed(_)
        | Verdict::Overlaps(_)
        | Verdict::Never => true,
    }
}
