//! Which holds have an Event.

use crate::holds::Hold;
use pod_safety_shared::events::EventType::{Normal, Warning};
use pod_safety_shared::testing::assert_events;

#[test]
fn holds_that_the_owner_of_a_budget_can_end_have_an_event() {
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
        (Hold::DisruptionsNeverAllowed { desired: 3, healthy: 3 }, None),
        (Hold::ScaleAsked { controller: "StatefulSet db".to_owned() }, None),
    ];
    assert_events(rows, &[]);
}
