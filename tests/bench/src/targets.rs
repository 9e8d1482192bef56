//! What was promised, and whether it is so.

use serde::Serialize;

use crate::contender::Contender::{Kcm, Ours};
use crate::results::{Loss, Results};

/// Of kube-controller-manager's memory.
const MEMORY: f64 = 1.0 / 20.0;
/// Of kube-controller-manager's time from its start to its synced caches.
const START: f64 = 0.5;
/// Of the API server's processor time that kube-controller-manager's start costs.
const START_APISERVER: f64 = 1.0;
/// Times kube-controller-manager's rate of removal.
const REMOVAL: f64 = 15.0;
/// Of the bare loop's rate.
const OF_BARE: f64 = 0.8;
/// Times as fast as kube-controller-manager, all budgets in one namespace.
const BUDGETS: f64 = 20.0;
/// Milliseconds beyond the grace, of 99 in 100 lost nodes.
const LAG: f64 = 200.0;
/// Percent of a core.
const QUIET_PERCENT: f64 = 1.0;

/// One promise.
#[derive(Debug, Serialize)]
pub(crate) struct Target {
    /// What is compared.
    pub(crate) what: String,
    /// What was promised.
    pub(crate) wanted: String,
    /// What was measured.
    pub(crate) measured: String,
    /// Whether that is enough.
    pub(crate) reached: bool,
}

impl Target {
    fn at_most(what: impl Into<String>, unit: &str, limit: f64, measured: f64) -> Self {
        let (what, wanted) = (what.into(), format!("≤ {limit}{unit}"));
        Self { what, wanted, measured: format!("{measured:.3}{unit}"), reached: measured <= limit }
    }

    fn at_least(what: impl Into<String>, unit: &str, limit: f64, measured: f64) -> Self {
        let (what, wanted) = (what.into(), format!("≥ {limit}{unit}"));
        Self { what, wanted, measured: format!("{measured:.2}{unit}"), reached: measured >= limit }
    }
}

/// The promises about what was measured; nothing is said about the rest.
pub(crate) fn all(results: &Results) -> Vec<Target> {
    let mut targets = memory(results);
    targets.extend(start(results));
    for &orphans in &results.plan.orphans {
        targets.extend(removal(results, orphans));
    }
    targets.extend(results.stages().filter_map(|stage| budgets(results, stage)));
    targets.extend(results.losses.iter().filter(|loss| loss.contender == Ours).map(lag));
    for (heartbeats, when) in [(false, "without changes"), (true, "with heartbeats")] {
        if let Some(quiet) = results.quiet(Ours, heartbeats) {
            let what = format!("own CPU, {when}, of a core");
            targets.push(Target::at_most(what, " %", QUIET_PERCENT, quiet.cpu_percent()));
        }
    }
    targets
}

/// The one as a part of the other.
pub(crate) fn ratio(ours: Option<f64>, kcm: Option<f64>) -> Option<f64> {
    Some(ours? / kcm.filter(|kcm| *kcm > 0.0)?)
}

fn memory(results: &Results) -> Vec<Target> {
    let peak = ratio(results.peak(Ours), results.peak(Kcm));
    let steady = |contender| results.quiet(contender, false).map(|quiet| quiet.resident_mib);
    let steady = ratio(steady(Ours), steady(Kcm));
    let target = |what: &str, ratio| Target::at_most(what, " × KCM's", MEMORY, ratio);
    let peak = peak.map(|ratio| target("highest resident memory in any phase", ratio));
    let steady = steady.map(|ratio| target("resident memory at the end of the quiet time", ratio));
    peak.into_iter().chain(steady).collect()
}

fn start(results: &Results) -> Vec<Target> {
    let of =
        |what: fn(&crate::results::Start) -> f64| ratio(results.start(Ours, what), results.start(Kcm, what));
    let seconds = of(|start| start.seconds)
        .map(|ratio| Target::at_most("start to synced caches", " × KCM's", START, ratio));
    let apiserver = of(|start| start.apiserver_cpu)
        .map(|ratio| Target::at_most("API server CPU for a start", " × KCM's", START_APISERVER, ratio));
    seconds.into_iter().chain(apiserver).collect()
}

fn removal(results: &Results, orphans: usize) -> Vec<Target> {
    let rate = |contender| results.removal(contender, orphans, |removal| removal.rate());
    let bare = results.best_bare(orphans).map(|(_, rate)| rate);
    let beside_kcm = ratio(rate(Ours), rate(Kcm)).map(|ratio| {
        Target::at_least(format!("removal of {orphans} orphans"), " × KCM's rate", REMOVAL, ratio)
    });
    let beside_bare = ratio(rate(Ours), bare).map(|ratio| {
        Target::at_least(format!("removal of {orphans} orphans"), " × the bare loop's rate", OF_BARE, ratio)
    });
    beside_kcm.into_iter().chain(beside_bare).collect()
}

/// Undetected ones were not seen in time.
fn lag(loss: &Loss) -> Target {
    let what = format!("loss of {}: grace to Unknown, p99", loss.what);
    Target::at_most(what, " ms", LAG, loss.lag.p99.unwrap_or(f64::INFINITY))
}

fn budgets(results: &Results, stage: (usize, usize)) -> Option<Target> {
    let seconds = |contender| results.statuses(contender, stage, |one| one.seconds);
    let times = ratio(seconds(Kcm), seconds(Ours)).filter(|_| stage.0 == 1)?;
    let what = format!("statuses of {} budgets in one namespace, from a cold start", stage.1);
    Some(Target::at_least(what, " × as fast as KCM", BUDGETS, times))
}
