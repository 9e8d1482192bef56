//! The values on which the evidence of a machine that was powered off relies, with their reasons.

use std::time::Duration;

use super::super::status_check::ORDER_GRACE;
use crate::api::{ActTime, Timeouts, Verified};

#[test]
fn the_interval_and_the_order_timeouts_have_their_documented_values() {
    let seconds = Duration::from_secs;
    // A relay that bounces and a supervisor that restarts what was switched off do so within some seconds: the second
    // check must come later.
    assert_eq!(Verified::MIN_INTERVAL, seconds(5));
    // A transport kills what it started after its timeout, and may take this long to report it. The next leader waits
    // for the order's timeout, and for more than this.
    assert_eq!(ORDER_GRACE, seconds(1));
    // A BMC that is reset by the same failure needs a minute; a status check that takes longer than `MINIMUM_BOOT` is
    // refused when the evidence is used, not here.
    assert_eq!(Timeouts::default(), Timeouts { power_off: ActTime(60), power_on: ActTime(60), status: ActTime(20) });
}
