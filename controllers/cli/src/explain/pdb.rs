//! `pod-safety explain pdb`.

use anyhow::bail;
use pod_safety_explain::{BudgetExplanation, BudgetVerdict, explain_budget};
use pod_safety_print::budgets::{self, Document};
use pod_safety_shared::cache::Snapshot;
use pod_safety_shared::model::{Budget, Kind};

use super::Args;
use crate::Exit;
use crate::cluster::{PrintArgs, SelectedObjects, Session};
use crate::error_hints::{NotFound, ResourceKind, check_namespace};
use crate::watch::Rendered;

/// The kinds that an explanation of PodDisruptionBudgets reads.
const KINDS: [Kind; 6] =
    [Kind::Pods, Kind::Budgets, Kind::Deployments, Kind::ReplicaSets, Kind::StatefulSets, Kind::ReplicationControllers];

/// One PodDisruptionBudget, or a table of them.
pub(super) async fn explain_pdb(session: &Session, args: Args, name: Option<String>) -> anyhow::Result<Exit> {
    let Args { selector, print, cluster, watch, .. } = args;
    let own = || session.connection.default_namespace().to_owned();
    let namespace = cluster.namespace.or_else(|| name.is_some().then(own));
    if let (None, Some(namespace)) = (&name, &namespace) {
        check_namespace(session, namespace).await?;
    }
    let render_once = async || {
        let selected = session.select_by_labels(Kind::Budgets, selector.as_deref()).await?;
        read_budgets(session, namespace.as_deref(), name.as_deref(), selected.as_ref(), &print).await
    };
    watch.render_loop(&session.env, print.output, render_once).await
}

async fn read_budgets(
    session: &Session,
    namespace: Option<&str>,
    name: Option<&str>,
    selected: Option<&SelectedObjects>,
    print: &PrintArgs,
) -> anyhow::Result<Rendered> {
    let nothing = &mut |_: Kind, _: &_| {};
    let snapshot = Snapshot::read(&session.connection, &session.env, &KINDS, namespace, nothing).await?;
    let is_selected = |budget: &&Budget| {
        let key = || (budget.key.namespace.to_string(), budget.key.name.to_string());
        name.is_none_or(|name| *name == *budget.key.name) && selected.is_none_or(|names| names.contains(&key()))
    };
    session.query_scales(&snapshot, |view| view.budgets().filter(is_selected).collect()).await;
    let guard = snapshot.view();
    let view = guard.view();
    let budgets = view.budgets().filter(is_selected);
    let mut explained: Vec<BudgetExplanation<'_>> =
        budgets.map(|budget| explain_budget(budget, &view, snapshot.at())).collect();
    explained.sort_by(|one, other| one.budget.key.cmp(&other.budget.key));
    let (_, unreadable) = view.count(Kind::Budgets);
    let (paint, output) = (print.paint(), print.output);
    let text = match (name, explained.as_slice()) {
        (Some(name), []) => {
            let unread = match unreadable {
                0 => String::new(),
                count => format!(" ({count} PodDisruptionBudgets there cannot be read)"),
            };
            bail!(NotFound::new(ResourceKind::Pdb, namespace, name).with_detail(&unread))
        }
        (Some(_), [one, ..]) => {
            let document = Document::new(one, session.target());
            output.text(&document, || session.with_header(&budgets::page(one, paint)))?
        }
        (None, all) => {
            let list = budgets::List::new(all, unreadable, session.target());
            output.text(&list, || session.with_header(&budgets::table(all, unreadable, paint)))?
        }
    };
    let blocked: Vec<&BudgetExplanation<'_>> = explained.iter().filter(|one| blocks(&one.verdict)).collect();
    let lines = blocked.iter().map(|one| format!("pdb/{} {}", one.budget.key, one.verdict.reason()));
    let line = match lines.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "no PodDisruptionBudget blocks".to_owned(),
        some => some,
    };
    Ok(Rendered { text, line, exit: print.exit_for(!blocked.is_empty()) })
}

/// Whether evictions are refused because of it.
const fn blocks(verdict: &BudgetVerdict) -> bool {
    match verdict {
        BudgetVerdict::Allows(_)
        | BudgetVerdict::SelectsNothing
        | BudgetVerdict::AllTerminated
        | BudgetVerdict::Ignored(_) => false,
        BudgetVerdict::NoneNow
        | BudgetVerdict::Processing
        | BudgetVerdict::SyncFailed(_)
        | BudgetVerdict::Overlaps(_)
        | BudgetVerdict::Never => true,
    }
}
