//! S3, twin worlds: a process under test treats a dead node and a running one that is cut off the same, for as long as
//! no observation distinguishes them.

use std::time::Duration;

use pod_safety_simulator::campaign::twin_plans;
use pod_safety_simulator::checker::{Moment, first_difference};
use pod_safety_simulator::world::{Baseline, Subject, recorded};

use crate::shipped::SHIPPED;

const SEEDS: u64 = 60;

#[test]
fn a_dead_node_and_an_unreachable_one_are_treated_the_same() {
    let (mut acts, mut removals) = (0, 0);
    for seed in 0..SEEDS {
        let (dead, alive) = twin_plans(seed);
        let [dead, alive] = [dead, alive].map(|plan| recorded(&plan, SHIPPED).0);
        let difference = first_difference(&dead.tape, &alive.tape);
        assert!(difference.is_none(), "seed {seed}: {difference:#?}");
        acts += dead.tape.iter().filter(|moment| moment.act).count();
        removals += dead.tape.iter().filter(|moment| moment.act && moment.what.contains("DELETE")).count();
    }
    println!("{SEEDS} pairs of worlds, {acts} acts, {removals} removals among them");
    assert!(removals > 50, "worlds in which nothing is removed tell nothing");
}

#[test]
fn the_baselines_treat_a_dead_node_and_a_cut_off_one_the_same() {
    for baseline in Baseline::ALL {
        for seed in 0..10 {
            let (dead, alive) = twin_plans(seed);
            let [dead, alive] = [dead, alive].map(|plan| recorded(&plan, Subject::Baseline(baseline)).0);
            let difference = first_difference(&dead.tape, &alive.tape);
            assert!(difference.is_none(), "{baseline:?}, seed {seed}: {difference:#?}");
        }
    }
}

#[test]
fn a_reporting_node_is_an_observed_difference_before_any_act() {
    let mut seen = 0;
    for seed in 0..10 {
        let (dead, mut alive) = twin_plans(seed);
        for (_, fault) in &mut alive.faults {
            if let pod_safety_simulator::campaign::Fault::CutNode { seconds, .. } = fault {
                *seconds = (*seconds).min(50);
            }
        }
        let [dead, alive] = [dead, alive].map(|plan| recorded(&plan, SHIPPED).0);
        if let Some((_, one, other)) = first_difference(&dead.tape, &alive.tape) {
            let by_observation = [one, other].into_iter().flatten().any(|moment| !moment.act);
            assert!(by_observation, "seed {seed}: {one:#?} {other:#?}");
            seen += 1;
        }
    }
    assert!(seen > 0, "the node came back in no world");
}

#[test]
fn a_different_act_is_the_first_difference() {
    let moment = |act, sum| Moment { at: Duration::from_secs(1), act, what: "DELETE".to_owned(), sum };
    let (one, other) = ([moment(false, 1), moment(true, 2)], [moment(false, 1), moment(true, 3)]);
    let difference = first_difference(&one, &other);
    assert!(difference.is_some_and(|(at, one, _)| at == 1 && one.is_some_and(|moment| moment.act)));
    assert!(first_difference(&one, &one[..1]).is_some(), "an act that is missing is one too");
    assert!(first_difference(&one, &one).is_none());
}
