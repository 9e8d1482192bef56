//! The state of disruption budgets: each budget's spec, the pods that it selects (as the API shows them and as they
//! really are), and how many of them may be disrupted.
//!
//! # What Kubernetes cannot guarantee, and what is checked instead
//!
//! The API server allows an eviction by the numbers that a controller has written into the budget's status. Those
//! numbers cannot include the last instants: a process that has just died, a workload that has just been scaled. So the
//! rules do not compare with the exact state; they compare with what a controller could have known:
//!
//! * A healthy controller has acted on everything that was in the API server's log [`REACTS`] ago. The time from there
//!   to now is the *window*.
//! * A disturbance of the controllers under test or of their API servers (network cut, crash, pause, lag, failing
//!   requests, change of the leader) extends the window: it begins [`REACTS`] before the disturbance and ends
//!   [`RECOVERS`] after it.
//! * A pod may count as healthy if the log showed it as healthy at any moment of the window. A workload may count with
//!   the fewest replicas that it had in the window. The budget's spec is always the present one, because the API server
//!   itself compares generations.
//! * Evictions are never excused: the API server counts each of them before it allows the next one, whichever replica
//!   leads and however old its cache is.
//! * A rule is broken only if the processes that really run and are ready do not allow the eviction either.
//!
//! Not checked: evictions of unready pods while their budget is satisfied. They use up nothing
//! (`unhealthyPodEvictionPolicy`). A frozen process counts as ready, because it may thaw.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{Checker, State};
use crate::api::{ObservedChange, selects_labels};
use crate::world::{is_called_ready, number_at, start_up, str_at};

/// A healthy controller has acted on a change this long after it is in the log: two requests of its own, a conflict,
/// and a retry.
pub(super) const REACTS: Duration = Duration::from_secs(5);
/// A controller is healthy again this long after a disturbance ended: the longest backoff of a failed request, and the
/// time that a new leader needs.
pub(super) const RECOVERS: Duration = Duration::from_secs(80);
/// How long an entry in `status.disruptedPods` stays for a pod that was not deleted: `DeletionTimeout` of the upstream
/// disruption controller.
pub(super) const ENTRY_LIVES: Duration = Duration::from_secs(120);

/// A pod that can be ready, as the API shows it.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) uid: String,
    pub(super) created: String,
    labels: Value,
    owner: String,
    pub(super) terminates: bool,
    pub(super) ready: bool,
}

/// One PodDisruptionBudget.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget {
    /// The object as the API shows it.
    pub(super) object: Arc<Value>,
    /// When its spec last changed.
    pub(super) since: Duration,
    /// The pods that the API shows as healthy, with the time from which on.
    healthy: Vec<(Duration, BTreeSet<String>)>,
    /// The UIDs of the workloads whose pods it selects.
    owners: BTreeSet<String>,
    /// The evictions that the API server counted. They reduce the budget until a controller calculates it again.
    counted: Vec<Counted>,
}

/// An eviction that the API server counted.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) at: Duration,
    pub(super) uid: String,
    /// An eviction of this pod had been counted before.
    pub(super) twice: bool,
}

#[derive(Debug, Default)]
pub(super) struct Budgets {
    all: BTreeMap<String, Budget>,
    /// By `namespace/name`.
    pods: BTreeMap<String, Member>,
    /// The replicas of each workload, with the time from which on, by its UID.
    replicas: BTreeMap<String, Vec<(Duration, i64)>>,
    /// When evictions of pods were counted, by UID; without those that failed afterwards.
    evicted: BTreeMap<String, Duration>,
    /// How long each pod takes to become ready, by UID.
    start_up: BTreeMap<String, Duration>,
    /// Until when processes are not ready, by the pod's UID.
    sick: BTreeMap<String, Duration>,
    /// When the processes that calculate budgets were disturbed: from, until.
    disturbed: Vec<(Duration, Duration)>,
}

/// How many pods may be disrupted: the least and the most that a controller could have calculated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    pub(super) least: i64,
    pub(super) most: i64,
    /// By the processes that really run and are ready.
    pub(super) truly: i64,
}

/// The values that held at any moment from `from` on.
fn since<T>(history: &[(Duration, T)], from: Duration) -> &[(Duration, T)] {
    let first = history.partition_point(|(at, _)| *at <= from).saturating_sub(1);
    history.get(first..).unwrap_or_default()
}

/// When a disturbance ended: at the latest when the faults of the run ended, if it began before.
fn over(from: Duration, until: Duration, healed: Option<Duration>) -> Duration {
    healed.filter(|healed| from < *healed).map_or(until, |healed| healed.min(until))
}

/// Resolves a number or a percentage of `of`, rounded up.
fn scaled(amount: &Value, of: i64) -> i64 {
    let percent = amount.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
    percent.map_or_else(|| amount.as_i64().unwrap_or(0), |percent| (percent * of + 99) / 100)
}

/// How many of the expected pods must be healthy.
pub(crate) fn desired(budget: &Value, expected: i64) -> i64 {
    match (budget.pointer("/spec/minAvailable"), budget.pointer("/spec/maxUnavailable")) {
        (Some(least), _) => scaled(least, expected),
        (None, Some(most)) => (expected - scaled(most, expected)).max(0),
        (None, None) => 0,
    }
}

impl Budgets {
    pub(super) fn pod(&self, name: &str) -> Option<&Member> {
        self.pods.get(name)
    }

    /// All budgets, by `namespace/name`.
    pub(super) fn all(&self) -> impl Iterator<Item = (&String, &Budget)> {
        self.all.iter()
    }

    pub(super) fn budget(&self, name: &str) -> Option<&Budget> {
        self.all.get(name)
    }

    /// The budgets that select this pod.
    pub(super) fn guarding(&self, member: &Member) -> Vec<String> {
        let guarding = self.all.iter().filter(|(_, budget)| budget.guards(member));
        guarding.map(|(name, _)| name.clone()).collect()
    }

    /// Records that an eviction of this pod was counted (`Some`), or that it failed afterwards (`None`).
    pub(super) fn counted(&mut self, uid: &str, at: Option<Duration>) {
        match at {
            Some(at) => drop(self.evicted.insert(uid.to_owned(), at)),
            None => drop(self.evicted.remove(uid)),
        }
    }

    pub(super) fn spent(&mut self, budget: &str, counted: Counted) {
        self.all.entry(budget.to_owned()).or_default().counted.push(counted);
    }

    pub(super) fn observe(&mut self, now: Duration, change: &ObservedChange) {
        match change.kind.as_str() {
            "Pod" => self.observe_pod(now, change),
            "PodDisruptionBudget" => {
                let Some(after) = &change.after else { return drop(self.all.remove(&change.name)) };
                let budget = self.all.entry(change.name.clone()).or_default();
                if budget.object.get("spec") != after.get("spec") {
                    budget.since = now;
                }
                budget.object = Arc::clone(after);
                budget.count(now, self.pods.values());
            }
            "StatefulSet" | "ReplicaSet" | "Deployment" | "ReplicationController" => {
                let Some(set) = change.after.as_ref().or(change.before.as_ref()) else { return };
                let replicas = change.after.as_ref().and_then(|set| number_at(set, "/spec/replicas"));
                let history = self.replicas.entry(str_at(set, "/metadata/uid").to_owned()).or_default();
                history.push((now, replicas.unwrap_or(0)));
            }
            _ => {}
        }
    }

    fn observe_pod(&mut self, now: Duration, change: &ObservedChange) {
        let object = change.after.as_deref().or(change.before.as_deref());
        let Some(seconds) = object.and_then(start_up) else { return };
        let before = self.pods.remove(&change.name);
        if let Some(pod) = &change.after {
            let member = Member {
                uid: str_at(pod, "/metadata/uid").to_owned(),
                created: str_at(pod, "/metadata/creationTimestamp").to_owned(),
                labels: pod.pointer("/metadata/labels").cloned().unwrap_or_default(),
                owner: str_at(pod, "/metadata/ownerReferences/0/uid").to_owned(),
                terminates: pod.pointer("/metadata/deletionTimestamp").is_some(),
                ready: is_called_ready(pod),
            };
            self.start_up.insert(member.uid.clone(), Duration::from_secs(seconds));
            self.pods.insert(change.name.clone(), member);
        }
        let after = self.pods.get(&change.name);
        for budget in self.all.values_mut() {
            if [before.as_ref(), after].into_iter().flatten().any(|member| budget.guards(member)) {
                budget.count(now, self.pods.values());
            }
        }
    }

    /// A controller must know the log up to this moment.
    pub(super) fn known_until(&self, now: Duration, healed: Option<Duration>) -> Duration {
        let mut known = now.saturating_sub(REACTS);
        loop {
            let troubled = self.disturbed.iter().find(|(from, until)| {
                let over = over(*from, *until, healed);
                *from <= now && over + RECOVERS > known && from.saturating_sub(REACTS) < known
            });
            match troubled {
                Some((from, _)) => known = from.saturating_sub(REACTS),
                None => return known,
            }
        }
    }

    /// Since when nothing disturbs the processes that calculate budgets.
    pub(super) fn untroubled_since(&self, now: Duration, healed: Option<Duration>) -> Duration {
        let ends = self.disturbed.iter().filter(|(from, _)| *from <= now);
        ends.map(|(from, until)| over(*from, *until, healed)).max().unwrap_or_default()
    }

    /// Whether an eviction of this pod was counted and its entry still counts.
    fn is_evicted(&self, now: Duration, uid: &str) -> bool {
        self.evicted.get(uid).is_some_and(|at| now.saturating_sub(*at) < ENTRY_LIVES || self.is_leaving(uid))
    }

    fn is_leaving(&self, uid: &str) -> bool {
        !self.pods.values().any(|member| member.uid == uid && !member.terminates)
    }

    /// Whether this pod was evicted after `from` and is leaving.
    fn left_after(&self, from: Duration, uid: &str) -> bool {
        self.evicted.get(uid).is_some_and(|at| *at > from) && self.is_leaving(uid)
    }
}

impl Budget {
    fn guards(&self, member: &Member) -> bool {
        selects_labels(self.object.pointer("/spec/selector"), Some(&member.labels))
    }

    fn count<'a>(&mut self, now: Duration, pods: impl Iterator<Item = &'a Member>) {
        let mut healthy = BTreeSet::new();
        for member in pods.filter(|member| selects_labels(self.object.pointer("/spec/selector"), Some(&member.labels)))
        {
            self.owners.insert(member.owner.clone());
            if member.ready && !member.terminates {
                healthy.insert(member.uid.clone());
            }
        }
        if self.healthy.last().map(|(_, known)| known) != Some(&healthy) {
            self.healthy.push((now, healthy));
        }
    }

    /// The number of evictions since `from` that do not change `healthy`: evictions of unhealthy pods, and repeated
    /// evictions of one pod.
    fn for_nothing(&self, from: Duration, healthy: &BTreeSet<String>) -> usize {
        let counted = self.counted.iter().filter(|one| one.at >= from);
        counted.filter(|one| one.twice || !healthy.contains(&one.uid)).count()
    }

    /// A number of the budget's status.
    pub(super) fn status(&self, field: &str) -> i64 {
        number_at(&self.object, &format!("/status/{field}")).unwrap_or(0)
    }

    /// Whether its status was calculated for its present generation.
    pub(super) fn is_observed(&self) -> bool {
        self.status("observedGeneration") >= number_at(&self.object, "/metadata/generation").unwrap_or(0)
    }

    /// The pods in `status.disruptedPods`: name and time of the eviction.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&String, &str)> {
        let entries = self.object.pointer("/status/disruptedPods").and_then(Value::as_object);
        entries.into_iter().flatten().map(|(name, at)| (name, at.as_str().unwrap_or_default()))
    }
}

impl State {
    /// How many pods of a budget may be disrupted, as far as a controller could know from `from` on. `entries` are pods
    /// whose eviction is pending; they reduce the result.
    pub(super) fn allowed(
        &self,
        now: Duration,
        from: Duration,
        budget: &Budget,
        entries: &BTreeSet<String>,
    ) -> Allowed {
        let budgets = &self.budgets;
        let (mut fewest, mut most, mut replicas) = (0, 0, 0);
        for history in budget.owners.iter().filter_map(|owner| budgets.replicas.get(owner)) {
            let desired_replicas = since(history, from).iter().map(|(_, desired_replicas)| *desired_replicas);
            fewest += desired_replicas.clone().min().unwrap_or(0);
            most += desired_replicas.max().unwrap_or(0);
            replicas += history.last().map_or(0, |(_, desired_replicas)| *desired_replicas);
        }
        let stays = |uid: &&String| !budgets.is_evicted(now, uid);
        // A new leader whose watch of pods hangs may count a removed pod as healthy: the last leader saw its removal
        // and took its entry away (docs/disruption.md).
        let seen_to_stay = |uid: &&String| stays(uid) || from + REACTS < now && budgets.left_after(from, uid);
        let sets = since(&budget.healthy, from).iter();
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let at_most = sets.clone().map(|(_, uids)| count(uids.iter().filter(seen_to_stay).count())).max();
        let at_least = sets.map(|(at, uids)| {
            let stay = uids.iter().filter(stays).filter(|uid| !entries.contains(*uid));
            count(stay.count()) - count(budget.for_nothing(from.max(*at), uids))
        });
        Allowed {
            least: at_least.min().unwrap_or(0) - desired(&budget.object, most),
            most: at_most.unwrap_or(0) - desired(&budget.object, fewest),
            truly: self.truly_ready(now, budget) - desired(&budget.object, replicas),
        }
    }

    /// How many of the pods that a budget selects are really ready and not about to leave.
    fn truly_ready(&self, now: Duration, budget: &Budget) -> i64 {
        let counts = |member: &&Member| {
            let goes = member.terminates || self.budgets.is_evicted(now, &member.uid);
            budget.guards(member) && !goes && self.is_truly_ready(now, &member.uid)
        };
        i64::try_from(self.budgets.pods.values().filter(counts).count()).unwrap_or(i64::MAX)
    }

    /// Whether a process of this pod runs and has finished its start.
    fn is_truly_ready(&self, now: Duration, uid: &str) -> bool {
        let Some(start_up) = self.budgets.start_up.get(uid) else { return false };
        let started = self.processes.running().filter(|process| process.uid == uid).map(|process| process.started);
        let well = self.budgets.sick.get(uid).is_none_or(|until| now >= *until);
        well && started.min().is_some_and(|started| now >= started + *start_up)
    }

    /// Records that the processes that calculate budgets are disturbed until `until`.
    pub(super) fn control_is_troubled(&mut self, now: Duration, until: Duration) {
        self.budgets.disturbed.push((now, until));
    }
}

impl Checker {
    /// The result of a readiness probe of the pod's process.
    pub(crate) fn is_ready(&self, uid: &str) -> bool {
        let now = self.now();
        self.state.lock().is_truly_ready(now, uid)
    }

    /// How many of the pods that a budget selects are really ready and not about to leave.
    pub(crate) fn ready_of(&self, budget: &Value) -> i64 {
        let name = format!("{}/{}", str_at(budget, "/metadata/namespace"), str_at(budget, "/metadata/name"));
        let (now, state) = (self.now(), self.state.lock());
        state.budgets.budget(&name).map_or(0, |budget| state.truly_ready(now, budget))
    }

    /// The processes of a pod are not ready until `until`.
    pub(crate) fn sickens(&self, uid: &str, until: Duration) {
        self.state.lock().budgets.sick.insert(uid.to_owned(), until);
    }

    /// The wall clock of a process under test differs from that of the API servers.
    pub(crate) fn clock_jumps(&self) {
        self.state.lock().clocks_jumped = true;
    }

    /// The processes under test or their API servers are disturbed until `until`.
    pub(crate) fn control_is_troubled(&self, until: Duration) {
        let now = self.now();
        self.state.lock().control_is_troubled(now, until);
    }
}
