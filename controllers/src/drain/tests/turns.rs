//! In which turn a pod goes, and what the API server's word makes of it: rows that mutants showed to be missing.

use super::*;

fn steps(plan: &Plan) -> Vec<Option<u32>> {
    plan.rows.iter().map(|row| row.step).collect()
}

#[test]
fn as_many_pods_go_in_each_turn_as_their_budget_allows_at_a_time() {
    let mut scene = scene();
    scene.application("db", 7, &json!({ "maxUnavailable": 2 }), [2, 7, 5, 7, 2]);
    let plan = scene.plan();
    assert_eq!(steps(&plan), [1, 1, 2, 2, 3, 3, 4].map(Some));
    assert_eq!(plan.rows[0].why, "pdb pdb-db: 7 healthy - 5 needed = 2 at a time");
    assert_eq!(plan.summary(), Summary { now: 2, later: 5, ..Summary::default() });
}

#[test]
fn a_budget_that_allows_less_now_than_with_all_healthy_says_both() {
    let mut scene = scene();
    scene.application("db", 7, &json!({ "maxUnavailable": 2 }), [2, 6, 5, 7, 1]);
    let plan = scene.plan();
    assert_eq!(steps(&plan), [1, 2, 2, 3, 3, 4, 4].map(Some));
    assert_eq!(plan.rows[0].why, "pdb pdb-db: 6 healthy - 5 needed = 1 now, 2 at a time with all healthy");
}
