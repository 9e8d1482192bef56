//! The numbers on which "silent" and "not renewed" rest, with their arguments.

use std::time::Duration;

use super::super::feed::{LIST_SILENCE, WATCH_SILENCE};
use super::super::heartbeat::KEEP_GONE;
use super::super::sync::BREAK;
use super::super::view::STALE_AFTER;

#[test]
fn what_was_not_heard_of_for_so_long_says_nothing() {
    let seconds = Duration::from_secs;
    // The API server sends a bookmark each minute on a watch where nothing happens. Two and a half lost ones are not
    // chance: what such a watch does not say did not not happen.
    assert_eq!(STALE_AFTER, seconds(150));
    // One bookmark and half of the next: the watch is opened anew, and has a minute to come back before its kind counts
    // as silent.
    assert_eq!(WATCH_SILENCE, seconds(90));
    assert!(WATCH_SILENCE + LIST_SILENCE <= STALE_AFTER);
    // Living kubelets renew their Leases every ten seconds: with one of them in touch there is no longer pause.
    assert_eq!(BREAK, seconds(15));
    // Whether a Lease was renewed before it went is asked a quarantine after its Node went: 40 s by default, and ten
    // minutes cover any that somebody sets.
    assert_eq!(KEEP_GONE, seconds(600));
}
