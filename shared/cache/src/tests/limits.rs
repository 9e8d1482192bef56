//! The numbers on which "silent" and "not renewed" rest, with their arguments.

use std::time::Duration;

use super::super::feed::{LIST_IDLE_TIMEOUT, WATCH_IDLE_TIMEOUT};
use super::super::heartbeat::KEEP_DELETED;
use super::super::sync::WATCH_GAP;
use super::super::view::STALE_AFTER;

#[test]
fn what_was_not_heard_of_for_so_long_says_nothing() {
    let seconds = Duration::from_secs;
    // The API server sends a bookmark each minute on a watch where nothing happens. Two and a half lost ones are not
    // chance: what such a watch does not say did not not happen.
    assert_eq!(STALE_AFTER, seconds(150));
    // One bookmark and half of the next: the watch is opened anew, and has a minute to come back before its kind counts
    // as silent.
    assert_eq!(WATCH_IDLE_TIMEOUT, seconds(90));
    assert!(WATCH_IDLE_TIMEOUT + LIST_IDLE_TIMEOUT <= STALE_AFTER);
    // Living kubelets renew their Leases every ten seconds: with one of them in touch there is no longer pause.
    assert_eq!(WATCH_GAP, seconds(15));
    // Whether a Lease was renewed before it went is asked a quarantine after its Node went: 40 s by default, and ten
    // minutes cover any that somebody sets.
    assert_eq!(KEEP_DELETED, seconds(600));
}
