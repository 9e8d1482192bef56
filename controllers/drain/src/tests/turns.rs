//! The turn in which a pod is evicted, and the effect of the API server's answer: cases that mutation tests found
//! missing.

use super::*;

fn steps(plan: &Plan) -> Vec<Option<u32>> {
    plan.rows.iter().map(|row| row.step).collect()
}

#[test]
fn each_turn_has_as_many_pods_as_the_budget_allows_at_a_time() {
    let mut fixture = fixture();
    fixture.application("db", 7, &json!({ "maxUnavailable": 2 }), [2, 7, 5, 7, 2]);
    let plan = fixture.plan();
    assert_eq!(steps(&plan), [1, 1, 2, 2, 3, 3, 4].map(Some));
    assert_eq!(plan.rows[0].message, "pdb pdb-db: 7 healthy - 5 needed = 2 at a time");
    assert_eq!(plan.summarize(), Summary { nowhere: 7, ..Summary::default() });
}

#[test]
fn a_budget_that_allows_fewer_now_than_when_healthy_reports_both() {
    let mut fixture = fixture();
    fixture.application("db", 7, &json!({ "maxUnavailable": 2 }), [2, 6, 5, 7, 1]);
    let plan = fixture.plan();
    assert_eq!(steps(&plan), [1, 2, 2, 3, 3, 4, 4].map(Some));
    assert_eq!(plan.rows[0].message, "pdb pdb-db: 6 healthy - 5 needed = 1 now, 2 at a time with all healthy");
}

#[test]
fn a_refused_eviction_waits_if_a_retry_may_succeed_and_else_is_blocked() {
    let answers = [
        (NotEvicted::Blocked { why: "w".to_owned(), retry_after: None }, Action::Wait),
        (NotEvicted::Processing { why: "w".to_owned(), retry_after: None }, Action::Wait),
        (NotEvicted::TooManyDisrupted { why: "w".to_owned() }, Action::Wait),
        (NotEvicted::Changed, Action::Wait),
        (NotEvicted::SeveralBudgets { budgets: vec![] }, Action::Blocked),
        (NotEvicted::Unreadable("w".to_owned()), Action::Blocked),
        (NotEvicted::Unsafe, Action::Unsafe),
    ];
    for (answer, expected) in answers {
        let mut fixture = fixture();
        fixture.replica("a", "a-0");
        let mut plan = fixture.plan();
        let message = answer.to_string();
        plan.record_dry_run(0, &Err(answer));
        assert_eq!(plan.rows[0].action, expected, "{message}");
    }
}
