//! The times that processes under test promise to keep, and clocks that run too fast or too slow, in worlds that have
//! such.

use super::host::TRUE_RATE;
use super::replica::Settings;
use super::run::World;
use crate::campaign::{Extras, Keeper};
use crate::checker::Promise;

/// A clock is off by a thousandth at the most: ten times what a quartz is, and twice what NTP corrects.
const MOST: u64 = TRUE_RATE / 1_000;

/// The promised times with clocks that run so.
pub(super) fn promised_times(with: Extras) -> Promise {
    let Settings { mut quarantine, terminated_threshold, mut renew_deadline, .. } = Settings::SHIPPED;
    if with.drift {
        quarantine -= quarantine / 1_000;
        renew_deadline += renew_deadline / 1_000;
    }
    Promise { quarantine, terminated_threshold, renew_deadline }
}

impl World {
    fn rate_of(&self, name: &str, fastest: u64) -> u64 {
        if !self.with.drift {
            return TRUE_RATE;
        }
        self.checker.probe("a clock ran too fast or too slow");
        let slowest = TRUE_RATE - MOST;
        slowest + self.chance.below(fastest - slowest + 1, name, "rate", 0)
    }

    pub(super) fn rate_of_node(&self, name: &str) -> u64 {
        self.rate_of(name, TRUE_RATE + MOST)
    }

    /// The rules about taints, nodes and fencing count in seconds of true time: there no process's clock is fast.
    pub(super) fn rate_of_replica(&self, name: &str) -> u64 {
        let to_the_second = self.with.taints || self.with.nodes != Keeper::Theirs;
        self.rate_of(name, if to_the_second { TRUE_RATE } else { TRUE_RATE + MOST })
    }
}
