//! The end of a run: every pod that can run runs and stays, and a dead leader is replaced.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Checker, Invariant};

/// The time from a leader's death to the next leader. Standbys check every 2.4 s at most, jitter included: they may see
/// the last renewal one check late, 15 s later it has expired, and they may see that one check late, too. A second is
/// for the requests.
pub(crate) const FAILOVER: Duration = Duration::from_millis(2_400 + 15_000 + 2_400 + 1_000);

impl Checker {
    /// The leader, by the Lease.
    pub(crate) fn leader(&self) -> Option<String> {
        self.state.lock().acts.leader().map(str::to_owned)
    }

    /// The processes of the StatefulSet: pod UIDs by identity.
    pub(crate) fn members(&self) -> BTreeMap<String, String> {
        let state = self.state.lock();
        let members = state.processes.running().filter(|process| process.identity.starts_with("default/data-"));
        members.map(|process| (process.identity.clone(), process.uid.clone())).collect()
    }

    /// Checks that nothing changed: the pods that ran still run, and those that can run (`feasible`) do.
    pub(crate) fn check_rest(&self, before: &BTreeMap<String, String>, feasible: &[String]) {
        let after = self.members();
        for (identity, uid) in before {
            let now = after.get(identity);
            if now != Some(uid) {
                self.violated(Invariant::Rest, format!("{identity} ({uid:.8}) ran, and now {now:?} does"));
            }
        }
        for identity in feasible.iter().filter(|identity| !after.contains_key(*identity)) {
            self.violated(Invariant::Rest, format!("{identity} could run, and does not"));
        }
        self.probe("the world came to rest");
    }

    /// Checks that another process leads after the leader `dead` died.
    pub(crate) fn check_failover(&self, dead: &str) {
        match self.leader() {
            Some(leader) if leader != dead => self.probe("a leader died, and another leads in time"),
            leader => {
                let what = format!("{dead} died {FAILOVER:?} ago, and {leader:?} leads");
                self.violated(Invariant::Failover, what);
            }
        }
    }
}
