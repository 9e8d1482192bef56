//! Explanations, for operators and for programs.

use std::fmt::Write as _;

use jiff::Timestamp;
use pod_safety_explain::{Answer, Finding, Judgement, Moment, Verdict};
use pod_safety_shared::client::Target;
use serde::Serialize;

use crate::{API_VERSION, Paint, Tone};

/// An explanation for programs. Enums are serialised by name. Messages may change, fields may not.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    cluster: &'a Target,
    #[serde(flatten)]
    answer: &'a Answer,
}

impl<'a> Document<'a> {
    /// An explanation about this cluster.
    #[must_use]
    pub fn new(answer: &'a Answer, cluster: &'a Target) -> Self {
        let kind = match answer.object.split('/').next() {
            Some("pod") => "PodExplanation",
            Some("node") => "NodeExplanation",
            Some("statefulset") => "StatefulSetExplanation",
            Some("namespace") => "NamespaceExplanation",
            Some("persistentvolumeclaim" | "persistentvolume") => "VolumeExplanation",
            Some("eviction" | "evictionrequest") => "EvictionExplanation",
            _ => "Explanation",
        };
        Self { api_version: API_VERSION, kind, cluster, answer }
    }
}

/// The tone of a verdict.
const fn tone_for(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Free => Tone::Good,
        Verdict::Waiting | Verdict::Released | Verdict::Unknown => Tone::Attention,
        Verdict::Blocked => Tone::Bad,
    }
}

/// `Blocked (NoEvidence): why`.
#[must_use]
pub fn sentence(verdict: &Judgement) -> String {
    let Judgement { verdict: standing, reason, message } = verdict;
    format!("{standing:?} ({reason}): {message}")
}

/// The explanation as a page; `wide`: with the reason of each of its items.
#[must_use]
pub fn page(answer: &Answer, wide: bool, paint: Paint) -> String {
    let facts: Vec<&str> =
        std::iter::once(answer.object.as_str()).chain(answer.facts.iter().map(String::as_str)).collect();
    let tone = tone_for(answer.judgement.verdict);
    let verdict = paint.with_mark(tone, &sentence(&answer.judgement));
    let mut text = format!("{}\n{verdict}", paint.wrap(&facts.join("   "), 2));
    if let Some(before) = &answer.before {
        let is_node = answer.object.starts_with("node/");
        let who = if is_node { "an earlier boot or Node of this name," } else { "the pod that was here" };
        let title = format!("BEFORE: {who} until {} (UTC)", format_time(before.until, is_node));
        section(&mut text, paint, &title, &history(&before.history, paint));
    }
    section(&mut text, paint, "HOW IT GOT HERE (UTC)", &history(&answer.history, paint));
    section(&mut text, paint, "SIGNS OF LIFE", &findings(&answer.signals, paint));
    section(&mut text, paint, "PROOF THAT IT STOPPED (one is enough)", &findings(&answer.evidence, paint));
    let actors: Vec<_> =
        answer.actors.iter().map(|one| (Tone::Plain, vec![one.who.clone(), one.may.clone()])).collect();
    section(&mut text, paint, "WHO MAY DELETE IT", &paint.table(&["", ""], &actors));
    if !answer.items.is_empty() {
        text.push('\n');
        text.push_str(&items(answer, wide, paint));
    }
    if !answer.notes.is_empty() || !answer.missing.is_empty() {
        text.push('\n');
    }
    for note in &answer.notes {
        let _infallible = writeln!(text, "{}", paint.wrap(&format!("- {note}"), 2));
    }
    for missing in &answer.missing {
        text.push_str(&paint.with_mark(Tone::Attention, missing));
    }
    if !answer.next.is_empty() {
        section(&mut text, paint, "NEXT", &next_steps(answer, paint));
    }
    text
}

fn section(text: &mut String, paint: Paint, title: &str, body: &str) {
    if !body.is_empty() {
        let _infallible = write!(text, "\n{}\n{body}", paint.tone(Tone::Plain, title));
    }
}

/// Whether these moments are on several days: then each is printed with its date.
#[must_use]
pub fn span_days(moments: &[Moment]) -> bool {
    let day = |moment: &Moment| format!("{:.10}", moment.at.to_string());
    moments.first().is_some_and(|first| moments.iter().any(|moment| day(moment) != day(first)))
}

/// The time of day, or date and time.
#[must_use]
pub fn format_time(at: Timestamp, dated: bool) -> String {
    let at = format!("{at:.0}");
    let (day, time) = at.trim_end_matches('Z').split_once('T').unwrap_or_default();
    if dated { format!("{day} {time}") } else { time.to_owned() }
}

/// The history, one line for each moment.
#[must_use]
pub fn history(moments: &[Moment], paint: Paint) -> String {
    let dated = span_days(moments);
    let row = |moment: &Moment| {
        (Tone::Plain, vec![format_time(moment.at, dated), moment.what.clone(), moment.detail.clone()])
    };
    let rows: Vec<_> = moments.iter().map(row).collect();
    paint.table(&["", "", ""], &rows)
}

fn findings(findings: &[Finding], paint: Paint) -> String {
    let row = |finding: &Finding| {
        let tone = match finding.met {
            Some(true) => Tone::Good,
            Some(false) => Tone::Bad,
            None if finding.late => Tone::Attention,
            None => Tone::Plain,
        };
        (Tone::Plain, vec![paint.mark(tone).to_owned(), finding.name.clone(), finding.detail.clone()])
    };
    let rows: Vec<_> = findings.iter().map(row).collect();
    paint.table(&["", "", ""], &rows)
}

fn items(answer: &Answer, wide: bool, paint: Paint) -> String {
    let row = |item: &pod_safety_explain::Item| {
        let tone = tone_for(item.judgement.verdict);
        let mut cells = vec![
            paint.mark(tone).to_owned(),
            item.object.clone(),
            format!("{:?}", item.judgement.verdict),
            item.judgement.reason.to_owned(),
        ];
        if wide {
            cells.push(item.judgement.message.clone());
        }
        (tone, cells)
    };
    let rows: Vec<_> = answer.items.iter().map(row).collect();
    let head = ["", "OBJECT", "VERDICT", "REASON", "WHY"];
    let columns = if wide { head.len() } else { head.len() - 1 };
    paint.table(head.get(..columns).unwrap_or(&head), &rows)
}

/// A command is never wrapped, because operators copy it.
fn next_steps(answer: &Answer, paint: Paint) -> String {
    let mut text = String::new();
    for next in &answer.next {
        let colon = if next.command.is_empty() { "" } else { ":" };
        let _infallible = writeln!(text, "{}", paint.wrap(&format!("- {}{colon}", next.when), 2));
        text.push_str(&paint.command(&next.command));
    }
    text
}
