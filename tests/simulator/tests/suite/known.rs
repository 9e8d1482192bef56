//! What is known to be wrong still is: whoever mends it takes it from the list, and its rule is one like
//! all others from then on.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use files::corpus;
use pod_safety_simulator::campaign::{Entry, tell};
use pod_safety_simulator::checker::{KNOWN, Known};
use pod_safety_simulator::world::{Subject, run};

use crate::files;
use crate::shipped;

#[test]
fn each_known_finding_still_breaks_its_rule_by_its_plan() -> Result<()> {
    for Known { finding, issue, rule, plan, .. } in KNOWN {
        let file = corpus().join(plan);
        let entry: Entry = serde_json::from_slice(&std::fs::read(file)?)?;
        let outcome = run(&entry.plan, Subject::Shipped(shipped::launch, None));
        ensure!(
            outcome.known.iter().any(|violation| violation.invariant == rule),
            "{finding} is mended: take it from KNOWN, and its plan from the corpus or expect nothing of it (issue {issue})\n{}",
            tell(&entry.plan, &outcome)
        );
        ensure!(outcome.violations.is_empty(), "{finding} breaks more: {}", tell(&entry.plan, &outcome));
    }
    Ok(())
}

#[test]
fn each_known_finding_has_a_name_and_a_rule_of_its_own() {
    let names: BTreeSet<&str> = KNOWN.iter().map(|known| known.finding).collect();
    let rules: BTreeSet<_> = KNOWN.iter().map(|known| known.rule).collect();
    assert_eq!((names.len(), rules.len()), (KNOWN.len(), KNOWN.len()));
}
