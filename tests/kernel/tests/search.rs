//! Visits every state of every world. A search that becomes smaller, or no longer finds a release, fails.
#![expect(
    clippy::panic,
    clippy::print_stdout,
    reason = "a helper of tests fails loudly, and prints the path that it found"
)]

use pod_safety_kernel_search::scopes;
use pod_safety_kernel_search::search::{Axiom, NOTHING_WRONG, ONE_PROCESS, Plant, Scope};
use stateright::{Checker, HasDiscoveries, Model};

/// Visits all states: exactly this many, at most this many steps from the initial state.
fn all(scope: Scope, states: usize, depth: usize) {
    let checker = scope.checker().spawn_bfs().join();
    checker.assert_properties();
    assert_eq!((checker.unique_state_count(), checker.max_depth()), (states, depth));
}

/// Finds a short path to a violation.
fn broken(scope: Scope, property: &'static str) {
    let finish_when = HasDiscoveries::AnyFailures;
    let checker = scope.checker().finish_when(finish_when).spawn_bfs().join();
    let path = checker.discovery(property);
    let path = path.unwrap_or_else(|| panic!("{:?} {:?}: no counter-example", scope.plant, scope.broken));
    println!("{:?} {:?}: {property} does not hold:", scope.plant, scope.broken);
    path.into_actions().iter().enumerate().for_each(|(at, step)| println!("{:3} {step:?}", at + 1));
}

fn planted(plant: Plant, scope: Scope) {
    let breaks = if plant == Plant::OtherPermit { NOTHING_WRONG } else { ONE_PROCESS };
    broken(Scope { plant: Some(plant), ..scope }, breaks);
}

fn without(axiom: Axiom, scope: Scope) {
    broken(Scope { broken: Some(axiom), ..scope }, ONE_PROCESS);
}

/// A test for each row.
macro_rules! tests {
    ($($(#[$doc:meta])* fn $name:ident() $check:block)*) => { $($(#[$doc])* #[test] fn $name() $check)* };
}

tests! {
    fn signal() { all(scopes::SIGNAL, 1_560_243, 34); }
    fn busy() { all(scopes::BUSY, 2_334_832, 36); }
    fn old_kubelet() { all(scopes::OLD_KUBELET, 527_364, 30); }
    /// The evidence of one first read was used with a later one. The kubelet restarts and registers its Node again; the
    /// Node is then deleted.
    fn bug_a_first_read_that_replaced_another_had_no_quarantine_behind_it() { all(scopes::RESTARTS, 1_725_826, 34); }
    fn unreachable() { all(scopes::UNREACHABLE, 856_994, 32); }
    fn unreachable_thorough() { all(Scope { horizon: 6, ..scopes::UNREACHABLE }, 2_201_249, 34); }
    fn own_deletion() { all(scopes::OWN_DELETION, 72_271, 23); }
    fn power() { all(scopes::POWER, 311_828, 35); }
    fn instance() { all(scopes::INSTANCE, 706_370, 41); }
    fn late() { all(scopes::LATE, 603_714, 40); }
    fn confirmed() { all(scopes::CONFIRMED, 1_886_898, 33); }
    fn planted_no_boot_id() { planted(Plant::NoBootId, scopes::CONFIRMED); }
    fn planted_no_lease() { planted(Plant::NoLease, scopes::POWER); }
    fn planted_node_of_the_claim() { planted(Plant::NodeOfTheClaim, scopes::SIGNAL); }
    fn planted_no_signal() { planted(Plant::NoSignal, scopes::SIGNAL); }
    fn planted_never_busy() { planted(Plant::NeverBusy, scopes::BUSY); }
    fn planted_never_just_started() { planted(Plant::NeverJustStarted, scopes::RESTARTS); }
    fn planted_no_expiry() { planted(Plant::NoExpiry, scopes::CONFIRMED); }
    fn planted_no_quarantine() { planted(Plant::NoQuarantine, scopes::SIGNAL); }
    fn planted_no_version() { planted(Plant::NoVersion, scopes::SIGNAL); }
    fn planted_no_identity() { planted(Plant::NoIdentity, scopes::OWN_DELETION); }
    fn planted_phase_alone() { planted(Plant::PhaseAlone, scopes::OWN_DELETION); }
    fn planted_other_permit() { planted(Plant::OtherPermit, scopes::OWN_DELETION); }
    fn planted_deletion_is_new() { planted(Plant::DeletionIsNew, scopes::RESTARTS); }
    fn axiom_cut_off_nodes_are_kept() { without(Axiom::CutOffNodesAreKept, scopes::UNREACHABLE); }
    fn axiom_answers_in_time() { without(Axiom::AnswersInTime, scopes::RESTARTS); }
    fn axiom_writes_before_it_starts() { without(Axiom::WritesBeforeItStarts, scopes::CONFIRMED); }
    fn axiom_renews_when_it_starts() { without(Axiom::RenewsWhenItStarts, scopes::RESTARTS); }
    fn axiom_reports_what_it_starts() { without(Axiom::ReportsWhatItStarts, scopes::BUSY); }
    fn axiom_lists_the_present() { without(Axiom::ListsThePresent, scopes::POWER); }
    fn axiom_misnamed_devices_are_noticed() { without(Axiom::MisnamedDevicesAreNoticed, scopes::POWER); }
    fn axiom_people_are_right() { without(Axiom::PeopleAreRight, scopes::CONFIRMED); }
    fn axiom_claims_before_it_reads() { without(Axiom::ClaimsBeforeItReads, scopes::CONFIRMED); }
}
