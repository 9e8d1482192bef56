//! The baseline's disruption budgets, as kube-controller-manager 1.37's disruption controller calculates them, with its
//! weak spots; read from `pkg/controller/disruption/disruption.go`.
//!
//! One worker, twenty requests a second. A budget is calculated when a pod that it selects changes, when it changes
//! itself, and when an entry of it expires; never because a workload was scaled (a weak spot that
//! `controllers/disruption` names). Entries are kept by the names of pods (another one). Of the finders, those of
//! ReplicaSet and StatefulSet are here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::host::{EPOCH, Host};
use super::request::send_request;
use super::run::World;
use super::{is_called_ready, number_at, str_at};

const CALLER: &str = "kcm-disruption";
/// `--kube-api-qps=20`: from one request to the next.
const PACE: Duration = Duration::from_millis(50);
/// `DeletionTimeout`, in seconds.
const DELETION_TIMEOUT: i64 = 120;

/// The controller with its informers, which are the watch cache of its API server.
pub(crate) struct Budgets {
    world: Arc<World>,
    /// The revision up to which it has read.
    observed_revision: u64,
    /// Versions and `app` labels of pods, by UID.
    pods: BTreeMap<String, (String, String)>,
    /// Versions of budgets, by name.
    budgets: BTreeMap<String, String>,
    queue: VecDeque<String>,
    /// Budgets with an entry that expires, by name.
    recheck: BTreeMap<String, i64>,
}

fn selects(budget: &Value, app: &str) -> bool {
    str_at(budget, "/spec/selector/matchLabels/app") == app && !app.is_empty()
}

/// `GetScaledValueFromIntOrPercent`, rounded up.
fn scaled(amount: &Value, of: i64) -> i64 {
    let percent = amount.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
    match percent {
        Some(percent) => (percent * of + 99).div_euclid(100),
        None => amount.as_i64().unwrap_or(0),
    }
}

impl Budgets {
    pub(crate) fn start(world: &Arc<World>, host: &Arc<Host>) {
        let mut budgets = Self {
            world: Arc::clone(world),
            observed_revision: 0,
            pods: BTreeMap::new(),
            budgets: BTreeMap::new(),
            queue: VecDeque::new(),
            recheck: BTreeMap::new(),
        };
        let env = host.env();
        host.start_task("kcm-disruption", async move {
            loop {
                budgets.observe_changes();
                if let Some(name) = budgets.queue.pop_front() {
                    budgets.sync(&name).await;
                }
                env.sleep(PACE).await;
            }
        });
    }

    /// The controller's own clock, which is right.
    fn now(&self) -> i64 {
        EPOCH + i64::try_from(self.world.checker.now().as_secs()).unwrap_or(0)
    }

    fn enqueue(&mut self, name: &str) {
        if !self.queue.iter().any(|queued| queued == name) {
            self.queue.push_back(name.to_owned());
        }
    }

    /// Enqueues what changed in the caches.
    fn observe_changes(&mut self) {
        let now = self.now();
        let due: Vec<_> = self.recheck.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone()).collect();
        for name in due {
            self.recheck.remove(&name);
            self.enqueue(&name);
        }
        let Some(server) = self.world.servers.get(0) else { return };
        if server.applied() == self.observed_revision {
            return;
        }
        self.observed_revision = server.applied();
        let version = |object: &Value| str_at(object, "/metadata/resourceVersion").to_owned();
        let cached = server.cached("PodDisruptionBudget");
        let entries = cached.iter().map(|budget| (str_at(budget, "/metadata/name").to_owned(), version(budget)));
        let entries: BTreeMap<_, _> = entries.collect();
        let changed = entries.iter().filter(|(name, version)| self.budgets.get(*name) != Some(version));
        let mut dirty: Vec<String> = changed.map(|(name, _)| name.clone()).collect();
        self.budgets = entries;
        let pods = server.cached("Pod").into_iter().map(|pod| {
            let app = str_at(&pod, "/metadata/labels/app").to_owned();
            (str_at(&pod, "/metadata/uid").to_owned(), (version(&pod), app))
        });
        let pods: BTreeMap<_, _> = pods.collect();
        let apps = pods.iter().filter(|(uid, pod)| self.pods.get(*uid) != Some(pod));
        let gone = self.pods.iter().filter(|(uid, _)| !pods.contains_key(*uid));
        for (_, (_, app)) in apps.chain(gone) {
            // `getPdbForPod`: the first of those that select it.
            let first = cached.iter().find(|budget| selects(budget, app));
            dirty.extend(first.map(|budget| str_at(budget, "/metadata/name").to_owned()));
        }
        self.pods = pods;
        dirty.iter().for_each(|name| self.enqueue(name));
    }

    /// `trySync`.
    async fn sync(&mut self, name: &str) {
        let Some(server) = self.world.servers.get(0) else { return };
        let cached = server.cached("PodDisruptionBudget");
        let Some(budget) = cached.iter().find(|budget| str_at(budget, "/metadata/name") == name) else {
            return;
        };
        let mut pods = server.cached("Pod");
        pods.retain(|pod| selects(budget, str_at(pod, "/metadata/labels/app")));
        let sets: Vec<Arc<Value>> =
            ["ReplicaSet", "StatefulSet"].into_iter().flat_map(|kind| server.cached(kind)).collect();
        let (status, recheck) = self.status(budget, &pods, &sets);
        if let Some(recheck) = recheck {
            self.recheck.insert(name.to_owned(), recheck);
        }
        if budget.get("status") == Some(&status) {
            return;
        }
        let mut new = Value::clone(budget);
        new["status"] = status;
        let path = format!("/apis/policy/v1/namespaces/default/poddisruptionbudgets/{name}/status");
        let code = send_request(&server, CALLER, "PUT", &path, Some(new)).await.map_or(0, |(code, _)| code);
        if code == 409 {
            self.world.checker.probe("kcm: a budget's status met a conflict");
        }
        if !(200..300).contains(&code) && code != 404 {
            self.enqueue(name);
        }
    }

    /// `getExpectedPodCount`.
    fn expect(budget: &Value, pods: &[Arc<Value>], sets: &[Arc<Value>]) -> (i64, i64) {
        let uids: std::collections::BTreeSet<_> =
            pods.iter().map(|pod| str_at(pod, "/metadata/ownerReferences/0/uid")).collect();
        let owners = sets.iter().filter(|set| uids.contains(str_at(set, "/metadata/uid")));
        let scales: i64 = owners.filter_map(|set| number_at(set, "/spec/replicas")).sum();
        match (budget.pointer("/spec/maxUnavailable"), budget.pointer("/spec/minAvailable")) {
            (Some(most), _) => (scales, (scales - scaled(most, scales)).max(0)),
            (None, Some(Value::Number(least))) => (i64::try_from(pods.len()).unwrap_or(0), least.as_i64().unwrap_or(0)),
            (None, Some(least)) => (scales, scaled(least, scales)),
            (None, None) => (0, 0),
        }
    }

    /// The status that the budget should have, and when an entry of it expires.
    fn status(&self, budget: &Value, pods: &[Arc<Value>], sets: &[Arc<Value>]) -> (Value, Option<i64>) {
        let (expected, desired) = Self::expect(budget, pods, sets);
        let now = self.now();
        let (mut entries, mut recheck) = (Map::new(), None);
        let known = budget.pointer("/status/disruptedPods").and_then(Value::as_object);
        let terminates = |pod: &Value| pod.pointer("/metadata/deletionTimestamp").is_some();
        for pod in pods.iter().filter(|pod| !terminates(pod)) {
            let name = str_at(pod, "/metadata/name");
            let Some(entry) = known.and_then(|known| known.get(name)) else { continue };
            let at: Option<Timestamp> = entry.as_str().and_then(|text| text.parse().ok());
            let expires = at.map_or(0, |at| at.as_second()) + DELETION_TIMEOUT;
            if expires < now {
                self.world.checker.probe("kcm: an entry expired, and its pod was never evicted");
                continue;
            }
            entries.insert(name.to_owned(), entry.clone());
            recheck = Some(recheck.map_or(expires + 1, |earlier: i64| earlier.min(expires + 1)));
        }
        let healthy = pods.iter().filter(|pod| {
            !terminates(pod) && !entries.contains_key(str_at(pod, "/metadata/name")) && is_called_ready(pod)
        });
        let current = i64::try_from(healthy.count()).unwrap_or(0);
        let allowed = if expected <= 0 { 0 } else { (current - desired).max(0) };
        let generation = number_at(budget, "/metadata/generation").unwrap_or(0);
        let (value, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
        let condition = budget.pointer("/status/conditions/0");
        let since = condition.filter(|condition| str_at(condition, "/status") == value);
        let since = since.map_or_else(
            || super::host::stamp(self.world.checker.now()),
            |condition| str_at(condition, "/lastTransitionTime").to_owned(),
        );
        let mut status = json!({
            "currentHealthy": current, "desiredHealthy": desired, "expectedPods": expected,
            "disruptionsAllowed": allowed, "observedGeneration": generation,
            "conditions": [{ "type": "DisruptionAllowed", "status": value, "reason": reason, "message": "",
                "observedGeneration": generation, "lastTransitionTime": since }],
        });
        if !entries.is_empty() {
            status["disruptedPods"] = Value::Object(entries);
        }
        (status, recheck)
    }
}
