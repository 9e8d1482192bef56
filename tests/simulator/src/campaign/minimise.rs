//! The smallest plan that still breaks the same rule.
//!
//! First whole faults are removed (delta debugging), then every number of the plan gets smaller, in turns until nothing
//! helps. A plan is read as JSON for the second part, so that a new kind of fault needs no code here. It is sound
//! because all chance is keyed: the remaining parts of a plan draw what they drew before.

use serde_json::Value;

use super::plan::Plan;
use crate::checker::Invariant;
use crate::world::{Outcome, Subject, run};

/// The minimisation stops after so many runs.
const RUNS: u32 = 600;

/// The minimised plan.
#[derive(Clone, Debug)]
pub struct Smallest {
    /// The plan, which still breaks the rule.
    pub plan: Plan,
    /// Its outcome.
    pub outcome: Outcome,
    /// How many runs it took.
    pub runs: u32,
}

/// Makes a plan smaller while the subject breaks the same rule; `None` if the plan does not break it at all.
#[must_use]
pub fn minimise(plan: &Plan, subject: Subject, invariant: Invariant) -> Option<Smallest> {
    let outcome = run(plan, subject);
    let mut search = Search { subject, invariant, best: Smallest { plan: plan.clone(), outcome, runs: 1 } };
    if !search.best.outcome.broke(invariant) {
        return None;
    }
    loop {
        let before = search.best.plan.clone();
        search.fewer_faults();
        search.smaller_numbers();
        if search.best.plan == before || search.best.runs >= RUNS {
            return Some(search.best);
        }
    }
}

struct Search {
    subject: Subject,
    invariant: Invariant,
    best: Smallest,
}

impl Search {
    /// Takes the plan if it breaks the rule too.
    fn accepts(&mut self, mut plan: Plan) -> bool {
        plan.faults.sort_by_key(|(at, _)| *at);
        if plan == self.best.plan || self.best.runs >= RUNS {
            return false;
        }
        self.best.runs += 1;
        let outcome = run(&plan, self.subject);
        let breaks = outcome.broke(self.invariant) && self.is_due_to_the_plant(&plan);
        if breaks {
            (self.best.plan, self.best.outcome) = (plan, outcome);
        }
        breaks
    }

    /// Whether the product keeps all rules without the planted bug. With a smaller number an API server may, for one, answer
    /// 200 to a write that it does not carry out.
    fn is_due_to_the_plant(&self, plan: &Plan) -> bool {
        match self.subject {
            Subject::Shipped(launch, Some(_)) => run(plan, Subject::Shipped(launch, None)).violations.is_empty(),
            _ => true,
        }
    }

    /// Halves first, then quarters, to single faults.
    fn fewer_faults(&mut self) {
        let mut size = self.best.plan.faults.len().div_ceil(2).max(1);
        loop {
            let mut at = 0;
            while at < self.best.plan.faults.len() {
                let mut plan = self.best.plan.clone();
                let end = (at + size).min(plan.faults.len());
                plan.faults.drain(at..end);
                if !self.accepts(plan) {
                    at += size;
                }
            }
            if size == 1 {
                return;
            }
            size = size.div_ceil(2);
        }
    }

    fn smaller_numbers(&mut self) {
        let Ok(value) = serde_json::to_value(&self.best.plan) else { return };
        for pointer in leaves(&value, "") {
            for candidate in candidates(&pointer, value.pointer(&pointer)) {
                let Ok(mut value) = serde_json::to_value(&self.best.plan) else { return };
                let Some(place) = value.pointer_mut(&pointer) else { continue };
                *place = candidate;
                if serde_json::from_value(value).is_ok_and(|plan| self.accepts(plan)) {
                    break;
                }
            }
        }
    }
}

/// Where the numbers of a plan are.
fn leaves(value: &Value, pointer: &str) -> Vec<String> {
    match value {
        Value::Object(fields) => {
            fields.iter().flat_map(|(name, field)| leaves(field, &format!("{pointer}/{name}"))).collect()
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.flat_map(|(index, item)| leaves(item, &format!("{pointer}/{index}"))).collect()
        }
        Value::Number(_) => vec![pointer.to_owned()],
        Value::Null | Value::Bool(_) | Value::String(_) => Vec::new(),
    }
}

/// The values to try in place of a number, the simplest first.
fn candidates(pointer: &str, value: Option<&Value>) -> Vec<Value> {
    let Some(number) = value.and_then(Value::as_i64) else { return Vec::new() };
    if pointer == "/seed" {
        return Vec::new();
    }
    // There is no cluster without servers, nodes or pods.
    let least = i64::from(pointer.matches('/').count() == 1);
    let mut smaller = vec![least, number / 2, number / 10 * 10];
    smaller.retain(|candidate| *candidate >= least.min(number) && *candidate != number);
    smaller.dedup();
    let mut candidates: Vec<Value> = smaller.into_iter().map(Value::from).collect();
    if pointer.ends_with("/back") {
        candidates.insert(0, Value::Null);
    }
    candidates
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_numbers_of_a_plan_are_found_except_the_seed() {
        let plan = json!({ "seed": 7, "nodes": 4, "faults": [[90, { "powerOff": { "node": 1, "back": 20 } }]] });
        let pointers = leaves(&plan, "");
        assert_eq!(pointers.len(), 5);
        assert!(candidates("/seed", plan.pointer("/seed")).is_empty());
        assert_eq!(candidates("/nodes", plan.pointer("/nodes")), [json!(1), json!(2), json!(0)][..2]);
        let back = "/faults/0/1/powerOff/back";
        assert!(pointers.iter().any(|pointer| pointer == back));
        assert_eq!(candidates(back, plan.pointer(back)), [Value::Null, json!(0), json!(10)]);
    }
}
