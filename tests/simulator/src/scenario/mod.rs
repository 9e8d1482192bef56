//! Scenarios: plans that people write, as YAML files. `docs/simulator.md` describes the format.
//!
//! | file | subject |
//! |---|---|
//! | `contender` | the rules that run: pod-safety's, or those that clusters use today |
//! | `field` | one value of a file, with its place, and its errors |
//! | `file` | a file from its text |
//! | `fault` | one entry of `faults` |
//! | `shipped` | the scenarios of `docs/scenarios`, which the demonstration shows |

mod contender;
mod fault;
mod field;
mod file;
#[cfg(test)]
mod fuzz;
mod shipped;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::campaign::Plan;
use crate::checker::Invariant;
use crate::world::Outcome;

pub use contender::Contender;
pub use field::FieldError;
pub use file::parse;
pub use shipped::shipped;

/// A plan with a name, and its expected result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Its name, without spaces.
    pub name: String,
    /// What happens, in a line.
    pub title: String,
    /// What to watch for, in some lines.
    pub about: String,
    /// What happens.
    pub plan: Plan,
    /// The rules that run.
    pub subject: Contender,
    /// The expected result.
    pub expect: Expect,
}

/// The expected result of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// The rules that are broken, all of them.
    pub broken: BTreeSet<Invariant>,
    /// How many pods are stuck at the end, if that matters.
    pub stuck: Option<u64>,
}

impl Expect {
    /// The differences from the expectation, one line each.
    #[must_use]
    pub fn missed(&self, outcome: &Outcome) -> Vec<String> {
        let names = |rules: &BTreeSet<Invariant>| match rules.len() {
            0 => "none".to_owned(),
            _ => rules.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        let mut missed = Vec::new();
        let broken: BTreeSet<Invariant> = outcome.broken.keys().copied().collect();
        if broken != self.broken {
            missed.push(format!("broken rules: expected {}, got {}", names(&self.broken), names(&broken)));
        }
        let stuck = outcome.stuck.len() as u64;
        if self.stuck.is_some_and(|expected| expected != stuck) {
            missed.push(format!("stuck pods: expected {}, got {stuck}", self.stuck.unwrap_or_default()));
        }
        missed
    }
}
