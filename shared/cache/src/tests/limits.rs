//! The timeouts that decide when a kind is stale or a node unreachable, with their reasons.

use super::super::feed::{LIST_IDLE_TIMEOUT, WATCH_IDLE_TIMEOUT};
use super::super::heartbeat::KEEP_DELETED;
use super::super::sync::WATCH_GAP;
use super::super::view::STALE_AFTER;

use super::*;

#[test]
fn the_timeouts_of_watches_and_leases_are_consistent() {
    let seconds = Duration::from_secs;
    // The API server sends a bookmark each minute on a watch without events. That two and a half are lost is no
    // coincidence: missing events of such a watch prove nothing.
    assert_eq!(STALE_AFTER, seconds(150));
    // One bookmark and half of the next: the watch is opened again, and has a minute to succeed before its kind
    // counts as stale.
    assert_eq!(WATCH_IDLE_TIMEOUT, seconds(90));
    assert!(WATCH_IDLE_TIMEOUT + LIST_IDLE_TIMEOUT <= STALE_AFTER);
    // Running kubelets renew their Leases every ten seconds: while one of them is connected there is no longer gap.
    assert_eq!(WATCH_GAP, seconds(15));
    // Whether a Lease was renewed before it was removed is read a quarantine after its Node was removed: 40 s by
    // default, and ten minutes cover any sensible setting.
    assert_eq!(KEEP_DELETED, seconds(600));
}
