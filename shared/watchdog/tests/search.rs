//! The two shipped state machines against an adversary: every order of every step of small models.
#![expect(
    clippy::panic,
    clippy::print_stdout,
    reason = "a helper of tests fails loudly, and prints the path that it found"
)]

mod world;

use stateright::{Checker, HasDiscoveries, Model};
use world::NO_PROCESS;
use world::scope::{FaultBudget, Plant, Scope};

/// Searches all states: this number, and none farther than this number of steps from the beginning.
fn all(scope: &Scope, states: usize, depth: usize) {
    let checker = scope.clone().checker().spawn_bfs().join();
    println!("{} states, depth {}", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
    assert_eq!((checker.unique_state_count(), checker.max_depth()), (states, depth));
}

/// Searches the shortest path to evidence about a process that runs.
fn planted(plant: Plant, scope: &Scope) {
    let scope = Scope { plant: Some(plant), ..scope.clone() };
    let checker = scope.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    let path = checker.discovery(NO_PROCESS).unwrap_or_else(|| panic!("{plant:?}: no counter-example"));
    println!("{plant:?}: evidence about a process that runs:");
    path.into_actions().iter().enumerate().for_each(|(at, step)| println!("{:3} {step:?}", at + 1));
}

/// Three writes of agents reach the API server: two grants with a promise, or three after an end of pods.
const BUDGET: FaultBudget =
    FaultBudget { writes: 3, lost: 0, crashes: 0, leaves: 0, stuck: 0, boots: 0, pauses: 0, restarts: 0, restores: 0 };
const LINUX: Scope =
    Scope { budget: BUDGET, horizon: 10, machines: 1, timeout: 1, pings_on_close: true, again: false, plant: None };
/// A device that is not pinged when it is closed: the wait is shorter, and so is the search.
const KEEPER: Scope = Scope { pings_on_close: false, horizon: 8, ..LINUX };
/// A longer period, for what needs more than one tick between two pets.
const SLOW: Scope = Scope { budget: FaultBudget { writes: 2, ..BUDGET }, timeout: 2, ..LINUX };

const CRASH: Scope = Scope { budget: FaultBudget { crashes: 1, ..BUDGET }, again: true, ..LINUX };
const LEAVE: Scope = Scope { budget: FaultBudget { leaves: 1, ..BUDGET }, ..LINUX };
const LOST: Scope = Scope { budget: FaultBudget { lost: 1, ..BUDGET }, ..KEEPER };
const STUCK: Scope = Scope { budget: FaultBudget { stuck: 1, ..BUDGET }, ..KEEPER };
const BOOT: Scope = Scope { budget: FaultBudget { boots: 1, ..BUDGET }, ..KEEPER };
const RESTART: Scope = Scope { budget: FaultBudget { restarts: 1, ..BUDGET }, ..KEEPER };
const RESTORE: Scope = Scope { budget: FaultBudget { restores: 1, ..BUDGET }, horizon: 7, ..KEEPER };
const PAUSE: Scope = Scope { budget: FaultBudget { pauses: 2, ..BUDGET }, horizon: 10, again: true, ..KEEPER };
const SAME_IDENTITY: Scope = Scope { budget: FaultBudget { writes: 2, ..BUDGET }, machines: 2, horizon: 4, ..KEEPER };

/// A test for each row.
macro_rules! tests {
    ($($(#[$doc:meta])* fn $name:ident() $check:block)*) => { $($(#[$doc])* #[test] fn $name() $check)* };
}

tests! {
    /// The agent is suspended between any two steps, and dies once.
    fn crash() { all(&CRASH, 815_669, 75); }
    fn orderly_end() { all(&LEAVE, 778_729, 81); }
    fn lost_acknowledgements() { all(&LOST, 595_931, 76); }
    fn lost_acknowledgements_thorough() {
        all(&Scope { budget: FaultBudget { lost: 2, ..BUDGET }, ..KEEPER }, 1_668_502, 89);
    }
    fn pods_that_do_not_end() { all(&STUCK, 126_605, 62); }
    fn boot() { all(&BOOT, 230_384, 62); }
    fn restarted_controller() { all(&RESTART, 213_730, 63); }
    fn restored_etcd() { all(&RESTORE, 1_196_085, 65); }
    fn paused_machine() { all(&PAUSE, 1_272_147, 76); }
    fn two_machines_of_one_identity() { all(&SAME_IDENTITY, 405_195, 44); }
    fn two_machines_of_one_identity_thorough() { all(&Scope { budget: BUDGET, ..SAME_IDENTITY }, 3_308_833, 63); }
    fn planted_one_period() { planted(Plant::OnePeriod, &KEEPER); }
    fn planted_two_periods() {
        planted(Plant::TwoPeriods, &Scope { budget: FaultBudget { crashes: 1, ..SLOW.budget }, horizon: 7, ..SLOW });
    }
    fn planted_no_ticks() { planted(Plant::NoTicks, &CRASH); }
    fn planted_renew_time() { planted(Plant::RenewTime, &CRASH); }
    fn planted_pet_first() {
        planted(Plant::PetFirst, &Scope { budget: BUDGET, pings_on_close: false, horizon: 6, ..SLOW });
    }
    fn planted_feeder() { planted(Plant::Feeder, &KEEPER); }
    fn planted_gate_open() {
        planted(Plant::GateOpen, &Scope { budget: FaultBudget { lost: 2, ..BUDGET }, ..KEEPER });
    }
    fn planted_opens_first() {
        let budget = FaultBudget { writes: 2, crashes: 2, ..BUDGET };
        planted(Plant::OpensFirst, &Scope { budget, horizon: 7, ..LINUX });
    }
    fn planted_disarms_first() { planted(Plant::DisarmsFirst, &LEAVE); }
    fn planted_no_boot_id() { planted(Plant::NoBootId, &BOOT); }
    fn planted_can_be_stopped() { planted(Plant::CanBeStopped, &CRASH); }
    fn planted_no_pause() { planted(Plant::NoPause, &PAUSE); }
    fn planted_no_mounts() { planted(Plant::NoMounts, &STUCK); }
    fn planted_blind() {
        planted(Plant::Blind, &Scope { budget: BUDGET, pings_on_close: false, horizon: 6, ..SLOW });
    }
    fn planted_starts_at_once() {
        let budget = FaultBudget { writes: 4, restores: 1, ..BUDGET };
        planted(Plant::StartsAtOnce, &Scope { budget, horizon: 6, ..KEEPER });
    }
}
