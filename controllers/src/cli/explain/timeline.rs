//! `pod-safety timeline`: what happened, in order, with durations.

use std::time::Duration;

use anyhow::bail;
use clap::Args as ClapArgs;
use pod_safety::explain::{Moment, since, span};
use serde::Serialize;

use super::page::clock;
use super::{BadUse, What, answer, name, one_name};
use crate::cli::cluster::{ConnectArgs, PrintArgs, block_on, open};
use crate::cli::paint::{Paint, Tone};
use crate::cli::watch::{Shown, WatchArgs};
use crate::cli::{API_VERSION, Exit};

#[derive(Debug, ClapArgs)]
#[command(after_help = "Ends with 0, 1 after an error, 2 for wrong usage.")]
pub(in crate::cli) struct TimelineArgs {
    /// What: pod (po) or node (no); or with its name, as in node/NAME
    #[arg(value_name = "KIND[/NAME]", value_parser = What::parse)]
    what: (What, Option<String>),

    /// Which one
    #[arg(value_name = "NAME", value_parser = name)]
    name: Option<String>,

    /// The namespace of a pod. Default: that of the kubeconfig's context, else the only one that has such a pod
    #[arg(short, long, value_name = "NAME", value_parser = name)]
    namespace: Option<String>,

    #[command(flatten)]
    watch: WatchArgs,

    #[command(flatten)]
    print: PrintArgs,

    #[command(flatten)]
    cluster: ConnectArgs,
}

/// A timeline for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    object: &'a str,
    moments: Vec<Step<'a>>,
    total_seconds: u64,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    missing: &'a [String],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Step<'a> {
    #[serde(flatten)]
    moment: &'a Moment,
    after_seconds: u64,
}

impl TimelineArgs {
    pub(in crate::cli) fn main(self) -> anyhow::Result<Exit> {
        let (what, name) = one_name(self.what.clone(), self.name.clone())?;
        if !matches!(what, What::Pod | What::Node) {
            bail!(BadUse::NoTimeline(what.word()));
        }
        let Some(name) = name else { bail!(BadUse::NoName(what.word())) };
        block_on(self.run(what, name))
    }

    async fn run(self, what: What, name: String) -> anyhow::Result<Exit> {
        let session = open(&self.cluster.options()).await?;
        let paint = self.print.paint();
        let ask = async || {
            let answer = answer(&session, what, &name, self.namespace.as_deref(), false).await?;
            let document = Document {
                api_version: API_VERSION,
                kind: "Timeline",
                object: &answer.object,
                moments: steps(&answer.history),
                total_seconds: total(&answer.history).as_secs(),
                missing: &answer.missing,
            };
            let text = self.print.output.text(&document, || page(&answer.history, &answer.missing, paint))?;
            let last = answer
                .history
                .last()
                .map_or("nothing is known".to_owned(), |last| format!("{} {}", last.what, last.detail));
            Ok(Shown { text, line: format!("{} {last}", answer.object), exit: Exit::Fine })
        };
        self.watch.show(&session.env, self.print.output, ask).await
    }
}

/// Each with the time since the one before it.
fn steps(moments: &[Moment]) -> Vec<Step<'_>> {
    let before = std::iter::once(None).chain(moments.iter().map(Some));
    let after = |(moment, before): (&Moment, Option<&Moment>)| {
        before.map_or(0, |before| since(before.at, moment.at).as_secs())
    };
    moments
        .iter()
        .zip(before)
        .map(|(moment, before)| Step { moment, after_seconds: after((moment, before)) })
        .collect()
}

fn total(moments: &[Moment]) -> Duration {
    moments.first().zip(moments.last()).map_or(Duration::ZERO, |(first, last)| since(first.at, last.at))
}

fn page(moments: &[Moment], missing: &[String], paint: Paint) -> String {
    let Some(last) = moments.last() else {
        return "Nothing is known of it: Events are kept for an hour.\n".to_owned();
    };
    let row = |step: &Step<'_>| {
        let after = match step.after_seconds {
            0 => String::new(),
            seconds => format!("+{}", span(Duration::from_secs(seconds))),
        };
        let Moment { at, what, detail } = step.moment;
        (Tone::Plain, vec![clock(*at, last.at), after, what.clone(), detail.clone()])
    };
    let rows: Vec<_> = steps(moments).iter().map(row).collect();
    let mut text = paint.table(&["TIME (UTC)", "AFTER", "WHAT", ""], &rows);
    text.push_str(&format!("{} in all\n", span(total(moments))));
    for missing in missing {
        let line = paint.wrap(&format!("{} {missing}", paint.mark(Tone::Attention)), 2);
        text.push_str(&paint.tone(Tone::Attention, &line));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pod_safety::explain::explain_node;

    use super::*;
    use crate::cli::staged::Stage;

    #[test]
    fn what_happened_is_told_in_order_with_its_durations() {
        let stage = Stage::lost();
        stage.policy("Asserted");
        stage.fence("Fenced", &[("2026-11-21T10:15:10Z", None)]);
        let answer = stage.scene(|scene| explain_node(&Arc::from("worker-b1"), scene)).unwrap();
        let text = page(&answer.history, &[], Paint::plain());
        assert_eq!(
            text,
            "TIME (UTC)  AFTER  WHAT
10:14:05           last heartbeat of worker-b1
10:14:55    +50s   worker-b1 counts as lost     50s after its last heartbeat
10:14:55           worker-b1 gets a taint       node.kubernetes.io/unreachable:NoExecute
10:15:10    +15s   switch worker-b1 off         with fence/ipmi-b1
10:15:10           its power is Off
1m05s in all
"
        );
    }
}
