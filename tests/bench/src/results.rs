//! What was measured: every single measurement is kept, tables show medians.

use std::time::Duration;

use serde::Serialize;

use crate::contender::Contender;
use crate::machine::Machine;
use crate::plan::Plan;
use crate::requests::Requests;

/// All of one run.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    /// The versions of the contenders.
    pub(crate) versions: Vec<String>,
    pub(crate) plan: Plan,
    pub(crate) starts: Vec<Start>,
    pub(crate) quiets: Vec<Quiet>,
    pub(crate) removals: Vec<Removal>,
    pub(crate) bares: Vec<Bare>,
    pub(crate) statuses: Vec<Statuses>,
    pub(crate) changes: Vec<Changes>,
    /// With heartbeats, while controllers of nodes run.
    pub(crate) node_quiets: Vec<Quiet>,
    pub(crate) evictions: Vec<Evicted>,
    pub(crate) losses: Vec<Loss>,
}

/// One start, until the caches were synced.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Start {
    pub(crate) contender: Contender,
    pub(crate) seconds: f64,
    /// Its own processor time until then, in seconds.
    pub(crate) cpu: f64,
    /// The API server's, until it was calm again, less what it uses when idle.
    pub(crate) apiserver_cpu: f64,
    pub(crate) peak_mib: f64,
    /// When all was calm again.
    pub(crate) resident_mib: f64,
}

/// Some minutes in which nothing happened, but for heartbeats.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Quiet {
    pub(crate) contender: Contender,
    pub(crate) seconds: f64,
    /// Leases renewed in each second.
    pub(crate) renewals: f64,
    /// Its own processor time, in seconds.
    pub(crate) cpu: f64,
    /// The API server's, less what it uses when idle. With heartbeats it includes their own.
    pub(crate) apiserver_cpu: f64,
    pub(crate) peak_mib: f64,
    /// At the end.
    pub(crate) resident_mib: f64,
}

impl Quiet {
    /// In percent of a core.
    pub(crate) fn cpu_percent(&self) -> f64 {
        100.0 * self.cpu / self.seconds
    }
}

/// One burst of orphans, removed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Removal {
    pub(crate) contender: Contender,
    pub(crate) orphans: usize,
    /// From the end of the quarantine to the first one gone.
    pub(crate) first_after: f64,
    /// From the end of the quarantine to the last one gone.
    pub(crate) seconds: f64,
    /// Its own processor time from the end of the quarantine until all was calm again, in seconds.
    pub(crate) cpu: f64,
    /// The API server's in the same time, less what it uses when idle.
    pub(crate) apiserver_cpu: f64,
    pub(crate) peak_mib: f64,
    /// All that was asked of the API server from the first orphan until all was calm again.
    pub(crate) requests: Requests,
}

impl Removal {
    /// Pods gone in each second since the end of the quarantine.
    pub(crate) fn rate(&self) -> f64 {
        rate(self.orphans, self.seconds)
    }

    /// Pods gone in each second from the first to the last: without the wait for the first.
    pub(crate) fn pace(&self) -> f64 {
        rate(self.orphans, self.seconds - self.first_after)
    }

    pub(crate) fn requests_per_pod(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "requests of a test run are far below 2^52")]
        let requests = self.requests.values().sum::<u64>() as f64;
        requests / number(self.orphans)
    }
}

/// One burst of orphans, removed by the bare loop.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Bare {
    pub(crate) orphans: usize,
    pub(crate) connections: usize,
    pub(crate) seconds: f64,
    pub(crate) apiserver_cpu: f64,
}

impl Bare {
    /// Pods gone in each second.
    pub(crate) fn rate(&self) -> f64 {
        rate(self.orphans, self.seconds)
    }
}

/// The statuses of all budgets, from the start of a process that finds none.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Statuses {
    pub(crate) contender: Contender,
    pub(crate) namespaces: usize,
    pub(crate) budgets: usize,
    /// How many of them became right in the time that there was.
    pub(crate) right: usize,
    /// Until the last of them was, or until nobody waited any longer.
    pub(crate) seconds: f64,
    /// Its own processor time until then, in seconds.
    pub(crate) cpu: f64,
    /// The API server's, until it was calm again, less what it uses when idle.
    pub(crate) apiserver_cpu: f64,
    pub(crate) peak_mib: f64,
    pub(crate) requests: Requests,
}

/// A steady rate of pods that become unready, each of which changes the status of a budget.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Changes {
    pub(crate) contender: Contender,
    pub(crate) namespaces: usize,
    pub(crate) budgets: usize,
    pub(crate) changes: usize,
    pub(crate) per_second: f64,
    /// From when the change of a pod was asked for until a watcher heard of the status, in milliseconds.
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
    /// Of how many no status told within a minute after the last.
    pub(crate) untold: usize,
    pub(crate) cpu: f64,
    /// The API server's, the changes themselves included.
    pub(crate) apiserver_cpu: f64,
    pub(crate) peak_mib: f64,
    pub(crate) requests: Requests,
}

/// How long many things took, in milliseconds. Those that did not happen count as longest.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Spread {
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) max: Option<f64>,
}

impl Spread {
    pub(crate) fn of(mut times: Vec<Duration>, never: usize) -> Self {
        times.sort();
        let of = |percent| percentile(&times, never, percent);
        Self { p50: of(50), p99: of(99), max: of(100) }
    }
}

/// Of `sorted` times and as many that `never` came, in milliseconds; `None` if it is one of these, or of none.
pub(crate) fn percentile(sorted: &[Duration], never: usize, percent: usize) -> Option<f64> {
    let rank = ((sorted.len() + never) * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).map(|time| time.as_secs_f64() * 1_000.0)
}

/// The pods of nodes that got a taint which they do not tolerate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Evicted {
    pub(crate) contender: Contender,
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    /// From the taint until a watcher heard that the pod was asked to end.
    pub(crate) spread: Spread,
    /// How many were not.
    pub(crate) undeleted: usize,
}

/// Nodes whose Leases were renewed no more.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Loss {
    pub(crate) contender: Contender,
    pub(crate) what: &'static str,
    pub(crate) nodes: usize,
    /// Of how many it was not seen.
    pub(crate) undetected: usize,
    /// From the end of the grace after the last renewal until a watcher heard that the node is Unknown.
    pub(crate) lag: Spread,
    pub(crate) pods: usize,
    /// How many of the pods were marked.
    pub(crate) marked: usize,
    /// From when the last node was Unknown until the last pod was marked; below zero never, for it then counts as none.
    pub(crate) marked_seconds: Option<f64>,
    pub(crate) cpu: f64,
    pub(crate) apiserver_cpu: f64,
    pub(crate) peak_mib: f64,
    pub(crate) requests: Requests,
}

fn rate(count: usize, seconds: f64) -> f64 {
    number(count) / seconds.max(0.001)
}

/// A count as a number to calculate with.
#[expect(clippy::cast_precision_loss, reason = "counts of a test run are far below 2^52")]
pub(crate) fn number(count: usize) -> f64 {
    count as f64
}

/// The middle of `values`, or the mean of the two in the middle; `None` without any.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2)?;
    let lower = sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some(f64::midpoint(*lower, *upper))
}

impl Results {
    /// The median of `what` over the starts of `contender`.
    pub(crate) fn start(&self, contender: Contender, what: impl Fn(&Start) -> f64) -> Option<f64> {
        median(self.starts.iter().filter(|start| start.contender == contender).map(what))
    }

    /// The quiet time of `contender` with or without heartbeats.
    pub(crate) fn quiet(&self, contender: Contender, heartbeats: bool) -> Option<&Quiet> {
        self.quiets.iter().find(|quiet| quiet.contender == contender && (quiet.renewals > 0.0) == heartbeats)
    }

    /// The median of `what` over the removals of `orphans` by `contender`.
    pub(crate) fn removal(
        &self,
        contender: Contender,
        orphans: usize,
        what: impl Fn(&Removal) -> f64,
    ) -> Option<f64> {
        let these = self.removals.iter().filter(|one| one.contender == contender && one.orphans == orphans);
        median(these.map(what))
    }

    /// The median rate of the bare loop over `connections`.
    pub(crate) fn bare(&self, orphans: usize, connections: usize) -> Option<f64> {
        let these = self.bares.iter().filter(|one| one.connections == connections && one.orphans == orphans);
        median(these.map(Bare::rate))
    }

    /// The best of these: connections and rate.
    pub(crate) fn best_bare(&self, orphans: usize) -> Option<(usize, f64)> {
        let all = self.plan.connections.iter();
        let rates = all.filter_map(|&connections| Some((connections, self.bare(orphans, connections)?)));
        rates.max_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    /// The median of `what` over the cold starts of `contender` with so many budgets over so many namespaces.
    pub(crate) fn statuses(
        &self,
        contender: Contender,
        (namespaces, budgets): (usize, usize),
        what: impl Fn(&Statuses) -> f64,
    ) -> Option<f64> {
        let of = |one: &&Statuses| {
            (one.contender, one.namespaces, one.budgets) == (contender, namespaces, budgets)
        };
        median(self.statuses.iter().filter(of).map(what))
    }

    /// The changes that `contender` followed with so many budgets over so many namespaces.
    pub(crate) fn changes(
        &self,
        contender: Contender,
        (namespaces, budgets): (usize, usize),
    ) -> Option<&Changes> {
        let of =
            |one: &&Changes| (one.contender, one.namespaces, one.budgets) == (contender, namespaces, budgets);
        self.changes.iter().find(of)
    }

    /// The loss of this name that `contender` saw.
    pub(crate) fn loss(&self, contender: Contender, what: &str) -> Option<&Loss> {
        self.losses.iter().find(|loss| loss.contender == contender && loss.what == what)
    }

    /// Every number of namespaces with every number of budgets.
    pub(crate) fn stages(&self) -> impl Iterator<Item = (usize, usize)> {
        let (spaces, budgets) = (&self.plan.budget_namespaces, &self.plan.budgets);
        spaces.iter().flat_map(move |&namespaces| budgets.iter().map(move |&budgets| (namespaces, budgets)))
    }

    /// The most memory that `contender` had resident in any phase, in MiB.
    pub(crate) fn peak(&self, contender: Contender) -> Option<f64> {
        let starts = self.starts.iter().map(|one| (one.contender, one.peak_mib));
        let quiets = self.quiets.iter().map(|one| (one.contender, one.peak_mib));
        let removals = self.removals.iter().map(|one| (one.contender, one.peak_mib));
        let all = starts.chain(quiets).chain(removals).filter(|(of, _)| *of == contender);
        all.map(|(_, peak)| peak).max_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0]), Some(3.0));
        assert_eq!(median([9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0]), Some(2.5));
    }

    #[test]
    fn what_never_happened_counts_as_longest() {
        let times: Vec<_> = (1..=98).map(Duration::from_millis).collect();
        let spread = Spread::of(times.clone(), 2);
        assert_eq!((spread.p50, spread.p99, spread.max), (Some(50.0), None, None));
        assert_eq!(Spread::of(times, 0).p99, Some(98.0));
        assert_eq!(Spread::of(Vec::new(), 0).max, None);
    }
}
