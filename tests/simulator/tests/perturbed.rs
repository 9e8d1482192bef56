//! One strike at calls and events of every scenario. All of them: `make perturb`.

mod allocator;
mod shipped;

use pod_safety_simulator::campaign::{perturb, scenarios};
use pod_safety_simulator::world::Subject;

/// One of so many strikes is carried out here: what fits into a minute of two
/// cores. A prime, so that it steps through all families.
const EACH: usize = 11;

#[test]
fn no_strike_at_a_call_or_an_event_breaks_a_rule() {
    let tally = perturb(&scenarios(), Subject::Shipped(shipped::launch, None), EACH);
    println!("{tally}");
    assert!(tally.diverged.is_empty(), "the runs before a strike are their references: {tally}");
    assert!(tally.broken.is_empty(), "{tally}");
    assert_eq!(tally.scenarios.len(), scenarios().len(), "every scenario is struck: {tally}");
    assert!(tally.families.len() >= 16, "every family strikes: {tally}");
}
