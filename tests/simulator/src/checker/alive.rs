//! S18 and S19: nobody is released whose kubelet is there to be heard. What S2 asks for may be there, as
//! docs/proof.md has it, and the machine may run all the same. If nobody could know that, it is a limit,
//! and counted; here is what somebody could know.
//!
//! * **S18 connected**: pods are released for want of their Node, their processes run, and their kubelet
//!   speaks with an API server all the while: it asks for its Node and its Lease, which it cannot make
//!   without that.
//! * **S19 renewing**: a device says off of a machine that runs, and pods are released, or evidence is
//!   written, between two renewals of its kubelet that lie no further apart than renewals do. The silence
//!   that the looks found was none.
//!
//! S18 asks nothing where the kubelet had been silent before its Node went, where it was cut off when the pod was asked to end and
//! came back within the quarantine without a report, nor where an [`Assumption`] about this kubelet was
//! broken in this run since the pod was asked to end. That excuses the processes of this pod, and no others.

use std::collections::BTreeMap;
use std::time::Duration;

use super::acts::VALID_FOR;
use super::{Checker, Invariant, State};
use crate::api::ApiRequest;

/// A kubelet that lives speaks at least so often: it renews each 10 s, up to 4 % later, and each try of
/// three may take a second and its pause another.
/// docs/assumptions.md: renews-each-quarter
const MAX_REPORT_INTERVAL: Duration = Duration::from_secs(15);

/// A kubelet whose API server can be reached again registers within 7 s (`registerWithAPIServer`), and then reports its status.
/// docs/assumptions.md: writes-before-it-starts
const REPORTS_ITS_BOOT: Duration = Duration::from_secs(10);

/// What docs/proof.md says of a kubelet that is connected, and what a fault of a plan breaks. The time that a worker needs is
/// none of it: no kubelet promises that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Assumption {
    /// It hears of the deletion: its watch works, and its API server is not behind.
    /// docs/assumptions.md: answers-when-free
    WatchDelivers,
    /// Its reports arrive.
    /// docs/assumptions.md: answers-when-free
    Reports,
    /// What it kills ends.
    /// docs/assumptions.md: answers-when-free
    Ends,
}

impl Assumption {
    const fn excuse(self) -> &'static str {
        match self {
            Self::WatchDelivers => "excuse: a kubelet that was connected did not hear of a deletion",
            Self::Reports => "excuse: reports of a kubelet that was connected did not arrive",
            Self::Ends => "excuse: a process outlived what its kubelet gave it",
        }
    }
}

/// An assumption that is broken, for one node or for all, from when until when.
#[derive(Clone, Debug)]
struct BrokenAssumption {
    assumption: Assumption,
    node: Option<String>,
    from: Duration,
    until: Duration,
}

/// What rests on the word of a device that a machine is off, while it runs.
#[derive(Clone, Debug)]
struct DeviceDoubt {
    at: Duration,
    /// When the Lease was renewed last by then.
    renewed: Duration,
    what: String,
}

#[derive(Debug, Default)]
pub(super) struct KubeletReports {
    /// Since when API servers execute requests of each kubelet without a gap, and when the last one.
    last_reports: BTreeMap<String, (Duration, Duration)>,
    broken: Vec<BrokenAssumption>,
    /// By node.
    device_doubts: BTreeMap<String, Vec<DeviceDoubt>>,
}

/// Whether a kubelet is called so: like its node.
fn is_kubelet(caller: &str) -> bool {
    caller.strip_prefix("node-").is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
}

impl Checker {
    /// A fault breaks this for a node, or for all.
    pub(crate) fn break_assumption(&self, assumption: Assumption, node: Option<&str>, until: Duration) {
        self.state.lock().record_broken(assumption, node, self.now(), until);
    }
}

impl State {
    pub(super) fn record_broken(
        &mut self,
        assumption: Assumption,
        node: Option<&str>,
        from: Duration,
        until: Duration,
    ) {
        let node = node.map(str::to_owned);
        self.alive.broken.push(BrokenAssumption { assumption, node, from, until });
    }

    /// Which assumption about this node was broken at some time between the two.
    pub(super) fn broken_between(&self, node: &str, from: Duration, to: Duration) -> Option<&'static str> {
        self.all_broken_between(node, from, to).next().map(Assumption::excuse)
    }

    /// Whether writes of this kubelet did not arrive at some time between the two.
    pub(super) fn unreported_between(&self, node: &str, from: Duration, to: Duration) -> bool {
        self.all_broken_between(node, from, to).any(|broken| broken == Assumption::Reports)
    }

    fn all_broken_between(
        &self,
        node: &str,
        from: Duration,
        to: Duration,
    ) -> impl Iterator<Item = Assumption> {
        let is_it = move |one: &&BrokenAssumption| {
            one.node.as_deref().is_none_or(|of| of == node) && one.from <= to && from <= one.until
        };
        self.alive.broken.iter().filter(is_it).map(|one| one.assumption)
    }

    /// Whether an API server has answered this kubelet since then, and for so long that its Node says in which boot it is.
    pub(super) fn has_reported_since(&self, node: &str, then: Duration, now: Duration) -> bool {
        let spoke = self.alive.last_reports.get(node);
        spoke.is_some_and(|(since, spoke)| *spoke > then && now.saturating_sub(*since) > REPORTS_ITS_BOOT)
    }

    /// Whether this kubelet speaks with an API server, and did so when a release of now read the cluster.
    pub(super) fn is_connected(&self, now: Duration, node: &str) -> bool {
        self.alive.last_reports.get(node).is_some_and(|(since, spoke)| {
            now.saturating_sub(*spoke) <= MAX_REPORT_INTERVAL && *since + VALID_FOR <= now
        })
    }

    /// Since when this kubelet speaks with an API server, without a break.
    pub(super) fn connected_since(&self, node: &str) -> Option<Duration> {
        self.alive.last_reports.get(node).map(|(since, _)| *since)
    }

    /// A kubelet asked for something, and got an answer.
    pub(super) fn record_report(&mut self, now: Duration, asked: &ApiRequest) {
        if !is_kubelet(&asked.caller) {
            return;
        }
        match self.alive.last_reports.get_mut(&*asked.caller) {
            Some((_, spoke)) if now.saturating_sub(*spoke) <= MAX_REPORT_INTERVAL => *spoke = now,
            _ => drop(self.alive.last_reports.insert(asked.caller.to_string(), (now, now))),
        }
    }

    /// Something that runs on this node was released because its Node is gone.
    pub(super) fn check_connected(&mut self, now: Duration, node: &str, what: &str) {
        let Some((_, spoke)) = self.alive.last_reports.get(node).copied() else { return };
        if self.is_connected(now, node) {
            let what =
                format!("{what}, which runs on {node}, whose kubelet spoke with an API server at {spoke:?}");
            self.violated(now, Invariant::Connected, what);
        }
    }

    /// Something rests on the word of a device about a machine that runs.
    pub(super) fn doubt_device(&mut self, now: Duration, node: &str, what: String) {
        let Some(renewed) = self.acts.renewed_at(node) else { return };
        if now.saturating_sub(renewed) <= MAX_REPORT_INTERVAL {
            let doubtful = self.alive.device_doubts.entry(node.to_owned()).or_default();
            doubtful.push(DeviceDoubt { at: now, renewed, what });
        }
    }

    /// A kubelet renewed its Lease: what was made of its silence meanwhile was made of none.
    pub(super) fn check_renewing(&mut self, now: Duration, node: &str) {
        for DeviceDoubt { at, renewed, what } in self.alive.device_doubts.remove(node).unwrap_or_default() {
            if now.saturating_sub(renewed) <= MAX_REPORT_INTERVAL {
                let what = format!(
                    "{what} at {at:?}: the kubelet of {node} lives, and renewed its Lease at {renewed:?} and now"
                );
                self.violated(now, Invariant::Renewing, what);
            }
        }
    }
}

#[cfg(test)]
mod tests;
