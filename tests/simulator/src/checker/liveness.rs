//! What must have happened when the world has been healthy for long enough, node by node: from a moment of its own on,
//! the pods of each node may not be there.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::budgets::RECOVERS;
use super::effects::is_terminal;
use super::shown_holds::Shown;
use super::{Checker, Invariant, State};
use crate::world::{number_at, str_at};

/// The longest backoff of a request that failed during the faults.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A missing node is checked every ten seconds; the rest is for the requests.
const LOOKED_AT: Duration = Duration::from_secs(15);

/// A pod whose node is missing.
struct Orphan<'a> {
    pod: &'a Value,
    node: &'a str,
    /// From when on it must be reported.
    told_at: Duration,
    /// From when on it may not be there.
    owed_at: Duration,
}

fn orphans<'a>(state: &State, quarantine: Duration, pods: &'a [Arc<Value>], nodes: &[Arc<Value>]) -> Vec<Orphan<'a>> {
    let Some(healed) = state.healed else { return Vec::new() };
    let present = |name: &str| nodes.iter().any(|node| str_at(node, "/metadata/name") == name);
    let of_pod = |pod: &'a Arc<Value>| {
        let (node, uid) = (str_at(pod, "/spec/nodeName"), str_at(pod, "/metadata/uid"));
        if node.is_empty() || present(node) {
            return None;
        }
        let acts = &state.acts;
        // The wait begins when all of these are over: disturbances, the node's existence, the pod's own creation, and
        // the last change of the leader, which starts the wait again.
        let from = [Some(healed + LONGEST_PAUSE), acts.missing_since(node), acts.bound_at(uid), acts.led_since()];
        let from = from.into_iter().flatten().max().unwrap_or_default();
        // A report of the kubelet is followed by one quarantine without reports, and then by the one that lies between
        // two reads. A kubelet that had not stopped reporting first gets its pods deleted gracefully, which takes a
        // quarantine before, their grace and a quarantine after, whether it answers or cannot.
        let quiet = acts.last_sign(node).map_or(from, |sign| from.max(sign + quarantine));
        let grace = ["/metadata/deletionGracePeriodSeconds", "/spec/terminationGracePeriodSeconds"];
        let grace = grace.iter().find_map(|field| number_at(pod, field)).and_then(|grace| u64::try_from(grace).ok());
        let deleted_at = quiet + quarantine + LOOKED_AT;
        let answered = deleted_at + Duration::from_secs(grace.unwrap_or(30)) + quarantine + LOOKED_AT;
        Some(Orphan { pod, node, told_at: from + LOOKED_AT, owed_at: answered + quarantine + LOOKED_AT })
    };
    pods.iter().filter_map(of_pod).collect()
}

/// A kubelet whose workers are free reports a change or a deletion of a pod within this time.
const FREE_REPORTS_WITHIN: Duration = Duration::from_secs(10);

impl State {
    /// Whether this orphan may wait for its kubelet to report: a container is reported that does not run, a change of
    /// the pod was not reported, the kubelet acted after its report on the deletion was due, or it had just started.
    fn may_be_unable_to_report(&self, pod: &Value, node: &str) -> bool {
        let mut reports = pod.pointer("/status/containerStatuses").and_then(Value::as_array).into_iter().flatten();
        let runs = |report: &Value| report.pointer("/state/running").is_some_and(|running| !running.is_null());
        let observed = number_at(pod, "/status/observedGeneration").filter(|observed| *observed > 0);
        let ahead = observed.map_or(0, |observed| number_at(pod, "/metadata/generation").unwrap_or(0) - observed);
        let deleted = pod.pointer("/metadata/deletionTimestamp").is_some();
        let deleted_at = self.fences.leaves_since(str_at(pod, "/metadata/uid"));
        let last_sign = deleted_at.zip(self.acts.last_possible_sign(node));
        ahead > i64::from(deleted)
            || self.acts.may_have_just_started(node) && (ahead > 0 || observed.is_none())
            || reports.any(|report| !runs(report))
            || ahead > 0 && last_sign.is_some_and(|(deleted_at, sign)| sign >= deleted_at + FREE_REPORTS_WITHIN)
    }
}

impl Checker {
    /// The last moment at which something that is there now must be gone; `None`: nothing must be.
    pub(crate) fn owed_at(&self, pods: &[Arc<Value>], nodes: &[Arc<Value>]) -> Option<Duration> {
        let state = self.state.lock();
        let orphans = orphans(&state, self.promise.quarantine, pods, nodes);
        orphans.into_iter().map(|orphan| orphan.owed_at).max()
    }

    /// Checks that orphans are gone by their deadline, and reported until then. `holds` are the holds that the
    /// processes under test show.
    pub(crate) fn check_settled(&self, pods: &[Arc<Value>], nodes: &[Arc<Value>], holds: &Shown) {
        let (now, mut state) = self.now_and_state();
        for Orphan { pod, node, told_at, owed_at } in orphans(&state, self.promise.quarantine, pods, nodes) {
            let shown = |reason: &str| holds.holds_pod(pod, reason);
            let name = format!("{} ({:.8})", str_at(pod, "/metadata/name"), str_at(pod, "/metadata/uid"));
            if shown("KubeletMayNotReport") && state.may_be_unable_to_report(pod, node) {
                state.probe("an orphan is held: KubeletMayNotReport");
                continue;
            }
            if now < owed_at {
                let alive = state.acts.last_sign(node).is_some_and(|sign| now < sign + self.promise.quarantine);
                let reason = if alive { "KubeletAlive" } else { "Quarantine" };
                let waits = ["KubeletAlive", "AwaitsKubelet"].into_iter().find(|reason| !alive && shown(reason));
                if shown(reason) || waits.is_some() {
                    let reason = waits.unwrap_or(reason);
                    state.probe(&format!("an orphan is held: {reason}"));
                } else if now >= told_at {
                    let what = format!("{name} of missing node {node} waits, and nobody is told: {holds:?}");
                    state.violated(now, Invariant::Reported, what);
                }
                continue;
            }
            let waits = pod.pointer("/metadata/finalizers/0").is_some() && is_terminal(pod);
            if waits && shown("Finalizers") {
                state.probe("an orphan is held: Finalizers");
                continue;
            }
            let what =
                format!("{name} of node {node} is still there; it was to be gone at {owed_at:?}; holds: {holds:?}");
            state.violated(now, Invariant::Liveness, what);
        }
        self.check_terminated(&mut state, pods, nodes, now);
    }

    /// L7: a pod that was deleted gracefully on an unreachable node without evidence waits without limit, and the hold
    /// is shown.
    pub(crate) fn check_stuck(&self, pods: &[Arc<Value>], holds: &Shown) {
        let (now, mut state) = self.now_and_state();
        let calm = state.budgets.untroubled_since(now, state.healed);
        let calm = if calm.is_zero() { calm } else { calm + RECOVERS };
        let from = calm.max(state.acts.led_since().unwrap_or(now));
        for pod in pods {
            let (uid, node) = (str_at(pod, "/metadata/uid"), str_at(pod, "/spec/nodeName"));
            let waits = state.fences.leaves_since(uid).zip(state.acts.unknown_since(node));
            let Some((asked, unknown)) = waits.filter(|_| !state.fences.is_proved(node)) else { continue };
            if now <= from.max(asked).max(unknown) + LOOKED_AT {
                continue;
            }
            if let Some(reason) = holds.of_pod(pod).next() {
                state.probe(&format!("a pod that cannot end is shown: {reason}"));
            } else if state.acts.report_once(uid) {
                let name = str_at(pod, "/metadata/name");
                let what = format!(
                    "{name} ({uid:.8}) waits for its end on {node}, Unknown since {unknown:?}, and is not shown"
                );
                state.violated(now, Invariant::Stuck, what);
            }
        }
    }

    /// Checks that no more terminated pods remain than the threshold allows, except for the latest ones.
    fn check_terminated(&self, state: &mut State, pods: &[Arc<Value>], nodes: &[Arc<Value>], now: Duration) {
        let Some(healed) = state.healed else { return };
        let present = |name: &str| nodes.iter().any(|node| str_at(node, "/metadata/name") == name);
        let from = [Some(healed + LONGEST_PAUSE), state.acts.led_since()].into_iter().flatten().max();
        let owed = |pod: &&Arc<Value>| {
            let ended = state.acts.ended_at(str_at(pod, "/metadata/uid")).max(from);
            is_terminal(pod)
                && present(str_at(pod, "/spec/nodeName"))
                && pod.pointer("/metadata/finalizers/0").is_none()
                && ended.is_some_and(|ended| now > ended + LOOKED_AT)
        };
        let count = pods.iter().filter(owed).count();
        if count > self.promise.terminated_threshold {
            let what = format!("{count} pods that ended are there, {} may", self.promise.terminated_threshold);
            state.violated(now, Invariant::Liveness, what);
        }
    }
}
