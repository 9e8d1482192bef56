//! One strike at calls and events of every scenario. All of them: `make perturb`.

mod allocator;
mod shipped;

use pod_safety_simulator::campaign::{perturb, scenarios};
use pod_safety_simulator::world::{Blow, Occasion, Strike, Subject, stricken};

const SHIPPED: Subject = Subject::Shipped(shipped::launch, None);

/// One of so many strikes is carried out here: what fits into a minute of two
/// cores. A prime, so that it steps through all families.
const EACH: usize = 11;

#[test]
fn no_strike_at_a_call_or_an_event_breaks_a_rule() {
    let tally = perturb(&scenarios(), SHIPPED, EACH);
    println!("{tally}");
    assert!(tally.diverged.is_empty(), "the runs before a strike are their references: {tally}");
    assert!(tally.broken.is_empty(), "{tally}");
    assert_eq!(tally.scenarios.len(), scenarios().len(), "every scenario is struck: {tally}");
    assert!(tally.families.len() >= 16, "every family strikes: {tally}");
}

/// The first run of all strikes found it: the rule of failover allowed for one look of the standby, and there are two,
/// for it may have seen the dead leader's last renewal as late as it then sees its end.
#[test]
fn bug_a_standby_that_saw_the_last_renewal_a_look_late_was_called_slow() {
    let scenario =
        scenarios().into_iter().find(|scenario| scenario.name == "terminated and unscheduled pods");
    let strike = Strike { replica: 0, occasion: Occasion::Call, number: 4, blow: Blow::Error { code: 429 } };
    let found = scenario.map(|scenario| stricken(&scenario.plan, SHIPPED, &strike).0.violations.len());
    assert_eq!(found, Some(0));
}
