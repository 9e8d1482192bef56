//! S18 and S19: no pod is released while its kubelet can be reached. The evidence that S2 requires may be there, as
//! docs/proof.md describes it, and the machine may run all the same. If that could not be detected, it is a limit, and
//! counted. These rules cover what could have been detected.
//!
//! * **S18 connected**: pods are released because their Node is gone, their processes run, and their kubelet is
//!   connected to an API server all the while: it requests its Node and its Lease, which it cannot create without that.
//! * **S19 renewing**: a device reports off for a machine that runs, and pods are released, or evidence is written,
//!   between two renewals of its kubelet that lie no further apart than regular renewals. The kubelet was reachable
//!   during the status checks.
//!
//! S18 does not apply where the kubelet had stopped reporting before its Node was deleted, nor where it was cut off
//! when the pod was deleted gracefully and came back within the quarantine without a report, nor where an
//! [`Assumption`] about this kubelet was broken in this run since the pod was deleted gracefully. That excuses the
//! processes of this pod, and no others.

use std::collections::BTreeMap;
use std::time::Duration;

use super::acts::VALID_FOR;
use super::{Checker, Invariant, State};
use crate::api::ApiRequest;

/// A running kubelet reports at least this often: it renews each 10 s, up to 4 % later, and each of three tries may
/// take a second and its backoff another.
/// docs/assumptions.md: renews-each-quarter
const MAX_REPORT_INTERVAL: Duration = Duration::from_secs(15);

/// A kubelet registers within 7 s after it can reach its API server again (`registerWithAPIServer`), and then reports
/// its status.
/// docs/assumptions.md: writes-before-it-starts
const REPORTS_ITS_BOOT: Duration = Duration::from_secs(10);

/// What docs/proof.md assumes of a connected kubelet, and what a fault of a plan breaks. The time that a pod worker
/// needs is not among the assumptions: no kubelet promises that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Assumption {
    /// The kubelet receives the deletion: its watch works, and its API server does not lag.
    /// docs/assumptions.md: answers-when-free
    WatchDelivers,
    /// Its reports arrive.
    /// docs/assumptions.md: answers-when-free
    Reports,
    /// The processes that it kills end.
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

/// An assumption that is broken for one node or for all, from when, and until when.
#[derive(Clone, Debug)]
struct BrokenAssumption {
    assumption: Assumption,
    node: Option<String>,
    from: Duration,
    until: Duration,
}

/// An act that rests on a device's report that a machine is off, while the machine runs.
#[derive(Clone, Debug)]
struct DeviceDoubt {
    at: Duration,
    /// The last renewal of the Lease before the act.
    renewed: Duration,
    what: String,
}

#[derive(Debug, Default)]
pub(super) struct KubeletReports {
    /// For each kubelet: since when API servers execute its requests without a gap, and its last request.
    last_reports: BTreeMap<String, (Duration, Duration)>,
    broken: Vec<BrokenAssumption>,
    /// By node.
    device_doubts: BTreeMap<String, Vec<DeviceDoubt>>,
}

/// Whether a caller is a kubelet: kubelets are named like their nodes.
fn is_kubelet(caller: &str) -> bool {
    caller.strip_prefix("node-").is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
}

impl Checker {
    /// A fault breaks this assumption for a node, or for all.
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

    /// The assumption about this node that was broken at some time between the two moments.
    pub(super) fn broken_between(&self, node: &str, from: Duration, to: Duration) -> Option<&'static str> {
        self.all_broken_between(node, from, to).next().map(Assumption::excuse)
    }

    /// Whether writes of this kubelet did not arrive at some time between the two moments.
    pub(super) fn unreported_between(&self, node: &str, from: Duration, to: Duration) -> bool {
        self.all_broken_between(node, from, to).any(|broken| broken == Assumption::Reports)
    }

    fn all_broken_between(&self, node: &str, from: Duration, to: Duration) -> impl Iterator<Item = Assumption> {
        let is_it = move |one: &&BrokenAssumption| {
            one.node.as_deref().is_none_or(|of| of == node) && one.from <= to && from <= one.until
        };
        self.alive.broken.iter().filter(is_it).map(|one| one.assumption)
    }

    /// Whether an API server has answered this kubelet since then, and for so long that its Node shows its present
    /// boot.
    pub(super) fn has_reported_since(&self, node: &str, then: Duration, now: Duration) -> bool {
        let spoke = self.alive.last_reports.get(node);
        spoke.is_some_and(|(since, spoke)| *spoke > then && now.saturating_sub(*since) > REPORTS_ITS_BOOT)
    }

    /// Whether this kubelet is connected to an API server, and was so when a release that happens now read the cluster.
    pub(super) fn is_connected(&self, now: Duration, node: &str) -> bool {
        self.alive.last_reports.get(node).is_some_and(|(since, spoke)| {
            now.saturating_sub(*spoke) <= MAX_REPORT_INTERVAL && *since + VALID_FOR <= now
        })
    }

    /// Since when this kubelet is connected to an API server, without a gap.
    pub(super) fn connected_since(&self, node: &str) -> Option<Duration> {
        self.alive.last_reports.get(node).map(|(since, _)| *since)
    }

    /// An API server answered a request of this kubelet.
    pub(super) fn record_report(&mut self, now: Duration, asked: &ApiRequest) {
        if !is_kubelet(&asked.caller) {
            return;
        }
        match self.alive.last_reports.get_mut(&*asked.caller) {
            Some((_, spoke)) if now.saturating_sub(*spoke) <= MAX_REPORT_INTERVAL => *spoke = now,
            _ => drop(self.alive.last_reports.insert(asked.caller.to_string(), (now, now))),
        }
    }

    /// A pod whose process runs on this node was released because its Node is gone.
    pub(super) fn check_connected(&mut self, now: Duration, node: &str, what: &str) {
        let Some((_, spoke)) = self.alive.last_reports.get(node).copied() else { return };
        if self.is_connected(now, node) {
            let what = format!("{what}, which runs on {node}, whose kubelet spoke with an API server at {spoke:?}");
            self.violated(now, Invariant::Connected, what);
        }
    }

    /// An act rests on a device's report about a machine that runs.
    pub(super) fn doubt_device(&mut self, now: Duration, node: &str, what: String) {
        let Some(renewed) = self.acts.renewed_at(node) else { return };
        if now.saturating_sub(renewed) <= MAX_REPORT_INTERVAL {
            let doubtful = self.alive.device_doubts.entry(node.to_owned()).or_default();
            doubtful.push(DeviceDoubt { at: now, renewed, what });
        }
    }

    /// A kubelet renewed its Lease: an act that assumed meanwhile that it does not report was wrong.
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
