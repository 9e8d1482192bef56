//! Rows for mutants of `decide` that other tests did not catch.

use super::*;

#[test]
fn an_unreadable_node_is_held_only_if_it_has_pods() {
    for (pods, holds) in [(vec![], 0), (vec![pod("a", &[])], 1)] {
        let world = world(&[], &pods);
        let unreadable = node(&[]).set("/metadata/resourceVersion", json!("x"));
        world.apply(Kind::Nodes, &unreadable, at(1));
        let decision = decide_at(&world, 1);
        assert_eq!((decision.intents.len(), decision.holds.len()), (0, holds), "{} pods", pods.len());
    }
}

#[test]
fn of_two_taints_whose_periods_end_together_the_first_is_named() {
    let both = [taint("k", Some(0)), taint("l", Some(0))];
    let world = world(&both, &[pod("a", &[toleration("k", Some(300)), toleration("l", Some(300))])]);
    let message = decide_at(&world, 100).holds[0].1.to_string();
    assert!(message.contains("the taint k:NoExecute"), "{message}");
    let due = decide_at(&world, 300);
    let [Intent::Delete(delete)] = due.intents.as_slice() else { panic!("{due:?}") };
    assert!(delete.cause.to_string().contains("k:NoExecute"), "{}", delete.cause);
}
