//! The end of a run: what can run runs and stays, and a dead leader is replaced.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Checker, Invariant};

/// From a leader's death to the next. Others look every 2.4 s at the most, jitter
/// included: its last renewal may be seen a look late, 15 s later it has ended, and
/// that may be seen a look late, too. A second is for the requests.
pub(crate) const FAILOVER: Duration = Duration::from_millis(2_400 + 15_000 + 2_400 + 1_000);

impl Checker {
    /// Who leads, by the Lease.
    pub(crate) fn leader(&self) -> Option<String> {
        self.state.lock().acts.leader().map(str::to_owned)
    }

    /// The processes of the StatefulSet: pod UIDs by identity.
    pub(crate) fn members(&self) -> BTreeMap<String, String> {
        let state = self.state.lock();
        let members =
            state.processes.running().filter(|process| process.identity.starts_with("default/data-"));
        members.map(|process| (process.identity.clone(), process.uid.clone())).collect()
    }

    /// Nothing happened, and nothing was to happen: what ran runs, and what can run
    /// (`feasible`) does.
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

    /// `dead` led and died; somebody else must lead by now.
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
