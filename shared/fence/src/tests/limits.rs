//! The numbers on which the proof of a switched-off machine rests, with their arguments.

use std::time::Duration;

use super::super::status_check::ORDER_GRACE;
use crate::api::{ActTime, Timeouts, Verified};

#[test]
fn two_looks_lie_apart_and_an_order_ends_in_its_time() {
    let seconds = Duration::from_secs;
    // A relay that bounces and a supervisor that restarts what was switched off do so within some seconds: both looks
    // of a proof must not fall before that.
    assert_eq!(Verified::MIN_INTERVAL, seconds(5));
    // A transport kills what it started when its time is over; so long it may take to say so. Whoever leads next waits
    // for the time of the order, and for more than this.
    assert_eq!(ORDER_GRACE, seconds(1));
    // A BMC that is reset by the same failure needs a minute; a look that takes longer than that of a proof's age
    // (`MINIMUM_BOOT`) is refused when it is used, not here.
    assert_eq!(
        Timeouts::default(),
        Timeouts { power_off: ActTime(60), power_on: ActTime(60), status: ActTime(20) }
    );
}
