//! One plan by all rules: what is measured is put side by side.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::campaign::Plan;
use crate::checker::{Gap, Invariant};
use crate::scenario::Contender;
use crate::world::{Launch, Outcome, run};

/// The pods that must always run; others end by themselves.
const STATEFUL: &str = "default/data-";
/// A person had deleted the Node of a machine that ran, and so vouched for it.
const EXCUSED: &str = "person vouched for a machine that still ran: S1 not owed";

/// What came of one plan under each set of rules.
#[derive(Debug)]
pub struct Comparison(Vec<(Contender, Outcome)>);

/// Runs a plan by the rules of each, on a thread each.
#[must_use]
pub fn compare(plan: &Plan, launch: Launch) -> Comparison {
    let columns = std::thread::scope(|scope| {
        let runs = Contender::ALL
            .map(|contender| (contender, scope.spawn(move || run(plan, contender.subject(launch)))));
        runs.into_iter().filter_map(|(contender, run)| Some((contender, run.join().ok()?))).collect()
    });
    Comparison(columns)
}

/// As [`compare`], without waiting for it.
///
/// # Errors
/// The operating system has no thread for it.
#[expect(clippy::disallowed_methods, reason = "the picture goes on meanwhile")]
pub fn begin(plan: &Plan, launch: Launch) -> std::io::Result<Receiver<Comparison>> {
    let (sender, receiver) = channel();
    let plan = plan.clone();
    // Whoever asked may be gone by then.
    let work = move || drop(sender.send(compare(&plan, launch)));
    std::thread::Builder::new().name("comparison".to_owned()).spawn(work)?;
    Ok(receiver)
}

impl Comparison {
    /// What came of it by these rules.
    #[must_use]
    pub fn outcome(&self, of: Contender) -> Option<&Outcome> {
        self.0.iter().find(|(contender, _)| *contender == of).map(|(_, outcome)| outcome)
    }

    /// The table: its head, then a line per measure.
    #[must_use]
    pub fn rows(&self) -> Vec<Vec<String>> {
        let mut head = vec!["measured".to_owned()];
        head.extend(self.0.iter().map(|(contender, _)| contender.name().to_owned()));
        let mut rows = vec![head];
        let mut row = |name: &str, cell: &dyn Fn(&Outcome) -> String| {
            let cells = self.0.iter().map(|(_, outcome)| cell(outcome));
            rows.push(std::iter::once(name.to_owned()).chain(cells).collect());
        };
        let broken = |outcome: &Outcome, rule| outcome.broken.get(&rule).copied().unwrap_or(0).to_string();
        row("two processes of one identity at once (S1)", &|outcome| broken(outcome, Invariant::AtMostOne));
        row("  the same, after a wrong confirmation", &|outcome| {
            outcome.probes.get(EXCUSED).copied().unwrap_or(0).to_string()
        });
        row("removed without proof (S2)", &|outcome| broken(outcome, Invariant::Evidence));
        row("wrong pod removed (S4)", &|outcome| broken(outcome, Invariant::Identity));
        row("from loss to successor: median / longest", &recovery);
        row("identities never restored", &|outcome| never(outcome).to_string());
        row("pods stuck at the end", &|outcome| outcome.stuck.len().to_string());
        row("  of them with a displayed reason", &|outcome| {
            outcome.stuck.iter().filter(|stuck| stuck.reason.is_some()).count().to_string()
        });
        rows
    }

    /// What is stuck, and what is said about it.
    #[must_use]
    pub fn stuck(&self) -> Vec<String> {
        let lines = self.0.iter().flat_map(|(contender, outcome)| {
            outcome.stuck.iter().map(|stuck| {
                let reason = stuck.reason.as_deref().unwrap_or("no reason shown");
                format!("{}: {} {}; {reason}", contender.name(), stuck.identity, stuck.how)
            })
        });
        lines.collect()
    }
}

fn gaps(outcome: &Outcome) -> impl Iterator<Item = &Gap> {
    outcome.gaps.iter().filter(|gap| gap.identity.starts_with(STATEFUL))
}

fn never(outcome: &Outcome) -> usize {
    gaps(outcome).filter(|gap| gap.found.is_none()).count()
}

/// Seconds in which nothing of an identity ran; `-`: none was found again.
fn recovery(outcome: &Outcome) -> String {
    let found = gaps(outcome).filter_map(|gap| gap.found.map(|found| found.saturating_sub(gap.lost)));
    let mut spans: Vec<Duration> = found.collect();
    spans.sort();
    let longest = if never(outcome) > 0 { None } else { spans.last() };
    let seconds = |span: Option<&Duration>| {
        span.map_or_else(|| "-".to_owned(), |span| format!("{:.1}s", span.as_secs_f64()))
    };
    format!("{} / {}", seconds(spans.get(spans.len() / 2)), seconds(longest))
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for row in self.rows() {
            let mut cells = row.iter();
            write!(f, "{:<50}", cells.next().map(String::as_str).unwrap_or_default())?;
            cells.try_for_each(|cell| write!(f, " {cell:>23}"))?;
            writeln!(f)?;
        }
        self.stuck().iter().try_for_each(|line| writeln!(f, "stuck: {line}"))
    }
}
