//! Of which holds people hear, and how.

use crate::holds::Hold;
use pod_safety_shared::events::EventType::{Normal, Warning};
use pod_safety_shared::testing::people_hear;

#[test]
fn people_hear_of_a_budget_what_its_owner_can_change() {
    let pods = || vec!["a".to_owned()];
    let failed = |selector| Hold::BudgetFailed { why: "w".to_owned(), selector };
    let rows = vec![
        (Hold::NoPods, Some((Normal, "NoPods"))),
        (failed(true), Some((Warning, "NoPods"))),
        (failed(false), Some((Warning, "CalculateExpectedPodCountFailed"))),
        (Hold::UnmanagedPods { pods: pods() }, Some((Warning, "UnmanagedPods"))),
        (Hold::PodsNotCounted { pods: pods() }, Some((Warning, "PodsNotCounted"))),
        (Hold::TooManyLabels { pods: pods() }, Some((Warning, "TooManyLabels"))),
        (Hold::MultipleBudgets { budgets: pods() }, Some((Warning, "MultiplePodDisruptionBudgets"))),
        (Hold::EvictionNotCompleted { budget: "b".to_owned() }, Some((Warning, "EvictionNotCompleted"))),
        (Hold::DisruptionsNeverAllowed { desired: 3, expected: 3 }, None),
        (Hold::ScaleAsked { controller: "StatefulSet db".to_owned() }, None),
    ];
    people_hear(rows, &[]);
}
