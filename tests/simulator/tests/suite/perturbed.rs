//! One strike at calls and events of every scenario. All of them: `make perturb`.

use pod_safety_simulator::campaign::{Perturbed, fenced, guarded, perturb, perturb_writes, scenarios};
use pod_safety_simulator::world::{Blow, Occasion, Strike, run_with_strike};

use crate::shipped::SHIPPED;

/// One of so many strikes is carried out: what fits into half a minute of two cores. A prime, so that it steps through all
/// families. `make test-all` carries out more of them.
const EACH: usize = 79;
const EACH_THOROUGH: usize = 5;

#[test]
fn no_strike_at_a_call_or_an_event_breaks_a_rule() {
    none_breaks_a_rule(EACH);
}

#[test]
fn no_strike_at_a_call_or_an_event_breaks_a_rule_thorough() {
    none_breaks_a_rule(EACH_THOROUGH);
}

fn none_breaks_a_rule(each: usize) {
    check(&perturb(&scenarios(), SHIPPED, each), scenarios().len(), 16);
}

/// No rule is broken, so many scenarios are struck, and by at least so many families in all.
fn check(tally: &Perturbed, scenarios: usize, families: usize) {
    println!("{tally}");
    assert!(tally.diverged.is_empty(), "the runs before a strike are their references: {tally}");
    assert!(tally.broken.is_empty(), "{tally}");
    assert_eq!(tally.scenarios.len(), scenarios, "every scenario is struck: {tally}");
    assert!(tally.families.len() >= families, "too few families strike: {tally}");
}

/// Each step of an incident is recorded before and after: a process that dies, is cut off, is paused or has another
/// clock at any of these writes leaves a state from which the next one goes on.
#[test]
fn no_strike_at_a_write_of_an_incident_breaks_a_rule() {
    no_write_breaks_a_rule(7, 23);
}

#[test]
fn no_strike_at_a_write_of_an_incident_breaks_a_rule_thorough() {
    no_write_breaks_a_rule(1, 5);
}

/// One of so many strikes at an incident that goes well, and at those that fail.
fn no_write_breaks_a_rule(each_of_well: usize, each_of_failing: usize) {
    let scenarios = fenced();
    let (well, failing) = scenarios.split_at(1);
    for (scenarios, each) in [(well, each_of_well), (failing, each_of_failing)] {
        check(&perturb_writes(scenarios, SHIPPED, each), scenarios.len(), 11);
    }
}

/// One of so many strikes at volumes and their Leases: what fits into a few seconds.
const EACH_OF_VOLUMES: usize = 401;

#[test]
fn no_strike_while_volumes_change_their_owners_breaks_a_rule() {
    check(&perturb(&guarded(), SHIPPED, EACH_OF_VOLUMES), guarded().len(), 8);
}

/// How many rules this strike breaks in this scenario.
fn broken_by(scenario: &str, strike: &Strike) -> Option<usize> {
    let scenario = scenarios().into_iter().find(|one| one.name == scenario)?;
    Some(run_with_strike(&scenario.plan, SHIPPED, strike).0.violations.len())
}

/// The rule of failover must allow for two checks of the standby: it may have seen the dead leader's last renewal one
/// check late, and may see its expiry one check late.
#[test]
fn bug_a_standby_that_saw_the_last_renewal_one_check_late_was_reported_slow() {
    let strike = Strike { replica: 0, occasion: Occasion::Call, number: 4, blow: Blow::Error { code: 429 } };
    assert_eq!(broken_by("terminated and unscheduled pods", &strike), Some(0));
}

/// After a conflict without a cause, no event enqueues the budget.
#[test]
fn bug_a_conflict_without_a_cause_left_a_budget_wrong_for_half_a_minute() {
    let strike = Strike { replica: 1, occasion: Occasion::Call, number: 53, blow: Blow::Error { code: 409 } };
    assert_eq!(broken_by("a node is drained under a budget", &strike), Some(0));
}
