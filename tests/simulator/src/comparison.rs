//! One plan under all rules: the measurements side by side, and a sentence for each.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::campaign::Plan;
use crate::checker::Invariant;
use crate::scenario::Contender;
use crate::world::{Launch, Outcome, run};

/// The outcomes of one plan under each set of rules.
#[derive(Debug)]
pub struct Comparison(Vec<(Contender, Outcome)>);

/// Runs a plan under the rules of each contender, on a thread each.
#[must_use]
pub fn compare(plan: &Plan, launch: Launch) -> Comparison {
    let columns = std::thread::scope(|scope| {
        let runs =
            Contender::ALL.map(|contender| (contender, scope.spawn(move || run(plan, contender.subject(launch)))));
        runs.into_iter().filter_map(|(contender, run)| Some((contender, run.join().ok()?))).collect()
    });
    Comparison(columns)
}

/// As [`compare`], without waiting for it.
///
/// # Errors
/// The operating system cannot start a thread for it.
#[expect(clippy::disallowed_methods, reason = "the live run continues meanwhile")]
pub fn begin(plan: &Plan, launch: Launch) -> std::io::Result<Receiver<Comparison>> {
    let (sender, receiver) = channel();
    let plan = plan.clone();
    // The receiver may be gone by then.
    let work = move || drop(sender.send(compare(&plan, launch)));
    std::thread::Builder::new().name("comparison".to_owned()).spawn(work)?;
    Ok(receiver)
}

impl Comparison {
    /// The outcome under these rules.
    #[must_use]
    pub fn outcome(&self, of: Contender) -> Option<&Outcome> {
        self.0.iter().find(|(contender, _)| *contender == of).map(|(_, outcome)| outcome)
    }

    /// The outcomes under all rules, pod-safety's first.
    pub fn outcomes(&self) -> impl Iterator<Item = (Contender, &Outcome)> {
        self.0.iter().map(|(contender, outcome)| (*contender, outcome))
    }

    /// The table: its head, then a row per measure.
    #[must_use]
    pub fn rows(&self) -> Vec<Vec<String>> {
        let mut head = vec![String::new()];
        head.extend(self.0.iter().map(|(contender, _)| contender.label().to_owned()));
        let mut rows = vec![head];
        let mut row = |name: &str, cell: &dyn Fn(&Outcome) -> String| {
            let cells = self.0.iter().map(|(_, outcome)| cell(outcome));
            rows.push(std::iter::once(name.to_owned()).chain(cells).collect());
        };
        let broken = |outcome: &Outcome, rule| outcome.broken.get(&rule).copied().unwrap_or(0).to_string();
        row("longest time away", &|outcome| {
            outcome.presence.away(Duration::MAX).map_or_else(
                || "never".to_owned(),
                |away| {
                    if away.goes_on { format!("still, after {}", spelled(away.lasted)) } else { spelled(away.lasted) }
                },
            )
        });
        row("two copies wrote", &|outcome| {
            let twice = outcome.presence.twice(Duration::MAX);
            twice.map_or_else(|| "never".to_owned(), |twice| format!("for {}", spelled(twice.lasted)))
        });
        row("still away at the end", &|outcome| outcome.presence.missing().to_string());
        row("removed without proof", &|outcome| broken(outcome, Invariant::Evidence));
        row("wrong pod removed", &|outcome| broken(outcome, Invariant::Identity));
        rows
    }

    /// The rows as lines, with their columns below one another.
    #[must_use]
    pub fn table(&self) -> Vec<String> {
        let rows = self.rows();
        let columns = rows.first().map_or(0, Vec::len);
        let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let mut cells = row.iter().zip(&widths);
            let name = cells.next().map(|(name, width)| format!("{name:<width$}")).unwrap_or_default();
            cells.fold(name, |line, (cell, width)| format!("{line}  {cell:>width$}"))
        };
        rows.iter().map(line).collect()
    }

    /// The effect on the users of the pods, a sentence for each set of rules.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        self.outcomes().map(|(contender, outcome)| sentence(contender, outcome)).collect()
    }

    /// The pods that do not run at the end, and the reasons that are shown.
    #[must_use]
    pub fn stuck(&self) -> Vec<String> {
        let lines = self.0.iter().flat_map(|(contender, outcome)| {
            outcome.stuck.iter().filter(|stuck| !stuck.runs).map(|stuck| {
                let reason = stuck.reason.as_deref().unwrap_or("no reason is given");
                format!("{}: {} {}; {reason}", contender.label(), stuck.identity, stuck.how)
            })
        });
        lines.collect()
    }
}

fn sentence(contender: Contender, outcome: &Outcome) -> String {
    let with = match contender {
        Contender::PodSafety => "With pod-safety",
        Contender::KubeControllerManager => "With kube-controller-manager alone",
        Contender::Script => "With a script that uses --force",
    };
    let away = match outcome.presence.away(Duration::MAX) {
        None => "no pod was away".to_owned(),
        Some(away) if away.goes_on => format!("{} is still away after {}", short(away.identity), spelled(away.lasted)),
        Some(away) => format!("{} was away for {}", short(away.identity), spelled(away.lasted)),
    };
    let twice = outcome.presence.twice(Duration::MAX).map_or_else(
        || "no pod ran twice".to_owned(),
        |twice| format!("two copies of {} wrote for {}", short(twice.identity), spelled(twice.lasted)),
    );
    format!("{with}: {away}, and {twice}.")
}

/// The name of `namespace/name`.
#[must_use]
pub fn short(identity: &str) -> &str {
    identity.rsplit('/').next().unwrap_or(identity)
}

/// A time in whole seconds, and in minutes from two on.
#[must_use]
pub fn spelled(time: Duration) -> String {
    match (time.as_secs() / 60, time.as_secs() % 60) {
        (0 | 1, _) => format!("{} s", time.as_secs()),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.table().iter().try_for_each(|line| writeln!(f, "{line}"))?;
        self.stuck().iter().try_for_each(|line| writeln!(f, "stuck: {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spelled_in_seconds_and_from_two_minutes_on_in_minutes() {
        let spelled = |seconds| spelled(Duration::from_secs(seconds));
        assert_eq!([74, 119, 120, 192, 900].map(spelled), ["74 s", "119 s", "2 min", "3 min 12 s", "15 min"]);
    }
}
