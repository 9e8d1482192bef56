//! How long copies run after the last grant of their node's agent. The promise of an agent bounds that: T, counted from
//! the moment when the controller first sees the grant, which is later than the grant.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};
use pod_safety_watchdog::bound::Bound;
use pod_safety_watchdog::record::{Device, Epoch, Record, State, lease_name};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::machine::Machine;
use crate::objects::{DRIFT_PPM, RESET_SECONDS, TICK_SECONDS};
use crate::watch::{copies, uptime};

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A request to an API server that does not answer is sent again.
const ANSWER: Duration = Duration::from_secs(1);
/// The longest time that an agent waits for its next grant, in seconds. So a grant that shows up after an outage is no
/// older than this.
const INTERVAL: f64 = 1.0;

/// The longest time that a copy ran after the last grant of its node's agent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outlived {
    pub(crate) seconds: f64,
    /// The bound T of the promise.
    pub(crate) bound: f64,
}

impl Outlived {
    pub(crate) fn is_late(&self) -> bool {
        self.seconds > self.bound
    }

    pub(crate) fn longer(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).max_by(|one, other| one.seconds.total_cmp(&other.seconds))
    }
}

impl fmt::Display for Outlived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, bound } = self;
        write!(f, "a copy ran for {seconds:.1} s after the last grant of its node's agent, and T is {bound:.1} s")
    }
}

/// The recorded state of the agent of one node.
#[derive(Default)]
struct AgentLease {
    /// The highest round of each epoch that was seen. A round that a restored etcd shows again is no grant.
    rounds: BTreeMap<Epoch, u64>,
    /// The earliest time at which its last grant came, in seconds of uptime, and T. `None`: it promises nothing.
    granted: Option<(f64, f64)>,
}

impl AgentLease {
    /// Records a Lease that was not in this state yet at `since`.
    fn observe(&mut self, record: &Record, since: f64) {
        let highest = self.rounds.entry(record.epoch).or_default();
        let is_new = record.round > *highest;
        *highest = record.round.max(*highest);
        match (record.state, &record.device) {
            (State::Armed, Some(device)) if is_new => self.granted = wait(device).map(|wait| (since, wait)),
            (State::Disarmed, _) if is_new => self.granted = None,
            // A grant that was revoked or was seen before, or the next process of the agent: the bound still holds.
            _ => {}
        }
    }

    fn overrun(&self, now: f64) -> Option<Outlived> {
        self.granted.map(|(at, bound)| Outlived { seconds: now - at, bound })
    }
}

/// T of the device that the policy names, in seconds.
fn wait(device: &Device) -> Option<f64> {
    let bound = Bound {
        timeout: device.timeout,
        tick: Duration::from_secs(TICK_SECONDS.into()),
        drift_ppm: DRIFT_PPM,
        reset: Duration::from_secs(RESET_SECONDS.into()),
        pause: Duration::ZERO,
        pings_on_close: device.pings_on_close,
    };
    bound.wait_time().map(|wait| wait.as_secs_f64())
}

#[derive(Default)]
struct LedgerState {
    agents: BTreeMap<String, AgentLease>,
    longest: Option<Outlived>,
}

/// Reads Leases and the process tables of the machines until it is dropped.
pub(crate) struct Ledger {
    state: Arc<Mutex<LedgerState>>,
    _watches: JoinSet<()>,
}

impl Ledger {
    pub(crate) fn begin(client: Client) -> Self {
        let (state, mut looks) = (Arc::<Mutex<LedgerState>>::default(), JoinSet::new());
        looks.spawn(watch_leases(client, Arc::clone(&state)));
        looks.spawn(watch_copies(Arc::clone(&state)));
        Self { state, _watches: looks }
    }

    pub(crate) fn longest(&self) -> Option<Outlived> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).longest
    }
}

async fn watch_leases(client: Client, book: Arc<Mutex<LedgerState>>) {
    let (leases, mut before) = (Api::<Lease>::namespaced(client, "pod-safety"), 0.0_f64);
    let of_agents = ListParams::default().labels("app.kubernetes.io/component=agent");
    loop {
        if let Ok(began) = uptime()
            && let Ok(Ok(list)) = tokio::time::timeout(ANSWER, leases.list(&of_agents)).await
        {
            let since = before.max(began - INTERVAL);
            let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
            for machine in Machine::ALL {
                let name = lease_name(&machine.name());
                let lease = list.items.iter().find(|lease| lease.metadata.name.as_ref() == Some(&name));
                if let Some(annotations) = lease.and_then(|lease| lease.metadata.annotations.as_ref())
                    && let Ok(record) = Record::from_annotations(annotations)
                {
                    book.agents.entry(machine.name()).or_default().observe(&record, since);
                }
            }
            before = began;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn watch_copies(book: Arc<Mutex<LedgerState>>) {
    loop {
        if let Ok(now) = uptime() {
            let alive = copies();
            let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
            let outlived = alive.iter().filter_map(|(_, copy)| book.agents.get(&copy.node)?.overrun(now));
            book.longest = outlived.fold(book.longest, |longest, one| Outlived::longer(longest, Some(one)));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_safety_watchdog::record::{Boot, Class};

    fn record(state: State, round: u64) -> Record {
        let device = Device {
            class: Class::Hardware,
            identity: "keeper".into(),
            firmware: 0,
            kernel: "6.1".into(),
            timeout: Duration::from_secs(8),
            nowayout: true,
            pings_on_close: true,
        };
        let boot = Boot { node: "node".into(), id: "boot".into() };
        Record { state, epoch: Epoch { process: 1, count: 1 }, round, boot, device: Some(device.into()) }
    }

    #[test]
    fn time_counts_from_the_last_grant_and_not_from_one_in_a_restored_etcd() {
        let mut promise = AgentLease::default();
        for (state, round, since) in [(State::Armed, 7, 1.0), (State::Armed, 6, 9.0), (State::Revoked, 7, 10.0)] {
            promise.observe(&record(state, round), since);
        }
        let outlived = promise.overrun(12.0).unwrap();
        assert!((outlived.seconds - 11.0).abs() < 0.001 && (outlived.bound - 32.27).abs() < 0.001, "{outlived:?}");
        assert!(!outlived.is_late() && promise.overrun(34.0).unwrap().is_late());
    }

    #[test]
    fn a_lease_returned_gracefully_sets_no_bound() {
        let mut promise = AgentLease::default();
        promise.observe(&record(State::Armed, 7), 1.0);
        promise.observe(&record(State::Disarmed, 8), 2.0);
        assert_eq!(promise.overrun(99.0), None);
    }
}
