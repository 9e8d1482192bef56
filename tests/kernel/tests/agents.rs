//! Agent reports about pods: every state of a small world, and a counterexample for each planted bug.
#![expect(
    clippy::panic,
    clippy::print_stdout,
    reason = "a helper of tests fails loudly, and prints the path that it found"
)]

use pod_safety_kernel_search::agents::{Agents, Bug, NOTHING_RUNS};
use stateright::{Checker, HasDiscoveries, Model};

const SMALL: Agents = Agents { rounds: 4, kills: 1, starts: 2, lists_the_past: false, plant: None };

fn broken(world: Agents) {
    let what = format!("{world:?}");
    let checker = world.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let path = checker.discovery(NOTHING_RUNS).unwrap_or_else(|| panic!("{what}: no counter-example"));
    println!("{what}: {NOTHING_RUNS} does not hold:");
    path.into_actions().iter().enumerate().for_each(|(at, step)| println!("{:3} {step:?}", at + 1));
}

fn planted(bug: Bug) {
    broken(Agents { plant: Some(bug), ..SMALL });
}

#[test]
fn a_pod_released_by_an_agent_report_never_runs() {
    let checker = SMALL.checker().spawn_bfs().join();
    checker.assert_properties();
    assert_eq!((checker.unique_state_count(), checker.max_depth()), (609_311, 37));
}

/// A test for each row.
macro_rules! tests {
    ($($(#[$doc:meta])* fn $name:ident() $check:block)*) => { $($(#[$doc])* #[test] fn $name() $check)* };
}

tests! {
    fn planted_no_mark() { planted(Bug::NoMark); }
    fn planted_one_round() { planted(Bug::OneRound); }
    fn planted_old_look() { planted(Bug::StaleCheck); }
    fn planted_kubelet_not_asked() { planted(Bug::KubeletNotAsked); }
    fn planted_any_epoch() { planted(Bug::AnyEpoch); }
    fn planted_reads_first() { planted(Bug::ReadsFirst); }
    /// docs/assumptions.md: lists-the-present
    fn axiom_a_kubelet_that_restarts_lists_the_present() { broken(Agents { lists_the_past: true, ..SMALL }); }
}
