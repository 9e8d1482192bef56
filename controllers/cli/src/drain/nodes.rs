//! The drain of all nodes: nothing starts before an operator gave the consent that is needed. All nodes are cordoned
//! before the first pod is evicted. Then they are drained, `--parallel` of them at a time.

use std::collections::BTreeSet;

use anyhow::Context;
use futures::future::{BoxFuture, FutureExt as _, Shared};
use futures::{StreamExt as _, stream};
use pod_safety_drain::{Action, Plan, Row};
use pod_safety_print::drains as page;
use pod_safety_shared::model::Uid;
use pod_safety_shared::record::error_chain;
use tokio::signal::unix::{SignalKind, signal};

use super::apply::{Apply, Drained, OneNode};
use crate::{Exit, pluralize, print, print_stderr, sanitize};

/// How many nodes are cordoned at a time.
const MAX_CONCURRENT_CORDONS: usize = 8;

/// Resolves when an operator or a supervisor stops the command.
type Stopped = Shared<BoxFuture<'static, Exit>>;

fn stop_signal() -> anyhow::Result<Stopped> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let stopped = async move {
        tokio::select! {
            biased;
            _ = terminate.recv() => Exit::Interrupted,
            _ = interrupt.recv() => Exit::Interrupted,
        }
    };
    Ok(stopped.boxed().shared())
}

impl Apply {
    /// Drains the nodes of these plans, unless a plan needs an operator's decision first. `try_anyway`: start although
    /// pods cannot be decoded or may not be evicted.
    pub(super) async fn run(&self, plans: &[Plan], parallel: usize, try_anyway: bool) -> anyhow::Result<Drained> {
        let stops: Vec<&Plan> = plans.iter().filter(|plan| plan.must_not_start(try_anyway)).collect();
        if !stops.is_empty() {
            return Ok(Drained { exit: self.refuse(&stops)?, late_pods: 0 });
        }
        let stopped = stop_signal()?;
        let began = self.session.env.now();
        let all: Vec<OneNode<'_>> = plans.iter().map(|plan| OneNode { apply: self, node: &plan.node }).collect();
        let Some((cordoned, sent)) = self.cordon(&all, stopped.clone()).await? else {
            return Ok(Drained { exit: Exit::Interrupted, late_pods: 0 });
        };
        let (sent, stopped) = (&sent, &stopped);
        let drains = stream::iter(all.iter().zip(cordoned)).map(|(one, cordoned)| async move {
            let ended = match cordoned {
                Err(error) => Err(error),
                Ok(()) if stopped.peek().is_some() => Ok(None),
                Ok(()) => one.run(sent, stopped.clone()).await.map(Some),
            };
            self.output.finish_node(one.node, matches!(ended, Ok(Some(Drained { exit: Exit::Fine, .. }))));
            (one.node, ended)
        });
        let results: Vec<_> = drains.buffer_unordered(parallel).collect().await;
        self.conclude(results, self.session.env.now().since(began).as_secs())
    }

    /// Cordons all of them: the result for each, and the pods that were on no node then. `None`: it was stopped.
    async fn cordon(
        &self,
        all: &[OneNode<'_>],
        stopped: Stopped,
    ) -> anyhow::Result<Option<(Vec<anyhow::Result<()>>, BTreeSet<Uid>)>> {
        let cordons = async {
            let all: Vec<_> = stream::iter(all).map(OneNode::cordon).buffered(MAX_CONCURRENT_CORDONS).collect().await;
            // Without them, a pod that the scheduler had already bound is reported, and stays.
            (all, self.snapshot.read_unbound(&self.session).await.unwrap_or_default())
        };
        tokio::select! {
            biased;
            _ = stopped => {
                let text = "stopped while nodes were being cordoned: no pod was evicted; kubectl get nodes shows which are";
                self.output.print_summary(false, text, self.session.env.clock.wall())?;
                Ok(None)
            }
            done = cordons => Ok(Some(done)),
        }
    }

    /// Prints why nothing is started, and the next command.
    fn refuse(&self, stops: &[&Plan]) -> anyhow::Result<Exit> {
        let mut text = self.output.live.clear().to_owned();
        for plan in stops {
            let is_in_the_way = |row: &&Row| matches!(row.action, Action::NeedsConsent | Action::Unsafe);
            let rows: Vec<_> = plan.rows.iter().filter(is_in_the_way).cloned().collect();
            text.push_str(&format!("Plan for {}: {}.\n", plan.node, page::summary(&plan.summarize())));
            if plan.unreadable > 0 {
                text.push_str("Some pods of this cluster cannot be read, and may be on this node.\n");
            }
            if !rows.is_empty() {
                text.push_str(&page::table(&rows, self.output.paint));
            }
        }
        text.push_str(&self.output.paint.wrap_page(&page::describe_not_started(stops)));
        print(&text).context("writing to stdout")?;
        let is_unsafe = stops.iter().any(|plan| plan.is_unsafe());
        Ok(if is_unsafe { Exit::Refused } else { Exit::Blocked })
    }

    /// Prints how the drains ended, and computes the exit.
    fn conclude(&self, results: Vec<(&str, anyhow::Result<Option<Drained>>)>, seconds: u64) -> anyhow::Result<Drained> {
        let all = results.len();
        let (mut not_drained, mut worst, mut late_pods) = (Vec::new(), Exit::Fine, 0);
        for (node, ended) in results {
            let exit = match ended {
                Ok(Some(drained)) => {
                    late_pods += drained.late_pods;
                    drained.exit
                }
                Ok(None) => Exit::Interrupted,
                Err(error) if all == 1 => return Err(error),
                Err(error) => {
                    print_stderr(&sanitize::line(&format!("pod-safety: node {node}: {}", error_chain(error.as_ref()))));
                    Exit::Interrupted
                }
            };
            if exit != Exit::Fine {
                not_drained.push(node);
            }
            worst = worst_of(worst, exit);
        }
        if all > 1 {
            not_drained.sort_unstable();
            let done = all - not_drained.len();
            let mut text = format!("{done} of {} drained in {seconds}s", pluralize(all, "node"));
            if !not_drained.is_empty() {
                text.push_str(&format!(
                    ". Not drained: {}. What was cordoned stays so; the same command continues",
                    not_drained.join(" ")
                ));
            }
            self.output.print_summary(not_drained.is_empty(), &text, self.session.env.clock.wall())?;
        }
        Ok(Drained { exit: worst, late_pods })
    }
}

/// The worse of two exits: an error or Ctrl-C, safety, something blocks, timeout.
const fn worst_of(one: Exit, other: Exit) -> Exit {
    const fn rank(exit: Exit) -> u8 {
        match exit {
            Exit::Interrupted => 5,
            Exit::Refused => 4,
            Exit::Blocked => 3,
            Exit::TimedOut => 2,
            Exit::Unknown => 1,
            Exit::Fine => 0,
        }
    }
    if rank(one) < rank(other) { other } else { one }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::Cli;

    #[test]
    fn nodes_are_named_or_selected() {
        for (args, right) in [
            ("drain a", true),
            ("drain a node/b --apply --parallel 16", true),
            ("drain -l pool=old --apply", true),
            ("drain a --dry-run --ignore-daemonsets", true),
            ("drain a --dry-run=client", true),
            ("drain a --dry-run --withdraw", false),
            ("drain", false),
            ("drain a -l pool=old", false),
            ("drain a --apply --parallel 0", false),
        ] {
            let parsed = Cli::try_parse_from(std::iter::once("pod-safety").chain(args.split(' ')));
            assert_eq!(parsed.is_ok(), right, "{args}: {parsed:?}");
        }
    }

    #[test]
    fn the_exit_code_of_several_nodes_is_the_worst() {
        use Exit::{Blocked, Fine, Interrupted, Refused, TimedOut};
        for (exits, expected) in [
            (&[Fine, Fine][..], Fine),
            (&[Fine, TimedOut, Fine], TimedOut),
            (&[TimedOut, Blocked], Blocked),
            (&[Blocked, Refused], Refused),
            (&[Interrupted, Refused], Interrupted),
        ] {
            let worst = exits.iter().copied().fold(Fine, worst_of);
            let reversed = exits.iter().rev().copied().fold(Fine, worst_of);
            assert_eq!((worst, reversed), (expected, expected), "{exits:?}");
        }
    }
}
