//! Many nodes lost at once.

use super::*;

#[test]
fn of_two_hundred_nodes_lost_at_once_none_is_fenced_and_the_holds_have_the_numbers() {
    let names: Vec<String> = (0..300).map(|number| format!("n{number:03}")).collect();
    let mut fixture = Fixture::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let lost = &names[..200];
    lost.iter().for_each(|name| fixture.lose_node(name));
    fixture.advance_to(70);
    for name in lost {
        assert_eq!(fixture.act(name), ["open by p"]);
    }
    for _round in 0..3 {
        for name in lost {
            let words = fixture.act(name);
            assert!(words.iter().all(|word| !word.starts_with("off")), "{name}: {words:?}");
        }
        fixture.advance(5);
    }
    let decision = fixture.decide("n000");
    let held: Vec<String> = decision.holds.iter().map(|(_, hold)| hold.to_string()).collect();
    assert!(held.iter().any(|words| words.starts_with("200 of 300 nodes are lost, more than 49 %")), "{held:?}");
    assert!(step(&decision).is_none() && fixture.fences.len() == 200);
}

#[test]
fn of_twenty_lost_nodes_of_a_hundred_one_is_fenced_at_a_time_and_the_next_after_the_cooldown() {
    let names: Vec<String> = (0..100).map(|number| format!("n{number:03}")).collect();
    let mut fixture = Fixture::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    fixture.policy(|policy| (policy.brakes.max_concurrent, policy.brakes.cooldown_seconds) = (1, 60));
    let lost = &names[..20];
    lost.iter().for_each(|name| fixture.lose_node(name));
    fixture.advance_to(70);
    lost.iter().for_each(|name| drop(fixture.act(name)));
    let begun = |fixture: &Fixture| {
        let fencing = fixture.fences.values().filter(|(_, status)| !status.attempts.is_empty());
        fencing.map(|(spec, _)| spec.node.name.clone()).collect::<Vec<_>>()
    };
    for _round in 0..3 {
        lost.iter().rev().for_each(|name| drop(fixture.act(name)));
        fixture.advance(5);
    }
    assert_eq!(begun(&fixture), ["n000"], "the first by name, whichever is decided first");
    let held: Vec<String> = fixture.decide("n001").holds.iter().map(|(_, hold)| hold.to_string()).collect();
    assert!(held[0].starts_with("nodes being fenced: 1") && held[1].starts_with("node n000 was"), "{held:?}");
}
